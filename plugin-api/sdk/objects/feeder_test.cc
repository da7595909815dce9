// SPDX-License-Identifier: BSD-2-Clause
// Queues and counters that contexts of several lanes report to.
#include "feeder.h"

#include <gtest/gtest.h>
#include <weft/sdk/objects/cntr.h>
#include <weft/sdk/objects/scalable.h>

#include <thread>

#include "plugin-api/sdk/testing/test_instance.h"

namespace weft::sdk {
namespace {

struct LaneDomain : TestDomain {
  explicit LaneDomain(TestDomain &of) {
    context.origin = &of.context;
    context.lane = &lane;
  }
  Lane lane;
};

struct Feeders : ::testing::Test {
  void push(LaneDomain &lane, Cq &cq, void *context) {
    Guard guard(lane.engine.lock());
    cq.push({.context = context, .flags = FI_SEND | FI_MSG, .len = 7});
  }
  void *read(fid_cq *cq) {
    fi_cq_msg_entry entry{};
    return fi_cq_read(cq, &entry, 1) == 1 ? entry.op_context : nullptr;
  }
  Cq *open_cq(enum fi_wait_obj wait = FI_WAIT_NONE) {
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_MSG;
    attr.wait_obj = wait;
    return *Cq::open(domain.context, &attr, nullptr);
  }

  TestDomain domain;
  LaneDomain a{domain}, b{domain};
  int one = 0, two = 0;
};

TEST_F(Feeders, AQueueComesToTheFirstLane) {
  Cq *const cq = open_cq();
  EXPECT_EQ(cq->reached_from(a.context), cq);
  EXPECT_EQ(&cq->engine(), &a.engine);
  EXPECT_EQ(a.context.children.load(), 1u) << "the lane must not go";
  // Nobody uses it yet.
  EXPECT_EQ(cq->reached_from(b.context), cq);
  EXPECT_EQ(&cq->engine(), &b.engine);
  EXPECT_EQ(a.context.children.load(), 0u);
  EXPECT_EQ(cq->reached_from(domain.context), cq);
  EXPECT_EQ(&cq->engine(), &domain.engine);
  EXPECT_EQ(fi_close(cq->base()), 0);
}

TEST_F(Feeders, TheOthersFeedIt) {
  Cq *const cq = open_cq();
  ASSERT_EQ(cq->reached_from(a.context), cq);
  cq->users.fetch_add(1);
  Cq *const feeds = cq->reached_from(b.context);
  ASSERT_NE(feeds, cq);
  EXPECT_EQ(cq->reached_from(b.context), feeds);
  push(a, *cq, &one);
  push(b, *feeds, &two);
  EXPECT_EQ(read(cq->c()), &one);
  EXPECT_EQ(read(cq->c()), &two);
  EXPECT_EQ(read(cq->c()), nullptr);
  {
    Guard guard(b.engine.lock());
    feeds->push_error({.context = &two, .err = FI_ECANCELED, .err_data = "why"});
  }
  fi_cq_msg_entry entry{};
  EXPECT_EQ(fi_cq_read(cq->c(), &entry, 1), -FI_EAVAIL);
  fi_cq_err_entry error{};
  ASSERT_EQ(fi_cq_readerr(cq->c(), &error, 0), 1);
  EXPECT_EQ(error.op_context, &two);
  EXPECT_EQ(error.err, FI_ECANCELED);
  EXPECT_EQ(std::string(static_cast<char *>(error.err_data), error.err_data_size), "why");
  cq->users.fetch_sub(1);
  EXPECT_EQ(fi_close(cq->base()), 0);
}

TEST_F(Feeders, AReaderDoesNotWaitForALane) {
  Cq *const cq = open_cq();
  ASSERT_EQ(cq->reached_from(a.context), cq);
  cq->users.fetch_add(1);
  Cq *const feeds = cq->reached_from(b.context);
  b.engine.lock().lock();
  feeds->push({.context = &two, .flags = FI_SEND | FI_MSG});
  std::thread([&] { EXPECT_EQ(read(cq->c()), &two); }).join();
  b.engine.lock().unlock();
  cq->users.fetch_sub(1);
  EXPECT_EQ(fi_close(cq->base()), 0);
}

TEST_F(Feeders, ASleeperIsWoken) {
  Cq *const cq = open_cq(FI_WAIT_UNSPEC);
  ASSERT_EQ(cq->reached_from(a.context), cq);
  cq->users.fetch_add(1);
  Cq *const feeds = cq->reached_from(b.context);
  std::thread sleeper([&] {
    fi_cq_msg_entry entry{};
    EXPECT_EQ(fi_cq_sread(cq->c(), &entry, 1, nullptr, 10'000), 1);
    EXPECT_EQ(entry.op_context, &two);
  });
  push(b, *feeds, &two);
  sleeper.join();
  cq->users.fetch_sub(1);
  EXPECT_EQ(fi_close(cq->base()), 0);
}

TEST_F(Feeders, ACounterCountsForAllLanes) {
  Cntr *const cntr = *Cntr::open(domain.context, nullptr, nullptr);
  ASSERT_EQ(cntr->reached_from(a.context), cntr);
  cntr->users.fetch_add(1);
  Cntr *const feeds = cntr->reached_from(b.context);
  ASSERT_NE(feeds, cntr);
  {
    Guard guard(a.engine.lock());
    cntr->add_events(1, 100);
  }
  {
    Guard guard(b.engine.lock());
    feeds->add_events(1, 100);
    feeds->add_events(1, 100);
    feeds->add_error();
  }
  EXPECT_EQ(fi_cntr_read(cntr->c()), 3u);
  EXPECT_EQ(fi_cntr_readerr(cntr->c()), 1u);
  cntr->users.fetch_sub(1);
  EXPECT_EQ(fi_close(cntr->base()), 0);
}

}  // namespace
}  // namespace weft::sdk
