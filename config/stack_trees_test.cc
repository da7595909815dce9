// SPDX-License-Identifier: BSD-2-Clause
// Stacks with branches in weft.yaml.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/policy.h"
#include "config/test_reader.h"

namespace weft::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// "link(shm | rxm tcp)"
std::string shape(const std::vector<StackElement> &elements) {
  std::string out;
  for (const StackElement &element : elements) {
    out += (out.empty() ? "" : " ") + element.name;
    if (element.branches.empty()) continue;
    std::string inner;
    for (const auto &branch : element.branches)
      inner += (inner.empty() ? "" : " | ") + shape(branch);
    out += "(" + inner + ")";
  }
  return out;
}

TEST(StackTrees, AreReadInFlowAndInBlocks) {
  const auto flow = good_policy(
      "stacks: {fast: [{hook: trace}, {layer: link, over: [[{provider: shm}], [{layer: rxm}, "
      "{provider: tcp}]]}]}\n");
  EXPECT_EQ(shape(flow->stacks[0].elements), "trace link(shm | rxm tcp)");
  const auto block = good_policy(R"(stacks:
  fast:
    - over:
        - - provider: shm
            params: {size: 1M}
        - - hook: trace
          - layer: rxm
            on_unavailable: skip
          - provider: tcp
            on_unavailable: skip
      layer: link
      params: {policy: first}
)");
  const StackElement &link = block->stacks[0].elements.at(0);
  EXPECT_EQ(shape(block->stacks[0].elements), "link(shm | trace rxm tcp)");
  EXPECT_EQ(link.kind, uint32_t{WEFT_KIND_LAYER});
  EXPECT_EQ(link.params.at(0).value, "first");
  const StackElement &shm = link.branches[0][0];
  EXPECT_EQ(shm.params.at(0).value, "1M");
  EXPECT_EQ(shm.where, Rule::file(shm.where.name, 5, 13));
  EXPECT_TRUE(link.branches[1][1].skip_if_unavailable);
  EXPECT_TRUE(link.branches[1][2].skip_if_unavailable) << "the branch can be left out";
}

TEST(StackTrees, MayBeDeepAndNameAUnitInSeveralBranches) {
  EXPECT_EQ(shape(good_policy("stacks: {a: [{layer: coll, over: [[{layer: link, over: "
                              "[[{provider: shm}], [{layer: rxm}, {provider: tcp}]]}], "
                              "[{layer: rxm}, {provider: verbs}]]}]}\n")
                      ->stacks[0]
                      .elements),
            "coll(link(shm | rxm tcp) | rxm verbs)");
  EXPECT_EQ(shape(good_policy("stacks: {a: [{layer: link, over: [[{provider: tcp, params: "
                              "{interfaces: eth0}}], [{provider: tcp, params: {interfaces: "
                              "eth1}}]]}]}\n")
                      ->stacks[0]
                      .elements),
            "link(tcp | tcp)");
  EXPECT_EQ(shape(good_policy("stacks: {a: [{layer: link, over: [[{provider: tcp}]]}]}\n")
                      ->stacks[0]
                      .elements),
            "link(tcp)");
}

std::vector<std::string> errors_of(const std::string &elements) {
  return body_errors("stacks:\n  a: [" + elements + "]\n");
}

TEST(StackTrees, OnlyALayerHasBranches) {
  EXPECT_THAT(errors_of("{provider: tcp, over: [[{provider: shm}]]}"),
              ElementsAre("3:29 provider 'tcp' has branches, but only a layer stands over several "
                          "providers: remove 'over', or write over: [[{provider: shm}], [{layer: "
                          "rxm}, {provider: tcp}]] beside 'layer'"));
  EXPECT_THAT(errors_of("{over: [[{provider: shm}]], hook: trace}, {provider: tcp}"),
              ElementsAre(HasSubstr("3:14 hook 'trace' has branches, but only a layer")));
  EXPECT_THAT(errors_of("{over: [[{provider: shm}]]}"),
              ElementsAre(HasSubstr("3:7 an element without a unit")));
}

