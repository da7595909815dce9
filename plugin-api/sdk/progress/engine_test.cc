// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/progress/engine.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "plugin-api/sdk/testing/test_engine.h"

namespace weft::sdk {
namespace {

// The number of handlers decides how the engine polls them.
class EngineModes : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Handlers, EngineModes, ::testing::Values(1, 2, 3, 5, 150));

TEST_P(EngineModes, EachReadyHandlerIsCalledOnce) {
  EngineOf e(GetParam());
  e.settle();
  for (auto &handler : e.handlers) EXPECT_EQ(handler->seen(), 0);
  for (auto &handler : e.handlers) handler->signal();
  EXPECT_TRUE(eventually([&] {
    e.progress();
    return std::ranges::all_of(e.handlers, [](auto &h) { return h->seen() == 1; });
  }));
  e.settle();
  for (auto &handler : e.handlers) EXPECT_EQ(handler->seen(), 1);
}

// A thread that yields its core after one progress call without a result must find every ready
// handler by one call, even if another handler was busy before.
TEST_P(EngineModes, OneCallFindsEveryReadyHandler) {
  EngineOf e(GetParam());
  for (auto &busy : e.handlers) {
    for (auto &ready : e.handlers) {
      if (busy == ready) continue;
      busy->signal();
      e.settle();
      for (int before = 0; before < 4; ++before) {  // at any position in the rotation
        const int seen = ready->seen();
        ready->signal();
        e.progress();
        ASSERT_EQ(ready->seen(), seen + 1);
        busy->signal();
        e.settle();
        for (int i = 0; i < before; ++i) e.progress();
      }
      if (e.handlers.size() > 5) break;
    }
  }
}

// A handler that always has more input does not delay the other handlers.
TEST_P(EngineModes, ABusyHandlerDoesNotDelayTheOthers) {
  EngineOf e(GetParam());
  if (e.handlers.size() < 2) return;
  Event &busy = *e.handlers[0];
  busy.keep = true;
  busy.then = [&e] { e.engine.had_input(); };
  busy.signal();
  e.settle();
  for (size_t i = 1; i < e.handlers.size(); ++i) e[i].signal();
  EXPECT_TRUE(eventually([&] {
    e.progress();
    return std::all_of(e.handlers.begin() + 1, e.handlers.end(),
                       [](auto &h) { return h->seen() == 1; });
  }));
}

TEST_P(EngineModes, ChangeSetsTheEvents) {
  EngineOf e(GetParam());
  Event &last = *e.handlers.back();
  e.engine.change(last, 0, 0);
  last.signal();
  e.settle();
  EXPECT_EQ(last.seen(), 0);
  e.engine.change(last, EPOLLIN | EPOLLOUT, 0);
  e.settle();
  EXPECT_EQ(last.seen(), 1);
  EXPECT_TRUE(eventually([&] {
    e.progress();
    return (last.last_events() & EPOLLOUT) != 0;
  }));
}

TEST_P(EngineModes, AHandlerMayRemoveItself) {
  EngineOf e(GetParam());
  for (size_t i = 0; i < e.handlers.size(); ++i) {
    e[i].then = [&e, i] { e.drop(i); };
    e[i].signal();
  }
  EXPECT_TRUE(eventually([&] {
    e.progress();
    return std::ranges::all_of(e.handlers, [](auto &h) { return h == nullptr; });
  }));
  e.settle();
}

TEST_P(EngineModes, AHandlerMayRemoveAllOthers) {
  EngineOf e(GetParam());
  for (size_t i = 0; i < e.handlers.size(); ++i) {
    e[i].then = [&e, i] {
      for (size_t k = 0; k < e.handlers.size(); ++k)
        if (k != i) e.drop(k);
    };
    e[i].signal();
  }
  e.settle();
  // Only the handler that was called first is left. The engine still calls it.
  const auto left = std::ranges::find_if(e.handlers, [](auto &h) { return h != nullptr; });
  ASSERT_NE(left, e.handlers.end());
  EXPECT_EQ(std::ranges::count_if(e.handlers, [](auto &h) { return h != nullptr; }), 1);
  EXPECT_EQ((*left)->seen(), 1);
  (*left)->then = nullptr;
  (*left)->signal();
  e.settle();
  EXPECT_EQ((*left)->seen(), 2);
}

TEST_P(EngineModes, AHandlerMayReplaceItself) {
  // As a listening socket adds connections, and a connection that ends makes room for another.
  EngineOf e(GetParam());
  for (size_t i = 0; i < e.handlers.size(); ++i) {
    e[i].then = [&e, i] {
      e.engine.remove(*e.handlers[i]);
      auto old = std::exchange(e.handlers[i], std::make_unique<Event>());
      e.engine.add(*e.handlers[i], e[i].fd(), EPOLLIN, 0);
    };
    e[i].signal();
  }
  EXPECT_TRUE(eventually([&] {
    e.progress();
    return std::ranges::all_of(e.handlers, [](auto &h) { return h->then == nullptr; });
  }));
  for (auto &handler : e.handlers) handler->signal();
  EXPECT_TRUE(eventually([&] {
    e.progress();
    return std::ranges::all_of(e.handlers, [](auto &h) { return h->seen() == 1; });
  }));
}

TEST_P(EngineModes, AHandlerThatStaysReadyDoesNotStarveTheOthers) {
  EngineOf e(GetParam());
  e[0].keep = true;
  e[0].signal();
  e.settle();
  for (size_t i = 1; i < e.handlers.size(); ++i) {
    e[i].signal();
    e.settle();
    EXPECT_EQ(e[i].seen(), 1) << i;
  }
  EXPECT_GE(e[0].seen(), 8);
}

TEST_P(EngineModes, TheDescriptorIsReadableWhileThereIsSomethingToDo) {
  EngineOf e(GetParam());
  EXPECT_TRUE(e.engine.spinning());
  const int fd = e.engine.wait_fd();
  ASSERT_GE(fd, 0);
  EXPECT_EQ(e.engine.wait_fd(), fd);
  EXPECT_FALSE(e.engine.spinning());
  EXPECT_FALSE(readable(fd));
  e.handlers.back()->signal();
  EXPECT_TRUE(readable(fd));
  e.settle();
  EXPECT_EQ(e.handlers.back()->seen(), 1);
  EXPECT_FALSE(readable(fd));
  // A handler that is added later wakes the set too.
  Event late;
  late.signal();
  e.engine.add(late, late.fd(), EPOLLIN, 0);
  EXPECT_TRUE(readable(fd));
  e.engine.remove(late);
  EXPECT_FALSE(readable(fd));
}

// ---- order ----

class EngineOrder : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Handlers, EngineOrder, ::testing::Values(2, 3, 20));

