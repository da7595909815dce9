// SPDX-License-Identifier: BSD-2-Clause
#include "frame.h"

#include <set>
#include <string>

#include "plugin-api/sdk/testing/test_rounds.h"
#include "test_frames.h"

namespace weft::tcp {
namespace {

using namespace testing;

constexpr ByteOrder kOrders[] = {ByteOrder::kNative, ByteOrder::kNetwork};
constexpr EndpointKind kKinds[] = {EndpointKind::kMsg, EndpointKind::kMsgTagged,
                                   EndpointKind::kRdm0, EndpointKind::kRdm1};

FrameHeader parse(const Bytes &bytes, EndpointKind kind = EndpointKind::kRdm1,
                  ByteOrder order = ByteOrder::kNative) {
  const auto header = parse_header(bytes, order, kind);
  if (!header) {
    ADD_FAILURE() << "rejected: " << text(header.error());
    return {};
  }
  return *header;
}

std::optional<Reject> why_not(const Bytes &bytes, EndpointKind kind = EndpointKind::kRdm1,
                              ByteOrder order = ByteOrder::kNative) {
  const auto header = parse_header(bytes, order, kind);
  return header ? std::nullopt : std::optional(header.error());
}

// A header with every field chosen, right or wrong, in native order.
Bytes raw(uint8_t op, uint16_t flags, uint8_t op_data, uint8_t rma_count, uint8_t header_size,
          uint64_t size, const std::vector<uint64_t> &extension = {}) {
  Bytes bytes = {3, op, 0, 0, op_data, rma_count, header_size, 0};
  std::memcpy(bytes.data() + 2, &flags, 2);
  const auto add = [&](uint64_t word) {
    const auto *at = reinterpret_cast<const uint8_t *>(&word);
    bytes.insert(bytes.end(), at, at + 8);
  };
  add(size);
  for (uint64_t word : extension) add(word);
  return bytes;
}

TEST(Frame, MessageOfStockPeer) {
  for (EndpointKind kind : kKinds) {
    const FrameHeader header = parse(hex(captures::kMessage), kind);
    EXPECT_EQ(header.op, Op::kMessage);
    EXPECT_EQ(header.header_size, 16);
    EXPECT_EQ(header.size, 32u);
    EXPECT_EQ(header.payload_size, 16u);
    EXPECT_FALSE(header.is_ack());
    EXPECT_FALSE(header.has_data());
    EXPECT_FALSE(header.wants_ack());
  }
}

TEST(Frame, AcknowledgedMessageOfStockPeer) {
  const FrameHeader fin = parse(hex(captures::kFin), EndpointKind::kMsg);
  EXPECT_TRUE(fin.wants_ack());
  EXPECT_EQ(fin.payload_size, 4u);
  const FrameHeader ack = parse(hex(captures::kAck), EndpointKind::kMsg);
  EXPECT_TRUE(ack.is_ack());
  EXPECT_FALSE(ack.wants_ack());
  EXPECT_EQ(ack.payload_size, 0u);
}

TEST(Frame, DataComesBeforeTheTag) {
  EXPECT_EQ(parse(hex(captures::kMessageData)).data, 0x1122334455667788u);
  const FrameHeader header = parse(hex(captures::kTaggedData));
  EXPECT_EQ(header.data, 0x1122334455667788u);
  EXPECT_EQ(header.tag, 0x1001u);
  EXPECT_EQ(header.payload_size, 16u);
}

TEST(Frame, RmaOfStockPeer) {
  const FrameHeader write = parse(hex(captures::kWriteData), EndpointKind::kMsg);
  EXPECT_EQ(write.data, 0x1122334455667788u);
  ASSERT_EQ(write.rma_count, 1);
  EXPECT_EQ(write.rma[0], (RmaVector{0, 16, 0xc0de0001}));
  EXPECT_EQ(write.payload_size, 16u);

  const FrameHeader request = parse(hex(captures::kReadRequest), EndpointKind::kMsg);
  ASSERT_EQ(request.rma_count, 2);
  EXPECT_EQ(request.rma[0], (RmaVector{0, 16, 0xc0de0001}));
  EXPECT_EQ(request.rma[1], (RmaVector{0x1000, 16, 0xc0de0001}));
  EXPECT_EQ(request.rma_length(), 32u);
  EXPECT_EQ(request.vectors().size(), 2u);
  EXPECT_EQ(request.payload_size, 0u);
}

TEST(Frame, StaleValuesPass) {
  const FrameHeader response = parse(hex(captures::kReadResponse), EndpointKind::kMsg);
  EXPECT_EQ(response.payload_size, 32u);
  EXPECT_EQ(response.rma_count, 0);
  Bytes copied_flags = hex(captures::kReadResponse);
  copied_flags[2] = 0x0d;
  EXPECT_EQ(parse(copied_flags).flags, 0);
  EXPECT_EQ(parse(copied_flags).header_size, 16);

  const FrameHeader tagged = parse(hex(captures::kTaggedStaleHeader));
  EXPECT_EQ(tagged.tag, 0x1002u);
  EXPECT_EQ(tagged.payload_size, 200u);
  EXPECT_EQ(tagged.rma_count, 0);

  for (const char *capture : {captures::kMessage, captures::kAck, captures::kTaggedData,
                              captures::kWriteData, captures::kReadyToSend}) {
    Bytes bytes = hex(capture);
    const FrameHeader plain = parse(bytes);
    bytes[0] = 0xff;  // version
    bytes[7] = 0xff;  // id
    if (bytes[1] != 4) bytes[5] = 0xff;
    expect_same(parse(bytes), plain);
  }
}

TEST(Frame, RendezvousOfStockPeer) {
  const FrameHeader ready = parse(hex(captures::kReadyToSend));
  EXPECT_EQ(ready.op, Op::kReadyToSend);
  EXPECT_EQ(ready.op_data, 1);
  EXPECT_EQ(ready.tag, 0x100au);
  EXPECT_EQ(ready.rendezvous_length, 20000u);
  EXPECT_TRUE(ready.wants_ack());
  EXPECT_EQ(ready.payload_size, 0u);
  EXPECT_EQ(parse(hex(captures::kClearToSend)).op, Op::kClearToSend);
  const FrameHeader data = parse(hex(captures::kRendezvousHeader));
  EXPECT_EQ(data.op, Op::kRendezvousData);
  EXPECT_EQ(data.payload_size, 20000u);
  EXPECT_TRUE(data.wants_ack());
}

TEST(Frame, RendezvousDataRepeatsTheFlagButNotTheData) {
  const FrameHeader header = parse(raw(7, 0x5, 1, 0, 16, 116));
  EXPECT_EQ(header.payload_size, 100u);
  EXPECT_EQ(header.data, 0u);
}

TEST(Frame, TaggedInMessage) {
  const FrameHeader tagged = parse(hex(captures::kDynamicTagged), EndpointKind::kMsgTagged);
  EXPECT_EQ(tagged.tag, 0x1000u);
  EXPECT_EQ(tagged.payload_size, 16u);
  const FrameHeader both = parse(hex(captures::kDynamicTaggedData), EndpointKind::kMsgTagged);
  EXPECT_EQ(both.data, 0x1122334455667788u);
  EXPECT_EQ(both.tag, 0x1001u);
  for (EndpointKind kind : {EndpointKind::kMsg, EndpointKind::kRdm0, EndpointKind::kRdm1}) {
    EXPECT_EQ(why_not(hex(captures::kDynamicTagged), kind), Reject::kFlags);
  }
}

TEST(Frame, EncodesWhatWasCaptured) {
  for (const char *capture :
       {captures::kMessage, captures::kFin, captures::kAck, captures::kMessageData,
        captures::kTaggedData, captures::kWriteData, captures::kReadRequest, captures::kReadyToSend,
        captures::kClearToSend, captures::kRendezvousHeader, captures::kDynamicTagged,
        captures::kDynamicTaggedData}) {
    const Bytes bytes = hex(capture);
    const auto kind = bytes[2] & 0x80 ? EndpointKind::kMsgTagged : EndpointKind::kRdm1;
    const FrameHeader header = parse(bytes, kind);
    Bytes out(kMaxHeaderSize);
    out.resize(encode_header(header, ByteOrder::kNative, 0, out.data()));
    EXPECT_EQ(out, Bytes(bytes.begin(), bytes.begin() + header.header_size)) << capture;
  }
}

TEST(Frame, OtherOrderIsBigEndian) {
  FrameHeader header;
  header.op = Op::kTagged;
  header.flags = kFlagRemoteData | kFlagDelivery;
  header.data = 0x1122334455667788;
  header.tag = 0x1001;
  header.payload_size = 0x200;
  Bytes out(kMaxHeaderSize);
  const auto order =
      std::endian::native == std::endian::little ? ByteOrder::kNetwork : ByteOrder::kNative;
  out.resize(encode_header(header, order, 9, out.data()));
  EXPECT_EQ(out, hex("03 01 00 05 00 00 20 09 00 00 00 00 00 00 02 20"
                     "11 22 33 44 55 66 77 88 00 00 00 00 00 00 10 01"));
  expect_same(parse(out, EndpointKind::kRdm1, order), header);
}

TEST(Frame, EveryHeaderSurvivesTheRoundTrip) {
  for (uint64_t seed = 0; seed < sdk::rounds(20000); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const EndpointKind kind = kKinds[random.below(4)];
    const ByteOrder order = kOrders[random.below(2)];
    const Frame frame = random_frame(random, kind, 64);
    const auto id = static_cast<uint8_t>(random.word());
    Bytes bytes = wire_bytes(frame, order, id);
    const size_t header_size = bytes.size() - frame.payload.size();
    ASSERT_EQ(parse_prefix(bytes), header_size);
    ASSERT_EQ(bytes[6], header_size);
    ASSERT_EQ(bytes[7], id);
    const FrameHeader header = parse(bytes, kind, order);
    expect_same(header, frame.header);
    EXPECT_EQ(header.header_size, header_size);
    EXPECT_EQ(header.size, bytes.size());
    // One byte less is an error, and the bytes behind are not read.
    for (size_t n = 0; n < header_size; ++n) {
      EXPECT_EQ(
          why_not(Bytes(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n)), kind, order),
          Reject::kTruncated);
    }
    if (::testing::Test::HasFailure()) break;
  }
}

// A good header with one changed byte is refused, or is another valid header.
TEST(Frame, EveryValueOfEveryHeaderByte) {
  for (uint64_t seed = 0; seed < sdk::rounds(200); ++seed) {
    Random random(seed);
    const EndpointKind kind = kKinds[random.below(4)];
    const ByteOrder order = kOrders[random.below(2)];
    const Frame frame = random_frame(random, kind, 64);
    Bytes good = wire_bytes(frame, order, 0);
    good.resize(kMaxHeaderSize);
    for (size_t i = 0; i < good[6]; ++i) {
      for (int value = 0; value < 256; ++value) {
        Bytes bytes = good;
        bytes[i] = static_cast<uint8_t>(value);
        const auto header = parse_header(bytes, order, kind);
        if (!header) continue;
        ASSERT_GE(header->size, header->header_size);
        ASSERT_EQ(header->payload_size, header->size - header->header_size);
        ASSERT_LE(header->rma_count, kMaxRmaVectors);
        if (header->op == Op::kWrite) {
          ASSERT_EQ(header->rma_length(), header->payload_size);
        }
        Bytes again(kMaxHeaderSize);
        const size_t n = encode_header(*header, order, bytes[7], again.data());
        ASSERT_EQ(n, header->header_size);
        const auto second = parse_header({again.data(), n}, order, kind);
        ASSERT_TRUE(second);
        expect_same(*second, *header);
      }
    }
  }
}

TEST(Frame, PrefixNeedsSixteenBytes) {
  const Bytes bytes = hex(captures::kWriteData);
  for (size_t n = 0; n < 16; ++n) EXPECT_EQ(parse_prefix({bytes.data(), n}), 0u);
  EXPECT_EQ(parse_prefix({bytes.data(), 16}), 48u);
  for (int size = 0; size < 256; ++size) {
    const auto prefix = parse_prefix(raw(0, 0, 0, 0, static_cast<uint8_t>(size), 1000));
    if (size >= 16 && size <= 120) {
      EXPECT_EQ(prefix, static_cast<size_t>(size));
    } else {
      ASSERT_FALSE(prefix);
      EXPECT_EQ(prefix.error(), Reject::kHeaderSize);
    }
  }
}

TEST(Frame, OpsByKindOfEndpoint) {
  const auto tagged = raw(1, 0, 0, 0, 24, 30, {7});
  const auto ready = raw(5, 0, 1, 0, 32, 32, {7, 100});
  const auto clear = raw(6, 0, 1, 0, 16, 16);
  const auto data = raw(7, 0, 1, 0, 16, 116);
  for (EndpointKind kind : kKinds) {
    const bool rdm = kind == EndpointKind::kRdm0 || kind == EndpointKind::kRdm1;
    EXPECT_EQ(why_not(tagged, kind), rdm ? std::nullopt : std::optional(Reject::kOpNotAllowed));
    for (const auto &bytes : {ready, clear, data}) {
      EXPECT_EQ(why_not(bytes, kind),
                kind == EndpointKind::kRdm1 ? std::nullopt : std::optional(Reject::kOpNotAllowed));
    }
    for (int op = 8; op < 256; ++op) {
      EXPECT_EQ(why_not(raw(static_cast<uint8_t>(op), 0, 0, 0, 16, 16), kind), Reject::kOp);
    }
  }
}

TEST(Frame, HeaderSizeMustFitTheOp) {
  const std::vector<uint64_t> zeros(13, 0);
  const auto check = [&](uint8_t op, uint16_t flags, uint8_t op_data, uint8_t count, int right) {
    for (int size = 16; size <= 120; ++size) {
      const auto bytes = raw(op, flags, op_data, count, static_cast<uint8_t>(size),
                             static_cast<uint64_t>(size), zeros);
      EXPECT_EQ(why_not(bytes),
                size == right ? std::nullopt : std::optional(Reject::kHeaderMismatch))
          << "op " << int{op} << " flags " << flags << " count " << int{count} << " size " << size;
    }
  };
  check(0, 0, 0, 0, 16);
  check(0, 1, 0, 0, 24);
  check(0, 0, 2, 0, 16);
  check(1, 4, 0, 0, 24);
  check(1, 5, 0, 3, 32);
  check(3, 1, 0, 2, 16);
  check(5, 0, 1, 0, 32);
  check(5, 1, 1, 0, 40);
  check(6, 0, 1, 0, 16);
  check(7, 1, 1, 0, 16);
  for (uint8_t n = 1; n <= 4; ++n) {
    check(2, 0, 0, n, 16 + 24 * n);
    check(4, 0, 0, n, 16 + 24 * n);
    check(4, 1, 0, n, 24 + 24 * n);
  }
}

TEST(Frame, FlagsByOp) {
  const uint16_t known[] = {0x5, 0x5, 0, 0xffff, 0xd, 0x35, 0, 0x5};
  for (uint8_t op = 0; op < 8; ++op) {
    for (int bit = 0; bit < 16; ++bit) {
      const auto flag = static_cast<uint16_t>(1u << bit);
      const bool data = flag == 1 && op != 3 && op != 7;
      const uint8_t words[] = {0, 1, 3, 0, 3, 2, 0, 0};
      const auto size = static_cast<uint8_t>(16 + 8 * (words[op] + (data ? 1 : 0)));
      const auto bytes =
          raw(op, flag, op >= 5 ? 1 : 0, 1, size, size, std::vector<uint64_t>(13, 0));
      EXPECT_EQ(why_not(bytes), known[op] & flag ? std::nullopt : std::optional(Reject::kFlags))
          << "op " << int{op} << " flag " << flag;
    }
  }
  EXPECT_EQ(why_not(raw(0, 4, 2, 0, 16, 16)), Reject::kFlags);  // an acknowledgement that wants one
}

TEST(Frame, OpData) {
  const uint8_t words[] = {0, 1, 3, 0, 3, 2, 0, 0};
  for (uint8_t op = 0; op < 8; ++op) {
    for (int value = 0; value < 256; ++value) {
      const auto size = static_cast<uint8_t>(16 + 8 * words[op]);
      const auto bytes =
          raw(op, 0, static_cast<uint8_t>(value), 1, size, size, std::vector<uint64_t>(13, 0));
      const bool answers = (op == 0 && value >= 2 && value <= 4) || (op == 3 && value == 3);
      const bool good = op >= 5 ? op == 6 || (value >= 1 && value <= 254) : value == 0 || answers;
      EXPECT_EQ(why_not(bytes), good ? std::nullopt : std::optional(Reject::kOpData))
          << "op " << int{op} << " op data " << value;
    }
  }
}

TEST(Frame, SizeBelowTheHeader) {
  for (uint64_t size : {0, 1, 15})
    EXPECT_EQ(why_not(raw(0, 0, 0, 0, 16, size)), Reject::kFrameSize);
  EXPECT_EQ(why_not(raw(1, 0, 0, 0, 24, 23, {1})), Reject::kFrameSize);
  EXPECT_EQ(why_not(raw(2, 0, 0, 1, 40, 16, {1, 2, 3})), Reject::kFrameSize);
  // There is no upper limit.
  EXPECT_EQ(parse(raw(0, 0, 0, 0, 16, UINT64_MAX)).payload_size, UINT64_MAX - 16);
}

TEST(Frame, PayloadOfAnOpWithoutOne) {
  EXPECT_EQ(why_not(raw(0, 0, 2, 0, 16, 17)), Reject::kUnexpectedPayload);
  EXPECT_EQ(why_not(raw(2, 0, 0, 1, 40, 41, {0, 1, 0})), Reject::kUnexpectedPayload);
  EXPECT_EQ(why_not(raw(5, 0, 1, 0, 32, 33, {0, 1})), Reject::kUnexpectedPayload);
  EXPECT_EQ(why_not(raw(6, 0, 1, 0, 16, 17)), Reject::kUnexpectedPayload);
}

TEST(Frame, VectorCounts) {
  for (uint8_t op : {2, 4}) {
    for (int count = 0; count < 256; ++count) {
      const auto size = static_cast<uint8_t>(count >= 1 && count <= 4 ? 16 + 24 * count : 16);
      const auto bytes =
          raw(op, 0, 0, static_cast<uint8_t>(count), size, size, std::vector<uint64_t>(13, 0));
      EXPECT_EQ(why_not(bytes),
                count >= 1 && count <= 4 ? std::nullopt : std::optional(Reject::kRmaCount));
    }
  }
}

TEST(Frame, VectorsMustCoverTheWrite) {
  EXPECT_EQ(why_not(raw(4, 0, 0, 1, 40, 40 + 16, {0, 16, 1})), std::nullopt);
  EXPECT_EQ(why_not(raw(4, 0, 0, 1, 40, 40 + 16, {0, 15, 1})), Reject::kPayloadMismatch);
  EXPECT_EQ(why_not(raw(4, 0, 0, 1, 40, 40 + 16, {0, 17, 1})), Reject::kPayloadMismatch);
  EXPECT_EQ(why_not(raw(4, 0, 0, 2, 64, 64 + 16, {0, 9, 1, 0, 7, 1})), std::nullopt);
  EXPECT_EQ(why_not(raw(4, 0, 0, 2, 64, 64 + 16, {0, 9, 1, 0, 8, 1})), Reject::kPayloadMismatch);
  // The sum of the lengths wraps around to the size of the payload.
  EXPECT_EQ(why_not(raw(4, 0, 0, 2, 64, 64 + 16, {0, UINT64_MAX, 1, 0, 17, 1})),
            Reject::kRmaOverflow);
  EXPECT_EQ(why_not(raw(2, 0, 0, 2, 64, 64, {0, UINT64_MAX / 2, 1, 0, UINT64_MAX / 2 + 2, 1})),
            Reject::kRmaOverflow);
  // A read whose response is too large for the size field.
  EXPECT_EQ(why_not(raw(2, 0, 0, 1, 40, 40, {0, UINT64_MAX - 16, 1})), std::nullopt);
  EXPECT_EQ(why_not(raw(2, 0, 0, 1, 40, 40, {0, UINT64_MAX - 15, 1})), Reject::kRmaOverflow);
}

TEST(Frame, EveryRejectSaysWhy) {
  std::set<std::string> texts;
  for (int reject = 0; reject <= static_cast<int>(Reject::kTarget); ++reject) {
    texts.insert(text(static_cast<Reject>(reject)));
  }
  EXPECT_EQ(texts.size(), static_cast<size_t>(Reject::kTarget) + 1);
  EXPECT_EQ(texts.count("unknown reason"), 0u);
  EXPECT_STREQ(text(static_cast<Reject>(200)), "unknown reason");
}

}  // namespace
}  // namespace weft::tcp
