// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/unit/log.h"

#include <gtest/gtest.h>
#include <weft/sdk/unit/sparse_log.h>

#include <cerrno>
#include <string>

namespace weft::sdk::log_test {
namespace {

std::string last;
int lines = 0;

const weft_core_services kCore = {
    .struct_size = sizeof(weft_core_services),
    .log_enabled = [](const weft_instance *, int32_t level, int32_t subsys) -> int32_t {
      return level == FI_LOG_WARN && subsys != FI_LOG_MR;
    },
    .log =
        [](const weft_instance *instance, int32_t level, int32_t subsys, const char *func, int32_t,
           const char *text) {
          last = std::string(instance->stack) + ":" + std::to_string(level) + ":" +
                 std::to_string(subsys) + ":" + func + ": " + text;
          ++lines;
          errno = EPERM;
        },
};
const weft_instance kInstance = {.core = &kCore, .stack = "toy"};

TEST(Log, FormatsOnlyEnabledMessages) {
  int evaluated = 0;
  errno = ENOENT;
  WEFT_WARN(&kInstance, FI_LOG_CQ, "%d of %s", ++evaluated, "three");
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(last, "toy:0:6:TestBody: 1 of three");
  WEFT_INFO(&kInstance, FI_LOG_CQ, "%d", ++evaluated);
  WEFT_WARN(&kInstance, FI_LOG_MR, "%d", ++evaluated);
  if (lines == 1)
    WEFT_DEBUG(&kInstance, FI_LOG_CQ, "no else is swallowed");
  else
    ADD_FAILURE();
  EXPECT_EQ(evaluated, 1);
  EXPECT_EQ(lines, 1);
}

TEST(Log, LongLinesAreCut) {
  WEFT_WARN(&kInstance, FI_LOG_CORE, "%s", std::string(5000, 'x').c_str());
  EXPECT_EQ(last.size(), std::string("toy:0:0:TestBody: ").size() + 1023);
}

TEST(Log, OfAFloodOfLinesAFewAreShownAndTheOthersCounted) {
  constexpr uint64_t kStart = 1'000'000'000'000, kPause = SparseLine::kEveryNs;
  SparseLine place;
  std::string note;
  const auto shown = [&](uint64_t now, int times) {
    int passed = 0;
    for (int i = 0; i < times; ++i) {
      std::string one;
      if (!place.passes(now, one)) continue;
      ++passed;
      note = one;
    }
    return passed;
  };
  EXPECT_EQ(shown(kStart, 7), 7);
  EXPECT_EQ(note, "") << "the first ones in full, and nothing else";
  EXPECT_EQ(shown(kStart, 1), 1);
  EXPECT_EQ(note, " (of further such lines one in 2 s is shown)");
  EXPECT_EQ(shown(kStart + kPause - 1, 1000), 0);
  EXPECT_EQ(shown(kStart + kPause, 10), 1);
  EXPECT_EQ(note,
            " (1000 more such lines were left out) (of further such lines one in 2 s is shown)");
  EXPECT_EQ(shown(kStart + 2 * kPause, 1), 1);
  EXPECT_EQ(shown(kStart + 1000 * kPause, 20), 8) << "after a quiet time as at first";
}

TEST(Log, APlaceInTheCodeIsSparse) {
  lines = 0;
  int evaluated = 0;
  for (int i = 0; i < 100; ++i) {
    WEFT_WARN_SPARSE(&kInstance, FI_LOG_CQ, "%d of a flood", ++evaluated);
    WEFT_INFO_SPARSE(&kInstance, FI_LOG_CQ, "%d, which nobody reads", ++evaluated);
  }
  EXPECT_LT(lines, 100);
  EXPECT_GE(lines, 8);
  EXPECT_EQ(evaluated, lines);
  EXPECT_NE(last.find(" of a flood (of further such lines"), std::string::npos) << last;
  WEFT_WARN_SPARSE(&kInstance, FI_LOG_CQ, "another place");
  EXPECT_TRUE(last.ends_with(": another place")) << last;
}

}  // namespace
}  // namespace weft::sdk::log_test
