// SPDX-License-Identifier: BSD-2-Clause
// Counts what a test allocates by operator new, and makes it fail on demand.
//
// Example (statements):
//    const size_t before = allocations();
//    delete new int(1);
//    const size_t made = allocations() - before;  // 1
//    NoMoreMemory no_more;
//    int *none = new (std::nothrow) int;  // null
//
// Replaces the operators of the whole program: for one source file of a test, not for a library.
// Not for threads.
#ifndef WEFT_SDK_TEST_ALLOCATIONS_H
#define WEFT_SDK_TEST_ALLOCATIONS_H

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace weft::sdk {

struct Allocations {
  size_t count = 0;
  size_t fail_from = SIZE_MAX;  // bytes
  static Allocations &all() {
    static Allocations one;
    return one;
  }
  void *take(size_t size) {
    ++count;
    return size >= fail_from ? nullptr : std::malloc(size != 0 ? size : 1);
  }
};

inline size_t allocations() {
  return Allocations::all().count;
}

class NoMoreMemory {
 public:
  // For allocations of so many bytes and more.
  explicit NoMoreMemory(size_t from = 0) { Allocations::all().fail_from = from; }
  ~NoMoreMemory() { Allocations::all().fail_from = SIZE_MAX; }
  NoMoreMemory(const NoMoreMemory &) = delete;
  NoMoreMemory &operator=(const NoMoreMemory &) = delete;
};

}  // namespace weft::sdk

// Not inline: the compiler would see only one of malloc() and free(), and warn.
[[gnu::noinline]] void *operator new(size_t size) {
  void *memory = weft::sdk::Allocations::all().take(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void *operator new[](size_t size) {
  return operator new(size);
}
[[gnu::noinline]] void *operator new(size_t size, const std::nothrow_t &) noexcept {
  return weft::sdk::Allocations::all().take(size);
}
[[gnu::noinline]] void *operator new[](size_t size, const std::nothrow_t &) noexcept {
  return weft::sdk::Allocations::all().take(size);
}
[[gnu::noinline]] void operator delete(void *memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void *memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void *memory, size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void *memory, size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void *memory, const std::nothrow_t &) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void *memory, const std::nothrow_t &) noexcept {
  std::free(memory);
}

#endif
