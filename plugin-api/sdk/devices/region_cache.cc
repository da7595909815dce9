// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/devices/region_cache.h"

#include <algorithm>
#include <utility>

#include <weft/sdk/progress/quiet_thread.h>

namespace weft::sdk {

struct RegionCache::Entry {
  MemoryRange range;  // empty: registered past the cache
  uint64_t access = 0;
  void *handle = nullptr;
  size_t users = 0;
  bool in_table = false;
  bool ready = false;
  Entries::iterator self{};
};

void *RegionCache::handle_of(const Entry &entry) {
  return entry.handle;
}

Result<std::unique_ptr<RegionCache>> RegionCache::open(std::shared_ptr<MemoryMonitor> monitor,
                                                       Registrar &registrar,
                                                       const RegionCacheLimits &limits,
                                                       RegionCacheCounters &counters) {
  std::unique_ptr<RegionCache> cache(
      new RegionCache(std::move(monitor), registrar, limits, counters));
  cache->slots_.reserve(std::min(limits.count, RegionCacheLimits::kMaxCount));
  if (start_quiet_thread(cache->thread_, [c = cache.get()] { c->run(); }) != 0)
    return fail(FI_EAGAIN, "region cache: no thread can be started: see `ulimit -u`");
  return cache;
}

RegionCache::RegionCache(std::shared_ptr<MemoryMonitor> monitor, Registrar &registrar,
                         const RegionCacheLimits &limits, RegionCacheCounters &counters)
    : monitor_(std::move(monitor)), registrar_(registrar), limits_(limits), counters_(counters) {
  monitor_->add(*this);
}

RegionCache::~RegionCache() {
  if (!monitor_->here()) {
    if (thread_.joinable()) thread_.detach();  // it is the parent's
    return;
  }
  {
    const std::lock_guard lock(monitor_->lock());
    while (!idle_.empty()) drop(idle_.front());
    stop_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
  end(dead_);  // if there was no thread
  monitor_->remove(*this);
}

Result<RegionCache::Entry *> RegionCache::get(const iovec &memory, uint64_t access) {
  const MemoryRange range = MemoryRange::pages_of(memory);
  if (range.empty() || !monitor_->here()) return add_uncached(memory, access);
  Entry *kept = nullptr, *entry = nullptr;
  Entries fresh, ended;
  for (const bool may_place : {false, true}) {
    if (may_place) fresh.emplace_back();
    const std::lock_guard lock(monitor_->lock());
    if (!monitor_->current()) break;
    kept = find(range, access);
    if (kept != nullptr) break;
    if (may_place) entry = place(fresh, range, access);
    ended.splice(ended.end(), dead_);
  }
  end(ended);
  if (kept != nullptr) {
    counters_.hits.add();
    return kept;
  }
  if (entry == nullptr || !fill(*entry)) return add_uncached(memory, access);
  counters_.misses.add();
  return entry;
}

void RegionCache::put(Entry *entry) {
  if (entry->range.empty()) {
    registrar_.remove(entry->handle);
    delete entry;
    return;
  }
  if (!monitor_->here()) return;  // it is the parent's
  Entries ended;
  {
    const std::lock_guard lock(monitor_->lock());
    leave(*entry, ended);
    ended.splice(ended.end(), dead_);
  }
  end(ended);
}

Result<RegionCache::Entry *> RegionCache::add_uncached(const iovec &memory, uint64_t access) {
  auto entry = std::make_unique<Entry>();
  WEFT_TRY(entry->handle, registrar_.add(memory, access));
  counters_.uncached.add();
  return entry.release();
}

// Registers an entry that is in the table already, so that changes of its memory reach it. False:
// it is gone.
bool RegionCache::fill(Entry &entry) {
  const MemoryRange range = entry.range;
  Result<void *> handle = nullptr;
  const bool watched = monitor_->watch(range);
  if (watched)
    handle = registrar_.add({reinterpret_cast<void *>(range.start), range.bytes()}, entry.access);
  Entries ended;
  {
    const std::lock_guard lock(monitor_->lock());
    entry.ready = watched && handle;
    if (entry.ready) entry.handle = *handle;
    if (!entry.in_table) {
      monitor_->unwatch(range);  // the change may have come before watch()
    } else if (!entry.ready) {
      drop(entry);
    }
    if (entry.ready) return true;
    leave(entry, ended);
  }
  return false;
}

// ---- with the monitor's lock ----

// The first that ends behind the start of the range.
RegionCache::Slots::const_iterator RegionCache::first_slot(const MemoryRange &range) const {
  return std::partition_point(slots_.begin(), slots_.end(),
                              [&](const Slot &slot) { return slot.range.end <= range.start; });
}

MemoryRange RegionCache::first_in(const MemoryRange &range) const {
  const auto found = first_slot(range);
  return found != slots_.end() && found->range.overlaps(range) ? found->range : MemoryRange{};
}

RegionCache::Entry *RegionCache::find(const MemoryRange &range, uint64_t access) {
  const auto found = first_slot(range);
  if (found == slots_.end() || !found->range.contains(range)) return nullptr;
  Entry &entry = *found->entry;
  if (!entry.ready || (access & ~entry.access) != 0) return nullptr;
  if (entry.users++ == 0) {
    used_.splice(used_.end(), idle_, entry.self);
    idle_bytes_ -= entry.range.bytes();
  }
  return &entry;
}

// What may be dropped makes room.
bool RegionCache::fits(const MemoryRange &range) const {
  const size_t used = bytes_ - idle_bytes_;
  return slots_.size() - idle_.size() < limits_.count && used <= limits_.bytes &&
         range.bytes() <= limits_.bytes - used;
}

// Puts an entry into the table, with all that overlaps as one. Null: there is no room, or another
// thread registers a part of it.
RegionCache::Entry *RegionCache::place(Entries &fresh, const MemoryRange &range, uint64_t access) {
  Entry &entry = fresh.front();
  entry.range = range;
  entry.access = access;
  for (auto it = first_slot(range); it != slots_.end() && it->range.overlaps(range); ++it) {
    if (!it->entry->ready) return nullptr;
    entry.range.start = std::min(entry.range.start, it->range.start);
    entry.range.end = std::max(entry.range.end, it->range.end);
    entry.access |= it->entry->access;
  }
  if (!fits(entry.range)) {
    entry.range = range;
    entry.access = access;
    if (!fits(range)) return nullptr;
  }
  drop_all(range);
  while (slots_.size() >= limits_.count || bytes_ + entry.range.bytes() > limits_.bytes) {
    drop(idle_.front());
    counters_.evicted.add();
  }
  entry.users = 1;
  entry.in_table = true;
  entry.self = fresh.begin();
  used_.splice(used_.end(), fresh);
  slots_.insert(first_slot(entry.range), {entry.range, &entry});
  bytes_ += entry.range.bytes();
  return &entry;
}

// Out of the table. Without a user it also ends.
void RegionCache::drop(Entry &entry) {
  slots_.erase(first_slot(entry.range));
  entry.in_table = false;
  bytes_ -= entry.range.bytes();
  if (entry.users == 0) {
    idle_bytes_ -= entry.range.bytes();
    dead_.splice(dead_.end(), idle_, entry.self);
  }
  monitor_->unwatch(entry.range);
}

size_t RegionCache::drop_all(const MemoryRange &range) {
  size_t count = 0;
  for (auto it = first_slot(range); it != slots_.end() && it->range.overlaps(range);
       it = first_slot(range)) {
    drop(*it->entry);
    ++count;
  }
  return count;
}

// One user less. Outside of the table the last one ends it.
void RegionCache::leave(Entry &entry, Entries &ended) {
  if (--entry.users != 0) return;
  if (!entry.in_table) return ended.splice(ended.end(), used_, entry.self);
  idle_.splice(idle_.end(), used_, entry.self);
  idle_bytes_ += entry.range.bytes();
}

void RegionCache::on_change(const MemoryRange &range) {
  counters_.changed.add(drop_all(range));
  if (!dead_.empty()) wake();
}

// ---- without it ----

void RegionCache::end(Entries &entries) {
  for (const Entry &entry : entries) registrar_.remove(entry.handle);
  entries.clear();
}

void RegionCache::run() {
  unsigned seen = 0;
  for (bool stop = false; !stop;) {
    wake_.wait(seen);
    seen = wake_.load();
    Entries ended;
    {
      const std::lock_guard lock(monitor_->lock());
      stop = stop_;
      ended.splice(ended.end(), dead_);
    }
    end(ended);
  }
}

// Allocates nothing: the monitor's thread calls it.
void RegionCache::wake() {
  wake_.fetch_add(1);
  wake_.notify_one();
}

}  // namespace weft::sdk
