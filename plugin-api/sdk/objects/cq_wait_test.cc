// SPDX-License-Identifier: BSD-2-Clause
// Waiting for completions: fi_cq_sread, fi_cq_signal, and the queue's descriptor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <vector>

#include "plugin-api/sdk/testing/test_cq.h"
#include "weft/sdk/objects/cq.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CqWait : public ::testing::TestWithParam<enum fi_wait_obj> {};
INSTANTIATE_TEST_SUITE_P(Objects, CqWait,
                         ::testing::Values(FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_POLLFD,
                                           FI_WAIT_YIELD, FI_WAIT_MUTEX_COND));

TEST_P(CqWait, TimesOut) {
  TestDomain domain;
  TestCq queue(domain, cq_attr(GetParam()));
  const uint64_t start = now_ns();
  EXPECT_EQ(queue.sread(30), -FI_EAGAIN);
  EXPECT_GE(now_ns() - start, 30'000'000u);
  EXPECT_EQ(queue.sread(0), -FI_EAGAIN);
  queue.push(1);
  queue.push_error(2);
  EXPECT_EQ(queue.sread(0), 1);
  EXPECT_EQ(queue.sread(-1), -FI_EAVAIL);
}

TEST_P(CqWait, ACompletionOfAnotherThreadWakes) {
  TestDomain domain;
  TestCq queue(domain, cq_attr(GetParam()));
  for (size_t i = 0; i < 50; ++i) {
    ssize_t got = 0;
    Sleeper sleeper([&] { got = queue.sread(i % 2 != 0 ? -1 : kPatienceMs); });
    if (i % 5 == 0 && GetParam() != FI_WAIT_YIELD) {
      EXPECT_TRUE(sleeper.eventually_asleep());
    }
    i % 3 == 0 ? queue.push_error(i) : queue.push(i);
    sleeper.join();
    EXPECT_EQ(got, i % 3 == 0 ? -FI_EAVAIL : 1);
    if (i % 3 == 0) {
      EXPECT_EQ(queue.next(), -1000 - ssize_t(i));
    }
  }
}

TEST_P(CqWait, TheWaitingThreadMakesProgressItself) {
  TestDomain domain;
  TestCq queue(domain, cq_attr(GetParam()));
  Event event;
  event.then = [&] { queue.cq->push({.context = ctx(3)}); };
  {
    Guard guard(domain.engine.lock());
    domain.engine.add(event, event.fd(), EPOLLIN, 0);
  }
  for (int i = 0; i < 20; ++i) {
    ssize_t got = 0;
    Sleeper sleeper([&] { got = queue.sread(); });
    if (i % 5 == 0 && GetParam() != FI_WAIT_YIELD) {
      EXPECT_TRUE(sleeper.eventually_asleep());
    }
    event.signal();
    sleeper.join();
    EXPECT_EQ(got, 1);
  }
  // A deadline of a handler wakes it too.
  event.then_deadline = event.then;
  ssize_t got = 0;
  Sleeper sleeper([&] { got = queue.sread(); });
  {
    Guard guard(domain.engine.lock());
    domain.engine.set_deadline(event, now_ns() + 2'000'000);
  }
  sleeper.join();
  EXPECT_EQ(got, 1);
  Guard guard(domain.engine.lock());
  domain.engine.remove(event);
}

TEST_P(CqWait, EachCompletionGoesToOneThread) {
  TestDomain domain;
  TestCq queue(domain, cq_attr(GetParam()));
  constexpr size_t kCount = 1000;
  std::mutex mutex;
  std::multiset<void *> seen;
  {
    std::vector<std::unique_ptr<Sleeper>> readers;
    for (int t = 0; t < 4; ++t)
      readers.push_back(std::make_unique<Sleeper>([&] {
        for (;;) {
          fi_cq_tagged_entry entries[3];
          const ssize_t n = fi_cq_sread(queue.c(), entries, 3, nullptr, kPatienceMs);
          ASSERT_GT(n, 0);
          std::lock_guard guard(mutex);
          for (ssize_t i = 0; i < n; ++i) seen.insert(entries[i].op_context);
          if (seen.contains(nullptr)) return;
        }
      }));
    for (size_t i = 1; i <= kCount; ++i) {
      queue.push(i);
      if (i % 16 == 0) sched_yield();
    }
    for (int t = 0; t < 4 * 3; ++t) queue.push(0);  // enough that each gets one
  }
  seen.erase(nullptr);
  EXPECT_EQ(seen.size(), kCount);
  EXPECT_EQ(std::set<void *>(seen.begin(), seen.end()).size(), kCount);
}

