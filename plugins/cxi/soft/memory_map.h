// SPDX-License-Identifier: BSD-2-Clause
// MemoryMap: the memory that a process has mapped for its NIC, and whether the NIC may touch it.
//
// Example (statements):
//    MemoryMap map;
//    const Memory memory = map.add(4096, 100, Lni::kRead);
//    const bool readable = map.check(memory, 4100, 96, Lni::kRead) == Rc::kOk;
//    const bool writable = map.check(memory, 4100, 96, Lni::kWrite) == Rc::kOk;  // false
//    map.remove(memory);  // from now on Rc::kNoTranslation
//
// Not for what the memory is: the engine reads and writes it as its process does.
#ifndef WEFT_PLUGINS_CXI_SOFT_MEMORY_MAP_H
#define WEFT_PLUGINS_CXI_SOFT_MEMORY_MAP_H

#include <cstdint>
#include <unordered_map>

#include "plugins/cxi/nic/nic.h"

namespace weft::cxi {

class MemoryMap {
 public:
  Memory add(uint64_t start, uint64_t length, unsigned access) {
    ranges_.emplace(++last_, Range{start, length, access});
    return {.number = last_};
  }
  void remove(const Memory &memory) { ranges_.erase(memory.number); }

  Rc check(const Memory &memory, uint64_t start, uint64_t length, unsigned access) const {
    if (length == 0) return Rc::kOk;
    const auto found = ranges_.find(memory.number);
    if (found == ranges_.end()) return Rc::kNoTranslation;
    const Range &range = found->second;
    const uint64_t offset = start - range.start;
    if (start < range.start || offset > range.length || length > range.length - offset)
      return Rc::kNoTranslation;
    return (range.access & access) == access ? Rc::kOk : Rc::kPagePermError;
  }

 private:
  struct Range {
    uint64_t start, length;
    unsigned access;
  };
  std::unordered_map<uint32_t, Range> ranges_;
  uint32_t last_ = 0;
};

}  // namespace weft::cxi

#endif
