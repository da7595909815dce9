// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/objects/cntr.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "plugin-api/sdk/testing/test_instance.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

fi_cntr_attr attr_of(enum fi_wait_obj wait = FI_WAIT_NONE,
                     enum fi_cntr_events events = FI_CNTR_EVENTS_COMP) {
  fi_cntr_attr attr{};
  attr.wait_obj = wait;
  attr.events = events;
  return attr;
}

// A counter of a domain without a provider. count() and fail() are the provider's side: they take
// its lock. The destructor closes the counter.
class Counter {
 public:
  Counter(TestDomain &domain, const fi_cntr_attr &attr) : domain_(domain) {
    auto opened = Cntr::open(domain.context, &attr, this);
    if (opened) {
      cntr = *opened;
    } else {
      ADD_FAILURE() << opened.error().text;
    }
  }
  ~Counter() {
    if (cntr != nullptr) {
      EXPECT_EQ(fi_close(cntr->base()), 0);
    }
  }
  fid_cntr *c() { return cntr->c(); }
  void count(uint64_t operations = 1, uint64_t bytes = 0) {
    Guard guard(domain_.engine.lock());
    cntr->add_events(operations, bytes);
  }
  void fail() {
    Guard guard(domain_.engine.lock());
    cntr->add_error();
  }
  int wait(uint64_t threshold, int timeout_ms = kPatienceMs) {
    return fi_cntr_wait(c(), threshold, timeout_ms);
  }

  Cntr *cntr = nullptr;

 private:
  TestDomain &domain_;
};

TEST(CntrOpen, WithoutAttributesOpensACounter) {
  TestDomain domain;
  auto opened = Cntr::open(domain.context, nullptr, &domain);
  ASSERT_TRUE(opened);
  EXPECT_EQ((*opened)->base()->context, &domain);
  EXPECT_EQ((*opened)->base()->fclass, size_t(FI_CLASS_CNTR));
  EXPECT_EQ(domain.context.children.load(), 1u);
  EXPECT_EQ(fi_cntr_read((*opened)->c()), 0u);
  EXPECT_EQ(fi_cntr_readerr((*opened)->c()), 0u);
  (*opened)->users.fetch_add(1);
  EXPECT_EQ(fi_close((*opened)->base()), -FI_EBUSY);
  (*opened)->users.fetch_sub(1);
  EXPECT_EQ(fi_close((*opened)->base()), 0);
}

TEST(CntrOpen, RefusesInvalidAttributes) {
  TestDomain domain;
  const auto code = [&](const fi_cntr_attr &attr) {
    auto opened = Cntr::open(domain.context, &attr, nullptr);
    EXPECT_FALSE(opened);
    return opened ? 0 : opened.error().code;
  };
  fi_cntr_attr attr = attr_of();
  put(attr.events, 7);
  EXPECT_EQ(code(attr), FI_EINVAL);
  attr = attr_of();
  put(attr.wait_obj, -1);
  EXPECT_EQ(code(attr), FI_EINVAL);
  attr = attr_of();
  attr.flags = 1;
  EXPECT_EQ(code(attr), FI_EBADFLAGS);
  EXPECT_EQ(code(attr_of(FI_WAIT_SET)), FI_EINVAL);
  domain.instance.refuse = true;
  EXPECT_EQ(code(attr_of(FI_WAIT_FD)), FI_EOTHER);
}

TEST(Cntr, CountsOperationsOrBytes) {
  TestDomain domain;
  Counter operations(domain, attr_of());
  Counter bytes(domain, attr_of(FI_WAIT_NONE, FI_CNTR_EVENTS_BYTES));
  for (Counter *counter : {&operations, &bytes}) {
    counter->count(1, 100);
    counter->count(2, 50);
    counter->fail();
    EXPECT_EQ(fi_cntr_readerr(counter->c()), 1u);
  }
  EXPECT_EQ(fi_cntr_read(operations.c()), 3u);
  EXPECT_EQ(fi_cntr_read(bytes.c()), 150u);
}

TEST(Cntr, TheApplicationMayAddAndSet) {
  TestDomain domain;
  Counter counter(domain, attr_of());
  counter.count(5);
  EXPECT_EQ(fi_cntr_add(counter.c(), 10), 0);
  EXPECT_EQ(fi_cntr_read(counter.c()), 15u);
  EXPECT_EQ(fi_cntr_set(counter.c(), 3), 0);
  EXPECT_EQ(fi_cntr_read(counter.c()), 3u);
  EXPECT_EQ(fi_cntr_add(counter.c(), ~UINT64_C(0)), 0);
  EXPECT_EQ(fi_cntr_read(counter.c()), 2u) << "counters wrap around";
  EXPECT_EQ(fi_cntr_adderr(counter.c(), 4), 0);
  counter.fail();
  EXPECT_EQ(fi_cntr_readerr(counter.c()), 5u);
  EXPECT_EQ(fi_cntr_seterr(counter.c(), 0), 0);
  EXPECT_EQ(fi_cntr_readerr(counter.c()), 0u);
  EXPECT_EQ(fi_cntr_read(counter.c()), 2u);
}

