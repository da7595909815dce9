// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/ip/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Interface make(const char *name, unsigned index, const char *ip, InterfaceKind kind,
               unsigned speed = 0) {
  return {.name = name,
          .index = index,
          .address = SockAddr::from_ip(ip).value(),
          .prefix = 24,
          .kind = kind,
          .up = true,
          .running = true,
          .speed = speed,
          .mtu = 1500};
}

// A node with a bit of everything, in the order in which a kernel might list it.
std::vector<Interface> node() {
  using enum InterfaceKind;
  std::vector<Interface> facts = {
      make("lo", 1, "127.0.0.1", kLoopback),
      make("docker0", 2, "172.17.0.1", kBridge, 10000),
      make("eth0", 3, "10.0.0.2", kPhysical, 1000),
      make("hsn0", 4, "10.1.0.2", kPhysical, 200000),
      make("hsn1", 5, "10.1.1.2", kPhysical, 200000),
      make("veth7", 6, "10.9.0.2", kVirtual, 10000),
      make("wg0", 7, "10.8.0.2", kTunnel),
      make("lo", 1, "::1", kLoopback),
      make("eth0", 3, "fd00::2", kPhysical, 1000),
      make("eth0", 3, "fe80::2", kPhysical, 1000),
      make("eth1", 8, "10.2.0.2", kPhysical, 1000),
      make("eth2", 9, "10.3.0.2", kPhysical, 1000),
  };
  facts[10].running = false;
  facts[11].up = facts[11].running = false;
  return facts;
}

std::vector<std::string> names(const std::vector<RankedInterface> &list) {
  std::vector<std::string> result;
  result.reserve(list.size());
  for (const RankedInterface &entry : list) {
    result.push_back(entry.interface.name + " " + entry.interface.address.ip());
  }
  return result;
}

InterfaceRanking rank(const std::vector<std::string> &patterns) {
  return rank_interfaces(node(), InterfaceFilter::parse(patterns).value());
}

TEST(RankInterfaces, RoutableFirstLoopbackLast) {
  const InterfaceRanking ranking = rank({});
  EXPECT_THAT(names(ranking.used),
              ElementsAre("hsn0 10.1.0.2", "hsn1 10.1.1.2", "eth0 10.0.0.2", "eth0 fd00::2",
                          "veth7 10.9.0.2", "docker0 172.17.0.1", "wg0 10.8.0.2", "eth0 fe80::2",
                          "lo 127.0.0.1", "lo ::1"));
  EXPECT_THAT(names(ranking.left_out), ElementsAre("eth1 10.2.0.2", "eth2 10.3.0.2"));
  EXPECT_EQ(ranking.left_out[0].reason, "left out: it has no carrier");
  EXPECT_EQ(ranking.left_out[1].reason, "left out: it is down");
  EXPECT_EQ(ranking.used[0].text(), "hsn0 10.1.0.2/24: routable, 200000 Mbit/s");
  EXPECT_THAT(ranking.used[5].reason, HasSubstr("bridge"));
  EXPECT_THAT(ranking.used[9].reason, HasSubstr("this host only"));
  EXPECT_EQ(ranking.nothing, "");
}

TEST(RankInterfaces, Filters) {
  struct {
    std::vector<std::string> patterns;
    std::vector<std::string> used;
  } const table[] = {
      {{"hsn*"}, {"hsn0 10.1.0.2", "hsn1 10.1.1.2"}},
      {{"hsn1", "hsn0"}, {"hsn1 10.1.1.2", "hsn0 10.1.0.2"}},
      {{"eth0", "hsn*"},
       {"eth0 10.0.0.2", "eth0 fd00::2", "eth0 fe80::2", "hsn0 10.1.0.2", "hsn1 10.1.1.2"}},
      {{"hsn*", "!hsn1"}, {"hsn0 10.1.0.2"}},
      {{"!hsn1", "hsn*"}, {"hsn0 10.1.0.2"}},
      {{"10.1.0.0/16"}, {"hsn0 10.1.0.2", "hsn1 10.1.1.2"}},
      {{"10.1.1.2"}, {"hsn1 10.1.1.2"}},
      {{"fd00::/16"}, {"eth0 fd00::2"}},
      {{"docker0"}, {"docker0 172.17.0.1"}},
      {{"lo"}, {"lo 127.0.0.1", "lo ::1"}},
      {{"[ln]o", "!::1"}, {"lo 127.0.0.1"}},
      {{"!hsn*", "!eth*", "!veth*", "!wg?", "!172.16.0.0/12", "!::/0"}, {"lo 127.0.0.1"}},
  };
  for (const auto &row : table) {
    EXPECT_EQ(names(rank(row.patterns).used), row.used) << row.patterns[0];
  }
  EXPECT_THAT(rank({"10.1.0.0/16"}).used[0].reason, HasSubstr("named by 10.1.0.0/16"));
}

