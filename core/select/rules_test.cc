// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/rules.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>

#include "core/base/info.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

sockaddr_storage address(const char *text, size_t &length) {
  sockaddr_storage storage{};
  auto *in = reinterpret_cast<sockaddr_in *>(&storage);
  auto *in6 = reinterpret_cast<sockaddr_in6 *>(&storage);
  if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
    in->sin_family = AF_INET;
    length = sizeof *in;
  } else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1) {
    in6->sin6_family = AF_INET6;
    length = sizeof *in6;
  }
  return storage;
}

bool inside(const char *text, const char *subnet) {
  size_t length = 0;
  const sockaddr_storage storage = address(text, length);
  return in_subnet(reinterpret_cast<const sockaddr *>(&storage), length, subnet);
}

TEST(InSubnet, ByPrefix) {
  EXPECT_TRUE(inside("172.17.3.4", "172.17.0.0/16"));
  EXPECT_FALSE(inside("172.18.3.4", "172.17.0.0/16"));
  EXPECT_TRUE(inside("10.0.0.129", "10.0.0.128/25"));
  EXPECT_FALSE(inside("10.0.0.127", "10.0.0.128/25"));
  EXPECT_TRUE(inside("1.2.3.4", "0.0.0.0/0"));
  EXPECT_TRUE(inside("1.2.3.4", "1.2.3.4/32"));
  EXPECT_TRUE(inside("fd00::1", "fd00::/8"));
  EXPECT_TRUE(inside("fe80::1", "fe80::/10"));
  EXPECT_FALSE(inside("fec0::1", "fe80::/10"));
  EXPECT_FALSE(inside("10.0.0.1", "fd00::/8"));
  EXPECT_FALSE(inside("10.0.0.1", "10.0.0.0/33"));
  EXPECT_FALSE(inside("10.0.0.1", "10.0.0.0"));
  EXPECT_FALSE(inside("10.0.0.1", "10.0.0.0/x"));
  EXPECT_FALSE(in_subnet(nullptr, 0, "10.0.0.0/8"));
  const sa_family_t family = AF_INET;  // an address cut short
  EXPECT_FALSE(in_subnet(reinterpret_cast<const sockaddr *>(&family), sizeof family, "0.0.0.0/0"));
}

class RulesTest : public ::testing::Test {
 protected:
  RulesTest() {
    tcp_.name = "tcp";
    tcp_.kind = WEFT_KIND_PROVIDER;
    rxm_.name = "rxm";
    rxm_.ofi_name = "ofi_rxm";
    rxm_.kind = WEFT_KIND_LAYER;
    place_.hostname = [this] {
      ++asked_;
      return std::string("login3");
    };
    place_.executable = [] { return std::string("/opt/app/solver"); };
    place_.netdev_of = [](const sockaddr *) { return std::string("ib0"); };
    info_.reset(alloc_info());
    info_->ep_attr->type = FI_EP_MSG;
    info_->addr_format = FI_SOCKADDR_IN;
    size_t length = 0;
    const sockaddr_storage storage = address("172.17.0.1", length);
    info_->src_addr = std::malloc(length);
    std::memcpy(info_->src_addr, &storage, length);
    info_->src_addrlen = length;
    info_->domain_attr->name = strdup("mlx5_0");
  }
  void rule(RankRule rule) {
    rule.origin.where = Rule::file("file", static_cast<uint32_t>(policy_.ranks.size() + 1));
    policy_.ranks.push_back(std::move(rule));
  }
  RuleOutcome judge() { return judge_info(policy_, {&tcp_}, place_, *info_); }

  UnitInfo tcp_, rxm_;
  Policy policy_;
  Place place_;
  InfoPtr info_;
  int asked_ = 0;
};

TEST_F(RulesTest, TheStrongestMatchCounts) {
  rule({.provider = "tcp", .rank = 1});
  rule({.provider = "t*", .rank = 2});
  rule({.provider = "verbs", .rank = 3});
  const RuleOutcome outcome = judge();
  EXPECT_EQ(outcome.rank, 2);
  EXPECT_EQ(outcome.rank_rule, Rule::file("file", 2));
  EXPECT_TRUE(outcome.verdict.accepted);
  EXPECT_EQ(asked_, 0) << "no rule needed the host";
}

