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

}  // namespace
}  // namespace weft::conformance
