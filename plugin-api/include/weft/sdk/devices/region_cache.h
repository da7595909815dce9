// SPDX-License-Identifier: BSD-2-Clause
// RegionCache: keeps the registrations of a device after their use, and finds them when the same
// memory comes again. Off unless a user asks: memory_monitor.h says what it cannot know.
//
// Example:
//    class Card final : public Registrar {
//     public:
//      Result<void *> add(const iovec &memory, uint64_t access) override;
//      void remove(void *handle) override;
//    };
//    void start(void *handle);
//    Result<void> transfer(RegionCache &cache, const iovec &memory) {
//      WEFT_TRY(RegionCache::Entry *const entry, cache.get(memory, FI_SEND));
//      start(RegionCache::handle_of(*entry));
//      cache.put(entry);  // after the transfer
//      return {};
//    }
//
// A kept registration has whole pages, and serves all memory within them and all access that is
// among its own. Memory that overlaps is registered as one with it. So a peer that has the key of a
// region reaches more than the region, and may do so after it is closed: not for peers that are not
// trusted.
//
// The least recently used is dropped when there are too many. What is in use stays, and what finds
// no room is registered as without a cache; so is memory that the monitor refuses, and memory of
// which a part is being registered by another thread. When memory changes, its registration is
// dropped, or ends with its use. A thread of the cache ends those: the device holds no memory that
// the process has unmapped.
//
// A hit costs one lock without contention and one call of the kernel (MemoryMonitor::current). The
// lock is there for any FI_THREAD_...: the monitor's thread is always a second one. Not for the
// regions of software, which cost less than a hit.
#ifndef WEFT_SDK_DEVICES_REGION_CACHE_H
#define WEFT_SDK_DEVICES_REGION_CACHE_H

#include <weft/sdk/devices/memory_monitor.h>
#include <weft/sdk/unit/counters.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

namespace weft::sdk {

// The device. Any thread calls it, and the cache's own calls remove().
class Registrar {
 public:
  virtual Result<void *> add(const iovec &memory, uint64_t access) = 0;
  virtual void remove(void *handle) = 0;

 protected:
  ~Registrar() = default;
};

// fi_mr.3, "Memory registration cache": FI_MR_CACHE_MAX_COUNT, FI_MR_CACHE_MAX_SIZE.
struct RegionCacheLimits {
  static constexpr size_t kMaxCount = 65536;
  size_t count = 1024;  // at most kMaxCount
  size_t bytes = std::numeric_limits<size_t>::max();
};

struct RegionCacheCounters : CounterSet {
  Counter hits{*this, "mr_cache_hits", "registrations that were kept from an earlier use"};
  Counter misses{*this, "mr_cache_misses", "registrations that were made and kept"};
  Counter uncached{*this, "mr_cache_uncached", "registrations past the cache"};
  Counter evicted{*this, "mr_cache_evicted", "registrations that were dropped to make room"};
  Counter changed{*this, "mr_cache_changed",
                  "registrations that were dropped because their memory changed"};
};

class RegionCache final : MemoryMonitor::Watcher {
 public:
  struct Entry;

  static Result<std::unique_ptr<RegionCache>> open(std::shared_ptr<MemoryMonitor> monitor,
                                                   Registrar &registrar,
                                                   const RegionCacheLimits &limits,
                                                   RegionCacheCounters &counters);
  // After put() of each entry.
  ~RegionCache();
  RegionCache(const RegionCache &) = delete;
  RegionCache &operator=(const RegionCache &) = delete;

  // A registration that has the memory and allows the access (FI_SEND, FI_REMOTE_READ ...). An
  // error is the registrar's.
  Result<Entry *> get(const iovec &memory, uint64_t access);
  void put(Entry *entry);
  static void *handle_of(const Entry &entry);

 private:
  struct Slot {  // of what is kept; no two overlap
    MemoryRange range;
    Entry *entry;
  };
  using Slots = std::vector<Slot>;
  using Entries = std::list<Entry>;

  RegionCache(std::shared_ptr<MemoryMonitor> monitor, Registrar &registrar,
              const RegionCacheLimits &limits, RegionCacheCounters &counters);
  void on_change(const MemoryRange &range) override;
  MemoryRange first_in(const MemoryRange &range) const override;

  // With the monitor's lock; none of these allocates or frees.
  Slots::const_iterator first_slot(const MemoryRange &range) const;
  Entry *find(const MemoryRange &range, uint64_t access);
  Entry *place(Entries &fresh, const MemoryRange &range, uint64_t access);
  bool fits(const MemoryRange &range) const;
  void drop(Entry &entry);
  size_t drop_all(const MemoryRange &range);
  void leave(Entry &entry, Entries &ended);

  Result<Entry *> add_uncached(const iovec &memory, uint64_t access);
  bool fill(Entry &entry);
  void end(Entries &entries);
  void run();
  void wake();

  const std::shared_ptr<MemoryMonitor> monitor_;
  Registrar &registrar_;
  const RegionCacheLimits limits_;
  RegionCacheCounters &counters_;

  // Guarded by the monitor's lock.
  Slots slots_;       // in order of addresses
  Entries idle_;      // in the table, without a user; least recently used first
  Entries used_;      // with users, in the table or not
  Entries dead_;      // to be removed from the device
  size_t bytes_ = 0;  // of the table
  size_t idle_bytes_ = 0;
  bool stop_ = false;
  std::atomic<unsigned> wake_{0};
  std::thread thread_;  // removes dead_
};

}  // namespace weft::sdk

#endif
