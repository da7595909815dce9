// SPDX-License-Identifier: BSD-2-Clause
// The thread of an engine, and the objects that an engine polls.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "plugin-api/sdk/testing/test_engine.h"
#include "weft/sdk/progress/engine.h"

namespace weft::sdk {
namespace {

// ---- the thread ----

TEST(EngineThread, MakesProgressByItself) {
  EngineOf e(3);
  ASSERT_TRUE(e.engine.start_thread());
  EXPECT_TRUE(e.engine.threaded());
  ASSERT_TRUE(e.engine.start_thread()) << "a second time changes nothing";
  for (int round = 1; round <= 50; ++round) {
    for (auto &handler : e.handlers) handler->signal();
    for (auto &handler : e.handlers)
      ASSERT_TRUE(eventually([&] { return handler->seen() >= round; }));
  }
  e.engine.stop_thread();
  EXPECT_FALSE(e.engine.threaded());
  e.engine.stop_thread();
}

TEST(EngineThread, IsWokenByCallsOfOtherThreads) {
  EngineOf e(1);
  ASSERT_TRUE(e.engine.start_thread());
  for (int round = 1; round <= 50; ++round) {
    {
      Guard guard(e.engine.lock());
      e.engine.mark_dirty(e[0]);
      e.engine.set_deadline(e[0], now_ns() + kMs);
    }
    ASSERT_TRUE(eventually([&] { return e[0].flushes() == round && e[0].deadlines() == round; }));
  }
  Event late;
  late.signal();
  {
    Guard guard(e.engine.lock());
    e.engine.add(late, late.fd(), EPOLLIN, 0);
  }
  EXPECT_TRUE(eventually([&] { return late.seen() == 1; }));
  Guard guard(e.engine.lock());
  e.engine.remove(late);
}

TEST(EngineThread, CanBeStartedAgain) {
  EngineOf e(1);
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(e.engine.start_thread());
    e[0].signal();
    EXPECT_TRUE(eventually([&] { return e[0].seen() == i; }));
    e.engine.stop_thread();
  }
}

TEST(EngineThread, ManyThreadsStartAndStopIt) {
  EngineOf e(1);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ready{0};
    std::vector<std::unique_ptr<Sleeper>> threads;
    for (int t = 0; t < 4; ++t)
      threads.push_back(std::make_unique<Sleeper>([&] {
        ++ready;
        while (ready < 4) sched_yield();
        EXPECT_TRUE(e.engine.start_thread());
      }));
    threads.clear();
    EXPECT_TRUE(e.engine.threaded());
    for (int t = 0; t < 2; ++t)
      threads.push_back(std::make_unique<Sleeper>([&] { e.engine.stop_thread(); }));
    threads.clear();
    EXPECT_FALSE(e.engine.threaded());
  }
}

TEST(EngineThread, FlushesAHandlerThatIsMarkedWhileItStarts) {
  EngineOf e(1);
  for (int round = 1; round <= 100; ++round) {
    {
      Sleeper other([&] {
        Guard guard(e.engine.lock());
        e.engine.mark_dirty(e[0]);
      });
      ASSERT_TRUE(e.engine.start_thread());
    }
    ASSERT_TRUE(eventually([&] { return e[0].flushes() == round; }));
    e.engine.stop_thread();
  }
}

TEST(EngineThread, IsRefusedInASerializedDomain) {
  Engine engine(false);
  auto started = engine.start_thread();
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, FI_EINVAL);
  EXPECT_FALSE(engine.threaded());
}

TEST(EngineThread, ABadAllocOfAHandlerDoesNotEndTheProcess) {
  EngineOf e(1);
  e[0].then = [] { throw std::bad_alloc(); };
  ASSERT_TRUE(e.engine.start_thread());
  for (int round = 1; round <= 3; ++round) {
    e[0].signal();
    EXPECT_TRUE(eventually([&] { return e[0].seen() == round; }));
  }
}

