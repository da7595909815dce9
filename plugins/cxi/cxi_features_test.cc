// SPDX-License-Identifier: BSD-2-Clause
// What fi_cxi(7) promises of objects and calls and no other test shows, over the C API:
// docs/cxi-features.md says which test is for what.
#include <rdma/fi_trigger.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "plugins/cxi/test_counted.h"
#include "tests/conformance/process.h"

namespace weft::conformance::rdm {
namespace {

constexpr uint64_t kKey = 200;
constexpr uint64_t kAccess = FI_REMOTE_READ | FI_REMOTE_WRITE;

// ---- what is offered ----

TEST(CxiObjects, OnlyReliableDatagramsAndNoScalableEndpoints) {
  for (const enum fi_ep_type type : {FI_EP_MSG, FI_EP_DGRAM}) {
    EXPECT_FALSE(ask([&](fi_info &hints) { hints.ep_attr->type = type; })) << type;
  }
  Net net(1);
  fid_ep *scalable = nullptr;
  EXPECT_EQ(fi_scalable_ep(net[0].domain, net[0].info.get(), &scalable, nullptr), -FI_ENOSYS);
}

TEST(CxiObjects, EachCapabilityIsGranted) {
  for (const uint64_t one : std::initializer_list<uint64_t>{
           FI_MSG, FI_TAGGED, FI_RMA, FI_ATOMIC, FI_MULTI_RECV, FI_SOURCE,
           FI_SOURCE | FI_SOURCE_ERR, FI_NAMED_RX_CTX, FI_RMA | FI_RMA_EVENT, FI_FENCE,
           FI_DIRECTED_RECV, FI_TRIGGER, FI_COLLECTIVE}) {
    const Info info = ask([&](fi_info &hints) { hints.caps = FI_MSG | one; });
    ASSERT_TRUE(info) << caps_text(one);
    EXPECT_EQ(info->caps & one, one) << caps_text(one);
    EXPECT_EQ(info->mode, 0u) << "it asks for no mode";
    EXPECT_EQ(info->domain_attr->resource_mgmt, FI_RM_ENABLED);
  }
}

TEST(CxiObjects, WhatIsOfAnySizeIsOrdered) {
  const Info info = ask();
  ASSERT_TRUE(info);
  EXPECT_EQ(info->ep_attr->max_order_raw_size, SIZE_MAX);
  EXPECT_EQ(info->ep_attr->max_order_war_size, SIZE_MAX);
  EXPECT_EQ(info->ep_attr->max_order_waw_size, SIZE_MAX);
  const uint64_t all = FI_ORDER_SAS | FI_ORDER_WAW | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_WAW |
                       FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_RAR;
  EXPECT_EQ(info->tx_attr->msg_order & all, all);
}

TEST(CxiObjects, AVectorWithFlagsThatNobodyKnowsIsRefused) {
  Net net(1);
  fi_av_attr attr{};
  attr.flags = FI_MORE;
  fid_av *vector = nullptr;
  EXPECT_EQ(fi_av_open(net[0].domain, &attr, &vector, nullptr), -FI_EBADFLAGS);
  attr.flags = 0;
  attr.rx_ctx_bits = 64;
  EXPECT_EQ(fi_av_open(net[0].domain, &attr, &vector, nullptr), -FI_EINVAL);
}

// ---- regions ----

// fi_cxi.7: "An RMA initiator can work concurrently with client and provider generated keys."
TEST(CxiRegions, AnInitiatorUsesBothKindsOfKeys) {
  Net net(2, with(FI_RMA));
  Options of_provider = with(FI_RMA);
  of_provider.mr_mode = FI_MR_PROV_KEY;
  net.add(of_provider);
  uint64_t windows[2] = {}, value = 7;
  const uint64_t keys[2] = {fi_mr_key(net[1].expose(&windows[0], 8, kAccess, kKey)),
                            fi_mr_key(net[2].expose(&windows[1], 8, kAccess, kKey))};
  EXPECT_EQ(keys[0], kKey);
  EXPECT_GT(keys[1], UINT32_MAX);
  for (size_t round = 0; round < 3; ++round) {
    for (size_t i = 0; i < 2; ++i) {
      net.post([&] {
        return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, i + 1), 0, keys[i], nullptr);
      });
    }
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(windows[0], value);
    EXPECT_EQ(windows[1], value);
    ++value;
  }
}

