// SPDX-License-Identifier: BSD-2-Clause
// Waiting for events: fi_eq_sread, and the queue's descriptor or condition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <ctime>
#include <memory>
#include <vector>

#include "plugin-api/sdk/testing/test_eq.h"
#include "weft/sdk/objects/eq.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EqWait : public ::testing::TestWithParam<enum fi_wait_obj> {};
INSTANTIATE_TEST_SUITE_P(Objects, EqWait,
                         ::testing::Values(FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_POLLFD,
                                           FI_WAIT_YIELD, FI_WAIT_MUTEX_COND));

TEST_P(EqWait, TimesOut) {
  TestEq queue(eq_attr(GetParam()));
  const uint64_t start = now_ns();
  EXPECT_EQ(queue.sread(30), -FI_EAGAIN);
  EXPECT_GE(now_ns() - start, 30'000'000u);
  EXPECT_EQ(queue.sread(0), -FI_EAGAIN);
  queue.write(3);
  queue.eq->push_error(kEventError);
  EXPECT_EQ(queue.sread(0), 3);
  EXPECT_EQ(queue.sread(-1), -FI_EAVAIL);
}

TEST_P(EqWait, AnEventOfAnotherThreadWakes) {
  TestEq queue(eq_attr(GetParam()));
  for (uint32_t i = 1; i <= 40; ++i) {
    ssize_t got = 0;
    Sleeper sleeper([&] { got = queue.sread(i % 2 != 0 ? -1 : kPatienceMs); });
    if (i % 5 == 0 && GetParam() != FI_WAIT_YIELD) {
      EXPECT_TRUE(sleeper.eventually_asleep());
    }
    queue.write(i);
    sleeper.join();
    EXPECT_EQ(got, i);
  }
}

TEST_P(EqWait, TheWaitingThreadMakesProgressItself) {
  TestEq queue(eq_attr(GetParam()));
  EventSource early, late;
  queue.push_from(early, 1);
  queue.push_from(late, 2);
  queue.eq->add_source(early.engine);
  for (EventSource *source : {&early, &late}) {
    for (int i = 0; i < 10; ++i) {
      ssize_t got = 0;
      Sleeper sleeper([&] { got = queue.sread(); });
      if (i % 3 == 0 && GetParam() != FI_WAIT_YIELD) {
        EXPECT_TRUE(sleeper.eventually_asleep());
      }
      if (source == &late && i == 0) queue.eq->add_source(late.engine);
      source->event.signal();
      sleeper.join();
      EXPECT_EQ(got, source == &early ? 1 : 2);
    }
  }
  queue.eq->remove_source(early.engine);
  queue.eq->remove_source(late.engine);
}

TEST_P(EqWait, EachEventGoesToOneThread) {
  TestEq queue(eq_attr(GetParam()));
  constexpr uint32_t kCount = 400;
  std::atomic<uint32_t> sum{0};
  {
    std::vector<std::unique_ptr<Sleeper>> readers;
    for (int t = 0; t < 3; ++t)
      readers.push_back(std::make_unique<Sleeper>([&] {
        for (;;) {
          const ssize_t got = queue.sread();
          ASSERT_GT(got, 0);
          if (got == kCount + 1) return;
          sum += uint32_t(got);
        }
      }));
    for (uint32_t i = 1; i <= kCount; ++i) {
      queue.write(i);
      if (i % 8 == 0) sched_yield();
    }
    for (int t = 0; t < 3; ++t) queue.write(kCount + 1);
  }
  EXPECT_EQ(sum, kCount * (kCount + 1) / 2);
}

TEST(EqSource, ComesAndGoesWhileAnotherThreadReads) {
  TestEq queue(eq_attr(FI_WAIT_FD));
  std::atomic<bool> stop{false};
  std::atomic<int> seen{0};
  const auto read = [&](bool block) {
    while (!stop) {
      const ssize_t got = block ? queue.sread(5) : queue.next();
      if (got > 0) ++seen;
    }
  };
  Sleeper blocker([&] { read(true); }), spinner([&] { read(false); });
  for (int i = 1; i <= 200; ++i) {
    EventSource source;
    queue.push_from(source, 4);
    queue.eq->add_source(source.engine);
    source.event.signal();
    if (i % 4 == 0) {
      EXPECT_TRUE(eventually([&] { return source.event.seen() == 1; }));
    }
    queue.eq->remove_source(source.engine);
  }
  stop = true;
  blocker.join();
  spinner.join();
  EXPECT_GE(seen.load(), 50);
}

