// SPDX-License-Identifier: BSD-2-Clause
// Deferred work (fi_trigger.3): operations that a counter starts, and counters that counters
// change.
#include <rdma/fi_trigger.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

// Two applications. The first one defers work until `start` reaches a threshold.
class RdmDeferred : public ::testing::Test {
 protected:
  static constexpr uint64_t kKey = 200;

  void SetUp() override {
    RDM_NEEDS(FI_TRIGGER | FI_RMA);
    open(FI_TRIGGER | FI_RMA);
  }
  void open(uint64_t caps) {
    Options options;
    options.caps |= caps;
    net = std::make_unique<Net>(2, options);
    start = (*net)[0].count(0);
    done = (*net)[0].count(0);
    region =
        (*net)[1].expose(window.data(), window.size() * 8, FI_REMOTE_READ | FI_REMOTE_WRITE, kKey);
  }
  void TearDown() override { net.reset(); }

  fid_domain *domain() { return (*net)[0].domain; }
  fi_addr_t to() const { return net->at(0, 1); }
  uint64_t key() const { return fi_mr_key(region); }
  uint64_t at(size_t word = 0) { return (*net)[1].base_of(window.data()) + 8 * word; }
  // The work that `op` says, when `start` has reached `threshold`.
  fi_deferred_work work(uint64_t threshold, enum fi_op_type type, void *op) {
    fi_deferred_work work{};
    work.threshold = threshold;
    work.triggering_cntr = start;
    work.completion_cntr = done;
    work.op_type = type;
    work.op.msg = static_cast<fi_op_msg *>(op);
    return work;
  }
  int queue(fi_deferred_work &work) { return fi_control(&domain()->fid, FI_QUEUE_WORK, &work); }
  uint64_t finished() {
    net->progress();
    return fi_cntr_read(done);
  }

  std::vector<uint64_t> window = std::vector<uint64_t>(16);
  std::unique_ptr<Net> net;
  fid_cntr *start = nullptr, *done = nullptr;
  fid_mr *region = nullptr;
};