TEST_F(RulesTest, RankAndUseMayComeFromDifferentRules) {
  rule({.provider = "tcp", .rank = 1, .enable = false});
  rule({.provider = "tcp", .rank = 2});
  RuleOutcome outcome = judge();
  EXPECT_EQ(outcome.rank, 2);
  EXPECT_FALSE(outcome.verdict.accepted);
  EXPECT_EQ(outcome.verdict.rule, Rule::file("file", 1));
  EXPECT_THAT(outcome.verdict.reason, HasSubstr("mlx5_0"));
  rule({.provider = "tcp", .enable = true});
  EXPECT_TRUE(judge().verdict.accepted);
}

TEST_F(RulesTest, EveryConditionMustHold) {
  const auto off = [&](RankRule condition) {
    policy_.ranks.clear();
    condition.enable = false;
    rule(std::move(condition));
    return !judge().verdict.accepted;
  };
  EXPECT_TRUE(off({}));
  EXPECT_TRUE(off({.subnet = "172.17.0.0/16"}));
  EXPECT_FALSE(off({.subnet = "10.0.0.0/8"}));
  EXPECT_TRUE(off({.netdev = "mlx5_*"}));
  EXPECT_TRUE(off({.netdev = "ib?"})) << "the interface that has the address";
  EXPECT_FALSE(off({.netdev = "eth0"}));
  EXPECT_TRUE(off({.ep_type = "msg"}));
  EXPECT_FALSE(off({.ep_type = "rdm"}));
  EXPECT_TRUE(off({.hostname = "login[0-9]"}));
  EXPECT_FALSE(off({.hostname = "node*"}));
  EXPECT_TRUE(off({.executable = "solver"}));
  EXPECT_TRUE(off({.executable = "/opt/*/solver"}));
  EXPECT_FALSE(off({.executable = "solve"}));
  EXPECT_TRUE(off({.provider = "tcp", .subnet = "172.17.0.0/16", .ep_type = "msg"}));
  EXPECT_FALSE(off({.provider = "udp", .subnet = "172.17.0.0/16", .ep_type = "msg"}));
}

// Each name of the device may be another one, and its network may be one that is not here.
TEST_F(RulesTest, ADeviceIsTakenForAnother) {
  const auto matches = [&](RankRule condition) {
    policy_.ranks.clear();
    condition.enable = false;
    rule(std::move(condition));
    return !judge().verdict.accepted;
  };
  place_.devices = {{.real = "ib0", .name = "hsn0"}, {.real = "eth7", .name = "ib9"}};
  EXPECT_TRUE(matches({.netdev = "hsn*"}));
  EXPECT_FALSE(matches({.netdev = "ib*"})) << "the name that it has here does not count";
  EXPECT_TRUE(matches({.netdev = "mlx5_*"})) << "its other names stay";
  EXPECT_TRUE(matches({.subnet = "172.17.0.0/16"})) << "so does its address";
  place_.devices = {{.real = "mlx5_0", .name = "mlx5_3"}};
  size_t length = 0;
  place_.devices[0].address = address("10.1.0.7", length);
  place_.devices[0].address_length = length;
  EXPECT_TRUE(matches({.netdev = "mlx5_3"}));
  EXPECT_FALSE(matches({.subnet = "172.17.0.0/16"}));
  EXPECT_TRUE(matches({.subnet = "10.1.0.0/16"}));
}

TEST_F(RulesTest, AddressesInText) {
  std::free(info_->src_addr);
  const auto source = [&](const char *text) {
    info_->addr_format = FI_ADDR_STR;
    info_->src_addr = strdup(text);
    info_->src_addrlen = std::strlen(text) + 1;
    policy_.ranks.clear();
    rule({.subnet = "172.17.0.0/16", .enable = false});
    const bool in = !judge().verdict.accepted;
    policy_.ranks.clear();
    rule({.subnet = "fd00::/8", .enable = false});
    const bool in6 = !judge().verdict.accepted;
    std::free(info_->src_addr);
    info_->src_addr = nullptr;
    return std::pair(in, in6);
  };
  EXPECT_EQ(source("fi_sockaddr_in://172.17.9.9:7471"), std::pair(true, false));
  EXPECT_EQ(source("fi_sockaddr_in6://[fd00::7]:7471"), std::pair(false, true));
  EXPECT_EQ(source("fi_sockaddr_in6://[fd00::7"), std::pair(false, true));
  EXPECT_EQ(source("fi_sockaddr_in://"), std::pair(false, false));
  EXPECT_EQ(source("fi_shm"), std::pair(false, false));
}