TEST(EngineThread, SleepsWhileAHandlerMarksItself) {
  // Like an endpoint with a full completion queue: it tries again at each progress call.
  EngineOf e(1);
  e[0].then_flush = [&] { e.engine.mark_dirty(e[0]); };
  ASSERT_TRUE(e.engine.start_thread());
  const auto rounds = [&] {
    Guard guard(e.engine.lock());
    return e.engine.rounds();
  };
  {
    Guard guard(e.engine.lock());
    e.engine.mark_dirty(e[0]);
  }
  ASSERT_TRUE(eventually([&] { return e[0].flushes() != 0; }));
  // Then the thread sleeps: at most one more round within 30 ms.
  uint64_t before = rounds();
  const uint64_t end = now_ns() + 30 * kMs;
  while (now_ns() < end) sched_yield();
  EXPECT_LE(rounds() - before, 1u);
  // A signal from another thread still wakes it.
  const int flushes = e[0].flushes();
  e[0].signal();
  EXPECT_TRUE(eventually([&] { return e[0].flushes() > flushes; }));
  Guard guard(e.engine.lock());
  e[0].then_flush = nullptr;
}

TEST(EngineThread, ManyThreadsUseTheEngineAtOnce) {
  EngineOf e(4);
  ASSERT_TRUE(e.engine.start_thread());
  {
    std::vector<std::unique_ptr<Sleeper>> threads;
    for (int t = 0; t < 3; ++t)
      threads.push_back(std::make_unique<Sleeper>([&e] {
        for (int i = 0; i < 300; ++i) {
          Event own;
          own.signal();
          {
            Guard guard(e.engine.lock());
            e.engine.add(own, own.fd(), EPOLLIN, EPOLLIN);
            e.engine.set_deadline(own, now_ns() + (i % 3) * kMs / 4);
            e.engine.mark_dirty(own);
            if (i % 2 != 0) e.engine.progress();
          }
          sched_yield();
          Guard guard(e.engine.lock());
          e.engine.remove(own);
        }
      }));
  }
  e[3].signal();
  EXPECT_TRUE(eventually([&] { return e[3].seen() == 1; }));
}

// An object of an inner provider. Only calls make it progress. Its descriptor wakes a thread only
// if the thread has armed it since the last event.
class InnerObject final : public Poller {
 public:
  InnerObject() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~InnerObject() { ::close(fd_); }
  void happen() {
    std::lock_guard guard(mutex_);
    ++waiting_;
    if (armed_) eventfd_write(fd_, 1);
    armed_ = false;
  }
  void on_poll() override {
    std::lock_guard guard(mutex_);
    ++polls;
    seen += waiting_;
    waiting_ = busy ? 1 : 0;
    eventfd_t count;
    eventfd_read(fd_, &count);
  }
  int wait_fds(std::vector<int> &fds) override {
    ++asked;
    fds.push_back(fd_);
    return refused ? -EMFILE : 0;
  }
  bool may_wait() override {
    std::lock_guard guard(mutex_);
    armed_ = waiting_ == 0;
    return armed_;
  }

  std::atomic<int> polls{0}, seen{0}, asked{0};
  std::atomic<bool> busy{false}, refused{false};

 private:
  const int fd_;
  std::mutex mutex_;
  int waiting_ = 0;
  bool armed_ = false;
};

