// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/shares.h"

#include <gtest/gtest.h>

#include "plugins/rxm/protocol/test_parts.h"

namespace weft::rxm {
namespace {

constexpr uint64_t kLimit = 10'000;

class SharesTest : public ::testing::Test, protected PartsWorld {
 protected:
  SharesTest() { settings.unexpected_limit = kLimit; }

  Shares shares_{carrier, peers, settings, counters};
};

TEST_F(SharesTest, OnePeerGetsThreeQuartersAndLeavesRoomForOthers) {
  Peer &greedy = peer(1, 0), &other = peer(2, 1);
  while (shares_.may_charge(greedy, 100)) shares_.charge(greedy, 100);
  EXPECT_EQ(shares_.charged(), kLimit * 3 / 4);
  EXPECT_TRUE(shares_.may_charge(other, 100));
  EXPECT_FALSE(shares_.may_charge(other, kLimit));
  shares_.charge(greedy, -int64_t(kLimit * 3 / 4));
  EXPECT_EQ(shares_.charged(), 0u);
  EXPECT_TRUE(shares_.may_charge(greedy, 100));
}

TEST_F(SharesTest, AllStrangersGetHalf) {
  Peer &one = peer(1), &two = peer(2), &named = peer(3, 0);
  shares_.charge(one, kLimit / 4);
  shares_.charge(two, kLimit / 4);
  EXPECT_FALSE(shares_.may_charge(one, 1));
  EXPECT_FALSE(shares_.may_charge(peer(4), 1));
  EXPECT_TRUE(shares_.may_charge(named, 1));
}

TEST_F(SharesTest, WhoKeepsAsManyBuffersAsAreLeftTakesTooMuch) {
  Peer &p = peer(1, 0), &stranger = peer(2), &other = peer(3);
  carrier.left = 24;  // eight stay free
  shares_.add_buffers(p, 15);
  EXPECT_FALSE(shares_.takes_too_much(p));
  shares_.add_buffers(p, 1);
  EXPECT_TRUE(shares_.takes_too_much(p));
  shares_.add_buffers(stranger, 16);
  EXPECT_TRUE(shares_.takes_too_much(other)) << "strangers count as one peer";
  carrier.left = Carrier::kOwn;
  EXPECT_FALSE(shares_.takes_too_much(p));
}

TEST_F(SharesTest, OnlyWhoKeepsSomethingMustWait) {
  Peer &p = peer(1, 0), &other = peer(2, 1);
  carrier.left = 0;
  shares_.charge(p, kLimit);
  EXPECT_TRUE(shares_.must_wait(p));
  EXPECT_FALSE(shares_.must_wait(other));
  shares_.add_buffers(other, 1);
  EXPECT_TRUE(shares_.must_wait(other));
  carrier.left = Carrier::kOwn;
  EXPECT_FALSE(shares_.must_wait(p)) << "it shares nothing";
}

}  // namespace
}  // namespace weft::rxm
