// SPDX-License-Identifier: BSD-2-Clause
// For the tests of wire/: a seeded generator, random frames, captured bytes of stock peers, and a
// sink that collects frames into buffers of exactly their size, so that the address sanitizer finds
// a byte too many.
//
// Example (statements):
//    Random random(/*seed=*/1);
//    const Frame frame = random_frame(random, EndpointKind::kRdm1, /*max_payload=*/100);
//    CollectingSink sink;
//    CollectingReader reader(EndpointKind::kRdm1, ByteOrder::kNative);
//    EXPECT_TRUE(feed(reader, sink, wire_bytes(frame, ByteOrder::kNative, /*id=*/0)));
//    expect_same(frame, sink.frames.at(0));
//
// Not for the plugin itself.
#ifndef WEFT_PLUGINS_TCP_WIRE_TEST_FRAMES_H
#define WEFT_PLUGINS_TCP_WIRE_TEST_FRAMES_H

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include "frame.h"
#include "reader.h"

namespace weft::tcp::testing {

using Bytes = std::vector<uint8_t>;

// The numbers of a seed are the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t word() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t limit) { return word() % limit; }  // 0..limit-1
  bool one_in(uint64_t n) { return below(n) == 0; }

 private:
  uint64_t state_;
};

// "03 00 ff": spaces and line ends are ignored.
inline Bytes hex(std::string_view text) {
  Bytes bytes;
  int high = -1;
  for (char c : text) {
    int digit;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else {
      continue;
    }
    if (high < 0) {
      high = digit;
    } else {
      bytes.push_back(static_cast<uint8_t>(high << 4 | digit));
      high = -1;
    }
  }
  return bytes;
}

struct Frame {
  FrameHeader header;
  Bytes payload;         // the bytes in the target
  uint64_t dropped = 0;  // the number of discarded bytes
};

inline void expect_same(const FrameHeader &a, const FrameHeader &b) {
  EXPECT_EQ(a.op, b.op);
  EXPECT_EQ(a.op_data, b.op_data);
  EXPECT_EQ(a.flags, b.flags);
  EXPECT_EQ(a.payload_size, b.payload_size);
  EXPECT_EQ(a.data, b.data);
  EXPECT_EQ(a.tag, b.tag);
  EXPECT_EQ(a.rendezvous_length, b.rendezvous_length);
  ASSERT_EQ(a.rma_count, b.rma_count);
  for (size_t i = 0; i < a.rma_count; ++i) EXPECT_EQ(a.rma[i], b.rma[i]) << "vector " << i;
}

inline void expect_same(const Frame &sent, const Frame &received) {
  expect_same(sent.header, received.header);
  ASSERT_EQ(sent.payload.size(), received.payload.size() + received.dropped);
  EXPECT_TRUE(std::equal(received.payload.begin(), received.payload.end(), sent.payload.begin()));
}

inline Bytes wire_bytes(const Frame &frame, ByteOrder order, uint8_t id) {
  Bytes bytes(kMaxHeaderSize);
  bytes.resize(encode_header(frame.header, order, id, bytes.data()));
  bytes.insert(bytes.end(), frame.payload.begin(), frame.payload.end());
  return bytes;
}

inline std::vector<Op> ops_of(EndpointKind kind) {
  std::vector<Op> ops = {Op::kMessage, Op::kReadRequest, Op::kReadResponse, Op::kWrite};
  if (kind == EndpointKind::kRdm0 || kind == EndpointKind::kRdm1) ops.push_back(Op::kTagged);
  if (kind == EndpointKind::kRdm1) {
    ops.insert(ops.end(), {Op::kReadyToSend, Op::kClearToSend, Op::kRendezvousData});
  }
  return ops;
}

