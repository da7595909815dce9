// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/objects/sets.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "plugin-api/sdk/testing/test_instance.h"
#include "weft/sdk/objects/cntr.h"
#include "weft/sdk/objects/eq.h"

namespace weft::sdk::sets_test {
namespace {

struct Close {
  template <class T>
  void operator()(T *object) const {
    EXPECT_EQ(fi_close(object->base()), 0);
  }
};
template <class T>
using Owned = std::unique_ptr<T, Close>;

template <class T>
Owned<T> must(Result<T *> opened) {
  EXPECT_TRUE(opened) << opened.error().text;
  return Owned<T>(opened ? *opened : nullptr);
}

// A fabric and a domain without a provider, and the objects that they can open.
struct Stage {
  ~Stage() { EXPECT_EQ(fabric_children.load(), 0u); }

  Owned<WaitSet> wait_set(enum fi_wait_obj type = FI_WAIT_UNSPEC) {
    const fi_wait_attr attr{type, 0};
    return must(WaitSet::open(instance(), &fabric.fid, fabric_children, &attr));
  }
  Owned<Cq> cq(WaitSet *set = nullptr, enum fi_wait_obj type = FI_WAIT_FD) {
    fi_cq_attr attr{};
    attr.wait_obj = set != nullptr ? FI_WAIT_SET : type;
    attr.wait_set = set != nullptr ? set->c() : nullptr;
    return must(Cq::open(domain.context, &attr, ctx(1)));
  }
  Owned<Cntr> cntr(WaitSet *set = nullptr) {
    fi_cntr_attr attr{};
    attr.wait_obj = set != nullptr ? FI_WAIT_SET : FI_WAIT_FD;
    attr.wait_set = set != nullptr ? set->c() : nullptr;
    return must(Cntr::open(domain.context, &attr, ctx(2)));
  }
  Owned<Eq> eq(WaitSet *set = nullptr) {
    fi_eq_attr attr{};
    attr.flags = FI_WRITE;
    attr.wait_obj = set != nullptr ? FI_WAIT_SET : FI_WAIT_FD;
    attr.wait_set = set != nullptr ? set->c() : nullptr;
    return must(Eq::open(instance(), &fabric.fid, fabric_children, &attr, ctx(3)));
  }
  Owned<PollSet> poll_set() { return must(PollSet::open(domain.context, nullptr)); }

  void push(Cq &cq) {
    Guard guard(domain.engine.lock());
    cq.push({.context = ctx(9)});
  }
  void count(Cntr &cntr) {
    Guard guard(domain.engine.lock());
    cntr.add_events(1, 1);
  }
  static void write(Eq &eq) { EXPECT_EQ(fi_eq_write(eq.c(), 5, "x", 1, 0), 1); }
  static void read(Cq &cq) {
    fi_cq_entry entry;
    EXPECT_EQ(fi_cq_read(cq.c(), &entry, 1), 1);
  }
  static void read(Eq &eq) {
    uint32_t event;
    char x;
    EXPECT_EQ(fi_eq_read(eq.c(), &event, &x, 1, 0), 1);
  }
  const weft_instance *instance() const { return domain.instance.c(); }

