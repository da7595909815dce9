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
// Not for what the bytes are: the engine moves them, memory of a device by its HmemPlace.
#ifndef WEFT_PLUGINS_CXI_SOFT_MEMORY_MAP_H
#define WEFT_PLUGINS_CXI_SOFT_MEMORY_MAP_H

#include <weft/sdk/memory/hmem.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_map>

#include "plugins/cxi/nic/nic.h"

namespace weft::cxi {

class MemoryMap {
 public:
  // `place`: of memory of a device.
  Memory add(uint64_t start, uint64_t length, unsigned access, const sdk::HmemPlace &place = {}) {
    const Range range{start, length, access, place};
    ranges_.emplace(++last_, range);
    if (access & Lni::kRemote) {
      longest_ = std::max(remote_.empty() ? 0 : longest_, length);
      remote_.emplace(start, Remote{last_, range});
    }
    return {.number = last_};
  }
  void remove(const Memory &memory) {
    const auto found = ranges_.find(memory.number);
    if (found == ranges_.end()) return;
    if (found->second.access & Lni::kRemote) {
      auto [at, end] = remote_.equal_range(found->second.start);
      while (at != end && at->second.number != memory.number) ++at;
      remote_.erase(at);
    }
    ranges_.erase(found);
  }

  // From now on `reader` alone reaches it, by Memory::kLent.
  void lend(const Memory &memory, uint64_t reader) {
    const auto found = ranges_.find(memory.number);
    if (found == ranges_.end()) return;
    auto [at, end] = remote_.equal_range(found->second.start);
    while (at != end && at->second.number != memory.number) ++at;
    if (at != end) at->second.reader = reader;
  }
  // What a peer means by an address in `memory`: in that of a whole LAC it is the memory that holds
  // it, if `peer` may reach that.
  Rc resolve(Memory &memory, uint64_t start, uint64_t length, unsigned access,
             uint64_t peer) const {
    const bool is_lent = memory.number == Memory::kLent;
    if (length == 0 || (!is_lent && memory.number != Memory::kWholeLac)) return Rc::kOk;
    return find_remote(start, length, access, is_lent ? peer : kAnybody, memory.number);
  }

  // `place`: whose memory it is, until the map changes; null: the host's.
  Rc check(const Memory &memory, uint64_t start, uint64_t length, unsigned access,
           const sdk::HmemPlace *&place) const {
    place = nullptr;
    if (length == 0) return Rc::kOk;
    const auto found = ranges_.find(memory.number);
    if (found == ranges_.end() || !found->second.holds(start, length)) return Rc::kNoTranslation;
    if ((found->second.access & access) != access) return Rc::kPagePermError;
    place = found->second.place.or_null();
    return Rc::kOk;
  }
  Rc check(const Memory &memory, uint64_t start, uint64_t length, unsigned access) const {
    const sdk::HmemPlace *place;
    return check(memory, start, length, access, place);
  }
  // Bytes of the process's from its memory, and the opposite. kNoTranslation: also where a device
  // fails.
  Rc read(const Memory &memory, uint64_t start, void *out, size_t length) const {
    const sdk::HmemPlace *place;
    const Rc rc = check(memory, start, length, Lni::kRead, place);
    if (rc != Rc::kOk || length == 0) return rc;
    return copied(sdk::hmem_copy(out, nullptr, reinterpret_cast<void *>(start), place, length));
  }
  Rc write(const Memory &memory, uint64_t start, const void *in, const sdk::HmemPlace *in_place,
           size_t length) const {
    const sdk::HmemPlace *place;
    const Rc rc = check(memory, start, length, Lni::kWrite, place);
    if (rc != Rc::kOk || length == 0) return rc;
    return copied(sdk::hmem_copy(reinterpret_cast<void *>(start), place, in, in_place, length));
  }
  static Rc copied(bool whole) { return whole ? Rc::kOk : Rc::kNoTranslation; }

 private:
  struct Range {
    uint64_t start, length;
    unsigned access;
    sdk::HmemPlace place;
    bool holds(uint64_t from, uint64_t count) const {
      const uint64_t offset = from - start;
      return from >= start && offset <= length && count <= length - offset;
    }
  };
  static constexpr uint64_t kAnybody = UINT64_MAX;
  struct Remote {
    uint32_t number;
    Range range;
    uint64_t reader = kAnybody;
  };
  // Long messages that are under way, and regions with cached keys. The last one that begins before
  // the memory is likely to hold it.
  Rc find_remote(uint64_t start, uint64_t length, unsigned access, uint64_t reader,
                 uint32_t &number) const {
    Rc rc = Rc::kNoTranslation;
    for (auto at = remote_.upper_bound(start); at != remote_.begin();) {
      const Remote &remote = (--at)->second;
      if (start - remote.range.start > longest_) break;
      if (remote.reader != reader || !remote.range.holds(start, length)) continue;
      rc = Rc::kPagePermError;
      if ((remote.range.access & access) != access) continue;
      number = remote.number;
      return Rc::kOk;
    }
    return rc;
  }

  std::unordered_map<uint32_t, Range> ranges_;
  std::multimap<uint64_t, Remote> remote_;  // by start
  uint64_t longest_ = 0;                    // of them, since there were none
  uint32_t last_ = 0;
};

}  // namespace weft::cxi

#endif
