// SPDX-License-Identifier: BSD-2-Clause
// AvFile: the file that the processes of a shared address vector have in common: fixed-size records
// in the user's runtime folder, and two counters in the header that tell each process what it has
// not read yet.
//
// Between the header and the records stand the names: the fi_addr_t of each entry, in the order of
// the indices, FI_ADDR_NOTAVAIL for one that was removed. Applications read them by
// fi_av_attr.map_addr, so that a process need not be told what another one inserted. The names have
// room for all entries that there can be; what was never written takes no memory.
//
// Example:
//    weft::Result<void> set(const std::string &path, const Address &address) {
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
#ifndef WEFT_SDK_ADDRESSES_AV_FILE_H
#define WEFT_SDK_ADDRESSES_AV_FILE_H

#include <sys/types.h>
#include <weft/result.h>
#include <weft/sdk/addresses/address.h>

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
  static constexpr size_t kNamesSize = kMaxEntries * sizeof(fi_addr_t);
  static constexpr off_t kRecordsAt = kHeaderSize + kNamesSize;

  struct Header {
    uint64_t magic;
    uint32_t version;
    uint32_t addr_format;
    uint32_t native;  // the format of the addresses; FI_SOCKADDR_IP: IPv4 and IPv6
    uint32_t reserved;
    uint64_t map_addr;              // where the first process has the names
    std::atomic<uint32_t> end;      // records written so far; never less
    std::atomic<uint32_t> changes;  // counts records that were written again
  };
  // In the file a record has as many bytes as the native format needs (record_size).
  struct Record {
    uint8_t format;  // 0: none
    uint8_t reserved;
    // What AddressCodec packs. For FI_SOCKADDR_IN6: all behind the family, with the scope in the
    // place of the flow label.
    uint8_t address[46];
  };
  static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(Record) == 48);
  static size_t record_size(uint32_t native);
  static constexpr uint64_t kMagic = UINT64_C(0x7661'7466'6577);  // "weftav"
  static constexpr uint32_t kVersion = 3;

  struct Settings {
    std::string path;
    uint32_t addr_format = FI_SOCKADDR;
    uint32_t native = FI_SOCKADDR_IP;
    uint64_t map_addr = 0;   // where the names should be, if there is room
    bool read_only = false;  // FI_READ: never makes one
  };
  static Result<std::unique_ptr<AvFile>> open(const Settings &settings);
  ~AvFile();
  AvFile(const AvFile &) = delete;
  AvFile &operator=(const AvFile &) = delete;

  // The file of a name: unambiguous, whatever characters the names have.
  static Result<std::string> path_of(std::string_view domain, std::string_view name);
  const std::string &path() const { return path_; }
  // An error: a record that no process of weft writes in a file of the native format.
  static Result<std::optional<Address>> parse(const Record &record, uint32_t native);
  static Record make_record(const std::optional<Address> &address);

  // The names, for reading; they stay until the file closes.
  const fi_addr_t *names() const { return names_; }

  // Whether others wrote something since seen() was last called.
  bool changed() const {
    return header_->end.load(std::memory_order_acquire) != seen_end_ ||
           header_->changes.load(std::memory_order_acquire) != seen_changes_;
  }
  bool rewritten() const {
    return header_->changes.load(std::memory_order_acquire) != seen_changes_;
  }
  uint32_t seen_end() const { return seen_end_; }
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
                    const std::function<void(uint32_t, const std::optional<Address> &)> &take);
  // With the write lock held, and everything seen.
  Result<void> write(uint32_t index, const std::optional<Address> &address);

 private:
  AvFile(int fd, const Settings &settings)
      : fd_(fd),
        path_(settings.path),
        native_(settings.native),
        record_size_(record_size(settings.native)) {}
  off_t place_of(uint32_t index) const {
    return kRecordsAt + off_t(uint64_t(index) * record_size_);
  }
  void remove_abandoned() const;
  Result<void> initialize(const Settings &settings);
  Result<void> attach(const Settings &settings);
  Result<void> map_names(uint64_t where);
  bool is_named() const;

  const int fd_;
  const std::string path_;
  const uint32_t native_;
  const size_t record_size_;
  Header *header_ = nullptr;  // mapped; read-only for FI_READ
  const fi_addr_t *names_ = nullptr;
  bool linked_ = false;  // shares the lock of kOpenByte
  uint32_t seen_end_ = 0, seen_changes_ = 0;
  uint32_t written_end_ = 0;  // with the write lock held
  bool written_again_ = false;
};

}  // namespace weft::sdk

#endif
