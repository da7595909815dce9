// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/datagram_size.h"

#include <gtest/gtest.h>

#include <vector>

namespace weft::rxd {
namespace {

constexpr uint64_t kProbePause = 20'000'000;

// Probes until nothing more is tried, over a path that carries `path` bytes: the sizes that were
// probed, each as often as it was.
std::vector<uint32_t> probe(DatagramSize &size, uint32_t path, uint64_t &now) {
  std::vector<uint32_t> probed;
  for (uint32_t bytes = size.start(now); bytes != 0;) {
    probed.push_back(bytes);
    EXPECT_EQ(size.start(now), 0U);  // one at a time
    EXPECT_EQ(size.deadline(), now + kProbePause);
    EXPECT_EQ(size.due(size.deadline() - 1), 0U);
    EXPECT_FALSE(size.answered(bytes - 1));
    if (bytes <= path) {
      EXPECT_TRUE(size.answered(bytes));
      EXPECT_FALSE(size.answered(bytes));  // once more
      break;
    }
    now = size.deadline();
    bytes = size.due(now);
  }
  EXPECT_EQ(size.deadline(), 0U);
  return probed;
}

TEST(DatagramSize, IsTheLargestThatThePathCarries) {
  using Sizes = std::vector<uint32_t>;
  const struct {
    uint32_t first, largest, path, bytes;
    Sizes probed;
  } rows[] = {
      {1472, 65000, 65000, 65000, {65000}},
      {1472, 65000, 9000, 8972, {65000, 65000, 65000, 8972}},
      {1472, 65000, 5000, 4052, {65000, 65000, 65000, 8972, 8972, 8972, 4052}},
      {1472, 65000, 1500, 1472, {65000, 65000, 65000, 8972, 8972, 8972, 4052, 4052, 4052}},
      {1472, 8972, 5000, 4052, {8972, 8972, 8972, 4052}},
      {1472, 4000, 1500, 1472, {4000, 4000, 4000}},
      {4052, 9000, 5000, 4052, {9000, 9000, 9000, 8972, 8972, 8972}},
      {1472, 1472, 9000, 1472, {}},
      {1472, 1280, 9000, 1280, {}},
  };
  for (const auto &row : rows) {
    uint64_t now = 1000;
    DatagramSize size(row.first, row.largest);
    const uint32_t before = size.bytes();
    EXPECT_EQ(before, std::min(row.first, row.largest));
    EXPECT_FALSE(size.answered(row.largest));  // nothing was asked
    EXPECT_EQ(probe(size, row.path, now), row.probed) << row.path;
    EXPECT_EQ(size.bytes(), row.bytes) << row.path;
    EXPECT_EQ(probe(size, row.path, now), Sizes()) << row.path;  // it is known
    // The path has shrunk: the first size is in use, and a larger one is tried again.
    EXPECT_EQ(size.fall_back(), row.bytes != before) << row.path;
    EXPECT_EQ(size.bytes(), before) << row.path;
    EXPECT_EQ(probe(size, row.path, now), row.bytes != before ? row.probed : Sizes()) << row.path;
  }
}

}  // namespace
}  // namespace weft::rxd
