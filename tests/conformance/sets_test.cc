// SPDX-License-Identifier: BSD-2-Clause
// Poll sets and wait sets (fi_poll.3), and fi_trywait over a mixture.
#include <poll.h>

#include <algorithm>
#include <thread>

#include "tests/conformance/device_memory.h"
#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

Handle<fid_wait> open_wait_set(fid_fabric *fabric, enum fi_wait_obj type) {
  Handle<fid_wait> set;
  fi_wait_attr attr{};
  attr.wait_obj = type;
  must(fi_wait_open(fabric, &attr, set.out()));
  return set;
}

// ---- poll sets ----

class PollSet : public ::testing::Test {
 protected:
  PollSet() {
    side.open(options_info({}).get());
    fi_poll_attr attr{};
    must(fi_poll_open(side.domain, &attr, set.out()));
  }
  Side side;
  Handle<fid_poll> set;
};

TEST_F(PollSet, AnEmptySetHasNothing) {
  void *contexts[4];
  EXPECT_EQ(fi_poll(set, contexts, 4), 0);
}

TEST_F(PollSet, ReportsTheContextsOfMembersWithEvents) {
  NEEDS_COUNTERS();
  int mark_a, mark_b;
  Handle<fid_cntr> a, b;
  fi_cntr_attr attr{};
  must(fi_cntr_open(side.domain, &attr, a.out(), &mark_a));
  must(fi_cntr_open(side.domain, &attr, b.out(), &mark_b));
  must(fi_poll_add(set, a.fid(), 0));
  must(fi_poll_add(set, b.fid(), 0));
  void *contexts[4] = {};
  EXPECT_EQ(fi_poll(set, contexts, 4), 0);
  // fi_cntr_add itself is no event (fi_poll.3). An error of an operation is one; fi_cntr_adderr
  // stands for it here.
  must(fi_cntr_adderr(b, 1));
  const int n = fi_poll(set, contexts, 4);
  EXPECT_EQ(n, 1);
  EXPECT_EQ(contexts[0], &mark_b);
  EXPECT_EQ(fi_poll(set, contexts, 4), 0) << "told once";
  must(fi_poll_del(set, a.fid(), 0));
  must(fi_poll_del(set, b.fid(), 0));
}

TEST_F(PollSet, MembersAreBusyUntilTheyAreTakenOut) {
  must(fi_poll_add(set, side.tx_cq.fid(), 0));
  EXPECT_EQ(fi_close(side.tx_cq.fid()), -FI_EBUSY);
  must(fi_poll_del(set, side.tx_cq.fid(), 0));
}

TEST_F(PollSet, RefusesOtherObjects) {
  EXPECT_LT(fi_poll_add(set, side.domain.fid(), 0), 0);
  EXPECT_LT(fi_poll_del(set, side.tx_cq.fid(), 0), 0);
  EXPECT_LT(fi_poll_add(set, side.tx_cq.fid(), 1), 0);
  fi_poll_attr attr{};
  attr.flags = 1;
  fid_poll *other = nullptr;
  EXPECT_LT(fi_poll_open(side.domain, &attr, &other), 0);
}

TEST(PollSetTraffic, ProgressesAllAndNamesTheQueue) {
  Pair pair;
  Handle<fid_poll> set;
  fi_poll_attr attr{};
  must(fi_poll_open(pair.b.domain, &attr, set.out()));
  must(fi_poll_add(set, pair.b.tx_cq.fid(), 0));
  must(fi_poll_add(set, pair.b.rx_cq.fid(), 0));
  pair.b.rx_cq->fid.context = &pair;
  char in[8];
  must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in));
  must(fi_inject(pair.a.ep, "hello", 6, 0));
  void *contexts[4] = {};
  int n = 0;
  ASSERT_TRUE(until([&] { return (n = fi_poll(set, contexts, 4)) != 0; }, {&pair.a}));
  EXPECT_EQ(n, 1);
  EXPECT_EQ(contexts[0], &pair);
  EXPECT_EQ(fi_poll(set, contexts, 4), 1) << "as long as it is not read";
  EXPECT_TRUE(poll_cq(pair.b.rx_cq).has_value());
  EXPECT_EQ(fi_poll(set, contexts, 4), 0);
  must(fi_poll_del(set, pair.b.tx_cq.fid(), 0));
  must(fi_poll_del(set, pair.b.rx_cq.fid(), 0));
}