TEST(Cntr, ReadingMakesProgress) {
  TestDomain domain;
  Counter counter(domain, attr_of());
  Event event;
  domain.engine.add(event, event.fd(), EPOLLIN, 0);
  event.then = [&] { counter.cntr->add_events(1, 0); };
  event.signal();
  EXPECT_EQ(fi_cntr_read(counter.c()), 1u);
  event.then = [&] { counter.cntr->add_error(); };
  event.signal();
  EXPECT_EQ(fi_cntr_readerr(counter.c()), 1u);
  domain.engine.remove(event);
}

// ---- waiting ----

class CntrWait : public ::testing::TestWithParam<enum fi_wait_obj> {};
INSTANTIATE_TEST_SUITE_P(Objects, CntrWait,
                         ::testing::Values(FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_POLLFD,
                                           FI_WAIT_YIELD, FI_WAIT_MUTEX_COND));

TEST_P(CntrWait, TimesOut) {
  TestDomain domain;
  Counter counter(domain, attr_of(GetParam()));
  const uint64_t start = now_ns();
  EXPECT_EQ(counter.wait(1, 30), -FI_ETIMEDOUT);
  EXPECT_GE(now_ns() - start, 30'000'000u);
  EXPECT_EQ(counter.wait(1, 0), -FI_ETIMEDOUT);
  EXPECT_EQ(fi_cntr_readerr(counter.c()), 0u);
  EXPECT_EQ(counter.wait(0), 0) << "nothing has to be waited for";
  counter.count(2);
  EXPECT_EQ(counter.wait(1, 0), 0);
  EXPECT_EQ(counter.wait(2, -1), 0);
}

TEST_P(CntrWait, EndsWhenTheThresholdIsReached) {
  TestDomain domain;
  Counter counter(domain, attr_of(GetParam()));
  for (uint64_t i = 1; i <= 40; ++i) {
    int rc = -1;
    Sleeper sleeper([&] { rc = counter.wait(2 * i, i % 2 != 0 ? -1 : kPatienceMs); });
    if (i % 8 == 0 && GetParam() != FI_WAIT_YIELD) {
      EXPECT_TRUE(sleeper.eventually_asleep());
    }
    counter.count();
    EXPECT_FALSE(sleeper.done());
    if (i % 3 == 0) {
      EXPECT_EQ(fi_cntr_add(counter.c(), 1), 0);
    } else {
      counter.count();
    }
    sleeper.join();
    EXPECT_EQ(rc, 0);
  }
}

TEST_P(CntrWait, TheWaitingThreadMakesProgressItself) {
  TestDomain domain;
  Counter counter(domain, attr_of(GetParam()));
  Event event;
  event.then = [&] { counter.cntr->add_events(1, 0); };
  {
    Guard guard(domain.engine.lock());
    domain.engine.add(event, event.fd(), EPOLLIN, 0);
  }
  for (uint64_t i = 1; i <= 20; ++i) {
    int rc = -1;
    Sleeper sleeper([&] { rc = counter.wait(i); });
    if (i % 5 == 0 && GetParam() != FI_WAIT_YIELD) {
      EXPECT_TRUE(sleeper.eventually_asleep());
    }
    event.signal();
    sleeper.join();
    EXPECT_EQ(rc, 0);
  }
  Guard guard(domain.engine.lock());
  domain.engine.remove(event);
}

TEST_P(CntrWait, AnErrorEndsIt) {
  TestDomain domain;
  Counter counter(domain, attr_of(GetParam()));
  counter.fail();
  EXPECT_EQ(counter.wait(1, 5), -FI_ETIMEDOUT) << "an error from before the wait does not";
  for (const bool by_application : {false, true}) {
    int rc = 0;
    Sleeper sleeper([&] { rc = counter.wait(1); });
    if (GetParam() != FI_WAIT_YIELD) {
      EXPECT_TRUE(sleeper.eventually_asleep());
      by_application ? void(fi_cntr_adderr(counter.c(), 1)) : counter.fail();
    } else {
      while (!sleeper.done()) counter.fail();  // until it has begun
    }
    sleeper.join();
    EXPECT_EQ(rc, -FI_EAVAIL);
  }
}