// A frame that a peer of this kind may send, with up to `max_payload` bytes.
inline Frame random_frame(Random &random, EndpointKind kind, size_t max_payload) {
  Frame frame;
  FrameHeader &header = frame.header;
  const auto ops = ops_of(kind);
  header.op = ops[random.below(ops.size())];
  size_t payload = random.one_in(3) ? 0 : random.below(max_payload + 1);
  const auto maybe = [&](uint16_t flag) {
    if (random.one_in(2)) header.flags |= flag;
  };
  switch (header.op) {
    case Op::kMessage:
      if (random.one_in(4)) {
        header.op_data = uint8_t(kOpDataAck + random.below(3));  // or a refusal
        payload = 0;
        break;
      }
      if (kind == EndpointKind::kMsgTagged) maybe(kFlagTagged);
      maybe(kFlagRemoteData);
      maybe(kFlagDelivery);
      if ((header.flags & kFlagTagged) != 0) header.tag = random.word();
      break;
    case Op::kTagged:
      header.tag = random.word();
      maybe(kFlagRemoteData);
      maybe(kFlagDelivery);
      break;
    case Op::kReadRequest:
      payload = 0;
      break;
    case Op::kReadResponse:
      break;
    case Op::kWrite:
      maybe(kFlagRemoteData);
      maybe(kFlagDelivery);
      maybe(kFlagCommit);
      break;
    case Op::kReadyToSend:
      payload = 0;
      header.tag = random.word();
      header.rendezvous_length = random.word();
      maybe(kFlagRemoteData);
      maybe(kFlagDelivery);
      break;
    case Op::kClearToSend:
      payload = 0;
      break;
    case Op::kRendezvousData:
      maybe(kFlagRemoteData);
      maybe(kFlagDelivery);
      break;
  }
  if (header.op >= Op::kReadyToSend) {
    header.op_data = static_cast<uint8_t>(1 + random.below(kMaxRendezvous));
  }
  if (header.has_data() && header.op != Op::kRendezvousData) header.data = random.word();
  if (header.op == Op::kWrite || header.op == Op::kReadRequest) {
    header.rma_count = static_cast<uint8_t>(1 + random.below(kMaxRmaVectors));
    uint64_t left = header.op == Op::kWrite ? payload : random.below(uint64_t{1} << 50);
    for (size_t i = 0; i < header.rma_count; ++i) {
      const uint64_t length = i + 1 == header.rma_count ? left : random.below(left + 1);
      header.rma[i] = {random.word(), length, random.word()};
      left -= length;
    }
  }
  header.payload_size = payload;
  frame.payload.resize(payload);
  const uint64_t salt = random.word();
  for (size_t i = 0; i < payload; ++i) {
    frame.payload[i] = static_cast<uint8_t>((salt + i * 0x9e3779b97f4a7c15u) >> 56);
  }
  return frame;
}

// Accepts everything whole in one vector, unless told otherwise.
class CollectingSink {
 public:
  std::vector<Frame> frames;
  size_t asked = 0;
  std::function<Verdict(const FrameHeader &)> verdict;
  // Lengths of the target's vectors; what they do not cover is discarded.
  std::function<std::vector<size_t>(const FrameHeader &)> split;

  Verdict on_header(const FrameHeader &header, Target &target) {
    EXPECT_FALSE(open_) << "a header inside a frame";
    EXPECT_EQ(target.count, 0);
    EXPECT_EQ(target.discard, 0u);
    ++asked;
    if (verdict) {
      const Verdict answer = verdict(header);
      if (answer != Verdict::kAccept) return answer;
    }
    lengths_ =
        split ? split(header) : std::vector<size_t>{static_cast<size_t>(header.payload_size)};
    buffers_.clear();
    for (size_t length : lengths_) {
      buffers_.push_back(std::make_unique<uint8_t[]>(length));
      target.add(buffers_.back().get(), length);
    }
    kept_ = std::accumulate(lengths_.begin(), lengths_.end(), size_t{0});
    target.discard = header.payload_size - kept_;
    open_ = true;
    return Verdict::kAccept;
  }

  void on_frame_end(const FrameHeader &header) {
    EXPECT_TRUE(open_) << "the end of a frame that did not begin";
    open_ = false;
    Frame frame;
    frame.header = header;
    frame.dropped = header.payload_size - kept_;
    for (size_t i = 0; i < lengths_.size(); ++i) {
      frame.payload.insert(frame.payload.end(), buffers_[i].get(), buffers_[i].get() + lengths_[i]);
    }
    frames.push_back(std::move(frame));
  }

  bool open() const { return open_; }

 private:
  std::vector<size_t> lengths_;
  std::vector<std::unique_ptr<uint8_t[]>> buffers_;
  size_t kept_ = 0;
  bool open_ = false;
};

using CollectingReader = Reader<CollectingSink>;

// Feeds `bytes` to the reader as an endpoint would, and resumes it after each stall. False after a
// reject.
inline bool feed(CollectingReader &reader, CollectingSink &sink, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    bytes = bytes.subspan(reader.on_bytes(bytes, sink));
    if (reader.rejected()) return false;
    while (reader.stalled()) reader.resume(sink);
    if (reader.rejected()) return false;
  }
  return true;
}

