// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/fetches.h"

#include <gtest/gtest.h>

#include "plugins/rxm/protocol/test_parts.h"

namespace weft::rxm {
namespace {

using Step = Fetches::Step;

struct FetchesTest : ::testing::Test {
  // A message of 1000 bytes in two places, and a receive of `room` bytes.
  explicit FetchesTest(size_t room = 1000) {
    c.set_level(kLevel);
    m.connection = &c;
    m.message.length = 1000;
    m.vectors[0] = {100, 400, 1};
    m.vectors[1] = {200, 600, 2};
    m.count = 2;
    receive.iov[0] = {memory, room};
    receive.count = 1;
    receive.length = room;
    m.receive = &receive;
  }
  ~FetchesTest() override {
    fetches.conceal(m);
    EXPECT_EQ(world.carrier.exposed, 0u);
  }
  // Reads come back, with this error.
  Step come_back(size_t count, int err = 0) {
    Fetches::Outcome last{Step::kWaits};
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(last.step, Step::kWaits) << "one is still under way";
      last = fetches.on_read(m, err);
    }
    return last.step;
  }
  uint8_t memory[1000];
  PartsWorld world;
  Connection &c{world.connected(1)};
  sdk::Receive receive;
  RxMessage m;
  Fetches fetches{world.carrier, world.settings};
};

TEST_F(FetchesTest, EachVectorIsReadIntoItsPlace) {
  EXPECT_FALSE(fetches.is_written(m));
  EXPECT_EQ(fetches.read(m).step, Step::kWaits);
  ASSERT_EQ(world.carrier.accesses.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const NotingCarrier::Access &access = world.carrier.accesses[i];
    EXPECT_FALSE(access.write);
    EXPECT_EQ(access.length, m.vectors[i].length);
    EXPECT_EQ(access.at.key, m.vectors[i].key);
    EXPECT_EQ(access.token, &m);
  }
  EXPECT_EQ(come_back(2), Step::kAll);
}

TEST_F(FetchesTest, OnlyWhatTheReceiveHasRoomForIsRead) {
  receive.length = 450;
  EXPECT_EQ(fetches.read(m).step, Step::kWaits);
  ASSERT_EQ(world.carrier.accesses.size(), 2u);
  EXPECT_EQ(world.carrier.accesses[1].length, 50u);
  EXPECT_EQ(come_back(2), Step::kAll);
  receive.length = 0;
  m.received = m.next_vector = 0;
  EXPECT_EQ(fetches.read(m).step, Step::kAll) << "there is nothing to read";
}

TEST_F(FetchesTest, AReadGoesOnWhenThereIsRoom) {
  world.carrier.room = 1;
  EXPECT_EQ(fetches.read(m).step, Step::kWaits);
  EXPECT_TRUE(fetches.has_waiting());
  EXPECT_EQ(come_back(1), Step::kWaits) << "the second vector is not read yet";
  world.carrier.room = 5;
  c.set_state(State::kAccepting);  // packets may come before the news of the connection
  const auto read = [this](RxMessage &one) { EXPECT_EQ(fetches.read(one).step, Step::kWaits); };
  fetches.resume(read);
  EXPECT_TRUE(fetches.has_waiting());
  EXPECT_EQ(world.carrier.accesses.size(), 1u);
  c.set_state(State::kConnected);
  fetches.resume(read);
  EXPECT_FALSE(fetches.has_waiting());
  EXPECT_EQ(come_back(1), Step::kAll);
}

TEST_F(FetchesTest, AMessageThatIsFreedWaitsNoMore) {
  world.carrier.room = 0;
  fetches.read(m);
  fetches.stop_waiting(m);
  EXPECT_FALSE(fetches.has_waiting());
  EXPECT_FALSE(m.waits);
}

TEST_F(FetchesTest, AnErrorIsTheConnectionsOrTheReceives) {
  world.carrier.fails = -FI_ECONNRESET;
  const Fetches::Outcome lost = fetches.read(m);
  EXPECT_EQ(lost.step, Step::kLost);
  EXPECT_EQ(lost.err, FI_ECONNRESET);
  world.carrier.fails = -FI_ENOMEM;
  EXPECT_EQ(fetches.read(m).step, Step::kAll);
  EXPECT_TRUE(m.failed);
  EXPECT_EQ(m.err, FI_ENOMEM);
}

TEST_F(FetchesTest, AFailedReadCannotBeToldButByTheEnd) {
  fetches.read(m);
  EXPECT_EQ(fetches.on_read(m, FI_EIO).step, Step::kWaits);
  const Fetches::Outcome lost = fetches.on_read(m, 0);
  EXPECT_EQ(lost.step, Step::kLost);
  EXPECT_EQ(lost.err, FI_EIO);
}

TEST_F(FetchesTest, ReadsOfAConnectionThatEndedComeBack) {
  fetches.read(m);
  m.over = true;
  EXPECT_EQ(come_back(2, FI_ECANCELED), Step::kOver);
  EXPECT_EQ(m.received, 0u);
}

TEST_F(FetchesTest, TheFirstBytesAreReadBeforeThereIsAReceive) {
  m.receive = nullptr;
  uint8_t first[16];
  ASSERT_TRUE(fetches.begin_peek(m, first, sizeof first));
  fetches.read(m);
  ASSERT_EQ(world.carrier.accesses.size(), 1u);
  EXPECT_EQ(world.carrier.accesses[0].length, sizeof first);
  EXPECT_EQ(come_back(1), Step::kAll);
  fetches.end_peek(m);
  EXPECT_EQ(m.receive, nullptr);
  EXPECT_EQ(m.received, 0u);
  m.receive = &receive;
  fetches.read(m);
  EXPECT_EQ(world.carrier.accesses.size(), 3u) << "all of it is read again";
  come_back(2);
  ASSERT_TRUE(fetches.begin_peek(m, first, sizeof first));
  m.received = m.next_vector = 0;
  fetches.read(m);
  m.over = true;
  EXPECT_EQ(come_back(1), Step::kPeekOver);
  fetches.end_peek(m);
}

TEST_F(FetchesTest, TheSenderIsToldWhereToWrite) {
  world.settings.rendezvous_write = true;
  EXPECT_TRUE(fetches.is_written(m));
  receive.iov[0].iov_len = 300;
  receive.iov[1] = {memory + 300, 0};
  receive.iov[2] = {memory + 300, 400};
  receive.count = 3;
  receive.length = 700;
  Fetches::Target target;
  EXPECT_EQ(fetches.expose(m, target), 0);
  ASSERT_EQ(target.count, 2u);
  EXPECT_EQ(target.vectors[0].length, 300u);
  EXPECT_EQ(target.vectors[1].length, 400u);
  EXPECT_EQ(m.received, 700u);
  EXPECT_EQ(world.carrier.exposed, 2u);
  receive.length = 0;
  EXPECT_FALSE(fetches.is_written(m)) << "there is nothing to write";
}

// A weft peer writes nothing then, and says so. A stock peer would write to what it is given.
TEST_F(FetchesTest, MemoryThatCannotBeExposed) {
  receive.iov[0].iov_len = 300;
  receive.iov[1] = {memory + 300, 700};
  receive.count = 2;
  for (const uint8_t level : {kLevel, uint8_t{0}}) {
    c.set_level(level);
    world.carrier.may_expose = 1;
    Fetches::Target target;
    EXPECT_EQ(fetches.expose(m, target), level == 0 ? FI_ENOMEM : 0);
    EXPECT_EQ(world.carrier.exposed, level == 0 ? 1u : 0u) << "the rest goes with the message";
    if (level == 0) continue;
    EXPECT_TRUE(m.failed);
    ASSERT_EQ(target.count, 1u);
    EXPECT_EQ(target.vectors[0].length, 0u);
    EXPECT_EQ(target.vectors[0].key, kInvalidKey);
  }
}

}  // namespace
}  // namespace weft::rxm
