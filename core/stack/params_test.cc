// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace weft {
namespace {

using ::testing::HasSubstr;

struct Case {
  uint32_t type;
  const char *text;
  std::optional<int64_t> number;  // nothing: an error
};

class ParseNumber : public ::testing::TestWithParam<Case> {};

TEST_P(ParseNumber, AsDeclared) {
  const Case &c = GetParam();
  const Result<ParamValue> value = parse_param({c.type, "p", 0, 0}, c.text);
  ASSERT_EQ(value.has_value(), c.number.has_value()) << c.text;
  if (c.number) {
    EXPECT_EQ(value->number, *c.number) << c.text;
  } else {
    EXPECT_THAT(value.error().text, HasSubstr(std::string("\"") + c.text + "\" is not ")) << c.text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ParseNumber,
    ::testing::Values(
        Case{WEFT_TYPE_BOOL, "1", 1}, Case{WEFT_TYPE_BOOL, "YES", 1}, Case{WEFT_TYPE_BOOL, "on", 1},
        Case{WEFT_TYPE_BOOL, "False", 0}, Case{WEFT_TYPE_BOOL, "2", {}},
        Case{WEFT_TYPE_BOOL, "", {}}, Case{WEFT_TYPE_BOOL, "tru", {}},
        Case{WEFT_TYPE_BOOL, " 1", {}}, Case{WEFT_TYPE_INT, "0", 0},
        Case{WEFT_TYPE_INT, "-17", -17}, Case{WEFT_TYPE_INT, "0x1f", 31},
        Case{WEFT_TYPE_INT, "-0x10", -16}, Case{WEFT_TYPE_INT, "9223372036854775807", INT64_MAX},
        Case{WEFT_TYPE_INT, "-9223372036854775808", INT64_MIN},
        Case{WEFT_TYPE_INT, "9223372036854775808", {}}, Case{WEFT_TYPE_INT, "1.5", {}},
        Case{WEFT_TYPE_INT, "5s", {}}, Case{WEFT_TYPE_INT, "--5", {}},
        Case{WEFT_TYPE_INT, "+5", {}}, Case{WEFT_TYPE_INT, "", {}}, Case{WEFT_TYPE_INT, "0x", {}},
        Case{WEFT_TYPE_SIZE, "16K", 16384}, Case{WEFT_TYPE_SIZE, "3m", 3 << 20},
        Case{WEFT_TYPE_SIZE, "2G", int64_t{2} << 30}, Case{WEFT_TYPE_SIZE, "0x10K", 16384},
        Case{WEFT_TYPE_SIZE, "-1", {}}, Case{WEFT_TYPE_SIZE, "16KB", {}},
        Case{WEFT_TYPE_SIZE, "K", {}}, Case{WEFT_TYPE_SIZE, "8589934592G", {}}));

TEST(ParseParam, UnknownTypeIsThePluginsFault) {
  EXPECT_THAT(parse_param({99, "p", 0, 0}, "1").error().text, HasSubstr("fault of the plugin"));
}

TEST(ParseParam, RangeIsInclusive) {
  const ParamType port{WEFT_TYPE_INT, "port", 1, 65535};
  EXPECT_TRUE(parse_param(port, "1").has_value());
  EXPECT_TRUE(parse_param(port, "65535").has_value());
  EXPECT_THAT(parse_param(port, "65536").error().text, HasSubstr("out of range: 1 to 65535"));
  EXPECT_FALSE(parse_param(port, "0").has_value());
}

TEST(ParseParam, ListsHaveEntries) {
  const ParamType list{WEFT_TYPE_LIST, "interfaces", 0, 0};
  EXPECT_EQ(parse_param(list, "hsn*,!docker*")->text, "hsn*,!docker*");
  EXPECT_EQ(parse_param(list, "")->text, "");
  EXPECT_THAT(parse_param(list, "a,,b").error().text, HasSubstr("column 3 is empty"));
  EXPECT_THAT(parse_param(list, "a, b").error().text, HasSubstr("column 3 has blanks"));
  EXPECT_FALSE(parse_param(list, "a,").has_value());
}

TEST(ParseParam, ErrorsShowNoControlBytes) {
  EXPECT_THAT(parse_param({WEFT_TYPE_INT, "p", 0, 0}, "1\x1b[2J").error().text,
              HasSubstr(R"("1\x1b[2J")"));
  EXPECT_FALSE(parse_param({WEFT_TYPE_STRING, "p", 0, 0}, std::string_view("a\0b", 3)).has_value());
}

const weft_param kTimeout = {
    sizeof(weft_param), WEFT_TYPE_INT, "connect_timeout_ms", "5000", "", 1, 100000};
const weft_param kIface = {sizeof(weft_param), WEFT_TYPE_STRING, "iface", nullptr, "", 0, 0};
const weft_param *const kParams[] = {&kTimeout, &kIface};

weft_unit unit_with_params() {
  weft_unit unit{};
  unit.name = "tcp";
  unit.params = kParams;
  unit.param_count = 2;
  return unit;
}

TEST(ResolveParams, TheLastSettingCounts) {
  const weft_unit unit = unit_with_params();
  Result<ParamSet> resolved = resolve_params(
      "tcp", unit,
      {{"connect_timeout_ms", "10", Rule::file("/etc/weft/a.yaml", 2, 3)},
       {"connect_timeout_ms", "20", Rule::environment("FI_TCP_CONNECT_TIMEOUT_MS")}});
  ASSERT_TRUE(resolved.has_value());
  const ParamSet set = std::move(*resolved);  // pointers must survive the move
  ASSERT_EQ(set.count(), 2u);
  EXPECT_EQ(set.values()[0].number, 20);
  EXPECT_EQ(set.values()[0].is_default, 0u);
  EXPECT_STREQ(set.values()[0].origin_core, "environment FI_TCP_CONNECT_TIMEOUT_MS");
  EXPECT_EQ(set.values()[1].is_default, 1u);
  EXPECT_EQ(set.values()[1].string_core, nullptr);
  EXPECT_STREQ(set.values()[1].origin_core, "default");
}

TEST(ResolveParams, DefaultsAreParsedLikeAnyValue) {
  const weft_unit unit = unit_with_params();
  EXPECT_EQ(resolve_params("tcp", unit, {})->values()[0].number, 5000);
  const weft_param broken = {sizeof(weft_param), WEFT_TYPE_INT, "n", "many", "", 0, 0};
  const weft_param *const params[] = {&broken};
  weft_unit bad = unit;
  bad.params = params;
  bad.param_count = 1;
  EXPECT_THAT(resolve_params("tcp", bad, {}).error().text, HasSubstr("fault of the plugin"));
}

TEST(ResolveParams, ErrorsNameUnitPlaceAndRemedy) {
  const weft_unit unit = unit_with_params();
  EXPECT_EQ(
      resolve_params("tcp", unit, {{"connect_timeout_sm", "1", Rule::file("/etc/w.yaml", 2, 3)}})
          .error()
          .text,
      "tcp has no parameter \"connect_timeout_sm\" (/etc/w.yaml:2:3): did you mean "
      "\"connect_timeout_ms\"?");
  EXPECT_EQ(
      resolve_params("tcp", unit, {{"connect_timeout_ms", "soon", Rule::file("/etc/w.yaml", 2, 3)}})
          .error()
          .text,
      "tcp: parameter connect_timeout_ms: \"soon\" is not an integer from 1 to 100000 "
      "(/etc/w.yaml:2:3)");
  // A mistake is reported even if a stronger setting follows.
  EXPECT_FALSE(resolve_params("tcp", unit,
                              {{"connect_timeout_ms", "soon", {}}, {"connect_timeout_ms", "1", {}}})
                   .has_value());
}

}  // namespace
}  // namespace weft
