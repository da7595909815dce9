// SPDX-License-Identifier: BSD-2-Clause
// Control messages to a peer that answers when the test says so. Of the endpoint nothing else is
// open.
#include "plugins/cxi/control.h"

#include <gtest/gtest.h>

#include <vector>

#include "plugins/cxi/inbox.h"
#include "plugins/cxi/soft/test_wire.h"
#include "plugins/cxi/transmit.h"

namespace weft::cxi {
namespace {

struct NoMessages final : sdk::ReceiverSink {
  void deliver(sdk::Unexpected &, sdk::Receive &) override {}
  void discard(sdk::Unexpected &) override {}
};

// Its bits may be those of any NIC's address.
TEST(Peer, WhoGoesByItsRankIsNowhere) {
  EXPECT_TRUE(Peer::of(match_id(5, kLogical | 3), kVni).is_nowhere());
  EXPECT_EQ(Peer::of(match_id(5, 3), kVni), (Peer{3, 5, kVni}));
}

class ControlTest : public ::testing::Test {
 protected:
  ControlTest() {
    settings_.fc_retry_ns = 0;
    ports_.lni = wire_.a.lni.get();
    ports_.nid = 1;
    ports_.profile = {.vni = kVni};
    must(ports_.claim({kVni}, kAnyPid));
    must(control_.open(false, false));
  }
  ~ControlTest() override { control_.close(); }

  void make_room() {
    Entry any = region(1, 0);
    any.ignore_bits = ~uint64_t{0};
    theirs_->append(List::kPriority, any);
  }
  void tell(ControlType type, uint16_t drops = 0) { control_.tell({2, 2, kVni}, {type, drops}); }
  // How many messages leave, and reach the peer's NIC.
  size_t carried() {
    std::vector<uint8_t> bytes(100 * kHeadSize);
    bytes.resize(wire_.a.stream->output(bytes));
    EXPECT_EQ(wire_.b.stream->on_bytes(bytes), std::nullopt);
    return bytes.size() / kHeadSize;
  }
  void answer() {
    wire_.settle();
    while (control_.read_events()) {
    }
  }
  // The drops of each message that has found its place.
  std::vector<uint16_t> told() {
    std::vector<uint16_t> all;
    while (const auto event = Process::take(*wire_.b.events))
      if (event->rc == Rc::kOk) all.push_back(ControlBits::of(event->match_bits).drops);
    return all;
  }

  Wire wire_;
  sdk::Engine engine_{true};
  sdk::Guard guard_{engine_.lock()};
  Settings settings_;
  Counters counters_;
  sdk::TxContext tx_;
  NoMessages sink_;
  sdk::Receiver receiver_{sink_, {}};
  Sources sources_{false, {}};
  Ports ports_;
  Transmit transmit_{ports_, engine_, tx_, settings_, counters_, 16, false};
  Inbox inbox_{ports_, receiver_, engine_, sources_, settings_, counters_, {}, nullptr};
  Control control_{ports_, engine_, settings_, transmit_, inbox_};
  const std::unique_ptr<Portal> theirs_ = wire_.b.open_portal(kWriteIndex);
};

TEST_F(ControlTest, OneThatHasNoPlaceStandsForAnother) {
  for (int i = 0; i < 3; ++i) tell(ControlType::kNotify);
  EXPECT_EQ(carried(), 1u);
  answer();
  for (int i = 0; i < 3; ++i) tell(ControlType::kNotify);
  EXPECT_EQ(carried(), 0u);
  make_room();
  engine_.progress();
  EXPECT_EQ(carried(), 1u);
  answer();
  engine_.progress();
  EXPECT_EQ(carried(), 0u);
  EXPECT_EQ(told().size(), 1u);
}

// The peer may have read the first one before it asked again.
TEST_F(ControlTest, WhoeverAsksMeanwhileIsToldOnceMore) {
  make_room();
  for (int i = 0; i < 5; ++i) tell(ControlType::kResume);
  EXPECT_EQ(carried(), 1u);
  answer();  // and the second one
  EXPECT_EQ(told().size(), 1u);
  EXPECT_EQ(carried(), 1u);
  answer();
  EXPECT_EQ(carried(), 0u);
  EXPECT_EQ(told().size(), 1u);
  tell(ControlType::kResume);
  EXPECT_EQ(carried(), 1u);
}

TEST_F(ControlTest, DropsAreToldOfOnce) {
  make_room();
  tell(ControlType::kNotify, 5);
  tell(ControlType::kNotify);
  tell(ControlType::kNotify, 2);
  EXPECT_EQ(carried(), 2u);
  answer();
  EXPECT_EQ(carried(), 1u);
  answer();
  EXPECT_EQ(carried(), 0u);
  EXPECT_EQ(told(), (std::vector<uint16_t>{5, 2, 0}));
}

}  // namespace
}  // namespace weft::cxi
