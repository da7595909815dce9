// SPDX-License-Identifier: BSD-2-Clause
// The window and the pace of a flow, over round trips in simulated time. The numbers come from
// docs/rxd-protocol.md, section 8.
#include "plugins/rxd/protocol/congestion.h"
#include "plugin-api/sdk/testing/test_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace weft::rxd {
namespace {

using sdk::kMicrosecond, sdk::kMillisecond, sdk::kSecond;
constexpr uint32_t kDatagram = 1024;

struct Round {
  uint64_t rtt = 100 * kMicrosecond;  // of every packet
  uint32_t lost = 0;
  bool used_up = true;  // the window held packets back
};

// A flow over a path. Each round trip the sender fills the window.
struct Flow {
  explicit Flow(uint32_t datagram = kDatagram) : congestion(datagram), datagram(datagram) {}

  void round(const Round &r = {}) {
    const auto packets = uint32_t(congestion.window() / datagram);
    if (r.used_up) congestion.on_limited();
    congestion.on_lost(r.lost);
    for (uint32_t i = r.lost; i < packets; ++i) acknowledge(r.rtt);
    now += r.rtt;
    congestion.on_round(trip);
  }
  void acknowledge(uint64_t rtt) {
    trip.sample(rtt, now);
    congestion.on_acknowledged(datagram, 1, rtt, trip);
  }
  // A round trip with so many arrived and lost packets, without samples of delay.
  void round_of(uint32_t arrived, uint32_t lost) {
    congestion.on_acknowledged(0, arrived, 0, trip);
    congestion.on_lost(lost);
    congestion.on_round(trip);
  }
  // Ends the doubling by heavy loss, and clears the memory of losses.
  void stop_doubling() {
    round();
    round_of(0, 1000);
    EXPECT_FALSE(congestion.doubles());
    round_of(0, 0);  // losses of this round trip are ignored
  }
  uint64_t datagrams() const { return congestion.window() / datagram; }

  RoundTrip trip;
  Congestion congestion;
  const uint32_t datagram;
  uint64_t now = kSecond;
};

// ---- slow start ----

TEST(Congestion, BeginsWith64KiBOr10Datagrams) {
  EXPECT_EQ(Congestion(1472).window(), 64u << 10);
  EXPECT_EQ(Congestion(8972).window(), 89'720u);
}

TEST(Congestion, DoublesEachRoundTripUpTo16MiB) {
  Flow flow;
  for (int i = 0; i < 8; ++i) {
    const uint64_t before = flow.congestion.window();
    EXPECT_EQ(before, uint64_t{64 << 10} << i);
    flow.round();
    EXPECT_EQ(flow.congestion.window(), 2 * before);
  }
  flow.round();
  EXPECT_EQ(flow.congestion.window(), Congestion::kMaxWindow);
  EXPECT_TRUE(flow.congestion.doubles());
}

TEST(Congestion, AWindowThatIsNotUsedUpDoesNotGrow) {
  Flow flow;
  for (int i = 0; i < 20; ++i) flow.round({.used_up = false});
  EXPECT_EQ(flow.congestion.window(), 64u << 10);
  flow.round();
  EXPECT_EQ(flow.congestion.window(), 128u << 10);
}

TEST(Congestion, DoublingEndsWithinTheRoundWhenDelayShowsAQueue) {
  Flow flow;
  flow.round();
  const uint64_t above = flow.congestion.target(flow.trip) + 10 * kMicrosecond;
  flow.congestion.on_limited();
  for (int i = 0; i < 7; ++i) flow.acknowledge(above);
  EXPECT_TRUE(flow.congestion.doubles()) << "seven packets are too few to tell";
  flow.acknowledge(above);
  EXPECT_FALSE(flow.congestion.doubles());
}

TEST(Congestion, FewPacketsEndTheDoublingWhenTheRoundIsOver) {
  Flow flow;
  flow.round();
  for (int i = 0; i < 3; ++i) flow.acknowledge(5 * kMillisecond);
  EXPECT_TRUE(flow.congestion.doubles());
  flow.congestion.on_round(flow.trip);
  EXPECT_FALSE(flow.congestion.doubles());
}

TEST(Congestion, OneQuickPacketShowsThatThereIsNoQueue) {
  Flow flow;
  flow.round();
  flow.congestion.on_limited();
  flow.acknowledge(100 * kMicrosecond);
  for (int i = 0; i < 50; ++i) flow.acknowledge(2 * kMillisecond);
  EXPECT_TRUE(flow.congestion.doubles());
}

TEST(Congestion, AWindowThatDoubledUntilPacketsWereLostIsHalved) {
  Flow flow;
  flow.round();
  const uint64_t before = flow.congestion.window();
  flow.congestion.on_lost(40);
  EXPECT_FALSE(flow.congestion.doubles()) << "heavy loss ends it before the round is over";
  flow.congestion.on_round(flow.trip);
  EXPECT_EQ(flow.congestion.window(), before / 2);
}

// ---- the steady state ----

TEST(Congestion, GrowsByADatagramPerRoundTripThenByUpTo8) {
  Flow flow;
  flow.stop_doubling();
  std::vector<uint64_t> steps;
  for (int i = 0; i < 200; ++i) {
    const uint64_t before = flow.datagrams();
    flow.round();
    steps.push_back(flow.datagrams() - before);
  }
  EXPECT_EQ(std::count(steps.begin(), steps.end(), 1u), 24) << "16 and the first 8 above them";
  EXPECT_EQ(std::count(steps.begin(), steps.end(), 2u), 8);
  EXPECT_EQ(steps.back(), 8u);
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));

