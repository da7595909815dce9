// SPDX-License-Identifier: BSD-2-Clause
// The names of stacks, and hints.fabric_attr.prov_name against them.
#include <algorithm>
#include <vector>

#include "core/base/same_word.h"
#include "core/match/match.h"

namespace weft {
namespace {

// A layer over several providers: "(shm+tcp);link".
constexpr std::string_view kTree = "(+)";

bool is_tree(std::string_view name) {
  return name.find_first_of(kTree) != std::string_view::npos;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find_first_of(separators);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool one_admits(std::string_view wanted, std::string_view stack) {
  if (is_tree(wanted)) return same_word(wanted, stack);
  const std::vector<std::string_view> names = split(wanted, ";");
  const std::vector<std::string_view> elements = split(stack, ";(+)");
  if (names.size() == 1 && !names[0].empty()) {
    return std::any_of(elements.begin(), elements.end(),
                       [&](std::string_view element) { return same_word(element, names[0]); });
  }
  if (is_tree(stack)) return false;
  return std::equal(names.begin(), names.end(), elements.begin(), elements.end(), same_word) ||
         std::equal(names.rbegin(), names.rend(), elements.begin(), elements.end(), same_word);
}

}  // namespace

bool prov_name_admits(std::string_view wanted, std::string_view stack) {
  const bool exclude = !wanted.empty() && wanted.front() == '^';
  if (exclude) wanted.remove_prefix(1);
  for (const std::string_view one : split(wanted, ",")) {
    if (one_admits(one, stack)) return !exclude;
  }
  return exclude;
}

std::string prov_name_over(std::span<const std::string> inner, std::string_view name) {
  std::string out;
  for (const std::string &one : inner) out.append(out.empty() ? "" : "+").append(one);
  if (inner.size() > 1) out = "(" + out + ")";
  if (!inner.empty()) out += ';';
  return out.append(name);
}

size_t prov_name_units(std::string_view name) {
  return static_cast<size_t>(
             std::count_if(name.begin(), name.end(), [](char c) { return c == ';' || c == '+'; })) +
         1;
}

}  // namespace weft
