// SPDX-License-Identifier: BSD-2-Clause
// DeferredQueue with endpoints of a test, which have as much room as it says and end what it says.
#include <gtest/gtest.h>
#include <rdma/fi_trigger.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/transfers/deferred.h>
#include <weft/sdk/transfers/transfer.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "plugin-api/sdk/testing/test_cq.h"
#include "plugin-api/sdk/testing/test_seeds.h"

namespace weft::sdk {
namespace {

fi_info info_with(uint64_t caps) {
  fi_info info{};
  info.caps = caps;
  return info;
}

class Slow final : public Object<Slow, fid_ep>, public EndpointCore, public TransferOps<Slow> {
 public:
  static constexpr uint64_t kSendFlags = FI_COMPLETION | FI_INJECT | FI_MORE;
  explicit Slow(TestDomain &domain, uint64_t caps = FI_MSG | FI_SEND | FI_RECV | FI_TRIGGER)
      : Object(domain.instance.c(), FI_CLASS_EP, nullptr),
        EndpointCore(domain.context, PeerKind::kConnected, info_with(caps), {.inject_size = 64},
                     &tx_, &rx_) {
    fill_tables(*this);
    set_enabled();
  }
  ~Slow() { end(); }
  void end() {
    const Guard guard(lock());
    detach();
    release(nullptr);
  }
  int close() { return -FI_EBUSY; }  // it goes with its variable
  int bind(struct fid *fid, uint64_t flags) { return bind_object(fid, flags); }
  int control(int command, void *arg) {
    return command == kQueueDeferred ? queue_deferred(arg)
                                     : control_flags(command, arg, kSendFlags);
  }
  ssize_t cancel(void *context) { return cancel_deferred(context); }

  ssize_t start(const SendRequest &request) {
    EXPECT_EQ(++depth, 1) << "one start within another";
    ssize_t rc = fails;
    if (rc == 0 && room == 0) rc = -FI_EAGAIN;
    if (rc == 0) {
      --room;
      tags.push_back(request.data);
      bytes.push_back(request.length != 0 ? *static_cast<char *>(request.iov[0].iov_base) : 0);
      flying.push_back({request.context, completion_flags(request), request.report});
      if (ends_at_once) finish();
    }
    --depth;
    return rc;
  }
  ssize_t start(const RmaRequest &) { return -FI_EOPNOTSUPP; }
  ssize_t start(const AtomicRequest &) { return -FI_EOPNOTSUPP; }
  ssize_t start(const RecvRequest &) { return -FI_EOPNOTSUPP; }
  // The oldest one ends.
  void finish(int err = 0) {
    const Flying one = flying.front();
    flying.pop_front();
    ++room;
    if (err == 0)
      tx_.succeed(one.context, one.flags, 8, one.report);
    else
      tx_.finish({.context = one.context, .flags = one.flags, .err = err});
  }

  struct Flying {
    void *context;
    uint64_t flags;
    bool report;
  };
  size_t room = SIZE_MAX / 2;
  bool ends_at_once = false;
  ssize_t fails = 0;
  int depth = 0;
  std::vector<uint64_t> tags;  // of what has started
  std::vector<char> bytes;
  std::deque<Flying> flying;
  TxContext tx_;
  RxContext rx_;
};

class DeferredTest : public ::testing::Test {
 protected:
  DeferredTest() {
    domain.context.deferred = &queue;
    start = open();
    done = open();
  }
  ~DeferredTest() override {
    for (Cntr *cntr : counters) EXPECT_EQ(fi_close(cntr->base()), 0);
  }
  Cntr *open() {
    auto opened = Cntr::open(domain.context, nullptr, nullptr);
    counters.push_back(*opened);
    return counters.back();
  }
  // Sends `tag` when `start` is at the threshold.
  struct Work {
    fi_op_msg op{};
    fi_deferred_work work{};
  };
  Work &make(Slow &ep, uint64_t threshold, uint64_t tag, uint64_t flags = 0) {
    Work &one = *works.emplace_back(std::make_unique<Work>());
    one.op.ep = ep.c();
    one.op.msg.data = tag;
    one.op.msg.context = &one;
    one.op.flags = flags;
    one.work.threshold = threshold;
    one.work.triggering_cntr = start->c();
    one.work.completion_cntr = done->c();
    one.work.op_type = FI_OP_SEND;
    one.work.op.msg = &one.op;
    return one;
  }
  int add(Slow &ep, uint64_t threshold, uint64_t tag, uint64_t flags = 0) {
    return queue.control(FI_QUEUE_WORK, &make(ep, threshold, tag, flags).work);
  }
  int cancel(size_t i) { return queue.control(FI_CANCEL_WORK, &works[i]->work); }
  void progress() {
    const Guard guard(domain.engine.lock());
    domain.engine.progress();
  }
  // As a protocol does.
  void finish(Slow &ep, int err = 0) {
    const Guard guard(domain.engine.lock());
    ep.finish(err);
  }
  void raise(uint64_t by) { fi_cntr_add(start->c(), by); }