  // After a round trip above the target, or after a cut, the window grows by one datagram again.
  for (const Round &disturbance : {Round{.rtt = 5 * kMillisecond}, Round{.lost = 100}}) {
    Flow other;
    other.stop_doubling();
    for (int i = 0; i < 100; ++i) other.round();
    other.round(disturbance);
    other.round();
    const uint64_t before = other.datagrams();
    other.round();
    EXPECT_EQ(other.datagrams() - before, 1u);
  }
}

TEST(Congestion, OneRoundTripAboveTheTargetIsForgiven) {
  Flow flow;
  flow.stop_doubling();
  const uint64_t before = flow.congestion.window();
  for (int i = 0; i < 10; ++i) {
    flow.round({.rtt = 5 * kMillisecond});
    flow.round();
  }
  EXPECT_GE(flow.congestion.window(), before);
}

TEST(Congestion, TwoRoundTripsAboveTheTargetShrinkTheWindowByTheExcess) {
  Flow flow;
  flow.stop_doubling();
  const uint64_t target = flow.congestion.target(flow.trip), delay = 2 * target;
  flow.round({.rtt = delay});
  const uint64_t before = flow.congestion.window();
  flow.round({.rtt = delay});
  // For one round trip the window is three quarters of what the path holds without a queue.
  EXPECT_EQ(flow.congestion.window(), before * 3 / 4 * (100 * kMicrosecond) / delay);
  flow.round({.used_up = false});
  // 1 - 0.8 * (delay - target) / delay; the target moves a little with the window.
  EXPECT_NEAR(double(flow.congestion.window()), 0.6 * double(before), 0.01 * double(before));
}

TEST(Congestion, DelayShrinksTheWindowAtMostToAHalf) {
  Flow flow;
  flow.stop_doubling();
  flow.round({.rtt = kSecond});
  const uint64_t before = flow.congestion.window();
  flow.round({.rtt = kSecond});
  flow.round({.used_up = false});
  EXPECT_EQ(flow.congestion.window(), before / 2);
}

TEST(Congestion, NothingGrowsWhileTheQueueRunsEmpty) {
  Flow flow;
  flow.stop_doubling();
  for (int i = 0; i < 2; ++i) flow.round({.rtt = 5 * kMillisecond});
  Flow quiet = flow;
  const uint64_t drained = flow.congestion.window();
  flow.congestion.on_limited();
  for (int i = 0; i < 1000; ++i) flow.acknowledge(100 * kMicrosecond);
  EXPECT_EQ(flow.congestion.window(), drained);
  flow.congestion.on_round(flow.trip);
  quiet.congestion.on_round(quiet.trip);
  EXPECT_EQ(flow.congestion.window(), quiet.congestion.window());
}

