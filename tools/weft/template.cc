// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/template.h"

#include <absl/strings/ascii.h>
#include <weft/printable.h>

#include <algorithm>

namespace weft::cli {
namespace {

bool is_word(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isalpha(c); });
}

}  // namespace

Result<std::string> fill(std::string_view text, const Words &values) {
  std::string filled;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find('@', at);
    filled += text.substr(at, begin - at);
    if (begin == std::string_view::npos) break;
    const size_t end = text.find('@', begin + 1);
    const std::string_view word =
        end != std::string_view::npos ? text.substr(begin + 1, end - begin - 1) : "";
    at = begin + 1;
    if (!is_word(word)) {
      filled.push_back('@');
      continue;
    }
    const auto value = values.find(std::string(word));
    if (value == values.end())
      return fail(FI_EINVAL, "no value for the placeholder @%s@: reinstall the SDK",
                  std::string(word).c_str());
    filled += value->second;
    at = end + 1;
  }
  return filled;
}

std::string reword(std::string_view text, const Words &words) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const std::pair<const std::string, std::string> *longest = nullptr;
    for (const auto &word : words) {
      const bool here = !word.first.empty() && text.substr(at, word.first.size()) == word.first;
      if (here && (longest == nullptr || longest->first.size() < word.first.size()))
        longest = &word;
    }
    if (longest == nullptr) {
      result.push_back(text[at++]);
    } else {
      result += longest->second;
      at += longest->first.size();
    }
  }
  return result;
}

Result<void> check_unit_name(const std::string &name) {
  constexpr size_t kLongest = 40;  // bytes; a unit may have 63, and its file has more than its name
  const bool letters = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '_';
  });
  if (name.empty() || name.size() > kLongest || !letters || !absl::ascii_islower(name.front()) ||
      !absl::ascii_isalnum(name.back()))
    return fail(FI_EINVAL,
                "'%s' can be no name of a unit: take a-z, 0-9, - and _, a letter first, a letter "
                "or a digit last, %zu bytes at most",
                name.c_str(), kLongest);
  return {};
}

Result<void> check_vendor(const std::string &vendor) {
  constexpr size_t kLongest = 60;  // bytes
  const bool letters = std::all_of(vendor.begin(), vendor.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c >= 0x80 ||
           std::string_view(" .,-+&'()/").find(char(c)) != std::string_view::npos;
  });
  const bool is_utf8 = printable(vendor) == vendor;  // bytes that are not become others
  if (vendor.empty() || vendor.size() > kLongest || !letters || !is_utf8 || vendor.front() == ' ' ||
      vendor.back() == ' ')
    return fail(FI_EINVAL,
                "'%s' can be no name of a vendor: take letters, digits, blanks between them and "
                ".,-+&'()/, in UTF-8, %zu bytes at most",
                vendor.c_str(), kLongest);
  return {};
}

std::string class_name(std::string_view name) {
  std::string result;
  bool first = true;
  for (const char c : name) {
    if (absl::ascii_isalnum(c)) result.push_back(first ? absl::ascii_toupper(c) : c);
    first = !absl::ascii_isalnum(c);
  }
  return result;
}

}  // namespace weft::cli
