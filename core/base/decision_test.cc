// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/decision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace weft {
namespace {

TEST(DecisionRecord, NamesEveryStage) {
  EXPECT_EQ(stage_name(Stage::kManifest), "manifest");
  EXPECT_EQ(stage_name(Stage::kArchitecture), "architecture");
  EXPECT_EQ(stage_name(Stage::kNegotiate), "negotiate");
  EXPECT_EQ(stage_name(Stage::kSelected), "selected");
  EXPECT_EQ(stage_name(static_cast<Stage>(99)), "unknown");
}

TEST(DecisionRecord, LastIsTheFurthestStageAndTheLaterOfTwo) {
  DecisionRecord record;
  record.add({.candidate = "tcp", .stage = Stage::kInit, .accepted = true, .reason = "loaded"});
  record.add({.candidate = "udp", .stage = Stage::kPolicy, .reason = "disabled"});
  record.add({.candidate = "tcp", .stage = Stage::kHints, .reason = "first"});
  record.add({.candidate = "tcp", .stage = Stage::kHints, .reason = "second"});
  record.add({.candidate = "tcp", .stage = Stage::kManifest, .reason = "earlier stage"});
  ASSERT_NE(record.last("tcp"), nullptr);
  EXPECT_EQ(record.last("tcp")->reason, "second");
  EXPECT_EQ(record.last("udp")->stage, Stage::kPolicy);
  EXPECT_EQ(record.last("tc"), nullptr);
}

TEST(DecisionRecord, JsonHoldsEveryMemberAndSurvivesAnyBytes) {
  DecisionRecord record;
  EXPECT_EQ(record.to_json(), "[]");
  record.add({.candidate = "ver\"bs",
              .stage = Stage::kDevice,
              .reason = "line\nbreak \xff",
              .remedy = "load it",
              .rule = "/etc/weft/a.yaml:1:2"});
  const auto list = nlohmann::json::parse(record.to_json());
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["candidate"], "ver\"bs");
  EXPECT_EQ(list[0]["stage"], "device");
  EXPECT_EQ(list[0]["accepted"], false);
  EXPECT_THAT(list[0]["reason"].get<std::string>(), testing::StartsWith("line\nbreak "));
  EXPECT_EQ(list[0]["remedy"], "load it");
  EXPECT_EQ(list[0]["rule"], "/etc/weft/a.yaml:1:2");
}

TEST(DecisionRecord, TextIsATableWithAlignedColumns) {
  DecisionRecord record;
  EXPECT_EQ(record.to_text(), "");
  record.add({.candidate = "tcp", .stage = Stage::kSelected, .accepted = true, .reason = "best"});
  record.add({.candidate = "verbs",
              .stage = Stage::kDevice,
              .reason = "no device",
              .remedy = "load the driver",
              .rule = "site.yaml:3:1"});
  EXPECT_EQ(record.to_text(),
            "tcp    selected  yes  best\n"
            "verbs  device    no   no device (site.yaml:3:1): load the driver\n");
}

}  // namespace
}  // namespace weft