TEST(Congestion, AfterACutTwoMoreRoundTripsAboveTheTargetAreNeeded) {
  Flow flow;
  flow.stop_doubling();
  for (int i = 0; i < 2; ++i) flow.round({.rtt = 5 * kMillisecond});
  flow.round({.rtt = 5 * kMillisecond});
  const uint64_t cut = flow.congestion.window();
  flow.round({.rtt = 5 * kMillisecond});
  flow.round({.used_up = false});
  EXPECT_LT(flow.congestion.window(), cut);

  Flow once;
  once.stop_doubling();
  for (int i = 0; i < 3; ++i) once.round({.rtt = 5 * kMillisecond});
  once.round({.used_up = false});
  EXPECT_EQ(once.congestion.window(), cut);
}

TEST(Congestion, TheTargetIsLooserForSmallWindowsAndLongPaths) {
  const auto target = [](uint64_t rtt, uint64_t datagrams) {
    RoundTrip trip;
    trip.sample(rtt, kSecond);
    // 64 KiB or 10 datagrams, so a datagram of 64 KiB / n makes a window of n.
    return Congestion(uint32_t((64 << 10) / datagrams)).target(trip);
  };
  EXPECT_EQ(target(100 * kMicrosecond, 64), 300 * kMicrosecond);
  EXPECT_EQ(target(100 * kMicrosecond, 256), 300 * kMicrosecond) << "large windows get no less";
  EXPECT_EQ(target(100 * kMicrosecond, 16), 500 * kMicrosecond);
  EXPECT_EQ(target(10 * kMillisecond, 64), 15 * kMillisecond)
      << "half of a long round trip is allowed";
  RoundTrip trip;
  trip.sample(100 * kMicrosecond, kSecond);
  Congestion least(kDatagram);
  least.on_collapse();
  EXPECT_EQ(least.target(trip), 900 * kMicrosecond)
      << "small windows get at most four times as much";
}

// ---- loss ----

TEST(Congestion, WithoutAQueueMoreThanTwoPercentLossShrinksTheWindow) {
  // Of 512 packets 10 are expected to be lost, and 2.5 deviations of 4.2 are tolerated: 20.
  for (const auto &[lost, shrinks] : {std::pair{20u, false}, {21u, true}}) {
    Flow flow;
    flow.stop_doubling();
    const uint64_t before = flow.congestion.window();
    flow.round_of(512 - lost, lost);
    EXPECT_EQ(flow.congestion.window(), shrinks ? uint64_t(double(before) * 0.85) : before) << lost;
  }
}

TEST(Congestion, WithAQueueMoreThanOnePercentLossShrinksItMore) {
  // Of 512 packets 5 are expected to be lost, and one deviation of 3.3 is tolerated: 8.
  for (const auto &[lost, shrinks] : {std::pair{8u, false}, {9u, true}}) {
    Flow flow;
    flow.stop_doubling();
    const uint64_t before = flow.congestion.window();
    flow.congestion.on_acknowledged(0, 1, 160 * kMicrosecond,
                                    flow.trip);  // at least 50 µs too late
    flow.round_of(511 - lost, lost);
    if (shrinks) {
      EXPECT_LT(flow.congestion.window(), before / 2) << "the queue runs empty first";
      flow.round_of(0, 0);
    }
    EXPECT_EQ(flow.congestion.window(), shrinks ? uint64_t(double(before) * 0.7) : before) << lost;
  }
}

TEST(Congestion, TwoLostPacketsAreNeverTooMany) {
  Flow flow;
  flow.stop_doubling();
  const uint64_t before = flow.congestion.window();
  flow.congestion.on_acknowledged(0, 0, 160 * kMicrosecond, flow.trip);  // a queue
  flow.round_of(0, 2);
  EXPECT_EQ(flow.congestion.window(), before);
  flow.congestion.on_acknowledged(0, 0, 160 * kMicrosecond, flow.trip);
  flow.round_of(0, 1);
  EXPECT_LT(flow.congestion.window(), before) << "three lost packets are too many";
}

