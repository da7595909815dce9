// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/decision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/render.h"

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
              .rule = Rule::file("/etc/weft/a.yaml", 1, 2)});
  const auto list = nlohmann::json::parse(record.to_json());
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["candidate"], "ver\"bs");
  EXPECT_EQ(list[0]["stage"], "device");
  EXPECT_EQ(list[0]["accepted"], false);
  EXPECT_THAT(list[0]["reason"].get<std::string>(), testing::StartsWith("line\nbreak "));
  EXPECT_EQ(list[0]["remedy"], "load it");
  EXPECT_EQ(list[0]["rule"], "/etc/weft/a.yaml:1:2");
}

TEST(Decision, IsAsFarAsItsRefusalsOrItsStage) {
  Decision decision{.stage = Stage::kHints};
  EXPECT_EQ(distance_of(decision), distance_of(Stage::kHints));
  decision.refusals = {{.attribute = "tx_attr.size"}, {.attribute = "ep_attr.type"}, {}};
  EXPECT_EQ(distance_of(decision), 1 + 16 + Refusal::kFault);
  decision.distance = 0;
  EXPECT_EQ(distance_of(decision), 0u);
}

TEST(Attribute, ALimitIsNearestAndAnotherProviderFarthest) {
  constexpr struct {
    Attribute attribute;
    uint32_t distance;
  } kRows[] = {{"fabric_attr.prov_name", 64},
               {"fabric_attr.prov_version", 32},
               {"domain_attr.domain", 32},
               {"ep_attr.type", 16},
               {"ep_attr.protocol_version", 16},
               {"nic.link_attr.mtu", 8},
               {"src_addrlen", 8},
               {"domain_attr.mr_mode", 4},
               {"ep_attr.mem_tag_format", 2},
               {"domain_attr.resource_mgmt", 1}};
  for (const auto &row : kRows) {
    EXPECT_EQ(row.attribute.distance(), row.distance) << row.attribute.name();
    EXPECT_EQ(distance_of_attribute(row.attribute.name()), row.distance);
  }
  for (const char *none : {"", "size", "tx_attr.", "tx_attr.siz", "caps tx_attr.caps"})
    EXPECT_EQ(distance_of_attribute(none), 0u) << none;
}

TEST(Render, ARuleIsItsPlace) {
  EXPECT_EQ(text_of(Rule{}), "");
  EXPECT_EQ(text_of(Rule::built_in()), "built-in");
  EXPECT_EQ(text_of(Rule::of_declaration()), "default");
  EXPECT_EQ(text_of(Rule::file("a.yaml")), "a.yaml");
  EXPECT_EQ(text_of(Rule::file("a.yaml", 3)), "a.yaml:3");
  EXPECT_EQ(text_of(Rule::file("a.yaml", 3, 5)), "a.yaml:3:5");
  EXPECT_EQ(text_of(Rule::environment("FI_HOOK", 2)), "environment FI_HOOK");
  EXPECT_EQ(text_of(Rule::spelt_in("FI_PROVIDER")), "FI_PROVIDER");
  EXPECT_EQ(text_of(Rule::stack("rdm")), "stack rdm");
  EXPECT_EQ(text_of(Rule::plugin("/lib/tcp.so")), "/lib/tcp.so");
  EXPECT_EQ(text_of(Rule::call("control socket")), "control socket");
}

TEST(Render, ARemedyHasTheNamesThatWouldBeRight) {
  Remedy remedy = "install it; ";
  EXPECT_EQ(text_of(remedy), "install it; ");
  remedy.meant = "tcp";
  EXPECT_EQ(text_of(remedy), "install it; did you mean \"tcp\"?");
  remedy.known = {"tcp", "udp"};
  EXPECT_EQ(text_of(remedy), "install it; did you mean \"tcp\"? known: tcp, udp");
  remedy = {};
  EXPECT_TRUE(remedy.empty());
  remedy.known.emplace();
  EXPECT_EQ(text_of(remedy), "known: none, since no such plugin is installed");
  EXPECT_FALSE(remedy.empty());
}

TEST(Render, ALineHasWhatTheReaderDoesNotKnowYet) {
  Decision decision{.candidate = "tcp",
                    .reason = "tcp is disabled",
                    .remedy = "enable it",
                    .rule = Rule::file("a.yaml", 2, 5)};
  EXPECT_EQ(line_of(decision), "tcp: tcp is disabled: enable it");
  EXPECT_EQ(line_of(decision, {.candidate = false, .rule = true, .remedy = false}),
            "tcp is disabled (a.yaml:2:5)");
  EXPECT_EQ(lost_line(decision, "tcp"), "tcp is disabled (a.yaml:2:5): tcp is left out: enable it");
  decision.reason += " in a.yaml:2:5";
  EXPECT_EQ(line_of(decision, {.rule = true}), "tcp: tcp is disabled in a.yaml:2:5: enable it");
  decision.rule = Rule::environment("FI_PROVIDER");
  EXPECT_EQ(line_of(decision, {.rule = true, .remedy = false}),
            "tcp: tcp is disabled in a.yaml:2:5");
}

TEST(Render, ADiagnosticHasItsPlaceOnce) {
  EXPECT_EQ(line_of({.where = Rule::file("a.yaml", 2, 5), .text = "no"}), "a.yaml:2:5: no");
  EXPECT_EQ(line_of({.where = Rule::file("a.yaml", 2, 5), .text = "no", .tells_line = true}),
            "a.yaml: no");
  EXPECT_EQ(line_of({.where = Rule::environment("FI_X"), .text = "FI_X=1: no"}), "FI_X=1: no");
  EXPECT_EQ(line_of(Diagnostic{.text = "no"}), "no");
}

TEST(Render, AnOverriddenValueHasThePlaceThatCounts) {
  const Rule by = Rule::file("a.yaml", 3, 5);
  std::vector<std::string> told;
  for (const Override how : {Override::kReplaced, Override::kLifted, Override::kShadowed,
                             Override::kFinal, Override::kNotSystem})
    told.push_back(std::string(word_of(how)) + ": " + text_of(how, by));
  EXPECT_THAT(
      told, testing::ElementsAre("replaced: replaced at a.yaml:3:5", "lifted: lifted by a.yaml:3:5",
                                 "shadowed: the later rule at a.yaml:3:5 has the same match",
                                 "final: ignored, since the key is final in a.yaml:3:5",
                                 "not system: ignored, since the key counts only in files of the "
                                 "system"));
}

TEST(DecisionRecord, TextIsATableWithAlignedColumns) {
  DecisionRecord record;
  EXPECT_EQ(record.to_text(), "");
  record.add({.candidate = "tcp", .stage = Stage::kSelected, .accepted = true, .reason = "best"});
  record.add({.candidate = "verbs",
              .stage = Stage::kDevice,
              .reason = "no device",
              .remedy = "load the driver",
              .rule = Rule::file("site.yaml", 3, 1)});
  EXPECT_EQ(record.to_text(),
            "tcp    selected  yes  best\n"
            "verbs  device    no   no device (site.yaml:3:1): load the driver\n");
}

}  // namespace
}  // namespace weft
