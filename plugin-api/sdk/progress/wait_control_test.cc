// SPDX-License-Identifier: BSD-2-Clause
// What the application gets from a wait object: descriptors and conditions.
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <ctime>
#include <mutex>

#include "plugin-api/sdk/testing/test_instance.h"
#include "weft/sdk/progress/wait.h"

namespace weft::sdk {
namespace {

// ---- what the application gets ----

TEST(WaitObjectControl, GivesAFileDescriptor) {
  for (const auto type : {FI_WAIT_FD, FI_WAIT_UNSPEC}) {
    WaitObject wait;
    ASSERT_TRUE(wait.open(type));
    int fd = -1;
    EXPECT_EQ(wait.control(FI_GETWAIT, &fd), 0);
    EXPECT_EQ(fd, wait.fd());
    enum fi_wait_obj said = FI_WAIT_NONE;
    EXPECT_EQ(wait.control(FI_GETWAITOBJ, &said), 0);
    EXPECT_EQ(said, FI_WAIT_FD);
  }
}

TEST(WaitObjectControl, GivesPollFds) {
  EventSource source, late;
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_POLLFD));
  wait.add_source({.engine = &source.engine});
  fi_wait_pollfd out{};
  EXPECT_EQ(wait.control(FI_GETWAIT, &out), -FI_ETOOSMALL);
  EXPECT_EQ(out.nfds, 2u);
  EXPECT_EQ(wait.control(FI_GETWAIT, &out), -FI_EINVAL);
  pollfd fds[4];
  std::fill(std::begin(fds), std::end(fds), pollfd{-1, 0, 0});
  out.nfds = 4;
  out.fd = fds;
  const uint64_t index = out.change_index;
  EXPECT_EQ(wait.control(FI_GETWAIT, &out), 0);
  EXPECT_EQ(out.nfds, 2u);
  EXPECT_EQ(out.change_index, index) << "the descriptors are the same";
  EXPECT_EQ(fds[0].events, POLLIN);
  EXPECT_EQ(fds[1].events, POLLIN);
  EXPECT_EQ(fds[2].fd, -1);
  EXPECT_FALSE(readable(fds[0].fd));
  wait.notify();
  EXPECT_TRUE(readable(fds[0].fd));
  EXPECT_FALSE(readable(fds[1].fd));
  source.event.signal();
  EXPECT_TRUE(readable(fds[1].fd));
  wait.add_source({.engine = &late.engine, .cm = true});
  out.nfds = 4;
  EXPECT_EQ(wait.control(FI_GETWAIT, &out), 0);
  EXPECT_EQ(out.nfds, 3u);
  EXPECT_NE(out.change_index, index);
  wait.remove_source({.engine = &late.engine, .cm = true});
}

TEST(WaitObjectControl, FailsForTypesWithoutADescriptor) {
  for (const auto type : {FI_WAIT_NONE, FI_WAIT_SET, FI_WAIT_YIELD}) {
    WaitObject wait;
    ASSERT_TRUE(wait.open(type));
    int fd = -1;
    EXPECT_EQ(wait.control(FI_GETWAIT, &fd), -FI_ENODATA);
    EXPECT_EQ(fd, -1);
    enum fi_wait_obj said;
    EXPECT_EQ(wait.control(FI_GETWAITOBJ, &said), 0);
    EXPECT_EQ(said, type);
  }
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_FD));
  EXPECT_EQ(wait.control(FI_GETWAIT, nullptr), -FI_EINVAL);
  int x;
  EXPECT_EQ(wait.control(FI_ENABLE, &x), -FI_ENOSYS);
}

TEST(WaitObjectArm, DependsOnTheType) {
  TestInstance instance;
  const size_t before = open_files();
  {
    WaitObject none, yield;
    ASSERT_TRUE(none.open(FI_WAIT_NONE));
    ASSERT_TRUE(yield.open(FI_WAIT_YIELD));
    EXPECT_EQ(none.arm(instance.c(), FI_LOG_CQ), -FI_EINVAL);
    EXPECT_EQ(yield.arm(instance.c(), FI_LOG_CQ), 0);
    EXPECT_EQ(open_files(), before);
    WaitObject fd;
    ASSERT_TRUE(fd.open(FI_WAIT_FD));
    EXPECT_EQ(fd.arm(instance.c(), FI_LOG_CQ), 0);
  }
  EXPECT_EQ(open_files(), before);
}

