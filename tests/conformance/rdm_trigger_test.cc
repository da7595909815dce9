// SPDX-License-Identifier: BSD-2-Clause
// Calls with FI_TRIGGER (fi_trigger.3): transfers that start when a counter reaches a threshold.
#include <rdma/fi_trigger.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

// The context of a call, at least as long as the call waits.
struct When {
  When(fid_cntr *cntr, size_t threshold) {
    context.event_type = FI_TRIGGER_THRESHOLD;
    context.trigger.threshold = {cntr, threshold};
  }
  fi_triggered_context2 context{};
};

// Two applications. The first one calls with FI_TRIGGER; the second one has a window of memory.
class RdmTrigger : public ::testing::Test {
 protected:
  static constexpr uint64_t kKey = 200, kTag = 7;

  void SetUp() override {
    RDM_NEEDS(FI_TRIGGER | FI_RMA);
    open(with(FI_TRIGGER | FI_RMA));
  }
  void TearDown() override { net.reset(); }
  static Options with(uint64_t caps) {
    Options options;
    options.caps |= caps;
    options.order = FI_ORDER_SAS;
    return options;
  }
  void open(const Options &options) {
    net = std::make_unique<Net>(2, options);
    start = (*net)[0].count(0);
    region = (*net)[1].expose(window.data(), window.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, kKey);
  }
  fid_ep *ep() { return (*net)[0].ep; }
  fid_ep *peer() { return (*net)[1].ep; }
  fi_addr_t to() const { return net->at(0, 1); }
  fi_rma_iov remote(size_t offset, size_t length) {
    return {(*net)[1].base_of(window.data()) + offset, length, fi_mr_key(region)};
  }
  fi_msg message(const iovec &iov, void *context) const {
    fi_msg msg{};
    msg.msg_iov = &iov;
    msg.iov_count = 1;
    msg.addr = to();
    msg.context = context;
    return msg;
  }
  // Starts when `start` is at the threshold of `when`.
  ssize_t send(std::vector<uint8_t> &out, When &when, uint64_t flags = 0) {
    const iovec iov{out.data(), out.size()};
    const fi_msg msg = message(iov, &when.context);
    return fi_sendmsg(ep(), &msg, flags | FI_TRIGGER);
  }
  ssize_t receive(std::vector<uint8_t> &in) {
    return fi_recv(peer(), in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in);
  }
  void expect_nothing() {
    net->settle();
    EXPECT_FALSE(poll((*net)[0].tx_cq)) << "it has started early";
    EXPECT_FALSE(poll((*net)[1].rx_cq)) << "it has started early";
  }
  void expect_done(const When &when) {
    const Completion done = net->wait((*net)[0].tx_cq);
    EXPECT_EQ(done.err, 0);
    EXPECT_EQ(done.context, &when.context);
  }

  std::vector<uint8_t> window = std::vector<uint8_t>(4096);
  std::unique_ptr<Net> net;
  fid_cntr *start = nullptr;
  fid_mr *region = nullptr;
};

TEST_F(RdmTrigger, IsACapabilityThatIsAskedFor) {
  EXPECT_EQ(find_info(Options())->caps & FI_TRIGGER, 0u);
  EXPECT_NE(find_info(with(FI_TRIGGER))->caps & FI_TRIGGER, 0u);
  Options without;
  net = std::make_unique<Net>(2, without);
  start = (*net)[0].count(0);
  std::vector<uint8_t> out(8);
  When when(start, 1);
  EXPECT_EQ(send(out, when), -FI_EBADFLAGS);
  Handle<fid_ep> alias;
  EXPECT_EQ(fi_ep_alias(ep(), alias.out(), FI_TRANSMIT | FI_TRIGGER), -FI_EBADFLAGS);
}

