// SPDX-License-Identifier: BSD-2-Clause
// Traffic classes of datagrams (fi_endpoint.3, Traffic Class): the DSCP on the packets.
#include "tests/conformance/dgram_harness.h"
#include "tests/conformance/packets.h"
#include "tests/conformance/process.h"

namespace weft::conformance::dgram {
namespace {

TEST(DgramClass, DatagramsHaveTheClass) {
  DGRAM_NEEDS_SOCKETS();
  covers("traffic classes");
  if (!in_fresh_process()) return;
  Packets packets;
  if (!packets.opened()) GTEST_SKIP() << "this user may have no network namespace";
  Options options;
  options.tclass = FI_TC_LOW_LATENCY;
  {
    Net net(2, options);
    EXPECT_EQ(net[0].info->tx_attr->tclass, uint32_t(FI_TC_LOW_LATENCY));
    net.exchange(0, 1);
    EXPECT_EQ(packets.dscps(), std::set<int>{18});
  }
  options.tclass = FI_TC_UNSPEC;
  options.domain_tclass = fi_tc_dscp_set(63);
  {
    Net net(2, options);
    net.exchange(1, 0);
    EXPECT_EQ(packets.dscps(), std::set<int>{63});
  }
  Net net;
  net.exchange(0, 1);
  EXPECT_EQ(packets.dscps(), std::set<int>{0});
}

TEST(DgramClass, WhatIsNoClassIsRefused) {
  DGRAM_NEEDS_SOCKETS();
  covers("traffic classes");
  EXPECT_EQ(ask([](fi_info &hints) { hints.tx_attr->tclass = 0x777; }), nullptr);
  EXPECT_EQ(ask([](fi_info &hints) { hints.domain_attr->tclass = 0x777; }), nullptr);
  Node node{Options()};
  const Info info(fi_dupinfo(node.info.get()));
  info->tx_attr->tclass = 0x140;
  fid_ep *ep = nullptr;
  EXPECT_EQ(fi_endpoint(node.domain, info.get(), &ep, nullptr), -FI_EINVAL);
}

}  // namespace
}  // namespace weft::conformance::dgram
