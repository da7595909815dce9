// SPDX-License-Identifier: BSD-2-Clause
// Timers: whose time comes next, of many that move their times to later ones all the while.
//
// Example:
//    // `at[i]` is the time at which something of slot i is to be done; 0: never.
//    inline void move_to(Timers &timers, std::vector<uint64_t> &at, uint32_t slot, uint64_t ns) {
//      at[slot] = ns;
//      timers.wake(slot, ns);  // costs nothing if the slot wakes earlier anyway
//    }
//    inline void on_time(Timers &timers, std::vector<uint64_t> &at, uint64_t now) {
//      for (uint32_t slot; (slot = timers.due(now)) != Timers::kNone;) {
//        if (at[slot] > now) timers.wake(slot, at[slot]);  // it was moved
//      }
//    }
//
// A slot has one entry, at its time or earlier. So it costs nothing to move a time to a later one,
// which every packet does. Not a clock: the caller says what time it is.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_TIMERS_H
#define WEFT_PLUGINS_RXD_PROTOCOL_TIMERS_H

#include <algorithm>
#include <cstdint>
#include <vector>

namespace weft::rxd {

class Timers {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // The slot is due at that time (not 0), or earlier if it is already to wake earlier.
  void wake(uint32_t slot, uint64_t at_ns) {
    if (slot >= at_.size()) at_.resize(slot + 1);
    if (at_[slot] != 0 && at_[slot] <= at_ns) return;
    heap_.push_back({at_ns, slot});
    std::push_heap(heap_.begin(), heap_.end());
    at_[slot] = at_ns;
  }
  // What was in the slot is gone.
  void forget(uint32_t slot) {
    if (slot < at_.size()) at_[slot] = 0;
  }
  // A slot that is due, once; kNone: there is no other.
  uint32_t due(uint64_t now) {
    while (!heap_.empty() && heap_.front().at <= now) {
      const Entry entry = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
      if (at_[entry.slot] != entry.at) continue;  // an earlier time came after it
      at_[entry.slot] = 0;
      return entry.slot;
    }
    return kNone;
  }
  // When due() should be called next, or earlier than need be; 0: never.
  uint64_t next() const { return heap_.empty() ? 0 : heap_.front().at; }

 private:
  struct Entry {
    uint64_t at;
    uint32_t slot;
    bool operator<(const Entry &other) const { return at > other.at; }  // the first is on top
  };
  std::vector<Entry> heap_;
  std::vector<uint64_t> at_;  // of the entry that counts, by slot; 0: none
};

}  // namespace weft::rxd

#endif
