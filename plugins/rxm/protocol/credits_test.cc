// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/credits.h"

#include <gtest/gtest.h>

namespace weft::rxm {
namespace {

TEST(Credits, WithoutFlowControlThereIsAlwaysRoom) {
  Credits credits;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(credits.has_room());
    credits.spend();
  }
  credits.repost(100);
  EXPECT_FALSE(credits.owes(1));
  EXPECT_EQ(credits.untold(), 0u);
}

TEST(Credits, TheLastOneIsForAGrant) {
  Credits credits;
  credits.use(true);
  EXPECT_FALSE(credits.has_room());
  EXPECT_TRUE(credits.may_tell());
  credits.told();
  EXPECT_FALSE(credits.may_tell());
  credits.grant(3);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(credits.has_room());
    credits.spend();
  }
  EXPECT_FALSE(credits.has_room());
}

// The peer may grant before the news that it has accepted.
TEST(Credits, AnEarlyGrantCounts) {
  Credits credits;
  credits.grant(1);
  credits.use(true);
  EXPECT_TRUE(credits.has_room());
}

TEST(Credits, HalfOfTheReceivesAreToldAtOnce) {
  const struct {
    uint32_t receives, posted;
    bool owes;
  } rows[] = {{32, 15, false}, {32, 16, true}, {1, 0, false}, {1, 1, true}};
  for (const auto &row : rows) {
    Credits credits;
    credits.use(true);
    credits.repost(row.posted);
    EXPECT_EQ(credits.owes(row.receives), row.owes) << row.receives << ' ' << row.posted;
    EXPECT_EQ(credits.untold(), row.posted);
    credits.told();
    EXPECT_FALSE(credits.owes(row.receives));
  }
}

}  // namespace
}  // namespace weft::rxm
