// SPDX-License-Identifier: BSD-2-Clause
#include <gtest/gtest.h>
#include <weft/sdk/memory/index_table.h>

namespace weft::sdk {
namespace {

TEST(IndexTable, IsEmptyAtFirst) {
  const IndexTable<int> table;
  EXPECT_EQ(table.at(0), nullptr);
  EXPECT_EQ(table.at(255), nullptr);
  EXPECT_EQ(table.at(UINT32_MAX), nullptr);
}

TEST(IndexTable, FindsOnlyWhatWasSet) {
  IndexTable<int> table;
  int a = 0, b = 0, c = 0;
  table.set(255, &a);
  table.set(256, &b);
  table.set(70'000, &c);
  EXPECT_EQ(table.at(255), &a);
  EXPECT_EQ(table.at(256), &b);
  EXPECT_EQ(table.at(70'000), &c);
  for (uint32_t index : {0u, 254u, 257u, 511u, 512u, 69'999u, 70'001u, 70'144u, UINT32_MAX})
    EXPECT_EQ(table.at(index), nullptr) << index;
}

TEST(IndexTable, ReplacesAndRemoves) {
  IndexTable<int> table;
  int a = 0, b = 0;
  table.set(7, &a);
  table.set(8, &b);
  table.set(7, &b);
  EXPECT_EQ(table.at(7), &b);
  table.set(7, nullptr);
  EXPECT_EQ(table.at(7), nullptr);
  EXPECT_EQ(table.at(8), &b);
}

TEST(IndexTable, ContextsHaveAPlaceOfTheirOwn) {
  IndexTable<int> table;
  int a = 0, b = 0;
  const uint32_t far = IndexTable<int>::kFar + 3 * 32 + 1;
  EXPECT_EQ(table.at(far), nullptr);
  table.set(3, &a);
  table.set(far, &b);
  EXPECT_EQ(table.at(3), &a);
  EXPECT_EQ(table.at(far), &b);
  table.set(far, nullptr);
  EXPECT_EQ(table.at(far), nullptr);
  EXPECT_EQ(table.at(3 * 32 + 1), nullptr);
}

TEST(IndexTable, RemovingAnEmptyIndexDoesNothing) {
  IndexTable<int> table;
  int a = 0;
  table.set(UINT32_MAX, nullptr);  // would be 128 MiB of chunks
  table.set(600, &a);
  table.set(1, nullptr);
  EXPECT_EQ(table.at(1), nullptr);
  EXPECT_EQ(table.at(600), &a);
}

}  // namespace
}  // namespace weft::sdk
