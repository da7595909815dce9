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
// Not recursive. Whether it is needed is decided before a second thread can see it. A lock can
// count how often a thread had to wait for it (count_waits); that costs nothing while none waits.
#ifndef WEFT_SDK_PROGRESS_LOCK_H
#define WEFT_SDK_PROGRESS_LOCK_H

#include <weft/sdk/unit/counters.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace weft::sdk {

// What std::mutex is on Linux, three states of one word, but inlined: the data path takes and
// leaves several locks for each message. Built for ThreadSanitizer it is std::mutex, so that the
// order of locks is checked.
class InlineMutex {
 public:
#ifdef __SANITIZE_THREAD__
  void lock() {
    mutex_.lock();
  }
  bool try_lock() {
    return mutex_.try_lock();
  }
  void unlock() {
    mutex_.unlock();
  }

 private:
  std::mutex mutex_;
#else
  void lock() {
    if (!try_lock()) [[unlikely]]
      wait();
  }
  bool try_lock() {
    uint32_t free = kFree;
    return state_.compare_exchange_strong(free, kHeld, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kAwaited) [[unlikely]]
      state_.notify_one();
  }

 private:
  static constexpr uint32_t kFree = 0, kHeld = 1, kAwaited = 2;
  [[gnu::noinline]] void wait() {
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree)
      state_.wait(kAwaited, std::memory_order_relaxed);
  }
  std::atomic<uint32_t> state_{kFree};
#endif
};

class Lock {
 public:
  explicit Lock(bool needed = true) : needed_(needed) {}
  bool needed() const { return needed_.load(std::memory_order_relaxed); }
  // From now on the lock is needed: a second thread is about to be made. The caller holds the lock.
  void need() {
    if (needed()) return;
    mutex_.lock();  // the caller is about to unlock it
    set_needed(true);
  }
  // The opposite: no other thread comes any more, except by try_lock_if_needed(). The caller holds
  // the lock.
  void spare() {
    if (!needed()) return;
    set_needed(false);
    mutex_.unlock();  // the caller's unlock() does nothing any more
  }
  // Before a second thread can see it.
  void count_waits(Counter &counter) { waits_ = &counter; }
  void lock() {
    if (!needed()) return;
#ifdef __SANITIZE_THREAD__
    // It sees no order of locks in those that were only tried.
    if (mutex_.try_lock()) {
      mutex_.unlock();
      return mutex_.lock();
    }
#endif
    if (!mutex_.try_lock()) [[unlikely]]
      wait();
  }
  bool try_lock() {
    return !needed() || mutex_.try_lock();
  }
  // By a thread that a lock which is not needed does not keep away: false then, too.
  bool try_lock_if_needed() {
    if (!needed() || !mutex_.try_lock()) return false;
    if (needed()) return true;
    mutex_.unlock();  // it was spared meanwhile
    return false;
  }
  void unlock() {
    if (needed()) mutex_.unlock();
  }

 private:
  [[gnu::noinline]] void wait() {
    if (waits_ != nullptr) waits_->add();
    mutex_.lock();
  }

  void set_needed(bool needed) {
    needed_.store(needed, std::memory_order_relaxed);
  }

  InlineMutex mutex_;
  std::atomic<bool> needed_;
  Counter *waits_ = nullptr;
};

using Guard = std::lock_guard<Lock>;

}  // namespace weft::sdk

#endif
