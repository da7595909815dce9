// SPDX-License-Identifier: BSD-2-Clause
// Completion levels (fi_cq.3, fi_cntr.3) of connected endpoints.
#include <array>

#include "tests/conformance/harness.h"
#include "tests/conformance/levels.h"

namespace weft::conformance {
namespace {

// Progress of those sides that are awake.
class Sides : public Driver {
 public:
  explicit Sides(Pair &pair) : pair_(pair) {}
  void progress() override {
    pair_.a.progress();
    if (!sleeps) pair_.b.progress();
  }
  bool sleeps = false;

 private:
  Pair &pair_;
};

class MsgLevels : public ::testing::TestWithParam<std::tuple<uint64_t, bool>> {};
INSTANTIATE_TEST_SUITE_P(Levels, MsgLevels,
                         ::testing::Combine(::testing::Values(FI_INJECT_COMPLETE,
                                                              FI_TRANSMIT_COMPLETE,
                                                              FI_DELIVERY_COMPLETE),
                                            ::testing::Bool()));

TEST_P(MsgLevels, HoldForEveryOperation) {
  const uint64_t level = std::get<0>(GetParam());
  const bool counts = std::get<1>(GetParam());
  covers(fi_tostr(&level, FI_TYPE_OP_FLAGS));
  NEEDS_LEVEL(level);
  if (counts) NEEDS_COUNTERS();
  Options options;
  options.tx_op_flags = level;
  NEEDS_REMOTE_DATA(options);
  std::array<fid_cntr *, 3> counters{};
  Pair pair(options, options, [&](Side &side) {
    if (!counts || counters[0] != nullptr) return;
    counters = {side.count(FI_SEND), side.count(FI_WRITE), side.count(FI_READ)};
  });
  Sides sides(pair);
  LevelTest test{.level = level, .type = FI_EP_MSG};
  test.initiator = &pair.a;
  test.target = &pair.b;
  test.counters = counters;
  test.driver = &sides;
  test.let_target_sleep = [&](bool sleeps) { sides.sleeps = sleeps; };
  test.run();
}

// The target replies to some messages at once, and calls nothing more after the last one. See
// RdmDelivery.
TEST(MsgDelivery, IsToldThoughTheTargetMakesNoMoreCalls) {
  for (const uint64_t level : {FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE}) {
    covers(fi_tostr(&level, FI_TYPE_OP_FLAGS));
    Options options;
    options.tx_op_flags = level;
    if (!options_info(options)) continue;
    SCOPED_TRACE(fi_tostr(&level, FI_TYPE_OP_FLAGS));
    std::vector<uint8_t> out = pattern(300, 1), in(300);
    Pair pair(options);
    Sides sides(pair);
    const auto send = [&](Side &from, Side &to) {
      must(fi_recv(to.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, nullptr));
      sides.post([&] { return fi_send(from.ep, out.data(), out.size(), nullptr, 0, nullptr); });
      sides.sleeps = &to == &pair.b;  // until it has read the completion, and not from then on
      EXPECT_EQ(sides.wait(to.rx_cq).err, 0);
    };
    for (int replies = 0; replies < 6; ++replies) {
      send(pair.a, pair.b);
      send(pair.b, pair.a);
      EXPECT_EQ(sides.wait(pair.a.tx_cq).err, 0);
      EXPECT_EQ(sides.wait(pair.b.tx_cq).err, 0);
    }
    send(pair.a, pair.b);
    EXPECT_EQ(sides.wait(pair.a.tx_cq).err, 0);
  }
}

}  // namespace
}  // namespace weft::conformance
