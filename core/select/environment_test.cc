// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Within brackets: "(shm@2+tcp@6) link@11".
std::string shown(const FilterItem &item) {
  std::string out;
  for (const FilterItem &branch : item.branches) {
    out += (out.empty() ? "(" : "+") + shown(branch);
  }
  if (!out.empty()) out += ")";
  for (const Word &word : item.units)
    out += (out.empty() ? "" : " ") + word.text + "@" + std::to_string(word.column);
  return out;
}

// A parsed filter as text, such as "tcp;ofi_rxm,udp"; an error as its text.
std::string shown(std::string_view text) {
  const Result<ProviderFilter> filter = parse_provider_filter(text);
  if (!filter) return filter.error().text;
  std::string out = filter->exclude ? "not" : "only";
  for (const FilterItem &item : filter->items) out += " [" + shown(item) + "]";
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

TEST(ProviderFilter, StacksWithBranches) {
  EXPECT_EQ(shown("(shm+tcp);link"), "only [(shm@2+tcp@6) link@11]");
  EXPECT_EQ(shown("^udp,(shm+tcp;ofi_rxm);link;coll"),
            "not [udp@2] [(shm@7+tcp@11 ofi_rxm@15) link@24 coll@29]");
  EXPECT_EQ(shown("((a+b);c+d);e"), "only [((a@3+b@5) c@8+d@10) e@13]");
  for (const char *text : {"(shm+tcp);link", "((a+b);c+d;e);f;g"})
    EXPECT_EQ(text_of(parse_provider_filter(text)->items[0]), text);

  const std::pair<const char *, const char *> wrong[] = {
      {"(shm+tcp)", "column 10: ';' and the layer that stands over the branches are missing"},
      {"(shm+tcp),udp", "column 10: ';' and the layer that stands over the branches are missing"},
      {"(shm+tcp)link", "column 10: ';' and the layer that stands over the branches are missing"},
      {"(shm+tcp);", "column 11: a layer is missing"},
      {"(shm+tcp;link", "column 14: the ')' of column 1 is missing"},
      {"(", "column 2: a name is missing"},
      {"()", "column 2: a name is missing"},
      {"(+tcp);link", "column 2: a name is missing"},
      {"(shm+);link", "column 6: a name is missing"},
      {"(shm;+tcp);link", "column 6: a name is missing"},
      {"(shm);link",
       "column 1: brackets stand around several branches, with '+' between them: write one "
       "without"},
      {"(shm,tcp);link", "column 5: ',' within brackets: branches have '+' between them"},
      {"udp,)", "column 5: ')' without '('"},
      {"udp,shm)", "column 8: ')' without '('"},
      {"shm+tcp", "column 4: '+' stands only within brackets: (shm+tcp);link"},
      {"link;(shm+tcp)", "column 6: '(' stands only at the beginning of a stack or a branch"},
      {"(shm+tcp(a+b));link", "column 9: '(' stands only at the beginning of a stack or a branch"},
      {"(shm+^tcp);link", "column 6: '^' stands only at the very beginning, for the whole list"},
      {"\"(shm+tcp);link\"", "column 1: '\"' is in no name: names have letters, digits, - and _"},
      {"(shm+ tcp);link", "column 6: a blank: remove it"}};
  for (const auto &[text, error] : wrong) EXPECT_EQ(shown(text), error) << text;
  EXPECT_EQ(parse_hooks("trace+profile").error().text,
            "column 6: '+' is in no name: names have letters, digits, - and _");
}

TEST(ProviderFilter, BracketsWithinBracketsHaveALimit) {
  const auto nested = [](size_t depth) {
    std::string text = "a";
    for (size_t i = 0; i < depth; ++i) text = "(" + text + "+b);c";
    return text;
  };
  EXPECT_TRUE(parse_provider_filter(nested(16)).has_value());
  EXPECT_EQ(shown(nested(17)), "column 17: more than 16 brackets within each other");
  EXPECT_EQ(shown(std::string(1 << 20, '(')), "column 17: more than 16 brackets within each other");
  std::string wide = "(a";
  for (int i = 0; i < 100000; ++i) wide += "+b";
  EXPECT_EQ(parse_provider_filter(wide + ");c")->items[0].branches.size(), 100001u);
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
