// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/closing.h"

#include <gtest/gtest.h>

namespace weft::rxd {
namespace {

TEST(Closing, WaitsForFourRoundTrips) {
  const struct {
    uint64_t trip, pause;
  } rows[] = {{0, kMillisecond},
              {1000, kMillisecond},
              {kMillisecond, 4 * kMillisecond},
              {kMillisecond * 1000, 20 * kMillisecond}};
  for (const auto &row : rows) EXPECT_EQ(Closing::pause(row.trip), row.pause);
}

TEST(Closing, RepeatsCloseUntilItIsAnswered) {
  for (const int answered : {0, 1, 2, 3}) {  // after so many
    Closing closing;
    closing.answered();  // nobody has asked
    EXPECT_FALSE(closing.has_begun() || closing.is_due() || closing.is_over());
    closing.begin();
    EXPECT_TRUE(closing.has_begun() && closing.is_due());
    uint64_t now = 1000;
    closing.sent(now, 50, true);
    EXPECT_EQ(closing.deadline(), now + 50);
    EXPECT_FALSE(closing.is_due() || closing.is_over());
    int sent = 1;
    for (Closing::Next next = Closing::Next::kNothing; closing.deadline() != 0;) {
      if (sent == answered) {
        closing.answered();
        continue;
      }
      EXPECT_EQ(closing.on_deadline(closing.deadline() - 1, 50), Closing::Next::kNothing);
      now = closing.deadline();
      next = closing.on_deadline(now, 50);
      EXPECT_EQ(next, sent < 3 ? Closing::Next::kAgain : Closing::Next::kUnanswered);
      sent += next == Closing::Next::kAgain;
    }
    EXPECT_EQ(sent, answered != 0 ? answered : 3);
    EXPECT_TRUE(closing.is_over());
    EXPECT_FALSE(closing.is_due());
    EXPECT_EQ(closing.on_deadline(UINT64_MAX, 50), Closing::Next::kNothing);
  }
}

TEST(Closing, IsOverAtOnceIfNobodyWaits) {
  Closing closing;
  closing.begin();
  closing.sent(1000, 50, false);
  EXPECT_TRUE(closing.is_over());
  EXPECT_EQ(closing.deadline(), 0U);
}

}  // namespace
}  // namespace weft::rxd