TEST(CqSread, NeedsAWaitObject) {
  TestDomain domain;
  TestCq none(domain, cq_attr(FI_WAIT_NONE));
  EXPECT_EQ(none.sread(0), -FI_EINVAL);
  none.push(1);
  EXPECT_EQ(none.sread(0), -FI_EINVAL);
}

TEST(CqSread, WithACountOfZeroWaitsForACompletion) {
  TestDomain domain;
  TestCq queue(domain, cq_attr(FI_WAIT_UNSPEC));
  ssize_t got = -1;
  Sleeper sleeper([&] { got = fi_cq_sread(queue.c(), nullptr, 0, nullptr, kPatienceMs); });
  EXPECT_TRUE(sleeper.eventually_asleep());
  queue.push(3);
  sleeper.join();
  EXPECT_EQ(got, 0);
  EXPECT_EQ(queue.next(), 3);
}

TEST(CqSread, WorksInASerializedDomain) {
  TestDomain domain(FI_VERSION(1, 17), false);
  TestCq queue(domain, cq_attr(FI_WAIT_FD));
  EXPECT_EQ(queue.sread(5), -FI_EAGAIN);
  queue.push(1);
  EXPECT_EQ(queue.sread(), 1);
}

TEST(CqSread, WithoutDescriptorsIsAnError) {
  TestDomain domain;
  TestCq queue(domain, cq_attr(FI_WAIT_FD));
  const size_t before = open_files();
  {
    NoMoreFiles none;
    EXPECT_EQ(queue.sread(), -FI_EMFILE);
    EXPECT_EQ(queue.sread(), -FI_EMFILE);
    fid *fids[] = {queue.cq->base()};
    EXPECT_EQ(queue.cq->trywait(), -FI_EMFILE);
    int fd;
    EXPECT_EQ(fi_control(fids[0], FI_GETWAIT, &fd), -FI_EMFILE);
    queue.push(1);
    EXPECT_EQ(queue.sread(), 1) << "to read what is there takes no descriptor";
  }
  EXPECT_EQ(open_files(), before);
  EXPECT_THAT(domain.instance.log(), ElementsAre(HasSubstr("fi_cq_sread")));
  EXPECT_EQ(queue.sread(5), -FI_EAGAIN);
}

TEST(CqSread, AnExceptionOfAHandlerLeavesNothingLocked) {
  TestDomain domain;
  TestCq queue(domain, cq_attr(FI_WAIT_FD));
  Event event;
  event.then = [] { throw std::bad_alloc(); };
  domain.engine.add(event, event.fd(), EPOLLIN, 0);
  event.signal();
  EXPECT_EQ(queue.sread(), -FI_ENOMEM);
  EXPECT_FALSE(event.seen() == 0);
  Sleeper other([&] { queue.push(1); });
  EXPECT_TRUE(other.eventually_done());
  EXPECT_EQ(queue.next(), 1);
  domain.engine.remove(event);
}

// ---- the threshold ----

TEST(CqThreshold, WaitsForThatManyCompletions) {
  TestDomain domain;
  TestCq queue(domain, cq_threshold_attr());
  fi_cq_tagged_entry entries[8];
  ssize_t got = 0;
  Sleeper sleeper([&] { got = fi_cq_sread(queue.c(), entries, 8, ctx(4), kPatienceMs); });
  for (size_t i = 1; i <= 3; ++i) {
    queue.push(i);
    EXPECT_TRUE(sleeper.eventually_asleep());
    EXPECT_FALSE(sleeper.done());
  }
  queue.push(4);
  sleeper.join();
  EXPECT_EQ(got, 4);
}

TEST(CqThreshold, ReturnsFewerAfterTheTimeout) {
  TestDomain domain;
  TestCq queue(domain, cq_threshold_attr());
  fi_cq_tagged_entry entries[8];
  queue.push(1);
  queue.push(2);
  EXPECT_EQ(fi_cq_sread(queue.c(), entries, 8, ctx(4), 20), 2);
  EXPECT_EQ(fi_cq_sread(queue.c(), entries, 8, ctx(4), 0), -FI_EAGAIN);
}

