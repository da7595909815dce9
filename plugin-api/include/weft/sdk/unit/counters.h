// SPDX-License-Identifier: BSD-2-Clause
// Counter: one number that only grows, declared where it is counted. A struct of counters derives
// from CounterSet; each member has its name and a line that says what it counts.
//
// Example:
//    struct ListenerCounters : CounterSet {
//      Counter refused{*this, "connections_refused", "connection requests that were refused"};
//      Counter bytes{*this, "bytes_saved", "bytes of messages that came before their receive"};
//    };
//    // A struct may contain others: each part of a plugin declares its own.
//    struct Counters : CounterSet {
//      ListenerCounters listener{*this};
//      Counter lost{*this, "connections_lost", "connections that ended before the peer said so"};
//    };
//    void refuse(Counters &counters) { counters.listener.refused.add(); }
//
// The name is lower case with underscores and differs from all others of the plugin; the line says
// the unit if it is not obvious. Both are string literals. Tools print them
// (weft/sdk/unit/stats.h). Not for numbers that fall, such as a queue's length, and not for OFI's
// counters: weft/sdk/objects/cntr.h.
#ifndef WEFT_SDK_UNIT_COUNTERS_H
#define WEFT_SDK_UNIT_COUNTERS_H

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::sdk {

class Counter;

struct CounterEntry {
  const Counter *counter;
  const char *name;
  const char *what;
};

// Where counters write their names while a set is made.
struct CounterEntries {
  std::span<CounterEntry> room;
  size_t count = 0;
};

class CounterSet {
 public:
  CounterSet() = default;
  // For a set whose names are wanted: they are in `entries` when it is made.
  CounterSet(CounterEntries &entries) : entries_(&entries) {}
  // For a set within another.
  CounterSet(CounterSet &outer) : entries_(outer.entries_) {}

 private:
  friend Counter;
  CounterEntries *entries_ = nullptr;
};

class Counter {
 public:
  Counter(CounterSet &set, const char *name, const char *what) {
    if (set.entries_ == nullptr) return;
    assert(set.entries_->count < set.entries_->room.size());
    set.entries_->room[set.entries_->count++] = {this, name, what};
  }
  Counter(const Counter &) = delete;
  Counter &operator=(const Counter &) = delete;

  // Any thread may call it at any time.
  void add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  // For a counter that is only raised with one lock held, or by one thread: costs no more than a
  // plain addition. Others may read it meanwhile.
  void add_alone(uint64_t n = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  friend class CounterList;
  Counter() = default;

  std::atomic<uint64_t> value_{0};
};

// The set of who counts nothing.
struct NoCounters : CounterSet {};

}  // namespace weft::sdk

#endif
