// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/environment.h"

#include <algorithm>
#include <cstdio>

namespace weft {
namespace {

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

std::string shown(char c) {
  if (c == ' ' || c == '\t') return "a blank";
  if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) {
    char text[24];
    std::snprintf(text, sizeof text, "the byte 0x%02x", static_cast<unsigned char>(c));
    return text;
  }
  return std::string("'") + c + "'";
}

tl::unexpected<Error> at(size_t offset, const std::string &text) {
  return tl::unexpected<Error>(
      Error{FI_EINVAL, "column " + std::to_string(offset + 1) + ": " + text});
}

// Reads names and separators from left to right.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool at_end() const { return offset_ == text_.size(); }
  size_t offset() const { return offset_; }
  bool skip(char c) {
    if (at_end() || text_[offset_] != c) return false;
    ++offset_;
    return true;
  }
  // Reads one name. `what` names it in errors; one of `separators` may follow it.
  Result<Word> name(const char *what, std::string_view separators) {
    Word word{{}, offset_ + 1};
    while (!at_end() && is_name(text_[offset_])) word.text += text_[offset_++];
    if (!at_end() && separators.find(text_[offset_]) == std::string_view::npos) {
      const char c = text_[offset_];
      if (c == '^') return at(offset_, "'^' stands only at the very beginning, for the whole list");
      if (c == ' ' || c == '\t') return at(offset_, "a blank: remove it");
      if (const char *why = misplaced(c, separators)) return at(offset_, shown(c) + why);
      return at(offset_, shown(c) + " is in no name: names have letters, digits, - and _");
    }
    if (word.text.empty()) return at(offset_, std::string(what) + " is missing");
    return word;
  }

  // Reads a stack, within so many brackets.
  Result<FilterItem> stack(size_t depth = 0) {
    FilterItem item;
    if (!at_end() && text_[offset_] == '(') {
      WEFT_TRY(item.branches, branches(depth + 1));
      if (!skip(';'))
        return at(offset_, "';' and the layer that stands over the branches are missing");
    }
    do {
      WEFT_TRY(Word word, name(item.branches.empty() ? "a name" : "a layer",
                               depth == 0 ? kBetween : kInBrackets));
      item.units.push_back(std::move(word));
    } while (skip(';'));
    return item;
  }

 private:
  static constexpr std::string_view kBetween = ",;", kInBrackets = ";+)";
  static constexpr size_t kMaxDepth = 16;

  Result<std::vector<FilterItem>> branches(size_t depth) {
    const size_t open = offset_++;
    if (depth > kMaxDepth)
      return at(open, "more than " + std::to_string(kMaxDepth) + " brackets within each other");
    std::vector<FilterItem> all;
    do {
      WEFT_TRY(FilterItem branch, stack(depth));
      all.push_back(std::move(branch));
    } while (skip('+'));
    if (!skip(')'))
      return at(offset_, "the ')' of column " + std::to_string(open + 1) + " is missing");
    if (all.size() == 1)
      return at(open,
                "brackets stand around several branches, with '+' between them: write one "
                "without");
    return all;
  }

  // What is wrong with a character of stacks behind a name; null: it is none of these.
  static const char *misplaced(char c, std::string_view separators) {
    if (separators == kInBrackets && c == ',')
      return " within brackets: branches have '+' between them";
    if (separators != kInBrackets && separators != kBetween) return nullptr;
    if (c == '(') return " stands only at the beginning of a stack or a branch";
    if (c == '+') return " stands only within brackets: (shm+tcp);link";
    if (c == ')') return " without '('";
    return nullptr;
  }

  std::string_view text_;
  size_t offset_ = 0;
};

}  // namespace

Result<ProviderFilter> parse_provider_filter(std::string_view text) {
  Reader reader(text);
  ProviderFilter filter;
  filter.text = text;
  filter.exclude = reader.skip('^');
  // As in stock libfabric, nothing is excluded by "^".
  if (filter.exclude && reader.at_end()) return filter;
  do {
    WEFT_TRY(FilterItem item, reader.stack());
    filter.items.push_back(std::move(item));
  } while (reader.skip(','));
  return filter;
}

std::string text_of(const FilterItem &item) {
  std::string text;
  for (const FilterItem &branch : item.branches)
    text.append(text.empty() ? "(" : "+").append(text_of(branch));
  if (!text.empty()) text += ')';
  for (const Word &word : item.units) text.append(text.empty() ? "" : ";").append(word.text);
  return text;
}

Result<std::vector<Word>> parse_hooks(std::string_view text) {
  std::vector<Word> hooks;
  Reader reader(text);
  do {
    WEFT_TRY(Word word, reader.name("a name", ";"));
    hooks.push_back(std::move(word));
  } while (reader.skip(';'));
  return hooks;
}

Result<std::vector<std::string>> parse_provider_path(std::string_view text) {
  std::vector<std::string> preferred, folders;
  size_t offset = 0;
  if (!text.empty() && text.front() == '@') offset = 1;
  while (offset < text.size()) {
    const size_t end = std::min(text.find(':', offset), text.size());
    std::string_view entry = text.substr(offset, end - offset);
    const bool file = !entry.empty() && entry.front() == '+';
    if (file) entry.remove_prefix(1);
    if (entry.empty())
      return at(offset, file ? "a file is missing after '+'" : "a folder is missing");
    if (file) {
      const size_t slash = entry.rfind('/');
      if (slash == std::string_view::npos || slash + 1 == entry.size())
        return at(offset + 1, "'+' is followed by the full path of a library");
      preferred.emplace_back(slash == 0 ? "/" : entry.substr(0, slash));
    } else {
      folders.emplace_back(entry);
    }
    if (end == text.size()) break;
    offset = end + 1;
    if (offset == text.size()) return at(offset, "a folder is missing");
  }
  preferred.insert(preferred.end(), folders.begin(), folders.end());
  return preferred;
}

std::string as_given(std::string_view variable, std::string_view value) {
  constexpr size_t kMaxShown = 200;
  std::string text = std::string(variable) + "=";
  return text.append(value.substr(0, kMaxShown)) + (value.size() > kMaxShown ? "..." : "");
}

}  // namespace weft
