// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/eq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <thread>

#include <array>
#include <cstring>
#include <deque>
#include <memory>

#include "plugin-api/sdk/test_instance.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<const fi_info *> dropped;

fi_eq_attr attr_of(enum fi_wait_obj wait = FI_WAIT_NONE, uint64_t flags = FI_WRITE) {
  fi_eq_attr attr{};
  attr.flags = flags;
  attr.wait_obj = wait;
  return attr;
}

// An event queue of a fabric without a provider; closes with the test.
class Queue {
 public:
  explicit Queue(const fi_eq_attr &attr = attr_of(), uint32_t api_version = FI_VERSION(2, 6)) {
    fabric.fid.fclass = FI_CLASS_FABRIC;
    fabric.api_version = api_version;
    dropped.clear();
    auto opened = Eq::open(instance.c(), &fabric.fid, children, &attr, this);
    if (opened) {
      eq = *opened;
      eq->drop_request = [](fi_info *info, const weft_instance *) { dropped.push_back(info); };
    } else {
      ADD_FAILURE() << opened.error().text;
    }
  }
  ~Queue() {
    close();
    EXPECT_EQ(children.load(), 0u);
  }
  void close() {
    if (eq != nullptr) {
      EXPECT_EQ(fi_close(std::exchange(eq, nullptr)->base()), 0);
    }
  }
  fid_eq *c() { return eq->c(); }
  void write(uint32_t event) { EXPECT_EQ(fi_eq_write(c(), event, &event, sizeof event, 0), 4); }
  // The number of the next event that write() put in, or an error.
  ssize_t next(uint64_t flags = 0) {
    uint32_t event = 0, copy = 0;
    const ssize_t n = fi_eq_read(c(), &event, &copy, sizeof copy, flags);
    if (n < 0) return n;
    EXPECT_EQ(n, 4);
    EXPECT_EQ(event, copy);
    return event;
  }
  ssize_t sread(int timeout_ms = kPatienceMs) {
    uint32_t event = 0, copy = 0;
    const ssize_t n = fi_eq_sread(c(), &event, &copy, sizeof copy, timeout_ms, 0);
    return n < 0 ? n : event;
  }
  int fd() {
    int fd = -1;
    EXPECT_EQ(fi_control(eq->base(), FI_GETWAIT, &fd), 0);
    return fd;
  }

  TestInstance instance;
  fid_fabric fabric{};
  std::atomic<size_t> children{0};
  Eq *eq = nullptr;
};

// An engine with one event, as a domain's with an endpoint that connects.
struct Source {
  Source() {
    Guard guard(engine.lock());
    engine.add(event, event.fd(), EPOLLIN, EPOLLIN);
  }
  ~Source() {
    Guard guard(engine.lock());
    engine.remove(event);
  }
  // What an endpoint does that is connected: it pushes with its engine's lock held.
  void pushes_to(Queue &queue, uint32_t number) {
    Guard guard(engine.lock());
    event.then = [&queue, number] { queue.write(number); };
  }
  Engine engine{true};
  Event event;
};

// ---- opening and closing ----

TEST(EqOpen, DefaultsAreAGoodQueue) {
  TestInstance instance;
  std::atomic<size_t> children{0};
  fid_fabric fabric{};
  fabric.fid.fclass = FI_CLASS_FABRIC;
  auto opened = Eq::open(instance.c(), &fabric.fid, children, nullptr, &fabric);
  ASSERT_TRUE(opened);
  EXPECT_EQ((*opened)->base()->context, &fabric);
  EXPECT_EQ((*opened)->base()->fclass, size_t(FI_CLASS_EQ));
  EXPECT_EQ(children.load(), 1u);
  uint32_t event = 0;
  EXPECT_EQ(fi_eq_write((*opened)->c(), 1, &event, sizeof event, 0), -FI_EINVAL)
      << "not opened for it";
  EXPECT_EQ(fi_eq_read((*opened)->c(), &event, &event, sizeof event, 0), -FI_EAGAIN);
  EXPECT_EQ(fi_eq_sread((*opened)->c(), &event, &event, sizeof event, 0, 0), -FI_EINVAL);
  EXPECT_EQ((*opened)->trywait(), -FI_EINVAL);
  (*opened)->users.fetch_add(1);
  EXPECT_EQ(fi_close((*opened)->base()), -FI_EBUSY);
  (*opened)->users.fetch_sub(1);
  EXPECT_EQ(fi_close((*opened)->base()), 0);
}

