// SPDX-License-Identifier: BSD-2-Clause
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <weft/sdk/addresses/host_name.h>

#include <set>
#include <string>

#include "plugins/link/local_name.h"
#include "plugins/link/pace.h"
#include "plugins/link/watch.h"
#include "plugins/link/ways.h"

namespace weft::link {
namespace {

sdk::Address at(const std::string &text) {
  return *sdk::read_address(FI_ADDR_STR, text.c_str());
}

TEST(LinkName, IsThatOfTheAddressAndItsBytesMatter) {
  const auto one = local_name(at("fi_sockaddr_in://10.0.0.1:7471"));
  EXPECT_EQ(one.format(), sdk::kHostName);
  EXPECT_EQ(one, local_name(at("fi_sockaddr_in://10.0.0.1:7471")));
  std::set<std::string> names;
  for (const char *const text :
       {"fi_sockaddr_in://10.0.0.1:7471", "fi_sockaddr_in://10.0.0.1:7472",
        "fi_sockaddr_in://10.0.0.2:7471", "fi_sockaddr_in6://[::1]:7471",
        "fi_sockaddr_in6://[fe80::1]:7471", "fi_sockaddr_in6://[::ffff:10.0.0.1]:7471"})
    names.insert(local_name(at(text)).to_string());
  EXPECT_EQ(names.size(), 6u);
  // It can be passed as a text.
  const auto again = sdk::read_address(FI_ADDR_STR, sdk::format_address_string(one).c_str());
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, one);
}

TEST(LinkWays, AreKnownUntilTheyAreForgotten) {
  Ways ways;
  EXPECT_FALSE(ways.of(0).is_known());
  ways.set(1'000'000, {});  // needs no memory
  ways.set(3, Way(kLocal, 7));
  ways.set(5, Way(kNetwork, 0));
  ways.set(5000, Way(kLocal, 9));  // the table grows, and has all
  EXPECT_EQ(ways.of(3).branch(), kLocal);
  EXPECT_EQ(ways.of(3).name(), 7u);
  EXPECT_TRUE(ways.of(5).is_known());
  EXPECT_EQ(ways.of(5).branch(), kNetwork);
  EXPECT_EQ(ways.of(5).name(), 0u);
  EXPECT_EQ(ways.of(5000).name(), 9u);
  EXPECT_FALSE(ways.of(4).is_known());
  EXPECT_FALSE(ways.of(FI_ADDR_NOTAVAIL).is_known());
  ways.forget_local();
  EXPECT_FALSE(ways.of(3).is_known());
  EXPECT_FALSE(ways.of(5000).is_known());
  EXPECT_TRUE(ways.of(5).is_known());
  ways.set(5, {});
  EXPECT_FALSE(ways.of(5).is_known());
}

TEST(LinkWatchedPeers, AreDecidedAnewWhenNothingIsUnderWay) {
  WatchedPeers peers;
  peers.begin(3);
  EXPECT_FALSE(peers.end(3, false)) << "it was there";
  peers.begin(3);
  peers.begin(3);
  peers.begin(4);
  EXPECT_FALSE(peers.end(3, true)) << "the other one would be overtaken";
  peers.begin(3);
  EXPECT_FALSE(peers.end(3, false));
  EXPECT_TRUE(peers.end(3, false));
  EXPECT_FALSE(peers.end(3, true)) << "none is under way";
  peers.forget(4);
  EXPECT_FALSE(peers.end(4, true)) << "it has left the vector";
}

// How many of `looks` in a row are at the network, with so many new events before each.
unsigned looks_at_network(Pace &pace, unsigned looks, uint64_t &local, uint64_t locals,
                          uint64_t &network, uint64_t networks) {
  unsigned count = 0;
  for (unsigned i = 0; i < looks; ++i) {
    local += locals;
    network += networks;
    count += pace.is_turn_of_network(local, network);
  }
  return count;
}

TEST(LinkPace, LeavesTheNetworkOutWhileMemoryIsBusy) {
  constexpr unsigned kLeast = Pace::kLeastShare, kMost = Pace::kMostShare;
  Pace pace;
  uint64_t local = 0, network = 0;
  EXPECT_EQ(looks_at_network(pace, 100, local, 0, network, 0), 100u) << "nothing comes";
  EXPECT_EQ(looks_at_network(pace, 100, local, 0, network, 1), 100u);
  // Less and less often.
  EXPECT_EQ(looks_at_network(pace, kLeast - 1, local, 1, network, 0), 0u);
  EXPECT_EQ(looks_at_network(pace, 1, local, 1, network, 0), 1u);
  EXPECT_EQ(looks_at_network(pace, 2 * kLeast, local, 1, network, 0), 1u);
  looks_at_network(pace, 4 * kMost, local, 1, network, 0);
  EXPECT_EQ(looks_at_network(pace, 10 * kMost, local, 1, network, 0), 10u);
  // Both: what came by the network is likely to be followed by more.
  EXPECT_GT(looks_at_network(pace, 100, local, 1, network, 1), 90u);
  EXPECT_EQ(looks_at_network(pace, kLeast, local, 1, network, 0), 1u);
  // Until so many looks have found nothing.
  looks_at_network(pace, Pace::kFruitless, local, 0, network, 0);
  EXPECT_EQ(looks_at_network(pace, 100, local, 0, network, 0), 100u);
}

}  // namespace
}  // namespace weft::link