// Puts bytes into direct(), as readv() does. Returns how many fitted.
inline size_t place(std::span<const iovec> direct, std::span<const uint8_t> bytes) {
  size_t used = 0;
  for (const iovec &iov : direct) {
    const size_t n = std::min(iov.iov_len, bytes.size() - used);
    if (n != 0) std::memcpy(iov.iov_base, bytes.data() + used, n);
    used += n;
  }
  return used;
}

// Whole frames that stock peers sent on loopback. Payloads that were not recorded are made up.
namespace captures {

inline constexpr char kConnectRequest[] =
    "03 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 "
    "00";
inline constexpr char kConnectAccept[] =
    "03 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 "
    "00";
inline constexpr char kRdmRequest[] =
    "03 00 00 08 00 00 00 00 00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 "
    "00"
    "01 00 ac f7 00 00 43 de";
inline constexpr char kRdmAccept[] =
    "03 01 00 08 00 00 00 00 00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 "
    "00"
    "81 00 ac f7 00 00 43 dc";
inline constexpr char kRdmReject[] =
    "03 06 00 08 00 00 00 00 00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
    "00"
    "01 00 88 bd 00 00 21 aa";

// FI_EP_MSG
inline constexpr char kMessage[] =
    "03 00 00 00 00 00 10 00 20 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
    "00";
inline constexpr char kFin[] = "03 00 04 00 00 00 10 00 14 00 00 00 00 00 00 00  66 69 6e 00";
inline constexpr char kAck[] = "03 00 00 00 02 00 10 00 10 00 00 00 00 00 00 00";
// FI_EP_RDM
inline constexpr char kMessageData[] =
    "03 00 01 00 00 00 18 00 28 00 00 00 00 00 00 00  88 77 66 55 44 33 22 11"
    "61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f 70";
inline constexpr char kTaggedData[] =
    "03 01 01 00 00 00 20 00 30 00 00 00 00 00 00 00  88 77 66 55 44 33 22 11 01 10 00 00 00 00 00 "
    "00"
    "61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f 70";
inline constexpr char kWriteData[] =
    "03 04 01 00 00 01 30 00 40 00 00 00 00 00 00 00  88 77 66 55 44 33 22 11 00 00 00 00 00 00 00 "
    "00"
    "10 00 00 00 00 00 00 00 01 00 de c0 00 00 00 00  61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f "
    "70";
inline constexpr char kReadRequest[] =
    "03 02 00 00 00 02 40 00 40 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00 10 00 00 00 00 00 00 "
    "00"
    "01 00 de c0 00 00 00 00 00 10 00 00 00 00 00 00  10 00 00 00 00 00 00 00 01 00 de c0 00 00 00 "
    "00";
inline constexpr char kReadResponse[] =
    "03 03 00 00 00 02 10 00 30 00 00 00 00 00 00 00  61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f "
    "70"
    "61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f 70";
inline constexpr char kTaggedStaleHeader[] =  // 200 bytes of payload follow
    "03 01 00 00 00 02 18 00 e0 00 00 00 00 00 00 00  02 10 00 00 00 00 00 00";
// FI_EP_RDM, rendezvous
inline constexpr char kReadyToSend[] =
    "03 05 04 00 01 00 20 00 20 00 00 00 00 00 00 00  0a 10 00 00 00 00 00 00 20 4e 00 00 00 00 00 "
    "00";
inline constexpr char kClearToSend[] = "03 06 00 00 01 00 10 00 10 00 00 00 00 00 00 00";
inline constexpr char kRendezvousHeader[] =  // 20000 bytes of payload follow
    "03 07 04 00 01 00 10 00 30 4e 00 00 00 00 00 00";
// libfabric 1.17 below ofi_rxm with dynamic receive buffers
inline constexpr char kDynamicTagged[] =
    "03 00 80 00 00 00 18 00 28 00 00 00 00 00 00 00  00 10 00 00 00 00 00 00"
    "61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f 70";
inline constexpr char kDynamicTaggedData[] =
    "03 00 81 00 00 00 20 00 30 00 00 00 00 00 00 00  88 77 66 55 44 33 22 11 01 10 00 00 00 00 00 "
    "00"
    "61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f 70";

}  // namespace captures

}  // namespace weft::tcp::testing

#endif  // WEFT_PLUGINS_TCP_WIRE_TEST_FRAMES_H