TEST(Congestion, LossIsRememberedOverRoundTripsAndForgotten) {
  // 5 lost of 55 are tolerated. 6 more are too many only together with those of the last round
  // trip.
  Flow flow;
  flow.stop_doubling();
  const uint64_t before = flow.congestion.window();
  flow.round_of(50, 5);
  EXPECT_EQ(flow.congestion.window(), before);
  flow.round_of(0, 6);
  EXPECT_LT(flow.congestion.window(), before);

  // The same with many packets that arrive in between.
  Flow good;
  good.stop_doubling();
  good.round_of(50, 5);
  for (int i = 0; i < 10; ++i) good.round_of(600, 0);
  const uint64_t then = good.congestion.window();
  good.round_of(0, 6);
  EXPECT_EQ(good.congestion.window(), then);
  // Arrived packets are forgotten too: the rate covers about the last 512 packets.
  good.round_of(0, 40);
  EXPECT_LT(good.congestion.window(), then);
}

TEST(Congestion, PacketsThatWereOnlyLateDoNotCountAsLost) {
  Flow flow;
  flow.stop_doubling();
  const uint64_t before = flow.congestion.window();
  flow.congestion.on_lost(100);
  flow.congestion.on_found(100);
  flow.round_of(412, 0);
  EXPECT_EQ(flow.congestion.window(), before);
  flow.congestion.on_found(100);  // more than were lost
  flow.round_of(400, 100);
  EXPECT_LT(flow.congestion.window(), before);
}

TEST(Congestion, LossesFromBeforeACutDoNotCutAgain) {
  Flow flow;
  flow.stop_doubling();
  flow.round_of(0, 50);
  const uint64_t cut = flow.congestion.window();
  flow.round_of(0, 50);
  EXPECT_EQ(flow.congestion.window(), cut);
  flow.round_of(50, 2);
  EXPECT_EQ(flow.congestion.window(), cut) << "the earlier losses are forgotten";
  flow.round_of(0, 50);
  EXPECT_LT(flow.congestion.window(), cut) << "these losses are new";
}

TEST(Congestion, NeverFallsBelowTwoDatagrams) {
  for (const uint64_t rtt : {100 * kMicrosecond, kSecond}) {
    Flow flow;
    flow.stop_doubling();
    for (int i = 0; i < 100; ++i) flow.round({.rtt = rtt, .lost = 20, .used_up = false});
    EXPECT_EQ(flow.congestion.window(), 2u * kDatagram);
  }
}

// ---- recovery ----

TEST(Congestion, AfterACollapseItDoublesFromTwoDatagrams) {
  Flow flow;
  flow.stop_doubling();
  flow.congestion.on_collapse();
  EXPECT_EQ(flow.datagrams(), 2u);
  flow.round();
  EXPECT_EQ(flow.datagrams(), 4u);
  flow.round();
  EXPECT_EQ(flow.datagrams(), 8u);
}

TEST(Congestion, GrowsBackAfterLoss) {
  Flow flow;
  flow.stop_doubling();
  const uint64_t before = flow.congestion.window();
  flow.round_of(400, 100);
  ASSERT_LT(flow.congestion.window(), before);
  int rounds = 0;
  while (flow.congestion.window() < before && rounds < 1000) {
    flow.round();
    ++rounds;
  }
  EXPECT_LE(rounds, 16) << "15 % of 64 datagrams, one per round trip";
}

// ---- the pace ----

// The time in ns to send `bytes` in datagrams, after a burst of 64 KiB.
uint64_t time_for(Flow &flow, uint64_t bytes) {
  Congestion &c = flow.congestion;
  uint64_t now = std::max(flow.now, c.pace_at()) + 10 * kSecond;
  const uint64_t begin = now;
  for (uint64_t sent = 0; sent < Congestion::kBurst + bytes; sent += flow.datagram) {
    now = std::max(now, c.pace_at());
    c.on_sent(flow.datagram, now);
  }
  return now - begin;
}

TEST(Congestion, ThereIsNoPaceBeforeTheFirstRoundTrip) {
  Flow flow;
  for (int i = 0; i < 1000; ++i) flow.congestion.on_sent(kDatagram, flow.now);
  EXPECT_LE(flow.congestion.pace_at(), flow.now);
}