// One with a descriptor per connection, as a device has: each of them wakes the thread.
class ManyDescriptors final : public Poller {
 public:
  explicit ManyDescriptors(size_t count) { grow(count); }
  ~ManyDescriptors() {
    for (const int fd : fds) ::close(fd);
  }
  void grow(size_t count) {
    while (fds.size() < count) fds.push_back(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  }
  void on_poll() override {
    for (const int fd : fds) {
      eventfd_t count;
      if (eventfd_read(fd, &count) == 0) ++seen;
    }
  }
  int wait_fds(std::vector<int> &out) override {
    out.insert(out.end(), fds.begin(), fds.end());
    return 0;
  }
  bool may_wait() override { return true; }

  std::vector<int> fds;
  int seen = 0;
};

TEST(EnginePoller, MayHaveAnyNumberOfDescriptors) {
  for (const size_t count : {0, 1, 2, 9, 100, 300}) {
    SCOPED_TRACE(count);
    Engine engine{true};
    ManyDescriptors inner(count);
    Guard guard(engine.lock());
    engine.add_poller(inner);
    const int fd = engine.wait_fd();
    ASSERT_GE(fd, 0);
    const auto each_wakes = [&] {
      inner.seen = 0;
      for (const int one : inner.fds) {
        engine.progress();
        ASSERT_FALSE(readable(fd));
        eventfd_write(one, 1);
        ASSERT_TRUE(readable(fd));
      }
      engine.progress();
      EXPECT_EQ(inner.seen, int(inner.fds.size()));
    };
    each_wakes();
    inner.grow(2 * count + 1);  // while it is waited for
    engine.rewatch(inner);
    each_wakes();
    const int last = inner.fds.back();
    inner.fds.pop_back();
    engine.rewatch(inner);
    engine.progress();
    eventfd_write(last, 1);
    EXPECT_FALSE(readable(fd)) << "it is not the poller's any more";
    ::close(last);
    each_wakes();
    engine.remove_poller(inner);
  }
}

TEST(EnginePoller, EachProgressPollsOnceAndAsksForNoDescriptor) {
  Engine engine{true};
  InnerObject inner;
  Guard guard(engine.lock());
  engine.add_poller(inner);
  inner.happen();
  for (int i = 0; i < 3; ++i) engine.progress();
  EXPECT_EQ(inner.polls, 3);
  EXPECT_EQ(inner.seen, 1);
  EXPECT_EQ(inner.asked, 0);
  EXPECT_TRUE(engine.spinning());
  engine.remove_poller(inner);
  engine.progress();
  EXPECT_EQ(inner.polls, 3);
}

TEST(EnginePoller, AnEventOfTheInnerObjectWakesABlockedThread) {
  Engine engine{true};
  InnerObject inner, late;
  Guard guard(engine.lock());
  engine.add_poller(inner);
  inner.happen();  // before a thread waits: the wait must notice it
  const int fd = engine.wait_fd();
  ASSERT_GE(fd, 0);
  engine.progress();
  EXPECT_EQ(inner.seen, 1);
  EXPECT_FALSE(readable(fd)) << "nothing to do, and no reader sleeps";
  for (int i = 0; i < 3; ++i) {
    inner.happen();
    EXPECT_TRUE(readable(fd));
    engine.progress();
    EXPECT_FALSE(readable(fd));
  }
  EXPECT_EQ(inner.seen, 4);
  engine.add_poller(late);  // while the descriptor is in use
  late.happen();
  EXPECT_TRUE(readable(fd));
  engine.progress();
  EXPECT_EQ(late.seen, 1);
  engine.remove_poller(late);
  engine.remove_poller(inner);
  inner.happen();
  EXPECT_FALSE(readable(fd));
}

TEST(EnginePoller, ABusyInnerObjectKeepsTheDescriptorReadable) {
  Engine engine{true};
  InnerObject inner;
  Guard guard(engine.lock());
  engine.add_poller(inner);
  const int fd = engine.wait_fd();
  ASSERT_GE(fd, 0);
  inner.busy = true;
  inner.happen();
  engine.progress();
  EXPECT_TRUE(readable(fd, kPatienceMs));
  inner.busy = false;
  engine.progress();
  engine.progress();
  EXPECT_FALSE(readable(fd)) << "it is no longer busy";
  engine.remove_poller(inner);
}

TEST(EnginePoller, WithoutADescriptorBlockingIsAnError) {
  Engine engine{true};
  InnerObject inner;
  Guard guard(engine.lock());
  engine.add_poller(inner);
  inner.refused = true;
  EXPECT_EQ(engine.wait_fd(), -EMFILE);
  inner.refused = false;
  EXPECT_GE(engine.wait_fd(), 0);
  engine.remove_poller(inner);
}

TEST(EnginePoller, TheThreadSleepsUntilSomethingHappens) {
  Engine engine{true};
  InnerObject inner;
  {
    Guard guard(engine.lock());
    engine.add_poller(inner);
  }
  ASSERT_TRUE(engine.start_thread());
  for (int i = 1; i <= 50; ++i) {
    inner.happen();
    EXPECT_TRUE(eventually([&] { return inner.seen == i; }));
  }
  engine.stop_thread();
  Guard guard(engine.lock());
  engine.remove_poller(inner);
}

}  // namespace
}  // namespace weft::sdk
