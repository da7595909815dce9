// SPDX-License-Identifier: BSD-2-Clause
// Peers that live, are stopped, or end, in simulated time.
#include "plugins/cxi/peer_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>

namespace weft::cxi {
namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1000 * kMs;

Peer peer(Pid pid) {
  return {.nid = 1, .pid = pid, .vni = 10};
}

// What peers there are, whom somebody waits for, and when questions are answered.
struct World {
  enum class State { kLives, kStopped, kEnded };

  // Until the time `end`.
  void run(uint64_t end) {
    while (now < end) {
      const uint64_t next = watch.next();
      uint64_t at = end;
      if (next != 0) at = std::min(at, next);
      if (!answers.empty()) at = std::min(at, answers.begin()->first);
      now = std::max(now, at);
      while (!answers.empty() && answers.begin()->first <= now) {
        const Peer from = answers.begin()->second;
        answers.erase(answers.begin());
        answer(from);
      }
      if (watch.next() != 0 && watch.next() <= now) look();
    }
  }
  void look() {
    for (const Peer &one : watch.look(now, awaited)) {
      ++questions[one.pid];
      EXPECT_TRUE(open.insert(one.pid).second) << "asked again before it has answered";
      answers.emplace(now + round_trip, one);
    }
  }
  void answer(const Peer &from) {
    const State state = states[from.pid];
    if (state == State::kStopped) return stopped.push_back(from);
    open.erase(from.pid);
    if (!watch.on_answer(from, state == State::kLives, now)) return;
    EXPECT_EQ(state, State::kEnded) << from.pid;
    EXPECT_TRUE(gone.emplace(from.pid, now).second) << "told twice";
    std::erase(awaited, from);
  }
  void set(Pid pid, State state) {
    states[pid] = state;
    if (state == State::kStopped) return;
    const auto held =
        std::ranges::partition(stopped, [&](const Peer &one) { return one.pid != pid; });
    for (const Peer &one : held) answers.emplace(now + round_trip, one);
    stopped.erase(held.begin(), held.end());
  }
  // Something waits for it from now on.
  void await(Pid pid) {
    awaited.push_back(peer(pid));
    look();
  }

