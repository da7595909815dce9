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
#include <utility>
#include <vector>

#include "plugins/cxi/nic/nic.h"

namespace weft::cxi {

class MemoryMap {
 public:
  Memory add(uint64_t start, uint64_t length, unsigned access) {
    ranges_.emplace(++last_, Range{start, length, access});
    if (access & Lni::kRemote) remote_.push_back({last_, {start, length, access}});
    return {.number = last_};
  }
  void remove(const Memory &memory) {
    ranges_.erase(memory.number);
    std::erase_if(remote_, [&](const auto &one) { return one.first == memory.number; });
  }

  Rc check(const Memory &memory, uint64_t start, uint64_t length, unsigned access) const {
    if (length == 0) return Rc::kOk;
    if (memory.number == Memory::kWholeLac) return check_remote(start, length, access);
    const auto found = ranges_.find(memory.number);
    if (found == ranges_.end() || !found->second.holds(start, length)) return Rc::kNoTranslation;
    return (found->second.access & access) == access ? Rc::kOk : Rc::kPagePermError;
  }

 private:
  struct Range {
    uint64_t start, length;
    unsigned access;
    bool holds(uint64_t from, uint64_t count) const {
      const uint64_t offset = from - start;
      return from >= start && offset <= length && count <= length - offset;
    }
  };
  // There are few: the long messages that are under way. The newest is likely to be meant.
  Rc check_remote(uint64_t start, uint64_t length, unsigned access) const {
    for (auto at = remote_.rbegin(); at != remote_.rend(); ++at)
      if (at->second.holds(start, length) && (at->second.access & access) == access) return Rc::kOk;
    return Rc::kNoTranslation;
  }

  std::unordered_map<uint32_t, Range> ranges_;
  std::vector<std::pair<uint32_t, Range>> remote_;
  uint32_t last_ = 0;
};

}  // namespace weft::cxi

#endif