  fid_fabric fabric{};
  std::atomic<size_t> fabric_children{0};
  TestDomain domain;
};

// ---- wait sets ----

TEST(WaitSetOpen, RefusesInvalidAttributes) {
  Stage stage;
  const auto code = [&](int type, uint64_t flags) {
    fi_wait_attr attr{FI_WAIT_UNSPEC, flags};
    put(attr.wait_obj, type);
    auto opened = WaitSet::open(stage.instance(), &stage.fabric.fid, stage.fabric_children, &attr);
    EXPECT_FALSE(opened);
    return opened ? 0 : opened.error().code;
  };
  EXPECT_EQ(code(FI_WAIT_UNSPEC, 1), FI_EBADFLAGS);
  EXPECT_EQ(code(FI_WAIT_MUTEX_COND, 0), FI_ENOSYS);
  EXPECT_EQ(code(1234, 0), FI_ENOSYS);
  const size_t before = open_files();
  stage.domain.instance.refuse = true;
  EXPECT_EQ(code(FI_WAIT_FD, 0), FI_EOTHER);
  stage.domain.instance.refuse = false;
  EXPECT_EQ(open_files(), before);
}

TEST(WaitSetOpen, MakesDescriptorsWhenTheyAreNeeded) {
  {
    // Once with descriptors: the sanitizers need one when they see a type for the first time.
    Stage first;
    auto set = first.wait_set(FI_WAIT_FD);
    auto cq = first.cq(set.get());
    EXPECT_EQ(fi_wait(set->c(), 0), -FI_ETIMEDOUT);
    first.push(*cq);
    EXPECT_EQ(fi_wait(set->c(), 1000), 0);
  }
  Stage stage;
  const size_t before = open_files();
  auto set = stage.wait_set(FI_WAIT_FD);
  auto cq = stage.cq(set.get());
  EXPECT_EQ(open_files(), before);
  NoMoreFiles none;
  int fd = -1;
  EXPECT_EQ(fi_control(set->base(), FI_GETWAIT, &fd), -FI_EMFILE);
  none.in_another_thread([&] { EXPECT_EQ(fi_wait(set->c(), 1000), -FI_EMFILE); });
  stage.push(*cq);
  EXPECT_EQ(fi_wait(set->c(), 1000), 0);
}

TEST(WaitSetOpen, AQueueNeedsASetOfTheSameProvider) {
  Stage stage, other;
  auto set = other.wait_set();
  fi_cq_attr attr{};
  attr.wait_obj = FI_WAIT_SET;
  attr.wait_set = set->c();
  auto opened = Cq::open(stage.domain.context, &attr, nullptr);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, FI_EINVAL);
}

TEST(WaitSetOpen, AQueueThatCannotJoinIsNotOpened) {
  Stage stage;
  auto set = stage.wait_set();
  const size_t before = open_files();
  stage.domain.instance.refuse = true;
  fi_cq_attr cq{};
  cq.wait_obj = FI_WAIT_SET;
  cq.wait_set = set->c();
  EXPECT_FALSE(Cq::open(stage.domain.context, &cq, nullptr));
  fi_eq_attr eq{};
  eq.wait_obj = FI_WAIT_SET;
  eq.wait_set = set->c();
  EXPECT_FALSE(Eq::open(stage.instance(), &stage.fabric.fid, stage.fabric_children, &eq, nullptr));
  stage.domain.instance.refuse = false;
  EXPECT_EQ(open_files(), before);
  EXPECT_EQ(fi_wait(set->c(), 0), -FI_ETIMEDOUT);
}

TEST(WaitSet, IsBusyWhileItHasMembers) {
  Stage stage;
  auto set = stage.wait_set();
  auto cq = stage.cq(set.get());
  EXPECT_EQ(fi_close(set->base()), -FI_EBUSY);
  cq.reset();
}

TEST(WaitSet, ItsMembersHaveNoWaitsOfTheirOwn) {
  Stage stage;
  auto set = stage.wait_set();
  auto cq = stage.cq(set.get());
  auto cntr = stage.cntr(set.get());
  auto eq = stage.eq(set.get());
  fi_cq_entry entry;
  uint32_t event;
  int fd;
  EXPECT_EQ(fi_cq_sread(cq->c(), &entry, 1, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(fi_cntr_wait(cntr->c(), 1, 0), -FI_EINVAL);
  EXPECT_EQ(fi_eq_sread(eq->c(), &event, &entry, sizeof entry, 0, 0), -FI_EINVAL);
  EXPECT_EQ(fi_control(cq->base(), FI_GETWAIT, &fd), -FI_ENODATA);
}

TEST(WaitSet, WaitsForAnyMember) {
  Stage stage;
  auto set = stage.wait_set(FI_WAIT_FD);
  auto cq = stage.cq(set.get());
  auto cntr = stage.cntr(set.get());
  auto eq = stage.eq(set.get());
  const uint64_t start = now_ns();
  EXPECT_EQ(fi_wait(set->c(), 20), -FI_ETIMEDOUT);
  EXPECT_GE(now_ns() - start, 20'000'000u);
  for (int round = 0; round < 30; ++round) {
    int rc = -1;
    Sleeper sleeper([&] { rc = fi_wait(set->c(), round % 2 != 0 ? -1 : kPatienceMs); });
    if (round % 4 == 0) {
      EXPECT_TRUE(sleeper.eventually_asleep());
    }
    if (round % 3 == 0) stage.push(*cq);
    if (round % 3 == 1) stage.count(*cntr);
    if (round % 3 == 2) Stage::write(*eq);
    sleeper.join();
    EXPECT_EQ(rc, 0);
    if (round % 3 != 1) {
      EXPECT_EQ(fi_wait(set->c(), 0), 0) << "as long as it is not read";
    }
    if (round % 3 == 0) Stage::read(*cq);
    if (round % 3 == 2) Stage::read(*eq);
    EXPECT_EQ(fi_wait(set->c(), 0), -FI_ETIMEDOUT);
  }
}

TEST(WaitSet, TheWaitingThreadMakesProgressItself) {
  Stage stage;
  auto set = stage.wait_set();
  auto cq = stage.cq(set.get());
  Event event;
  event.then = [&] { cq->push({.context = ctx(1)}); };
  {
    Guard guard(stage.domain.engine.lock());
    stage.domain.engine.add(event, event.fd(), EPOLLIN, 0);
  }
  for (int round = 0; round < 10; ++round) {
    int rc = -1;
    Sleeper sleeper([&] { rc = fi_wait(set->c(), kPatienceMs); });
    EXPECT_TRUE(sleeper.eventually_asleep());
    event.signal();
    sleeper.join();
    EXPECT_EQ(rc, 0);
    Stage::read(*cq);
  }
  Guard guard(stage.domain.engine.lock());
  stage.domain.engine.remove(event);
}

TEST(WaitSet, MembersComeAndGoDuringAWait) {
  Stage stage;
  auto set = stage.wait_set();
  int rc = -1;
  Sleeper sleeper([&] { rc = fi_wait(set->c(), kPatienceMs); });
  EXPECT_TRUE(sleeper.eventually_asleep());
  for (int i = 0; i < 20; ++i) stage.cq(set.get());
  EXPECT_FALSE(sleeper.done());
  auto cq = stage.cq(set.get());
  stage.push(*cq);
  sleeper.join();
  EXPECT_EQ(rc, 0);
  stage.eq(set.get());
  cq.reset();
  EXPECT_EQ(fi_wait(set->c(), 0), -FI_ETIMEDOUT) << "its entries went with it";
}

TEST(WaitSet, GivesItsDescriptor) {
  Stage stage;
  auto set = stage.wait_set(FI_WAIT_FD);
  auto cq = stage.cq(set.get());
  int fd = -1;
  ASSERT_EQ(fi_control(set->base(), FI_GETWAIT, &fd), 0);
  enum fi_wait_obj type = FI_WAIT_NONE;
  EXPECT_EQ(fi_control(set->base(), FI_GETWAITOBJ, &type), 0);
  EXPECT_EQ(type, FI_WAIT_FD);
  EXPECT_EQ(fi_control(set->base(), FI_GETWAIT, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_control(set->base(), FI_ENABLE, nullptr), -FI_ENOSYS);
  // With the application's own epoll set four sets are nested.
  Event event;
  event.then = [&] { cq->push({.context = ctx(1)}); };
  stage.domain.engine.add(event, event.fd(), EPOLLIN, 0);
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  epoll_event all{};
  all.events = EPOLLIN;
  ASSERT_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &all), 0) << strerror(errno);
  fid *fids[] = {set->base()};
  EXPECT_EQ(trywait(stage.instance(), fids, 1), 0);
  EXPECT_FALSE(readable(epoll));
  event.signal();
  EXPECT_TRUE(readable(epoll));
  EXPECT_EQ(trywait(stage.instance(), fids, 1), -FI_EAGAIN);
  Stage::read(*cq);
  EXPECT_EQ(trywait(stage.instance(), fids, 1), 0);
  EXPECT_FALSE(readable(epoll));
  ::close(epoll);
  stage.domain.engine.remove(event);
  auto unspecified = stage.wait_set();
  EXPECT_EQ(fi_control(unspecified->base(), FI_GETWAIT, &fd), 0);
}

TEST(WaitSet, AMemberThatLeftDoesNotWakeIt) {
  Stage stage;
  auto set = stage.wait_set(FI_WAIT_FD);
  auto cq = stage.cq(set.get());
  int fd = -1;
  ASSERT_EQ(fi_control(set->base(), FI_GETWAIT, &fd), 0);
  stage.push(*cq);
  EXPECT_TRUE(readable(fd));
  cq.reset();
  fid *fids[] = {set->base()};
  EXPECT_EQ(trywait(stage.instance(), fids, 1), 0);
  EXPECT_FALSE(readable(fd));
  EXPECT_EQ(set->wait(0), -FI_ETIMEDOUT);
}

// ---- fi_trywait ----

TEST(Trywait, ChecksEveryObject) {
  Stage stage;
  auto cq = stage.cq();
  auto cntr = stage.cntr();
  auto eq = stage.eq();
  fid *fids[] = {cq->base(), cntr->base(), eq->base()};
  EXPECT_EQ(trywait(stage.instance(), fids, 3), 0);
  Stage::write(*eq);
  EXPECT_EQ(trywait(stage.instance(), fids, 3), -FI_EAGAIN);
  EXPECT_EQ(trywait(stage.instance(), fids, 2), 0);
  Stage::read(*eq);
  stage.count(*cntr);
  EXPECT_EQ(trywait(stage.instance(), fids, 3), -FI_EAGAIN);
  EXPECT_EQ(trywait(stage.instance(), fids, 3), 0);
  EXPECT_EQ(trywait(stage.instance(), nullptr, 0), 0);
}

TEST(Trywait, RefusesObjectsOfOtherProviders) {
  Stage stage, other;
  auto cq = other.cq();
  fid *foreign[] = {cq->base()}, *none[] = {nullptr}, *fabric[] = {&stage.fabric.fid};
  EXPECT_EQ(trywait(stage.instance(), foreign, 1), -FI_EINVAL);
  EXPECT_EQ(trywait(stage.instance(), none, 1), -FI_EINVAL);
  EXPECT_EQ(trywait(stage.instance(), fabric, 1), -FI_EINVAL);
  EXPECT_EQ(trywait(stage.instance(), nullptr, 1), -FI_EINVAL);
  EXPECT_EQ(trywait(stage.instance(), foreign, -1), -FI_EINVAL);
}

// ---- poll sets ----

TEST(PollSetOpen, RefusesInvalidAttributes) {
  Stage stage;
  const fi_poll_attr attr{1};
  auto opened = PollSet::open(stage.domain.context, &attr);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, FI_EBADFLAGS);
  stage.domain.instance.refuse = true;
  EXPECT_FALSE(PollSet::open(stage.domain.context, nullptr));
}

TEST(PollSet, MembersAreInUse) {
  Stage stage;
  auto set = stage.poll_set();
  auto cq = stage.cq();
  EXPECT_EQ(fi_poll_add(set->c(), cq->base(), 0), 0);
  EXPECT_EQ(fi_close(cq->base()), -FI_EBUSY);
  EXPECT_EQ(fi_close(set->base()), -FI_EBUSY);
  EXPECT_EQ(fi_poll_add(set->c(), cq->base(), 0), -FI_EALREADY);
  EXPECT_EQ(fi_poll_del(set->c(), cq->base(), 0), 0);
  EXPECT_EQ(fi_poll_del(set->c(), cq->base(), 0), -FI_EINVAL);
  EXPECT_EQ(cq->users.load(), 0u);
}

TEST(PollSet, RefusesInvalidArguments) {
  Stage stage, other;
  auto set = stage.poll_set();
  auto cq = stage.cq();
  auto foreign = other.cq();
  EXPECT_EQ(fi_poll_add(set->c(), cq->base(), 1), -FI_EBADFLAGS);
  EXPECT_EQ(fi_poll_del(set->c(), cq->base(), 1), -FI_EBADFLAGS);
  EXPECT_EQ(fi_poll_add(set->c(), foreign->base(), 0), -FI_EINVAL);
  EXPECT_EQ(fi_poll_add(set->c(), nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(fi_poll_add(set->c(), &stage.fabric.fid, 0), -FI_EINVAL);
  void *contexts[1];
  EXPECT_EQ(fi_poll(set->c(), nullptr, 1), -FI_EINVAL);
  EXPECT_EQ(fi_poll(set->c(), contexts, -1), -FI_EINVAL);
  EXPECT_EQ(fi_poll(set->c(), contexts, 1), 0);
}

// A poll set of all kinds that is emptied at the end.
struct Full {
  explicit Full(Stage &stage)
      : set(stage.poll_set()), cq(stage.cq()), cntr(stage.cntr()), eq(stage.eq()) {
    for (fid *member : {cq->base(), cntr->base(), eq->base()})
      EXPECT_EQ(fi_poll_add(set->c(), member, 0), 0);
  }
  ~Full() {
    for (fid *member : {cq->base(), cntr->base(), eq->base()})
      EXPECT_EQ(fi_poll_del(set->c(), member, 0), 0);
  }
  std::vector<void *> poll(int room = 3) {
    std::vector<void *> contexts(size_t(std::max(room, 1)), ctx(99));
    const int n = fi_poll(set->c(), contexts.data(), room);
    EXPECT_GE(n, 0);
    contexts.resize(size_t(std::max(n, 0)));
    return contexts;
  }
  Owned<PollSet> set;
  Owned<Cq> cq;
  Owned<Cntr> cntr;
  Owned<Eq> eq;
};

TEST(PollSet, ReportsTheMembersThatHaveSomething) {
  Stage stage;
  Full full(stage);
  using Contexts = std::vector<void *>;
  EXPECT_EQ(full.poll(), Contexts{});
  stage.count(*full.cntr);
  EXPECT_EQ(full.poll(), Contexts{ctx(2)});
  EXPECT_EQ(full.poll(), Contexts{}) << "a counter only when it changed";
  stage.push(*full.cq);
  EXPECT_EQ(full.poll(), Contexts{ctx(1)});
  EXPECT_EQ(full.poll(), Contexts{ctx(1)}) << "a queue as long as it is not empty";
  Stage::write(*full.eq);
  stage.count(*full.cntr);
  EXPECT_EQ(full.poll(), (Contexts{ctx(1), ctx(2), ctx(3)}));
  Stage::read(*full.cq);
  Stage::read(*full.eq);
  EXPECT_EQ(full.poll(), Contexts{});
}

TEST(PollSet, ReportsTheNextTimeWhatDidNotFit) {
  Stage stage;
  Full full(stage);
  using Contexts = std::vector<void *>;
  stage.push(*full.cq);
  stage.count(*full.cntr);
  EXPECT_EQ(full.poll(1), Contexts{ctx(1)});
  EXPECT_EQ(full.poll(0), Contexts{});
  Stage::read(*full.cq);
  EXPECT_EQ(full.poll(1), Contexts{ctx(2)});
}

TEST(PollSet, MakesProgressWithoutRoomToo) {
  Stage stage;
  TestDomain other;
  Full full(stage);
  auto second = must(Cq::open(other.context, nullptr, ctx(4)));
  EXPECT_EQ(fi_poll_add(full.set->c(), second->base(), 0), -FI_EINVAL) << "of another provider";
  Event event, connection;
  {
    Guard guard(stage.domain.engine.lock());
    stage.domain.engine.add(event, event.fd(), EPOLLIN, 0);
    other.engine.add(connection, connection.fd(), EPOLLIN, EPOLLIN);
  }
  full.eq->add_source(other.engine);
  event.signal();
  connection.signal();
  EXPECT_EQ(fi_poll(full.set->c(), nullptr, 0), 0);
  EXPECT_EQ(event.seen(), 1);
  EXPECT_EQ(connection.seen(), 1);
  full.eq->remove_source(other.engine);
  Guard guard(stage.domain.engine.lock());
  stage.domain.engine.remove(event);
  other.engine.remove(connection);
}

TEST(PollSet, ManyThreadsUseItAtOnce) {
  Stage stage;
  auto set = stage.poll_set();
  std::vector<Owned<Cntr>> counters;
  for (int i = 0; i < 4; ++i) counters.push_back(stage.cntr());
  {
    std::vector<std::unique_ptr<Sleeper>> threads;
    for (auto &counter : counters)
      threads.push_back(std::make_unique<Sleeper>([&] {
        for (int i = 0; i < 200; ++i) {
          EXPECT_EQ(fi_poll_add(set->c(), counter->base(), 0), 0);
          stage.count(*counter);
          void *contexts[4];
          EXPECT_GE(fi_poll(set->c(), contexts, 4), 0);
          EXPECT_EQ(fi_poll_del(set->c(), counter->base(), 0), 0);
        }
      }));
  }
  for (auto &counter : counters) EXPECT_EQ(fi_cntr_read(counter->c()), 200u);
}

}  // namespace
}  // namespace weft::sdk::sets_test
