// SPDX-License-Identifier: BSD-2-Clause
// Reader: the receive side of a data stream as a state machine. Bytes go in, in any pieces. Headers
// come out to a sink, which gives a target for each payload, and the reader puts the payload there.
// No socket, no clock, no allocation.
//
// Example:
//    #include <sys/socket.h>
//    #include <vector>
//    struct Sink {
//      iovec posted{};  // the receive of the application
//      Verdict on_header(const FrameHeader &header, Target &target) {
//        if (posted.iov_base == nullptr) return Verdict::kStall;  // resume() asks again
//        target.fit({&posted, 1}, header.payload_size);           // truncates if it must
//        return Verdict::kAccept;
//      }
//      void on_frame_end(const FrameHeader &header);  // the payload is in place: completes it
//    };
//    inline void on_readable(int fd, Reader<Sink> &reader, Sink &sink,
//                            std::vector<uint8_t> &rest) {
//      uint8_t staging[4096];
//      const ssize_t n = recv(fd, staging, sizeof staging, 0);
//      if (n <= 0) return;
//      const size_t used = reader.on_bytes({staging, size_t(n)}, sink);
//      rest.assign(staging + used, staging + n);  // of a stall: for on_bytes() after resume()
//    }
//
// In the middle of a large payload, read straight into the target to save a copy. The staging
// buffer comes last, for the bytes behind the payload.
//
// Example:
//    template <FrameSink Sink>
//    void on_readable(int fd, Reader<Sink> &reader, Sink &sink, std::span<uint8_t> staging) {
//      iovec iov[kMaxTargetVectors + 1];
//      size_t count = 0;
//      for (const iovec &part : reader.direct()) iov[count++] = part;
//      iov[count++] = {staging.data(), staging.size()};
//      const ssize_t n = readv(fd, iov, int(count));
//      if (n <= 0) return;
//      const auto placed = size_t(std::min<uint64_t>(uint64_t(n), reader.direct_left()));
//      reader.on_direct(placed, sink);
//      reader.on_bytes(staging.first(size_t(n) - placed), sink);
//    }
//
// The reader never calls the sink after a reject. The sink must not call the reader from its
// callbacks. A reader belongs to one direction of one connection, and starts behind the connection
// message (connect_message.h).
#ifndef WEFT_PLUGINS_TCP_WIRE_READER_H
#define WEFT_PLUGINS_TCP_WIRE_READER_H

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "frame.h"

namespace weft::tcp {

enum class Verdict : uint8_t {
  kAccept,  // the target is set
  kStall,   // no place for this frame now; the target is ignored
  kReject,  // a violation of the protocol: the stream ends here
};

inline constexpr size_t kMaxTargetVectors = 4;

// Where a payload goes: to the vectors in order; then `discard` bytes are dropped. The sum must be
// the size of the payload. Empty when on_header() is called.
struct Target {
  std::array<iovec, kMaxTargetVectors> iov;
  uint8_t count = 0;
  // Not to drop the `discard` bytes before the sink has said where they go: on_rest(header,
  // target), which it has then, is called before the first byte behind the vectors is taken, and by
  // resume().
  bool asks = false;
  uint64_t discard = 0;

  // Appends a vector. One beyond kMaxTargetVectors is left out, and the frame will be rejected.
  void add(void *base, size_t length) {
    if (count < kMaxTargetVectors) iov[count++] = {base, length};
  }
  // Sets the target to the first kMaxTargetVectors of `buffers`, and discards the payload bytes
  // that do not fit. Returns the number of bytes that fit.
  uint64_t fit(std::span<const iovec> buffers, uint64_t payload_size) {
    uint64_t left = payload_size;
    count = 0;
    for (const iovec &buffer : buffers) {
      if (left == 0 || count == kMaxTargetVectors) break;
      const auto length = static_cast<size_t>(std::min<uint64_t>(left, buffer.iov_len));
      add(buffer.iov_base, length);
      left -= length;
    }
    discard = left;
    return payload_size - left;
  }
};

template <class T>
concept FrameSink = requires(T sink, const FrameHeader &header, Target &target) {
  { sink.on_header(header, target) } -> std::same_as<Verdict>;
  sink.on_frame_end(header);
};

// `Sink` satisfies FrameSink; it may be incomplete where the reader is declared, so that an
// endpoint can hold its own reader.
template <class Sink>
class Reader {
 public:
  Reader(EndpointKind kind, ByteOrder order) : kind_(kind), order_(order) {}
  // For owners that learn kind and order from the connection message. Before the first byte.
  void start(EndpointKind kind, ByteOrder order) { *this = Reader(kind, order); }

  // Feeds received bytes and returns how many were consumed: fewer only after a stall or a reject.
  size_t on_bytes(std::span<const uint8_t> bytes, Sink &sink);

