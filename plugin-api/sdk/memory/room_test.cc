// SPDX-License-Identifier: BSD-2-Clause
#include <gtest/gtest.h>
#include <weft/sdk/memory/room.h>

#include <vector>

namespace weft::sdk {
namespace {

TEST(Room, AListThatGrowsByOneIsSeldomMoved) {
  std::vector<int> list;
  const int *at = nullptr;
  unsigned moves = 0;
  for (int i = 0; i < 100000; ++i) {
    have_room(list, list.size() + 1);
    EXPECT_GT(list.capacity(), list.size());
    list.push_back(i);
    if (list.data() != at) ++moves;
    at = list.data();
  }
  EXPECT_LE(moves, 20u);
}

}  // namespace
}  // namespace weft::sdk