// A number behind a lock. As in a queue, the lock is held to read the number, and to arm or notify
// the wait object.
struct Numbers {
  Numbers() {
    EXPECT_TRUE(wait.open(FI_WAIT_MUTEX_COND));
    fi_mutex_cond got{};
    EXPECT_EQ(wait.control(FI_GETWAIT, &got), 0);
    mutex = got.mutex;
    cond = got.cond;
  }
  void add() {
    std::lock_guard lock(owner);
    ++number;
    wait.notify();
  }
  bool trywait(int seen) {
    std::lock_guard lock(owner);
    if (number != seen) return false;
    wait.clear();
    EXPECT_EQ(wait.arm(instance.c(), FI_LOG_CQ), 0);
    return true;
  }
  // Like an application: it holds the mutex from trywait() to the wait.
  void follow(int until) {
    timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += kPatience.count();
    for (int seen = 0; seen < until;) {
      pthread_mutex_lock(mutex);
      int rc = 0;
      if (trywait(seen)) rc = pthread_cond_timedwait(cond, mutex, &deadline);
      pthread_mutex_unlock(mutex);
      ASSERT_EQ(rc, 0) << "asleep after " << seen;
      std::lock_guard lock(owner);
      seen = number;
    }
  }

  TestInstance instance;
  std::mutex owner;
  WaitObject wait;
  int number = 0;
  pthread_mutex_t *mutex = nullptr;
  pthread_cond_t *cond = nullptr;
};

TEST(WaitObjectCondition, EveryNotificationArrives) {
  Numbers numbers;
  constexpr int kCount = 300;
  Sleeper a([&] { numbers.follow(kCount); }), b([&] { numbers.follow(kCount); });
  for (int i = 0; i < kCount; ++i) {
    numbers.add();
    sched_yield();
  }
  EXPECT_TRUE(a.eventually_done());
  EXPECT_TRUE(b.eventually_done());
}

TEST(WaitObjectCondition, NotifyDoesNotWaitForTheMutexOfTheApplication) {
  Numbers numbers;
  EXPECT_TRUE(numbers.trywait(0));
  pthread_mutex_lock(numbers.mutex);
  for (int i = 0; i < 10; ++i) {
    numbers.add();  // must not wait for the mutex
    EXPECT_FALSE(numbers.trywait(i));
    EXPECT_TRUE(numbers.trywait(i + 1));
  }
  pthread_mutex_unlock(numbers.mutex);
}

TEST(WaitObjectCondition, ASourceSignalsTheCondition) {
  TestInstance instance;
  EventSource source;
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_MUTEX_COND));
  fi_mutex_cond got{};
  ASSERT_EQ(wait.control(FI_GETWAIT, &got), 0);
  EXPECT_TRUE(wait.add_source({.engine = &source.engine}));
  for (int i = 1; i <= 20; ++i) {
    timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += kPatience.count();
    pthread_mutex_lock(got.mutex);
    EXPECT_EQ(wait.arm(instance.c(), FI_LOG_CQ), 0);
    source.event.signal();
    EXPECT_EQ(pthread_cond_timedwait(got.cond, got.mutex, &deadline), 0);
    pthread_mutex_unlock(got.mutex);
    source.progress();
    EXPECT_EQ(source.event.seen(), i);
  }
}

TEST(WaitObjectCondition, TheThreadEndsWithTheObject) {
  const size_t before = open_files();
  for (int i = 0; i < 20; ++i) {
    Numbers numbers;
    EXPECT_TRUE(numbers.trywait(0));
    if (i % 2 != 0) numbers.add();
  }
  EXPECT_EQ(open_files(), before);
}

}  // namespace
}  // namespace weft::sdk
