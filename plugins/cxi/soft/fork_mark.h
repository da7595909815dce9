// SPDX-License-Identifier: BSD-2-Clause
// ForkMark: tells a child after fork() that an object is its parent's, whose sockets and files it
// shares. What the child did to them would be the parent's doing, so it leaves them alone.
//
// Example:
//    inline bool may_write(const ForkMark &mark) { return !mark.is_child(); }
//
// The kernel clears its page in a child, so a look costs no system call (getpid() is one). Without
// memory for the page nobody counts as a child.
#ifndef WEFT_PLUGINS_CXI_SOFT_FORK_MARK_H
#define WEFT_PLUGINS_CXI_SOFT_FORK_MARK_H

#include <sys/mman.h>

#include <cstddef>

namespace weft::cxi {

class ForkMark {
 public:
  ForkMark() {
    void *const page =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    if (::madvise(page, kBytes, MADV_WIPEONFORK) != 0) {
      ::munmap(page, kBytes);
      return;
    }
    is_own_ = static_cast<volatile bool *>(page);
    *is_own_ = true;
  }
  ~ForkMark() {
    if (is_own_ != nullptr) ::munmap(const_cast<bool *>(is_own_), kBytes);
  }
  ForkMark(const ForkMark &) = delete;
  ForkMark &operator=(const ForkMark &) = delete;

  bool is_child() const { return is_own_ != nullptr && !*is_own_; }

 private:
  static constexpr size_t kBytes = 4096;
  volatile bool *is_own_ = nullptr;
};

}  // namespace weft::cxi

#endif
