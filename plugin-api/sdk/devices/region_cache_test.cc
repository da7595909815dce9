// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/devices/region_cache.h"

#include <gmock/gmock.h>

#include "plugin-api/sdk/testing/test_engine.h"
#include "plugin-api/sdk/testing/test_region_cache.h"

namespace weft::sdk {
namespace {

TEST(RegionCache, FindsWhatIsWithinAKeptRegion) {
  TestCache test;
  WEFT_NEEDS_MONITOR(test);
  Pages pages(8);
  EXPECT_FALSE(test.hit(pages.iov(2, 4)));
  EXPECT_TRUE(test.hit(pages.iov(2, 4)));
  EXPECT_TRUE(test.hit(pages.iov(3, 1)));
  EXPECT_TRUE(test.hit({pages.page(4) + 100, 5000}));
  EXPECT_FALSE(test.hit(pages.iov(6, 2)));
  EXPECT_EQ(test.device.added(), 2u);
  EXPECT_EQ(test.counters.hits.value(), 3u);
  EXPECT_EQ(test.counters.misses.value(), 2u);
}

TEST(RegionCache, ARegionServesTheAccessThatItHas) {
  TestCache test;
  WEFT_NEEDS_MONITOR(test);
  Pages pages(2);
  EXPECT_FALSE(test.hit(pages.iov(0, 2), FI_SEND | FI_RECV));
  EXPECT_TRUE(test.hit(pages.iov(0, 2), FI_SEND));
  EXPECT_FALSE(test.hit(pages.iov(0, 1), FI_REMOTE_READ));
  EXPECT_TRUE(test.hit(pages.iov(1, 1), FI_REMOTE_READ | FI_SEND)) << "both became one";
}

TEST(RegionCache, MemoryThatOverlapsBecomesOneRegion) {
  TestCache test;
  WEFT_NEEDS_MONITOR(test);
  Pages pages(8);
  const auto first = test->get(pages.iov(0, 4), FI_SEND);
  EXPECT_FALSE(test.hit(pages.iov(2, 4)));
  EXPECT_TRUE(test.hit(pages.iov(0, 6)));
  EXPECT_EQ(test.device.live(), 2u) << "the first is in use";
  test->put(*first);
  EXPECT_EQ(test.device.live(), 1u);
}

TEST(RegionCache, TheLeastRecentlyUsedMakesRoom) {
  TestCache test({.count = 2});
  WEFT_NEEDS_MONITOR(test);
  Pages pages(8);
  test.hit(pages.iov(0, 1));
  test.hit(pages.iov(2, 1));
  EXPECT_TRUE(test.hit(pages.iov(0, 1)));
  EXPECT_FALSE(test.hit(pages.iov(4, 1)));
  EXPECT_TRUE(test.hit(pages.iov(0, 1)));
  EXPECT_FALSE(test.hit(pages.iov(2, 1)));
  EXPECT_EQ(test.counters.evicted.value(), 2u);
  EXPECT_EQ(test.device.live(), 2u);
}

TEST(RegionCache, WhatIsInUseStaysAndTheRestGoesPastTheCache) {
  TestCache test({.count = 1});
  WEFT_NEEDS_MONITOR(test);
  Pages pages(8);
  const auto used = test->get(pages.iov(0, 1), FI_SEND);
  EXPECT_FALSE(test.hit(pages.iov(2, 1)));
  EXPECT_FALSE(test.hit(pages.iov(2, 1)));
  EXPECT_EQ(test.counters.uncached.value(), 2u);
  EXPECT_TRUE(test.hit(pages.iov(0, 1)));
  test->put(*used);
  EXPECT_FALSE(test.hit(pages.iov(2, 1)));
  EXPECT_TRUE(test.hit(pages.iov(2, 1)));
}

TEST(RegionCache, BytesAreLimited) {
  TestCache test({.count = 10, .bytes = 4 * page_bytes()});
  WEFT_NEEDS_MONITOR(test);
  Pages pages(16);
  EXPECT_FALSE(test.hit(pages.iov(0, 5)));
  EXPECT_FALSE(test.hit(pages.iov(0, 5))) << "too large";
  EXPECT_FALSE(test.hit(pages.iov(0, 3)));
  EXPECT_FALSE(test.hit(pages.iov(2, 3))) << "both as one are too large";
  EXPECT_TRUE(test.hit(pages.iov(2, 3)));
  EXPECT_FALSE(test.hit(pages.iov(6, 2)));
  EXPECT_FALSE(test.hit(pages.iov(2, 3))) << "it made room";
}

TEST(RegionCache, WithoutRoomAtAllNothingIsKept) {
  TestCache test({.count = 0});
  WEFT_NEEDS_MONITOR(test);
  Pages pages(1);
  EXPECT_FALSE(test.hit(pages.iov(0, 1)));
  EXPECT_FALSE(test.hit(pages.iov(0, 1)));
  EXPECT_EQ(test.device.live(), 0u);
}

TEST(RegionCache, AnErrorIsTheDevices) {
  TestCache test;
  WEFT_NEEDS_MONITOR(test);
  Pages pages(4);
  pages.unmap(2, 1);
  const auto hole = test->get(pages.iov(1, 3), FI_SEND);
  ASSERT_FALSE(hole);
  EXPECT_EQ(hole.error().code, FI_EFAULT);
  test.device.refuse_next();
  EXPECT_FALSE(test.hit(pages.iov(0, 1))) << "a second try, for these bytes only";
  EXPECT_EQ(test.counters.uncached.value(), 1u);
  EXPECT_FALSE(test.hit(pages.iov(0, 1)));
  EXPECT_TRUE(test.hit(pages.iov(0, 1)));
}

TEST(RegionCache, NothingAndWhatHasNoEndGoPastTheCache) {
  TestCache test;
  WEFT_NEEDS_MONITOR(test);
  Pages pages(1);
  EXPECT_FALSE(test.hit({pages.at, 0}));
  EXPECT_FALSE(test->get({pages.at, SIZE_MAX}, FI_SEND));
  EXPECT_FALSE(test->get({reinterpret_cast<void *>(SIZE_MAX - 10), 5}, FI_SEND));
}

TEST(RegionCache, ARegionInUseEndsWithItsUseAfterItsMemoryChanged) {
  TestCache test;
  WEFT_NEEDS_MONITOR(test);
  Pages pages(1);
  const auto used = test->get(pages.iov(0, 1), FI_SEND);
  ASSERT_EQ(madvise(pages.at, page_bytes(), MADV_DONTNEED), 0);
  number_pages(pages.iov(0, 1));
  EXPECT_FALSE(test.hit(pages.iov(0, 1)));
  EXPECT_EQ(test.device.live(), 2u);
  test->put(*used);
  EXPECT_EQ(test.device.live(), 1u);
}

TEST(RegionCache, WhatIsUnmappedLeavesTheDeviceWithoutACall) {
  TestCache test;
  WEFT_NEEDS_MONITOR(test);
  {
    Pages pages(1);
    test.hit(pages.iov(0, 1));
    EXPECT_EQ(test.device.live(), 1u);
  }
  EXPECT_TRUE(eventually([&] { return test.device.live() == 0; }));
}

// A driver frees memory, and that may be memory that is watched.
TEST(RegionCache, TheDeviceMayUnmapWatchedMemory) {
  Pages pages(8);  // the last region ends with the cache
  size_t next = 4;
  TestCache test({.count = 1});
  WEFT_NEEDS_MONITOR(test);
  test.device.on_remove = [&] {
    if (next < 8) pages.unmap(next++, 1);
  };
  for (const size_t i : {4, 0, 5, 1, 6, 2, 7, 3}) {
    if (i < next) test.hit(pages.iov(i, 1));
  }
}

TEST(RegionCache, CachesOfOneMonitorDoNotEndEachOthersWatch) {
  TestCache test;
  WEFT_NEEDS_MONITOR(test);
  FakeRegistrar other;
  RegionCacheCounters counters;
  Pages pages(4);
  {
    auto second = *RegionCache::open(test.monitor, other, {}, counters);
    const auto entry = second->get(pages.iov(1, 2), FI_SEND);
    ASSERT_TRUE(entry);
    second->put(*entry);
    test.hit(pages.iov(0, 4));
  }
  ASSERT_EQ(madvise(pages.page(1), page_bytes(), MADV_DONTNEED), 0);
  number_pages(pages.iov(1, 1));
  EXPECT_FALSE(test.hit(pages.iov(0, 4)));
}

}  // namespace
}  // namespace weft::sdk
