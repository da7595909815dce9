// SPDX-License-Identifier: BSD-2-Clause
// AvFile: the file that the processes of a shared address vector have in common: fixed-size records
// in /dev/shm, and two counters in the header that tell each process what it has not read yet.
//
// Example:
//    weft::Result<void> set(const std::string &path, const SockAddr &address) {
//      WEFT_TRY(const auto file, AvFile::open({.path = path, .addr_format = FI_SOCKADDR_IN}));
//      WEFT_CHECK(file->lock(AvFile::kWrite));
//      WEFT_CHECK(file->write(7, address));
//      file->unlock();
//      return {};
//    }
//
// Each process that has the file open shares a lock on it, which the kernel drops when the process
// dies. A process that gets the lock alone is the first, and starts with an empty vector; the last
// one removes the file. Another lock orders the writers. The contents come from another process:
// they are parsed, record by record, and not trusted otherwise. The file must belong to the
// caller's user, and only that user may open it. A process that may open it may also truncate it,
// and thereby end the others, as with kill(2). Not for the addresses themselves: Av keeps those.
#ifndef WEFT_SDK_AV_FILE_H
#define WEFT_SDK_AV_FILE_H

#include <weft/result.h>
#include <weft/sdk/sock_addr.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace weft::sdk {

class AvFile {
 public:
  // No shared vector has more entries; a file that claims more is damaged.
  static constexpr uint32_t kMaxEntries = 1u << 24;
  static constexpr size_t kHeaderSize = 4096;

  struct Header {
    uint64_t magic;
    uint32_t version;
    uint32_t addr_format;
    uint64_t map_addr;
    std::atomic<uint32_t> end;      // records written so far; never less
    std::atomic<uint32_t> changes;  // counts records that were written again
  };
  struct Record {
    uint8_t family;  // 0: none, 4, 6
    uint8_t reserved;
    uint8_t port[2];  // as in a packet
    uint32_t scope;
    uint8_t ip[16];
  };
  static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(Record) == 24);
  static constexpr uint64_t kMagic = UINT64_C(0x7661'7466'6577);  // "weftav"
  static constexpr uint32_t kVersion = 1;

  struct Settings {
    std::string path;
    uint32_t addr_format = FI_SOCKADDR;
    uint64_t map_addr = 0;   // for the process that makes the file
    bool read_only = false;  // FI_READ: never makes one
  };
  static Result<std::unique_ptr<AvFile>> open(const Settings &settings);
  ~AvFile();
  AvFile(const AvFile &) = delete;
  AvFile &operator=(const AvFile &) = delete;

  // The file of a name: unambiguous, whatever characters the names have.
  static Result<std::string> path_of(std::string_view domain, std::string_view name);
  // An error: a record that no process of weft writes.
  static Result<std::optional<SockAddr>> parse(const Record &record);
  static Record make_record(const std::optional<SockAddr> &address);

  uint64_t map_addr() const { return header_->map_addr; }

  // Whether others wrote something since seen() was last called.
  bool changed() const {
    return header_->end.load(std::memory_order_acquire) != seen_end_ ||
           header_->changes.load(std::memory_order_acquire) != seen_changes_;
  }
  bool rewritten() const {
    return header_->changes.load(std::memory_order_acquire) != seen_changes_;
  }
  uint32_t seen_end() const { return seen_end_; }
  uint32_t seen_changes() const { return seen_changes_; }
  struct Counters {
    uint32_t end = 0, changes = 0;
  };
  Result<Counters> counters() const;  // an error: they cannot be true
  void seen(const Counters &counters) {
    seen_end_ = counters.end;
    seen_changes_ = counters.changes;
  }

  // Not reentrant. FI_EAGAIN: another process held it for longer than one waits. What was written
  // is there for others when the lock is let go; of a process that dies before, it never was.
  enum LockKind { kRead, kWrite };
  Result<void> lock(LockKind kind);
  void unlock();

  // Calls take(index, address) for each record of [from, to), with a lock held.
  Result<void> read(uint32_t from, uint32_t to,
                    const std::function<void(uint32_t, const std::optional<SockAddr> &)> &take);
  // With the write lock held, and everything seen.
  Result<void> write(uint32_t index, const std::optional<SockAddr> &address);

 private:
  AvFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  Result<void> initialize(const Settings &settings);
  Result<void> attach(const Settings &settings);
  bool is_named() const;

  const int fd_;
  const std::string path_;
  Header *header_ = nullptr;  // mapped; read-only for FI_READ
  bool linked_ = false;       // shares the lock of kOpenByte
  uint32_t seen_end_ = 0, seen_changes_ = 0;
  uint32_t written_end_ = 0;  // with the write lock held
  bool written_again_ = false;
};

}  // namespace weft::sdk

#endif