  // Inside a payload: the rest of its target, for readv(). Otherwise empty, also when only
  // discard_left() remains.
  std::span<const iovec> direct() const {
    return {target_.iov.data() + at_, size_t(target_.count - at_)};
  }
  uint64_t direct_left() const { return direct_left_; }  // bytes in direct()
  // Inside a payload: the number of bytes behind direct() that will be dropped.
  uint64_t discard_left() const { return target_.discard; }
  // `n` bytes, at most direct_left(), were put at the front of direct(). n == 0 does nothing.
  void on_direct(size_t n, Sink &sink);

  // The sink had no place for the last header.
  bool stalled() const { return state_ == State::kStalled; }
  const FrameHeader &stalled_header() const { return header_; }
  // Asks the sink again; no effect unless stalled. If stalled() is false afterwards, feed the bytes
  // that on_bytes() left over.
  void resume(Sink &sink);

  bool in_payload() const { return state_ == State::kPayload; }
  // At a frame boundary: end of file here loses no frame.
  bool idle() const { return state_ == State::kHeader && have_ == 0; }
  std::optional<Reject> rejected() const {
    return state_ == State::kRejected ? std::optional(reject_) : std::nullopt;
  }

 private:
  enum class State : uint8_t { kHeader, kStalled, kPayload, kRejected };

  size_t begin_frame(const FrameHeader &header, std::span<const uint8_t> rest, Sink &sink);
  size_t take_payload(const FrameHeader &header, std::span<const uint8_t> rest, Sink &sink);
  bool aim_rest(const FrameHeader &header, Sink &sink);
  // A target may be memory that only the sink can write to.
  static void put(void *to, const uint8_t *from, size_t n, Sink &sink) {
    if constexpr (requires { sink.put(to, from, n); }) {
      sink.put(to, from, n);
    } else {
      std::memcpy(to, from, n);
    }
  }
  void skip_full_vectors();
  bool payload_done() const { return direct_left_ == 0 && target_.discard == 0; }
  void end_payload();
  void fail(Reject reason);