// Whatever was served before, and in whatever order.
TEST_P(EngineOrder, IsThatInWhichTheyBecameReady) {
  EngineOf e(GetParam(), EPOLLIN | EPOLLET);
  std::vector<size_t> all(GetParam()), seen, expected;
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = i;
    e[i].then = [&, i] { seen.push_back(i); };
  }
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::ranges::shuffle(all, random);
    expected.assign(all.begin(), all.begin() + ptrdiff_t(1 + random() % all.size()));
    for (const size_t i : expected) e[i].signal();
    seen.clear();
    e.progress();
    ASSERT_EQ(seen, expected) << "round " << round;
    if (random() % 4 == 0) e.settle();
  }
}

TEST_P(EngineOrder, AHandlerWithMoreToDoComesAgainBehindTheOthers) {
  EngineOf e(GetParam(), EPOLLIN | EPOLLET);
  std::vector<size_t> seen;
  e[0].keep = true;  // does not read all
  e[0].then = [&] {
    seen.push_back(0);
    if (seen.size() != 1) return;
    e[1].signal();
    e.engine.rearm(e[0]);
  };
  e[1].then = [&] { seen.push_back(1); };
  e[0].signal();
  e.settle();
  EXPECT_EQ(seen, (std::vector<size_t>{0, 1, 0}));
}

