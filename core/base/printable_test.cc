// SPDX-License-Identifier: BSD-2-Clause
#include <gtest/gtest.h>
#include <weft/printable.h>

namespace weft {
namespace {

TEST(Printable, QuotesWhatControlsATerminal) {
  using namespace std::string_literals;
  const std::pair<std::string, std::string> kTexts[] = {
      {"", ""},
      {"rxm over tcp, 5 µs, 中 😀 ~", "rxm over tcp, 5 µs, 中 😀 ~"},
      {"\x1b]0;title\x07", R"(\x1b]0;title\x07)"},
      {"a\0b\r\x7f"s, R"(a\x00b\x0d\x7f)"},
      {"a\nb\tc", "a b c"},
      {"\xc2\x9b[2J", R"(\xc2\x9b[2J)"},  // CSI, as one character
      {"\x9b[2J", R"(\x9b[2J)"},          // and as one byte
      {"\xc2\xa0", "\xc2\xa0"},
      {"\xc0\x9b", R"(\xc0\x9b)"},  // longer than it may be
      {"\xe0\x80\x9b", R"(\xe0\x80\x9b)"},
      {"\xf0\x80\x80\x9b", R"(\xf0\x80\x80\x9b)"},
      {"\xed\xa0\x80", R"(\xed\xa0\x80)"},          // half of a pair of UTF-16
      {"\xf4\x90\x80\x80", R"(\xf4\x90\x80\x80)"},  // beyond Unicode
      {"\xf5\x80\x80\x80", R"(\xf5\x80\x80\x80)"},
      {"\xe4\xb8", R"(\xe4\xb8)"},  // cut
      {"\xe4\xb8!", R"(\xe4\xb8!)"}};
  for (const auto &[text, shown] : kTexts) {
    EXPECT_EQ(printable(text), shown);
    EXPECT_EQ(printable(shown), shown) << "printable twice";
  }
}

TEST(Printable, LinesStay) {
  EXPECT_EQ(printable_lines("a\n\tb\r\n\x1b"), "a\n\tb\\x0d\n\\x1b");
}

}  // namespace
}  // namespace weft
