// SPDX-License-Identifier: BSD-2-Clause
// For tests: memory that ends at a page which nobody may touch, so that one byte read or written
// too far ends the test.
//
// Example:
//    #include <rdma/fabric.h>
//    #include <cstddef>
//    void test() {
//      weft::Guarded memory(offsetof(fi_info, nic));  // an fi_info of a caller of FABRIC_1.0
//      auto *old = memory.as<fi_info>();
//      old->caps = FI_MSG;
//    }
//
// Zeroed. Works in every build, with and without sanitizers. Not for code that ships.
#ifndef WEFT_CORE_BASE_GUARDED_H
#define WEFT_CORE_BASE_GUARDED_H

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>

namespace weft {

class Guarded {
 public:
  // The size is rounded up to 8, as that of a C struct with pointers is.
  explicit Guarded(size_t size) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t used = (size + 7) / 8 * 8;
    const size_t usable = (used + page - 1) / page * page;
    mapped_ = usable + page;
    void *base =
        ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<char *>(base);
    if (::mprotect(base_ + usable, page, PROT_NONE) != 0) {
      ::munmap(base_, mapped_);
      throw std::bad_alloc();
    }
    object_ = base_ + usable - used;
  }
  ~Guarded() { ::munmap(base_, mapped_); }
  Guarded(const Guarded &) = delete;
  Guarded &operator=(const Guarded &) = delete;

  template <class T>
  T *as() const {
    return reinterpret_cast<T *>(object_);
  }

 private:
  char *base_, *object_;
  size_t mapped_;
};

}  // namespace weft

#endif
