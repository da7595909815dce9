// SPDX-License-Identifier: BSD-2-Clause
// What fi_cxi(7) promises of objects and calls and no other test shows, over the C API:
// docs/cxi-features.md says which test is for what.
#include <unistd.h>

#include <algorithm>
#include <cstring>
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
