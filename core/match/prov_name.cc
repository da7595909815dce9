// SPDX-License-Identifier: BSD-2-Clause
// hints.fabric_attr.prov_name against the name of a stack.
#include <algorithm>
#include <vector>

#include "core/base/same_word.h"
#include "core/match/match.h"

namespace weft {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool one_admits(std::string_view wanted, const std::vector<std::string_view> &elements) {
  const std::vector<std::string_view> names = split(wanted, ';');
  if (names.size() == 1) {
    return std::any_of(elements.begin(), elements.end(),
                       [&](std::string_view element) { return same_word(element, names[0]); });
  }
  return std::equal(names.begin(), names.end(), elements.begin(), elements.end(), same_word) ||
         std::equal(names.rbegin(), names.rend(), elements.begin(), elements.end(), same_word);
}

}  // namespace

bool prov_name_admits(std::string_view wanted, std::string_view stack) {
  const bool exclude = !wanted.empty() && wanted.front() == '^';
  if (exclude) wanted.remove_prefix(1);
  const std::vector<std::string_view> elements = split(stack, ';');
  for (const std::string_view one : split(wanted, ',')) {
    if (one_admits(one, elements)) return !exclude;
  }
  return exclude;
}

}  // namespace weft
