// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/pings.h"

#include <gtest/gtest.h>

namespace weft::rxd {
namespace {

constexpr uint64_t kMilli = 1'000'000, kSilence = 1000 * kMilli;

TEST(Pings, AskAPeerThatIsSilentForASecond) {
  Pings pings(5);
  EXPECT_EQ(pings.deadline(5, false), 0U);
  EXPECT_EQ(pings.deadline(5, true), 5 + kSilence);
  pings.heard(100);
  EXPECT_EQ(pings.deadline(100, true), 100 + kSilence);
  pings.on_deadline(100 + kSilence - 1, true);
  pings.on_deadline(100 + kSilence, false);  // nothing waits for it
  EXPECT_FALSE(pings.wanted());
  pings.on_deadline(100 + kSilence, true);
  EXPECT_TRUE(pings.wanted());
  EXPECT_EQ(pings.deadline(100 + kSilence, true), 100 + 2 * kSilence);
  pings.sent();
  EXPECT_FALSE(pings.wanted());
}

// After 1, 2, 4 ... 1024 ms.
TEST(Pings, AskForCreditMoreAndMoreRarely) {
  Pings pings(0);
  EXPECT_TRUE(pings.starve());
  EXPECT_FALSE(pings.starve());
  uint64_t now = 77;
  for (unsigned i = 0; i < 14; ++i) {
    const uint64_t at = now + (kMilli << std::min(i, 10U));
    EXPECT_EQ(pings.deadline(now, false), at);
    pings.on_deadline(at - 1, false);
    EXPECT_FALSE(pings.wanted());
    pings.on_deadline(at, false);
    EXPECT_TRUE(pings.wanted());
    pings.sent();
    now = at;
  }
  // A packet is full: what waits behind it goes on as before.
  const uint64_t at = pings.deadline(now, false);
  pings.pass();
  EXPECT_EQ(pings.deadline(now, false), 0U);
  EXPECT_TRUE(pings.starve());
  EXPECT_EQ(pings.deadline(now, false), at);
  // There is credit: the next time begins anew.
  pings.feed();
  EXPECT_EQ(pings.deadline(now, false), 0U);
  pings.on_deadline(at, false);
  EXPECT_FALSE(pings.wanted());
  EXPECT_TRUE(pings.starve());
  EXPECT_EQ(pings.deadline(now, false), now + kMilli);
}

TEST(Pings, TheEarlierOfBothCounts) {
  Pings pings(1000);
  pings.starve();
  EXPECT_EQ(pings.deadline(1000, true), 1000 + kMilli);
  for (uint64_t now = 1000; now < kSilence; now = pings.deadline(now, false))
    pings.on_deadline(now, false);
  EXPECT_EQ(pings.deadline(kSilence, true), 1000 + kSilence);
}

}  // namespace
}  // namespace weft::rxd