TEST(EqOpen, WhatIsWrongIsSaid) {
  TestInstance instance;
  std::atomic<size_t> children{0};
  fid_fabric fabric{};
  const auto code = [&](const fi_eq_attr &attr) {
    auto opened = Eq::open(instance.c(), &fabric.fid, children, &attr, nullptr);
    EXPECT_FALSE(opened);
    return opened ? 0 : opened.error().code;
  };
  EXPECT_EQ(code(attr_of(FI_WAIT_NONE, FI_READ)), FI_EBADFLAGS);
  fi_eq_attr attr = attr_of();
  put(attr.wait_obj, 100);
  EXPECT_EQ(code(attr), FI_EINVAL);
  EXPECT_EQ(code(attr_of(FI_WAIT_SET)), FI_EINVAL);
  instance.refuse = true;
  EXPECT_EQ(code(attr_of(FI_WAIT_FD)), FI_EOTHER);
  EXPECT_EQ(children.load(), 0u);
}

// ---- reading and writing ----

TEST(EqRead, InOrder) {
  Queue queue;
  for (uint32_t i = 1; i <= 5; ++i) queue.write(i);
  for (uint32_t i = 1; i <= 5; ++i) EXPECT_EQ(queue.next(), i);
  EXPECT_EQ(queue.next(), -FI_EAGAIN);
}

TEST(EqRead, APeekLeavesTheEvent) {
  Queue queue;
  queue.write(1);
  queue.write(2);
  EXPECT_EQ(queue.next(FI_PEEK), 1);
  EXPECT_EQ(queue.next(FI_PEEK), 1);
  EXPECT_EQ(queue.next(), 1);
  EXPECT_EQ(queue.next(FI_PEEK), 2);
  EXPECT_EQ(queue.next(), 2);
  EXPECT_EQ(queue.next(FI_PEEK), -FI_EAGAIN);
}

TEST(EqRead, ASmallBufferLosesNothing) {
  Queue queue;
  Source source;  // any object with a fid would do
  queue.eq->push(FI_MR_COMPLETE, queue.eq->base(), 77);
  uint32_t event = 0;
  fi_eq_entry entry{};
  EXPECT_EQ(fi_eq_read(queue.c(), &event, &entry, sizeof entry - 1, 0), -FI_ETOOSMALL);
  EXPECT_EQ(fi_eq_read(queue.c(), &event, nullptr, 0, 0), -FI_ETOOSMALL);
  EXPECT_EQ(fi_eq_read(queue.c(), &event, nullptr, sizeof entry, 0), -FI_EINVAL);
  EXPECT_EQ(fi_eq_read(queue.c(), &event, &entry, sizeof entry, 0), ssize_t(sizeof entry));
  EXPECT_EQ(event, uint32_t(FI_MR_COMPLETE));
  EXPECT_EQ(entry.fid, queue.eq->base());
  EXPECT_EQ(entry.context, &queue);
  EXPECT_EQ(entry.data, 77u);
}

TEST(EqRead, WhateverTheApplicationWroteComesBack) {
  Queue queue;
  const std::string text(3000, 'w');
  EXPECT_EQ(fi_eq_write(queue.c(), 8, text.data(), text.size(), 0), ssize_t(text.size()));
  EXPECT_EQ(fi_eq_write(queue.c(), 9, nullptr, 0, 0), 0);
  EXPECT_EQ(fi_eq_write(queue.c(), 9, nullptr, 1, 0), -FI_EINVAL);
  std::string in(text.size(), ' ');
  uint32_t event = 0;
  EXPECT_EQ(fi_eq_read(queue.c(), &event, in.data(), in.size() - 1, 0), -FI_ETOOSMALL);
  EXPECT_EQ(fi_eq_read(queue.c(), &event, in.data(), in.size(), 0), ssize_t(in.size()));
  EXPECT_EQ(in, text);
  EXPECT_EQ(fi_eq_read(queue.c(), &event, nullptr, 0, 0), 0);
  EXPECT_EQ(event, 9u);
}

TEST(EqRead, MakesProgressWhereEventsComeFrom) {
  Queue queue;
  Source a, b;
  a.pushes_to(queue, 1);
  b.pushes_to(queue, 2);
  queue.eq->add_source(a.engine);
  queue.eq->add_source(b.engine);
  queue.eq->add_source(b.engine);
  b.event.signal();
  EXPECT_EQ(queue.next(), 2);
  queue.eq->remove_source(b.engine);
  b.event.signal();
  EXPECT_EQ(queue.next(), 2) << "it was added twice";
  queue.eq->remove_source(b.engine);
  queue.eq->remove_source(b.engine);
  b.event.signal();
  EXPECT_EQ(queue.next(), -FI_EAGAIN);
  a.event.signal();
  EXPECT_EQ(queue.next(), 1);
  queue.eq->remove_source(a.engine);
}

