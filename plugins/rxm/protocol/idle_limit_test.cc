// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/idle_limit.h"

#include <gtest/gtest.h>

#include "plugins/rxm/protocol/in_flight.h"
#include "plugins/rxm/protocol/test_parts.h"

namespace weft::rxm {
namespace {

struct IdleLimitTest : ::testing::Test {
  Connection &connected(uint16_t port, uint8_t level = kLevel) {
    Connection &c = world.connected(port);
    c.set_level(level);
    limit.connect(c);
    limit.touch(c);
    return c;
  }
  PartsWorld world;
  IdleLimit limit{world.peers};
};

TEST_F(IdleLimitTest, TheOneThatWasIdleForLongestLeavesFirst) {
  Connection &one = connected(1), &two = connected(2), &three = connected(3);
  EXPECT_EQ(limit.connected(), 3u);
  EXPECT_EQ(limit.idlest(3), nullptr);
  EXPECT_EQ(limit.idlest(2), &one);
  limit.touch(one);
  EXPECT_EQ(limit.idlest(2), &two);
  limit.asked(two);
  EXPECT_EQ(limit.idlest(2), nullptr) << "one is about to leave";
  EXPECT_EQ(limit.idlest(1), &three);
  limit.disconnect(two);
  EXPECT_EQ(limit.connected(), 2u);
  EXPECT_EQ(limit.idlest(2), nullptr);
  EXPECT_EQ(limit.idlest(1), &three);
}

TEST_F(IdleLimitTest, WhoCannotBeAskedStays) {
  connected(1, /*level=*/0);
  Connection &busy = connected(2), &accepting = connected(3);
  Sender sender(world.carrier, world.settings);
  Offers offers(world.carrier, world.settings);
  InFlight operations(1, sender, offers, world.upper, world.counters);
  operations.depart(busy, *operations.take());
  accepting.set_state(State::kAccepting);
  EXPECT_EQ(limit.idlest(0), nullptr);
}

TEST_F(IdleLimitTest, APeerThatStaysIsTheLastToBeAskedAgain) {
  Connection &one = connected(1), &two = connected(2);
  limit.asked(one);
  EXPECT_TRUE(one.idleness.has_asked());
  limit.stay(one);
  EXPECT_FALSE(one.idleness.leaves());
  EXPECT_EQ(limit.idlest(1), &two);
  EXPECT_EQ(limit.idlest(0), &two);
}

// Whoever asked, and whenever it was established: one that leaves counts once.
TEST_F(IdleLimitTest, BothSidesMayAskAtOnce) {
  Connection &one = connected(1), &two = connected(2), &early = world.connected(3);
  limit.asked(one);
  limit.agree(one);
  limit.stay(one);
  EXPECT_TRUE(one.idleness.leaves()) << "what we have agreed to counts";
  EXPECT_EQ(limit.idlest(1), nullptr);
  early.set_state(State::kAccepting);
  limit.agree(early);  // before the news that it is established
  early.set_state(State::kConnected);
  limit.connect(early);
  EXPECT_EQ(limit.idlest(1), nullptr);
  EXPECT_EQ(limit.idlest(0), &two);
  for (const Connection *c : {&one, &early}) limit.disconnect(*c);
  EXPECT_EQ(limit.connected(), 1u);
  EXPECT_EQ(limit.idlest(1), nullptr);
}

}  // namespace
}  // namespace weft::rxm
