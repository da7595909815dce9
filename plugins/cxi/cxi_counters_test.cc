// SPDX-License-Identifier: BSD-2-Clause
// What the NIC counts by itself, for whoever started it and for whose memory it was (fi_cxi.7,
// Counters), over the C API.
#include <rdma/fi_trigger.h>

#include <functional>
#include <string>
#include <vector>

#include "plugins/cxi/test_counted.h"
#include "tests/conformance/process.h"

namespace weft::conformance::rdm {
namespace {

constexpr uint64_t kRegionKey = 200;
constexpr uint64_t kRegionAccess = FI_REMOTE_READ | FI_REMOTE_WRITE;

// An atomic of one word, fetching or comparing, with a level of completion.
struct Fetch {
  ssize_t post(Net &net, bool compares, uint64_t level) {
    msg.msg_iov = &operand_at;
    msg.iov_count = 1;
    msg.addr = net.at(0, 1);
    msg.rma_iov = &target;
    msg.rma_iov_count = 1;
    msg.datatype = FI_UINT64;
    msg.op = compares ? FI_CSWAP : FI_SUM;
    const uint64_t flags = level | FI_COMPLETION;
    return compares ? fi_compare_atomicmsg(net[0].ep, &msg, &compare_at, nullptr, 1, &result_at,
                                           nullptr, 1, flags)
                    : fi_fetch_atomicmsg(net[0].ep, &msg, &result_at, nullptr, 1, flags);
  }
  uint64_t operand = 1, compare = 0, old = 0;
  fi_ioc operand_at{&operand, 1}, compare_at{&compare, 1}, result_at{&old, 1};
  fi_rma_ioc target{0, 1, kRegionKey};
  fi_msg_atomic msg{};
};

// fi_cxi.7, ERRATA: a Cassini does not do these. A NIC in software has no reason not to.
TEST(CxiErrata, AFetchIsDeliveredAndCounted) {
  Options options = with(FI_RMA | FI_ATOMIC | FI_RMA_EVENT);
  fid_cntr *reads = nullptr, *writes = nullptr;
  Net net(2, options, [&](Node &node) {
    reads = node.count(FI_REMOTE_READ);
    writes = node.count(FI_REMOTE_WRITE);
  });
  uint64_t window = 0;
  net[1].expose(&window, 8, kRegionAccess, kRegionKey, FI_RMA_EVENT);
  uint64_t expected = 0;
  for (const uint64_t level : {FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE}) {
    for (const bool compares : {false, true}) {
      SCOPED_TRACE(compares);
      Fetch fetch;
      fetch.compare = window;
      fetch.operand = compares ? window + 1 : 1;
      net.post([&] { return fetch.post(net, compares, level); });
      EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
      EXPECT_EQ(fetch.old, expected);
      EXPECT_EQ(window, ++expected);
    }
  }
  net.wait_count(writes, expected);
  net.wait_count(reads, expected);
}

// Work that begins when a counter of the sender's own operations is there, though nobody reads
// their completions.
uint64_t counted_without_calls(uint64_t what, const std::function<ssize_t(Net &)> &start) {
  fid_cntr *counter = nullptr, *target = nullptr;
  int opened = 0;
  Net net(2, with(FI_RMA | FI_ATOMIC | FI_TRIGGER), [&](Node &node) {
    if (++opened != 1) return;
    counter = node.count(what);
    target = node.count(0);
  });
  static uint64_t window = 0;
  net[1].expose(&window, 8, kRegionAccess, kRegionKey);
  fi_cxi_cntr_ops *ops = nullptr;
  must(fi_open_ops(&target->fid, FI_CXI_COUNTER_OPS, 0, reinterpret_cast<void **>(&ops), nullptr));
  alignas(8) uint64_t word = 0;
  must(ops->set_wb_buffer(&target->fid, &word, sizeof word));
  fi_op_cntr set{.cntr = target, .value = 9};
  fi_deferred_work work{};
  work.threshold = 2;
  work.triggering_cntr = counter;
  work.op_type = FI_OP_CNTR_SET;
  work.op.cntr = &set;
  must(fi_control(net[0].domain.fid(), FI_QUEUE_WORK, &work));
  for (int i = 0; i < 2; ++i) must(start(net));
  net.set_asleep(0, true);
  const volatile uint64_t &seen = word;
  net.until([&] { return seen != 0; });
  const uint64_t value = fi_cxi_cntr_wb_read(&word);
  net.set_asleep(0, false);
  net.wait_count(counter, 2);
  EXPECT_EQ(fi_cntr_read(counter), 2u) << "each once";
  net.until([&] { return fi_cntr_read(target) == 9; });
  return value;
}

// fi_cxi.7, Counters: the sources of remote accesses, and of messages that go at once.
TEST(CxiCounters, TheNicCountsWhatItsOwnerStarts) {
  static uint64_t value = 1;
  static std::vector<uint8_t> out(64);
  EXPECT_EQ(9u, counted_without_calls(FI_WRITE, [](Net &net) {
              return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, 1), 0, kRegionKey, nullptr);
            }));
  EXPECT_EQ(9u, counted_without_calls(FI_READ, [](Net &net) {
              return fi_read(net[0].ep, &value, 8, nullptr, net.at(0, 1), 0, kRegionKey, nullptr);
            }));
  EXPECT_EQ(9u, counted_without_calls(FI_WRITE, [](Net &net) {
              return fi_atomic(net[0].ep, &value, 1, nullptr, net.at(0, 1), 0, kRegionKey,
                               FI_UINT64, FI_SUM, nullptr);
            }));
  EXPECT_EQ(9u, counted_without_calls(FI_SEND, [](Net &net) {
              return fi_tsend(net[0].ep, out.data(), 64, nullptr, net.at(0, 1), 1, nullptr);
            }));
}

