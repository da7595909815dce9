// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/wire/connect_data.h"

#include <gtest/gtest.h>

namespace weft::rxm {
namespace {

// Captured between stock peers: port 0x8f45, process 0x237f.
constexpr ConnectBytes kRequest = {0x01, 0x02, 0x04, 0x03, 0x45, 0x8f, 0x02, 0x00,
                                   0x00, 0x40, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00,
                                   0x00, 0x00, 0x00, 0x00, 0x7f, 0x23, 0x00, 0x00};
constexpr AcceptBytes kAccept = {0x00, 0x00, 0x00, 0x00, 0x80, 0x23, 0x00, 0x00,
                                 0x00, 0x10, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00};

TEST(ConnectData, IsWhatStockSends) {
  const ConnectData data{.port = 0x8f45,
                         .flow_control = FlowControl::kOff,
                         .eager_limit = 16384,
                         .receive_count = 4096,
                         .process = 0x237f,
                         .index = 0};
  EXPECT_EQ(encode(data), kRequest);
  const auto parsed = parse_connect(kRequest);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, data);
  const AcceptData accept{.process = 0x2380, .receive_count = 4096};
  EXPECT_EQ(encode(accept), kAccept);
  ASSERT_TRUE(parse_accept(kAccept));
  EXPECT_EQ(*parse_accept(kAccept), accept);
  const RejectBytes reject = encode(RejectReason::kAlready, 7);
  EXPECT_EQ(reject, (RejectBytes{1, 2, 7}));
  EXPECT_EQ(parse_reject(std::span(reject).first(kStockRejectSize)), RejectReason::kAlready);
}

// Bytes as weft sends them to stock 1.17: the mark is in a field that stock peers only report.
TEST(ConnectData, AWeftPeerIsKnownByItsCountOfReceives) {
  for (uint8_t level : {uint8_t(1), kMaxLevel}) {
    for (uint32_t count : {0u, 256u, kMaxMarkedCount}) {
      const auto request =
          parse_connect(encode(ConnectData{.receive_count = count, .level = level}));
      ASSERT_TRUE(request);
      EXPECT_EQ(request->level, level);
      EXPECT_EQ(request->receive_count, count);
      const auto accept = parse_accept(encode(AcceptData{.receive_count = count, .level = level}));
      ASSERT_TRUE(accept);
      EXPECT_EQ(accept->level, level);
      EXPECT_EQ(accept->receive_count, count);
    }
  }
  EXPECT_EQ(encode(AcceptData{.receive_count = 0x102, .level = 1})[8], 0x02);
  EXPECT_EQ(encode(AcceptData{.receive_count = 0x102, .level = 1})[9], 0x01);
  EXPECT_EQ(encode(AcceptData{.receive_count = 0x102, .level = 1})[10], 0xf1);
  EXPECT_EQ(encode(AcceptData{.receive_count = 0x102, .level = 1})[11], 0x5e);
  // A count that does not fit beside the mark is cut to the largest one.
  EXPECT_EQ(parse_accept(encode(AcceptData{.receive_count = 1 << 20, .level = 2}))->receive_count,
            kMaxMarkedCount);
}

TEST(ConnectData, AContextSaysItsPlace) {
  for (uint8_t place : {0, 1, 31}) {
    const auto request = parse_connect(
        encode(ConnectData{.receive_count = kMaxMarkedCount, .level = 2, .place = place}));
    ASSERT_TRUE(request);
    EXPECT_EQ(request->place, place);
    EXPECT_EQ(request->receive_count, kMaxMarkedCount);
    EXPECT_EQ(request->level, 2);
  }
  EXPECT_EQ(parse_connect(encode(ConnectData{.receive_count = 0xf800}))->place, 0) << "no mark";
}

// A peer from before there were places may post many receives.
TEST(ConnectData, TheCountOfAPeerOfLevel1IsNoPlace) {
  ConnectBytes bytes = encode(ConnectData{.level = 1});
  bytes[12] = 0xff, bytes[13] = 0xff;
  const auto request = parse_connect(bytes);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->level, 1);
  EXPECT_EQ(request->place, 0);
  EXPECT_EQ(request->receive_count, 0xffffu);
  EXPECT_EQ(parse_connect(encode(ConnectData{.level = 1, .place = 3}))->place, 0);
}

TEST(ConnectData, AnIncompleteMarkIsNone) {
  EXPECT_EQ(parse_connect(kRequest)->level, 0);
  EXPECT_EQ(parse_accept(kAccept)->level, 0);
  for (uint32_t count : {0u, 128u, 4096u, 0x5ef00100u, 0x5ee10100u, 0xdef10100u, UINT32_MAX}) {
    const auto parsed = parse_connect(encode(ConnectData{.receive_count = count}));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->level, 0) << count;
    EXPECT_EQ(parsed->receive_count, count);
  }
}

TEST(ConnectData, RefusalsSayWhatDoesNotFit) {
  const auto with = [](size_t at, uint8_t value) {
    ConnectBytes b = kRequest;
    b[at] = value;
    return parse_connect(b).error();
  };
  EXPECT_EQ(with(0, 2), ConnectReject::kVersion);
  EXPECT_EQ(with(1, 1), ConnectReject::kByteOrder);
  EXPECT_EQ(with(2, 5), ConnectReject::kVersion);
  EXPECT_EQ(with(3, 2), ConnectReject::kVersion);
  EXPECT_EQ(with(6, 3), ConnectReject::kFlowControl);
  EXPECT_EQ(parse_connect({kRequest.data(), 23}).error(), ConnectReject::kLength);
  EXPECT_EQ(parse_accept({kAccept.data(), 15}).error(), ConnectReject::kLength);
  // A later version stores a lane number here.
  ConnectBytes lane = kRequest;
  lane[7] = 1;
  EXPECT_TRUE(parse_connect(lane));
}

TEST(ConnectData, ARejectionNeedsNoReason) {
  EXPECT_EQ(parse_reject({}), RejectReason::kUnspecified);
  EXPECT_EQ(parse_reject(RejectBytes{1, 77}), RejectReason::kUnspecified);
  EXPECT_EQ(parse_reject(RejectBytes{9, 2}), RejectReason::kUnspecified);
}

TEST(ConnectData, AnswersSayTheLastPlace) {
  const AcceptData accept{.process = 1, .receive_count = 64, .level = kLevel, .last_place = 31};
  EXPECT_EQ(*parse_accept(encode(accept)), accept);
  const RejectBytes reject = encode(RejectReason::kRefused, 31);
  EXPECT_EQ(parse_reject(reject), RejectReason::kRefused);
  EXPECT_EQ(parse_last_place(reject), 31);
  EXPECT_EQ(parse_last_place(std::span(reject).first(kStockRejectSize)), 0);
  EXPECT_EQ(parse_last_place(RejectBytes{9, 1, 31}), 0);
}

}  // namespace
}  // namespace weft::rxm
