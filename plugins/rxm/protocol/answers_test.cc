// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/answers.h"

#include <gtest/gtest.h>

#include "plugins/rxm/protocol/test_parts.h"

namespace weft::rxm {
namespace {

struct AnswersTest : ::testing::Test {
  int answer(Connection &c, uint64_t id, size_t result = 0, bool told = false) {
    Control *const control = answers.make(c, PacketType::kReadDone, id);
    if (control == nullptr) return Answers::kTooMuch;
    control->more.resize(result);
    control->told = told;
    return answers.queue(c, *control);
  }
  std::vector<uint64_t> sent() const {
    std::vector<uint64_t> ids;
    for (const NotingCarrier::Packet &p : world.carrier.packets) ids.push_back(p.header().message);
    return ids;
  }
  PartsWorld world;
  Sender sender{world.carrier, world.settings};
  Answers answers{sender, world.settings};
};

TEST_F(AnswersTest, LeaveInTheOrderInWhichTheyWereQueued) {
  Connection &c = world.connected(1);
  EXPECT_EQ(answer(c, 1), 0);
  EXPECT_EQ(c.answers.count(), 0u) << "it was injected";
  world.carrier.room = 0;
  EXPECT_EQ(answer(c, 2), 0);
  EXPECT_TRUE(sender.has_blocked());
  world.carrier.room = 1;
  EXPECT_EQ(answer(c, 3), 0) << "behind the one that waits";
  EXPECT_EQ(c.answers.count(), 2u);
  EXPECT_EQ(answers.flush(c), -FI_EAGAIN);
  EXPECT_EQ(sent(), (std::vector<uint64_t>{1, 2}));
  world.carrier.room = 1;
  EXPECT_EQ(answers.flush(c), 0);
  EXPECT_EQ(sent(), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_TRUE(c.answers.empty());
  EXPECT_EQ(c.answers.count(), 0u);
}

// What the carrier does not copy is the peer's debt until the carrier has sent it.
TEST_F(AnswersTest, ResultsThatThePeerDoesNotTakeAreLimited) {
  world.settings.owed_limit = 1600;
  Connection &c = world.connected(1, 0), &stranger = world.connected(2);
  EXPECT_EQ(answer(c, 1, 1600), 0);
  ASSERT_EQ(world.carrier.packets.size(), 1u);
  EXPECT_TRUE(c.answers.empty());
  EXPECT_EQ(c.answers.count(), 1u) << "the carrier has it";
  EXPECT_EQ(answer(c, 2, 1), Answers::kTooMuch);
  answers.drop(c);
  auto &at_carrier = static_cast<Control &>(*world.carrier.packets[0].token);
  answers.free(at_carrier);
  EXPECT_EQ(c.answers.count(), 0u);
  EXPECT_EQ(answer(c, 3, 1600), 0);
  EXPECT_EQ(answer(stranger, 4, 101), Answers::kTooMuch) << "a sixteenth";
  EXPECT_EQ(answer(stranger, 5, 100), Answers::kTooMuch) << "the first one still counts";
  answers.drop(stranger);
  EXPECT_EQ(answer(stranger, 6, 100), 0);
  for (size_t i = 1; i < world.carrier.packets.size(); ++i)
    answers.free(static_cast<Control &>(*world.carrier.packets[i].token));
}

TEST_F(AnswersTest, TheirNumberIsLimited) {
  world.settings.max_controls = 32;
  world.carrier.room = 0;
  Connection &c = world.connected(1, 0), &stranger = world.connected(2);
  for (uint64_t i = 0; i < 32; ++i) EXPECT_EQ(answer(c, i), 0);
  EXPECT_EQ(answer(c, 32), Answers::kTooMuch);
  for (uint64_t i = 0; i < 2; ++i) EXPECT_EQ(answer(stranger, i), 0);
  EXPECT_EQ(answer(stranger, 2), Answers::kTooMuch);
  for (Connection *one : {&c, &stranger}) {
    answers.drop(*one);
    EXPECT_EQ(one->answers.count(), 0u);
  }
}

TEST_F(AnswersTest, TheErrorOfTheCarrierIsReturned) {
  Connection &c = world.connected(1);
  world.carrier.room = 0;
  EXPECT_EQ(answer(c, 1), 0);
  world.carrier.fails = -FI_ECONNRESET;
  EXPECT_EQ(answers.flush(c), -FI_ECONNRESET);
  EXPECT_FALSE(c.answers.empty()) << "they are dropped with the connection";
  answers.drop(c);
  EXPECT_EQ(answer(c, 2), FI_ECONNRESET);
  EXPECT_EQ(c.answers.count(), 0u);
  EXPECT_FALSE(answers.ask_to_part(c));
  EXPECT_EQ(c.answers.count(), 0u);
  c.set_state(State::kEnded);
  EXPECT_EQ(answer(c, 3), 0);
  EXPECT_EQ(c.answers.count(), 0u) << "nobody is told";
}

// Whether a peer may be told of a message is known when its connection is.
TEST_F(AnswersTest, AStockPeerIsNotToldOfMessages) {
  Connection &c = world.connected(1);
  c.set_state(State::kConnecting);
  EXPECT_EQ(answer(c, 1, 0, true), 0);
  EXPECT_EQ(answer(c, 2), 0);
  EXPECT_TRUE(sent().empty());
  c.set_state(State::kConnected);
  EXPECT_EQ(answers.flush(c), 0);
  EXPECT_EQ(sent(), std::vector<uint64_t>{2});
  EXPECT_EQ(c.answers.count(), 0u);
}

TEST_F(AnswersTest, APeerIsAskedToPartAtOnceOrNot) {
  Connection &c = world.connected(1);
  EXPECT_TRUE(answers.ask_to_part(c));
  ASSERT_EQ(world.carrier.packets.size(), 1u);
  EXPECT_EQ(world.carrier.packets[0].type(), PacketType::kPart);
  EXPECT_EQ(world.carrier.packets[0].header().control_data, uint64_t(Parting::kAsk));
  world.carrier.room = 0;
  EXPECT_FALSE(answers.ask_to_part(c));
  EXPECT_TRUE(c.answers.empty());
}

}  // namespace
}  // namespace weft::rxm
