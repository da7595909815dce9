// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/stranger_limit.h"

#include <gtest/gtest.h>

#include "plugins/rxm/protocol/answers.h"
#include "plugins/rxm/protocol/idle_limit.h"
#include "plugins/rxm/protocol/test_parts.h"

namespace weft::rxm {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

struct StrangerLimitTest : ::testing::Test {
  enum Sent { kNothing, kPart, kMessage };
  // Of a weft peer, at `now`. `sent`: what has come from it since.
  Connection &stranger(uint16_t port, Sent sent) {
    Connection &c = world.connected(port);
    c.set_level(kLevel);
    c.set_started(now);
    say(c, sent);
    return c;
  }
  void say(Connection &c, Sent sent) {
    if (sent == kNothing) return;
    c.set_heard();
    if (sent == kMessage) c.set_useful();
    use.touch(c);
  }
  // Who leaves when one more comes. kIdle: it is asked to part.
  enum Way { kNobody, kIdle, kSilent };
  struct Found {
    Way way;
    uint16_t port;
    bool operator==(const Found &) const = default;
  };
  Found leaver() {
    const StrangerLimit::Leaver found = limit.first_to_leave(now);
    if (found.silent != nullptr) return {kSilent, found.silent->address().port()};
    if (found.idle != nullptr) return {kIdle, found.idle->address().port()};
    return {kNobody, 0};
  }
  // Looks that find nothing new.
  Found after(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      now += kSecond;
      leaver();
    }
    return leaver();
  }
  uint64_t now = kSecond;
  PartsWorld world;
  IdleLimit use{world.peers};
  StrangerLimit limit{world.peers};
};

TEST_F(StrangerLimitTest, WhoSaysNothingForASecondMayBeClosed) {
  stranger(1, kNothing);
  now += kSecond - 1;
  EXPECT_EQ(leaver(), (Found{kNobody, 0}));
  now += 1;
  EXPECT_EQ(leaver(), (Found{kSilent, 1}));
}

TEST_F(StrangerLimitTest, WhoBeginsAMessageHasToGoOn) {
  Connection &c = stranger(1, kPart);
  EXPECT_EQ(leaver().way, kIdle) << "nothing waits for it";
  EXPECT_EQ(after(1), (Found{kSilent, 1}));
  say(c, kPart);
  EXPECT_EQ(leaver().way, kIdle);
  EXPECT_EQ(after(1).way, kIdle) << "this look has seen it for the first time";
  EXPECT_EQ(after(1), (Found{kSilent, 1}));
}

TEST_F(StrangerLimitTest, WhoHasSentAMessageIsAskedToPart) {
  Connection &c = stranger(1, kMessage);
  EXPECT_EQ(after(20), (Found{kIdle, 1})) << "it can be asked, and may be sending";
  use.asked(c);
  EXPECT_EQ(leaver(), (Found{kSilent, 1})) << "it does not answer";
  use.stay(c);
  EXPECT_EQ(leaver(), (Found{kIdle, 1}));
}

TEST_F(StrangerLimitTest, AStockPeerCannotBeAsked) {
  Connection &c = stranger(1, kMessage);
  c.set_level(0);
  leaver();
  EXPECT_EQ(after(9).way, kNobody);
  EXPECT_EQ(after(1), (Found{kSilent, 1}));
  say(c, kMessage);
  EXPECT_EQ(after(10).way, kNobody);
  EXPECT_EQ(after(1), (Found{kSilent, 1}));
}

TEST_F(StrangerLimitTest, WhatWaitsForThisSideKeepsIt) {
  Connection &c = stranger(1, kPart);
  Sender sender(world.carrier, world.settings);
  Answers answers(sender, world.settings);
  world.carrier.room = 0;
  EXPECT_EQ(answers.queue(c, *answers.make(c, PacketType::kReadDone, 1)), 0);
  EXPECT_EQ(after(20).way, kNobody);
  answers.drop(c);
  EXPECT_EQ(leaver().way, kSilent);
}

TEST_F(StrangerLimitTest, PeersInTheAddressVectorStay) {
  Connection &c = stranger(1, kNothing);
  EXPECT_EQ(after(2).way, kSilent);
  world.peers.set_index(c.peer(), 3);
  EXPECT_EQ(leaver().way, kNobody);
}

TEST_F(StrangerLimitTest, TheSilentOneGoesBeforeTheIdleOne) {
  stranger(1, kMessage);
  stranger(2, kNothing);
  EXPECT_EQ(leaver(), (Found{kIdle, 1}));
  EXPECT_EQ(after(1), (Found{kSilent, 2}));
}

// A host with many processes among the strangers makes room before others (weft/sdk/peer/crowd.h),
// and of one host's the one that was used least recently.
TEST_F(StrangerLimitTest, OfSeveralTheOneThatWasIdleForLongest) {
  Connection &one = stranger(1, kMessage);
  stranger(2, kMessage);
  EXPECT_EQ(leaver(), (Found{kIdle, 1}));
  say(one, kMessage);
  EXPECT_EQ(leaver(), (Found{kIdle, 2}));
}

}  // namespace
}  // namespace weft::rxm
