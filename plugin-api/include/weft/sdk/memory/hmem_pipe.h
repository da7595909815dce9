// SPDX-License-Identifier: BSD-2-Clause
// HmemOutput and HmemInput: bytes of devices on their way into a stream of bytes, and out of one.
// The device copies the next part while the stream takes or brings this one.
//
// Example:
//    #include <sys/socket.h>
//    // Sends vectors that may be memory of a device. `owner` is who has the stream.
//    inline ssize_t send_from_devices(HmemOutput &output, const void *owner, int fd,
//                                     std::span<iovec> iov) {
//      size_t count = iov.size();
//      if (!output.stage(owner, iov, count)) return -FI_EIO;  // a device has failed
//      msghdr message{};
//      message.msg_iov = iov.data();
//      message.msg_iovlen = count;
//      const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
//      output.on_sent(iov.first(count), sent > 0 ? size_t(sent) : 0);
//      return sent;
//    }
//
// Each has two buffers of the host, which are registered with the device when it is first met. One
// of each serves many streams, one after the other, under the lock of their domain. Not for single
// messages that are short: hmem_copy().
#ifndef WEFT_SDK_MEMORY_HMEM_PIPE_H
#define WEFT_SDK_MEMORY_HMEM_PIPE_H

#include <sys/uio.h>
#include <weft/sdk/memory/hmem.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace weft::sdk {

// Memory of the host that a device reaches by itself once it has been met.
class HmemStaging {
 public:
  HmemStaging(std::shared_ptr<const Hmem> hmem, size_t size);
  ~HmemStaging();
  HmemStaging(const HmemStaging &) = delete;
  HmemStaging &operator=(const HmemStaging &) = delete;

  const Hmem &hmem() const { return *hmem_; }
  uint8_t *bytes() const { return bytes_.get(); }
  bool has(const void *at) const { return at >= bytes_.get() && at < bytes_.get() + size_; }
  void meet(const HmemPlace &place) {
    if (known_ == nullptr) [[unlikely]]
      become_known(place);
  }

 private:
  struct Free {
    void operator()(uint8_t *bytes) const;
  };
  void become_known(const HmemPlace &place);

  const std::shared_ptr<const Hmem> hmem_;
  const size_t size_;
  const std::unique_ptr<uint8_t, Free> bytes_;
  HmemIface *known_ = nullptr;  // whose devices know the memory
};

// What a stream sends, in the order of the stream.
class HmemOutput {
 public:
  static constexpr size_t kPart = size_t{1} << 20;    // of each buffer
  static constexpr size_t kFirst = size_t{64} << 10;  // nothing is sent before these have come

  explicit HmemOutput(std::shared_ptr<const Hmem> hmem)
      : staging_(std::move(hmem), 2 * kPart),
        parts_{Part{.bytes = staging_.bytes()}, Part{.bytes = staging_.bytes() + kPart}} {}
  ~HmemOutput() { drop(); }

  // The first `count` of `iov` are the next bytes of the stream of `owner`. Vectors in memory of a
  // device are replaced by copies, and `count` becomes the number of vectors that can be sent now.
  // False: a device has failed.
  bool stage(const void *owner, std::span<iovec> iov, size_t &count);
  // The stream took so many bytes of what stage() left.
  void on_sent(std::span<const iovec> iov, size_t sent);
  // The stream sends something else than what it had told, or its memory goes away.
  void forget(const void *owner) {
    if (owner == owner_) drop();
  }

 private:
  struct Piece {
    const uint8_t *from;
    size_t length;
    HmemPlace place;
    size_t vector = 0;
  };
  // Copies of pieces, one behind the other.
  struct Part {
    uint8_t *bytes;
    std::vector<Piece> pieces = {};
    size_t first = 0;  // of `pieces`; those before have been sent
    size_t at = 0;     // of `bytes`: the first one of `pieces[first]`
    bool under_way = false;

    bool empty() const { return first == pieces.size(); }
    void clear() {
      pieces.clear();
      first = at = 0;
      under_way = false;
    }
  };

  bool continues() const;
  size_t fill(Part &part, size_t room, size_t piece, size_t skipped);
  bool finish(Part &part);
  void drop();

  HmemStaging staging_;
  const void *owner_ = nullptr;
  std::array<Part, 2> parts_;
  size_t now_ = 0;             // of `parts_`: it is sent before the other one
  std::vector<Piece> wanted_;  // of one call of stage()
};

// What a stream receives.
class HmemInput {
 public:
  static constexpr size_t kPart = size_t{1} << 20;
  static constexpr size_t kShort = size_t{16} << 10;  // is copied at once

  explicit HmemInput(std::shared_ptr<const Hmem> hmem) : staging_(std::move(hmem), 2 * kPart) {}
  ~HmemInput() { (void)finish(); }

  // Where the next kPart bytes may be read to.
  uint8_t *bytes() const { return staging_.bytes() + (is_second_ ? kPart : 0); }
  bool has(const void *at) const { return staging_.has(at); }
  // Starts to copy bytes from bytes() into a device; both must stay until finish(). What was
  // started before is finished. False: a device has failed, and nothing is under way.
  bool start(void *to, const HmemPlace &place, const void *from, size_t length);
  // What was started is where it belongs. False: a device has failed.
  bool finish();

 private:
  HmemStaging staging_;
  bool is_second_ = false;
  HmemPlace place_;  // of the copy that is under way
};

}  // namespace weft::sdk

#endif
