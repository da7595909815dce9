// SPDX-License-Identifier: BSD-2-Clause
// Completion levels (fi_cq.3, fi_cntr.3): every operation, while the target sleeps.
#include <array>

#include "tests/conformance/levels.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

class RdmLevels : public ::testing::TestWithParam<std::tuple<uint64_t, bool>> {};
INSTANTIATE_TEST_SUITE_P(Levels, RdmLevels,
                         ::testing::Combine(::testing::Values(FI_INJECT_COMPLETE,
                                                              FI_TRANSMIT_COMPLETE,
                                                              FI_DELIVERY_COMPLETE),
                                            ::testing::Bool()));

TEST_P(RdmLevels, HoldForEveryOperation) {
  const uint64_t level = std::get<0>(GetParam());
  const bool counts = std::get<1>(GetParam());
  covers(fi_tostr(&level, FI_TYPE_OP_FLAGS));
  Options options;
  options.tx_op_flags = level;
  options.progress = FI_PROGRESS_MANUAL;
  for (const uint64_t more : {FI_RMA, FI_ATOMIC}) {
    Options with = options;
    with.caps |= more;
    if (find_info(with)) options = with;
  }
  if (!find_info(options)) GTEST_SKIP() << "fi_getinfo does not offer this level";
  std::array<fid_cntr *, 3> counters{};
  Net net(2, options, [&](Node &node) {
    if (!counts || counters[0] != nullptr) return;
    counters = {node.count(FI_SEND), node.count(FI_WRITE), node.count(FI_READ)};
  });
  net.exchange(0, 1);
  LevelTest test{.level = level};
  test.initiator = &net[0];
  test.target = &net[1];
  test.to = net.at(0, 1);
  test.counters = counters;
  test.driver = &net;
  test.let_target_sleep = [&](bool sleeps) { net.set_asleep(1, sleeps); };
  test.run();
}

}  // namespace
}  // namespace weft::conformance::rdm
