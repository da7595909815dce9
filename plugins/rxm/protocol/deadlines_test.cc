// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/deadlines.h"

#include <gtest/gtest.h>

#include "plugins/rxm/protocol/test_parts.h"

namespace weft::rxm {
namespace {

using Times = std::vector<uint64_t>;

struct DeadlinesTest : ::testing::Test {
  // A peer that has put off our request at `now`. It is asked again a millisecond later.
  Peer &put_off(uint16_t port, uint64_t now) {
    Peer &p = world.peer(port);
    sdk::PeerLink &link = world.link(p);
    link.want(now, 0);
    EXPECT_EQ(link.on_refused(now, sdk::PeerLink::Refusal::kRejected, true),
              sdk::PeerLink::Next::kWait);
    deadlines.wait(p);
    return p;
  }
  PartsWorld world;
  Deadlines deadlines{world.carrier};
  const Times &armed{world.carrier.deadlines};
};

constexpr uint64_t kPause = 1'000'000;

TEST_F(DeadlinesTest, TheFirstTimeIsTold) {
  Peer &later = put_off(1, 5000), &first = put_off(2, 1000);
  put_off(3, 9000);
  deadlines.wait(later);
  EXPECT_EQ(armed, (Times{5000 + kPause, 1000 + kPause})) << "only when it changes";
  EXPECT_EQ(deadlines.take_due(1000 + kPause), std::vector<Peer *>{&first});
  deadlines.arm();
  EXPECT_EQ(armed.back(), 5000 + kPause);
  EXPECT_EQ(deadlines.take_due(9000 + kPause).size(), 2u);
  deadlines.arm();
  EXPECT_EQ(armed.size(), 3u) << "the carrier's deadline was over anyway";
}

TEST_F(DeadlinesTest, APeerThatWaitsNoMoreHasNoTime) {
  Peer &p = put_off(1, 1000), &other = put_off(2, 5000);
  world.link(p) = sdk::PeerLink();  // there is a connection meanwhile, or the peer is given up
  deadlines.arm();
  EXPECT_EQ(armed.back(), 5000 + kPause);
  deadlines.forget(other);
  deadlines.arm();
  EXPECT_EQ(armed.back(), 0u) << "never";
}

}  // namespace
}  // namespace weft::rxm
