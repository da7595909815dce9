// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/offers.h"

#include <gtest/gtest.h>

#include "plugins/rxm/protocol/test_parts.h"

namespace weft::rxm {
namespace {

struct OffersTest : ::testing::Test {
  OffersTest() {
    op.form = TxOp::Form::kRendezvous;
    op.count = 3;
    op.iov[0] = {memory, 300};
    op.iov[1] = {memory + 300, 0};
    op.iov[2] = {memory + 300, 700};
    op.length = 1000;
  }
  ~OffersTest() override {
    offers.conceal(op);
    EXPECT_EQ(world.carrier.exposed, 0u);
  }
  uint8_t memory[1000] = {};
  TxOp op;
  PartsWorld world;
  Connection &c{world.connected(1)};
  Offers offers{world.carrier, world.settings};
};

TEST_F(OffersTest, MemoryIsExposedOncePerLink) {
  EXPECT_EQ(offers.describe(c, op), 0);
  EXPECT_EQ(op.vector_count, 2) << "vectors without bytes are left out";
  EXPECT_EQ(world.carrier.exposed, 2u);
  EXPECT_EQ(offers.describe(c, op), 0);
  EXPECT_EQ(world.carrier.exposed, 2u);
  offers.undescribe(op);
  EXPECT_EQ(world.carrier.exposed, 0u);
  EXPECT_EQ(offers.describe(c, op), 0);
  EXPECT_EQ(world.carrier.exposed, 2u);
}

TEST_F(OffersTest, AMessageWithoutBytesHasMemoryAllTheSame) {
  op.count = 0;
  op.length = 0;
  EXPECT_EQ(offers.describe(c, op), 0);
  EXPECT_EQ(world.carrier.exposed, 1u);
  EXPECT_EQ(op.vector_count, 1);
}

TEST_F(OffersTest, WhatWasExposedIsConcealedWhenTheRestFails) {
  world.carrier.may_expose = 1;
  EXPECT_EQ(offers.describe(c, op), -FI_ENOMEM);
  EXPECT_EQ(world.carrier.exposed, 0u);
  EXPECT_EQ(op.vector_count, 0);
}

TEST_F(OffersTest, WhoWritesExposesNothing) {
  world.settings.rendezvous_write = true;
  EXPECT_EQ(offers.describe(c, op), 0);
  EXPECT_EQ(world.carrier.exposed, 0u);
  EXPECT_EQ(op.vector_count, 2);
}

TEST_F(OffersTest, AWriteGoesOnWhenThereIsRoom) {
  EXPECT_TRUE(Offers::may_write(op));
  const RmaVector target[] = {{100, 0, 1}, {200, 400, 2}, {300, 1000, 3}};
  offers.aim(op, target);
  EXPECT_FALSE(Offers::may_write(op)) << "the peer has named its memory already";
  world.carrier.room = 1;
  EXPECT_EQ(offers.write(c, op), -FI_EAGAIN);
  EXPECT_EQ(op.tokens, 1u);
  EXPECT_TRUE(offers.has_waiting());
  size_t turns = 0;
  world.carrier.room = 0;
  const auto write = [&](TxOp &one) {
    ++turns;
    EXPECT_EQ(offers.write(c, one), world.carrier.room == 0 ? -FI_EAGAIN : 0);
  };
  offers.resume(write);
  EXPECT_EQ(turns, 1u);
  world.carrier.room = 5;
  offers.resume(write);
  EXPECT_FALSE(offers.has_waiting());
  ASSERT_EQ(world.carrier.accesses.size(), 2u);
  const auto &first = world.carrier.accesses[0], &last = world.carrier.accesses[1];
  EXPECT_EQ(first.length, 400u);
  EXPECT_EQ(first.at.address, 200u);
  EXPECT_EQ(first.flags & Carrier::kMarks, 0u);
  EXPECT_EQ(last.length, 600u);
  EXPECT_EQ(last.at.key, 3u);
  EXPECT_EQ(last.flags & Carrier::kMarks, FI_MSG) << "the message is complete with it";
  EXPECT_EQ(op.tokens, 2u);
}

// A receive may be shorter than the message, and a peer may say anything.
TEST_F(OffersTest, OnlyAsMuchIsWrittenAsThereIsRoomFor) {
  const RmaVector small[] = {{100, 10, 1}}, none[] = {{0, 0, kInvalidKey}};
  offers.aim(op, none);
  EXPECT_EQ(offers.write(c, op), 0);
  EXPECT_TRUE(world.carrier.accesses.empty());
  op.writing = false;
  offers.aim(op, small);
  EXPECT_EQ(offers.write(c, op), 0);
  ASSERT_EQ(world.carrier.accesses.size(), 1u);
  EXPECT_EQ(world.carrier.accesses[0].length, 10u);
}

TEST_F(OffersTest, AWriteThatEndsWaitsNoMore) {
  const RmaVector target[] = {{200, 1000, 2}};
  TxOp other;
  other.form = TxOp::Form::kRendezvous;
  other.length = 1;
  other.iov[0] = {memory, 1};
  other.count = 1;
  world.carrier.room = 0;
  for (TxOp *one : {&op, &other}) {
    offers.aim(*one, target);
    EXPECT_EQ(offers.write(c, *one), -FI_EAGAIN);
  }
  std::vector<TxOp *> asked;
  offers.resume([&](TxOp &one) {  // the connection ends
    asked.push_back(&one);
    for (TxOp *gone : {&op, &other}) offers.forget(*gone);
  });
  EXPECT_EQ(asked, std::vector<TxOp *>{&op});
  EXPECT_FALSE(offers.has_waiting());
}

TEST_F(OffersTest, TheErrorOfTheCarrierIsReturned) {
  const RmaVector target[] = {{200, 1000, 2}};
  offers.aim(op, target);
  world.carrier.fails = -FI_EIO;
  EXPECT_EQ(offers.write(c, op), -FI_EIO);
  EXPECT_EQ(op.tokens, 0u);
  EXPECT_FALSE(offers.has_waiting());
}

}  // namespace
}  // namespace weft::rxm
