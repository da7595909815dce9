// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/signals.h"

#include <rdma/fi_eq.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace weft::conformance {
namespace {

std::atomic<pid_t> waiting_thread{0};
std::atomic<int> taken{0}, taken_by_others{0};

void on_signal(int) {
  ++(pid_t(syscall(SYS_gettid)) == waiting_thread ? taken : taken_by_others);
}

// The signal goes to the waiting thread alone. What is left of it is dropped at the end.
class OneSignal {
 public:
  OneSignal() {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;  // poll(2) ends all the same
    sigaction(SIGUSR1, &action, &before_);
    block(SIG_BLOCK);
    taken = taken_by_others = 0;
  }
  ~OneSignal() {
    ::signal(SIGUSR1, SIG_IGN);
    block(SIG_UNBLOCK);
    sigaction(SIGUSR1, &before_, nullptr);
    EXPECT_EQ(taken_by_others, 0) << "signals that a thread of the library took";
  }
  static void block(int how) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(how, &one, nullptr);
  }

 private:
  struct sigaction before_ {};
};

// `wait` is a call without a timeout, which `release` would end.
void is_ended_by_a_signal(const std::string &call, const std::function<ssize_t()> &wait,
                          const std::function<void()> &release) {
  SCOPED_TRACE(call);
  std::atomic<bool> over{false};
  ssize_t rc = 0;
  std::thread waiter([&] {
    waiting_thread = pid_t(syscall(SYS_gettid));
    OneSignal::block(SIG_UNBLOCK);
    rc = wait();
    OneSignal::block(SIG_BLOCK);
    over = true;
  });
  const Deadline deadline(patience() / 10);
  while (!over && !deadline.passed()) {
    ::kill(getpid(), SIGUSR1);
    std::this_thread::yield();
  }
  EXPECT_TRUE(over) << "it goes on after " << taken << " signals";
  while (!over) {
    release();
    std::this_thread::yield();
  }
  waiter.join();
  EXPECT_EQ(rc, -FI_EINTR) << error_text(rc);
}

std::string name_of(const char *call, enum fi_wait_obj wait) {
  return std::string(call) + ", " + fi_tostr(&wait, FI_TYPE_WAIT_OBJ);
}

void signals_end_reads(const Application &application, enum fi_wait_obj wait) {
  Handle<fid_cq> cq;
  fi_cq_attr attr = Options::cq_attr(FI_CQ_FORMAT_CONTEXT, wait);
  if (fi_cq_open(application.domain, &attr, cq.out(), nullptr) != 0) return;
  const auto release = [&] { fi_cq_signal(cq); };
  fi_cq_entry entry;
  fi_addr_t source;
  is_ended_by_a_signal(
      name_of("fi_cq_sread", wait), [&] { return fi_cq_sread(cq, &entry, 1, nullptr, -1); },
      release);
  is_ended_by_a_signal(
      name_of("fi_cq_sreadfrom", wait),
      [&] { return fi_cq_sreadfrom(cq, &entry, 1, &source, nullptr, -1); }, release);
}

void signals_end_event_reads(const Application &application, enum fi_wait_obj wait) {
  Handle<fid_eq> eq;
  fi_eq_attr attr = Options::eq_attr(wait);
  attr.flags = FI_WRITE;
  if (fi_eq_open(application.fabric, &attr, eq.out(), nullptr) != 0) return;
  uint32_t event;
  fi_eq_entry entry{};
  is_ended_by_a_signal(
      name_of("fi_eq_sread", wait),
      [&] { return fi_eq_sread(eq, &event, &entry, sizeof entry, -1, 0); },
      [&] { fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0); });
}

void signals_end_waits(const Application &application, enum fi_wait_obj wait) {
  Handle<fid_cntr> cntr;
  fi_cntr_attr attr{};
  attr.wait_obj = wait;
  if (fi_cntr_open(application.domain, &attr, cntr.out(), nullptr) != 0) return;
  is_ended_by_a_signal(
      name_of("fi_cntr_wait", wait), [&] { return fi_cntr_wait(cntr, 1, -1); },
      [&] { fi_cntr_add(cntr, 1); });
}

void signals_end_waits_on_a_set(const Application &application, enum fi_wait_obj wait) {
  Handle<fid_wait> set;
  fi_wait_attr attr{};
  attr.wait_obj = wait;
  if (fi_wait_open(application.fabric, &attr, set.out()) != 0) return;
  Handle<fid_cq> cq;
  fi_cq_attr of_queue = Options::cq_attr(FI_CQ_FORMAT_CONTEXT, FI_WAIT_SET);
  of_queue.wait_set = set;
  if (fi_cq_open(application.domain, &of_queue, cq.out(), nullptr) != 0) return;
  is_ended_by_a_signal(
      name_of("fi_wait", wait), [&] { return fi_wait(set, -1); }, [&] { fi_cq_signal(cq); });
}

}  // namespace

void signals_end_blocking_calls(const Application &application) {
  const OneSignal signal;
  for (const enum fi_wait_obj wait :
       {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_POLLFD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD}) {
    signals_end_reads(application, wait);
    signals_end_event_reads(application, wait);
    signals_end_waits(application, wait);
    signals_end_waits_on_a_set(application, wait);
  }
  EXPECT_GT(taken, 0);
}

}  // namespace weft::conformance