  // A header that is not complete, or the header of a frame whose payload is not complete.
  union {
    uint8_t raw_[kMaxHeaderSize];
    FrameHeader header_{};
  };
  Target target_{};
  uint64_t direct_left_ = 0;
  uint8_t at_ = 0;    // first vector of the target that is not full
  uint8_t have_ = 0;  // bytes in raw_
  State state_ = State::kHeader;
  Reject reject_{};
  EndpointKind kind_;
  ByteOrder order_;
};
static_assert(sizeof(Reader<int>) <= 240, "every endpoint has a reader: keep it small");

template <class Sink>
size_t Reader<Sink>::on_bytes(std::span<const uint8_t> bytes, Sink &sink) {
  static_assert(FrameSink<Sink>);
  size_t used = 0;
  while (used < bytes.size()) {
    const auto rest = bytes.subspan(used);
    if (state_ == State::kPayload) {
      used += take_payload(header_, rest, sink);
      if (payload_done()) {
        end_payload();
        sink.on_frame_end(header_);
      }
      continue;
    }
    if (state_ != State::kHeader) break;

    if (have_ == 0 && rest.size() >= kMinHeaderSize) {  // the usual case: the header is whole
      const auto size = parse_prefix(rest);
      if (!size) {
        fail(size.error());
        break;
      }
      if (*size <= rest.size()) {
        const auto header = parse_header(rest.first(*size), order_, kind_);
        if (!header) {
          fail(header.error());
          break;
        }
        used += *size;
        used += begin_frame(*header, bytes.subspan(used), sink);
        continue;
      }
    }

    // A header in pieces: first the part that has its size, then the rest.
    const size_t need = have_ < kMinHeaderSize ? kMinHeaderSize : raw_[detail::kHeaderSizeAt];
    const size_t n = std::min(need - have_, rest.size());
    std::memcpy(raw_ + have_, rest.data(), n);
    have_ = static_cast<uint8_t>(have_ + n);
    used += n;
    if (have_ < need) break;
    const auto size = parse_prefix({raw_, have_});
    if (!size) {
      fail(size.error());
      break;
    }
    if (*size > have_) continue;
    const auto header = parse_header({raw_, have_}, order_, kind_);
    have_ = 0;
    if (!header) {
      fail(header.error());
      break;
    }
    used += begin_frame(*header, bytes.subspan(used), sink);
  }
  return used;
}

// `header` is not header_. Returns the number of payload bytes taken from `rest`.
template <class Sink>
size_t Reader<Sink>::begin_frame(const FrameHeader &header, std::span<const uint8_t> rest,
                                 Sink &sink) {
  target_.count = 0;
  target_.discard = 0;
  const Verdict verdict = sink.on_header(header, target_);
  if (verdict != Verdict::kAccept) {
    end_payload();
    if (verdict == Verdict::kStall) {
      std::construct_at(&header_, header);
      state_ = State::kStalled;
    } else {
      fail(Reject::kRefused);
    }
    return 0;
  }

  uint64_t left = header.payload_size;
  bool fits = target_.discard <= left;
  if (fits) left -= target_.discard;
  const uint64_t direct = left;
  for (size_t i = 0; i < target_.count && fits; ++i) {
    fits = target_.iov[i].iov_len <= left;
    left -= target_.iov[i].iov_len;
  }
  if (!fits || left != 0) {
    fail(Reject::kTarget);
    return 0;
  }
  direct_left_ = direct;
  at_ = 0;
  skip_full_vectors();
  state_ = State::kPayload;
  const size_t n = take_payload(header, rest, sink);
  if (payload_done()) {
    end_payload();
    sink.on_frame_end(header);
  } else {
    std::construct_at(&header_, header);
  }
  return n;
}

// Asks where the rest of the payload goes. False: it stalls, or is rejected.
template <class Sink>
bool Reader<Sink>::aim_rest(const FrameHeader &header, Sink &sink) {
  Target rest{};
  Verdict verdict = Verdict::kReject;
  if constexpr (requires { sink.on_rest(header, rest); }) verdict = sink.on_rest(header, rest);
  if (verdict == Verdict::kStall) {
    state_ = State::kStalled;
    return false;
  }
  uint64_t direct = 0;
  for (size_t i = 0; i < rest.count; ++i) direct += rest.iov[i].iov_len;
  if (verdict == Verdict::kReject || direct + rest.discard != target_.discard) {
    fail(verdict == Verdict::kReject ? Reject::kRefused : Reject::kTarget);
    target_.discard = 1;  // the frame has not ended
    return false;
  }
  target_ = rest;
  target_.asks = false;
  direct_left_ = direct;
  at_ = 0;
  skip_full_vectors();
  state_ = State::kPayload;
  return true;
}

template <class Sink>
size_t Reader<Sink>::take_payload(const FrameHeader &header, std::span<const uint8_t> rest,
                                  Sink &sink) {
  size_t used = 0;
  while (direct_left_ != 0 && used < rest.size()) {
    iovec &iov = target_.iov[at_];
    const size_t n = std::min(iov.iov_len, rest.size() - used);
    put(iov.iov_base, rest.data() + used, n, sink);
    iov.iov_base = static_cast<uint8_t *>(iov.iov_base) + n;
    iov.iov_len -= n;
    direct_left_ -= n;
    used += n;
    skip_full_vectors();
  }
  if (target_.discard == 0) return used;
  if (target_.asks) {
    if (direct_left_ != 0 || !aim_rest(header, sink)) return used;
    return used + take_payload(header, rest.subspan(used), sink);
  }
  const auto dropped = static_cast<size_t>(std::min<uint64_t>(target_.discard, rest.size() - used));
  target_.discard -= dropped;
  return used + dropped;
}

template <class Sink>
void Reader<Sink>::on_direct(size_t n, Sink &sink) {
  static_assert(FrameSink<Sink>);
  n = static_cast<size_t>(std::min<uint64_t>(n, direct_left_));
  if (n == 0) return;
  direct_left_ -= n;
  while (n != 0) {
    iovec &iov = target_.iov[at_];
    const size_t part = std::min(iov.iov_len, n);
    iov.iov_base = static_cast<uint8_t *>(iov.iov_base) + part;
    iov.iov_len -= part;
    n -= part;
    skip_full_vectors();
  }
  if (payload_done()) {
    end_payload();
    sink.on_frame_end(header_);
  }
}

template <class Sink>
void Reader<Sink>::resume(Sink &sink) {
  static_assert(FrameSink<Sink>);
  if (state_ != State::kStalled) return;
  if (target_.asks) {
    aim_rest(header_, sink);
    return;
  }
  const FrameHeader header = header_;
  state_ = State::kHeader;
  begin_frame(header, {}, sink);
}

template <class Sink>
void Reader<Sink>::skip_full_vectors() {
  while (at_ < target_.count && target_.iov[at_].iov_len == 0) ++at_;
}

template <class Sink>
void Reader<Sink>::end_payload() {
  state_ = State::kHeader;
  target_.count = at_ = 0;
  target_.asks = false;
  target_.discard = direct_left_ = 0;
}

template <class Sink>
void Reader<Sink>::fail(Reject reason) {
  end_payload();
  state_ = State::kRejected;
  reject_ = reason;
}

}  // namespace weft::tcp

#endif  // WEFT_PLUGINS_TCP_WIRE_READER_H
