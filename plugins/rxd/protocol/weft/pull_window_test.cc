// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/pull_window.h"

#include <gtest/gtest.h>

namespace weft::rxd {
namespace {

TEST(PullWindow, AsksForAWindowBeyondWhatHasArrived) {
  constexpr uint64_t kUnit = 1024, kMany = 1 << 30;
  const struct {
    uint64_t asked, arrived, target;
    uint32_t messages;
    uint64_t limit;
  } rows[] = {
      {0, 0, kMany, 1, 256 * kUnit},
      {0, 0, kMany, 0, 256 * kUnit},
      {0, 0, 1000, 1, 1000},
      {256 * kUnit, 1000, kMany, 1, 256 * kUnit},  // too little to tell
      {256 * kUnit, 64 * kUnit - 1, kMany, 1, 256 * kUnit},
      {256 * kUnit, 64 * kUnit, kMany, 1, 320 * kUnit},
      {256 * kUnit, 1000, 256 * kUnit + 1, 1, 256 * kUnit + 1},  // the rest of it
      {1000, 500, 1000, 1, 1000},
      {0, 0, kMany, 2, 128 * kUnit},  // they share it
      {0, 0, kMany, 3, 256 * kUnit / 3},
      {0, 0, kMany, 8, 64 * kUnit},  // but each gets so much
      {0, 0, kMany, 1000, 64 * kUnit},
      {256 * kUnit, 0, kMany, 8, 256 * kUnit},  // what was asked for stays
  };
  const PullWindow window(1472);
  for (const auto &row : rows)
    EXPECT_EQ(window.limit(row.asked, row.arrived, row.target, row.messages), row.limit)
        << row.asked << " " << row.arrived << " " << row.messages;
}

TEST(PullWindow, IsTwiceWhatCameInARoundTrip) {
  constexpr uint64_t kTrip = 1000;
  const struct {
    uint64_t came;
    size_t datagram;  // bytes of the largest
    uint64_t bytes;
  } rows[] = {
      {1 << 20, 1472, 2 << 20},      {10'000, 1472, kMinPullWindow}, {0, 1472, kMinPullWindow},
      {0, 9000, 128 * 9000},         {1 << 20, 9000, 2 << 20},       {100 << 20, 9000, 16 << 20},
      {1 << 20, 65000, 128 * 65000},
  };
  PullWindow window(1472);
  uint64_t now = 1'000'000;
  for (const auto &row : rows) {
    const uint64_t before = window.bytes();
    window.saw(row.datagram);
    window.arrived(row.came);
    window.on_packet(now, 0);  // the round trip is not known
    EXPECT_EQ(window.bytes(), before);
    now += kTrip;
    window.on_packet(now, kTrip);
    EXPECT_EQ(window.bytes(), row.bytes) << row.came << " " << row.datagram;
    window.arrived(1 << 24);
    window.on_packet(now + kTrip - 1, kTrip);  // it has not passed
    EXPECT_EQ(window.bytes(), row.bytes);
    now += kTrip;
    window.on_packet(now, kTrip);  // takes what came above
  }
}

TEST(PullWindow, PeersShareTheRoomInTheSocket) {
  PullWindow window(1472);
  EXPECT_EQ(window.share(1 << 20, 0), 712U);
  EXPECT_EQ(window.share(1 << 20, 1), 712U);
  EXPECT_EQ(window.share(1 << 20, 4), 178U);
  EXPECT_EQ(window.share(1 << 30, 1), kWindow);
  EXPECT_FALSE(window.saw(1472));
  EXPECT_TRUE(window.saw(9000));
  EXPECT_FALSE(window.saw(9000));
  EXPECT_FALSE(window.saw(100));
  EXPECT_EQ(window.share(1 << 20, 4), 29U);
}

}  // namespace
}  // namespace weft::rxd
