// SPDX-License-Identifier: BSD-2-Clause
// Random changes of memory from seeds, and several threads: no answer of a cache is stale.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <random>
#include <thread>

#include "plugin-api/sdk/testing/test_region_cache.h"
#include "plugin-api/sdk/testing/test_seeds.h"

namespace weft::sdk {
namespace {

// Two caches over one arena, of which all pages are mapped between two operations.
class Arena {
 public:
  Arena(uint64_t seed, Scenario &scenario)
      : random_(seed),
        scenario_(scenario),
        test_({.count = 1 + pick(6), .bytes = (4 + pick(40)) * page_bytes()}) {
    if (test_.cache == nullptr) return;
    second_ = *RegionCache::open(test_.monitor, device_, {.count = 1 + pick(6)}, counters_);
  }
  ~Arena() {
    for (const Use &use : uses_) use.cache->put(use.entry);
  }

  void run(int steps) {
    while (test_.cache != nullptr && steps-- > 0 && !stale_) step();
  }

 private:
  static constexpr size_t kPages = 24;
  struct Use {
    RegionCache *cache;
    RegionCache::Entry *entry;
  };

  size_t pick(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }

  void step() {
    const size_t first = pick(kPages), count = 1 + pick(std::min<size_t>(kPages - first, 6));
    void *const at = pages_.page(first);
    const size_t bytes = count * page_bytes();
    switch (pick(16)) {
      case 0:
        scenario_.add("munmap %zu+%zu", first, count);
        pages_.unmap(first, count);
        pages_.map(first, count);
        break;
      case 1:
        scenario_.add("mmap %zu+%zu", first, count);
        pages_.map(first, count);
        break;
      case 2:
        scenario_.add("shared %zu+%zu", first, count);
        pages_.map(first, count, MAP_SHARED);
        break;
      case 3:
        scenario_.add("empty %zu+%zu", first, count);
        // MADV_FREE ends at the first shared page.
        if (pick(2) == 0 || madvise(at, bytes, MADV_FREE) != 0) madvise(at, bytes, MADV_DONTNEED);
        break;
      case 4: {
        const size_t to = pick(kPages - count + 1);
        if (to < first + count && first < to + count) return;
        scenario_.add("move %zu+%zu to %zu", first, count, to);
        const int keep = pick(2) == 0 ? MREMAP_DONTUNMAP : 0;
        // Where these are several mappings it fails half way, which is as good a step.
        void *const moved =
            mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | keep, pages_.page(to));
        if (moved == MAP_FAILED) pages_.map(to, count);
        if (moved == MAP_FAILED || keep == 0) pages_.map(first, count);
        number_pages({pages_.page(to), bytes});
        break;
      }
      case 5:
        scenario_.add("shrink %zu+%zu", first, count);
        if (count == 1) return;
        ASSERT_EQ(mremap(at, bytes, page_bytes(), 0), at);
        pages_.map(first + 1, count - 1);
        number_pages(pages_.iov(first + 1, count - 1));
        return;
      case 6:
        scenario_.add("protect %zu+%zu", first, count);
        mprotect(at, bytes, PROT_READ);
        mprotect(at, bytes, PROT_READ | PROT_WRITE);
        return;
      case 7:
        if (pick(8) == 0) fork_child({at, bytes});
        return;
      case 8:
      case 9:
        if (uses_.empty()) return;
        put(pick(uses_.size()));
        return;
      default:
        get(pick(2) == 0 ? test_.cache.get() : second_.get(), first, count);
        return;
    }
    number_pages({at, bytes});
  }

  void get(RegionCache *cache, size_t first, size_t count) {
    const iovec memory = pages_.iov(first, count);
    scenario_.add("get %zu+%zu of %d", first, count, cache == second_.get());
    const auto entry = cache->get(memory, FI_SEND | (pick(2) == 0 ? FI_RECV : 0));
    ASSERT_TRUE(entry) << entry.error().text;
    const std::string stale = FakeRegistrar::stale(**entry, memory);
    EXPECT_EQ(stale, "");
    stale_ = !stale.empty();
    uses_.push_back({cache, *entry});
    if (pick(4) != 0) put(uses_.size() - 1);
  }

  void put(size_t which) {
    uses_[which].cache->put(uses_[which].entry);
    uses_.erase(uses_.begin() + ptrdiff_t(which));
  }

  // What the child does to its memory is nothing to the parent, and it never waits.
  void fork_child(const iovec &memory) {
    scenario_.add("fork");
    const pid_t child = fork();
    if (child == 0) {
      munmap(memory.iov_base, memory.iov_len);
      _exit(0);
    }
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
  }

  std::mt19937_64 random_;
  Scenario &scenario_;
  Pages pages_{kPages};
  TestCache test_;
  FakeRegistrar device_;
  RegionCacheCounters counters_;
  std::unique_ptr<RegionCache> second_;
  std::vector<Use> uses_;
  bool stale_ = false;
};

TEST(RegionCacheModel, NoAnswerIsStale) {
  run_seeds("RegionCacheModel.NoAnswerIsStale", {.usual = 200, .sanitized = 40},
            [](uint64_t seed, Scenario &scenario) {
              Arena arena(seed, scenario);
              arena.run(300);
            });
}

// The kernel gives a thread the addresses that another has just unmapped, before the event of this
// is read. A thread does not know of the other, so it is right to expect its own memory.
void map_and_use(TestCache &test, unsigned seed, size_t most) {
  std::mt19937_64 random(seed);
  for (unsigned round = 0; round < rounds(6000) && !testing::Test::HasFailure(); ++round) {
    Pages pages(1 + random() % most);
    const size_t first = random() % pages.count;
    for (int use = 0; use < 3; ++use)
      test.hit(pages.iov(first, 1 + random() % (pages.count - first)));
    if (most == 1 || random() % 4 != 0) continue;
    madvise(pages.at, pages.count * page_bytes(), MADV_DONTNEED);
    number_pages(pages.iov(0, pages.count));
    test.hit(pages.iov(0, pages.count));
  }
}

TEST(RegionCacheModel, ThreadsThatGetEachOthersAddresses) {
  for (const size_t most : {1, 4}) {
    TestCache test({.count = 64});
    WEFT_NEEDS_MONITOR(test);
    std::array<std::thread, 4> threads;
    for (unsigned t = 0; t < threads.size(); ++t)
      threads[t] = std::thread([&, t] { map_and_use(test, t, most); });
    for (std::thread &thread : threads) thread.join();
    EXPECT_GT(test.counters.hits.value(), 0u);
    EXPECT_GT(test.counters.changed.value(), 0u);
  }
}

// All threads use the same memory, and one empties it between two rounds of the others.
TEST(RegionCacheModel, ThreadsThatShareMemory) {
  TestCache test({.count = 4});
  WEFT_NEEDS_MONITOR(test);
  Pages pages(16);
  std::array<std::thread, 4> threads;
  for (unsigned round = 0; round < rounds(120); ++round) {
    for (size_t t = 0; t < threads.size(); ++t) {
      threads[t] = std::thread([&, t, round] {
        std::mt19937_64 random(round * 10 + t);
        for (int use = 0; use < 20; ++use) {
          const size_t first = random() % 16;
          test.hit(pages.iov(first, 1 + random() % (16 - first)));
        }
      });
    }
    for (std::thread &thread : threads) thread.join();
    madvise(pages.page(round % 16), page_bytes(), MADV_DONTNEED);
    number_pages(pages.iov(round % 16, 1));
  }
}

}  // namespace
}  // namespace weft::sdk