TEST(Engine, ConnectionEventsWakeOnlyTheirOwnSet) {
  EngineOf e(1, EPOLLIN, EPOLLIN | EPOLLET);
  const int cm = e.engine.cm_wait_fd();
  e[0].keep = true;
  e[0].signal();
  EXPECT_TRUE(readable(cm));
  e.settle();
  EXPECT_TRUE(readable(cm)) << "progress for a completion queue leaves the other set alone";
  Guard guard(e.engine.lock());
  const int seen = e[0].seen();
  e.engine.progress_cm();
  EXPECT_EQ(e[0].seen(), seen + 2) << "called directly, and for the set";
  EXPECT_FALSE(readable(cm));
  e[0].signal();
  EXPECT_TRUE(readable(cm));
}

TEST(Engine, AHandlerWithoutEventsIsNotWokenByAHangUp) {
  EngineOf e(3);
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  Event socket;  // its own descriptor is not used here
  e.engine.add(socket, pair[0], EPOLLIN, EPOLLRDHUP);
  const int fd = e.engine.wait_fd(), cm = e.engine.cm_wait_fd();
  e.engine.change(socket, 0, 0);
  ::close(pair[1]);
  EXPECT_FALSE(readable(fd));
  EXPECT_FALSE(readable(cm));
  e.settle();
  EXPECT_EQ(socket.calls(), 0);
  e.engine.change(socket, EPOLLRDHUP, 0);
  EXPECT_TRUE(readable(fd));
  EXPECT_FALSE(readable(cm));
  e.engine.remove(socket);
  EXPECT_FALSE(readable(fd));
  // The same for a handler without events from the start, in a set that is created later.
  EngineOf late(1);
  late.engine.add(socket, pair[0], 0, 0);
  EXPECT_FALSE(readable(late.engine.wait_fd()));
  late.engine.remove(socket);
  ::close(pair[0]);
}

TEST(Engine, AFewHandlersCostNoDescriptor) {
  const size_t before = open_files();
  Engine engine(true);
  Event a, b, c;
  engine.add(a, a.fd(), EPOLLIN, EPOLLIN);
  engine.add(b, b.fd(), EPOLLIN, EPOLLIN);
  engine.progress();
  EXPECT_EQ(open_files(), before + 3);
  engine.add(c, c.fd(), EPOLLIN, EPOLLIN);
  EXPECT_GT(open_files(), before + 3);
  for (Event *e : {&a, &b, &c}) engine.remove(*e);
}

TEST(Engine, DirectPollingReportsTheRequestedEvents) {
  EngineOf e(2);
  e.engine.change(e[1], 0, EPOLLIN);
  e.progress();
  e.progress();
  EXPECT_EQ(e[0].calls(), 2);
  EXPECT_EQ(e[0].last_events(), uint32_t(EPOLLIN));
  EXPECT_EQ(e[1].calls(), 0);
  e.engine.change(e[0], EPOLLOUT | EPOLLRDHUP, 0);
  e.progress();
  EXPECT_EQ(e[0].last_events(), uint32_t(EPOLLOUT));
}

TEST(Engine, RoundsCountProgress) {
  EngineOf e(1);
  const uint64_t before = e.engine.rounds();
  e.progress();
  EXPECT_EQ(e.engine.rounds(), before + 1);
}

TEST(Engine, ConnectionEventsHaveADescriptorOfTheirOwn) {
  EngineOf e(2, EPOLLIN, 0);
  e.engine.change(e[1], EPOLLIN, EPOLLIN);
  const int data = e.engine.wait_fd(), cm = e.engine.cm_wait_fd();
  ASSERT_GE(data, 0);
  ASSERT_GE(cm, 0);
  ASSERT_NE(data, cm);
  e[0].signal();
  EXPECT_TRUE(readable(data));
  EXPECT_FALSE(readable(cm));
  e[1].signal();
  EXPECT_TRUE(readable(cm));
  e.settle();
  EXPECT_EQ(e[0].seen(), 1);
  EXPECT_EQ(e[1].seen(), 1);
  EXPECT_FALSE(readable(data));
  EXPECT_FALSE(readable(cm));
}

