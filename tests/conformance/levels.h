// SPDX-License-Identifier: BSD-2-Clause
// Completion levels (fi_cq.3, fi_cntr.3) of every operation: what counters and queues tell while
// the target sleeps.
//
// Example:
//     #include "tests/conformance/harness.h"
//     TEST(Example, LevelsOfAPair) {
//       Pair pair;
//       LevelTest test{.level = FI_INJECT_COMPLETE, .type = FI_EP_MSG, .initiator = &pair.a,
//                      .target = &pair.b, .driver = &pair};
//       test.let_target_sleep = [](bool) {};  // pair.progress() is for both
//       test.run();
//     }
//
// FI_MATCH_COMPLETE needs a receive, and has tests of its own.
#ifndef WEFT_TESTS_CONFORMANCE_LEVELS_H
#define WEFT_TESTS_CONFORMANCE_LEVELS_H

#include <array>
#include <functional>

#include "tests/conformance/common.h"

namespace weft::conformance {

struct LevelTest {
  // Each operation, of 8 bytes: one entry or one count more when the target has done its part, none
  // before where the level demands it, and never a second one.
  void run();

  uint64_t level = 0;  // the default of the initiator's endpoint
  enum fi_ep_type type = FI_EP_RDM;
  Application *initiator = nullptr, *target = nullptr;
  fi_addr_t to = FI_ADDR_UNSPEC;
  std::array<fid_cntr *, 3> counters{};  // of FI_SEND, FI_WRITE and FI_READ; null: none are bound
  Driver *driver = nullptr;              // progress() of all that are awake
  std::function<void(bool)> let_target_sleep;  // true: it does no progress
};

}  // namespace weft::conformance

#endif