// ---- wait sets ----

class WaitSet : public ::testing::TestWithParam<enum fi_wait_obj> {};
INSTANTIATE_TEST_SUITE_P(Objects, WaitSet, ::testing::Values(FI_WAIT_UNSPEC, FI_WAIT_FD));

// A side whose queues all belong to one wait set.
struct Waiting {
  explicit Waiting(enum fi_wait_obj type) {
    const Info info = options_info({});
    must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
    set = open_wait_set(fabric, type);
    must(fi_domain(fabric, info.get(), domain.out(), nullptr));
    serve_device_memory(domain, *info);
    fi_eq_attr eq_attr{};
    eq_attr.flags = FI_WRITE;
    eq_attr.wait_obj = FI_WAIT_SET;
    eq_attr.wait_set = set;
    must(fi_eq_open(fabric, &eq_attr, eq.out(), nullptr));
    fi_cq_attr cq_attr = Options::cq_attr(FI_CQ_FORMAT_DATA, FI_WAIT_SET);
    cq_attr.wait_set = set;
    must(fi_cq_open(domain, &cq_attr, cq.out(), nullptr));
    fi_cntr_attr cntr_attr{};
    cntr_attr.wait_obj = FI_WAIT_SET;
    cntr_attr.wait_set = set;
    if (info->domain_attr->cntr_cnt != 0)
      must(fi_cntr_open(domain, &cntr_attr, counter.out(), nullptr));
  }
  Handle<fid_fabric> fabric;
  Handle<fid_wait> set;
  Handle<fid_domain> domain;
  Handle<fid_eq> eq;
  Handle<fid_cq> cq;
  Handle<fid_cntr> counter;
};

TEST_P(WaitSet, WaitTimesOut) {
  Waiting w(GetParam());
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(fi_wait(w.set, 20), -FI_ETIMEDOUT);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(15));
  EXPECT_EQ(fi_wait(w.set, 0), -FI_ETIMEDOUT);
}

TEST_P(WaitSet, AnEventOfAnyMemberEndsTheWait) {
  Waiting w(GetParam());
  fi_eq_entry entry{};
  must(fi_eq_write(w.eq, 1, &entry, sizeof entry, 0));
  EXPECT_EQ(fi_wait(w.set, 10000), 0);
  uint32_t event;
  must(fi_eq_read(w.eq, &event, &entry, sizeof entry, 0));
  EXPECT_EQ(fi_wait(w.set, 0), -FI_ETIMEDOUT);
}

TEST_P(WaitSet, AnEventWakesABlockedThread) {
  Waiting w(GetParam());
  int rc = -1;
  std::thread waiter([&] { rc = fi_wait(w.set, 20000); });
  fi_eq_entry entry{};
  must(fi_eq_write(w.eq, 1, &entry, sizeof entry, 0));
  waiter.join();
  EXPECT_EQ(rc, 0);
}

TEST_P(WaitSet, MembersKeepItBusy) {
  Waiting w(GetParam());
  EXPECT_EQ(fi_close(w.set.fid()), -FI_EBUSY);
}

TEST_P(WaitSet, MembersCannotBeWaitedForAlone) {
  Waiting w(GetParam());
  fi_cq_data_entry entry;
  const ssize_t rc = fi_cq_sread(w.cq, &entry, 1, nullptr, 1000);
  if (rc == -FI_EAGAIN) return;  // invalid to call (fi_cq.3); it may wait all the same
  EXPECT_LT(rc, 0);
}