// fi_cxi.7, Counters: those of remote accesses are the NIC's, at both ends. The target makes no
// call, and what waits for its counter begins all the same.
TEST(CxiCounters, WorkOfASleeperBeginsWithWhatPeersWrite) {
  if (!in_fresh_process()) return;
  const uint64_t caps = FI_RMA | FI_RMA_EVENT | FI_TRIGGER;
  Child child([&](int socket) {
    uint64_t window = 0, answer = 42;
    Node node(with(caps));
    fid_cntr *const arrived = node.count(0);
    node.holds_regions = true;
    fid_mr *const region = node.expose(&window, 8, FI_REMOTE_WRITE, kRegionKey, FI_RMA_EVENT);
    must(fi_mr_bind(region, &arrived->fid, FI_REMOTE_WRITE));
    node.enable(region);
    tell_text(socket, node.name());
    const iovec from{&answer, 8};
    const fi_rma_iov target{0, 8, kRegionKey};
    fi_op_rma write{};
    write.ep = node.ep;
    write.msg.msg_iov = &from;
    write.msg.iov_count = 1;
    write.msg.rma_iov = &target;
    write.msg.rma_iov_count = 1;
    write.msg.addr = node.insert(hear_text(socket));
    fi_deferred_work work{};
    work.threshold = 3;
    work.triggering_cntr = arrived;
    work.op_type = FI_OP_WRITE;
    work.op.rma = &write;
    must(fi_control(node.domain.fid(), FI_QUEUE_WORK, &work));
    tell(socket, 1);
    EXPECT_EQ(hear(socket), 2u);  // asleep until then
    EXPECT_EQ(fi_cntr_read(arrived), 3u);
  });
  const std::string name = hear_text(child.socket());
  uint64_t window = 0, value = 1;
  Net net(1, with(caps));
  net[0].expose(&window, 8, FI_REMOTE_WRITE, kRegionKey);
  tell_text(child.socket(), net[0].name());
  EXPECT_EQ(hear(child.socket()), 1u);
  const fi_addr_t to = net[0].insert(name);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(window, 0u);
    net.post([&] { return fi_write(net[0].ep, &value, 8, nullptr, to, 0, kRegionKey, nullptr); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  }
  const volatile uint64_t &answer = window;
  EXPECT_TRUE(net.until([&] { return answer == 42; }));
  tell(child.socket(), 2);
  child.join();
}

// The NIC has seven bits for errors.
TEST(CxiCounters, AnApplicationMaySetMoreErrorsThanTheNicCounts) {
  Net net(1);
  fid_cntr *const counter = net[0].count(0);
  for (const uint64_t errors : {0, 127, 128, 70'000, 3}) {
    must(fi_cntr_seterr(counter, errors));
    EXPECT_EQ(fi_cntr_readerr(counter), errors);
    must(fi_cntr_adderr(counter, 2 * errors));
    EXPECT_EQ(fi_cntr_readerr(counter), 3 * errors);
  }
  EXPECT_EQ(fi_cntr_read(counter), 0u);
}

// A write with a key that nobody has, up to the NIC's answer.
void post_failure(Net &net, uint64_t &value) {
  net.post([&] {
    return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, 1), 0, kRegionKey, nullptr);
  });
}