TEST(RankInterfaces, TheFilterNamesTheRuleThatExcludedAnInterface) {
  const InterfaceRanking ranking = rank({"hsn*", "!hsn1"});
  EXPECT_THAT(ranking.left_out[0].reason, HasSubstr("hsn*,!hsn1 does not name it"));
  const auto hsn1 = std::find_if(ranking.left_out.begin(), ranking.left_out.end(),
                                 [](const auto &e) { return e.interface.name == "hsn1"; });
  ASSERT_NE(hsn1, ranking.left_out.end());
  EXPECT_EQ(hsn1->reason, "left out: the filter says !hsn1");
}

TEST(RankInterfaces, AnEmptyListGivesTheReason) {
  const InterfaceRanking wrong = rank({"ib*"});
  EXPECT_THAT(wrong.used, IsEmpty());
  EXPECT_THAT(wrong.nothing, HasSubstr("the filter ib* matches no interface that is up"));
  EXPECT_THAT(wrong.nothing, HasSubstr("hsn0 10.1.0.2"));
  EXPECT_THAT(rank({"eth1"}).nothing, HasSubstr("eth1"));
  EXPECT_THAT(rank_interfaces({}, {}).nothing, HasSubstr("has no interface"));
  std::vector<Interface> down = node();
  for (Interface &interface : down) interface.up = false;
  EXPECT_THAT(rank_interfaces(down, {}).nothing, HasSubstr("no interface of this host is up"));
}

TEST(InterfaceFilter, RefusesInvalidPatterns) {
  for (const char *bad : {"", "!", "10.1.0.0/33", "10.1.0.0/", "10.1.0.0/x", "10.1.0.0/8x",
                          "eth0/8", "fd00::/129", "/8", "10.1.0.0/-1"}) {
    EXPECT_EQ(InterfaceFilter::parse(std::vector<std::string>{bad}).error().code, FI_EINVAL) << bad;
  }
}

TEST(ListInterfaces, KnowsTheLoopback) {
  const std::vector<Interface> all = list_interfaces().value();
  const auto lo = std::find_if(all.begin(), all.end(), [](const Interface &i) {
    return i.name == "lo" && i.address == SockAddr::loopback(AF_INET);
  });
  ASSERT_NE(lo, all.end());
  EXPECT_TRUE(lo->up);
  EXPECT_TRUE(lo->running);
  EXPECT_EQ(lo->kind, InterfaceKind::kLoopback);
  EXPECT_EQ(lo->prefix, 8u);
  EXPECT_EQ(lo->index, if_nametoindex("lo"));
  EXPECT_GT(lo->mtu, 1000u);
}

// What the files of a made-up /sys say of the interfaces that this host really has.
TEST(ListInterfaces, ReadsSysfs) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(::testing::TempDir()) / "weft_interfaces_test";
  std::string name;
  const std::vector<Interface> real = list_interfaces().value();
  for (const Interface &i : real) {
    if (i.name != "lo") name = i.name;
  }
  if (name.empty()) GTEST_SKIP() << "this host has no interface but the loopback";
  const auto kind_with = [&](const char *file, const std::string &text) {
    fs::remove_all(root);
    fs::create_directories(root / name);
    if (file != nullptr) std::ofstream(root / name / file) << text;
    const std::vector<Interface> read = list_interfaces(root).value();
    for (const Interface &i : read) {
      if (i.name == name) return i;
    }
    return Interface();
  };
  EXPECT_EQ(kind_with("bridge", "").kind, InterfaceKind::kBridge);
  EXPECT_EQ(kind_with("tun_flags", "0x1").kind, InterfaceKind::kTunnel);
  EXPECT_EQ(kind_with("device", "").kind, InterfaceKind::kPhysical);
  EXPECT_EQ(kind_with("uevent", "DEVTYPE=vlan\nINTERFACE=x\n").kind, InterfaceKind::kPhysical);
  EXPECT_EQ(kind_with("uevent", "DEVTYPE=wireguard\n").kind, InterfaceKind::kTunnel);
  EXPECT_EQ(kind_with("uevent", "DEVTYPE=bridge\n").kind, InterfaceKind::kBridge);
  EXPECT_EQ(kind_with("speed", "25000\n").speed, 25000u);
  EXPECT_EQ(kind_with("speed", "-1\n").speed, 0u);
  EXPECT_EQ(kind_with("speed", "4294967295\n").speed, 0u);
  EXPECT_EQ(kind_with("mtu", "9000\n").mtu, 9000u);
  fs::remove_all(root);
}

}  // namespace
}  // namespace weft::sdk
