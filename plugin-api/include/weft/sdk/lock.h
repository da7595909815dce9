// SPDX-License-Identifier: BSD-2-Clause
// Lock: a mutex that can be absent, for objects that FI_THREAD_DOMAIN promises to one thread at a
// time.
//
// Example:
//    struct Counter {
//      explicit Counter(bool threads) : lock(threads) {}
//      void add() {
//        Guard guard(lock);  // costs one predictable branch if the lock is not needed
//        ++value;
//      }
//      Lock lock;
//      int value = 0;
//    };
//
// Not recursive. Whether it is needed is decided once, before a second thread can see it.
#ifndef WEFT_SDK_LOCK_H
#define WEFT_SDK_LOCK_H

#include <mutex>

namespace weft::sdk {

class Lock {
 public:
  explicit Lock(bool needed = true) : needed_(needed) {}
  bool needed() const { return needed_; }
  void lock() {
    if (needed_) mutex_.lock();
  }
  bool try_lock() { return !needed_ || mutex_.try_lock(); }
  void unlock() {
    if (needed_) mutex_.unlock();
  }

 private:
  std::mutex mutex_;
  const bool needed_;
};

using Guard = std::lock_guard<Lock>;

}  // namespace weft::sdk

#endif
