// SPDX-License-Identifier: BSD-2-Clause
// Traffic classes of unconnected endpoints (fi_endpoint.3, Traffic Class): what fi_getinfo says,
// and the DSCP that is on the packets.
#include <set>

#include "tests/conformance/packets.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr int kEf = 46;  // of FI_TC_DEDICATED_ACCESS

Options with_class(uint32_t tclass, uint32_t of_domain = FI_TC_UNSPEC) {
  Options options;
  options.tclass = tclass;
  options.domain_tclass = of_domain;
  return options;
}

// Classes of devices have no DSCP. What software sends over IP has.
bool has_dscps() {
  if (stack().starts_with("tcp") || stack().starts_with("udp")) return true;
  const uint32_t wanted = fi_tc_dscp_set(9);
  const Info info = find_info(with_class(wanted));
  return info && info->tx_attr->tclass == wanted;
}
#define CLASSES_NEEDED()                                                       \
  do {                                                                         \
    covers("traffic classes");                                                 \
    if (!is_fresh_process() && !has_dscps()) GTEST_SKIP() << "no DSCPs of IP"; \
  } while (0)

// What is on the packets of two applications that talk to each other by all protocols.
std::set<int> sent_by(const Options &options) {
  Packets packets;
  if (!packets.opened()) return {};
  {
    Net net(2, options);
    for (const size_t size : {size_t(8), size_t(10'000), size_t(300'000)}) {
      net.exchange(0, 1, size);
      net.exchange(1, 0, size);
    }
  }
  return packets.dscps();
}
#define EXPECT_SENT(options, dscp)                                               \
  do {                                                                           \
    const std::set<int> sent = sent_by(options);                                 \
    if (sent.empty()) GTEST_SKIP() << "this user may have no network namespace"; \
    EXPECT_EQ(sent, std::set<int>{dscp});                                        \
  } while (0)

TEST(RdmClass, GetinfoReturnsWhatIsAskedFor) {
  CLASSES_NEEDED();
  for (const uint32_t tclass :
       {uint32_t(FI_TC_BEST_EFFORT), uint32_t(FI_TC_LOW_LATENCY), uint32_t(FI_TC_DEDICATED_ACCESS),
        uint32_t(FI_TC_BULK_DATA), uint32_t(FI_TC_SCAVENGER), uint32_t(FI_TC_NETWORK_CTRL),
        fi_tc_dscp_set(0), fi_tc_dscp_set(63)}) {
    const Info info = find_info(with_class(tclass, tclass));
    ASSERT_TRUE(info) << tclass;
    EXPECT_EQ(info->tx_attr->tclass, tclass);
    EXPECT_EQ(info->domain_attr->tclass, tclass);
  }
  const Info plain = find_info();
  EXPECT_EQ(plain->tx_attr->tclass, uint32_t(FI_TC_UNSPEC));
}

TEST(RdmClass, WhatIsNoClassIsRefused) {
  CLASSES_NEEDED();
  EXPECT_FALSE(find_info(with_class(0x777)));
  EXPECT_FALSE(find_info(with_class(FI_TC_UNSPEC, 64 + FI_TC_DSCP)));
  Node node{Options()};
  const Info info(fi_dupinfo(node.info.get()));
  info->domain_attr->tclass = 0x777;
  fid_domain *domain = nullptr;
  EXPECT_EQ(fi_domain(node.fabric, info.get(), &domain, nullptr), -FI_EINVAL);
}

TEST(RdmClass, PacketsHaveTheEndpointsClass) {
  CLASSES_NEEDED();
  if (!in_fresh_process()) return;
  EXPECT_SENT(with_class(FI_TC_DEDICATED_ACCESS), kEf);
}

TEST(RdmClass, PacketsHaveADscp) {
  CLASSES_NEEDED();
  if (!in_fresh_process()) return;
  EXPECT_SENT(with_class(fi_tc_dscp_set(33)), 33);
}

TEST(RdmClass, WithoutOneOfItsOwnAnEndpointHasTheDomains) {
  CLASSES_NEEDED();
  if (!in_fresh_process()) return;
  EXPECT_SENT(with_class(FI_TC_UNSPEC, FI_TC_DEDICATED_ACCESS), kEf);
}

TEST(RdmClass, TheEndpointsOwnComesBeforeTheDomains) {
  CLASSES_NEEDED();
  if (!in_fresh_process()) return;
  EXPECT_SENT(with_class(FI_TC_BEST_EFFORT, FI_TC_DEDICATED_ACCESS), 0);
}

TEST(RdmClass, WithoutClassesPacketsHaveNone) {
  CLASSES_NEEDED();
  if (!in_fresh_process()) return;
  EXPECT_SENT(Options{}, 0);
}

}  // namespace
}  // namespace weft::conformance::rdm
