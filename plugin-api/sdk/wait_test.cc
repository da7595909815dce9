// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "plugin-api/sdk/test_instance.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

int get_fd(WaitObject &wait) {
  int fd = -1;
  EXPECT_EQ(wait.control(FI_GETWAIT, &fd), 0);
  return fd;
}

// An engine with one event, which is a source.
struct Source {
  Source() {
    Guard guard(engine.lock());
    engine.add(event, event.fd(), EPOLLIN, EPOLLIN);
  }
  ~Source() {
    Guard guard(engine.lock());
    engine.remove(event);
  }
  void progress() {
    Guard guard(engine.lock());
    engine.progress();
  }
  Engine engine{true};
  Event event;
};

TEST(WaitObject, EveryTypeCanBeOpenedAndNothingElse) {
  for (int type = FI_WAIT_NONE; type <= FI_WAIT_POLLFD; ++type) {
    WaitObject wait;
    EXPECT_TRUE(wait.open(static_cast<enum fi_wait_obj>(type)));
    EXPECT_EQ(wait.type(), type);
    EXPECT_EQ(wait.can_block(), type != FI_WAIT_NONE && type != FI_WAIT_SET) << type;
  }
  WaitObject wait;
  auto opened = wait.open(static_cast<enum fi_wait_obj>(FI_WAIT_POLLFD + 1));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, FI_EINVAL);
}

TEST(WaitObject, TheDescriptorIsReadableWhileNotified) {
  const size_t before = open_files();
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_FD));
  wait.notify();
  wait.clear();
  EXPECT_EQ(open_files(), before) << "no descriptor without a waiter";
  const int fd = wait.fd();
  ASSERT_GE(fd, 0);
  EXPECT_EQ(wait.fd(), fd);
  EXPECT_FALSE(readable(fd));
  wait.notify();
  wait.notify();
  EXPECT_TRUE(readable(fd));
  wait.clear();
  EXPECT_FALSE(readable(fd));
  wait.notify();
  EXPECT_TRUE(readable(fd));
}

TEST(WaitObject, TheDescriptorIsReadableWhileASourceHasSomethingToDo) {
  Source held, other, late;
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_FD));
  EXPECT_TRUE(wait.add_source({.engine = &held.engine, .held = true}));
  EXPECT_TRUE(wait.add_source({.engine = &other.engine, .cm = true}));
  EXPECT_TRUE(wait.add_source({.engine = &other.engine, .cm = true}))
      << "a second call changes nothing";
  int fd;
  {
    Guard guard(held.engine.lock());
    fd = wait.fd();
    ASSERT_GE(fd, 0);
    EXPECT_TRUE(wait.add_source({.engine = &late.engine, .cm = true}));
  }
  for (Source *source : {&held, &other, &late}) {
    EXPECT_FALSE(readable(fd));
    source->event.signal();
    EXPECT_TRUE(readable(fd));
    source->progress();
    EXPECT_FALSE(readable(fd));
  }
  other.event.signal();
  wait.remove_source({.engine = &other.engine, .cm = true});
  EXPECT_FALSE(readable(fd));
  wait.remove_source({.engine = &other.engine, .cm = true});
}

// The kernel accepts one epoll set in a few other sets only. A relay serves the further ones. From
// outside both look the same.
TEST(WaitObject, ASourceMayHaveManyDescriptors) {
  constexpr size_t kMany = 40;
  TestInstance instance;
  for (const bool held : {true, false}) {
    Source source;
    std::vector<std::unique_ptr<WaitObject>> waits;
    std::vector<int> fds;
    for (size_t i = 0; i < kMany; ++i) {
      waits.push_back(std::make_unique<WaitObject>());
      WaitObject &wait = *waits.back();
      ASSERT_TRUE(wait.open(FI_WAIT_FD));
      wait.add_source({.engine = &source.engine, .cm = !held, .held = held});
      std::optional<Guard> guard;
      if (held) guard.emplace(source.engine.lock());
      fds.push_back(get_fd(wait));
    }
    for (int round = 0; round < 3; ++round) {
      for (size_t i = 0; i < kMany; ++i) {
        std::optional<Guard> guard;
        if (held) guard.emplace(source.engine.lock());
        waits[i]->clear();
        EXPECT_EQ(waits[i]->arm(instance.c(), FI_LOG_CQ), 0);
        EXPECT_EQ(waits[i]->arm_relays(), 0);
        EXPECT_FALSE(readable(fds[i])) << i;
      }
      source.event.signal();
      for (size_t i = 0; i < kMany; ++i) EXPECT_TRUE(readable(fds[i], kPatienceMs)) << i;
      source.progress();
      for (size_t i = 0; i < kMany; ++i) {
        waits[i]->clear();
        EXPECT_FALSE(readable(fds[i])) << i;
        waits[i]->notify();
        EXPECT_TRUE(readable(fds[i])) << i;
        waits[i]->clear();
      }
    }
    // Closed wait objects are not written any more. Their places in the sets are free again.
    source.event.signal();
    waits.clear();
    EXPECT_TRUE(source.engine.has_watch(!held));
  }
}

