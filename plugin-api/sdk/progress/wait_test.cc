// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/progress/wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "plugin-api/sdk/testing/test_instance.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

int get_fd(WaitObject &wait) {
  int fd = -1;
  EXPECT_EQ(wait.control(FI_GETWAIT, &fd), 0);
  return fd;
}

TEST(WaitObject, OpensTheKnownTypesOnly) {
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
  EventSource held, other, late;
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
  for (EventSource *source : {&held, &other, &late}) {
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
    EventSource source;
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

TEST(WaitObjectWaiter, SleepsUntilAnEventOrTheTimeout) {
  TestInstance instance;
  EventSource source;
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

// A source that has something to do all the time: no poll sleeps, and the signal comes in between.
TEST(WaitObjectWaiter, ASignalIsSeenWhereNoPollSleeps) {
  TestInstance instance;
  EventSource source;
  WaitObject wait;
  ASSERT_TRUE(wait.open(FI_WAIT_UNSPEC));
  wait.add_source({.engine = &source.engine});
  source.event.signal();
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {};
  sigaction(SIGUSR1, &action, &before);
  {
    WaitObject::Waiter waiter(wait);
    const auto block = [&] {
      waiter.looked();
      EXPECT_EQ(waiter.prepare(instance.c(), FI_LOG_CQ, "test"), 0);
      return waiter.block(-1);
    };
    EXPECT_TRUE(block());
    EXPECT_TRUE(block());
    pthread_kill(pthread_self(), SIGUSR1);
    EXPECT_FALSE(block());
    EXPECT_TRUE(block()) << "it is told once";
  }
  sigset_t now;
  pthread_sigmask(SIG_BLOCK, nullptr, &now);
  EXPECT_EQ(sigismember(&now, SIGUSR1), 0) << "signals are as before the call";
  sigaction(SIGUSR1, &before, nullptr);
}

TEST(WaitObjectWaiter, ManyObjectsNeedNoDescriptorsOfTheirOwn) {
  TestInstance instance;
  EventSource source;
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
  EXPECT_EQ(open_files(), before) << "only the thread has one";
}

TEST(WaitObjectWaiter, ANotificationWakesEachWaiter) {
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

TEST(WaitObjectWaiter, NoThreadMissesANotification) {
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

// ---- no descriptors left ----

TEST(WaitObjectFiles, NoDescriptorIsAnErrorThatIsLoggedOnce) {
  TestInstance instance;
  EventSource source;
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

TEST(WaitObjectFiles, TooFewDescriptorsAreAnErrorUntilThereAreEnough) {
  for (int allowed = 0; allowed < 4; ++allowed) {  // eventfd, epoll, the engine's timer and epoll
    EventSource source;
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

TEST(WaitObjectFiles, ASourceThatCouldNotBeWatchedIsTriedAgain) {
  EventSource first, second;
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
  // A source that is removed before it could be watched leaves no trace.
  EventSource third;
  NoMoreFiles none;
  EXPECT_FALSE(wait.add_source({.engine = &third.engine}));
  wait.remove_source({.engine = &third.engine});
  EXPECT_EQ(wait.fd(), fd);
}

// ---- time ----

TEST(Deadline, PassesAfterItsTime) {
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