TEST_F(RulesTest, AStackIsLeftOutEarlyOnlyIfNoDeviceIsExcepted) {
  const auto early = [&] { return !judge_stack(policy_, {&tcp_, &rxm_}, place_).accepted; };
  EXPECT_FALSE(early());
  rule({.provider = "tcp", .enable = false});
  EXPECT_TRUE(early());
  rule({.provider = "tcp", .netdev = "eth1", .enable = true});
  EXPECT_FALSE(early()) << "a device may be excepted";
  rule({.hostname = "login*", .enable = false});
  EXPECT_TRUE(early());
  policy_.ranks.clear();
  rule({.provider = "tcp", .subnet = "172.17.0.0/16", .enable = false});
  EXPECT_FALSE(early());
  policy_.ranks.clear();
  rule({.provider = "ofi_rxm", .enable = false});
  EXPECT_TRUE(early());
  policy_.ranks.clear();
  rule({.provider = "tcp;ofi_rxm", .enable = false});
  EXPECT_TRUE(early());
  EXPECT_TRUE(judge_stack(policy_, {&tcp_}, place_).accepted);
  policy_.ranks.clear();
  rule({.provider = "tcp;rxm", .enable = false});
  EXPECT_TRUE(early()) << "by weft's name of the layer";
}

// What Meaning and note_shadowed_rules() take for one pattern matches the same stacks.
TEST_F(RulesTest, ANameIsOneInAllCasesAndByEitherNamesOfItsUnits) {
  UnitInfo coll;
  coll.name = "coll";
  coll.ofi_name = "off_coll";
  coll.kind = WEFT_KIND_LAYER;
  const StackUnits kTcp = {&tcp_}, kRxm = {&tcp_, &rxm_}, kColl = {&tcp_, &rxm_, &coll};
  const auto matches = [&](const StackUnits &units, const std::string &pattern) {
    policy_.ranks.clear();
    rule({.provider = pattern, .enable = false});
    return !judge_stack(policy_, units, place_).accepted;
  };
  for (const char *pattern : {"tcp", "TCP", "T*", "[a-t]cp", "*"}) {
    EXPECT_TRUE(matches(kTcp, pattern)) << pattern;
    EXPECT_TRUE(matches(kColl, pattern)) << pattern;
  }
  for (const char *pattern : {"tcp;ofi_rxm", "TCP;rxm", "tcp;RXM", "tcp;r*m", "*;OFI_rxm"})
    EXPECT_TRUE(matches(kRxm, pattern)) << pattern;
  for (const char *pattern : {"tcp;rxm;coll", "tcp;rxm;off_coll", "tcp;OFI_RXM;coll", "tcp;rxm;o*",
                              "tcp;ofi_rxm;c*", "Tcp;*;coll"})
    EXPECT_TRUE(matches(kColl, pattern)) << pattern;
  for (const char *pattern : {"tc", "tcp;", "rxm;tcp", "tcp;rxm;coll", "tcp;ofi", "udp;rxm"})
    EXPECT_FALSE(matches(kRxm, pattern)) << pattern;
}

TEST(Place, DescribesThisProcess) {
  const Place place = Place::of_process();
  EXPECT_FALSE(place.hostname().empty());
  EXPECT_THAT(place.executable(), HasSubstr("core_select_test"));
  size_t length = 0;
  const sockaddr_storage loopback = address("127.0.0.1", length);
  EXPECT_EQ(place.netdev_of(reinterpret_cast<const sockaddr *>(&loopback)), "lo");
  const sockaddr_storage nowhere = address("203.0.113.77", length);
  EXPECT_EQ(place.netdev_of(reinterpret_cast<const sockaddr *>(&nowhere)), "");
}

}  // namespace
}  // namespace weft