TEST_F(RdmTrigger, MessagesOfAllSizes) {
  for (const size_t size : {0, 8, 5000, 300'000}) {
    SCOPED_TRACE(size);
    must(fi_cntr_set(start, 0));
    std::vector<uint8_t> out = pattern(size, 1), in(size, 0xee);
    When when(start, 2);
    must(receive(in));
    must(send(out, when, FI_COMPLETION));
    must(fi_cntr_add(start, 1));
    expect_nothing();
    must(fi_cntr_add(start, 1));
    EXPECT_EQ(net->wait((*net)[1].rx_cq).len, size);
    EXPECT_EQ(in, out);
    expect_done(when);
  }
}

// The calls with flags.
TEST_F(RdmTrigger, EachKindOfTransfer) {
  std::vector<uint8_t> out = pattern(64, 1), in(64), back(64);
  const iovec from{out.data(), out.size()}, into{back.data(), back.size()};
  must(fi_trecv(peer(), in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, kTag, 0, &in));
  When sent(start, 1), written(start, 2), read(start, 3);
  fi_msg_tagged tagged{};
  tagged.msg_iov = &from;
  tagged.iov_count = 1;
  tagged.addr = to();
  tagged.tag = kTag;
  tagged.data = 3;
  tagged.context = &sent.context;
  const fi_rma_iov target = remote(100, 64);
  fi_msg_rma write{};
  write.msg_iov = &from;
  write.iov_count = 1;
  write.addr = to();
  write.rma_iov = &target;
  write.rma_iov_count = 1;
  write.context = &written.context;
  fi_msg_rma reading = write;
  reading.msg_iov = &into;
  reading.context = &read.context;
  must(fi_readmsg(ep(), &reading, FI_TRIGGER | FI_COMPLETION));
  must(fi_writemsg(ep(), &write, FI_TRIGGER | FI_COMPLETION | FI_DELIVERY_COMPLETE));
  must(fi_tsendmsg(ep(), &tagged, FI_TRIGGER | FI_COMPLETION | FI_REMOTE_CQ_DATA));
  expect_nothing();
  must(fi_cntr_add(start, 1));
  const Completion got = net->wait((*net)[1].rx_cq);
  EXPECT_EQ(got.data, (*net)[1].arriving(3));
  EXPECT_EQ(got.tag, kTag);
  EXPECT_EQ(in, out);
  expect_done(sent);
  expect_nothing();
  must(fi_cntr_add(start, 1));
  expect_done(written);
  EXPECT_TRUE(std::equal(out.begin(), out.end(), window.begin() + 100));
  expect_nothing();
  must(fi_cntr_add(start, 1));
  expect_done(read);
  EXPECT_EQ(back, out);
}

// Calls without flags, by an alias whose flags say so.
TEST_F(RdmTrigger, AliasesThatTrigger) {
  Handle<fid_ep> alias;
  must(fi_ep_alias(ep(), alias.out(), FI_TRANSMIT | FI_TRIGGER | FI_COMPLETION));
  std::vector<uint8_t> out = pattern(64, 1), in(64);
  iovec iov{out.data(), out.size()};
  void *const none = nullptr;
  const fi_rma_iov target = remote(100, 64);
  struct Call {
    const char *name;
    bool is_message;
    std::function<ssize_t(void *)> go;
  };
  const Call calls[] = {
      {"fi_send", true, [&](void *c) { return fi_send(alias, out.data(), 64, none, to(), c); }},
      {"fi_sendv", true, [&](void *c) { return fi_sendv(alias, &iov, nullptr, 1, to(), c); }},
      {"fi_senddata", true,
       [&](void *c) { return fi_senddata(alias, out.data(), 64, none, 5, to(), c); }},
      {"fi_tsend", true,
       [&](void *c) { return fi_tsend(alias, out.data(), 64, none, to(), kTag, c); }},
      {"fi_tsendv", true,
       [&](void *c) { return fi_tsendv(alias, &iov, nullptr, 1, to(), kTag, c); }},
      {"fi_tsenddata", true,
       [&](void *c) { return fi_tsenddata(alias, out.data(), 64, none, 5, to(), kTag, c); }},
      {"fi_write", false,
       [&](void *c) {
         return fi_write(alias, out.data(), 64, none, to(), target.addr, target.key, c);
       }},
      {"fi_writev", false,
       [&](void *c) {
         return fi_writev(alias, &iov, nullptr, 1, to(), target.addr, target.key, c);
       }},
      {"fi_writedata", false,
       [&](void *c) {
         return fi_writedata(alias, out.data(), 64, none, 5, to(), target.addr, target.key, c);
       }},
      {"fi_read", false,
       [&](void *c) {
         return fi_read(alias, out.data(), 64, none, to(), target.addr, target.key, c);
       }},
      {"fi_readv", false,
       [&](void *c) {
         return fi_readv(alias, &iov, nullptr, 1, to(), target.addr, target.key, c);
       }},
  };
  for (const Call &call : calls) {
    SCOPED_TRACE(call.name);
    must(fi_cntr_set(start, 0));
    const bool tagged = call.name[3] == 't';
    if (call.is_message)
      must(tagged ? fi_trecv(peer(), in.data(), 64, nullptr, FI_ADDR_UNSPEC, kTag, 0, &in)
                  : fi_recv(peer(), in.data(), 64, nullptr, FI_ADDR_UNSPEC, &in));
    When when(start, 1);
    must(call.go(&when.context));
    expect_nothing();
    must(fi_cntr_add(start, 1));
    expect_done(when);
    if (call.is_message) {
      EXPECT_EQ(net->wait((*net)[1].rx_cq).len, 64u);
    } else {
      net->until([&] { return !poll((*net)[1].rx_cq); });  // of fi_writedata
    }
  }
  // What has no context cannot wait.
  must(fi_recv(peer(), in.data(), 64, nullptr, FI_ADDR_UNSPEC, &in));
  must(fi_inject(alias, out.data(), 8, to()));
  EXPECT_EQ(net->wait((*net)[1].rx_cq).len, 8u);
}

TEST_F(RdmTrigger, ReceivesWhereTheCounterStartsThem) {
  std::vector<uint8_t> out = pattern(64, 1), in(64);
  const iovec iov{in.data(), in.size()};
  When when(start, 1);
  fi_msg msg = message(iov, &when.context);
  msg.addr = FI_ADDR_UNSPEC;
  const ssize_t rc = fi_recvmsg(ep(), &msg, FI_TRIGGER | FI_COMPLETION);
  if (rc == -FI_ENOSYS) GTEST_SKIP() << stack() << " starts no receives by counters";
  must(rc);
  net->post([&] { return fi_send(peer(), out.data(), 64, nullptr, net->at(1, 0), &out); });
  net->settle();
  EXPECT_FALSE(poll((*net)[0].rx_cq));
  must(fi_cntr_add(start, 1));
  EXPECT_EQ(net->wait((*net)[0].rx_cq).context, &when.context);
  EXPECT_EQ(in, out);
  net->wait((*net)[1].tx_cq);
  Handle<fid_ep> alias;
  must(fi_ep_alias(ep(), alias.out(), FI_RECV | FI_TRIGGER | FI_COMPLETION));
  When again(start, 2);
  must(fi_trecv(alias, in.data(), 64, nullptr, FI_ADDR_UNSPEC, kTag, 0, &again.context));
  net->post([&] { return fi_tsend(peer(), out.data(), 64, nullptr, net->at(1, 0), kTag, &out); });
  net->settle();
  EXPECT_FALSE(poll((*net)[0].rx_cq));
  must(fi_cntr_add(start, 1));
  EXPECT_EQ(net->wait((*net)[0].rx_cq).context, &again.context);
}

class RdmTriggerAtomic : public RdmTrigger {
 protected:
  void SetUp() override {
    RDM_NEEDS(FI_TRIGGER | FI_RMA | FI_ATOMIC);
    open(with(FI_TRIGGER | FI_RMA | FI_ATOMIC));
  }
};

TEST_F(RdmTriggerAtomic, EachKind) {
  uint64_t two = 2, with = 5, old[2] = {}, injected = 3;
  const fi_ioc operand{&two, 1}, compare{&with, 1}, last{&injected, 1};
  fi_ioc results[] = {{&old[0], 1}, {&old[1], 1}};
  const fi_rma_ioc word{remote(0, 8).addr, 1, fi_mr_key(region)};
  When added(start, 2), fetched(start, 3), swapped(start, 4), first(start, 1);
  fi_msg_atomic msg{};
  msg.msg_iov = &operand;
  msg.iov_count = 1;
  msg.addr = to();
  msg.rma_iov = &word;
  msg.rma_iov_count = 1;
  msg.datatype = FI_UINT64;
  msg.op = FI_SUM;
  constexpr uint64_t kFlags = FI_TRIGGER | FI_COMPLETION | FI_DELIVERY_COMPLETE;
  fi_msg_atomic swap = msg, inject = msg;
  swap.op = FI_CSWAP_NE;
  swap.context = &swapped.context;
  must(fi_compare_atomicmsg(ep(), &swap, &compare, nullptr, 1, &results[1], nullptr, 1, kFlags));
  msg.context = &fetched.context;
  must(fi_fetch_atomicmsg(ep(), &msg, &results[0], nullptr, 1, kFlags));
  msg.context = &added.context;
  must(fi_atomicmsg(ep(), &msg, kFlags));
  inject.msg_iov = &last;
  inject.context = &first.context;
  must(fi_atomicmsg(ep(), &inject, kFlags | FI_INJECT));
  injected = 99;  // the call has a copy
  expect_nothing();
  for (const When *when : {&first, &added, &fetched, &swapped}) {
    must(fi_cntr_add(start, 1));
    expect_done(*when);
  }
  EXPECT_EQ(old[0], 5u) << "3 and 2";
  EXPECT_EQ(old[1], 7u);
  uint64_t now;
  std::copy_n(window.data(), 8, reinterpret_cast<uint8_t *>(&now));
  EXPECT_EQ(now, 2u) << "5 was not there, so it was swapped for 2";
}

TEST_F(RdmTrigger, StartInTheOrderOfThresholds) {
  std::vector<std::vector<uint8_t>> out, in(6, std::vector<uint8_t>(1));
  for (uint8_t i = 0; i < 6; ++i) out.push_back({i});
  for (auto &one : in) must(receive(one));
  const size_t thresholds[] = {5, 1, 3, 5, 1, 2};
  std::vector<When> when;
  for (const size_t threshold : thresholds) when.emplace_back(start, threshold);
  for (size_t i = 0; i < 6; ++i) must(send(out[i], when[i]));
  expect_nothing();
  must(fi_cntr_add(start, 7));
  std::vector<uint8_t> came;
  for (size_t i = 0; i < 6; ++i) {
    net->wait((*net)[1].rx_cq);
    came.push_back(in[i][0]);
  }
  EXPECT_EQ(came, (std::vector<uint8_t>{1, 4, 5, 2, 0, 3}));
}

TEST_F(RdmTrigger, AThresholdThatIsReachedStartsAtOnce) {
  std::vector<uint8_t> out = pattern(20, 1), in(20);
  must(receive(in));
  must(fi_cntr_adderr(start, 1));
  must(fi_cntr_add(start, 4));
  When when(start, 5);
  net->post([&] { return send(out, when, FI_COMPLETION); });
  EXPECT_EQ(net->wait((*net)[1].rx_cq).len, 20u);
  expect_done(when);
}

TEST_F(RdmTrigger, TheVectorsOfACallAreCopied) {
  std::vector<uint8_t> out = pattern(16, 1), in(16);
  const std::vector<uint8_t> sent = out;
  must(receive(in));
  When when(start, 1);
  {
    auto iov = std::make_unique<iovec>(iovec{out.data(), out.size()});
    auto msg = std::make_unique<fi_msg>(message(*iov, &when.context));
    must(fi_sendmsg(ep(), msg.get(), FI_TRIGGER | FI_INJECT | FI_COMPLETION));
    *iov = {nullptr, 1 << 20};
    msg->iov_count = 99;
  }
  std::fill(out.begin(), out.end(), 0);  // it was injected
  must(fi_cntr_add(start, 1));
  EXPECT_EQ(net->wait((*net)[1].rx_cq).len, 16u);
  EXPECT_EQ(in, sent);
  expect_done(when);
}

TEST_F(RdmTrigger, ACallCanBeCancelled) {
  std::vector<uint8_t> out(8), in(8);
  must(receive(in));
  When when(start, 1), second(start, 1);
  must(send(out, when));
  must(send(out, second, FI_COMPLETION));
  must(fi_cancel(&ep()->fid, &when.context));
  const Completion cancelled = net->wait((*net)[0].tx_cq);
  EXPECT_EQ(cancelled.err, FI_ECANCELED);
  EXPECT_EQ(cancelled.context, &when.context);
  EXPECT_EQ(fi_cancel(&ep()->fid, &when.context), -FI_ENOENT);
  // Work of the domain is something else.
  must(fi_control(&(*net)[0].domain->fid, FI_FLUSH_WORK, nullptr));
  must(fi_cntr_add(start, 1));
  EXPECT_EQ(net->wait((*net)[1].rx_cq).len, 8u);
  expect_done(second);
  expect_nothing();
}

TEST_F(RdmTrigger, ACounterThatClosesEndsWhatWaits) {
  std::vector<uint8_t> out(8);
  When when(start, 1);
  must(send(out, when));
  std::erase_if((*net)[0].counters, [&](const auto &one) { return one.get() == start; });
  const Completion cancelled = net->wait((*net)[0].tx_cq);
  EXPECT_EQ(cancelled.err, FI_ECANCELED);
  EXPECT_EQ(cancelled.context, &when.context);
}

TEST_F(RdmTrigger, AnEndpointClosesWithWhatWaits) {
  std::vector<uint8_t> out(8);
  std::vector<When> when(20, When(start, 1));
  for (When &one : when) must(send(out, one));
  (*net)[0].ep.reset();
  must(fi_cntr_add(start, 1));
  net->settle();
}

// More than an endpoint has room for at a time, at one threshold: none is lost, and their order
// stays.
TEST_F(RdmTrigger, MoreThanTheQueueHolds) {
  const size_t many = 3 * (*net)[0].info->tx_attr->size / 2;
  std::vector<uint32_t> numbers(many), arrived(many, UINT32_MAX);
  std::vector<When> when(many, When(start, 1));
  size_t queued = 0;
  for (; queued < many; ++queued) {
    numbers[queued] = uint32_t(queued);
    const iovec iov{&numbers[queued], 4};
    const fi_msg msg = message(iov, &when[queued].context);
    const ssize_t rc = fi_sendmsg(ep(), &msg, FI_TRIGGER | FI_COMPLETION);
    if (rc != 0) {  // a device has limits
      EXPECT_TRUE(rc == -FI_EAGAIN || rc == -FI_ENOSPC) << rc;
      break;
    }
  }
  ASSERT_GE(queued, 32u);
  must(fi_cntr_add(start, 1));
  size_t posted = 0, received = 0, sent = 0;
  EXPECT_TRUE(net->until([&] {
    while (posted < queued &&
           fi_recv(peer(), &arrived[posted], 4, nullptr, FI_ADDR_UNSPEC, nullptr) == 0)
      ++posted;
    while (poll((*net)[1].rx_cq)) ++received;
    while (const auto done = poll((*net)[0].tx_cq)) {
      EXPECT_EQ(done->err, 0);
      ++sent;
    }
    return received == queued && sent == queued;
  })) << received
      << " received, " << sent << " sent of " << queued;
  arrived.resize(queued);
  EXPECT_TRUE(std::is_sorted(arrived.begin(), arrived.end()));
}

// Each is started by the end of the one before: a ring of two, without a call in between.
TEST_F(RdmTrigger, AChainOfMessages) {
  constexpr size_t kRounds = 50;
  Net chain(2, with(FI_TRIGGER), [](Node &node) { node.count(FI_RECV); });
  std::vector<uint64_t> values(2 * kRounds), in(2 * kRounds);
  std::vector<When> when;
  for (size_t i = 0; i < kRounds; ++i)
    for (const size_t me : {0, 1}) when.emplace_back(chain[me].counters[0], i + 1);
  for (size_t i = 0; i < kRounds; ++i) {
    for (const size_t me : {0, 1}) {
      const size_t at = 2 * i + me;
      values[at] = at;
      must(fi_recv(chain[me].ep, &in[at], 8, nullptr, FI_ADDR_UNSPEC, nullptr));
      const iovec iov{&values[at], 8};
      fi_msg msg{};
      msg.msg_iov = &iov;
      msg.iov_count = 1;
      msg.addr = chain.at(me, 1 - me);
      msg.context = &when[at].context;
      must(fi_sendmsg(chain[me].ep, &msg, FI_TRIGGER));
    }
  }
  must(fi_inject(chain[0].ep, &values[0], 8, chain.at(0, 1)));
  EXPECT_TRUE(chain.until([&] {
    for (const size_t me : {0, 1}) {
      poll(chain[me].tx_cq);
      poll(chain[me].rx_cq);
    }
    return fi_cntr_read(chain[0].counters[0]) == kRounds &&
           fi_cntr_read(chain[1].counters[0]) == kRounds;
  }));
  EXPECT_EQ(in[2 * (kRounds - 1)], 2 * (kRounds - 1) + 1) << "the last one of the other";
}

TEST_F(RdmTrigger, WrongTriggersAreRefused) {
  std::vector<uint8_t> out(8);
  const iovec iov{out.data(), 8};
  fi_msg msg = message(iov, nullptr);
  EXPECT_EQ(fi_sendmsg(ep(), &msg, FI_TRIGGER), -FI_EINVAL) << "no context";
  When when(start, 1);
  when.context.event_type = FI_TRIGGER_XPU;
  EXPECT_EQ(send(out, when), -FI_ENOSYS);
  when.context.event_type = fi_trigger_event(77);
  EXPECT_EQ(send(out, when), -FI_EINVAL);
  when = When(nullptr, 1);
  EXPECT_EQ(send(out, when), -FI_EINVAL);
  when = When((*net)[1].count(0), 1);
  EXPECT_EQ(send(out, when), -FI_EDOMAIN);
  when = When(start, 1);
  EXPECT_EQ(send(out, when, FI_PEEK), -FI_EBADFLAGS);
  msg.context = &when.context;
  msg.msg_iov = nullptr;
  EXPECT_EQ(fi_sendmsg(ep(), &msg, FI_TRIGGER), -FI_EINVAL);
  expect_nothing();
}

// The application that is to answer sleeps.
TEST_F(RdmTrigger, AutomaticProgressNeedsNoCall) {
  Options options = with(FI_TRIGGER);
  options.progress = FI_PROGRESS_AUTO;
  Net awake(2, options, [](Node &node) { node.count(FI_RECV); });
  awake.set_asleep(1, true);
  for (const size_t size : {8, 100'000}) {
    SCOPED_TRACE(size);
    std::vector<uint8_t> ask(8), taken(8), answer = pattern(size, 1), in(size);
    fid_cntr *const arrived = awake[1].counters[0];
    When when(arrived, fi_cntr_read(arrived) + 1);
    must(fi_recv(awake[1].ep, taken.data(), 8, nullptr, FI_ADDR_UNSPEC, nullptr));
    must(fi_recv(awake[0].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    const iovec iov{answer.data(), answer.size()};
    fi_msg msg{};
    msg.msg_iov = &iov;
    msg.iov_count = 1;
    msg.addr = awake.at(1, 0);
    msg.context = &when.context;
    must(fi_sendmsg(awake[1].ep, &msg, FI_TRIGGER | FI_COMPLETION));
    awake.post([&] { return fi_send(awake[0].ep, ask.data(), 8, nullptr, awake.at(0, 1), &ask); });
    EXPECT_EQ(awake.wait(awake[0].rx_cq).len, size);
    EXPECT_EQ(in, answer);
    awake.wait(awake[0].tx_cq);
    awake.set_asleep(1, false);
    awake.wait(awake[1].tx_cq);
    awake.wait(awake[1].rx_cq);
    awake.set_asleep(1, true);
  }
}

}  // namespace
}  // namespace weft::conformance::rdm
