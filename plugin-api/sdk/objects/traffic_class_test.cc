// SPDX-License-Identifier: BSD-2-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/progress/unique_fd.h>

#include <set>

namespace weft::sdk {
namespace {

using ::testing::HasSubstr;

TEST(TrafficClass, ADscpIsAClass) {
  for (unsigned dscp = 0; dscp < 64; ++dscp)
    EXPECT_EQ(dscp_of(fi_tc_dscp_set(uint8_t(dscp))), uint8_t(dscp));
  for (const uint32_t none : {0x140u, 0x1ffu, 1u, 63u, 0x300u, 0x206u, UINT32_MAX})
    EXPECT_EQ(dscp_of(none), std::nullopt) << none;
}

TEST(TrafficClass, EachLabelHasADscpOfItsOwn) {
  std::set<uint8_t> all;
  for (uint32_t label = FI_TC_BEST_EFFORT; label <= FI_TC_NETWORK_CTRL; ++label)
    all.insert(dscp_of(label).value());
  EXPECT_EQ(all.size(), 6u);
  EXPECT_EQ(dscp_of(FI_TC_UNSPEC), 0);
  EXPECT_EQ(dscp_of(FI_TC_DEDICATED_ACCESS), 46);
}

TEST(TrafficClass, WhatIsUnknownIsRefusedWithWords) {
  EXPECT_EQ(*offered_class("tx_attr.tclass", FI_TC_SCAVENGER), uint32_t(FI_TC_SCAVENGER));
  const auto refused = offered_class("tx_attr.tclass", 0x777);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, FI_ENODATA);
  EXPECT_THAT(refused.error().text, HasSubstr("tx_attr.tclass 0x777"));
  fi_tx_attr tx{};
  fi_domain_attr domain{};
  fi_info info{};
  info.tx_attr = &tx;
  info.domain_attr = &domain;
  tx.tclass = domain.tclass = 0x777;
  EXPECT_EQ(endpoint_dscp(info, FI_VERSION(1, 9), 5).error().code, FI_EINVAL);
  EXPECT_EQ(domain_dscp(info, FI_VERSION(1, 9)).error().code, FI_EINVAL);
}

TEST(TrafficClass, AnEndpointHasItsOwnOrTheDomains) {
  fi_tx_attr tx{};
  fi_info info{};
  info.tx_attr = &tx;
  EXPECT_EQ(*endpoint_dscp(info, FI_VERSION(1, 9), 5), 5);
  tx.tclass = fi_tc_dscp_set(7);
  EXPECT_EQ(*endpoint_dscp(info, FI_VERSION(1, 9), 5), 7);
  tx.tclass = FI_TC_BEST_EFFORT;
  EXPECT_EQ(*endpoint_dscp(info, FI_VERSION(1, 9), 5), 0);
  tx.tclass = 0x777;
  EXPECT_EQ(*endpoint_dscp(info, FI_VERSION(1, 8), 5), 5) << "older structs have no such field";
}

TEST(TrafficClass, TheSocketHasIt) {
  for (const int family : {AF_INET, AF_INET6}) {
    UniqueFd fd(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd.get() < 0) continue;  // a host without IPv6
    ASSERT_TRUE(set_dscp(fd.get(), family, 46));
    int field = 0;
    socklen_t size = sizeof field;
    const bool six = family == AF_INET6;
    ASSERT_EQ(getsockopt(fd.get(), six ? int(IPPROTO_IPV6) : int(IPPROTO_IP),
                         six ? IPV6_TCLASS : IP_TOS, &field, &size),
              0);
    EXPECT_EQ(field, 46 << 2);
  }
  EXPECT_EQ(set_dscp(-1, AF_INET, 1).error().code, EBADF);
}

}  // namespace
}  // namespace weft::sdk
