// SPDX-License-Identifier: BSD-2-Clause
// Reader over any stream, in any pieces, with a sink that stalls, refuses, truncates and splits,
// and that says only after the first bytes of a payload where its rest goes (Target::asks). Input:
// a byte for the kind of endpoint (bits 0, 1) and the byte order (bit 2); a byte that says how many
// decisions follow; the decisions, one byte each and used over and over; the stream.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "reader.h"
#include "tests/fuzz/check.h"

using namespace weft::tcp;

namespace {

class Decisions {
 public:
  explicit Decisions(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {}
  uint8_t next() { return bytes_.empty() ? 0 : bytes_[next_++ % bytes_.size()]; }

 private:
  std::vector<uint8_t> bytes_;
  size_t next_ = 0;
};

// What a frame left behind, in buffers of exactly the size of the target's vectors.
struct Received {
  FrameHeader header;
  std::vector<std::unique_ptr<uint8_t[]>> buffers;
  std::vector<size_t> lengths;
  uint64_t rest = 0;  // bytes that the sink will be asked about
  bool ended = false;

  void add(Target &target, size_t length) {
    buffers.push_back(std::make_unique<uint8_t[]>(length));
    lengths.push_back(length);
    target.add(buffers.back().get(), length);
  }
  uint64_t size() const { return std::accumulate(lengths.begin(), lengths.end(), uint64_t{0}); }
  // Each byte of the payload that has a buffer is there.
  bool holds(std::span<const uint8_t> payload) const {
    size_t from = 0;
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (payload.size() - from < lengths[i]) return false;
      if (!std::equal(buffers[i].get(), buffers[i].get() + lengths[i], payload.data() + from))
        return false;
      from += lengths[i];
    }
    return true;
  }
};

struct Sink {
  Sink(Decisions &d, std::span<const uint8_t> all) : decisions(d), stream(all) {}

  Verdict on_header(const FrameHeader &header, Target &target) {
    FUZZ_CHECK(target.count == 0 && target.discard == 0 && !target.asks);
    FUZZ_CHECK(frames.empty() || frames.back().ended);
    FUZZ_CHECK(!over);
    const uint8_t decision = decisions.next();
    if (may_stall(decision)) return Verdict::kStall;
    if (decision == 0xff) return reject();
    Received received;
    received.header = header;
    uint64_t left = std::min<uint64_t>(header.payload_size, 4096);
    if ((decision & 0x20) != 0) left = std::min<uint64_t>(left, decisions.next());  // truncated
    target.discard = header.payload_size - left;
    target.asks = (decision & 0x40) != 0;
    if (target.asks) received.rest = target.discard;
    place(received, target, left, decision);
    frames.push_back(std::move(received));
    return Verdict::kAccept;
  }

  Verdict on_rest(const FrameHeader &header, Target &target) {
    FUZZ_CHECK(target.count == 0 && target.discard == 0 && !target.asks);
    FUZZ_CHECK(!over && !frames.empty() && !frames.back().ended);
    Received &frame = frames.back();
    FUZZ_CHECK(frame.rest != 0, "asked twice, or unasked");
    FUZZ_CHECK(header.size == frame.header.size && header.op == frame.header.op);
    FUZZ_CHECK(frame.holds(stream.subspan(at + header.header_size)), "asked too early");
    const uint8_t decision = decisions.next();
    if (may_stall(decision)) return Verdict::kStall;
    if (decision == 0xff) return reject();
    uint64_t left = std::min<uint64_t>(std::exchange(frame.rest, 0), 4096);
    target.discard = header.payload_size - frame.size() - left;
    if ((decision & 0x20) != 0) {  // truncated
      const uint64_t fits = std::min<uint64_t>(left, decisions.next());
      target.discard += left - fits;
      left = fits;
    }
    place(frame, target, left, decision);
    return Verdict::kAccept;
  }

  void on_frame_end(const FrameHeader &header) {
    FUZZ_CHECK(!frames.empty() && !frames.back().ended);
    FUZZ_CHECK(header.payload_size == frames.back().header.payload_size);
    FUZZ_CHECK(header.op == frames.back().header.op);
    FUZZ_CHECK(frames.back().rest == 0, "the rest went nowhere");
    frames.back().ended = true;
    at += static_cast<size_t>(header.size);
  }

