// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/sender.h"

#include <gtest/gtest.h>

#include "plugins/rxm/protocol/test_parts.h"

namespace weft::rxm {
namespace {

struct SenderTest : ::testing::Test {
  ssize_t send(Connection &c) {
    static uint8_t byte = 1;
    const iovec iov{&byte, 1};
    return sender.send(c, &iov, 1, FI_INJECT, nullptr);
  }
  PartsWorld world;
  Sender sender{world.carrier, world.settings};
};

TEST_F(SenderTest, OnlyWhatTheCarrierTakesCostsACredit) {
  Connection &c = world.connected(1);
  sender.use_credits(c, true);
  EXPECT_EQ(send(c), -FI_EAGAIN) << "the first one is for credits";
  EXPECT_TRUE(world.carrier.packets.empty());
  sender.grant(c, 1);
  EXPECT_TRUE(sender.has_blocked());
  world.carrier.room = 0;
  EXPECT_EQ(send(c), -FI_EAGAIN);
  world.carrier.fails = -FI_EIO;
  EXPECT_EQ(send(c), -FI_EIO);
  world.carrier.fails = 0;
  world.carrier.room = 5;
  EXPECT_EQ(send(c), 0);
  EXPECT_EQ(send(c), -FI_EAGAIN);
  EXPECT_EQ(world.carrier.packets.size(), 1u);
}

TEST_F(SenderTest, CreditsAreToldWhenTheyAreManyAndMayBe) {
  world.settings.receive_count = 8;
  Connection &c = world.connected(1);
  sender.repost(c, 8);
  EXPECT_TRUE(sender.tell_credits(c));
  EXPECT_TRUE(world.carrier.packets.empty()) << "there is no flow control";
  sender.use_credits(c, true);
  sender.repost(c, 3);
  EXPECT_TRUE(sender.tell_credits(c));
  EXPECT_TRUE(world.carrier.packets.empty());
  sender.repost(c, 2);
  world.carrier.room = 0;
  EXPECT_FALSE(sender.tell_credits(c));
  world.carrier.room = 5;
  EXPECT_TRUE(sender.tell_credits(c));
  ASSERT_EQ(world.carrier.packets.size(), 1u);
  EXPECT_EQ(world.carrier.packets[0].type(), PacketType::kCredit);
  EXPECT_EQ(world.carrier.packets[0].header().control_data, 5u);
  sender.repost(c, 8);
  EXPECT_TRUE(sender.tell_credits(c)) << "the last credit is used: the peer has to grant first";
  EXPECT_EQ(world.carrier.packets.size(), 1u);
  sender.grant(c, 1);
  EXPECT_TRUE(sender.tell_credits(c));
  EXPECT_EQ(world.carrier.packets.size(), 2u);
}

TEST_F(SenderTest, WhoWaitsIsAskedOnceInATurn) {
  Connection &one = world.connected(1), &two = world.connected(2), &over = world.connected(3);
  for (Connection *c : {&one, &two, &one, &over}) sender.block(*c);
  over.set_state(State::kEnded);
  std::vector<Connection *> asked;
  sender.resume([&](Connection &c) {
    asked.push_back(&c);
    sender.block(two);  // it may wait again already
    return &c == &two;
  });
  EXPECT_EQ(asked, (std::vector<Connection *>{&one, &two}));
  asked.clear();
  sender.forget(two);
  sender.resume([&](Connection &c) {
    asked.push_back(&c);
    return true;
  });
  EXPECT_EQ(asked, std::vector<Connection *>{&one});
  EXPECT_FALSE(sender.has_blocked());
}

// What is told waits for the next message when the last ones have followed at once.
TEST_F(SenderTest, WhatIsToldMayLeaveWithTheReply) {
  Connection &c = world.connected(1), &other = world.connected(2);
  for (int pass = 0; pass < 2; ++pass) {
    sender.begin_pass();
    EXPECT_FALSE(sender.tells(c));
    sender.replies(c);
  }
  sender.begin_pass();
  EXPECT_TRUE(sender.tells(c));
  EXPECT_FALSE(sender.tells(other));
}

}  // namespace
}  // namespace weft::rxm
