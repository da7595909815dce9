// SPDX-License-Identifier: BSD-2-Clause
#include <gtest/gtest.h>
#include <weft/sdk/progress/patience.h>

namespace weft::sdk {
namespace {

constexpr uint64_t kQuick = 1000, kSlow = 1'000'000;

struct Application {
  Patience patience;
  uint64_t now = 1'000'000'000;
  // Posts a burst of `count` messages and makes progress after `pause`. Returns how many of them
  // waited.
  unsigned burst(uint64_t pause, unsigned count = 7, bool interrupted = false) {
    unsigned waited = 0;
    for (unsigned i = 0; i < count; ++i) {
      waited += patience.may_wait();
      patience.posted(now);
      now += 50;
    }
    now += pause;
    EXPECT_TRUE(patience.pending());
    EXPECT_EQ(patience.is_late(now), pause == kSlow);
    patience.progressed(now, interrupted);
    EXPECT_FALSE(patience.pending());
    return waited;
  }
  unsigned bursts_until_patient() {
    for (unsigned n = 0; n < 100'000; ++n) {
      if (patience.may_wait()) return n;
      burst(kQuick);
    }
    return ~0u;
  }
};

TEST(Patience, DoesNotWaitAtFirst) {
  Application app;
  EXPECT_EQ(app.burst(kQuick), 0u);
}

TEST(Patience, StartedPatientItWaitsUntilTheFirstMiss) {
  Application app{.patience = Patience(true)};
  EXPECT_EQ(app.burst(kQuick), 7u);
  EXPECT_EQ(app.burst(kSlow), 7u);
  EXPECT_EQ(app.burst(kQuick), 0u);
  EXPECT_LT(app.bursts_until_patient(), 100u);
}

TEST(Patience, DoesNotWaitWhereComputationFollowsEachBurst) {
  Application app;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(app.burst(kSlow), 0u);
}

TEST(Patience, WaitsWhereProgressFollowsAtOnce) {
  Application app;
  EXPECT_EQ(app.bursts_until_patient(), Patience::kFirstProof);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(app.burst(kQuick), 7u);
}

TEST(Patience, OneMissEndsTheWaiting) {
  Application app;
  app.bursts_until_patient();
  EXPECT_EQ(app.burst(kSlow), 7u);
  EXPECT_EQ(app.burst(kSlow), 0u);
  EXPECT_GT(app.bursts_until_patient(), Patience::kFirstProof);
}

// Some quick bursts, then one with a computation behind it, over and over: only the first few of
// these pay for it.
TEST(Patience, LearnsAgainAfterAMiss) {
  Application app;
  unsigned delayed = 0;
  for (int step = 0; step < 1000; ++step) {
    for (int i = 0; i < 100; ++i) app.burst(kQuick);
    delayed += app.burst(kSlow) != 0;
  }
  EXPECT_LE(delayed, 3u);
}

// A miss now and then (the host had the core) costs no more than the burst that it delayed.
TEST(Patience, RareMissesAreForgiven) {
  Application app;
  app.bursts_until_patient();
  unsigned waited = 0;
  for (int step = 0; step < 1000; ++step) {
    for (uint32_t i = 0; i < Patience::kForgive; ++i) waited += app.burst(kQuick);
    waited += app.burst(kSlow);
  }
  EXPECT_EQ(waited, 1000 * 7 * (Patience::kForgive + 1));
}

// Many misses in a row, and then none: it comes back after a few hundred bursts, not thousands.
TEST(Patience, ComesBackAfterABadSpell) {
  Application app;
  for (int spell = 0; spell < 20; ++spell) {
    app.bursts_until_patient();
    app.burst(kSlow);
  }
  EXPECT_LE(app.bursts_until_patient(), Patience::kMostProof);
  EXPECT_EQ(app.burst(kQuick), 7u);
}

// Where the scheduler says so, a few good bursts are enough.
TEST(Patience, AnInterruptionSaysNothingAboutTheProgram) {
  Application app;
  app.bursts_until_patient();
  unsigned waited = 0;
  for (int step = 0; step < 1000; ++step) {
    for (uint32_t i = 0; i < Patience::kExcuse; ++i) app.burst(kQuick);
    waited += app.burst(kSlow, 7, true);
  }
  EXPECT_EQ(waited, 7000u);
  // But a program that computes after most bursts does so, interrupted or not.
  waited = 0;
  for (int step = 0; step < 1000; ++step) waited += app.burst(kSlow, 7, true);
  EXPECT_LE(waited, 14u);
  // Many in a short time: each costs a few bursts, as the first one did.
  for (int spell = 0; spell < 20; ++spell) {
    EXPECT_LE(app.bursts_until_patient(), Patience::kFirstProof);
    app.burst(kSlow, 7, true);
  }
}

// The time of the send itself is not computation of the application.
TEST(Patience, SlowSendsDoNotCountAsComputation) {
  Application app;
  for (unsigned n = 0; n < Patience::kFirstProof; ++n) {
    for (int i = 0; i < 60; ++i) {
      app.now += 2000;
      app.patience.posted(app.now);
    }
    app.patience.progressed(app.now + 100);
  }
  EXPECT_TRUE(app.patience.may_wait());
}

}  // namespace
}  // namespace weft::sdk
