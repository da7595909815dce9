// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/in_flight.h"

#include <gtest/gtest.h>

#include "plugins/rxm/protocol/test_parts.h"

namespace weft::rxm {
namespace {

struct InFlightTest : ::testing::Test {
  // One that the carrier has, with one token.
  TxOp &sent() {
    TxOp *const op = operations.take();
    op->connection = &c;
    op->tokens = 1;
    op->sent = true;
    operations.depart(c, *op);
    return *op;
  }
  std::vector<int> ended() const {
    std::vector<int> errors;
    for (const NotingUpper::Done &done : world.upper.done) errors.push_back(done.err);
    return errors;
  }
  PartsWorld world;
  Connection &c{world.connected(1)};
  Sender sender{world.carrier, world.settings};
  Offers offers{world.carrier, world.settings};
  InFlight operations{4, sender, offers, world.upper, world.counters};
};

using Errors = std::vector<int>;

TEST_F(InFlightTest, AnOperationEndsWithItsLastToken) {
  TxOp &op = sent();
  ++op.tokens;
  operations.depart(c, op);
  EXPECT_EQ(c.departed.count(), 1u) << "it counts once";
  operations.on_sent(op, FI_EIO);
  EXPECT_TRUE(ended().empty());
  operations.on_sent(op, 0);
  EXPECT_EQ(ended(), Errors{FI_EIO});
  EXPECT_EQ(c.departed.count(), 0u);
  EXPECT_EQ(operations.size(), 0u);
  EXPECT_EQ(world.counters.failed.value(), 1u);
}

TEST_F(InFlightTest, AnAnswerAndTheTokenComeInAnyOrder) {
  for (const bool answer_first : {false, true}) {
    TxOp &op = sent();
    operations.await(c, op);
    EXPECT_EQ(c.departed.count(), 1u);
    EXPECT_EQ(c.departed.first_awaited(), &op);
    const uint64_t id = OperationTable::id_of(op);
    EXPECT_EQ(operations.awaited(c, id), &op);
    EXPECT_EQ(operations.awaited(world.connected(2), id), nullptr) << "another's answer";
    if (answer_first) {
      operations.end(op, 0);
    } else {
      operations.on_sent(op, 0);
    }
    EXPECT_TRUE(ended().empty());
    if (answer_first) {
      EXPECT_EQ(operations.awaited(c, id), nullptr) << "a second answer";
      operations.on_sent(op, 0);
    } else {
      operations.end(op, 0);
    }
    EXPECT_EQ(ended(), Errors{0});
    world.upper.done.clear();
  }
}

// What the carrier says of a packet does not matter if the peer tells of the message.
TEST_F(InFlightTest, ThePeersWordCounts) {
  const struct {
    Tell until;
    bool segment;
    int err;
  } rows[] = {
      {Tell::kNothing, false, FI_EIO}, {Tell::kNothing, true, FI_EIO}, {Tell::kMatched, false, 0},
      {Tell::kMatched, true, 0},       {Tell::kDelivered, false, 0},
  };
  for (const auto &row : rows) {
    world.upper.done.clear();
    TxOp &op = sent();
    op.until = row.until;
    if (row.until != Tell::kNothing) operations.await(c, op);
    if (row.segment) {
      operations.on_segment_sent(op, FI_EIO);
    } else {
      operations.on_sent(op, FI_EIO);
    }
    if (row.until != Tell::kNothing) {
      EXPECT_TRUE(ended().empty());
      operations.end(op, 0);
    }
    EXPECT_EQ(ended(), Errors{row.err});
  }
}

TEST_F(InFlightTest, AFailedRequestNeedsNoAnswer) {
  TxOp &op = sent();
  operations.await(c, op);
  operations.on_sent(op, FI_ECANCELED);
  EXPECT_EQ(ended(), Errors{FI_ECANCELED});
  EXPECT_EQ(c.departed.first_awaited(), nullptr);
}

TEST_F(InFlightTest, WhatAwaitsAnAnswerFailsWithItsConnection) {
  Connection &other = world.connected(2);
  TxOp &one = sent(), &two = sent(), &elsewhere = sent(), &at_carrier = sent();
  for (TxOp *op : {&one, &two}) operations.await(c, *op);
  elsewhere.connection = &other;
  operations.await(other, elsewhere);
  EXPECT_EQ(operations.take(), nullptr);
  EXPECT_EQ(world.counters.tx_full.value(), 1u);
  operations.on_sent(two, 0);
  operations.end_awaited(c, FI_ECONNRESET);
  EXPECT_EQ(ended(), Errors{FI_ECONNRESET}) << "the carrier has the other's packet";
  operations.on_sent(one, FI_ECANCELED);
  EXPECT_EQ(ended(), (Errors{FI_ECONNRESET, FI_ECONNRESET}));
  operations.on_sent(at_carrier, 0);
  EXPECT_EQ(ended().back(), 0);
  EXPECT_EQ(operations.size(), 1u);
}

TEST_F(InFlightTest, WhatWaitsInAQueueEndsInItsOrder) {
  OpQueue queue;
  TxOp &one = *operations.take(), &two = *operations.take();
  for (TxOp *op : {&one, &two}) queue.push(*op);
  operations.settle(one);
  EXPECT_TRUE(ended().empty());
  operations.end_all(std::exchange(queue, {}), FI_ETIMEDOUT);
  ASSERT_EQ(ended(), (Errors{FI_ETIMEDOUT, FI_ETIMEDOUT}));
  EXPECT_EQ(world.upper.done[0].op, &one);
  EXPECT_EQ(operations.size(), 0u);
}

TEST_F(InFlightTest, ItsMemoryIsConcealedWhenItEnds) {
  TxOp &op = sent();
  static uint8_t byte;
  op.iov[0] = {&byte, 1};
  op.count = 1;
  op.length = 1;
  op.form = TxOp::Form::kRendezvous;
  EXPECT_EQ(offers.describe(c, op), 0);
  operations.await(c, op);
  operations.on_sent(op, 0);
  EXPECT_EQ(world.carrier.exposed, 1u);
  operations.end(op, 0);
  EXPECT_EQ(world.carrier.exposed, 0u);
}

}  // namespace
}  // namespace weft::rxm
