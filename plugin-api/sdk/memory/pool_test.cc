// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/memory/pool.h"

#include <gtest/gtest.h>

#include <set>

namespace weft::sdk {
namespace {

struct Thing {
  int number = 7;
  static inline int made = 0;
  Thing() { ++made; }
};

TEST(Pool, GivesUpToItsLimit) {
  for (const size_t limit : {0, 1, 31, 32, 33, 100}) {
    Pool<Thing> pool(limit);
    EXPECT_EQ(pool.limit(), limit);
    std::set<Thing *> taken;
    for (size_t i = 0; i < limit; ++i) {
      Thing *thing = pool.take();
      ASSERT_NE(thing, nullptr);
      EXPECT_EQ(thing->number, 7);
      thing->number = int(i);
      EXPECT_TRUE(taken.insert(thing).second);
      EXPECT_EQ(pool.in_use(), i + 1);
    }
    EXPECT_EQ(pool.take(), nullptr);
    for (Thing *thing : taken) pool.give(thing);
    EXPECT_EQ(pool.in_use(), 0u);
    for (size_t i = 0; i < limit; ++i) EXPECT_TRUE(taken.contains(pool.take()));
    EXPECT_EQ(pool.take(), nullptr);
  }
}

TEST(Pool, AllocatesNoMoreThanWasInUseAtOnce) {
  Thing::made = 0;
  Pool<Thing> pool(1000, 8);
  EXPECT_EQ(Thing::made, 0);
  for (int round = 0; round < 100; ++round) {
    Thing *a = pool.take(), *b = pool.take();
    pool.give(a);
    pool.give(b);
  }
  EXPECT_EQ(Thing::made, 8);
  std::vector<Thing *> taken;
  for (int i = 0; i < 9; ++i) taken.push_back(pool.take());
  EXPECT_EQ(Thing::made, 16);
  for (Thing *thing : taken) pool.give(thing);
}

TEST(Pool, FewAtFirstThenMore) {
  Thing::made = 0;
  Pool<Thing> pool(1000, 2);
  std::vector<Thing *> taken;
  for (int made : {2, 4, 8, 16, 32, 64, 96}) {
    while (int(taken.size()) < made) taken.push_back(pool.take());
    EXPECT_EQ(Thing::made, made);
  }
  size_t seen = 0;
  pool.visit([&](Thing &) { ++seen; });
  EXPECT_EQ(seen, taken.size());
  for (Thing *thing : taken) pool.give(thing);
}

TEST(Pool, ManyObjectsTakeFewChunks) {
  Thing::made = 0;
  Pool<Thing> pool(SIZE_MAX);
  std::vector<Thing *> taken;
  int chunks = 0;
  for (int before = 0; taken.size() < 200'000; before = Thing::made) {
    taken.push_back(pool.take());
    chunks += Thing::made != before;
  }
  EXPECT_LT(chunks, 200);
  EXPECT_LT(Thing::made, 200'000 * 9 / 8 + 32);
}

TEST(Pool, ReusesWhatWasFreedLast) {
  // It is still in the cache.
  Pool<Thing> pool(10);
  Thing *a = pool.take(), *b = pool.take();
  pool.give(a);
  pool.give(b);
  EXPECT_EQ(pool.take(), b);
  EXPECT_EQ(pool.take(), a);
}

TEST(Pool, GrowsByOneAtLeast) {
  Pool<Thing> pool(3, 0);
  EXPECT_NE(pool.take(), nullptr);
  EXPECT_NE(pool.take(), nullptr);
  EXPECT_NE(pool.take(), nullptr);
  EXPECT_EQ(pool.take(), nullptr);
}

}  // namespace
}  // namespace weft::sdk
