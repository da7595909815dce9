// SPDX-License-Identifier: BSD-2-Clause
#include <gtest/gtest.h>
#include <weft/sdk/peer/place.h>

namespace weft::sdk {
namespace {

using Claim = PlaceOwner::Claim;
constexpr uint64_t kNow = 5'000'000'000;

TEST(PlaceOwner, ItsAnswerDecides) {
  PlaceOwner owner;
  EXPECT_EQ(owner.judge(3, kNow, false), Claim::kAsk);
  EXPECT_EQ(owner.judge(3, kNow, false), Claim::kWait);
  owner.told(3, kNow + 1);
  EXPECT_EQ(owner.judge(3, kNow + 2, false), Claim::kTrue);
  EXPECT_EQ(owner.judge(4, kNow + 2, false), Claim::kFalse);
}

TEST(PlaceOwner, WhoDoesNotAnswerHasNoContexts) {
  PlaceOwner owner;
  EXPECT_EQ(owner.judge(1, kNow, false), Claim::kAsk);
  EXPECT_EQ(owner.judge(1, kNow + PlaceOwner::kPatienceNs - 1, false), Claim::kWait);
  EXPECT_EQ(owner.judge(1, kNow + PlaceOwner::kPatienceNs, false), Claim::kFalse);
  EXPECT_EQ(owner.judge(1, kNow + PlaceOwner::kLastsNs - 1, false), Claim::kFalse);
  EXPECT_EQ(owner.judge(1, kNow + PlaceOwner::kLastsNs, false), Claim::kAsk);
}

TEST(PlaceOwner, AnAnswerLastsWithItsConnectionOrForAWhile) {
  PlaceOwner owner;
  owner.judge(1, kNow, false);
  owner.told(1, kNow);
  const uint64_t late = kNow + PlaceOwner::kLastsNs;
  EXPECT_EQ(owner.judge(1, late - 1, false), Claim::kTrue);
  EXPECT_EQ(owner.judge(1, late, true), Claim::kTrue);
  EXPECT_EQ(owner.judge(1, late, false), Claim::kAsk);
  EXPECT_EQ(owner.judge(1, late, true), Claim::kWait) << "the earlier answer is forgotten";
}

}  // namespace
}  // namespace weft::sdk
