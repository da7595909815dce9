// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/timers.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace weft::rxd {
namespace {

TEST(Timers, TheFirstIsDueFirstAndOnce) {
  Timers timers;
  EXPECT_EQ(timers.next(), 0U);
  EXPECT_EQ(timers.due(UINT64_MAX), Timers::kNone);
  timers.wake(3, 30);
  timers.wake(1, 10);
  timers.wake(2, 20);
  EXPECT_EQ(timers.next(), 10U);
  EXPECT_EQ(timers.due(9), Timers::kNone);
  EXPECT_EQ(timers.due(25), 1U);
  EXPECT_EQ(timers.due(25), 2U);
  EXPECT_EQ(timers.due(25), Timers::kNone);
  EXPECT_EQ(timers.next(), 30U);
}

TEST(Timers, AnEarlierTimeCountsAndALaterOneCostsNothing) {
  Timers timers;
  timers.wake(0, 20);
  timers.wake(0, 30);
  EXPECT_EQ(timers.due(20), 0U);
  EXPECT_EQ(timers.due(30), Timers::kNone);
  timers.wake(0, 40);
  timers.wake(0, 35);
  EXPECT_EQ(timers.due(35), 0U);
  EXPECT_EQ(timers.due(40), Timers::kNone) << "one entry counts";
}

TEST(Timers, ASlotThatWasForgottenIsNotDue) {
  Timers timers;
  timers.forget(9);
  timers.wake(9, 10);
  timers.forget(9);
  EXPECT_EQ(timers.due(10), Timers::kNone);
  timers.wake(9, 20);  // what is in the slot now
  EXPECT_EQ(timers.due(15), Timers::kNone);
  EXPECT_EQ(timers.due(20), 9U);
}

// Whatever is called: each slot is due at its time, not before, and as often as it was to wake.
TEST(Timers, AgreeWithAModel) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    Timers timers;
    std::map<uint32_t, uint64_t> model;
    uint64_t now = 1;
    for (int i = 0; i < 300; ++i) {
      const auto slot = uint32_t(random() % 8);
      switch (random() % 4) {
        case 0:
        case 1: {
          const uint64_t at = now + random() % 50;
          timers.wake(slot, at);
          const auto [it, isnew] = model.emplace(slot, at);
          if (!isnew) it->second = std::min(it->second, at);
          break;
        }
        case 2:
          timers.forget(slot);
          model.erase(slot);
          break;
        default: {
          now += random() % 40;
          std::set<uint32_t> due, expected;
          for (uint32_t s; (s = timers.due(now)) != Timers::kNone;)
            EXPECT_TRUE(due.insert(s).second);
          for (const auto &[s, at] : model)
            if (at <= now) expected.insert(s);
          ASSERT_EQ(due, expected) << "seed " << seed;
          for (const uint32_t s : expected) model.erase(s);
          break;
        }
      }
      for (const auto &[s, at] : model) ASSERT_LE(timers.next(), at);
      EXPECT_TRUE(model.empty() || timers.next() != 0);
    }
  }
}

}  // namespace
}  // namespace weft::rxd
