// SPDX-License-Identifier: BSD-2-Clause
// What the plugins of live fabrics count: asks every open fabric, and every hook on one, for its
// weft_counters_ops (weft/plugin.h).
//
// Example:
//    uint64_t value_of(const ObjectTable &objects, std::string_view element,
//                      std::string_view name) {
//      uint64_t sum = 0;
//      for (const FabricCounters &fabric : read_counters(objects)) {
//        for (const FabricCounters::Counter &counter : fabric.counters)
//          if (fabric.element == element && counter.name == name) sum += counter.value;
//      }
//      return sum;
//    }
//
// A hook counts for its whole stack, so it is asked once, on the first fabric where it answers. A
// plugin may be wrong: its texts are cut to kMostText bytes, and more than kMostCounters counters
// of one fabric are left out. Not for OFI's counters (fi_cntr.3).
#ifndef WEFT_CORE_STACK_COUNTERS_H
#define WEFT_CORE_STACK_COUNTERS_H

#include <cstdint>
#include <string>
#include <vector>

#include "core/stack/object_table.h"

namespace weft {

inline constexpr size_t kMostCounters = 1024, kMostText = 256;

struct FabricCounters {
  struct Counter {
    std::string name;
    uint64_t value = 0;
    std::string what;  // may be empty
  };
  uint64_t id = 0;      // of the fabric, as in ObjectTable::list()
  std::string element;  // that made the fabric
  std::string hook;     // empty: the counters are the element's own
  std::string stack;    // in OFI's notation
  std::string name;     // of the fabric; empty: the application did not open it
  std::vector<Counter> counters;
};

// Fabrics and hooks that count nothing are left out. Throws only std::bad_alloc.
std::vector<FabricCounters> read_counters(const ObjectTable &objects);

}  // namespace weft

#endif
