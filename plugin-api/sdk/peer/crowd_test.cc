// SPDX-License-Identifier: BSD-2-Clause
#include <gtest/gtest.h>
#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/peer/crowd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::sdk {
namespace {

using Strangers = std::vector<std::pair<const char *, uint64_t>>;

// The one that goes first, as its number.
std::optional<size_t> first_of(const Strangers &strangers, uint64_t useful_before = UINT64_MAX) {
  Crowd crowd;
  std::vector<Address> from;
  uint16_t port = 1;  // strangers of a host have different ports
  for (const auto &[ip, useful_at] : strangers) {
    from.push_back(SockAddr::from_ip(ip, port++).value());
    crowd.add(from.back());
  }
  std::optional<size_t> first;
  for (size_t i = 0; i < strangers.size(); ++i)
    if (strangers[i].second < useful_before && crowd.goes_before(from[i], strangers[i].second))
      first = i;
  return first;
}

TEST(Crowd, WhoWasUselessForLongestGoesFirst) {
  EXPECT_EQ(first_of({{"10.0.0.1", 7}, {"10.0.0.2", 5}, {"10.0.0.3", 6}}), 1u);
  EXPECT_EQ(first_of({{"10.0.0.1", 5}, {"10.0.0.1", 5}}), 0u);
}

TEST(Crowd, AHostWithManyStrangersGivesItsPlacesFirst) {
  EXPECT_EQ(first_of({{"10.0.0.1", 1}, {"10.0.0.2", 9}, {"10.0.0.2", 8}, {"10.0.0.3", 2}}), 2u);
}

TEST(Crowd, WhoMayNotGoCountsForItsHost) {
  EXPECT_EQ(first_of({{"10.0.0.1", 1}, {"10.0.0.2", 9}, {"10.0.0.2", 3}}, 5), 2u);
  EXPECT_EQ(first_of({{"10.0.0.1", 6}, {"10.0.0.2", 9}}, 5), std::nullopt);
}

TEST(Crowd, TheAddressesOfAnIpv6NetworkAreOneHost) {
  EXPECT_EQ(first_of({{"2001:db8:0:1::1", 9}, {"2001:db8:0:1::2", 8}, {"2001:db8:0:2::1", 1}}), 1u);
}

}  // namespace
}  // namespace weft::sdk