// ---- deadlines ----

TEST(EngineDeadline, AreCalledInOrderAndOnce) {
  EngineOf e(3);
  std::string order;
  for (size_t i = 0; i < 3; ++i) e[i].then_deadline = [&order, i] { order += char('0' + i); };
  const uint64_t now = now_ns();
  e.engine.set_deadline(e[0], now - 1 * kMs);
  e.engine.set_deadline(e[1], now - 3 * kMs);
  e.engine.set_deadline(e[2], now - 2 * kMs);
  e.progress();
  EXPECT_EQ(order, "120");
  e.progress();
  EXPECT_EQ(order, "120");
}

TEST(EngineDeadline, IsNotCalledEarly) {
  EngineOf e(1);
  const uint64_t at = now_ns() + 30 * kMs;
  uint64_t called = 0;
  e[0].then_deadline = [&] { called = now_ns(); };
  e.engine.set_deadline(e[0], at);
  EXPECT_TRUE(eventually([&] {
    e.progress();
    return e[0].deadlines() == 1;
  }));
  EXPECT_GE(called, at);
}

// An application that computes between two calls is late itself. Input that came before the
// deadline is handled before it.
TEST(EngineDeadline, IsCalledAfterTheInputThatCameBefore) {
  EngineOf e(1);
  std::string order;
  e[0].then = [&] {
    order += "input ";
    e.engine.set_deadline(e[0], 0);
  };
  e[0].then_deadline = [&] { order += "deadline "; };
  e.engine.set_deadline(e[0], 1);
  e[0].signal();
  e.progress();
  EXPECT_EQ(order, "input ");
  e[0].then = nullptr;
  e.engine.set_deadline(e[0], 1);
  e.progress();
  EXPECT_EQ(order, "input deadline ");
}

TEST(EngineDeadline, CanBeMovedAndCancelled) {
  EngineOf e(2);
  e.engine.set_deadline(e[0], 1);
  e.engine.set_deadline(e[0], now_ns() + 3'600'000 * kMs);
  e.engine.set_deadline(e[1], 1);
  e.engine.set_deadline(e[1], 0);
  e.progress();
  EXPECT_EQ(e[0].deadlines() + e[1].deadlines(), 0);
  e.engine.set_deadline(e[0], 1);
  e.engine.remove(*e.handlers[0]);
  e.progress();
  EXPECT_EQ(e[0].deadlines(), 0);
}

TEST(EngineDeadline, AHandlerMaySetTheNextAndRemoveOthers) {
  EngineOf e(3);
  e[0].then_deadline = [&] {
    e.engine.set_deadline(e[0], now_ns() + 3'600'000 * kMs);
    e.drop(1);
    e.drop(2);
  };
  e.engine.set_deadline(e[0], 1);
  e.engine.set_deadline(e[1], 2);
  e.engine.set_deadline(e[2], 3);
  e.progress();
  EXPECT_EQ(e[0].deadlines(), 1);
  EXPECT_EQ(e.handlers[1], nullptr);
}

TEST(EngineDeadline, WakesABlockedThread) {
  EngineOf e(1);
  for (const bool cm : {false, true}) {
    const int fd = cm ? e.engine.cm_wait_fd() : e.engine.wait_fd();
    EXPECT_FALSE(readable(fd));
    e.engine.set_deadline(e[0], now_ns() + 5 * kMs);
    EXPECT_TRUE(readable(fd, kPatienceMs));
    e.progress();
    EXPECT_EQ(e[0].deadlines(), cm ? 2 : 1);
    EXPECT_FALSE(readable(fd));
  }
  // Set before a thread blocks.
  EngineOf late(1);
  late.engine.set_deadline(late[0], now_ns() + 5 * kMs);
  EXPECT_TRUE(readable(late.engine.wait_fd(), kPatienceMs));
}

// ---- output ----