TEST(EqConnection, PrivateDataFollowsTheEntry) {
  Queue queue;
  const std::array<std::byte, 5> data{std::byte{1}, std::byte{2}, std::byte{3}};
  fi_info info{};
  queue.eq->push_cm(FI_CONNREQ, queue.eq->base(), &info, data);
  queue.eq->push_cm(FI_CONNECTED, queue.eq->base(), nullptr, {});
  alignas(fi_eq_cm_entry) unsigned char memory[64];
  auto *entry = reinterpret_cast<fi_eq_cm_entry *>(memory);
  uint32_t event = 0;
  EXPECT_EQ(fi_eq_read(queue.c(), &event, entry, sizeof *entry - 1, 0), -FI_ETOOSMALL);
  std::memset(memory, 0x5a, sizeof memory);
  // What does not fit of the data is cut.
  EXPECT_EQ(fi_eq_read(queue.c(), &event, entry, sizeof *entry + 2, FI_PEEK),
            ssize_t(sizeof *entry + 2));
  EXPECT_EQ(entry->data[1], 2);
  EXPECT_EQ(entry->data[2], 0x5a);
  EXPECT_EQ(fi_eq_read(queue.c(), &event, entry, sizeof memory, 0), ssize_t(sizeof *entry + 5));
  EXPECT_EQ(event, uint32_t(FI_CONNREQ));
  EXPECT_EQ(entry->fid, queue.eq->base());
  EXPECT_EQ(entry->info, &info);
  EXPECT_EQ(entry->data[2], 3);
  EXPECT_EQ(fi_eq_read(queue.c(), &event, entry, sizeof *entry, 0), ssize_t(sizeof *entry));
  EXPECT_EQ(event, uint32_t(FI_CONNECTED));
  EXPECT_EQ(entry->info, nullptr);
  EXPECT_TRUE(dropped.empty()) << "what was read is the reader's";
}

TEST(EqConnection, UnreadEventsOfAClosedObjectAreDropped) {
  Queue queue;
  struct fid one {
  }, two{};
  fi_info a{}, b{}, c{};
  queue.eq->push_cm(FI_CONNREQ, &one, &a, {});
  queue.eq->push_cm(FI_CONNREQ, &two, &b, {});
  queue.eq->push_error({.fid = &one, .err = FI_EIO});
  queue.eq->push_cm(FI_CONNREQ, &one, &c, {});
  queue.write(5);
  queue.eq->forget(&one);
  EXPECT_THAT(dropped, ElementsAre(&a, &c));
  queue.eq->forget(&one);
  fi_eq_cm_entry entry{};
  uint32_t event = 0;
  EXPECT_EQ(fi_eq_read(queue.c(), &event, &entry, sizeof entry, FI_PEEK), ssize_t(sizeof entry));
  EXPECT_EQ(entry.fid, &two);
  queue.close();
  EXPECT_THAT(dropped, ElementsAre(&a, &c, &b));
}

// ---- errors ----

const EventError kError{.context = reinterpret_cast<void *>(0x20),
                        .data = 0x30,
                        .err = FI_ECONNREFUSED,
                        .prov_errno = 12345,
                        .err_data = "go away"};

TEST(EqError, StandsInTheOrderOfEvents) {
  Queue queue;
  queue.write(1);
  EventError error = kError;
  error.fid = queue.eq->base();
  queue.eq->push_error(error);
  queue.write(2);
  fi_eq_err_entry entry{};
  EXPECT_EQ(fi_eq_readerr(queue.c(), &entry, 0), -FI_EAGAIN);
  EXPECT_EQ(queue.next(), 1);
  EXPECT_EQ(queue.next(), -FI_EAVAIL);
  EXPECT_EQ(fi_eq_readerr(queue.c(), nullptr, 0), -FI_EINVAL);
  for (const uint64_t flags : {uint64_t(FI_PEEK), uint64_t(0)}) {
    entry = {};
    ASSERT_EQ(fi_eq_readerr(queue.c(), &entry, flags), ssize_t(sizeof entry));
    EXPECT_EQ(entry.fid, queue.eq->base());
    EXPECT_EQ(entry.context, kError.context);
    EXPECT_EQ(entry.data, kError.data);
    EXPECT_EQ(entry.err, kError.err);
    EXPECT_EQ(entry.prov_errno, kError.prov_errno);
    ASSERT_EQ(entry.err_data_size, kError.err_data.size());
    EXPECT_EQ(std::memcmp(entry.err_data, kError.err_data.data(), entry.err_data_size), 0);
  }
  EXPECT_EQ(fi_eq_readerr(queue.c(), &entry, 0), -FI_EAGAIN);
  EXPECT_EQ(queue.next(), 2);
}

