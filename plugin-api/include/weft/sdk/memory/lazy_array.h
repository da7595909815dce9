// SPDX-License-Identifier: BSD-2-Clause
// An array that takes memory page by page, as it is used: for queues and pools that are large, and
// of which most stay nearly empty.
//
// Example (statements):
//    LazyArray<uint64_t> ring = make_lazy_array<uint64_t>(1 << 16);
//    if (ring == nullptr) return;  // there is no memory
//
// Its elements are not initialized. A large one has pages of its own, which no sanitizer has to
// mark from end to end. Not for elements with a destructor.
#ifndef WEFT_SDK_MEMORY_LAZY_ARRAY_H
#define WEFT_SDK_MEMORY_LAZY_ARRAY_H

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <type_traits>

namespace weft::sdk {

class LazyArrayFree {
 public:
  LazyArrayFree() = default;
  explicit LazyArrayFree(size_t mapped) : mapped_(mapped) {}
  void operator()(void *memory) const {
    if (mapped_ == 0) return std::free(memory);
    munmap(memory, mapped_);
  }

 private:
  size_t mapped_ = 0;  // bytes; 0: it is of malloc()
};

template <class T>
using LazyArray = std::unique_ptr<T[], LazyArrayFree>;

// Null: there is no memory for `count` elements.
template <class T>
LazyArray<T> make_lazy_array(size_t count) {
  static_assert(std::is_trivially_destructible_v<T> && std::is_trivially_copyable_v<T>);
  constexpr size_t kMapped = 64 * 1024;
  if (count > SIZE_MAX / sizeof(T)) return nullptr;
  const size_t bytes = count * sizeof(T);
  if (bytes < kMapped) return LazyArray<T>(static_cast<T *>(std::malloc(bytes)));
  void *const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  return LazyArray<T>(static_cast<T *>(memory), LazyArrayFree(bytes));
}

}  // namespace weft::sdk

#endif