TEST(EngineFlush, ADirtyHandlerIsFlushedOnce) {
  EngineOf e(1);
  e.engine.mark_dirty(e[0]);
  e.engine.mark_dirty(e[0]);
  e.progress();
  EXPECT_EQ(e[0].flushes(), 1);
  e.engine.mark_dirty(e[0]);
  e.engine.flush();
  EXPECT_EQ(e[0].flushes(), 2);
  e.progress();
  EXPECT_EQ(e[0].flushes(), 2);
}

TEST(EngineFlush, AHandlerThatMarksItselfIsFlushedNextTime) {
  EngineOf e(1);
  e[0].then_flush = [&] { e.engine.mark_dirty(e[0]); };
  e.engine.mark_dirty(e[0]);
  e.engine.flush();
  EXPECT_EQ(e[0].flushes(), 1);
  e.engine.flush();
  EXPECT_EQ(e[0].flushes(), 2);
}

TEST(EngineFlush, OutputOfAnEventLeavesInTheSameRound) {
  EngineOf e(1);
  e[0].then = [&] { e.engine.mark_dirty(e[0]); };
  e[0].signal();
  e.progress();
  EXPECT_EQ(e[0].flushes(), 1);
}

TEST(EngineFlush, HappensBeforeAThreadBlocks) {
  EngineOf e(1);
  e.engine.mark_dirty(e[0]);
  e.engine.wait_fd();
  EXPECT_EQ(e[0].flushes(), 1);
  e.engine.mark_dirty(e[0]);
  e.engine.cm_wait_fd();
  EXPECT_EQ(e[0].flushes(), 2);
}

TEST(EngineFlush, OutputThatMayWaitLeavesInTheNextRound) {
  EngineOf e(1);
  Guard guard(e.engine.lock());  // the thread finds no round that is too long
  e[0].then = [&] { EXPECT_TRUE(e.engine.flush_later(e[0])); };
  e[0].signal();
  EXPECT_TRUE(eventually([&] {
    e.engine.progress();
    return e[0].seen() == 1;
  }));
  EXPECT_EQ(e[0].flushes(), 0);
  EXPECT_TRUE(e.engine.flush_later(e[0]));  // a second time
  e.engine.flush();
  EXPECT_EQ(e[0].flushes(), 0);
  e.engine.progress();
  e.engine.progress();
  EXPECT_EQ(e[0].flushes(), 1);
}

TEST(EngineFlush, OutputThatMayWaitLeavesByItselfWithoutARound) {
  EngineOf e(1);
  for (int i = 1; i < 5; ++i) {  // the thread begins, or has slept
    {
      Guard guard(e.engine.lock());
      EXPECT_TRUE(e.engine.flush_later(e[0]));
    }
    EXPECT_TRUE(eventually([&] { return e[0].flushes() == i; }));
  }
  Guard guard(e.engine.lock());
  EXPECT_TRUE(e.engine.flush_later(e[0]));
  e.drop(0);
}

// Its caller waits for no progress, though that of what is before it does.
TEST(EngineFlush, OutputThatMayWaitLeavesBehindWhatWaitsForARound) {
  EngineOf e(1);
  {
    Guard guard(e.engine.lock());
    e.engine.mark_dirty(e[0]);
    EXPECT_TRUE(e.engine.flush_later(e[0]));
  }
  EXPECT_TRUE(eventually([&] { return e[0].flushes() == 1; }));
}

