// SPDX-License-Identifier: BSD-2-Clause
// For tests of caches of registrations: memory whose every page has a number, and a device that
// remembers the numbers of what it registered. A cache that answers with another number is stale.
//
// Example:
//    void look(RegionCache &cache) {
//      Pages pages(4);
//      const auto entry = cache.get(pages.iov(1, 2), FI_SEND);
//      ASSERT_TRUE(entry);
//      EXPECT_EQ(FakeRegistrar::stale(**entry, pages.iov(1, 2)), "");
//      cache.put(*entry);
//    }
#ifndef WEFT_PLUGIN_API_SDK_TEST_REGION_CACHE_H
#define WEFT_PLUGIN_API_SDK_TEST_REGION_CACHE_H

#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weft/sdk/devices/region_cache.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace weft::sdk {

inline size_t page_bytes() {
  return size_t(sysconf(_SC_PAGESIZE));
}

// Gives each page of the memory a number that no other has had.
inline void number_pages(const iovec &memory) {
  static std::atomic<uint64_t> last{0};
  for (size_t at = 0; at < memory.iov_len; at += page_bytes())
    *reinterpret_cast<uint64_t *>(static_cast<char *>(memory.iov_base) + at) = ++last;
}

// Private pages, unless the flags say otherwise. What a test unmaps or moves away is not unmapped
// once more at the end: somebody else may have got these addresses.
class Pages {
 public:
  explicit Pages(size_t count, int flags = MAP_PRIVATE | MAP_ANONYMOUS)
      : count(count),
        at(static_cast<char *>(
            mmap(nullptr, count * page_bytes(), PROT_READ | PROT_WRITE, flags, -1, 0))),
        ours_(count, at != MAP_FAILED) {
    if (at != MAP_FAILED) number_pages(iov(0, count));
  }
  ~Pages() {
    for (size_t i = 0; i < count; ++i)
      if (ours_[i]) munmap(page(i), page_bytes());
  }
  Pages(const Pages &) = delete;
  Pages &operator=(const Pages &) = delete;

  char *page(size_t index) const { return at + index * page_bytes(); }
  iovec iov(size_t first, size_t pages) const { return {page(first), pages * page_bytes()}; }

  void unmap(size_t first, size_t pages) {
    gone(first, pages);
    munmap(page(first), pages * page_bytes());
  }
  // Other memory at the same addresses.
  void map(size_t first, size_t pages, int flags = MAP_PRIVATE) {
    ASSERT_EQ(mmap(page(first), pages * page_bytes(), PROT_READ | PROT_WRITE,
                   flags | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              page(first));
    std::fill_n(ours_.begin() + ptrdiff_t(first), pages, true);
  }
  // The test has unmapped them in another way.
  void gone(size_t first, size_t pages) {
    std::fill_n(ours_.begin() + ptrdiff_t(first), pages, false);
  }

  const size_t count;
  char *const at;

 private:
  std::vector<bool> ours_;
};

class FakeRegistrar final : public Registrar {
 public:
  struct Handle {
    uint64_t access;
    std::map<uintptr_t, uint64_t> numbers;  // by page
  };

  Result<void *> add(const iovec &memory, uint64_t access) override {
    const std::lock_guard lock(mutex_);
    if (refused_ > 0 && --refused_ == 0) return fail(FI_ENOMEM, "no room in the device");
    const MemoryRange range = MemoryRange::pages_of(memory);
    if (range.empty() && memory.iov_len != 0) return fail(FI_EINVAL, "it has no end");
    std::vector<unsigned char> resident(range.bytes() / page_bytes());
    if (mincore(reinterpret_cast<void *>(range.start), range.bytes(), resident.data()) != 0)
      return fail(FI_EFAULT, "nothing is mapped there");
    auto handle = std::make_unique<Handle>();
    handle->access = access;
    for (uintptr_t at = range.start; at < range.end; at += page_bytes())
      handle->numbers[at] = *reinterpret_cast<uint64_t *>(at);
    ++added_;
    return *live_.insert(handle.release()).first;
  }
  void remove(void *handle) override {
    if (on_remove) on_remove();
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(live_.erase(static_cast<Handle *>(handle)), 1u) << "removed twice";
    delete static_cast<Handle *>(handle);
  }
  ~FakeRegistrar() { EXPECT_EQ(live_.size(), 0u) << "still registered"; }

  size_t added() { return locked(added_); }
  size_t live() {
    const std::lock_guard lock(mutex_);
    return live_.size();
  }
  void refuse_next(int which = 1) { refused_ = which; }
  std::function<void()> on_remove;

  // What is wrong with a registration of the memory as it is now.
  static std::string stale(const RegionCache::Entry &entry, const iovec &memory) {
    const auto &handle = *static_cast<const Handle *>(RegionCache::handle_of(entry));
    const MemoryRange range = MemoryRange::pages_of(memory);
    for (uintptr_t at = range.start; at < range.end; at += page_bytes()) {
      const auto found = handle.numbers.find(at);
      if (found == handle.numbers.end()) return "a page is missing";
      const uint64_t now = *reinterpret_cast<uint64_t *>(at);
      if (found->second != now)
        return "page " + std::to_string((at - range.start) / page_bytes()) + " has " +
               std::to_string(now) + ", registered was " + std::to_string(found->second);
    }
    return "";
  }

 private:
  size_t locked(const size_t &value) {
    const std::lock_guard lock(mutex_);
    return value;
  }

  std::mutex mutex_;
  std::set<Handle *> live_;
  size_t added_ = 0;
  int refused_ = 0;
};

// A cache with its monitor. Null: the kernel does not let this process have one.
struct TestCache {
  explicit TestCache(const RegionCacheLimits &limits = {}) {
    auto opened = MemoryMonitor::open();
    if (!opened) {
      why = opened.error().text;
      return;
    }
    monitor = *std::move(opened);
    cache = *RegionCache::open(monitor, device, limits, counters);
  }
  RegionCache *operator->() { return cache.get(); }

  // One use. True: nothing was registered for it.
  bool hit(const iovec &memory, uint64_t access = FI_SEND) {
    const uint64_t before = counters.hits.value();
    const auto entry = cache->get(memory, access);
    if (!entry) {
      ADD_FAILURE() << entry.error().text;
      return false;
    }
    EXPECT_EQ(FakeRegistrar::stale(**entry, memory), "");
    cache->put(*entry);
    return counters.hits.value() != before;
  }

  std::string why;
  FakeRegistrar device;
  RegionCacheCounters counters;
  std::shared_ptr<MemoryMonitor> monitor;
  std::unique_ptr<RegionCache> cache;
};

#define WEFT_NEEDS_MONITOR(test) \
  if ((test).cache == nullptr) GTEST_SKIP() << (test).why

}  // namespace weft::sdk

#endif
