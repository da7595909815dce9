// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/log.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace weft::sdk::log_test