  TestDomain domain;
  DeferredQueue queue{domain.context};
  std::vector<Cntr *> counters;
  Cntr *start, *done;
  std::vector<std::unique_ptr<Work>> works;
};

TEST_F(DeferredTest, StartsInTheOrderOfThresholds) {
  Slow ep(domain);
  for (const uint64_t tag : {4, 2, 9, 3, 5}) EXPECT_EQ(add(ep, tag / 2, tag), 0);
  EXPECT_TRUE(ep.tags.empty());
  raise(2);
  EXPECT_EQ(ep.tags, (std::vector<uint64_t>{2, 3, 4, 5}));
  raise(2);
  EXPECT_EQ(ep.tags.back(), 9u);
  while (!ep.flying.empty()) finish(ep);
  EXPECT_EQ(fi_cntr_read(done->c()), 5u);
}

TEST_F(DeferredTest, OneWithoutRoomKeepsNobodyElseWaiting) {
  Slow full(domain), empty(domain);
  full.room = 1;
  for (const uint64_t tag : {1, 2, 3}) {
    EXPECT_EQ(add(full, 1, tag), 0);
    EXPECT_EQ(add(empty, 1, tag), 0);
  }
  raise(1);
  EXPECT_EQ(full.tags, (std::vector<uint64_t>{1}));
  EXPECT_EQ(empty.tags, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(add(full, 1, 4), 0) << "behind those that wait for room";
  EXPECT_EQ(cancel(2), 0) << "of the tag 2: it is due, and has not started";
  EXPECT_EQ(cancel(0), -FI_ENOENT) << "it has started";
  finish(full);
  progress();
  EXPECT_EQ(full.tags, (std::vector<uint64_t>{1, 3}));
  finish(full);
  progress();
  EXPECT_EQ(full.tags, (std::vector<uint64_t>{1, 3, 4}));
}

TEST_F(DeferredTest, AChainNeedsNoStack) {
  Slow ep(domain);
  ep.ends_at_once = true;
  constexpr uint64_t kLength = 20'000;
  for (uint64_t i = 0; i < kLength; ++i) {
    Work &step = make(ep, i + 1, i);
    step.work.completion_cntr = start->c();
    ASSERT_EQ(queue.control(FI_QUEUE_WORK, &step.work), 0);
  }
  raise(1);
  EXPECT_EQ(fi_cntr_read(start->c()), kLength + 1);
  EXPECT_EQ(ep.tags.size(), kLength);
  EXPECT_TRUE(std::is_sorted(ep.tags.begin(), ep.tags.end()));
}

TEST_F(DeferredTest, WhatAProtocolRaisesStartsWithTheProgress) {
  Slow ep(domain);
  EXPECT_EQ(add(ep, 1, 7), 0);
  {
    const Guard guard(domain.engine.lock());
    start->add_events(1, 8);
    EXPECT_TRUE(ep.tags.empty()) << "a protocol is in its midst";
    domain.engine.progress();
  }
  EXPECT_EQ(ep.tags, (std::vector<uint64_t>{7}));
}

TEST_F(DeferredTest, ReportsWhereTheWorkSays) {
  TestCq cq(domain, cq_attr());
  Cntr *const own = open();
  {
    Slow ep(domain);
    ASSERT_EQ(ep.bind(cq.cq->base(), FI_TRANSMIT), 0);
    ASSERT_EQ(ep.bind(own->base(), FI_SEND), 0);
    ep.ends_at_once = true;
    EXPECT_EQ(add(ep, 0, 1), 0);
    EXPECT_EQ(cq.next(), -FI_EAGAIN) << "no completion was asked for";
    EXPECT_EQ(add(ep, 0, 2, FI_COMPLETION), 0);
    EXPECT_EQ(cq.next(), ssize_t(reinterpret_cast<size_t>(works[1].get())));
    ep.fails = -FI_EHOSTUNREACH;
    EXPECT_EQ(add(ep, 0, 3), 0);
    EXPECT_EQ(cq.next(), -1000 - ssize_t(reinterpret_cast<size_t>(works[2].get())));
    EXPECT_EQ(fi_cntr_read(done->c()), 2u);
    EXPECT_EQ(fi_cntr_readerr(done->c()), 1u);
    EXPECT_EQ(fi_cntr_read(own->c()), 0u) << "the endpoint's";
  }
}

TEST_F(DeferredTest, AnEndpointThatClosesLetsGoOfEverything) {
  Slow other(domain);
  {
    Slow ep(domain);
    ep.room = 1;
    EXPECT_EQ(add(ep, 0, 1), 0);  // on its way
    EXPECT_EQ(add(ep, 0, 2), 0);  // has no room
    EXPECT_EQ(add(ep, 9, 3), 0);  // waits
    EXPECT_EQ(add(other, 9, 4), 0);
    EXPECT_EQ(done->users.load(), 4u);
  }
  EXPECT_EQ(done->users.load(), 1u);
  EXPECT_EQ(fi_cntr_readerr(done->c()), 1u) << "of what was on its way";
  raise(9);
  EXPECT_EQ(other.tags, (std::vector<uint64_t>{4}));
}

TEST_F(DeferredTest, ACounterThatClosesDropsWhatWaits) {
  TestCq cq(domain, cq_attr());
  Cntr *const own = open();
  Slow ep(domain);
  ASSERT_EQ(ep.bind(cq.cq->base(), FI_TRANSMIT), 0);
  Work &one = make(ep, 1, 1);
  one.work.triggering_cntr = own->c();
  EXPECT_EQ(queue.control(FI_QUEUE_WORK, &one.work), 0);
  fi_triggered_context2 when{};
  when.trigger.threshold = {own->c(), 1};
  fi_msg msg{};
  msg.context = &when;
  EXPECT_EQ(fi_sendmsg(ep.c(), &msg, FI_TRIGGER), 0);
  std::erase(counters, own);
  EXPECT_EQ(fi_close(own->base()), 0);
  EXPECT_EQ(done->users.load(), 0u);
  EXPECT_EQ(cq.next(), -1000 - ssize_t(reinterpret_cast<size_t>(&when)));
  EXPECT_EQ(cq.last_error, FI_ECANCELED);
  EXPECT_EQ(cq.next(), -FI_EAGAIN);
  ep.end();
}

// The calls that it ends raise a counter at which others wait.
TEST_F(DeferredTest, ACounterThatClosesMakesOthersDue) {
  TestCq cq(domain, cq_attr());
  Cntr *const own = open();
  Slow ep(domain);
  ep.ends_at_once = true;
  ASSERT_EQ(ep.bind(cq.cq->base(), FI_TRANSMIT), 0);
  ASSERT_EQ(ep.bind(start->base(), FI_SEND), 0);
  fi_triggered_context2 when[4] = {};
  for (size_t i = 0; i < 4; ++i) {
    when[i].trigger.threshold = {i % 2 == 0 ? own->c() : start->c(), 1 + i / 2};
    fi_msg msg{};
    msg.context = &when[i];
    msg.data = i;
    EXPECT_EQ(fi_sendmsg(ep.c(), &msg, FI_TRIGGER), 0);
  }
  std::erase(counters, own);
  EXPECT_EQ(fi_close(own->base()), 0);
  EXPECT_TRUE(ep.tags.empty());
  progress();
  EXPECT_EQ(ep.tags, (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(fi_cntr_readerr(start->c()), 2u);
  ep.end();
}

TEST_F(DeferredTest, CallsHaveCopiesOfWhatTheyWereGiven) {
  Slow ep(domain);
  ep.ends_at_once = true;
  char injected = 'a', kept = 'b';
  fi_triggered_context2 when{};
  when.trigger.threshold = {start->c(), 1};
  iovec iov{&injected, 1};
  fi_msg msg{};
  msg.msg_iov = &iov;
  msg.iov_count = 1;
  msg.context = &when;
  EXPECT_EQ(fi_sendmsg(ep.c(), &msg, FI_TRIGGER | FI_INJECT), 0);
  iov.iov_base = &kept;
  EXPECT_EQ(fi_sendmsg(ep.c(), &msg, FI_TRIGGER), 0);
  iov = {nullptr, 0};
  injected = kept = 'z';
  raise(1);
  EXPECT_EQ(ep.bytes, (std::vector<char>{'a', 'z'}));
}

TEST_F(DeferredTest, ThresholdsAtTheEndOfTheRange) {
  Slow ep(domain);
  EXPECT_EQ(add(ep, UINT64_MAX, 1), 0);
  EXPECT_EQ(fi_cntr_set(start->c(), UINT64_MAX - 2), 0);
  EXPECT_EQ(fi_cntr_seterr(start->c(), 1), 0);
  EXPECT_TRUE(ep.tags.empty());
  EXPECT_EQ(fi_cntr_seterr(start->c(), 7), 0);  // their sum is more than there are numbers
  EXPECT_EQ(ep.tags.size(), 1u);
}

TEST_F(DeferredTest, TakesNothingThatItCannotDo) {
  Slow ep(domain), without(domain, FI_MSG | FI_SEND);
  EXPECT_EQ(add(without, 1, 1), -FI_EOPNOTSUPP);
  EXPECT_EQ(add(ep, 1, 1, FI_PEEK), -FI_EBADFLAGS);
  EXPECT_EQ(add(ep, 1, 1, kDeferred), -FI_EBADFLAGS);
  EXPECT_EQ(done->users.load(), 0u);
  fi_msg msg{};
  EXPECT_EQ(fi_sendmsg(ep.c(), &msg, kDeferred), -FI_EBADFLAGS);
  EXPECT_EQ(fi_recvmsg(ep.c(), &msg, kDeferred), -FI_EBADFLAGS);
  EXPECT_EQ(fi_recvmsg(without.c(), &msg, FI_TRIGGER), -FI_EBADFLAGS);
  Work &other = make(ep, 1, 1);
  other.op.ep = nullptr;
  EXPECT_EQ(queue.control(FI_QUEUE_WORK, &other.work), -FI_EINVAL);
  other.work.op.msg = nullptr;
  EXPECT_EQ(queue.control(FI_QUEUE_WORK, &other.work), -FI_EINVAL);
  EXPECT_EQ(queue.control(FI_QUEUE_WORK, nullptr), -FI_EINVAL);
  EXPECT_EQ(queue.control(FI_ENABLE, nullptr), -FI_ENOSYS);
}

// A thread raises the counter, one queues and takes back, one ends operations as a protocol does.
TEST_F(DeferredTest, ThreadsAgree) {
  constexpr size_t kWorks = 300;
  Slow ep(domain);
  ep.room = 2;
  for (size_t i = 0; i < kWorks; ++i) make(ep, i + 1, i);
  std::atomic<size_t> taken_back{0};
  std::atomic<bool> over{false};
  std::thread raiser([&] {
    for (size_t i = 0; i < kWorks; ++i) raise(1);
  });
  std::thread queuer([&] {
    for (size_t i = 0; i < kWorks; ++i) {
      EXPECT_EQ(queue.control(FI_QUEUE_WORK, &works[i]->work), 0);
      if (i % 3 == 0) taken_back += cancel(i / 2) == 0;
    }
  });
  std::thread protocol([&] {
    while (!over) {
      const Guard guard(domain.engine.lock());
      if (!ep.flying.empty()) ep.finish();
      domain.engine.progress();
    }
  });
  raiser.join();
  queuer.join();
  EXPECT_TRUE(eventually([&] { return fi_cntr_read(done->c()) + taken_back == kWorks; }));
  over = true;
  protocol.join();
  EXPECT_EQ(ep.tags.size() + taken_back, kWorks);
  EXPECT_EQ(done->users.load(), 0u);
}

// Any calls in any order: each piece of work starts once, in order, or was taken back.
TEST(Deferred, AnyCalls) {
  run_seeds("Deferred.AnyCalls", {.usual = 2000, .sanitized = 100}, [](uint64_t seed, Scenario &) {
    std::minstd_rand random{uint32_t(seed) + 1};
    const auto below = [&](uint32_t n) { return uint32_t(random() % n); };
    TestDomain domain;
    DeferredQueue queue{domain.context};
    domain.context.deferred = &queue;
    Cntr *const start = *Cntr::open(domain.context, nullptr, nullptr);
    Cntr *const done = *Cntr::open(domain.context, nullptr, nullptr);
    {
      Slow endpoints[] = {Slow(domain), Slow(domain)};
      for (Slow &ep : endpoints) ep.room = 1 + below(4);
      struct Item {
        fi_op_msg op{};
        fi_deferred_work work{};
        bool taken_back = false;
      };
      std::vector<std::unique_ptr<Item>> items;
      uint64_t value = 0;
      for (int step = 0; step < 300; ++step) {
        switch (below(8)) {
          case 0:
          case 1:
          case 2: {
            Item &item = *items.emplace_back(std::make_unique<Item>());
            item.op.ep = endpoints[below(2)].c();
            item.op.msg.data = items.size() - 1;
            item.work.threshold = value + below(6);
            item.work.triggering_cntr = start->c();
            item.work.completion_cntr = done->c();
            item.work.op_type = FI_OP_SEND;
            item.work.op.msg = &item.op;
            EXPECT_EQ(queue.control(FI_QUEUE_WORK, &item.work), 0);
            break;
          }
          case 3:
            if (items.empty()) break;
            if (Item &item = *items[below(uint32_t(items.size()))];
                queue.control(FI_CANCEL_WORK, &item.work) == 0) {
              EXPECT_FALSE(item.taken_back);
              item.taken_back = true;
            }
            break;
          case 4:
            value += below(3);
            fi_cntr_set(start->c(), value);
            break;
          default: {
            Slow &ep = endpoints[below(2)];
            const Guard guard(domain.engine.lock());
            if (!ep.flying.empty()) ep.finish();
            if (below(2) == 0) domain.engine.progress();
          }
        }
      }
      fi_cntr_set(start->c(), value + 10);
      for (Slow &ep : endpoints) {
        const Guard guard(domain.engine.lock());
        for (;; domain.engine.progress()) {
          if (ep.flying.empty()) break;
          ep.finish();
        }
      }
      std::map<uint64_t, int> started;
      for (const Slow &ep : endpoints)
        for (const uint64_t tag : ep.tags) ++started[tag];
      for (size_t i = 0; i < items.size(); ++i)
        EXPECT_EQ(started[i], items[i]->taken_back ? 0 : 1) << i;
      const size_t back =
          size_t(std::ranges::count_if(items, [](const auto &item) { return item->taken_back; }));
      EXPECT_EQ(fi_cntr_read(done->c()), items.size() - back);
      EXPECT_EQ(done->users.load(), 0u);
    }
    EXPECT_EQ(fi_close(start->base()), 0);
    EXPECT_EQ(fi_close(done->base()), 0);
  });
}

}  // namespace
}  // namespace weft::sdk