  bool may_stall(uint8_t decision) { return decision % 16 == 1 && ++stalls % 4 != 0; }
  Verdict reject() {
    over = true;
    return Verdict::kReject;
  }
  void place(Received &frame, Target &target, uint64_t left, uint8_t decision) {
    const size_t count = left == 0 ? decision % 2 : 1 + decision % kMaxTargetVectors;
    for (size_t i = 0; i < count; ++i) {
      const size_t n = i + 1 == count ? left : std::min<uint64_t>(left, decisions.next());
      frame.add(target, n);
      left -= n;
    }
    if (decision == 0xfe) {  // an error of the endpoint
      over = true;
      target.discard += 1;
    }
  }

  Decisions &decisions;
  const std::span<const uint8_t> stream;
  size_t at = 0;  // in the stream: behind the frames that ended
  std::vector<Received> frames;
  size_t stalls = 0;
  bool over = false;
};

void check_state(const Reader<Sink> &reader) {
  uint64_t sum = 0;
  for (const iovec &iov : reader.direct()) sum += iov.iov_len;
  FUZZ_CHECK(sum == reader.direct_left());
  const bool has_more = reader.direct_left() != 0 || reader.discard_left() != 0;
  // It may stall in the middle of a payload, and be rejected there.
  FUZZ_CHECK(reader.in_payload() ? has_more : !has_more || reader.stalled() || reader.rejected());
  FUZZ_CHECK(reader.direct().empty() || reader.direct()[0].iov_len != 0);
  FUZZ_CHECK(
      reader.stalled() + reader.in_payload() + reader.rejected().has_value() + reader.idle() <= 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2 || size - 2 < data[1]) return 0;
  Decisions decisions({data + 2, data + 2 + data[1]});
  const std::vector<uint8_t> stream(data + 2 + data[1], data + size);
  const auto order = static_cast<ByteOrder>(data[0] >> 2 & 1);
  const auto kind = static_cast<EndpointKind>(data[0] & 3);

  Sink sink(decisions, stream);
  Reader<Sink> reader(kind, order);
  size_t at = 0;
  while (at < stream.size() && !reader.rejected()) {
    const uint8_t decision = decisions.next();
    size_t n = decision == 0 ? stream.size() : decision;
    n = std::min(n, stream.size() - at);
    if ((decision & 0x80) != 0) {  // readv()
      size_t placed = 0;
      for (const iovec &iov : reader.direct()) {
        const size_t part = std::min(iov.iov_len, n - placed);
        if (part != 0) std::memcpy(iov.iov_base, stream.data() + at + placed, part);
        placed += part;
      }
      reader.on_direct(placed, sink);
      check_state(reader);
      at += placed;
      n -= placed;
    }
    while (n != 0 && !reader.rejected()) {
      const std::vector<uint8_t> bytes(stream.begin() + static_cast<ptrdiff_t>(at),
                                       stream.begin() + static_cast<ptrdiff_t>(at + n));
      const size_t used = reader.on_bytes(bytes, sink);
      check_state(reader);
      FUZZ_CHECK(used <= n);
      FUZZ_CHECK(used == n || reader.stalled() || reader.rejected());
      at += used;
      n -= used;
      if (reader.stalled()) {
        FUZZ_CHECK(reader.on_bytes(bytes, sink) == 0);
        reader.resume(sink);
        check_state(reader);
      }
    }
  }

  // Walk the stream again by the headers alone: each frame's bytes must lie in its buffers.
  size_t offset = 0;
  for (const Received &frame : sink.frames) {
    if (!frame.ended) break;
    FUZZ_CHECK(stream.size() - offset >= frame.header.size);
    FUZZ_CHECK(frame.holds(std::span(stream).subspan(offset + frame.header.header_size)));
    offset += static_cast<size_t>(frame.header.size);
  }
  if (!reader.rejected()) FUZZ_CHECK(at == stream.size());
  if (reader.idle()) FUZZ_CHECK(offset == stream.size());
  return 0;
}