// ---- threads in blocking calls ----

TEST(WaitObjectWaiter, SleepsUntilTheEventOrUntilTheTimeIsOver) {
  TestInstance instance;
  Source source;
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_UNSPEC));
  wait.add_source({.engine = &source.engine});
  std::mutex owner;
  const auto sleep = [&](int timeout_ms) {
    std::unique_lock lock(owner);
    WaitObject::Waiter waiter(wait);
    waiter.looked();
    EXPECT_EQ(waiter.prepare(instance.c(), FI_LOG_CQ, "test"), 0);
    lock.unlock();
    waiter.block(timeout_ms);
    lock.lock();
  };
  const uint64_t start = now_ns();
  sleep(20);
  EXPECT_GE(now_ns() - start, 20'000'000u);
  EXPECT_FALSE(wait.awaited());
  {
    Sleeper sleeper([&] { sleep(-1); });
    EXPECT_TRUE(sleeper.eventually_asleep());
    EXPECT_FALSE(sleeper.done());
    std::unique_lock lock(owner);
    EXPECT_TRUE(wait.awaited());
    wait.notify();
    lock.unlock();
    EXPECT_TRUE(sleeper.eventually_done());
  }
  Sleeper sleeper([&] { sleep(-1); });
  EXPECT_TRUE(sleeper.eventually_asleep());
  source.event.signal();
  EXPECT_TRUE(sleeper.eventually_done());
}

TEST(WaitObjectWaiter, AnyNumberOfObjectsTakeNoDescriptors) {
  TestInstance instance;
  Source source;
  {
    Guard guard(source.engine.lock());
    ASSERT_GE(source.engine.wait_fd(), 0);
  }
  const auto sleep = [&](WaitObject &wait) {
    Guard guard(source.engine.lock());
    WaitObject::Waiter waiter(wait);
    waiter.looked();
    EXPECT_EQ(waiter.prepare(instance.c(), FI_LOG_CQ, "test"), 0);
    waiter.block(0);
    wait.notify();
    waiter.block(-1);
    waiter.looked();
    waiter.block(0);
    wait.notify();
  };
  std::vector<std::unique_ptr<WaitObject>> waits(2000);
  size_t before = 0;
  for (auto &wait : waits) {
    wait = std::make_unique<WaitObject>();
    ASSERT_TRUE(wait->open(FI_WAIT_UNSPEC));
    wait->add_source({.engine = &source.engine, .held = true});
    sleep(*wait);
    if (before == 0) before = open_files();
  }
  EXPECT_EQ(open_files(), before) << "one, of the thread";
}

TEST(WaitObjectWaiter, EachHasToLook) {
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_FD));
  const int fd = wait.fd();
  TestInstance instance;
  std::mutex owner;
  std::atomic<int> asleep{0}, rounds{0};
  const auto follow = [&] {
    std::unique_lock lock(owner);
    WaitObject::Waiter waiter(wait);
    for (int i = 0; i < 2; ++i) {
      waiter.looked();
      EXPECT_EQ(waiter.prepare(instance.c(), FI_LOG_CQ, "test"), 0);
      ++asleep;
      lock.unlock();
      waiter.block(kPatienceMs);
      lock.lock();
      ++rounds;
    }
  };
  Sleeper a(follow), b(follow);
  for (int i = 1; i <= 2; ++i) {
    ASSERT_TRUE(eventually([&] { return asleep == 2 * i; }));
    std::lock_guard lock(owner);
    wait.notify();
    EXPECT_TRUE(readable(fd));
    wait.clear();  // a reader that does not wait must not hide the notification from waiters
    EXPECT_FALSE(readable(fd));
  }
  EXPECT_TRUE(a.eventually_done());
  EXPECT_TRUE(b.eventually_done());
  EXPECT_EQ(rounds, 4);
}

TEST(WaitObjectWaiter, NoThreadMissesItsNumber) {
  // Each thread waits for its own share of a number that grows.
  TestInstance instance;
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_UNSPEC));
  std::mutex owner;
  int number = 0;
  constexpr int kRounds = 200;
  const auto follow = [&](int step) {
    return [&, step] {
      for (int target = step; target <= kRounds; target += step) {
        std::unique_lock lock(owner);
        WaitObject::Waiter waiter(wait);
        while (number < target) {
          waiter.looked();
          EXPECT_EQ(waiter.prepare(instance.c(), FI_LOG_CQ, "test"), 0);
          lock.unlock();
          waiter.block(kPatienceMs);
          lock.lock();
        }
      }
    };
  };
  Sleeper ones(follow(1)), fives(follow(5)), more(follow(5)), last(follow(kRounds));
  for (int i = 0; i < kRounds; ++i) {
    std::lock_guard lock(owner);
    ++number;
    wait.notify();
    wait.clear();  // a reader that does not wait
  }
  for (Sleeper *s : {&ones, &fives, &more, &last}) EXPECT_TRUE(s->eventually_done());
}

