// SPDX-License-Identifier: BSD-2-Clause
// Calls of the library by a random program: each under a watchdog, while signals come, with a list
// of the last ones for the report of a failure.
//
// Example:
//     void read(Calls &calls, fid_cq *cq) {
//       calls.interrupt_every(std::chrono::microseconds(500));
//       calls("fi_cq_read", [&] { return fi_cq_read(cq, nullptr, 0); });
//       calls.blocking("fi_cq_sread", [&] { return fi_cq_sread(cq, nullptr, 0, nullptr, -1); });
//     }
//
// A signal may end a blocking call with -FI_EINTR. Any other call that says so fails the test, and
// so does a thread of the library that takes the application's signal. Calls are made by the thread
// that made the object, and there is one object at a time.
#ifndef WEFT_TESTS_CONFORMANCE_CALLS_H
#define WEFT_TESTS_CONFORMANCE_CALLS_H

#include <signal.h>
#include <time.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <utility>

#include "tests/conformance/watchdog.h"

namespace weft::conformance {

class Calls {
 public:
  // Signals of the process (SIGALRM), or of the calling thread alone (SIGUSR2).
  enum class Signals : uint8_t { kOfProcess, kOfThread };
  explicit Calls(Signals signals);
  ~Calls();
  Calls(const Calls &) = delete;
  Calls &operator=(const Calls &) = delete;

  // `name` stays where it is; `a` and `b` say in the report what the call was about.
  template <class Call>
  auto operator()(const char *name, Call &&make, int64_t a = 0, int64_t b = 0) {
    begin(name, a, b);
    const auto rc = watchdog_.call(name, std::forward<Call>(make));
    end(int64_t(rc), false);
    return rc;
  }
  template <class Call>
  ssize_t blocking(const char *name, Call &&make, int64_t a = 0, int64_t b = 0) {
    begin(name, a, b);
    const ssize_t rc = watchdog_.call(name, std::forward<Call>(make));
    end(rc, true);
    return rc;
  }

  // 0: no signals.
  void interrupt_every(std::chrono::microseconds interval);
  bool is_interrupting() const { return is_interrupting_; }
  size_t interrupted() const { return interrupted_; }  // calls that said -FI_EINTR
  static int signals_taken();
  void print() const;  // the last calls

 private:
  void begin(const char *name, int64_t a, int64_t b);
  void end(int64_t rc, bool is_blocking);

  struct Line {
    const char *name = nullptr;
    int64_t a = 0, b = 0, rc = 0;
    bool is_over = false;
  };
  std::array<Line, 48> last_{};
  size_t count_ = 0, interrupted_ = 0;
  bool is_interrupting_ = false;
  int signal_;
  struct sigaction before_ {};
  timer_t timer_{};
  Watchdog watchdog_;
};

}  // namespace weft::conformance

#endif
