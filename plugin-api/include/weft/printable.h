// SPDX-License-Identifier: BSD-2-Clause
// printable: text of a file, a peer or another process, as it may reach a terminal or a log.
//
// Example:
//    #include <cstdio>
//    void tell(const std::string &program) {
//      std::printf("process of %s\n", weft::printable(program).c_str());
//    }
//
// A terminal obeys control characters: they move the cursor, change the title, or type for the
// user. Here each byte of one becomes four characters, \x1b, and so does each byte that is not
// UTF-8. What is left of a text is the same however often it is made printable. Not for JSON, which
// has its own escapes, nor for a program that needs the bytes.
#ifndef WEFT_PRINTABLE_H
#define WEFT_PRINTABLE_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

namespace internal {

// How many bytes the character at the beginning has; 0: they are no UTF-8, or control a terminal
// (C0, DEL, C1).
inline size_t printable_length(std::string_view text) {
  const auto byte = [&](size_t at) { return uint8_t(text[at]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return lead < 0x20 || lead == 0x7f ? 0 : 1;
  const size_t length = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t at = 1; at < length; ++at)
    if ((byte(at) & 0xc0) != 0x80) return 0;
  const uint8_t second = byte(1);
  const bool is_c1 = lead == 0xc2 && second < 0xa0;
  const bool is_overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool is_surrogate = lead == 0xed && second >= 0xa0;
  const bool is_too_large = lead == 0xf4 && second >= 0x90;
  return is_c1 || is_overlong || is_surrogate || is_too_large ? 0 : length;
}

inline std::string printable(std::string_view text, bool lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const char c = text[0];
    size_t length = printable_length(text);
    if (length != 0) {
      out.append(text.substr(0, length));
    } else if (c == '\n' || c == '\t') {
      out += lines ? c : ' ';
    } else {
      constexpr char kDigits[] = "0123456789abcdef";
      out.append("\\x") += kDigits[uint8_t(c) >> 4];
      out += kDigits[uint8_t(c) & 15];
    }
    text.remove_prefix(length != 0 ? length : 1);
  }
  return out;
}

}  // namespace internal

// One line: a newline and a tab become a blank.
inline std::string printable(std::string_view text) {
  return internal::printable(text, false);
}

// For text of several lines: newlines and tabs stay.
inline std::string printable_lines(std::string_view text) {
  return internal::printable(text, true);
}

}  // namespace weft

#endif
