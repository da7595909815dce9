// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/text.h"

#include <gmock/gmock.h>

namespace weft::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NearestWordTest, FindsTypingErrors) {
  const std::vector<std::string> known = {"info", "why", "explain", "plugin", "doctor"};
  EXPECT_EQ(nearest_word("wyh", known), "why");
  EXPECT_EQ(nearest_word("Docter", known), "doctor");
  EXPECT_EQ(nearest_word("plugins", known), "plugin");
  EXPECT_EQ(nearest_word("banana", known), "");
  EXPECT_EQ(nearest_word("", known), "");
  EXPECT_EQ(nearest_word(std::string(100000, 'x'), known), "");
}

TEST(WrappedTest, BreaksAtBlanks) {
  EXPECT_THAT(wrapped("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(wrapped("one two three", 0), ElementsAre("one two three"));
  EXPECT_THAT(wrapped("incomprehensible it is", 5), ElementsAre("incomprehensible", "it is"));
  EXPECT_THAT(wrapped("", 5), ElementsAre(""));
  // A letter of two bytes takes one place.
  EXPECT_THAT(wrapped("\xc3\xa4\xc3\xb6\xc3\xbc x", 5), ElementsAre("\xc3\xa4\xc3\xb6\xc3\xbc x"));
}

TEST(JsonTest, ReturnsMembersThatAreThere) {
  const Json json = Json::parse(R"({"a": "x", "n": 3, "l": ["p", 1, "q"], "o": {}, "z": null})");
  EXPECT_EQ(text_of(json, "a"), "x");
  EXPECT_EQ(text_of(json, "n"), "3");
  EXPECT_EQ(text_of(json, "o"), "");
  EXPECT_EQ(text_of(json, "z"), "");
  EXPECT_EQ(text_of(json, "missing"), "");
  EXPECT_EQ(text_of(Json::parse("[1]"), "a"), "");
  EXPECT_THAT(texts_of(json, "l"), ElementsAre("p", "q"));
  EXPECT_THAT(texts_of(json, "a"), IsEmpty());
}

TEST(TableTest, AlignsAndKeepsControlCharactersOut) {
  Table table({"NAME", "TEXT"});
  table.add({"tcp", "a\033[2Jb"});
  table.add({"a-long-name"});
  table.note("remedy: none");
  testing::internal::CaptureStdout();
  table.print();
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "NAME         TEXT\n"
            "tcp          a\\x1b[2Jb\n"
            "a-long-name\n"
            "    remedy: none\n");
}

TEST(Json, OutputHasNoCharacterThatControlsATerminal) {
  testing::internal::CaptureStdout();
  print_json({{"program", "\033\x7f\u009b µ"}});
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "{\n  \"program\": \"\\u001b\\u007f\\u009b \\u00b5\"\n}\n");
  EXPECT_EQ(emphasized("\033[2J", Emphasis::kBad), "\\x1b[2J");  // stdout is no terminal here
}

}  // namespace
}  // namespace weft::cli