  PeerWatch watch;
  uint64_t now = kSecond, round_trip = 1000;
  std::vector<Peer> awaited, stopped;
  std::multimap<uint64_t, Peer> answers;
  std::map<Pid, State> states;
  std::map<Pid, size_t> questions;
  std::set<Pid> open;
  std::map<Pid, uint64_t> gone;
};

TEST(PeerWatch, OneThatLivesIsAskedLessAndLessOften) {
  World world;
  world.await(7);
  world.run(world.now + PeerWatch::kFirstNs - 1);
  EXPECT_EQ(world.questions[7], 0u) << "most waits are shorter";
  world.run(world.now + 100 * kSecond);
  EXPECT_GE(world.questions[7], 95u);
  EXPECT_LE(world.questions[7], 105u) << "once in a second";
  EXPECT_TRUE(world.gone.empty());
}

TEST(PeerWatch, OneThatEndsIsFoundOut) {
  World world;
  world.await(7);
  world.await(8);
  world.run(world.now + 30 * kSecond);
  world.set(7, World::State::kEnded);
  const uint64_t end = world.now;
  world.run(world.now + 30 * kSecond);
  ASSERT_TRUE(world.gone.contains(7));
  EXPECT_LE(world.gone[7] - end, PeerWatch::kLastNs + PeerWatch::kFirstNs + 2 * world.round_trip);
  EXPECT_EQ(world.gone.size(), 1u);
  EXPECT_GT(world.questions[8], 50u) << "others are asked all the same";
}

// Whatever it has sent before is read first.
TEST(PeerWatch, ItTakesTwoAnswers) {
  PeerWatch watch;
  const std::vector<Peer> awaited{peer(7)};
  uint64_t now = kSecond;
  watch.look(now, awaited);
  const auto ask = [&] {
    now = watch.next();
    return watch.look(now, awaited).size();
  };
  ASSERT_EQ(ask(), 1u);
  EXPECT_FALSE(watch.on_answer(peer(7), false, now));
  ASSERT_EQ(ask(), 1u);
  EXPECT_FALSE(watch.on_answer(peer(7), true, now)) << "it is there again";
  ASSERT_EQ(ask(), 1u);
  EXPECT_FALSE(watch.on_answer(peer(7), false, now));
  ASSERT_EQ(ask(), 1u);
  EXPECT_TRUE(watch.on_answer(peer(7), false, now));
  EXPECT_FALSE(watch.on_answer(peer(7), false, now)) << "nobody has asked";
}

TEST(PeerWatch, OneThatIsStoppedIsWaitedFor) {
  World world;
  world.states[7] = World::State::kStopped;
  world.await(7);
  world.run(world.now + 3600 * kSecond);
  EXPECT_EQ(world.questions[7], 1u);
  EXPECT_TRUE(world.gone.empty());
  world.set(7, World::State::kLives);
  world.run(world.now + 10 * kSecond);
  EXPECT_TRUE(world.gone.empty());
  EXPECT_GT(world.questions[7], 1u);
  world.set(7, World::State::kStopped);
  world.run(world.now + 10 * kSecond);
  world.set(7, World::State::kEnded);
  world.run(world.now + 10 * kSecond);
  EXPECT_TRUE(world.gone.contains(7));
}

TEST(PeerWatch, NobodyIsAskedForNothing) {
  World world;
  world.await(7);
  world.run(world.now + kSecond);
  world.awaited.clear();
  world.run(world.now + 2 * kSecond);
  const size_t asked = world.questions[7];
  world.run(world.now + 10 * kSecond);
  EXPECT_EQ(world.questions[7], asked);
  EXPECT_EQ(world.watch.next(), 0u);
}

TEST(PeerWatch, AQuestionThatCannotBeAskedIsPutOff) {
  PeerWatch watch;
  const std::vector<Peer> awaited{peer(7), peer(7)};
  watch.look(kSecond, awaited);
  const uint64_t now = watch.next();
  ASSERT_EQ(watch.look(now, awaited).size(), 1u);
  EXPECT_EQ(watch.next(), 0u) << "the answer is waited for";
  watch.put_off(peer(7), now);
  EXPECT_EQ(watch.next(), now + PeerWatch::kFirstNs);
  EXPECT_EQ(watch.look(watch.next(), awaited).size(), 1u);
}

TEST(PeerWatch, NoMoreAreAskedThanTheQueueHolds) {
  World world;
  constexpr Pid kMany = Pid(PeerWatch::kMostAsked) + 50;
  for (Pid pid = 0; pid < kMany; ++pid) {
    world.states[pid] = World::State::kStopped;
    world.awaited.push_back(peer(pid));
  }
  world.look();
  world.run(world.now + 10 * kSecond);
  EXPECT_EQ(world.open.size(), PeerWatch::kMostAsked);
  for (Pid pid = 0; pid < kMany; ++pid) world.set(pid, World::State::kEnded);
  world.run(world.now + 10 * kSecond);
  EXPECT_EQ(world.gone.size(), size_t(kMany));
  EXPECT_EQ(world.watch.next(), 0u);
}

// Peers live, stop, go on and end in any order: who has ended is found out, and nobody else.
TEST(PeerWatch, WhoeverHasEndedIsFoundOutAndNobodyElse) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    World world;
    world.round_trip = 1 + random() % (300 * kMs);
    constexpr Pid kPeers = 20;
    for (Pid pid = 0; pid < kPeers; ++pid)
      if (random() % 4 != 0) world.await(pid);
    for (int i = 0; i < 100; ++i) {
      const Pid pid = Pid(random() % kPeers);
      if (world.states[pid] != World::State::kEnded)
        world.set(pid, World::State(random() % 10 == 0 ? 2 : random() % 2));
      world.run(world.now + random() % (400 * kMs));
    }
    std::set<Pid> wanted;
    for (Pid pid = 0; pid < kPeers; ++pid) {
      if (world.states[pid] == World::State::kStopped) world.set(pid, World::State::kLives);
      const bool was_awaited = world.gone.contains(pid) ||
                               std::ranges::find(world.awaited, peer(pid)) != world.awaited.end();
      if (was_awaited && world.states[pid] == World::State::kEnded) wanted.insert(pid);
    }
    world.run(world.now + 5 * kSecond);
    std::set<Pid> found;
    for (const auto &[pid, at] : world.gone) found.insert(pid);
    EXPECT_EQ(found, wanted);
  }
}

}  // namespace
}  // namespace weft::cxi
