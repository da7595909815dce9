// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/usable_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const weft_param kMode = {sizeof kMode, WEFT_TYPE_STRING, "mode", "hardware", "", 0, 0};
const weft_param kSize = {sizeof kSize, WEFT_TYPE_INT, "size", "1", "", 0, 0};
const weft_param *const kUsedParams[] = {&kMode, &kSize};
const weft_unit kUnit = {.magic = WEFT_UNIT_MAGIC, .params = kUsedParams, .param_count = 2};

const Setting kFile{"size", "4", Rule::file("/etc/weft/a.yaml", 3, 5)};
const Setting kBadFile{"mode", "bad", Rule::file("/etc/weft/a.yaml", 4, 5)};
const Setting kBadMode{"mode", "bad", Rule::environment("FI_TOY_MODE")};
const Setting kGoodMode{"mode", "good", Rule::environment("FI_TOY_MODE")};
const Setting kGoneMode{"mode", "gone", Rule::environment("FI_TOY_MODE")};
const Setting kBadSize{"size", "bad", Rule::environment("FI_TOY_SIZE")};

class UsableSettings : public testing::Test {
 protected:
  // A unit that takes no value "bad", and has no device of the value "gone".
  Result<void> run(const std::vector<Setting> &settings, int code = FI_EINVAL) {
    return with_usable_settings(
        kUnit, settings,
        [&](const std::vector<Setting> &tried) -> Result<void> {
          last_.clear();
          for (const Setting &one : tried) last_.push_back(one.key + "=" + one.value);
          for (const Setting &one : tried) {
            if (one.value == "bad")
              return tl::unexpected<Error>(Error{code, "toy: " + one.key + " is bad"});
            if (one.value == "gone")
              return tl::unexpected<Error>(Error{FI_ENODEV, "toy: " + one.key + " is gone"});
          }
          return {};
        },
        [&](const std::string &line) { told_.push_back(line); });
  }
  std::vector<std::string> last_, told_;
};

TEST_F(UsableSettings, AllAreUsedWhereTheUnitTakesThem) {
  EXPECT_TRUE(run({kFile, kGoodMode}));
  EXPECT_THAT(last_, ElementsAre("size=4", "mode=good"));
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(UsableSettings, AVariableThatTheUnitRefusesIsToldAndLeftOut) {
  EXPECT_TRUE(run({kFile, kBadMode, kBadSize}));
  EXPECT_THAT(last_, ElementsAre("size=4"));
  EXPECT_THAT(told_,
              ElementsAre("FI_TOY_MODE: toy: mode is bad; the default, \"hardware\", is used",
                          "FI_TOY_SIZE: toy: size is bad; \"4\", from /etc/weft/a.yaml:3:5, is "
                          "used"));
  told_.clear();
  EXPECT_TRUE(run({kBadSize, kGoodMode}));
  EXPECT_THAT(last_, ElementsAre("mode=good"));
  EXPECT_THAT(told_, ElementsAre("FI_TOY_SIZE: toy: size is bad; the default, \"1\", is used"));
}

TEST_F(UsableSettings, AWrongValueOfAFileStaysAnError) {
  const Result<void> made = run({kBadFile, kBadSize});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().text, "toy: mode is bad");
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(UsableSettings, WhatIsNoWrongValueIsNotTriedAgain) {
  ASSERT_FALSE(run({kBadMode}, FI_ENODEV));
  EXPECT_THAT(last_, ElementsAre("mode=bad"));
}

// The unit would work without it, with another device than the one that was asked for.
TEST_F(UsableSettings, WhatIsNoWrongValueIsAnErrorBesideAWrongOne) {
  const Result<void> made = run({kBadSize, kGoneMode});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, FI_ENODEV);
  EXPECT_EQ(made.error().text, "toy: mode is gone");
}

}  // namespace
}  // namespace weft
