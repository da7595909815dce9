// SPDX-License-Identifier: BSD-2-Clause
// Numbers that operations get on the wire, in the order in which they were given back: what a peer
// still does for the last operation with a number meets the next one as late as possible.
//
// Example:
//     void number_one(FreeNumbers &free) {
//       if (free.empty()) return;  // all are under way
//       const uint32_t number = free.take();
//       free.give(number);  // taken again after all others
//     }
#ifndef WEFT_PLUGINS_CXI_FREE_NUMBERS_H
#define WEFT_PLUGINS_CXI_FREE_NUMBERS_H

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace weft::cxi {

class FreeNumbers {
 public:
  FreeNumbers() = default;
  // `first` to `end` - 1.
  FreeNumbers(size_t first, size_t end) : ring_(end - first), count_(end - first) {
    std::iota(ring_.begin(), ring_.end(), uint32_t(first));
  }
  bool empty() const { return count_ == 0; }
  uint32_t take() {
    const uint32_t number = ring_[first_];
    first_ = next(first_);
    --count_;
    return number;
  }
  void give(uint32_t number) {
    ring_[last_] = number;
    last_ = next(last_);
    ++count_;
  }

 private:
  size_t next(size_t at) const { return at + 1 == ring_.size() ? 0 : at + 1; }
  std::vector<uint32_t> ring_;
  size_t first_ = 0, last_ = 0, count_ = 0;
};

}  // namespace weft::cxi

#endif
