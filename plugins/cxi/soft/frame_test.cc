// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/frame.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>

namespace weft::cxi {
namespace {

using Head = std::array<uint8_t, kHeadSize>;

Packet some_packet() {
  return {.op = Op::kRendezvousPut,
          .vni = 0x1234,
          .source = 0xabcde,
          .to = {0x54321, 510, 255},
          .token = 0x1122334455667788,
          .match_bits = 0x8877665544332211,
          .header_data = 3,
          .remote_offset = uint64_t{1} << 50,
          .initiator = match_id(510, 0xabcde),
          .length = UINT32_MAX,
          .eager_length = 4096,
          .rendezvous_id = 200,
          .flush = true};
}

Head head_of(const Packet &packet) {
  Head head;
  head.fill(0xff);
  write_head(packet, head);
  return head;
}

TEST(Frame, APacketIsReadAsItWasWritten) {
  const Packet packet = some_packet();
  const auto frame = parse_head(head_of(packet));
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->kind, Frame::Kind::kPacket);
  EXPECT_EQ(frame->bytes, 4096u);
  EXPECT_EQ(frame->packet.token, packet.token);
  EXPECT_EQ(frame->packet.to.index, 255);
  EXPECT_TRUE(frame->packet.flush);
  EXPECT_FALSE(frame->packet.restricted);
  EXPECT_EQ(head_of(frame->packet), head_of(packet)) << "all else";
}

TEST(Frame, AnAtomicHasItsOperand) {
  Packet packet = some_packet();
  packet.op = Op::kFetchAtomic;
  packet.amo_op = AmoOp::kCswap;
  packet.amo_type = AmoType::kUint128;
  packet.cswap = Cswap::kGt;
  packet.length = 16;
  packet.operand2[1] = 7;
  packet.pcie = packet.restricted = true;
  const auto frame = parse_head(head_of(packet));
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->bytes, 16u);
  EXPECT_EQ(frame->packet.operand2[1], 7u);
  EXPECT_EQ(head_of(frame->packet), head_of(packet));
  packet.length = 8;
  EXPECT_EQ(parse_head(head_of(packet)).error(), Refusal::kLength);
  packet.amo_type = AmoType{13};
  EXPECT_EQ(parse_head(head_of(packet)).error(), Refusal::kOperation);
}

TEST(Frame, AReplyIsReadAsItWasWritten) {
  const Reply reply{.token = 99,
                    .rc = Rc::kAddrOutOfRange,
                    .list = List::kOverflow,
                    .mlength = 1000,
                    .fetched = {1, 2}};
  for (const bool brings : {false, true}) {
    Head head;
    write_head(reply, brings, head);
    const auto frame = parse_head(head);
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->kind, Frame::Kind::kReply);
    EXPECT_EQ(frame->bytes, brings ? 1000u : 0u);
    EXPECT_EQ(frame->reply.token, 99u);
    EXPECT_EQ(frame->reply.rc, Rc::kAddrOutOfRange);
    EXPECT_EQ(frame->reply.list, List::kOverflow);
    EXPECT_EQ(frame->reply.mlength, 1000u);
    EXPECT_EQ(frame->reply.fetched[1], 2u);
  }
}

TEST(Frame, WhatCannotBeIsRefused) {
  const auto refusal = [](size_t at, uint8_t value) {
    Head head = head_of(some_packet());
    head[at] = value;
    const auto frame = parse_head(head);
    return frame ? std::optional<Refusal>() : frame.error();
  };
  EXPECT_EQ(refusal(0, 2), Refusal::kVersion);
  EXPECT_EQ(refusal(1, 3), Refusal::kKind);
  EXPECT_EQ(refusal(2, 0), Refusal::kOperation);
  EXPECT_EQ(refusal(2, 6), Refusal::kOperation);
  EXPECT_EQ(refusal(3, 8), Refusal::kOperation);
  EXPECT_EQ(refusal(13, 2), Refusal::kAddress) << "PID 512 and more";
  EXPECT_EQ(refusal(16, 0x1a), Refusal::kAddress) << "a NIC of more than 20 bits";
  Packet packet = some_packet();
  packet.length = 100;
  packet.eager_length = 101;
  EXPECT_EQ(parse_head(head_of(packet)).error(), Refusal::kLength);
  for (const Refusal each : {Refusal::kVersion, Refusal::kKind, Refusal::kOperation,
                             Refusal::kAddress, Refusal::kLength})
    EXPECT_STRNE(text_of(each), "no frame");
}

TEST(Frame, OnlyAGetHasNoBytes) {
  Packet packet = some_packet();
  packet.op = Op::kGet;
  EXPECT_EQ(bytes_behind(packet), 0u);
  packet.op = Op::kPut;
  packet.length = 77;
  EXPECT_EQ(bytes_behind(packet), 77u);
}

using HelloBytes = std::array<uint8_t, kHelloSize>;

HelloBytes bytes_of(const Hello &hello) {
  HelloBytes bytes;
  bytes.fill(0xff);
  write_hello(hello, bytes);
  return bytes;
}

TEST(Hello, IsReadAsItWasWritten) {
  const Hello call{.vni = 0x1234, .to = {0xabcde, 510, 0}, .key = 0x0123456789abcdef};
  const auto read = parse_hello(bytes_of(call));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->kind, Hello::Kind::kCall);
  EXPECT_EQ(read->vni, call.vni);
  EXPECT_EQ(read->to.nid, call.to.nid);
  EXPECT_EQ(read->key, call.key);
  EXPECT_EQ(bytes_of(*read), bytes_of(call));
  const auto elsewhere = parse_hello(bytes_of({.kind = Hello::Kind::kElsewhere, .port = 40000}));
  ASSERT_TRUE(elsewhere.has_value());
  EXPECT_EQ(elsewhere->port, 40000);
  const auto refused =
      parse_hello(bytes_of({.kind = Hello::Kind::kRefused, .rc = Rc::kVniNotFound}));
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->rc, Rc::kVniNotFound);
}

TEST(Hello, WhatCannotBeIsRefused) {
  const auto refusal_of = [](const Hello &hello, size_t at = 0, int plus = 0) {
    HelloBytes bytes = bytes_of(hello);
    bytes[at] = uint8_t(bytes[at] + plus);
    const auto read = parse_hello(bytes);
    return read.has_value() ? std::nullopt : std::optional(read.error());
  };
  EXPECT_EQ(refusal_of({}), std::nullopt);
  EXPECT_EQ(refusal_of({}, 0, 1), Refusal::kStranger);
  EXPECT_EQ(refusal_of({}, 8, 1), Refusal::kVersion);
  EXPECT_EQ(refusal_of({}, 9, -1), Refusal::kKind);
  EXPECT_EQ(refusal_of({}, 9, 4), Refusal::kKind);
  EXPECT_EQ(refusal_of({.to = {kMaxNid + 1, 0, 0}}), Refusal::kAddress);
  EXPECT_EQ(refusal_of({.to = {0, kAnyPid, 0}}), Refusal::kAddress);
  EXPECT_EQ(refusal_of({.kind = Hello::Kind::kWelcome}), Refusal::kAddress) << "without a port";
  EXPECT_EQ(refusal_of({.kind = Hello::Kind::kElsewhere}), Refusal::kAddress);
  EXPECT_EQ(refusal_of({.kind = Hello::Kind::kRefused}), Refusal::kAnswer) << "kOk is no refusal";
}

}  // namespace
}  // namespace weft::cxi