TEST(EqError, ItsDataIsCopiedAndCutToTheBuffer) {
  Queue queue;
  for (const size_t room : {1, 3, 7, 100}) {
    queue.eq->push_error(kError);
    const std::unique_ptr<char[]> buffer(new char[room]);
    fi_eq_err_entry entry{};
    entry.err_data = buffer.get();
    entry.err_data_size = room;
    ASSERT_EQ(fi_eq_readerr(queue.c(), &entry, 0), ssize_t(sizeof entry));
    EXPECT_EQ(entry.err_data, buffer.get());
    EXPECT_EQ(entry.err_data_size, std::min(room, kError.err_data.size()));
    EXPECT_EQ(std::memcmp(buffer.get(), kError.err_data.data(), entry.err_data_size), 0);
  }
  queue.eq->push_error({.err = FI_EIO});
  fi_eq_err_entry entry{};
  entry.err_data_size = 5;
  ASSERT_EQ(fi_eq_readerr(queue.c(), &entry, 0), ssize_t(sizeof entry));
  EXPECT_EQ(entry.err_data, nullptr);
  EXPECT_EQ(entry.err_data_size, 0u);
}

TEST(EqError, WhatAnOldCallerLeftThereIsNoBuffer) {
  // fi_eq.3: before API 1.5 these fields were outputs only, so callers did not initialize them.
  Queue queue(attr_of(), FI_VERSION(1, 4));
  queue.eq->push_error(kError);
  fi_eq_err_entry entry;
  std::memset(&entry, 0x5a, sizeof entry);
  ASSERT_EQ(fi_eq_readerr(queue.c(), &entry, 0), ssize_t(sizeof entry));
  ASSERT_EQ(entry.err_data_size, kError.err_data.size());
  EXPECT_EQ(std::memcmp(entry.err_data, kError.err_data.data(), entry.err_data_size), 0);
}

TEST(EqError, HasWords) {
  Queue queue;
  char text[64];
  EXPECT_EQ(fi_eq_strerror(queue.c(), FI_ECONNREFUSED, nullptr, text, sizeof text), text);
  EXPECT_STREQ(text, strerror(ECONNREFUSED));
}

// ---- waiting ----

class EqWait : public ::testing::TestWithParam<enum fi_wait_obj> {};
INSTANTIATE_TEST_SUITE_P(Objects, EqWait,
                         ::testing::Values(FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_POLLFD,
                                           FI_WAIT_YIELD, FI_WAIT_MUTEX_COND));

TEST_P(EqWait, TheTimeIsKept) {
  Queue queue(attr_of(GetParam()));
  const uint64_t start = now_ns();
  EXPECT_EQ(queue.sread(30), -FI_EAGAIN);
  EXPECT_GE(now_ns() - start, 30'000'000u);
  EXPECT_EQ(queue.sread(0), -FI_EAGAIN);
  queue.write(3);
  queue.eq->push_error(kError);
  EXPECT_EQ(queue.sread(0), 3);
  EXPECT_EQ(queue.sread(-1), -FI_EAVAIL);
}

TEST_P(EqWait, AnEventFromElsewhereWakes) {
  Queue queue(attr_of(GetParam()));
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
  Queue queue(attr_of(GetParam()));
  Source early, late;
  early.pushes_to(queue, 1);
  late.pushes_to(queue, 2);
  queue.eq->add_source(early.engine);
  for (Source *source : {&early, &late}) {
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

TEST_P(EqWait, SeveralThreadsShareWhatComes) {
  Queue queue(attr_of(GetParam()));
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
  Queue queue(attr_of(FI_WAIT_FD));
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
    Source source;
    source.pushes_to(queue, 4);
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
    Queue queue(attr_of(FI_WAIT_FD));
    Source source;
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

TEST(EqNative, TheDescriptorSaysWhenToRead) {
  Queue queue(attr_of(FI_WAIT_FD));
  Source source;
  source.pushes_to(queue, 6);
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

TEST(EqNative, ACondition) {
  Queue queue(attr_of(FI_WAIT_MUTEX_COND));
  Source source;  // no thread makes progress there
  source.pushes_to(queue, 6);
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
  Queue queue(attr_of(FI_WAIT_FD));
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
  Queue queue(attr_of(FI_WAIT_FD));
  EXPECT_EQ(queue.sread(0), -FI_EAGAIN);
  ASSERT_GE(queue.fd(), 0);
  Source source;
  source.pushes_to(queue, 7);
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