TEST_F(RdmDeferred, MessagesStartWhenTheCounterIsThere) {
  for (const size_t size : {0, 8, 5000, 300'000}) {
    for (const bool tagged : {false, true}) {
      SCOPED_TRACE(std::to_string(size) + (tagged ? " tagged" : ""));
      must(fi_cntr_set(start, 0));
      must(fi_cntr_set(done, 0));
      std::vector<uint8_t> out = pattern(size, 1), in(size, 0xee);
      const iovec iov{out.data(), size};
      fi_op_msg message{.ep = (*net)[0].ep, .msg = {}, .flags = 0};
      message.msg.msg_iov = &iov;
      message.msg.iov_count = 1;
      message.msg.addr = to();
      fi_op_tagged with_tag{.ep = (*net)[0].ep, .msg = {}, .flags = 0};
      with_tag.msg.msg_iov = &iov;
      with_tag.msg.iov_count = 1;
      with_tag.msg.addr = to();
      with_tag.msg.tag = 7;
      fi_deferred_work later =
          tagged ? work(3, FI_OP_TSEND, &with_tag) : work(3, FI_OP_SEND, &message);
      must(queue(later));
      fid_ep *const ep = (*net)[1].ep;
      must(tagged ? fi_trecv(ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 7, 0, &in)
                  : fi_recv(ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, &in));
      must(fi_cntr_add(start, 2));
      net->settle();
      EXPECT_FALSE(poll((*net)[1].rx_cq)) << "it has started early";
      must(fi_cntr_add(start, 1));
      const Completion got = net->wait((*net)[1].rx_cq);
      EXPECT_EQ(got.err, 0);
      EXPECT_EQ(got.len, size);
      EXPECT_EQ(in, out);
      EXPECT_TRUE(net->until([&] { return finished() == 1; }));
      EXPECT_FALSE(poll((*net)[0].tx_cq)) << "no completion was asked for";
    }
  }
}

class RdmDeferredAtomic : public RdmDeferred {
 protected:
  void SetUp() override {
    RDM_NEEDS(FI_TRIGGER | FI_RMA | FI_ATOMIC);
    open(FI_TRIGGER | FI_RMA | FI_ATOMIC);
  }
};

TEST_F(RdmDeferredAtomic, RemoteAccessesAndAtomics) {
  uint64_t value = 41, one = 1, with = 42, old[2] = {}, read = 0;
  const iovec from{&value, 8}, into{&read, 8};
  fi_rma_iov target{at(), 8, key()};
  fi_op_rma write{.ep = (*net)[0].ep, .msg = {}, .flags = FI_DELIVERY_COMPLETE};
  write.msg.msg_iov = &from;
  write.msg.iov_count = 1;
  write.msg.rma_iov = &target;
  write.msg.rma_iov_count = 1;
  write.msg.addr = to();
  fi_op_rma back = write;
  back.flags = 0;
  back.msg.msg_iov = &into;
  const fi_ioc operand{&one, 1}, compare{&with, 1};
  fi_ioc results[] = {{&old[0], 1}, {&old[1], 1}};
  fi_rma_ioc word{at(), 1, key()};
  fi_msg_atomic atomic{};
  atomic.msg_iov = &operand;
  atomic.iov_count = 1;
  atomic.addr = to();
  atomic.rma_iov = &word;
  atomic.rma_iov_count = 1;
  atomic.datatype = FI_UINT64;
  atomic.op = FI_SUM;
  fi_op_atomic add{.ep = (*net)[0].ep, .msg = atomic, .flags = FI_DELIVERY_COMPLETE};
  fi_op_fetch_atomic fetch{};
  fetch.ep = (*net)[0].ep;
  fetch.msg = atomic;
  fetch.fetch.msg_iov = &results[0];
  fetch.fetch.iov_count = 1;
  fi_op_compare_atomic swap{};
  swap.ep = (*net)[0].ep;
  swap.msg = atomic;
  swap.msg.op = FI_CSWAP_NE;
  swap.fetch.msg_iov = &results[1];
  swap.fetch.iov_count = 1;
  swap.compare.msg_iov = &compare;
  swap.compare.iov_count = 1;
  // Each starts with the end of the one before: they are queued the other way round.
  fi_deferred_work steps[] = {work(1, FI_OP_WRITE, &write), work(2, FI_OP_ATOMIC, &add),
                              work(3, FI_OP_FETCH_ATOMIC, &fetch),
                              work(4, FI_OP_COMPARE_ATOMIC, &swap), work(5, FI_OP_READ, &back)};
  for (fi_deferred_work &step : steps) step.completion_cntr = start;
  for (size_t i = std::size(steps); i-- > 0;) must(queue(steps[i]));
  net->settle();
  EXPECT_EQ(window[0], 0u);
  must(fi_cntr_add(start, 1));
  EXPECT_TRUE(net->until([&] {
    net->progress();
    return fi_cntr_read(start) == 6;
  }));
  EXPECT_EQ(old[0], 42u) << "after the write and the sum";
  EXPECT_EQ(old[1], 43u);
  EXPECT_EQ(window[0], 1u) << "42 was not there, so it was swapped for 1";
  EXPECT_EQ(read, 1u);
}

TEST_F(RdmDeferred, AWriteAndAReadOfIt) {
  uint64_t value = 41, read = 0;
  const iovec from{&value, 8}, into{&read, 8};
  fi_rma_iov target{at(1), 8, key()};
  fi_op_rma write{.ep = (*net)[0].ep, .msg = {}, .flags = 0};
  write.msg.msg_iov = &from;
  write.msg.iov_count = 1;
  write.msg.rma_iov = &target;
  write.msg.rma_iov_count = 1;
  write.msg.addr = to();
  fi_op_rma back = write;
  back.flags = 0;
  back.msg.msg_iov = &into;
  fi_deferred_work first = work(1, FI_OP_WRITE, &write), second = work(2, FI_OP_READ, &back);
  write.flags = FI_DELIVERY_COMPLETE;
  first.completion_cntr = start;
  must(queue(second));
  must(queue(first));
  net->settle();
  EXPECT_EQ(window[1], 0u);
  must(fi_cntr_add(start, 1));
  EXPECT_TRUE(net->until([&] { return finished() == 1; }));
  EXPECT_EQ(read, 41u);
  EXPECT_EQ(fi_cntr_read(start), 2u);
}

// Where the device matches, no counter starts a receive.
// cxi has receives with a threshold of 0 alone (fi_cxi.7).
TEST_F(RdmDeferred, ReceivesArePostedWhenTheCounterIsThere) {
  for (const auto &[threshold, tagged] :
       {std::pair<uint64_t, bool>{0, false}, {0, true}, {1, false}, {1, true}}) {
    SCOPED_TRACE(std::to_string(threshold) + (tagged ? ", tagged" : ""));
    must(fi_cntr_set(start, 0));
    must(fi_cntr_set(done, 0));
    std::vector<uint8_t> out = pattern(700, 1), in(700);
    const iovec iov{in.data(), in.size()};
    fi_op_msg message{.ep = (*net)[0].ep, .msg = {}, .flags = FI_COMPLETION};
    message.msg.msg_iov = &iov;
    message.msg.iov_count = 1;
    message.msg.addr = FI_ADDR_UNSPEC;
    message.msg.context = &in;
    fi_op_tagged with_tag{.ep = (*net)[0].ep, .msg = {}, .flags = 0};
    with_tag.msg.msg_iov = &iov;
    with_tag.msg.iov_count = 1;
    with_tag.msg.addr = FI_ADDR_UNSPEC;
    with_tag.msg.tag = 9;
    fi_deferred_work later =
        tagged ? work(threshold, FI_OP_TRECV, &with_tag) : work(threshold, FI_OP_RECV, &message);
    const int rc = queue(later);
    if (threshold != 0 && rc == -FI_EINVAL) return;
    must(rc);
    net->post([&] {
      fid_ep *const ep = (*net)[1].ep;
      return tagged ? fi_tsend(ep, out.data(), 700, nullptr, net->at(1, 0), 9, &out)
                    : fi_send(ep, out.data(), 700, nullptr, net->at(1, 0), &out);
    });
    if (threshold != 0) {
      net->settle();
      EXPECT_EQ(finished(), 0u);
      must(fi_cntr_add(start, 1));
    }
    EXPECT_TRUE(net->until([&] { return finished() == 1; }));
    EXPECT_EQ(fi_cntr_readerr(done), 0u);
    EXPECT_EQ(in, out);
    if (tagged) {
      EXPECT_FALSE(poll((*net)[0].rx_cq)) << "no completion was asked for";
    } else {
      const Completion got = net->wait((*net)[0].rx_cq);
      EXPECT_EQ(got.context, &in);
      EXPECT_EQ(got.len, 700u);
    }
    net->wait((*net)[1].tx_cq);
  }
}

TEST_F(RdmDeferred, AReceiveThatHasStartedCanBeCancelled) {
  uint64_t in = 0;
  const iovec iov{&in, 8};
  fi_op_msg message{.ep = (*net)[0].ep, .msg = {}, .flags = 0};
  message.msg.msg_iov = &iov;
  message.msg.iov_count = 1;
  message.msg.addr = FI_ADDR_UNSPEC;
  message.msg.context = &in;
  fi_deferred_work now = work(0, FI_OP_RECV, &message);
  must(queue(now));
  must(fi_cancel(&(*net)[0].ep->fid, &in));
  const Completion got = net->wait((*net)[0].rx_cq);
  EXPECT_EQ(got.err, FI_ECANCELED);
  EXPECT_EQ(got.context, &in);
  EXPECT_EQ(fi_cntr_readerr(done), 1u);
}

TEST_F(RdmDeferred, AReceiveThatHasStartedGoesWithItsEndpoint) {
  uint64_t in = 0;
  const iovec iov{&in, 8};
  fi_op_msg message{.ep = (*net)[0].ep, .msg = {}, .flags = 0};
  message.msg.msg_iov = &iov;
  message.msg.iov_count = 1;
  message.msg.addr = FI_ADDR_UNSPEC;
  fi_deferred_work now = work(0, FI_OP_RECV, &message);
  must(queue(now));
  EXPECT_EQ(fi_close(&done->fid), -FI_EBUSY) << "it is to count the receive";
  (*net)[0].ep.reset();
  net.reset();  // and closes the counter
}

TEST_F(RdmDeferred, CountersChangeCounters) {
  fid_cntr *const second = (*net)[0].count(0), *const third = (*net)[0].count(0);
  fi_op_cntr add{.cntr = second, .value = 5}, set{.cntr = third, .value = 77};
  fi_deferred_work first_step = work(1, FI_OP_CNTR_ADD, &add),
                   second_step = work(5, FI_OP_CNTR_SET, &set);
  first_step.completion_cntr = second_step.completion_cntr = nullptr;
  second_step.triggering_cntr = second;
  must(queue(second_step));
  must(queue(first_step));
  net->settle();
  EXPECT_EQ(fi_cntr_read(second), 0u);
  must(fi_cntr_add(start, 1));
  EXPECT_TRUE(net->until([&] { return fi_cntr_read(third) == 77; }));
  EXPECT_EQ(fi_cntr_read(second), 5u);
  EXPECT_EQ(fi_cntr_read(done), 0u);
}

TEST_F(RdmDeferred, AThresholdThatIsReachedStartsAtOnce) {
  uint64_t value = 9;
  const iovec from{&value, 8};
  fi_rma_iov target{at(2), 8, key()};
  fi_op_rma write{.ep = (*net)[0].ep, .msg = {}, .flags = FI_COMPLETION | FI_DELIVERY_COMPLETE};
  write.msg.msg_iov = &from;
  write.msg.iov_count = 1;
  write.msg.rma_iov = &target;
  write.msg.rma_iov_count = 1;
  write.msg.addr = to();
  write.msg.context = &write;
  must(fi_cntr_set(start, 4));
  fi_deferred_work now = work(3, FI_OP_WRITE, &write);
  must(queue(now));
  EXPECT_TRUE(net->until([&] { return finished() == 1; }));
  EXPECT_EQ(window[2], 9u);
  EXPECT_EQ(net->wait((*net)[0].tx_cq).context, &write) << "asked for by FI_COMPLETION";
}

TEST_F(RdmDeferred, WorkCanBeTakenBack) {
  uint64_t value = 9;
  const iovec from{&value, 8};
  fi_rma_iov targets[] = {{at(0), 8, key()}, {at(1), 8, key()}, {at(2), 8, key()}};
  fi_op_rma writes[3];
  fi_deferred_work works[3];
  for (size_t i = 0; i < 3; ++i) {
    writes[i] = {.ep = (*net)[0].ep, .msg = {}, .flags = 0};
    writes[i].msg.msg_iov = &from;
    writes[i].msg.iov_count = 1;
    writes[i].msg.rma_iov = &targets[i];
    writes[i].msg.rma_iov_count = 1;
    writes[i].msg.addr = to();
    works[i] = work(i + 1, FI_OP_WRITE, &writes[i]);
    must(queue(works[i]));
  }
  must(fi_control(&domain()->fid, FI_CANCEL_WORK, &works[1]));
  EXPECT_LT(fi_control(&domain()->fid, FI_CANCEL_WORK, &works[1]), 0) << "it is not there any more";
  must(fi_cntr_add(start, 1));
  EXPECT_TRUE(net->until([&] { return finished() == 1; }));
  must(fi_control(&domain()->fid, FI_FLUSH_WORK, nullptr));
  must(fi_cntr_add(start, 10));
  net->settle();
  EXPECT_EQ(finished(), 1u);
  EXPECT_EQ(window, (std::vector<uint64_t>{9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  // What is left when the endpoint closes goes with it.
  must(fi_cntr_set(start, 0));
  must(queue(works[2]));
}

// An error of a counter counts as a success does.
TEST_F(RdmDeferred, ErrorsReachThresholds) {
  fid_cntr *const second = (*net)[0].count(0);
  fi_op_cntr add{.cntr = second, .value = 1};
  fi_deferred_work step = work(3, FI_OP_CNTR_ADD, &add);
  step.completion_cntr = nullptr;
  must(queue(step));
  must(fi_cntr_add(start, 1));
  must(fi_cntr_adderr(start, 1));
  net->settle();
  EXPECT_EQ(fi_cntr_read(second), 0u);
  must(fi_cntr_adderr(start, 1));
  EXPECT_TRUE(net->until([&] { return fi_cntr_read(second) == 1; }));
}

// Each step raises the counter that starts the next.
TEST_F(RdmDeferred, ALongChain) {
  std::vector<fi_op_cntr> adds(200, {.cntr = start, .value = 1});
  std::vector<fi_deferred_work> steps;
  for (size_t i = 0; i < adds.size(); ++i) {
    steps.push_back(work(i + 1, FI_OP_CNTR_ADD, &adds[i]));
    steps.back().completion_cntr = nullptr;
  }
  for (fi_deferred_work &step : steps) must(queue(step));
  must(fi_cntr_add(start, 1));
  EXPECT_TRUE(net->until([&] { return fi_cntr_read(start) == 201; }));
}

TEST_F(RdmDeferred, CountersOfWorkAreBusy) {
  uint64_t value = 9;
  const iovec from{&value, 8};
  fi_op_msg message{.ep = (*net)[0].ep, .msg = {}, .flags = 0};
  message.msg.msg_iov = &from;
  message.msg.iov_count = 1;
  message.msg.addr = to();
  fi_op_cntr add{.cntr = done, .value = 1};
  fi_deferred_work sent = work(1, FI_OP_SEND, &message), raised = work(1, FI_OP_CNTR_ADD, &add);
  raised.completion_cntr = nullptr;
  must(queue(sent));
  EXPECT_EQ(fi_close(&done->fid), -FI_EBUSY) << "it is to be raised";
  must(fi_control(&domain()->fid, FI_CANCEL_WORK, &sent));
  must(queue(raised));
  EXPECT_EQ(fi_close(&done->fid), -FI_EBUSY);
  fi_deferred_work of_start{};
  of_start.triggering_cntr = start;
  must(fi_control(&domain()->fid, FI_FLUSH_WORK, &of_start));
  EXPECT_EQ(fi_control(&domain()->fid, FI_CANCEL_WORK, &raised), -FI_ENOENT);
  // What waits at a counter that closes goes with it.
  must(queue(raised));
  auto &counters = (*net)[0].counters;
  std::erase_if(counters, [&](const auto &one) { return one.get() == start; });
  std::erase_if(counters, [&](const auto &one) { return one.get() == done; });
}

// Whoever comes first: each work either starts once, or is cancelled.
TEST_F(RdmDeferred, CancelsAgainstCounters) {
  constexpr size_t kWorks = 200;
  std::vector<fi_op_cntr> adds(kWorks, {.cntr = done, .value = 1});
  std::vector<fi_deferred_work> steps(kWorks);
  for (size_t i = 0; i < kWorks; ++i) {
    steps[i] = work(i + 1, FI_OP_CNTR_ADD, &adds[i]);
    steps[i].completion_cntr = nullptr;
    must(queue(steps[i]));
  }
  size_t cancelled = 0;
  std::thread canceller([&] {
    for (size_t i = kWorks; i-- > 0;)
      cancelled += fi_control(&domain()->fid, FI_CANCEL_WORK, &steps[i]) == 0;
  });
  for (size_t i = 0; i < kWorks; ++i) must(fi_cntr_add(start, 1));
  canceller.join();
  EXPECT_TRUE(net->until([&] { return fi_cntr_read(done) == kWorks - cancelled; }))
      << fi_cntr_read(done) << " started, " << cancelled << " were cancelled";
}

TEST_F(RdmDeferred, WrongWorkIsRefused) {
  fi_op_cntr add{.cntr = done, .value = 1};
  fi_deferred_work item = work(1, FI_OP_CNTR_ADD, &add);
  item.triggering_cntr = nullptr;
  EXPECT_LT(queue(item), 0);
  item = work(1, fi_op_type(99), &add);
  EXPECT_LT(queue(item), 0);
  fi_op_msg message{.ep = nullptr, .msg = {}, .flags = 0};
  item = work(1, FI_OP_SEND, &message);
  EXPECT_LT(queue(item), 0);
  fid_cntr *const far = (*net)[1].count(0);
  item = work(1, FI_OP_CNTR_ADD, &add);
  item.triggering_cntr = far;
  EXPECT_LT(queue(item), 0) << "of another domain";
  message.ep = (*net)[1].ep;
  item = work(1, FI_OP_SEND, &message);
  EXPECT_LT(queue(item), 0) << "of another domain";
  message.ep = (*net)[0].ep;
  message.msg.iov_count = 1;
  EXPECT_LT(queue(item), 0) << "no vector";
  EXPECT_LT(fi_control(&domain()->fid, FI_QUEUE_WORK, nullptr), 0);
  EXPECT_LT(fi_control(&domain()->fid, FI_CANCEL_WORK, nullptr), 0);
}

}  // namespace
}  // namespace weft::conformance::rdm