TEST_P(CntrWait, EachThreadHasItsOwnThreshold) {
  TestDomain domain;
  Counter counter(domain, attr_of(GetParam()));
  std::vector<std::unique_ptr<Sleeper>> threads;
  constexpr uint64_t kCount = 300;
  for (const uint64_t step : {1, 3, 100, 300})
    threads.push_back(std::make_unique<Sleeper>([&counter, step] {
      for (uint64_t i = step; i <= kCount; i += step) ASSERT_EQ(counter.wait(i), 0);
    }));
  for (uint64_t i = 0; i < kCount; ++i) {
    counter.count();
    (void)counter.cntr->trywait();  // from a thread that does not block
    if (i % 8 == 0) sched_yield();
  }
  for (auto &thread : threads) EXPECT_TRUE(thread->eventually_done());
}

TEST(CntrWaitObject, IsNeededToSleep) {
  TestDomain domain;
  Counter counter(domain, attr_of(FI_WAIT_NONE));
  EXPECT_EQ(counter.wait(1, 0), -FI_ETIMEDOUT) << "it yields";
  EXPECT_EQ(counter.cntr->trywait(), -FI_EINVAL);
  int fd;
  EXPECT_EQ(fi_control(counter.cntr->base(), FI_GETWAIT, &fd), -FI_ENODATA);
}

TEST(CntrWaitObject, WithoutDescriptorsIsAnError) {
  TestDomain domain;
  Counter counter(domain, attr_of(FI_WAIT_FD));
  {
    NoMoreFiles none;
    EXPECT_EQ(counter.wait(1), -FI_EMFILE);
    EXPECT_EQ(counter.cntr->trywait(), -FI_EMFILE);
    counter.count();
    EXPECT_EQ(counter.wait(1), 0);
  }
  EXPECT_THAT(domain.instance.log(), ElementsAre(HasSubstr("fi_cntr_wait")));
  EXPECT_EQ(counter.wait(2, 5), -FI_ETIMEDOUT);
}

TEST(CntrWaitObject, AnExceptionOfAHandlerLeavesNothingLocked) {
  TestDomain domain;
  Counter counter(domain, attr_of(FI_WAIT_FD));
  Event event;
  event.then = [] { throw std::bad_alloc(); };
  domain.engine.add(event, event.fd(), EPOLLIN, 0);
  event.signal();
  EXPECT_EQ(counter.wait(1), -FI_ENOMEM);
  Sleeper other([&] { counter.count(); });
  EXPECT_TRUE(other.eventually_done());
  domain.engine.remove(event);
}

// ---- polling, and waiting for the descriptor ----

TEST(CntrPoll, ReportsEachChangeOnce) {
  TestDomain domain;
  Counter counter(domain, attr_of());
  EXPECT_FALSE(counter.cntr->poll());
  counter.count();
  EXPECT_TRUE(counter.cntr->poll());
  EXPECT_FALSE(counter.cntr->poll());
  counter.fail();
  EXPECT_TRUE(counter.cntr->poll());
  EXPECT_FALSE(counter.cntr->poll());
}

TEST(CntrPoll, ReportsAValueThatIsReachedAgain) {
  // Each step of an application sets the counter to 0 and waits for the same number.
  TestDomain domain;
  Counter counter(domain, attr_of(FI_WAIT_FD));
  for (int step = 0; step < 3; ++step) {
    counter.count(3);
    EXPECT_TRUE(counter.cntr->poll());
    EXPECT_FALSE(counter.cntr->poll());
    EXPECT_EQ(fi_cntr_set(counter.c(), 0), 0);
  }
  counter.count(3);
  EXPECT_EQ(counter.cntr->trywait(), -FI_EAGAIN);
  EXPECT_EQ(counter.cntr->trywait(), 0);
  EXPECT_EQ(fi_cntr_set(counter.c(), 0), 0);
  counter.count(3);
  EXPECT_EQ(counter.cntr->trywait(), -FI_EAGAIN);
}

TEST(CntrNative, TrywaitThenPollMissesNothing) {
  TestDomain domain;
  Counter counter(domain, attr_of(FI_WAIT_FD));
  int fd = -1;
  ASSERT_EQ(fi_control(counter.cntr->base(), FI_GETWAIT, &fd), 0);
  EXPECT_EQ(counter.cntr->trywait(), 0);
  EXPECT_FALSE(readable(fd));
  constexpr uint64_t kCount = 1000;
  std::atomic<uint64_t> seen{0};
  Sleeper reader([&] {
    while (seen < kCount) {
      seen = fi_cntr_read(counter.c());
      if (seen < kCount && counter.cntr->trywait() == 0) {
        ASSERT_TRUE(readable(fd, kPatienceMs)) << "asleep at " << seen;
      }
    }
  });
  for (uint64_t i = 1; i <= kCount; ++i) {
    counter.count();
    // In lock-step, so that it sleeps each time.
    if (i % 4 == 0) {
      ASSERT_TRUE(eventually([&] { return seen >= i; }));
    }
  }
  EXPECT_TRUE(reader.eventually_done());
}

}  // namespace
}  // namespace weft::sdk
