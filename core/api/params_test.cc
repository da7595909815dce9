// SPDX-License-Identifier: BSD-2-Clause
#include "core/api/params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <climits>
#include <cstdlib>
#include <string>
#include <vector>

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Parse, Bool) {
  for (const char *text : {"1", "yes", "TRUE", "On"}) EXPECT_TRUE(parse_bool(text).value()) << text;
  for (const char *text : {"0", "no", "False", "off"})
    EXPECT_FALSE(parse_bool(text).value()) << text;
  for (const char *text : {"", "2", "y", "true ", "ja"})
    EXPECT_FALSE(parse_bool(text).has_value()) << text;
}

TEST(Parse, Int) {
  EXPECT_EQ(parse_int("42").value(), 42);
  EXPECT_EQ(parse_int("-1").value(), -1);
  EXPECT_EQ(parse_int("0x10").value(), 16);
  EXPECT_EQ(parse_int("2147483647").value(), INT_MAX);
  EXPECT_EQ(parse_int("-2147483648").value(), INT_MIN);
  for (const char *text :
       {"", "-", "0x", "1.5", "12abc", " 1", "1 ", "--1", "+1", "2147483648", "-2147483649"}) {
    EXPECT_FALSE(parse_int(text).has_value()) << text;
  }
}

TEST(Parse, Size) {
  EXPECT_EQ(parse_size("4096").value(), 4096u);
  EXPECT_EQ(parse_size("16K").value(), 16384u);
  EXPECT_EQ(parse_size("2m").value(), 2u << 20);
  EXPECT_EQ(parse_size("1G").value(), 1u << 30);
  EXPECT_EQ(parse_size("0x1000").value(), 4096u);
  EXPECT_EQ(parse_size("-1").value(), SIZE_MAX);
  EXPECT_EQ(parse_size("18446744073709551615").value(), SIZE_MAX);
  for (const char *text :
       {"", "K", "-2", "1KB", "0x10K", "18446744073709551616", "18446744073709551615K", "4 K"}) {
    EXPECT_FALSE(parse_size(text).has_value()) << text;
  }
}

TEST(VariableName, FollowsTheRule) {
  EXPECT_EQ(variable_name("tcp", "iface"), "FI_TCP_IFACE");
  EXPECT_EQ(variable_name("ofi_rxm", "eager-size"), "FI_OFI_RXM_EAGER_SIZE");
  EXPECT_EQ(variable_name("core", "hook"), "FI_HOOK");
  EXPECT_EQ(variable_name("", "hook"), "FI_HOOK");
}

class Params : public testing::Test {
 protected:
  Environment environment{{{"FI_ACME_SIZE", "8K"},
                           {"FI_ACME_COUNT", "-3"},
                           {"FI_ACME_FAST", "yes"},
                           {"FI_ACME_NAME", "eth*"},
                           {"FI_ACME_BAD", "12monkeys"}},
                          "",
                          false};
  std::vector<std::string> notices;
  ParamTable table{environment, [this](std::string_view line) { notices.emplace_back(line); }};
};

TEST_F(Params, GetsDefinedValues) {
  ASSERT_EQ(table.define("acme", "size", FI_PARAM_SIZE_T, "bytes"), 0);
  ASSERT_EQ(table.define("acme", "count", FI_PARAM_INT, "how many"), 0);
  ASSERT_EQ(table.define("acme", "fast", FI_PARAM_BOOL, "hurry"), 0);
  ASSERT_EQ(table.define("acme", "name", FI_PARAM_STRING, "which"), 0);
  ASSERT_EQ(table.define("acme", "unset", FI_PARAM_INT, "nothing"), 0);
  size_t size = 0;
  int count = 0, fast = 0, unset = 17;
  char *name = nullptr;
  EXPECT_EQ(table.get("acme", "size", &size), 0);
  EXPECT_EQ(size, 8192u);
  EXPECT_EQ(table.get("acme", "count", &count), 0);
  EXPECT_EQ(count, -3);
  EXPECT_EQ(table.get("acme", "fast", &fast), 0);
  EXPECT_EQ(fast, 1);
  EXPECT_EQ(table.get("acme", "name", &name), 0);
  EXPECT_STREQ(name, "eth*");
  EXPECT_EQ(table.get("acme", "unset", &unset), -FI_ENODATA);
  EXPECT_EQ(table.get("acme", "never", &unset), -FI_ENOENT);
  EXPECT_EQ(unset, 17);
  EXPECT_EQ(table.get("acme", nullptr, &unset), -FI_EINVAL);
  EXPECT_EQ(table.get("acme", "unset", nullptr), -FI_EINVAL);
  EXPECT_THAT(notices, IsEmpty());
}

TEST_F(Params, MalformedValuesAreRefusedWithAReason) {
  for (const auto type : {FI_PARAM_INT, FI_PARAM_BOOL, FI_PARAM_SIZE_T}) {
    ParamTable fresh(environment, [this](std::string_view line) { notices.emplace_back(line); });
    ASSERT_EQ(fresh.define("acme", "bad", type, "x"), 0);
    size_t value = 77;
    EXPECT_EQ(fresh.get("acme", "bad", &value), -FI_EINVAL);
    EXPECT_EQ(value, 77u);
  }
  EXPECT_THAT(notices, ElementsAre(HasSubstr("FI_ACME_BAD=12monkeys: expected an integer"),
                                   HasSubstr("expected 0/1"), HasSubstr("expected a size")));
}

TEST_F(Params, DefinitionsAreChecked) {
  EXPECT_EQ(table.define("acme", nullptr, FI_PARAM_INT, "x"), -FI_EINVAL);
  EXPECT_EQ(table.define("acme", "", FI_PARAM_INT, "x"), -FI_EINVAL);
  EXPECT_EQ(table.define("acme", "a", FI_PARAM_INT, ""), -FI_EINVAL);
  EXPECT_EQ(table.define("acme", "a", static_cast<fi_param_type>(9), "x"), -FI_EINVAL);
  EXPECT_EQ(table.define("acme", "a", FI_PARAM_INT, "x"), 0);
  EXPECT_EQ(table.define("acme", "A", FI_PARAM_INT, "x"), 0);
  EXPECT_EQ(table.define("acme", "a", FI_PARAM_BOOL, "x"), -FI_EINVAL);
  EXPECT_EQ(table.lines().size(), 1u);
}

TEST_F(Params, ArrayIsOneBlockWithAnEndMark) {
  table.define("acme", "name", FI_PARAM_STRING, "which");
  table.define("acme", "unset", FI_PARAM_INT, "nothing");
  fi_param *params = make_param_array(table.lines());
  ASSERT_NE(params, nullptr);
  EXPECT_STREQ(params[0].name, "FI_ACME_NAME");
  EXPECT_EQ(params[0].type, FI_PARAM_STRING);
  EXPECT_STREQ(params[0].help_string, "which");
  EXPECT_STREQ(params[0].value, "eth*");
  EXPECT_STREQ(params[1].name, "FI_ACME_UNSET");
  EXPECT_EQ(params[1].value, nullptr);
  EXPECT_EQ(params[2].name, nullptr);
  std::free(params);
}

}  // namespace
}  // namespace weft
