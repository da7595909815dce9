// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/doubt.h"

#include <gtest/gtest.h>

namespace weft::rxm {
namespace {

constexpr uint64_t kStart = 5'000'000'000, kLong = Doubt::kLongestNs;

TEST(Doubt, LastsWhileNothingComes) {
  const struct {
    uint64_t at, last_use;
    bool lasts;
  } rows[] = {
      {kStart, 1, false},              // the first question
      {kStart + kLong - 1, 1, false},  // not yet
      {kStart + kLong, 1, true},
      {kStart + kLong + 1, 2, false},  // something has come
      {kStart + 2 * kLong, 2, false},
      {kStart + 2 * kLong + 1, 2, true},
  };
  Doubt doubt;
  for (const auto &row : rows) EXPECT_EQ(doubt.lasts(row.at, row.last_use), row.lasts) << row.at;
}

TEST(Doubt, BeginsWithTheFirstQuestion) {
  Doubt doubt;
  EXPECT_FALSE(doubt.lasts(kStart, 0)) << "though nothing has ever come";
}

}  // namespace
}  // namespace weft::rxm
