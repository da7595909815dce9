// SPDX-License-Identifier: BSD-2-Clause
#include <gtest/gtest.h>
#include <weft/nearest.h>

namespace weft {
namespace {

TEST(Nearest, FindsMisspeltWords) {
  const std::vector<std::string> known = {"tcp", "udp", "verbs", "ofi_rxm"};
  EXPECT_EQ(nearest("tpc", known), "tcp");
  EXPECT_EQ(nearest("TCP", known), "tcp");
  EXPECT_EQ(nearest("tcpp", known), "tcp");
  EXPECT_EQ(nearest("vreb", known), "");
  EXPECT_EQ(nearest("verb", known), "verbs");
  EXPECT_EQ(nearest("ofi-rxn", known), "ofi_rxm");
}

TEST(Nearest, FindsNothingIfNothingIsClose) {
  EXPECT_EQ(nearest("banana", {"tcp", "udp"}), "");
  EXPECT_EQ(nearest("", {"a"}), "");
  EXPECT_EQ(nearest("tcp", {}), "");
  EXPECT_EQ(nearest(std::string(1000, 'a'), {std::string(1000, 'a')}), "");
}

TEST(Nearest, PrefersTheFirstOfEquals) {
  EXPECT_EQ(nearest("tdp", {"tcp", "udp"}), "tcp");
}

}  // namespace
}  // namespace weft
