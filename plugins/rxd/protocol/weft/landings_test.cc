// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/landings.h"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <array>
#include <vector>

#include "plugins/rxd/protocol/test_device.h"
#include "plugins/rxd/protocol/weft/test_link.h"

namespace weft::rxd {
namespace {

constexpr size_t kLong = 2 * DeviceCopies::kShort;

Settings with(const TestDevice &device) {
  Settings settings = lossless::quick();
  settings.hmem = &device.hmem;
  return settings;
}

// Reads into memory of a device, of which all data have come.
struct Landed {
  Landed() : linked(with(device)) {}
  ~Landed() {
    for (TxOp *read : reads) {
      if (read->landing != nullptr) linked.link.landings.end(*linked.link.copies(), read->landing);
      linked.near.core().give(*read);
    }
    EXPECT_EQ(linked.link.copies()->in_use(), 0U);
  }
  TxOp &land() {
    TxOp &read = linked.take(TxOp::Kind::kRead, kLong);
    read.landing = linked.link.copies()->landing_of(read);
    EXPECT_EQ(linked.link.copies()->put(*read.landing, 0, bytes), 0);
    reads.push_back(&read);
    return read;
  }
  std::vector<TxOp *> take() {
    std::vector<TxOp *> out;
    linked.link.landings.take(*linked.link.copies(),
                              [&out](Landing &landing) { out.push_back(landing.read); });
    return out;
  }
  const std::vector<uint8_t> bytes = std::vector<uint8_t>(kLong, 1);
  TestDevice device;
  Linked linked;
  std::vector<TxOp *> reads;
};

TEST(Landings, EndInTheOrderInWhichTheyCame) {
  Landed landed;
  Link &link = landed.linked.link;
  link.peer.wants_room = false;
  std::vector<TxOp *> all;
  for (int i = 0; i < 3; ++i) {
    TxOp &read = landed.land();
    EXPECT_TRUE(link.waits_for_copies(*read.landing));
    EXPECT_TRUE(link.waits_for_copies(*read.landing));  // it does so already
    all.push_back(&read);
  }
  EXPECT_TRUE(link.peer.wants_room);
  EXPECT_NE(landed.device.under_way(), 0U);
  EXPECT_EQ(landed.take(), all);
  EXPECT_EQ(landed.device.under_way(), 0U);
  EXPECT_TRUE(link.landings.empty());
  for (TxOp *read : all) {
    EXPECT_FALSE(link.waits_for_copies(*read->landing));  // nothing is under way any more
    EXPECT_EQ(link.landings.end(*link.copies(), read->landing), 0);
  }
}

// One ends before its copies have been looked at, because the operation has failed.
TEST(Landings, OneEndsEarly) {
  for (const size_t early : {0, 1, 2}) {
    Landed landed;
    Link &link = landed.linked.link;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(link.waits_for_copies(*landed.land().landing));
    EXPECT_EQ(link.landings.end(*link.copies(), landed.reads[early]->landing), 0);
    EXPECT_EQ(landed.reads[early]->landing, nullptr);
    std::vector<TxOp *> others = landed.reads;
    others.erase(others.begin() + ptrdiff_t(early));
    EXPECT_EQ(landed.take(), others);
  }
}

TEST(Landings, ACopyThatFails) {
  Landed landed;
  Link &link = landed.linked.link;
  landed.device.loses = true;
  TxOp &read = landed.land();
  EXPECT_TRUE(link.waits_for_copies(*read.landing));
  landed.take();
  EXPECT_EQ(link.landings.end(*link.copies(), read.landing), FI_EIO);
}

}  // namespace
}  // namespace weft::rxd