TEST(CqThreshold, AnErrorEndsTheWait) {
  TestDomain domain;
  TestCq queue(domain, cq_threshold_attr());
  fi_cq_tagged_entry entries[8];
  ssize_t got = 0;
  Sleeper sleeper([&] { got = fi_cq_sread(queue.c(), entries, 8, ctx(4), kPatienceMs); });
  queue.push(1);
  EXPECT_TRUE(sleeper.eventually_asleep());
  queue.push_error(2);
  sleeper.join();
  EXPECT_EQ(got, 1);
  EXPECT_EQ(fi_cq_sread(queue.c(), entries, 8, ctx(4), kPatienceMs), -FI_EAVAIL);
}

TEST(CqThreshold, IsAtMostTheSizeOfTheQueue) {
  TestDomain domain;
  fi_cq_attr attr = cq_threshold_attr();
  attr.size = 4;
  TestCq queue(domain, attr);
  for (size_t i = 0; i < 4; ++i) queue.push(i);
  fi_cq_tagged_entry entries[8];
  EXPECT_EQ(fi_cq_sread(queue.c(), entries, 8, ctx(1000), kPatienceMs), 4);
  queue.push(1);
  EXPECT_EQ(fi_cq_sread(queue.c(), entries, 8, nullptr, kPatienceMs), 1)
      << "without a threshold one is enough";
}

TEST(CqThreshold, IsIgnoredUnlessTheQueueWasOpenedForIt) {
  TestDomain domain;
  TestCq queue(domain, cq_attr(FI_WAIT_UNSPEC));
  queue.push(1);
  EXPECT_EQ(queue.sread(kPatienceMs, 50), 1);
}

TEST(CqThreshold, WakesTheThreadThatWaitsForFewer) {
  // The first entry wakes both threads. The thread that goes on waiting must not take the wakeup of
  // the other thread.
  TestDomain domain;
  TestCq queue(domain, cq_threshold_attr());
  for (int round = 0; round < 50; ++round) {
    ssize_t few = 0, many = 0;
    fi_cq_tagged_entry a[8], b[8];
    Sleeper more([&] { many = fi_cq_sread(queue.c(), a, 8, ctx(3), kPatienceMs); });
    Sleeper also([&] { few = fi_cq_sread(queue.c(), b, 8, ctx(2), kPatienceMs); });
    EXPECT_TRUE(more.eventually_asleep());
    EXPECT_TRUE(also.eventually_asleep());
    queue.push(1);
    queue.push(2);
    EXPECT_TRUE(also.eventually_done());
    EXPECT_EQ(few, 2);
    for (size_t i = 0; i < 3; ++i) queue.push(i);
    EXPECT_TRUE(more.eventually_done());
    EXPECT_EQ(many, 3);
  }
}

// ---- the signal ----

TEST(CqSignal, WithoutAWaiterEndsTheNextWait) {
  TestDomain domain;
  TestCq queue(domain, cq_attr(FI_WAIT_FD));
  EXPECT_EQ(fi_cq_signal(queue.c()), 0);
  EXPECT_EQ(fi_cq_signal(queue.c()), 0);
  EXPECT_EQ(queue.sread(), -FI_EAGAIN);
  const uint64_t start = now_ns();
  EXPECT_EQ(queue.sread(20), -FI_EAGAIN) << "the signal ends one wait only";
  EXPECT_GE(now_ns() - start, 20'000'000u);
}

TEST(CqSignal, EndsAWaitBelowTheThreshold) {
  TestDomain domain;
  TestCq queue(domain, cq_threshold_attr());
  ssize_t got = 0;
  {
    Sleeper sleeper([&] { got = queue.sread(kPatienceMs, 4); });
    EXPECT_TRUE(sleeper.eventually_asleep());
    EXPECT_EQ(fi_cq_signal(queue.c()), 0);
  }
  EXPECT_EQ(got, -FI_EAGAIN);
  queue.push(1);
  {
    Sleeper sleeper([&] { got = queue.sread(kPatienceMs, 4); });
    EXPECT_TRUE(sleeper.eventually_asleep());
    EXPECT_EQ(fi_cq_signal(queue.c()), 0);
  }
  EXPECT_EQ(got, 1);
}

