// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/shares.h"

#include <gtest/gtest.h>
#include <weft/sdk/sock_addr.h>

namespace weft::rxm {
namespace {

// Only buffers_left() and hold() are called.
class Buffers final : public Carrier {
 public:
  size_t left = 32;
  size_t buffers_left() const override { return left; }
  bool buffers_low() const override { return false; }
  bool hold(Link &, bool) override { return true; }
  Link *connect(Connection &, const sdk::Address &, std::span<const uint8_t>, int &) override {
    return nullptr;
  }
  Link *accept(Connection &, Request &, std::span<const uint8_t>, int &) override {
    return nullptr;
  }
  void reject(Request &, std::span<const uint8_t>) override {}
  void close(Link &, bool) override {}
  ssize_t send(Link &, const iovec *, void *const *, size_t, uint32_t, uint64_t, Token *) override {
    return -FI_ENOSYS;
  }
  ssize_t read(Link &, const iovec *, void *const *, size_t, const RmaVector *, size_t, uint64_t,
               Token *) override {
    return -FI_ENOSYS;
  }
  ssize_t write(Link &, const iovec *, void *const *, size_t, const RmaVector *, size_t, uint64_t,
                uint64_t, Token *) override {
    return -FI_ENOSYS;
  }
  void release(Buffer &) override {}
  Registration *expose(Link &, const iovec &, uint64_t, RmaVector &, int &) override {
    return nullptr;
  }
  void conceal(Registration &) override {}
  ssize_t resolve(const RmaVector &, uint64_t, iovec *, size_t) override { return -FI_ENOSYS; }
  uint64_t now_ns() override { return 0; }
  void set_deadline(uint64_t) override {}
};

constexpr uint64_t kLimit = 10'000;

class SharesTest : public ::testing::Test {
 protected:
  SharesTest() { settings_.unexpected_limit = kLimit; }
  // A peer that is in the address vector, if it has an index.
  Peer &peer(uint16_t port, uint32_t index = kNoIndex) {
    Peer &p = peers_.get(sdk::SockAddr::loopback(AF_INET, port));
    if (index != kNoIndex) peers_.set_index(p, index);
    return p;
  }

  Buffers carrier_;
  Peers peers_;
  Settings settings_;
  Counters counters_;
  Shares shares_{carrier_, peers_, settings_, counters_};
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
  carrier_.left = 24;  // eight stay free
  shares_.add_buffers(p, 15);
  EXPECT_FALSE(shares_.takes_too_much(p));
  shares_.add_buffers(p, 1);
  EXPECT_TRUE(shares_.takes_too_much(p));
  shares_.add_buffers(stranger, 16);
  EXPECT_TRUE(shares_.takes_too_much(other)) << "strangers count as one peer";
  carrier_.left = Carrier::kOwn;
  EXPECT_FALSE(shares_.takes_too_much(p));
}

TEST_F(SharesTest, OnlyWhoKeepsSomethingMustWait) {
  Peer &p = peer(1, 0), &other = peer(2, 1);
  carrier_.left = 0;
  shares_.charge(p, kLimit);
  EXPECT_TRUE(shares_.must_wait(p));
  EXPECT_FALSE(shares_.must_wait(other));
  shares_.add_buffers(other, 1);
  EXPECT_TRUE(shares_.must_wait(other));
  carrier_.left = Carrier::kOwn;
  EXPECT_FALSE(shares_.must_wait(p)) << "it shares nothing";
}

}  // namespace
}  // namespace weft::rxm