TEST(StackTrees, EachBranchStandsInBracketsOfItsOwn) {
  EXPECT_THAT(errors_of("{layer: link, over: {provider: shm}}"),
              ElementsAre(HasSubstr("3:27 'over' must be a list, not a map: write over: [[")));
  EXPECT_THAT(errors_of("{layer: link, over: [{provider: shm}, {provider: tcp}]}"),
              ElementsAre("3:28 branch 1 of 'link' must be a list, not a map: write [{provider: "
                          "shm}], in brackets of its own",
                          "3:45 branch 2 of 'link' must be a list, not a map: write [{provider: "
                          "shm}], in brackets of its own"));
  EXPECT_THAT(errors_of("{layer: link, over: []}"),
              ElementsAre(HasSubstr("3:27 'over' is empty: list from 1 to 16 branches")));
  EXPECT_THAT(errors_of("{layer: link, over: [[{provider: shm}], []]}"),
              ElementsAre(HasSubstr("3:47 branch 2 of 'link' is empty: list its elements")));
  std::string many;
  for (int i = 0; i < 17; ++i)
    many += "[{provider: tcp, params: {port: " + std::to_string(i) + "}}], ";
  EXPECT_THAT(errors_of("{layer: link, over: [" + many + "]}"),
              ElementsAre(HasSubstr("3:27 'over' has 17 branches: list from 1 to 16")));
}

TEST(StackTrees, EachBranchEndsWithItsProvider) {
  EXPECT_THAT(errors_of("{layer: link, over: [[{provider: shm}], [{layer: rxm}]]}"),
              ElementsAre("3:47 branch 2 of 'link' has no provider: end it with {provider: NAME}, "
                          "which moves the bytes"));
  EXPECT_THAT(
      errors_of("{layer: link, over: [[{provider: shm}, {layer: rxm}], [{provider: tcp}]]}"),
      ElementsAre(HasSubstr("3:46 layer 'rxm' stands below the provider 'shm'")));
}

TEST(StackTrees, NothingStandsBelowTheBranches) {
  EXPECT_THAT(
      errors_of("{layer: link, over: [[{provider: shm}], [{provider: tcp}]]}, {layer: rxm}, "
                "{provider: tcp}"),
      ElementsAre("3:68 layer 'rxm' stands below the branches of layer 'link': move it into a "
                  "branch, or above 'link'",
                  "3:82 provider 'tcp' stands below the branches of layer 'link': move it into a "
                  "branch, or above 'link'"));
  EXPECT_THAT(
      errors_of("{provider: tcp}, {layer: link, over: [[{provider: shm}], [{provider: tcp}]]}"),
      ElementsAre(HasSubstr("3:24 layer 'link' stands below the provider 'tcp'")));
}

TEST(StackTrees, ALayerOverBranchesCannotBeSkipped) {
  EXPECT_THAT(errors_of("{layer: link, on_unavailable: skip, over: [[{provider: shm}], [{provider: "
                        "tcp}]]}"),
              ElementsAre("3:7 layer 'link' cannot be skipped: nothing would join its branches: "
                          "remove 'on_unavailable: skip'"));
}

TEST(StackTrees, NothingStandsTwice) {
  EXPECT_THAT(errors_of("{layer: link, over: [[{layer: rxm}, {provider: tcp}], [{layer: rxm}, "
                        "{provider: tcp}]]}"),
              ElementsAre("3:61 branch 2 of 'link' is the same as branch 1: remove one, or give "
                          "them different 'params'"));
  EXPECT_THAT(errors_of("{layer: link, over: [[{layer: rxm}, {layer: rxm}, {provider: tcp}], "
                        "[{provider: tcp}]]}"),
              ElementsAre(HasSubstr("3:43 'rxm' stands twice in a row")));
  EXPECT_THAT(
      errors_of("{layer: link, over: [[{provider: shm}], [{layer: rxm}, {layer: link, over: "
                "[[{provider: tcp}], [{provider: udp}]]}]]}"),
      ElementsAre("3:62 layer 'link' stands beneath itself: remove one: a layer stands once on the "
                  "way down to each provider"));
}

TEST(StackTrees, EveryMistakeIsTold) {
  EXPECT_THAT(
      errors_of("{layer: link, over: [[{provdier: shm}], [{layer: rxm}], [{provider: tcp, params: "
                "[x]}]]}, {hook: trace}"),
      ElementsAre(HasSubstr("3:29 an element without a unit"), HasSubstr("3:30 unknown key"),
                  HasSubstr("3:47 branch 2 of 'link' has no provider"),
                  HasSubstr("3:88 'params' must be a map")));
}

TEST(StackTrees, AreAsDeepAsAFileMayBe) {
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += "{layer: l" + std::to_string(i) + ", over: [[";
  EXPECT_THAT(errors_of(deep), testing::Not(IsEmpty())) << "an error, and no crash";
}

}  // namespace
}  // namespace weft::config