TEST(CxiCounters, MoreOperationsFailThanTheNicCounts) {
  fid_cntr *counter = nullptr;
  Net net(2, with(FI_RMA), [&](Node &node) {
    if (counter == nullptr) counter = node.count(FI_SEND | FI_WRITE);
  });
  fid_ep *const ep = net[0].ep;
  const fi_addr_t nobody = net[0].insert(address_at(Options(), 400));
  uint64_t value = 1, errors = 0;
  const auto expect_error = [&] {
    EXPECT_NE(net.wait(net[0].tx_cq).err, 0);
    ASSERT_EQ(fi_cntr_readerr(counter), ++errors);
  };
  while (errors < 300 && !HasFatalFailure()) {
    post_failure(net, value);  // the NIC counts it,
    expect_error();
    net.post([&] { return fi_send(ep, &value, 8, nullptr, nobody, nullptr); });  // software does
    expect_error();
    net.post([&] { return fi_inject(ep, &value, 8, nobody); });
    expect_error();
  }
  net.exchange(0, 1, 8);
  EXPECT_EQ(fi_cntr_read(counter), 1u);
  EXPECT_EQ(fi_cntr_readerr(counter), errors);
}

// The NIC had counted some when the application set the number, and told of them later.
TEST(CxiCounters, ErrorsBeforeANumberIsSetAreNotCountedBehindIt) {
  fid_cntr *counter = nullptr;
  Net net(2, with(FI_RMA), [&](Node &node) {
    if (counter == nullptr) counter = node.count(FI_WRITE);
  });
  fi_cxi_cntr_ops *ops = nullptr;
  must(fi_open_ops(&counter->fid, FI_CXI_COUNTER_OPS, 0, reinterpret_cast<void **>(&ops), nullptr));
  alignas(8) uint64_t word = 0;
  must(ops->set_wb_buffer(&counter->fid, &word, sizeof word));
  uint64_t value = 1;
  for (int i = 0; i < 3; ++i) post_failure(net, value);
  net.set_asleep(0, true);
  ASSERT_TRUE(net.until([&] { return fi_cxi_cntr_wb_readerr(&word) == 3; }));
  must(fi_cntr_seterr(counter, 0));
  net.set_asleep(0, false);
  for (int i = 0; i < 3; ++i) EXPECT_NE(net.wait(net[0].tx_cq).err, 0);
  EXPECT_EQ(fi_cntr_readerr(counter), 0u);
  for (uint64_t errors = 1; errors <= 200; ++errors) {
    post_failure(net, value);
    EXPECT_NE(net.wait(net[0].tx_cq).err, 0);
    ASSERT_EQ(fi_cntr_readerr(counter), errors);
  }
}

// Two counters for the same: each counts all of it, once.
TEST(CxiCounters, ARegionAndItsEndpointMayHaveOneEach) {
  fid_cntr *writes = nullptr, *reads = nullptr;
  Net net(2, with(FI_RMA | FI_ATOMIC | FI_RMA_EVENT), [&](Node &node) {
    writes = node.count(FI_REMOTE_WRITE);
    reads = node.count(FI_REMOTE_READ);
  });
  uint64_t window = 0;
  net[1].holds_regions = true;
  fid_mr *const region = net[1].expose(&window, 8, kRegionAccess, kRegionKey, FI_RMA_EVENT);
  fid_cntr *const region_writes = net[1].count(0);
  must(fi_mr_bind(region, &region_writes->fid, FI_REMOTE_WRITE));
  net[1].enable(region);
  uint64_t value = 1;
  Fetch fetch;
  for (uint64_t i = 1; i <= 5; ++i) {
    net.post([&] { return fetch.post(net, false, 0); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    net.post([&] {
      return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, 1), 0, kRegionKey, nullptr);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    net.post([&] {
      return fi_read(net[0].ep, &value, 8, nullptr, net.at(0, 1), 0, kRegionKey, nullptr);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    net.wait_count(writes, 2 * i);
    net.wait_count(region_writes, 2 * i);
    net.wait_count(reads, 2 * i);
  }
  net.settle();
  EXPECT_EQ(fi_cntr_read(writes), 10u);
  EXPECT_EQ(fi_cntr_read(region_writes), 10u);
  EXPECT_EQ(fi_cntr_read(reads), 10u);
}

}  // namespace
}  // namespace weft::conformance::rdm
