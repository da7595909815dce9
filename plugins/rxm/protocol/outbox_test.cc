// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/outbox.h"

#include <gtest/gtest.h>

#include "plugins/rxm/protocol/test_parts.h"

namespace weft::rxm {
namespace {

// Memory of a device that has failed.
class BrokenMemory final : public sdk::HmemIface {
 public:
  BrokenMemory(const uint8_t *from, size_t length) : from_(from), length_(length) {}
  enum fi_hmem_iface iface() const override { return FI_HMEM_CUDA; }
  const char *name() const override { return "BROKEN"; }
  sdk::HmemPlace find(const void *address) override {
    const size_t at = size_t(static_cast<const uint8_t *>(address) - from_);
    if (at >= length_) return {};
    return {.iface = this, .bytes = length_ - at, .kind = sdk::HmemPlace::Kind::kDevice};
  }
  bool copy(const sdk::HmemPlace &, void *, const void *, size_t) override { return false; }

 private:
  const uint8_t *const from_;
  const size_t length_;
};

struct OutboxTest : ::testing::Test {
  TxOp &message(uint64_t length, uint64_t tag = 0) {
    TxOp &op = *operations.take();
    op.length = length;
    op.tag = tag;
    op.iov[0] = {memory, size_t(length)};
    op.count = 1;
    forms.choose(op, tag != 0, false, Tell::kNothing);
    return op;
  }
  std::vector<PacketType> types() const {
    std::vector<PacketType> all;
    for (const NotingCarrier::Packet &p : world.carrier.packets) all.push_back(p.type());
    return all;
  }
  // The carrier has sent everything.
  void complete() {
    for (NotingCarrier::Packet &p : world.carrier.packets) {
      Token *const token = std::exchange(p.token, nullptr);
      if (token == nullptr) continue;
      if (token->kind == Token::Kind::kSegment) {
        outbox.on_sent(static_cast<Segment &>(*token), 0);
      } else {
        operations.on_sent(static_cast<TxOp &>(*token), 0);
      }
    }
  }
  uint8_t memory[4096] = {};
  PartsWorld world;
  Connection &c{world.way(1)};
  Peer &peer{c.peer()};
  Sender sender{world.carrier, world.settings};
  Answers answers{sender, world.settings};
  Offers offers{world.carrier, world.settings};
  InFlight operations{8, sender, offers, world.upper, world.counters};
  Forms forms{world.settings};
  IdleLimit idle_limit{world.peers};
  Outbox outbox{{world.carrier, world.upper, world.settings, world.counters, forms, idle_limit,
                 sender, answers, offers, operations}};
};

TEST_F(OutboxTest, AMessageWithATagThatThePeerKnowsNeedsNoHeader) {
  EXPECT_EQ(outbox.send(peer, message(8)), 0);
  EXPECT_EQ(outbox.send(peer, message(8, 5)), 0);
  EXPECT_EQ(outbox.send(peer, message(8, 6)), 0);
  ASSERT_EQ(world.carrier.packets.size(), 3u);
  EXPECT_EQ(world.carrier.packets[0].bytes.size(), 8u);
  EXPECT_EQ(world.carrier.packets[0].data, kBareUntagged);
  EXPECT_EQ(world.carrier.packets[1].bytes.size(), 8u + kHeaderSize);
  EXPECT_EQ(world.carrier.packets[2].bytes.size(), 8u);
  EXPECT_EQ(world.counters.bare.value(), 2u);
  Connection &old = world.way(2, kLevelOfBare - 1);
  EXPECT_EQ(outbox.send(old.peer(), message(8)), 0);
  EXPECT_EQ(world.carrier.packets.back().bytes.size(), 8u + kHeaderSize);
  EXPECT_TRUE(world.upper.done.empty());
  complete();
  EXPECT_EQ(world.upper.done.size(), 4u);
  EXPECT_EQ(operations.size(), 0u);
}

TEST_F(OutboxTest, AnInjectedMessageEndsWhenTheCarrierHasIt) {
  TxOp &op = message(8);
  op.inject = true;
  EXPECT_EQ(outbox.send(peer, op), 0);
  EXPECT_EQ(world.upper.done.size(), 1u);
  EXPECT_EQ(c.departed.count(), 0u);
}

TEST_F(OutboxTest, WhatWaitsLeavesInItsOrder) {
  world.carrier.room = 0;
  TxOp &first = message(8), &second = message(9), &third = message(10);
  first.inject = true;
  EXPECT_EQ(outbox.send(peer, first), -FI_EAGAIN);
  outbox.enqueue(peer, first);
  EXPECT_NE(first.iov[0].iov_base, memory) << "the caller's memory may change now";
  EXPECT_TRUE(sender.has_blocked());
  world.carrier.room = 1;
  EXPECT_EQ(outbox.send(peer, second), -FI_EAGAIN) << "it would overtake";
  for (TxOp *op : {&second, &third}) outbox.enqueue(peer, *op);
  EXPECT_EQ(outbox.flush(c), -FI_EAGAIN);
  EXPECT_EQ(world.upper.done.size(), 1u);
  EXPECT_EQ(peer.queue().first(), &second);
  world.carrier.room = 5;
  EXPECT_EQ(outbox.flush(c), 0);
  EXPECT_TRUE(peer.queue().empty());
  ASSERT_EQ(world.carrier.packets.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(world.carrier.packets[i].bytes.size(), 8 + i);
  complete();
  EXPECT_EQ(world.upper.waiting.size(), 3u);
  EXPECT_EQ(world.upper.done.size(), 3u);
  EXPECT_EQ(world.counters.queued.value(), 3u);
}

TEST_F(OutboxTest, CreditsAndAnswersGoBeforeOperations) {
  world.settings.receive_count = 2;
  sender.use_credits(c, true);
  sender.repost(c, 2);
  outbox.enqueue(peer, message(8));
  EXPECT_EQ(world.counters.waited_for_credits.value(), 1u);
  sender.grant(c, 3);
  world.carrier.room = 0;
  EXPECT_EQ(answers.queue(c, *answers.make(c, PacketType::kReadDone, 1)), 0);
  world.carrier.room = 9;
  EXPECT_EQ(outbox.flush(c), 0);
  ASSERT_EQ(world.carrier.packets.size(), 3u);
  EXPECT_EQ(world.carrier.packets[0].type(), PacketType::kCredit);
  EXPECT_EQ(world.carrier.packets[1].type(), PacketType::kReadDone);
  EXPECT_EQ(world.carrier.packets[2].bytes.size(), 8u);
  EXPECT_EQ(outbox.send(peer, message(8)), -FI_EAGAIN) << "the last credit is not for messages";
}

TEST_F(OutboxTest, AFencedOperationWaitsForTheOthers) {
  EXPECT_EQ(outbox.send(peer, message(8)), 0);
  TxOp &fenced = message(8);
  fenced.fence = true;
  EXPECT_EQ(outbox.send(peer, fenced), -FI_EAGAIN);
  outbox.enqueue(peer, fenced);
  EXPECT_EQ(outbox.flush(c), -FI_EAGAIN);
  sender.resume([](Connection &) { return true; });
  complete();
  EXPECT_TRUE(sender.has_blocked()) << "the last one makes it go on";
  EXPECT_EQ(outbox.flush(c), 0);
  EXPECT_EQ(world.carrier.packets.size(), 2u);
}

TEST_F(OutboxTest, SegmentsWaitWhereTheyAre) {
  world.settings.max_segments = 2;
  TxOp &op = message(1500), &next = message(8);
  EXPECT_EQ(outbox.send(peer, op), -FI_EAGAIN) << "the carrier has as many as it may";
  EXPECT_EQ(op.offset, 1024u);
  outbox.enqueue(peer, op);
  outbox.enqueue(peer, next);
  complete();
  EXPECT_EQ(outbox.flush(c), 0);
  ASSERT_EQ(world.carrier.packets.size(), 4u);
  const SegmentKind kinds[] = {SegmentKind::kFirst, SegmentKind::kMiddle, SegmentKind::kLast};
  for (uint32_t i = 0; i < 3; ++i) {
    const WireHeader header = world.carrier.packets[i].header();
    EXPECT_EQ(header.control_data, uint64_t(kinds[i]));
    EXPECT_EQ(header.segment_number, i);
    EXPECT_EQ(header.segment_size, i == 2 ? 1500 - 1024 : 512);
  }
  complete();
  EXPECT_EQ(world.upper.done.size(), 2u);
}

// Of a message of which a part has left, an error is the connection's end.
TEST_F(OutboxTest, AnErrorAmongSegments) {
  world.carrier.fails = -FI_EIO;
  TxOp &op = message(1500);
  EXPECT_EQ(outbox.send(peer, op), -FI_EIO);
  world.carrier.fails = 0;
  world.carrier.room = 1;
  EXPECT_EQ(outbox.send(peer, op), -FI_EAGAIN);
  world.carrier.fails = -FI_EIO;
  EXPECT_TRUE(is_link_error(outbox.send(peer, op)));
  complete();
  operations.end(op, FI_ECONNABORTED);
  EXPECT_EQ(operations.size(), 0u);
}

// The segment that could not be filled is free again.
TEST_F(OutboxTest, ADeviceThatFailsAmongSegments) {
  uint8_t *const device = memory + 3000;
  std::vector<std::unique_ptr<sdk::HmemIface>> ifaces;
  ifaces.push_back(std::make_unique<BrokenMemory>(device, 1000));
  const sdk::Hmem hmem(std::move(ifaces), 0);
  world.settings.hmem = &hmem;
  world.settings.iov_limit = 1;  // segments are copied
  world.settings.max_segments = 2;
  for (const size_t of_host : {size_t{10}, size_t{600}}) {
    TxOp &op = message(700);
    op.iov[0] = {memory, of_host};
    op.iov[1] = {device, 700 - of_host};
    op.count = 2;
    const ssize_t rc = outbox.send(peer, op);
    EXPECT_EQ(rc, of_host < 512 ? -FI_EIO : -FI_ECONNABORTED) << "a part may have left";
    EXPECT_EQ(op.offset, of_host < 512 ? 0u : 512u);
    complete();
    operations.end(op, FI_EIO);
  }
  EXPECT_EQ(operations.size(), 0u);
  TxOp &op = message(1500);
  EXPECT_EQ(outbox.send(peer, op), -FI_EAGAIN);
  EXPECT_EQ(op.offset, 1024u);
}

TEST_F(OutboxTest, ADeadLinkEndsAFlush) {
  for (TxOp *op : {&message(8), &message(8)}) outbox.enqueue(peer, *op);
  world.carrier.fails = -FI_EINVAL;  // of the operation alone
  EXPECT_EQ(outbox.flush(c), 0);
  EXPECT_EQ(world.upper.done.size(), 2u);
  outbox.enqueue(peer, message(8));
  world.carrier.fails = -FI_ENOTCONN;
  EXPECT_EQ(outbox.flush(c), -FI_ENOTCONN);
  EXPECT_EQ(world.upper.done.size(), 2u);
  operations.end_all(outbox.take_failing(peer), FI_ENOTCONN);
  EXPECT_EQ(world.upper.done.size(), 3u);
}

// Without a way operations wait for the next connection, but for one that has begun.
TEST_F(OutboxTest, WhatHasBegunFailsWithItsConnection) {
  world.carrier.room = 1;
  TxOp &begun = message(1500), &other = message(4096), &last = message(8);
  EXPECT_EQ(outbox.send(peer, begun), -FI_EAGAIN);
  EXPECT_EQ(offers.describe(c, other), 0);
  EXPECT_EQ(world.carrier.exposed, 1u);
  for (TxOp *op : {&begun, &other, &last}) outbox.enqueue(peer, *op);
  world.close_way(peer);
  OpQueue failing = outbox.take_failing(peer);
  EXPECT_EQ(&failing.pop(), &begun);
  EXPECT_TRUE(failing.empty());
  EXPECT_EQ(world.carrier.exposed, 0u) << "the next link needs other registrations";
  EXPECT_EQ(peer.queue().first(), &other);
  EXPECT_TRUE(outbox.take_failing(peer).empty());
  OpQueue all = outbox.take_all(peer);
  EXPECT_EQ(&all.pop(), &other);
  EXPECT_EQ(&all.pop(), &last);
}

TEST_F(OutboxTest, ARendezvousThatCannotLeaveKeepsItsRegistrations) {
  TxOp &op = message(4096);
  world.carrier.room = 0;
  EXPECT_EQ(outbox.send(peer, op), -FI_EAGAIN);
  EXPECT_EQ(world.carrier.exposed, 1u);
  world.carrier.fails = -FI_EIO;
  EXPECT_EQ(outbox.send(peer, op), -FI_EIO);
  EXPECT_EQ(world.carrier.exposed, 0u);
  world.carrier.fails = 0;
  world.carrier.room = 1;
  EXPECT_EQ(outbox.send(peer, op), 0);
  EXPECT_EQ(types(), std::vector<PacketType>{PacketType::kRendezvous});
  EXPECT_EQ(c.departed.first_awaited(), &op);
  complete();
  operations.end(op, 0);
  EXPECT_EQ(world.carrier.exposed, 0u);
}

TEST_F(OutboxTest, RemoteDataTakesAReceiveOfThePeer) {
  sender.use_credits(c, true);
  TxOp &write = message(8), &plain = message(8);
  for (TxOp *op : {&write, &plain}) {
    op->form = TxOp::Form::kWrite;
    op->vector_count = 1;
    op->vectors[0] = {0, 8, 1};
  }
  write.flags = FI_REMOTE_CQ_DATA;
  EXPECT_EQ(outbox.send(peer, write), -FI_EAGAIN);
  EXPECT_EQ(outbox.send(peer, plain), 0);
  sender.grant(c, 1);
  EXPECT_EQ(outbox.send(peer, write), 0);
  EXPECT_FALSE(c.sending.credits().has_room());
  EXPECT_EQ(world.carrier.accesses.size(), 2u);
}

}  // namespace
}  // namespace weft::rxm
