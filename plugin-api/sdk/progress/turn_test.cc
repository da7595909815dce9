// SPDX-License-Identifier: BSD-2-Clause
#include <gtest/gtest.h>
#include <weft/sdk/progress/turn.h>

namespace weft::sdk::turn_test {
namespace {

constexpr unsigned kMost = 128, kLeast = kMost / Turn::kShare, kSoon = kLeast / 2;
constexpr uint64_t kAlone =
    Turn::kSwitchNs - 1;  // what a yield takes if nobody wants the processor
constexpr uint64_t kShared = Turn::kSliceNs - 1;  // others gave it back
constexpr uint64_t kComputes = Turn::kSliceNs;    // they did not

// Reads that find nothing until the turn is over.
unsigned length_of(Turn &turn) {
  for (unsigned reads = 1; reads <= 4 * kMost; ++reads)
    if (turn.is_over(false)) return reads;
  return 0;
}

void shorten(Turn &turn) {
  for (int i = 0; i < 10; ++i) turn.gave_way(kShared);
  ASSERT_EQ(length_of(turn), kLeast);
}

TEST(Turn, IsOverAfterReadsThatFindNothing) {
  Turn turn(kMost);
  EXPECT_NE(turn.most(), 0u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(length_of(turn), kMost);
}

TEST(Turn, BeginsAnewWithWhatIsFound) {
  Turn turn(3);
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(turn.is_over(false));
    EXPECT_FALSE(turn.is_over(false));
    EXPECT_FALSE(turn.is_over(true));
  }
}

TEST(Turn, HasNoEndIfTheProviderSaysSo) {
  Turn turn(0);
  EXPECT_EQ(turn.most(), 0u);
  for (const uint64_t ns : {kAlone, kShared, kComputes}) {
    EXPECT_EQ(length_of(turn), 0u);
    EXPECT_FALSE(turn.is_over(true));
    turn.works();
    turn.gave_way(ns);  // a yield from before set()
  }
  EXPECT_EQ(length_of(turn), 0u);
}

TEST(Turn, IsShorterWhereOthersGiveTheProcessorBack) {
  Turn turn(kMost);
  for (unsigned length = kMost; length > kLeast; length /= 2) {
    EXPECT_EQ(length_of(turn), length);
    turn.gave_way(kShared);
  }
  EXPECT_EQ(length_of(turn), kLeast);
  turn.gave_way(Turn::kSwitchNs);
  EXPECT_EQ(length_of(turn), kLeast);
}

TEST(Turn, GrowsWhereNobodyWantsTheProcessor) {
  Turn turn(kMost);
  shorten(turn);
  for (unsigned length = kLeast; length < kMost; length *= 2) {
    EXPECT_EQ(length_of(turn), length);
    turn.gave_way(kAlone);
  }
  turn.gave_way(kAlone);
  EXPECT_EQ(length_of(turn), kMost);
}

TEST(Turn, IsTheLongestWhereOneComputes) {
  Turn turn(kMost);
  shorten(turn);
  turn.gave_way(kComputes);
  EXPECT_EQ(length_of(turn), kMost);
}

// What comes while the thread has the processor comes from another one, and needs no yield.
TEST(Turn, IsTheLongestWhereNoYieldWasNeeded) {
  Turn turn(kMost);
  shorten(turn);
  for (unsigned empty = 0; empty < kSoon; ++empty) {
    for (unsigned i = 0; i < empty; ++i) EXPECT_FALSE(turn.is_over(false));
    EXPECT_FALSE(turn.is_over(true));
    EXPECT_EQ(length_of(turn), kLeast) << "the yield before has brought it";
  }
  for (unsigned i = 0; i < kSoon; ++i) EXPECT_FALSE(turn.is_over(false));
  EXPECT_FALSE(turn.is_over(true));
  EXPECT_EQ(length_of(turn), kMost);
}

TEST(Turn, IsTheLongestForWhoStartsTransfersBetweenReads) {
  Turn turn(kMost);
  shorten(turn);
  for (unsigned i = 1; i < kSoon; ++i) {
    EXPECT_FALSE(turn.is_over(false));
    turn.works();
  }
  EXPECT_EQ(length_of(turn), kLeast + 1 - kSoon) << "it may have posted what it waits for now";
  for (unsigned i = 1; i <= kSoon; ++i) EXPECT_FALSE(turn.is_over(false));
  turn.works();
  EXPECT_EQ(length_of(turn), kMost - kSoon);
}

TEST(Turn, IsOverAtOnceForWhoHasReadMoreThanItsNewLength) {
  Turn turn(kMost);
  for (unsigned i = 0; i < kMost / 2; ++i) EXPECT_FALSE(turn.is_over(false));
  turn.gave_way(kShared);  // another thread
  EXPECT_TRUE(turn.is_over(false));
}

TEST(Turn, MayHaveFewReads) {
  for (unsigned most = 1; most <= 2 * Turn::kShare; ++most) {
    Turn turn(most);
    for (int i = 0; i < 10; ++i) turn.gave_way(kShared);
    const unsigned least = most <= Turn::kShare ? 1 : 2;
    EXPECT_EQ(length_of(turn), least) << most;
    EXPECT_FALSE(turn.is_over(true));
    EXPECT_EQ(length_of(turn), least) << most;
    if (least == 1) continue;
    EXPECT_FALSE(turn.is_over(false));
    EXPECT_FALSE(turn.is_over(true));
    EXPECT_EQ(length_of(turn), most) << "no yield was needed";
  }
}

}  // namespace
}  // namespace weft::sdk::turn_test
