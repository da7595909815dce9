// SPDX-License-Identifier: BSD-2-Clause
// Which form a transfer has in a command queue, packets that software matches, and events.
#include "plugins/cxi/libcxi/encode.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "plugins/cxi/libcxi/decode.h"
#include "plugins/cxi/libcxi/packet_head.h"

namespace weft::cxi {
namespace {

constexpr char kText[] = "0123456789abcdef";

Transfer put_of(uint32_t length) {
  static const std::string bytes(300, 'x');
  Transfer put;
  put.to = {7, 8, 9};
  put.inline_bytes = bytes.data();
  put.length = length;
  return put;
}

TEST(Encode, AShortMessageHasItsBytesInItsCommand) {
  Transfer put = put_of(kMaxInlineUnrestricted);
  put.match_bits = 1;
  EXPECT_TRUE(is_inline(put));
  put.length = kMaxInlineUnrestricted + 1;
  EXPECT_FALSE(is_inline(put));
  put.length = 8;
  put.remote_offset = 1;  // no command has both
  EXPECT_FALSE(is_inline(put));
  put.match_bits = 0;
  EXPECT_TRUE(is_inline(put));
  put.inline_bytes = nullptr;
  EXPECT_FALSE(is_inline(put));
  put.length = 0;
  EXPECT_TRUE(is_inline(put)) << "nothing is to be read";
}

TEST(Encode, AShortPacketTakesMore) {
  Transfer put = put_of(kMaxInline);
  put.restricted = true;
  EXPECT_TRUE(is_inline(put));
  put.length = kMaxInline + 1;
  EXPECT_FALSE(is_inline(put));
}

TEST(Encode, OnlyAtomicsWithoutMatchBitsAreInline) {
  Transfer amo = put_of(8);
  amo.op = Op::kAtomic;
  EXPECT_TRUE(is_inline(amo));
  amo.match_bits = 1;
  EXPECT_FALSE(is_inline(amo));
  amo.op = Op::kGet;
  amo.match_bits = 0;
  EXPECT_FALSE(is_inline(amo));
}

class Written {
 public:
  explicit Written(const std::vector<Transfer> &transfers) : memory_(128 * CommandRing::kSlot) {
    put(memory_.data(), QueueStatus::read, CommandRing::kFirst / 2);
    CommandRing ring(
        library_, {.size = 64, .doorbell = &doorbell_, .commands = memory_.data(), .size32 = 128},
        CommandRing::Use::kTransmit);
    TransferWriter writer;
    for (const Transfer &transfer : transfers)
      writer.write(ring, transfer, {.ct = 3, .eq = 4, .remote_offset = transfer.remote_offset});
  }
  const uint8_t *at(unsigned slot) const {
    return &memory_[(CommandRing::kFirst + slot) * CommandRing::kSlot];
  }