TEST(CqSignal, AllWaitersReturn) {
  TestDomain domain;
  TestCq queue(domain, cq_attr(FI_WAIT_FD));
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Sleeper>> waiters;
    for (int t = 0; t < 4; ++t)
      waiters.push_back(
          std::make_unique<Sleeper>([&] { EXPECT_EQ(queue.sread(2 * kPatienceMs), -FI_EAGAIN); }));
    for (auto &waiter : waiters) EXPECT_TRUE(waiter->eventually_asleep());
    EXPECT_EQ(fi_cq_signal(queue.c()), 0);
    for (auto &waiter : waiters) EXPECT_TRUE(waiter->eventually_done());
  }
}

TEST(CqSignal, IsNotConsumedByAReaderThatDoesNotWait) {
  TestDomain domain;
  TestCq queue(domain, cq_attr(FI_WAIT_FD));
  std::atomic<bool> stop{false};
  Sleeper spinner([&] {
    while (!stop) {
      EXPECT_EQ(queue.next(), -FI_EAGAIN);
      (void)queue.cq->trywait();
    }
  });
  for (int round = 0; round < 50; ++round) {
    Sleeper waiter([&] { EXPECT_EQ(queue.sread(2 * kPatienceMs), -FI_EAGAIN); });
    EXPECT_TRUE(waiter.eventually_asleep());
    EXPECT_EQ(fi_cq_signal(queue.c()), 0);
    EXPECT_TRUE(waiter.eventually_done());
  }
  stop = true;
}

// ---- waiting for the descriptor ----

TEST(CqNative, TheDescriptorIsReadableWhenThereIsSomethingToDo) {
  TestDomain domain;
  TestCq queue(domain, cq_attr(FI_WAIT_FD));
  int fd = -1;
  ASSERT_EQ(fi_control(queue.cq->base(), FI_GETWAIT, &fd), 0);
  enum fi_wait_obj type = FI_WAIT_NONE;
  EXPECT_EQ(fi_control(queue.cq->base(), FI_GETWAITOBJ, &type), 0);
  EXPECT_EQ(type, FI_WAIT_FD);
  EXPECT_EQ(fi_control(queue.cq->base(), FI_ENABLE, nullptr), -FI_ENOSYS);
  EXPECT_EQ(queue.cq->trywait(), 0);
  EXPECT_FALSE(readable(fd));
  queue.push(1);
  queue.push(2);
  EXPECT_TRUE(readable(fd));
  EXPECT_EQ(queue.cq->trywait(), -FI_EAGAIN);
  EXPECT_EQ(queue.next(), 1);
  EXPECT_EQ(queue.cq->trywait(), -FI_EAGAIN);
  EXPECT_TRUE(readable(fd));
  EXPECT_EQ(queue.next(), 2);
  EXPECT_EQ(queue.cq->trywait(), 0);
  EXPECT_FALSE(readable(fd));
  Event event;
  domain.engine.add(event, event.fd(), EPOLLIN, 0);
  event.signal();
  EXPECT_TRUE(readable(fd)) << "there is progress to be made";
  event.then = [&] { queue.cq->push({.context = ctx(3)}); };
  EXPECT_EQ(queue.cq->trywait(), -FI_EAGAIN);
  EXPECT_EQ(queue.next(), 3);
  domain.engine.remove(event);
}

TEST(CqNative, TrywaitThenPollMissesNothing) {
  TestDomain domain;
  TestCq queue(domain, cq_attr(FI_WAIT_FD));
  int fd = -1;
  ASSERT_EQ(fi_control(queue.cq->base(), FI_GETWAIT, &fd), 0);
  constexpr ssize_t kCount = 2000;
  Sleeper reader([&] {
    for (ssize_t i = 0; i < kCount;) {
      const ssize_t got = queue.next();
      if (got == -FI_EAGAIN) {
        if (queue.cq->trywait() == 0) {
          ASSERT_TRUE(readable(fd, kPatienceMs)) << "asleep at " << i;
        }
        continue;
      }
      ASSERT_EQ(got, i);
      ++i;
    }
  });
  for (ssize_t i = 0; i < kCount; ++i) {
    queue.push(size_t(i));
    if (i % 4 == 0) sched_yield();
  }
  EXPECT_TRUE(reader.eventually_done());
}

}  // namespace
}  // namespace weft::sdk