TEST_P(WaitSet, TrafficOfAConnectionEndsTheWait) {
  Options options;
  Side passive;
  passive.open(options_info(options, nullptr, FI_SOURCE).get());
  Listener listener(passive);
  const std::string address = listener.address();
  Waiting w(GetParam());
  const Info info = options_info(options);
  Handle<fid_ep> ep;
  must(fi_endpoint(w.domain, info.get(), ep.out(), nullptr));
  must(fi_ep_bind(ep, w.eq.fid(), 0));
  must(fi_ep_bind(ep, w.cq.fid(), FI_TRANSMIT | FI_RECV));
  must(fi_enable(ep));
  must(fi_connect(ep, address.data(), nullptr, 0));
  std::string failure;
  std::atomic<bool> over{false};
  std::thread other([&] {
    try {
      const Event request = next_request(passive, {&passive});
      passive.make_endpoint(request.info.get());
      must(fi_accept(passive.ep, nullptr, 0));
      EXPECT_EQ(wait_event(passive.eq, {&passive}).type, uint32_t(FI_CONNECTED));
      must(fi_send(passive.ep, "hello", 6, nullptr, 0, nullptr));
      while (!over) passive.progress();
    } catch (const std::exception &error) {
      failure = error.what();
    }
  });
  char in[8];
  bool connected = false, received = false;
  EXPECT_EQ(fi_recv(ep, in, sizeof in, nullptr, 0, in), 0);
  const Deadline deadline;
  while (!(connected && received) && !deadline.passed()) {
    const int rc = fi_wait(w.set, 20000);
    if (rc != 0) {
      ADD_FAILURE() << "fi_wait: " << error_text(rc);
      break;
    }
    if (const auto event = poll_eq(w.eq)) connected = connected || event->type == FI_CONNECTED;
    if (const auto done = poll_cq(w.cq)) received = received || done->context == in;
  }
  over = true;
  other.join();
  EXPECT_TRUE(connected);
  EXPECT_TRUE(received);
  EXPECT_EQ(failure, "");
}

TEST(WaitSetNative, TheDescriptorCanBePolled) {
  Waiting w(FI_WAIT_FD);
  int fd = -1;
  must(fi_control(w.set.fid(), FI_GETWAIT, &fd));
  fid *fids[] = {w.set.fid()};
  ASSERT_EQ(fi_trywait(w.fabric, fids, 1), 0);
  pollfd p{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&p, 1, 0), 0);
  fi_eq_entry entry{};
  must(fi_eq_write(w.eq, 1, &entry, sizeof entry, 0));
  EXPECT_EQ(::poll(&p, 1, 20000), 1);
  EXPECT_EQ(fi_trywait(w.fabric, fids, 1), -FI_EAGAIN);
}

TEST(WaitSetArguments, AreChecked) {
  const Info info = options_info({});
  Handle<fid_fabric> fabric;
  must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
  fi_wait_attr attr{};
  attr.flags = 1;
  fid_wait *set = nullptr;
  EXPECT_LT(fi_wait_open(fabric, &attr, &set), 0);
  attr.flags = 0;
  attr.wait_obj = static_cast<enum fi_wait_obj>(99);
  EXPECT_LT(fi_wait_open(fabric, &attr, &set), 0);
}

// ---- fi_trywait ----

TEST(Trywait, OverSeveralObjects) {
  Options options;
  options.tx_cq = options.rx_cq = Options::cq_attr(FI_CQ_FORMAT_DATA, FI_WAIT_FD);
  options.eq = Options::eq_attr(FI_WAIT_FD);
  Pair pair(options);
  fid *fids[] = {pair.b.tx_cq.fid(), pair.b.rx_cq.fid(), pair.b.eq.fid()};
  EXPECT_EQ(fi_trywait(pair.b.fabric, fids, 3), 0);
  char in[8];
  must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in));
  must(fi_inject(pair.a.ep, "hello", 6, 0));
  EXPECT_TRUE(until([&] { return fi_trywait(pair.b.fabric, fids, 3) == -FI_EAGAIN; }, {&pair.a}));
  EXPECT_EQ(fi_trywait(pair.b.fabric, fids, 1), 0) << "the first alone has nothing";
}

TEST(Trywait, RefusesObjectsWithoutAWaitObject) {
  Side side;
  side.open(options_info({}).get());
  fid *fids[] = {side.domain.fid()};
  EXPECT_LT(fi_trywait(side.fabric, fids, 1), 0);
}

}  // namespace
}  // namespace weft::conformance