TEST(Congestion, BytesLeaveAtTwoWindowsPerRoundTripWhileItDoublesThenAt1_25) {
  Flow flow;
  flow.round();
  flow.round();
  uint64_t window = flow.congestion.window();
  EXPECT_NEAR(double(time_for(flow, 4 * window)), 4 * 100'000.0 / 2, 4'000);
  flow.stop_doubling();
  flow.acknowledge(100 * kMicrosecond);
  window = flow.congestion.window();
  EXPECT_NEAR(double(time_for(flow, 4 * window)), 4 * 100'000.0 / 1.25, 8'000);
}

TEST(Congestion, IdleTimeAllowsNoMoreThanABurst) {
  Flow flow;
  flow.round();
  const uint64_t short_pause = time_for(flow, 4 * flow.congestion.window());
  flow.now += 3600 * kSecond;
  EXPECT_EQ(time_for(flow, 4 * flow.congestion.window()), short_pause);
}

TEST(Congestion, IdleTimeLeavesTheWindowAsItIs) {
  Flow flow;
  flow.stop_doubling();
  const uint64_t before = flow.congestion.window();
  flow.now += 3600 * kSecond;
  flow.round({.used_up = false});
  EXPECT_EQ(flow.congestion.window(), before);
}

// ---- peers of this host, and datagrams of another size ----

TEST(Congestion, ADirectPathHasTheLargestWindowAndNoPace) {
  Flow flow;
  flow.congestion.set_direct();
  flow.trip.sample(100 * kMicrosecond, flow.now);
  EXPECT_EQ(flow.congestion.window(), Congestion::kMaxWindow);
  for (int i = 0; i < 3; ++i) flow.round({.rtt = kSecond});
  EXPECT_EQ(flow.congestion.window(), Congestion::kMaxWindow) << "delay does not count";
  flow.congestion.on_sent(1 << 30, flow.now);
  EXPECT_LE(flow.congestion.pace_at(), flow.now);
}

TEST(Congestion, LossShrinksTheWindowOfADirectPathWhichThenDoubles) {
  Flow flow;
  flow.congestion.set_direct();
  flow.round_of(0, 1000);
  const uint64_t cut = flow.congestion.window();
  EXPECT_LT(cut, Congestion::kMaxWindow);
  EXPECT_TRUE(flow.congestion.doubles());
  flow.congestion.on_limited();
  flow.congestion.on_acknowledged(4096, 4, 100 * kMicrosecond, flow.trip);
  EXPECT_EQ(flow.congestion.window(), cut + 4096);
}

TEST(Congestion, ALargerDatagramRaisesTheLeastWindow) {
  Flow flow;
  flow.congestion.on_collapse();
  EXPECT_EQ(flow.congestion.window(), 2u * kDatagram);
  flow.congestion.set_datagram(8972);
  EXPECT_EQ(flow.congestion.window(), 2u * 8972);
}

// ---- the round trip ----

TEST(RoundTrip, IsSmoothedAsInRfc6298) {
  RoundTrip trip;
  EXPECT_FALSE(trip.known());
  EXPECT_EQ(trip.least(), 0u);
  trip.sample(800, kSecond);
  EXPECT_TRUE(trip.known());
  EXPECT_EQ(trip.smoothed(), 800u);
  EXPECT_EQ(trip.variation(), 400u);
  trip.sample(1600, kSecond);
  EXPECT_EQ(trip.smoothed(), 900u);   // 7/8 and 1/8
  EXPECT_EQ(trip.variation(), 500u);  // 3/4 and 1/4 of the difference
  EXPECT_EQ(trip.least(), 800u);
}

TEST(RoundTrip, ForgetsTheLeastAfter5To10Seconds) {
  RoundTrip trip;
  uint64_t now = kSecond;
  trip.sample(100, now);
  for (; now < 5 * kSecond; now += kSecond / 10) trip.sample(900, now);
  EXPECT_EQ(trip.least(), 100u);
  for (; now < 12 * kSecond; now += kSecond / 10) trip.sample(900, now);
  EXPECT_EQ(trip.least(), 900u);
}

TEST(RoundTrip, IsNeverZero) {
  RoundTrip trip;
  trip.sample(0, kSecond);
  EXPECT_TRUE(trip.known());
  EXPECT_EQ(trip.least(), 1u);
}

}  // namespace
}  // namespace weft::rxd
