// SPDX-License-Identifier: BSD-2-Clause
// PairMemory: the memory of two endpoints, mapped. One end makes it and passes its descriptor on;
// the other end checks that it is what it should be: of that size, which nobody can change any
// more, in memory, and writable.
//
// Example:
//    inline Result<Producer> begin(const Geometry &geometry, PairMemory &memory, sdk::UniqueFd &fd) {
//      WEFT_TRY(fd, PairMemory::make(geometry));
//      WEFT_TRY(memory, PairMemory::map(fd.get(), geometry));
//      return Producer(direction_of(memory.base(), geometry, 0), geometry);
//    }
//
// No file is left anywhere, whoever dies. Not for what is in it: layout.h.
#ifndef WEFT_PLUGINS_SHM_WIRE_PAIR_MEMORY_H
#define WEFT_PLUGINS_SHM_WIRE_PAIR_MEMORY_H

#include <weft/result.h>
#include <weft/sdk/progress/unique_fd.h>

#include <cstddef>
#include <utility>

#include "plugins/shm/wire/layout.h"

namespace weft::shm {

class PairMemory {
 public:
  PairMemory() = default;
  PairMemory(PairMemory &&other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PairMemory &operator=(PairMemory &&other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~PairMemory();

  // New memory, all zero, whose size is sealed. `geometry` is valid.
  static Result<sdk::UniqueFd> make(const Geometry &geometry);
  // The memory that a descriptor stands for, which may be closed afterwards. An error says what it
  // is instead.
  static Result<PairMemory> map(int fd, const Geometry &geometry);

  void *base() const { return base_; }

 private:
  void *base_ = nullptr;
  size_t size_ = 0;
};

}  // namespace weft::shm

#endif