 private:
  const Library library_{LibraryFunctions{}};
  std::vector<uint8_t> memory_;
  uint64_t doorbell_ = 0;
};

TEST(Encode, MessagesShareTheirState) {
  Transfer put = put_of(16);
  put.inline_bytes = kText;
  put.match_bits = 0x55;
  put.user_ptr = 0x77;
  const Written written({put, put});
  EXPECT_EQ(get(written.at(0), CommandHead::op), uint64_t(DmaOp::kState));
  EXPECT_EQ(get(written.at(0), InlineState::eq), 4u);
  EXPECT_EQ(get(written.at(0), InlineState::index_low), 9u);
  EXPECT_EQ(get(written.at(0), InlineState::success_disable), 1u) << "there is no queue";
  for (const unsigned slot : {2u, 4u}) {  // 48 bytes each
    const uint8_t *const message = written.at(slot);
    EXPECT_EQ(get(message, CommandHead::op), uint64_t(DmaOp::kSmallMessage));
    EXPECT_EQ(get(message, InlineMessage::bytes), 48u);
    EXPECT_EQ(get(message, InlineMessage::address), fabric_address(7, 8, 9));
    EXPECT_EQ(get(message, InlineMessage::user_ptr), 0x77u);
    EXPECT_EQ(std::memcmp(message + InlineMessage::kBytes, kText, 16), 0);
  }
}

TEST(Encode, AnAtomicIsSmallWhereItCanBe) {
  Transfer amo = put_of(8);
  amo.op = Op::kAtomic;
  amo.inline_bytes = kText;
  amo.remote_offset = 64;
  Transfer fetch = amo;
  fetch.op = Op::kFetchAtomic;
  const Written written({amo, fetch});
  EXPECT_EQ(get(written.at(1), CommandHead::op), uint64_t(DmaOp::kAtomic));
  EXPECT_EQ(get(written.at(1), InlinePut::bytes), SmallAmo::kBytes);
  EXPECT_EQ(get(written.at(2), CommandHead::op), uint64_t(DmaOp::kFetchAtomic));
  EXPECT_EQ(get(written.at(2), InlinePut::bytes), InlineAmo::kBytes);
  EXPECT_EQ(get(written.at(2), InlinePut::remote_offset), 64u);
}

TEST(Encode, RoundsWhatMustStayFreeUp) {
  uint8_t command[TargetCommand::kBytes] = {};
  write_append(command, List::kOverflow, {.min_free = 129}, {.min_free_shift = 6});
  EXPECT_EQ(get(command, TargetCommand::min_free), 3u);
}

// ---- packets ----

TEST(PacketHead, ComesBack) {
  const RequestHeader long_one{.match_bits = 0x0102030405060708,
                               .header_data = 0x1112131415161718,
                               .remote_offset = 0x11223344556677,
                               .initiator = 0xaabbccdd,
                               .length = 0x01020304,
                               .source = 0xaabbccdd & kMaxNid,
                               .vni = 0x1234,
                               .rendezvous = 1,
                               .rendezvous_id = 0x9c};
  uint8_t packet[kMaxRequestHead];
  ASSERT_EQ(write_packet_head(long_one, false, packet), 63u);
  EXPECT_EQ(packet_head_size(packet), 63u);
  RequestHeader read = read_packet_head(packet);
  EXPECT_EQ(std::memcmp(&read, &long_one, sizeof read), 0);
  EXPECT_EQ(packet[4], 0x12) << "the VNI, big-endian";
  EXPECT_EQ(packet[22], 0x11) << "the remote offset";
  EXPECT_EQ(packet[34], 0x09) << "the rendezvous, high";
  EXPECT_EQ(packet[35], 0xc0) << "and low";

  RequestHeader short_one = long_one;
  short_one.rendezvous = short_one.rendezvous_id = 0;
  short_one.remote_offset = 0;
  short_one.length = 0xabc;
  ASSERT_EQ(write_packet_head(short_one, true, packet), 49u);
  EXPECT_EQ(packet_head_size(packet), 49u);
  read = read_packet_head(packet);
  EXPECT_EQ(std::memcmp(&read, &short_one, sizeof read), 0);
}

// ---- events ----

class NoObjects final : public ObjectTable {
 public:
  Portal *portal(unsigned) const override { return nullptr; }
  Counter *counter(unsigned) const override { return nullptr; }
};

TEST(Decode, WhatTheHardwareHasRefusedIsNoAnswer) {
  uint8_t bytes[FailureEvent::kBytes] = {};
  put(bytes, EventHead::size, uint64_t(EventSize::k16));
  put(bytes, EventHead::type, uint64_t(EventType::kCommandFailure));
  put(bytes, FailureEvent::rc, 50);
  EXPECT_EQ(decode_event(bytes, NoObjects()).type, EventType::kError);
}

TEST(Decode, AChangeOfState) {
  uint8_t bytes[TargetEvent::kBytes] = {};
  put(bytes, EventHead::size, uint64_t(EventSize::k64));
  put(bytes, EventHead::type, uint64_t(EventType::kStateChange));
  put(bytes, TargetEvent::state, uint64_t(PortalState::kDisabled));
  put(bytes, TargetEvent::reason, uint64_t(Reason::kRequestFull));
  put(bytes, TargetEvent::nic_auto, 1);
  put(bytes, TargetEvent::rc, uint64_t(Rc::kOk));
  const Event event = decode_event(bytes, NoObjects());
  EXPECT_EQ(event.state, PortalState::kDisabled);
  EXPECT_EQ(event.reason, Reason::kRequestFull);
  EXPECT_TRUE(event.nic_auto);
  EXPECT_EQ(event.initiator, 0u);
}

TEST(Decode, AShortEventHasOneLength) {
  uint8_t bytes[ShortTargetEvent::kBytes] = {};
  put(bytes, EventHead::size, uint64_t(EventSize::k32));
  put(bytes, EventHead::type, uint64_t(EventType::kPut));
  put(bytes, ShortTargetEvent::length, 12);
  put(bytes, ShortTargetEvent::rc, uint64_t(Rc::kOk));
  const Event event = decode_event(bytes, NoObjects());
  EXPECT_EQ(event.mlength, 12u);
  EXPECT_EQ(event.rlength, 12u);
}

}  // namespace
}  // namespace weft::cxi
