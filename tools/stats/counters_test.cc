// SPDX-License-Identifier: BSD-2-Clause
#include "tools/stats/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/stats/output.h"

namespace weft::stats {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using AnswerJson = nlohmann::ordered_json;

AnswerJson answer(uint64_t lost) {
  return AnswerJson::parse(R"([
    {"id": 4, "element": "rxm", "hook": "", "stack": "tcp;ofi_rxm", "name": "10.0.0.0/8",
     "counters": [{"name": "connections_lost", "what": "connections that ended", "value": )" +
                           std::to_string(lost) + R"(},
                  {"name": "messages_saved", "what": "", "value": 0}]},
    {"id": 3, "element": "tcp", "hook": "fault", "stack": "tcp;ofi_rxm", "name": "",
     "counters": [{"name": "rule 1: send:nth=2:kill", "what": "calls", "value": 1}]}])");
}

TEST(Counted, AreThoseOfTheAnswer) {
  const std::vector<Counted> all = counted_of(7, "app", answer(5));
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_EQ(all[0].pid, 7u);
  EXPECT_EQ(all[0].program, "app");
  EXPECT_EQ(all[0].fabric, 4u);
  EXPECT_EQ(all[0].fabric_name, "10.0.0.0/8");
  EXPECT_EQ(all[0].stack, "tcp;ofi_rxm");
  EXPECT_EQ(all[0].element, "rxm");
  EXPECT_EQ(all[0].name, "connections_lost");
  EXPECT_EQ(all[0].what, "connections that ended");
  EXPECT_EQ(all[0].value, 5u);
  EXPECT_EQ(all[2].hook, "fault");
  const AnswerJson json = to_json(all);
  ASSERT_THAT(json, SizeIs(2));
  EXPECT_EQ(json[0]["element"], "rxm");
  EXPECT_THAT(json[0]["counters"], SizeIs(2));
  EXPECT_EQ(json[1]["hook"], "fault");
}

TEST(Counted, OfAWrongAnswerAreLeftOutOrCleaned) {
  for (const char *wrong : {"7", "{}", "[7, [], {}]", R"([{"counters": 7}])",
                            R"([{"counters": [7, {}, {"name": 7}, {"value": 7}]}])"})
    EXPECT_THAT(counted_of(1, "app", AnswerJson::parse(wrong)), IsEmpty()) << wrong;
  const auto odd = counted_of(
      1, "a\x1b[2J", AnswerJson::parse(R"([{"id": -1, "counters": [{"name": "\u001b[31m\n"}]}])"));
  ASSERT_THAT(odd, SizeIs(1));
  EXPECT_EQ(odd[0].program, "a\\x1b[2J");
  EXPECT_EQ(odd[0].name, "\\x1b[31m ") << "no escape sequence comes to the terminal";
  EXPECT_EQ(odd[0].fabric, 0u);
  EXPECT_EQ(odd[0].value, 0u);
}

TEST(Counted, OfAnIntervalAreDifferences) {
  const auto before = counted_of(7, "app", answer(5)), now = counted_of(7, "app", answer(9));
  EXPECT_EQ(since(now, before)[0].value, 4u);
  EXPECT_EQ(since(now, {})[0].value, 9u);
  EXPECT_EQ(since(before, now)[0].value, 5u) << "it is another process: it began at 0";
  EXPECT_EQ(since(counted_of(8, "app", answer(9)), before)[0].value, 9u);
}

TEST(Counted, AreAFamilyEachForPrometheus) {
  auto all = counted_of(7, "app", answer(5));
  const auto again = counted_of(8, "app", answer(6));
  all.insert(all.end(), again.begin(), again.end());
  all.push_back(again[0]);  // the same once more, as a wrong plugin might tell it
  const std::string text = prometheus({}, all);
  const std::string labels = R"(program="app",stack="tcp;ofi_rxm",element="rxm",fabric="4"})";
  EXPECT_THAT(text, HasSubstr("# HELP weft_rxm_connections_lost_total connections that ended\n"
                              "# TYPE weft_rxm_connections_lost_total counter\n"
                              "weft_rxm_connections_lost_total{pid=\"7\"," +
                              labels + " 5\nweft_rxm_connections_lost_total{pid=\"8\"," + labels +
                              " 6\n# HELP"));
  EXPECT_THAT(text, HasSubstr("# HELP weft_rxm_messages_saved_total messages_saved\n"));
  EXPECT_THAT(text, HasSubstr("weft_fault_rule_1__send_nth_2_kill_total{pid=\"7\""));
  EXPECT_THAT(text, HasSubstr(R"(counter="rule 1: send:nth=2:kill"})"));
}

}  // namespace
}  // namespace weft::stats
