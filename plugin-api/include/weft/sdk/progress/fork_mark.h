// SPDX-License-Identifier: BSD-2-Clause
// ForkMark: tells a child after fork() that an object is its parent's, whose sockets, files and
// devices it shares. What the child did to them would be the parent's doing, so it leaves them
// alone.
//
// Example:
//    inline bool may_write(const ForkMark &mark) { return !mark.is_child(); }
//
// The kernel clears one page of the process in a child, so a look costs no system call (getpid() is
// one). Every Object (fid.h) has a mark: its fi_close does nothing in a child but to close what is
// the child's own, the descriptors. Not for locks that a thread of the parent held at the fork.
#ifndef WEFT_SDK_PROGRESS_FORK_MARK_H
#define WEFT_SDK_PROGRESS_FORK_MARK_H

#include <sys/types.h>
#include <unistd.h>

#include <atomic>

namespace weft::sdk {

class ForkMark {
 public:
  ForkMark() : process_(current()) {}
  // This process was forked from the one that made the mark.
  bool is_child() const {
    const std::atomic<pid_t> *const known = process();
    return known != nullptr ? known->load(std::memory_order_relaxed) != process_
                            : ::getpid() != process_;
  }

 private:
  // The process that this is; 0: the kernel has cleared it. Null: the kernel clears no pages.
  static std::atomic<pid_t> *process() {
    static std::atomic<pid_t> *const known = make_page();
    return known;
  }
  static std::atomic<pid_t> *make_page();
  static pid_t current();

  pid_t process_;
};

}  // namespace weft::sdk

#endif
