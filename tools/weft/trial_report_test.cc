// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/trial_report.h"

#include <gtest/gtest.h>

namespace weft::cli {
namespace {

const std::vector<TestRow> kRows = {
    {"file", "symbols", went_well("exports weft_plugin_query and nothing else")},
    {"provider <frob>", "messages \"go\"", went_wrong("a & b\n\x1b[31m", "see <the log>")},
    {"hooks", "all", not_checked("none is installed")}};

TEST(TestReport, WhatIsNotCheckedIsNeitherGoodNorBad) {
  EXPECT_FALSE(is_good(kRows));
  EXPECT_TRUE(is_good({kRows[0], kRows[2]}));
  const Json json = json_of("frob.so", kRows);
  EXPECT_EQ(json["good"], false);
  EXPECT_EQ(json["passed"], 1);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["not_checked"], 1);
  EXPECT_EQ(json["rows"][2]["result"], "not checked");
}

TEST(TestReport, JUnit) {
  const std::string text = junit_of("fr\"ob.so", kRows);
  for (const char *part :
       {"name=\"fr&quot;ob.so\" tests=\"3\" failures=\"1\" skipped=\"1\"",
        "<testcase classname=\"file\" name=\"symbols\"/>",
        "classname=\"provider &lt;frob&gt;\" name=\"messages &quot;go&quot;\"><failure "
        "message=\"a &amp; b",
        ">see &lt;the log&gt;</failure>", "<skipped message=\"none is installed\"/>"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace weft::cli