TEST(EqSource, PushesWhileTheDescriptorIsMade) {
  // One thread takes the engine's lock, then the queue's. The other must not take them in the
  // opposite order.
  for (int i = 0; i < 30; ++i) {
    TestEq queue(eq_attr(FI_WAIT_FD));
    EventSource source;
    queue.eq->add_source(source.engine);
    Sleeper pusher([&] {
      for (uint32_t k = 1; k <= 20; ++k) {
        Guard guard(source.engine.lock());
        queue.write(k);
      }
    });
    if (i % 3 == 0) {
      EXPECT_GE(queue.fd(), 0);
    }
    if (i % 3 == 1) (void)queue.eq->trywait();
    for (ssize_t k = 1; k <= 20; ++k) ASSERT_EQ(queue.sread(), k);
    pusher.join();
    queue.eq->remove_source(source.engine);
  }
}

TEST(EqNative, TheDescriptorIsReadableWhenThereIsSomethingToDo) {
  TestEq queue(eq_attr(FI_WAIT_FD));
  EventSource source;
  queue.push_from(source, 6);
  queue.eq->add_source(source.engine);
  int fd = -1;
  ASSERT_EQ(fi_control(queue.eq->base(), FI_GETWAIT, &fd), 0);
  EXPECT_EQ(fi_control(queue.eq->base(), FI_ENABLE, nullptr), -FI_ENOSYS);
  EXPECT_EQ(queue.eq->trywait(), 0);
  EXPECT_FALSE(readable(fd));
  source.event.signal();
  EXPECT_TRUE(readable(fd)) << "there is progress to be made";
  EXPECT_EQ(queue.eq->trywait(), -FI_EAGAIN);
  EXPECT_EQ(queue.next(), 6);
  EXPECT_EQ(queue.eq->trywait(), 0);
  EXPECT_FALSE(readable(fd));
  struct fid one {};
  queue.eq->push_error({.fid = &one, .err = FI_EIO});
  EXPECT_TRUE(readable(fd));
  queue.eq->forget(&one);
  EXPECT_EQ(queue.eq->trywait(), 0);
  EXPECT_FALSE(readable(fd));
  queue.eq->remove_source(source.engine);
}

TEST(EqNative, TheConditionIsSignalled) {
  TestEq queue(eq_attr(FI_WAIT_MUTEX_COND));
  EventSource source;  // no thread makes progress there
  queue.push_from(source, 6);
  queue.eq->add_source(source.engine);
  fi_mutex_cond wait{};
  ASSERT_EQ(fi_control(queue.eq->base(), FI_GETWAIT, &wait), 0);
  Sleeper application([&] {
    timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += kPatience.count();
    for (int i = 0; i < 30;) {
      const ssize_t got = queue.next();
      if (got != -FI_EAGAIN) {
        EXPECT_EQ(got, 6);
        ++i;
        source.event.signal();
        continue;
      }
      pthread_mutex_lock(wait.mutex);
      int rc = 0;
      if (queue.eq->trywait() == 0) rc = pthread_cond_timedwait(wait.cond, wait.mutex, &deadline);
      pthread_mutex_unlock(wait.mutex);
      ASSERT_EQ(rc, 0) << "asleep after " << i;
    }
  });
  source.event.signal();
  EXPECT_TRUE(application.eventually_done());
  queue.eq->remove_source(source.engine);
}

TEST(EqFiles, NoDescriptorIsAnError) {
  TestEq queue(eq_attr(FI_WAIT_FD));
  {
    NoMoreFiles none;
    none.in_another_thread([&] { EXPECT_EQ(queue.sread(), -FI_EMFILE); });
    EXPECT_EQ(queue.eq->trywait(), -FI_EMFILE);
    queue.write(1);
    EXPECT_EQ(queue.sread(), 1);
  }
  EXPECT_EQ(queue.sread(5), -FI_EAGAIN);
}

TEST(EqFiles, AWaitEndsWhenASourceCannotBeWatched) {
  TestEq queue(eq_attr(FI_WAIT_FD));
  EXPECT_EQ(queue.sread(0), -FI_EAGAIN);
  ASSERT_GE(queue.fd(), 0);
  EventSource source;
  queue.push_from(source, 7);
  ssize_t got = 0;
  Sleeper sleeper([&] { got = queue.sread(); });
  EXPECT_TRUE(sleeper.eventually_asleep());
  {
    NoMoreFiles none;
    queue.eq->add_source(source.engine);
    EXPECT_TRUE(sleeper.eventually_done());
  }
  EXPECT_EQ(got, -FI_EMFILE);
  EXPECT_THAT(queue.instance.log(), ElementsAre(HasSubstr("fi_eq_sread: no descriptor")));
  source.event.signal();
  EXPECT_EQ(queue.sread(), 7);
  queue.eq->remove_source(source.engine);
}

}  // namespace
}  // namespace weft::sdk