// A child has no such thread, and ends without it.
TEST(EngineFlush, AChildThatIsForkedClosesItsEngine) {
  auto e = std::make_unique<EngineOf>(1);
  {
    Guard guard(e->engine.lock());
    EXPECT_TRUE(e->engine.flush_later((*e)[0]));
  }
  EXPECT_TRUE(eventually([&] { return (*e)[0].flushes() == 1; }));  // the thread waits for more
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    e.reset();
    exit(0);  // which sends what waits, and nothing of what is gone
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A thread blocks, or may.
TEST(EngineFlush, NothingWaitsWhereNoRoundIsSure) {
  EngineOf e(1);
  Guard guard(e.engine.lock());
  EXPECT_TRUE(e.engine.flush_later(e[0]));
  e.engine.wait_fd();
  EXPECT_EQ(e[0].flushes(), 1);
  EXPECT_FALSE(e.engine.flush_later(e[0]));
}

// An engine that had no lock, because its application serializes its calls, has one from then on.
TEST(EngineFlush, OutputThatMayWaitNeedsTheLock) {
  Event event;
  Engine engine(false);
  {
    Guard guard(engine.lock());
    EXPECT_TRUE(engine.flush_later(event));
    EXPECT_TRUE(engine.lock().needed());
  }
  EXPECT_TRUE(eventually([&] { return event.flushes() == 1; }));
  Guard guard(engine.lock());
  EXPECT_TRUE(engine.flush_later(event));
  engine.progress();
  EXPECT_EQ(event.flushes(), 2);
}

TEST(EngineFlush, ARemovedHandlerIsNotFlushed) {
  EngineOf e(3);
  for (auto &handler : e.handlers) e.engine.mark_dirty(*handler);
  e.drop(2);
  e[0].then_flush = [&] { e.drop(1); };
  e.engine.flush();
  EXPECT_EQ(e[0].flushes(), 1);
  EXPECT_EQ(e.handlers[1], nullptr);
  e[0].then_flush = [&] { e.drop(0); };
  e.engine.mark_dirty(e[0]);
  e.engine.flush();
  EXPECT_EQ(e.handlers[0], nullptr);
}

TEST(EngineFlush, AnExceptionDoesNotSkipOtherHandlers) {
  EngineOf e(4);
  e[1].then_flush = [] { throw std::bad_alloc(); };
  for (size_t i = 0; i < 3; ++i) e.engine.mark_dirty(e[i]);
  EXPECT_THROW(e.engine.flush(), std::bad_alloc);
  e.drop(0);
  e.drop(1);
  for (int i = 0; i < 3; ++i) {
    e.engine.mark_dirty(e[3]);
    e.engine.flush();
  }
  EXPECT_EQ(e[2].flushes(), 1) << "the next handler is still flushed";
  EXPECT_EQ(e[3].flushes(), 3);
}

// ---- no descriptors left ----

TEST(EngineFiles, WithoutAnEpollSetEveryHandlerIsPolledDirectly) {
  const size_t before = open_files();
  {
    EngineOf e(2);
    Event third, fourth;
    {
      NoMoreFiles none;
      e.engine.add(third, third.fd(), EPOLLIN, 0);
      e.engine.add(fourth, fourth.fd(), EPOLLIN, 0);
    }
    for (Event *handler : {&e[0], &e[1], &third, &fourth}) handler->signal();
    e.progress();
    for (Event *handler : {&e[0], &e[1], &third, &fourth}) EXPECT_EQ(handler->seen(), 1);
    // When there are descriptors again, the engine creates a set with all handlers.
    const int fd = e.engine.wait_fd();
    ASSERT_GE(fd, 0);
    fourth.signal();
    EXPECT_TRUE(readable(fd));
    e.settle();
    EXPECT_EQ(fourth.seen(), 2);
    e.engine.remove(third);
    e.engine.remove(fourth);
  }
  EXPECT_EQ(open_files(), before);
}

TEST(EngineFiles, BlockingIsAnError) {
  EngineOf e(1);
  const size_t before = open_files();
  {
    NoMoreFiles none;
    EXPECT_EQ(e.engine.wait_fd(), -EMFILE);
    EXPECT_EQ(e.engine.cm_wait_fd(), -EMFILE);
    auto started = e.engine.start_thread();
    ASSERT_FALSE(started);
    EXPECT_EQ(started.error().code, EMFILE);
    EXPECT_FALSE(e.engine.threaded());
  }
  EXPECT_EQ(open_files(), before);
  EXPECT_GE(e.engine.wait_fd(), 0);
}

}  // namespace
}  // namespace weft::sdk
