// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/answer_limit.h"

#include <gtest/gtest.h>

namespace weft::rxd {
namespace {

constexpr uint64_t kStart = 7 * AnswerLimit::kPeriodNs;

// How many more are answered at that time, up to 1000.
uint32_t allowed(AnswerLimit &limit, uint64_t now) {
  uint32_t n = 0;
  while (n < 1000 && limit.allows(now)) ++n;
  return n;
}

TEST(AnswerLimit, EachSecondHasItsRate) {
  AnswerLimit limit(20);
  EXPECT_EQ(allowed(limit, kStart), 20U);
  EXPECT_EQ(allowed(limit, kStart + AnswerLimit::kPeriodNs - 1), 0U);
  EXPECT_EQ(allowed(limit, kStart + AnswerLimit::kPeriodNs), 20U);
}

TEST(AnswerLimit, PeersThatProveTheirAddressDoNotCountUpToTenTimesTheRate) {
  AnswerLimit limit(20);
  uint32_t n = 0;
  while (n < 1000 && limit.allows(kStart)) {
    ++n;
    limit.on_proven();
  }
  EXPECT_EQ(n, 200U);
  EXPECT_EQ(allowed(limit, kStart), 0U);
  // The next second does not know of them.
  EXPECT_EQ(allowed(limit, kStart + AnswerLimit::kPeriodNs), 20U);
}

TEST(AnswerLimit, AProofWithoutAnAnswerMakesNoRoom) {
  AnswerLimit limit(2);
  for (int i = 0; i < 50; ++i) limit.on_proven();
  EXPECT_EQ(allowed(limit, kStart), 2U);
  // Proofs of answers of the second before are worth as much as those of this one, and no more.
  for (int i = 0; i < 50; ++i) limit.on_proven();
  EXPECT_EQ(allowed(limit, kStart), 2U);
  EXPECT_EQ(allowed(limit, kStart), 0U);
}

TEST(AnswerLimit, NoneAtTheRateZero) {
  AnswerLimit limit(0);
  EXPECT_FALSE(limit.allows(kStart));
}

}  // namespace
}  // namespace weft::rxd
