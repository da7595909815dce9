// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A parsed filter as text, such as "tcp;ofi_rxm,udp"; an error as its text.
std::string shown(std::string_view text) {
  const Result<ProviderFilter> filter = parse_provider_filter(text);
  if (!filter) return filter.error().text;
  std::string out = filter->exclude ? "not" : "only";
  for (const FilterItem &item : filter->items) {
    out += " [";
    for (const Word &word : item.units) out += word.text + "@" + std::to_string(word.column) + " ";
    out.back() = ']';
  }
  return out;
}

TEST(ProviderFilter, Grammar) {
  EXPECT_EQ(shown("tcp"), "only [tcp@1]");
  EXPECT_EQ(shown("tcp,udp"), "only [tcp@1] [udp@5]");
  EXPECT_EQ(shown("^tcp,udp"), "not [tcp@2] [udp@6]");
  EXPECT_EQ(shown("tcp;ofi_rxm,udp"), "only [tcp@1 ofi_rxm@5] [udp@13]");
  EXPECT_EQ(shown("^"), "not");
  EXPECT_EQ(shown("TCP"), "only [TCP@1]");
}

TEST(ProviderFilter, ErrorsShowTheColumn) {
  EXPECT_EQ(shown(""), "column 1: a name is missing");
  EXPECT_EQ(shown(" tcp"), "column 1: a blank: remove it");
  EXPECT_EQ(shown("tcp, udp"), "column 5: a blank: remove it");
  EXPECT_EQ(shown("tcp "), "column 4: a blank: remove it");
  EXPECT_EQ(shown("tcp,,udp"), "column 5: a name is missing");
  EXPECT_EQ(shown("tcp,"), "column 5: a name is missing");
  EXPECT_EQ(shown(",tcp"), "column 1: a name is missing");
  EXPECT_EQ(shown("tcp;"), "column 5: a name is missing");
  EXPECT_EQ(shown("tcp,^udp"),
            "column 5: '^' stands only at the very beginning, for the whole list");
  EXPECT_EQ(shown("^^tcp"), "column 2: '^' stands only at the very beginning, for the whole list");
  EXPECT_EQ(shown("tcp:udp"), "column 4: ':' is in no name: names have letters, digits, - and _");
  EXPECT_EQ(shown("tc\xc3\xa9"),
            "column 3: the byte 0xc3 is in no name: names have letters, digits, - and _");
  EXPECT_EQ(shown(std::string_view("tcp\0", 4)),
            "column 4: the byte 0x00 is in no name: names have letters, digits, - and _");
}

TEST(ProviderFilter, HasNoFormForBranches) {
  for (const char *text : {"tcp,(shm+tcp);link", "udp;+tcp", "udp,)"}) {
    EXPECT_THAT(shown(text), testing::StartsWith("column 5: '")) << text;
    EXPECT_THAT(shown(text), testing::HasSubstr("' is of a stack with branches")) << text;
    EXPECT_THAT(shown(text), testing::EndsWith("in weft.yaml and give its label")) << text;
  }
  EXPECT_EQ(parse_hooks("trace+profile").error().text,
            "column 6: '+' is in no name: names have letters, digits, - and _");
}

TEST(Hooks, AreSeparatedBySemicolons) {
  const Result<std::vector<Word>> hooks = parse_hooks("trace;profile");
  ASSERT_TRUE(hooks.has_value());
  ASSERT_EQ(hooks->size(), 2u);
  EXPECT_EQ((*hooks)[0].text, "trace");
  EXPECT_EQ((*hooks)[1].column, 7u);
  EXPECT_EQ(parse_hooks("trace,profile").error().text,
            "column 6: ',' is in no name: names have letters, digits, - and _");
  EXPECT_EQ(parse_hooks("trace;;profile").error().text, "column 7: a name is missing");
}

TEST(ProviderPath, FoldersInOrder) {
  EXPECT_THAT(*parse_provider_path("/opt/a:/opt/b"), ElementsAre("/opt/a", "/opt/b"));
  EXPECT_THAT(*parse_provider_path("@/opt/a:/opt/b"), ElementsAre("/opt/a", "/opt/b"));
  EXPECT_THAT(*parse_provider_path(""), IsEmpty());
  EXPECT_THAT(*parse_provider_path("@"), IsEmpty());
  EXPECT_THAT(*parse_provider_path("/opt/a:+/opt/vendor/libfoo.so:/opt/b"),
              ElementsAre("/opt/vendor", "/opt/a", "/opt/b"));
  EXPECT_THAT(*parse_provider_path("@+/libfoo.so"), ElementsAre("/"));
  EXPECT_EQ(parse_provider_path("/opt/a::/opt/b").error().text, "column 8: a folder is missing");
  EXPECT_EQ(parse_provider_path("/opt/a:").error().text, "column 8: a folder is missing");
  EXPECT_EQ(parse_provider_path(":/opt/a").error().text, "column 1: a folder is missing");
  EXPECT_EQ(parse_provider_path("+").error().text, "column 1: a file is missing after '+'");
  EXPECT_EQ(parse_provider_path("+foo.so").error().text,
            "column 2: '+' is followed by the full path of a library");
}

}  // namespace
}  // namespace weft