// ---- what the application gets ----

TEST(WaitObjectControl, AFileDescriptor) {
  for (const auto type : {FI_WAIT_FD, FI_WAIT_UNSPEC}) {
    WaitObject wait;
    ASSERT_TRUE(wait.open(type));
    EXPECT_EQ(get_fd(wait), wait.fd());
    enum fi_wait_obj said = FI_WAIT_NONE;
    EXPECT_EQ(wait.control(FI_GETWAITOBJ, &said), 0);
    EXPECT_EQ(said, FI_WAIT_FD);
  }
}

TEST(WaitObjectControl, PollFds) {
  Source source, late;
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

TEST(WaitObjectControl, NothingWhereThereIsNothing) {
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

TEST(WaitObjectArm, ByType) {
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

// A number behind a lock that its owner holds to look, to arm and to notify, as a queue's is.
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

TEST(WaitObjectCondition, ASourceSignalsIt) {
  TestInstance instance;
  Source source;
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

// ---- no descriptors left ----

TEST(WaitObjectFiles, IsAnErrorThatIsLoggedOnce) {
  TestInstance instance;
  Source source;
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_FD));
  EXPECT_TRUE(wait.add_source({.engine = &source.engine}));
  const size_t before = open_files();
  {
    NoMoreFiles none;
    none.in_another_thread([&] {
      WaitObject::Waiter waiter(wait);
      EXPECT_EQ(waiter.prepare(instance.c(), FI_LOG_CQ, "fi_cq_sread"), -EMFILE);
    });
    EXPECT_EQ(wait.arm(instance.c(), FI_LOG_CQ), -EMFILE);
    int fd = -1;
    EXPECT_EQ(wait.control(FI_GETWAIT, &fd), -EMFILE);
    wait.notify();
  }
  EXPECT_EQ(open_files(), before);
  EXPECT_THAT(instance.log(), ElementsAre(HasSubstr("fi_cq_sread: no descriptor")));
  EXPECT_THAT(instance.log(), ElementsAre(HasSubstr("ulimit -n")));
  const int fd = wait.fd();
  ASSERT_GE(fd, 0);
  source.event.signal();
  EXPECT_TRUE(readable(fd));
}

TEST(WaitObjectFiles, HalfOfThemDoNotLookLikeAll) {
  for (int allowed = 0; allowed < 4; ++allowed) {  // eventfd, epoll, the engine's timer and epoll
    Source source;
    WaitObject wait;
    ASSERT_TRUE(wait.open(FI_WAIT_FD));
    EXPECT_TRUE(wait.add_source({.engine = &source.engine}));
    std::vector<int> reserve;
    for (int i = 0; i < allowed; ++i) reserve.push_back(dup(0));
    {
      NoMoreFiles none;
      for (int fd : reserve) ::close(fd);
      EXPECT_EQ(wait.fd(), -EMFILE) << allowed;
    }
    const int fd = wait.fd();
    ASSERT_GE(fd, 0);
    source.event.signal();
    EXPECT_TRUE(readable(fd));
    wait.notify();
    source.progress();
    EXPECT_TRUE(readable(fd));
    wait.clear();
    EXPECT_FALSE(readable(fd));
  }
}

TEST(WaitObjectFiles, ASourceThatCannotBeWatchedIsNotPassedOver) {
  Source first, second;
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_FD));
  EXPECT_TRUE(wait.add_source({.engine = &first.engine}));
  const int fd = wait.fd();
  ASSERT_GE(fd, 0);
  {
    NoMoreFiles none;
    EXPECT_FALSE(wait.add_source({.engine = &second.engine}));
    EXPECT_EQ(wait.fd(), -EMFILE);
  }
  EXPECT_EQ(wait.fd(), fd);
  second.event.signal();
  EXPECT_TRUE(readable(fd));
  // One that goes before it could be watched leaves no trace.
  Source third;
  NoMoreFiles none;
  EXPECT_FALSE(wait.add_source({.engine = &third.engine}));
  wait.remove_source({.engine = &third.engine});
  EXPECT_EQ(wait.fd(), fd);
}

// ---- time ----

TEST(Deadline, PassesWhenItsTimeIsOver) {
  EXPECT_TRUE(Deadline(0).passed());
  EXPECT_EQ(Deadline(0).left_ms(), 0);
  EXPECT_FALSE(Deadline(-1).passed());
  EXPECT_EQ(Deadline(-1).left_ms(), -1);
  EXPECT_EQ(Deadline(-5).left_ms(), -1);
  Deadline far(INT32_MAX);
  EXPECT_FALSE(far.passed());
  EXPECT_GT(far.left_ms(), 0);
  const uint64_t start = now_ns();
  Deadline soon(10);
  EXPECT_TRUE(eventually([&] { return soon.passed(); }));
  EXPECT_GE(now_ns() - start, 10'000'000u);
  EXPECT_EQ(soon.left_ms(), 0);
}

}  // namespace
}  // namespace weft::sdk
