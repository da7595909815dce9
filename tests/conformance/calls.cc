// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/calls.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <stdexcept>
#include <string_view>

namespace weft::conformance {
namespace {

std::atomic<pid_t> calling_thread{0};
std::atomic<int> signals{0}, strayed{0};

void on_call_signal(int) {
  const int before = errno;
  ++signals;
  if (pid_t(syscall(SYS_gettid)) != calling_thread) ++strayed;
  errno = before;
}

}  // namespace

Calls::Calls(Signals kind)
    : signal_(kind == Signals::kOfProcess ? SIGALRM : SIGUSR2),
      watchdog_(patience() / 4, [this] { print(); }) {
  calling_thread = pid_t(syscall(SYS_gettid));
  signals = strayed = 0;
  struct sigaction action {};
  action.sa_handler = on_call_signal;  // without SA_RESTART
  sigaction(signal_, &action, &before_);
  sigevent event{};
  event.sigev_signo = signal_;
  event.sigev_notify = SIGEV_SIGNAL;
  if (kind == Signals::kOfThread) {
    event.sigev_notify = SIGEV_THREAD_ID;
    event._sigev_un._tid = calling_thread;
  }
  if (timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) throw std::runtime_error("timer_create");
}

Calls::~Calls() {
  timer_delete(timer_);
  ::signal(signal_, SIG_IGN);  // drops one that is pending
  sigaction(signal_, &before_, nullptr);
  EXPECT_EQ(strayed, 0) << "signals that a thread of the library took";
  if (::testing::Test::HasFailure()) print();
}

void Calls::interrupt_every(std::chrono::microseconds interval) {
  itimerspec when{};
  when.it_interval.tv_sec = interval.count() / 1'000'000;
  when.it_interval.tv_nsec = interval.count() % 1'000'000 * 1000;
  when.it_value = when.it_interval;
  timer_settime(timer_, 0, &when, nullptr);
  is_interrupting_ = interval.count() != 0;
}

int Calls::signals_taken() {
  return signals;
}

void Calls::begin(const char *name, int64_t a, int64_t b) {
  last_[count_++ % last_.size()] = {.name = name, .a = a, .b = b};
}

void Calls::end(int64_t rc, bool is_blocking) {
  Line &line = last_[(count_ - 1) % last_.size()];
  line.rc = rc;
  line.is_over = true;
  if (rc == -FI_EINTR) {
    ++interrupted_;
    EXPECT_TRUE(is_blocking) << line.name << " was disturbed by a signal";
  }
  // Waits in vain would leave no room for what came before them.
  const std::string_view name = line.name;
  const bool is_read = name.starts_with("fi_cq_") || name.starts_with("fi_eq_") ||
                       name.starts_with("fi_cntr_") || name == "fi_wait";
  if (is_read && (name.starts_with("fi_cntr_read") || (rc < 0 && rc != -FI_EAVAIL))) --count_;
}

void Calls::print() const {
  std::fprintf(stderr, "The last of %zu calls that did something, and %d signals:\n", count_,
               signals.load());
  for (size_t i = count_ - std::min(count_, last_.size()); i < count_; ++i) {
    const Line &line = last_[i % last_.size()];
    std::fprintf(stderr, "  %zu: %s (%" PRId64 ", %" PRId64 ")", i, line.name, line.a, line.b);
    if (line.is_over) std::fprintf(stderr, " = %" PRId64, line.rc);
    std::fputc('\n', stderr);
  }
}

}  // namespace weft::conformance
