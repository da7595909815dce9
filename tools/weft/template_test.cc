// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/template.h"

#include <gtest/gtest.h>

namespace weft::cli {
namespace {

TEST(Template, Placeholders) {
  const Words values = {{"name", "frob"}, {"Name", "Frob"}};
  struct Row {
    const char *text, *want;
  };
  const Row rows[] = {{"", ""},
                      {"@name@", "frob"},
                      {"@name@@Name@", "frobFrob"},
                      {"me@example.org", "me@example.org"},
                      {"checkout@v4, artifact@v4", "checkout@v4, artifact@v4"},
                      {"@@name@", "@frob"},
                      {"@name", "@name"}};
  for (const Row &row : rows) EXPECT_EQ(fill(row.text, values).value_or("error"), row.want);
  const Result<std::string> unknown = fill("a @nmae@", values);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().text.find("@nmae@"), std::string::npos);
}

TEST(Template, WordsOfAnExample) {
  const Words words = {{"loop", "a"}, {"loop_", "b"}, {"a", "c"}, {"", "never"}};
  EXPECT_EQ(reword("loop loop_ lo a", words), "a b lo c");
  EXPECT_EQ(reword("", words), "");
}

TEST(Template, NamesOfUnits) {
  for (const char *good : {"f", "frob", "frob-2", "frob_2", "efa2"})
    EXPECT_TRUE(check_unit_name(good)) << good;
  const std::string longest(40, 'x');
  EXPECT_TRUE(check_unit_name(longest));
  for (const std::string &bad :
       {std::string(), longest + "x", std::string("Frob"), std::string("2frob"),
        std::string("-frob"), std::string("frob-"), std::string("fr ob"), std::string("../frob"),
        std::string("fr;ob"), std::string("fr\0ob", 5), std::string("fr\xc3\xb6")})
    EXPECT_FALSE(check_unit_name(bad)) << bad;
  EXPECT_EQ(class_name("frob-2_net"), "Frob2Net");
}

TEST(Template, NamesOfVendors) {
  for (const char *good : {"Frobco", "Frob & Co. (GmbH)", "M\xc3\xbcller"})
    EXPECT_TRUE(check_vendor(good)) << good;
  for (const std::string &bad :
       {std::string(), std::string(61, 'x'), std::string("a\"b"), std::string("a\\"),
        std::string("a;b"), std::string("a\nb"), std::string(" "), std::string("a "),
        std::string("a\xff"), std::string("$(x)"), std::string("a <b@c>")})
    EXPECT_FALSE(check_vendor(bad)) << bad;
}

}  // namespace
}  // namespace weft::cli
