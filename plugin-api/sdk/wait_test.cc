// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <optional>

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
  EXPECT_EQ(open_files(), before) << "nobody waits: nothing was made";
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
  EXPECT_TRUE(wait.add_source({.engine = &other.engine, .cm = true})) << "twice is once";
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

TEST(WaitObject, BlockEndsWithTheEventOrWithTheTime) {
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_UNSPEC));
  const int fd = wait.fd();
  const uint64_t start = now_ns();
  WaitObject::block(fd, 20);
  EXPECT_GE(now_ns() - start, 20'000'000u);
  Sleeper sleeper([&] { WaitObject::block(fd, -1); });
  EXPECT_TRUE(sleeper.eventually_asleep());
  EXPECT_FALSE(sleeper.done());
  wait.notify();
  EXPECT_TRUE(sleeper.eventually_done());
}

// ---- several threads ----

TEST(WaitObjectWaiter, OnlyTheLastThatLookedLowers) {
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_FD));
  const int fd = wait.fd();
  EXPECT_FALSE(wait.awaited());
  WaitObject::Waiter a(wait), b(wait);
  EXPECT_TRUE(wait.awaited());
  wait.notify();
  a.looked();
  a.looked();
  EXPECT_TRUE(readable(fd)) << "b has not seen it";
  wait.clear();
  EXPECT_TRUE(readable(fd)) << "nor may a reader that does not wait hide it";
  b.looked();
  EXPECT_FALSE(readable(fd));
  // What a has seen is not all any more once there is more.
  wait.notify();
  a.looked();
  wait.notify();
  b.looked();
  EXPECT_TRUE(readable(fd));
  a.looked();
  EXPECT_FALSE(readable(fd));
}

TEST(WaitObjectWaiter, WhoeverComesLaterHasToLookToo) {
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_FD));
  const int fd = wait.fd();
  WaitObject::Waiter a(wait);
  wait.notify();
  std::optional<WaitObject::Waiter> b(std::in_place, wait);
  a.looked();
  EXPECT_TRUE(readable(fd));
  b->looked();
  EXPECT_FALSE(readable(fd));
  // One that leaves is not waited for, whether it had looked or not.
  wait.notify();
  b.reset();
  a.looked();
  EXPECT_FALSE(readable(fd));
  b.emplace(wait);
  wait.notify();
  b->looked();
  b.reset();
  EXPECT_TRUE(readable(fd));
  a.looked();
  EXPECT_FALSE(readable(fd));
}

TEST(WaitObjectWaiter, WithoutAnyAReaderClears) {
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_FD));
  const int fd = wait.fd();
  {
    WaitObject::Waiter a(wait);
    wait.notify();
  }
  EXPECT_TRUE(readable(fd));
  wait.clear();
  EXPECT_FALSE(readable(fd));
}

TEST(WaitObjectWaiter, NobodySleepsOverWhatHeWaitsFor) {
  // Each thread waits for its own share of a number that grows.
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
          const int fd = wait.fd();
          lock.unlock();
          WaitObject::block(fd, kPatienceMs);
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
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_POLLFD));
  fi_wait_pollfd out{};
  EXPECT_EQ(wait.control(FI_GETWAIT, &out), -FI_ETOOSMALL);
  EXPECT_EQ(out.nfds, 1u);
  EXPECT_EQ(wait.control(FI_GETWAIT, &out), -FI_EINVAL);
  pollfd fds[2] = {{-1, 0, 0}, {-1, 0, 0}};
  out.nfds = 2;
  out.fd = fds;
  const uint64_t index = out.change_index;
  EXPECT_EQ(wait.control(FI_GETWAIT, &out), 0);
  EXPECT_EQ(out.nfds, 1u);
  EXPECT_EQ(out.change_index, index) << "the descriptors are the same";
  EXPECT_EQ(fds[0].fd, wait.fd());
  EXPECT_EQ(fds[0].events, POLLIN);
  EXPECT_EQ(fds[1].fd, -1);
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
  // As applications wait: the mutex is held from the question to the wait.
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

TEST(WaitObjectCondition, NobodyWaitsForTheMutexOfTheApplication) {
  Numbers numbers;
  EXPECT_TRUE(numbers.trywait(0));
  pthread_mutex_lock(numbers.mutex);
  for (int i = 0; i < 10; ++i) {
    numbers.add();  // would hang
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
    EXPECT_EQ(wait.fd_for(instance.c(), FI_LOG_CQ, "fi_cq_sread"), -EMFILE);
    EXPECT_EQ(wait.arm(instance.c(), FI_LOG_CQ), -EMFILE);
    int fd = -1;
    EXPECT_EQ(wait.control(FI_GETWAIT, &fd), -EMFILE);
    wait.notify();
  }
  EXPECT_EQ(open_files(), before);
  EXPECT_THAT(instance.log(), ElementsAre(HasSubstr("fi_cq_sread: no descriptor")));
  EXPECT_THAT(instance.log(), ElementsAre(HasSubstr("ulimit -n")));
  const int fd = wait.fd_for(instance.c(), FI_LOG_CQ, "fi_cq_sread");
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
