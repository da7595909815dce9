// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/decisions.h"

#include <gmock/gmock.h>

namespace weft::cli {
namespace {

Json decision(const char *candidate, const char *stage, bool accepted, const char *reason) {
  return {{"candidate", candidate}, {"stage", stage}, {"accepted", accepted},
          {"reason", reason},       {"remedy", ""},   {"rule", ""}};
}

TEST(ByCandidateTest, KeepsOrderAndFindsTheVerdict) {
  const std::vector<Candidate> candidates = by_candidate(
      {decision("tcp", "init", true, "loaded"), decision("udp", "policy", false, "disabled"),
       decision("tcp", "hints", false, "one does not fit"),
       decision("tcp", "selected", true, "first"), decision("shm", "init", true, "loaded"),
       decision("shm", "init", false, "a parameter is wrong")});
  ASSERT_EQ(candidates.size(), 3u);
  EXPECT_EQ(candidates[0].name, "tcp");
  EXPECT_EQ(candidates[0].decisions.size(), 3u);
  EXPECT_TRUE(candidates[0].chosen());
  EXPECT_STREQ(candidates[0].verdict(), "selected");
  EXPECT_EQ(candidates[1].last().reason, "disabled");
  EXPECT_STREQ(candidates[1].verdict(), "rejected");
  // Of two decisions at one stage the later counts.
  EXPECT_EQ(candidates[2].last().reason, "a parameter is wrong");
  EXPECT_STREQ(candidates[2].verdict(), "rejected");
}

TEST(OnFirstAnswerTest, IsTheFirstThatWasSelected) {
  const Json decisions = {decision("tcp", "init", true, "loaded"),
                          decision("udp", "selected", false, "never"),
                          decision("tcp((shm+tcp);link)", "selected", true, "place 1"),
                          decision("tcp", "selected", true, "place 6")};
  EXPECT_EQ(on_first_answer(decisions).reason, "place 1");
  EXPECT_EQ(on_first_answer(Json::array()).reason, "");
  EXPECT_EQ(on_first_answer(Json(1)).reason, "");
}

TEST(ByCandidateTest, IgnoresOtherJson) {
  EXPECT_TRUE(by_candidate(Json::object()).empty());
  EXPECT_TRUE(by_candidate(Json::array()).empty());
  const std::vector<Candidate> odd =
      by_candidate({Json(1), {{"candidate", "x"}, {"accepted", "yes"}, {"stage", "tea"}}});
  ASSERT_EQ(odd.size(), 2u);
  EXPECT_FALSE(odd[0].chosen());
  EXPECT_FALSE(odd[1].chosen());
}

}  // namespace
}  // namespace weft::cli
