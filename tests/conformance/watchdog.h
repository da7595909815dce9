// SPDX-License-Identifier: BSD-2-Clause
// Watchdog: ends the program where a call of the library does not return, and names the call.
//
// Example:
//     void read(Application &application, Watchdog &watchdog) {
//       watchdog.call("fi_cq_read", [&] { return fi_cq_read(application.rx_cq, nullptr, 0); });
//     }
//
// Signals of the process are for the application's threads: its own takes none.
//
// Not for calls that return and say -FI_EAGAIN for ever: those have a Deadline (common.h).
#ifndef WEFT_TESTS_CONFORMANCE_WATCHDOG_H
#define WEFT_TESTS_CONFORMANCE_WATCHDOG_H

#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/conformance/common.h"

namespace weft::conformance {

class Watchdog {
 public:
  // `report` is called before the program ends.
  explicit Watchdog(std::chrono::milliseconds time = patience(), std::function<void()> report = {})
      : report_(std::move(report)) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this, time] { watch(time); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Watchdog() {
    {
      const std::lock_guard guard(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog &) = delete;
  Watchdog &operator=(const Watchdog &) = delete;

  // `name` stays where it is.
  template <class Call>
  auto call(const char *name, Call &&make) {
    number_.fetch_add(1, std::memory_order_relaxed);
    name_.store(name);
    const auto result = std::forward<Call>(make)();
    name_.store(nullptr);
    return result;
  }

 private:
  // A call that is the same one at two looks has taken all the time between them.
  void watch(std::chrono::milliseconds time) {
    uint64_t before = UINT64_MAX;
    std::unique_lock guard(mutex_);
    while (!changed_.wait_for(guard, time, [this] { return over_; })) {
      const char *const name = name_.load();
      const uint64_t number = number_.load(std::memory_order_relaxed);
      if (name != nullptr && number == before) {
        std::fprintf(stderr, "%s has not returned for %lld ms\n", name, (long long)time.count());
        if (report_) report_();
        std::abort();
      }
      before = name != nullptr ? number : UINT64_MAX;
    }
  }

  std::atomic<const char *> name_{nullptr};
  std::atomic<uint64_t> number_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  const std::function<void()> report_;
  std::thread thread_;
};

}  // namespace weft::conformance

#endif