TEST(CxiRegions, ADescriptorMayBeGiven) {
  Net net(2, with(FI_RMA | FI_ATOMIC));
  fi_cxi_dom_ops *ops = nullptr;
  must(fi_open_ops(net[0].domain.fid(), FI_CXI_DOM_OPS_6, 0, reinterpret_cast<void **>(&ops),
                   nullptr));
  must(ops->enable_hybrid_mr_desc(net[0].domain.fid(), true));
  uint64_t window[2] = {}, local[2] = {5, 3};
  net[1].expose(window, sizeof window, kAccess, kKey);
  void *const descriptor = fi_mr_desc(net[0].expose(local, sizeof local, FI_READ | FI_WRITE, kKey));
  ASSERT_NE(descriptor, nullptr);
  for (void *const given : {descriptor, static_cast<void *>(nullptr)}) {
    net.post(
        [&] { return fi_write(net[0].ep, &local[0], 8, given, net.at(0, 1), 0, kKey, nullptr); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    net.post([&] {
      return fi_atomic(net[0].ep, &local[1], 1, given, net.at(0, 1), 0, kKey, FI_UINT64, FI_SUM,
                       nullptr);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(window[0], 8u);
  }
}

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
  fi_rma_ioc target{0, 1, kKey};
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
  net[1].expose(&window, 8, kAccess, kKey, FI_RMA_EVENT);
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

// ---- counters ----

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
  net[1].expose(&window, 8, kAccess, kKey);
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
              return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, 1), 0, kKey, nullptr);
            }));
  EXPECT_EQ(9u, counted_without_calls(FI_READ, [](Net &net) {
              return fi_read(net[0].ep, &value, 8, nullptr, net.at(0, 1), 0, kKey, nullptr);
            }));
  EXPECT_EQ(9u, counted_without_calls(FI_WRITE, [](Net &net) {
              return fi_atomic(net[0].ep, &value, 1, nullptr, net.at(0, 1), 0, kKey, FI_UINT64,
                               FI_SUM, nullptr);
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
    fid_mr *const region = node.expose(&window, 8, FI_REMOTE_WRITE, kKey, FI_RMA_EVENT);
    must(fi_mr_bind(region, &arrived->fid, FI_REMOTE_WRITE));
    node.enable(region);
    tell_text(socket, node.name());
    const iovec from{&answer, 8};
    const fi_rma_iov target{0, 8, kKey};
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
  net[0].expose(&window, 8, FI_REMOTE_WRITE, kKey);
  tell_text(child.socket(), net[0].name());
  EXPECT_EQ(hear(child.socket()), 1u);
  const fi_addr_t to = net[0].insert(name);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(window, 0u);
    net.post([&] { return fi_write(net[0].ep, &value, 8, nullptr, to, 0, kKey, nullptr); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  }
  const volatile uint64_t &answer = window;
  EXPECT_TRUE(net.until([&] { return answer == 42; }));
  tell(child.socket(), 2);
  child.join();
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
  fid_mr *const region = net[1].expose(&window, 8, kAccess, kKey, FI_RMA_EVENT);
  fid_cntr *const region_writes = net[1].count(0);
  must(fi_mr_bind(region, &region_writes->fid, FI_REMOTE_WRITE));
  net[1].enable(region);
  uint64_t value = 1;
  Fetch fetch;
  for (uint64_t i = 1; i <= 5; ++i) {
    net.post([&] { return fetch.post(net, false, 0); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    net.post(
        [&] { return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, 1), 0, kKey, nullptr); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    net.post(
        [&] { return fi_read(net[0].ep, &value, 8, nullptr, net.at(0, 1), 0, kKey, nullptr); });
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

// ---- messages ----

// fi_cxi.7, Messaging: 256 of FI_MSG at a time, and many more of FI_TAGGED.
TEST(CxiMessages, LongOnesOfEachKindHaveNumbersOfTheirOwn) {
  constexpr size_t kNumbers = 256, kBytes = 40'000;
  Options options;
  options.tx_size = 1024;
  std::vector<uint8_t> out = pattern(kBytes, 1), in(kBytes);
  Net net(2, options);
  fid_ep *const ep = net[0].ep;
  for (size_t i = 0; i < kNumbers; ++i)
    net.post([&] { return fi_send(ep, out.data(), kBytes, nullptr, net.at(0, 1), nullptr); });
  net.settle();
  EXPECT_EQ(fi_send(ep, out.data(), kBytes, nullptr, net.at(0, 1), nullptr), -FI_EAGAIN);
  for (size_t i = 0; i < 2 * kNumbers; ++i)
    net.post([&] { return fi_tsend(ep, out.data(), kBytes, nullptr, net.at(0, 1), 1, nullptr); });
  EXPECT_EQ(fi_send(ep, out.data(), kBytes, nullptr, net.at(0, 1), nullptr), -FI_EAGAIN);
  for (size_t i = 0; i < 3 * kNumbers; ++i) {
    net.post([&] {
      return i < kNumbers
                 ? fi_recv(net[1].ep, in.data(), kBytes, nullptr, FI_ADDR_UNSPEC, nullptr)
                 : fi_trecv(net[1].ep, in.data(), kBytes, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr);
    });
    EXPECT_EQ(net.wait(net[1].rx_cq).len, kBytes);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    ASSERT_EQ(in, out);
    std::fill(in.begin(), in.end(), 0);
  }
}

// ---- fork ----

// The NIC in software has no page of its own, so what a child or its parent copies on writing
// misleads it not; a child opens anew. The variables are of HPE's library.
TEST(CxiFork, ParentAndChildGoTheirWays) {
  if (!in_fresh_process({"CXI_FORK_SAFE=1", "CXI_FORK_SAFE_HP=1"})) return;
  Net net(2, with(FI_RMA));
  std::vector<uint64_t> window(1024);
  net[1].expose(window.data(), window.size() * 8, kAccess, kKey);
  net.exchange(0, 1);
  {
    Child child([&](int socket) {
      std::fill(window.begin(), window.end(), 9);
      Net own(2);
      own.exchange(0, 1);
      own.exchange(1, 0, 100'000);
      tell(socket, 1);
      hear(socket);
    });
    EXPECT_EQ(hear(child.socket()), 1u);
    window[0] = 1;  // both have written
    uint64_t value = 7;
    net.post(
        [&] { return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, 1), 8, kKey, nullptr); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(window[0], 1u);
    EXPECT_EQ(window[1], 7u);
    EXPECT_EQ(window[2], 0u);
    tell(child.socket(), 2);
    child.join();
  }
  net.exchange(1, 0, 100'000);
}

}  // namespace
}  // namespace weft::conformance::rdm
