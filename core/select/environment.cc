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
  // Reads one name. `what` names it in errors; one of `separators` may follow it: a comma only
  // between stacks.
  Result<Word> name(const char *what, std::string_view separators) {
    Word word{{}, offset_ + 1};
    while (!at_end() && is_name(text_[offset_])) word.text += text_[offset_++];
    if (!at_end() && separators.find(text_[offset_]) == std::string_view::npos) {
      const char c = text_[offset_];
      if (c == '^') return at(offset_, "'^' stands only at the very beginning, for the whole list");
      if (c == ' ' || c == '\t') return at(offset_, "a blank: remove it");
      if (separators.find(',') != std::string_view::npos &&
          std::string_view("(+)").find(c) != std::string_view::npos)
        return at(offset_, shown(c) +
                               " is of a stack with branches, which has no name here: define it "
                               "under 'stacks' in weft.yaml and give its label");
      return at(offset_, shown(c) + " is in no name: names have letters, digits, - and _");
    }
    if (word.text.empty()) return at(offset_, std::string(what) + " is missing");
    return word;
  }

 private:
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
    FilterItem item;
    do {
      WEFT_TRY(Word word, reader.name("a name", ",;"));
      item.units.push_back(std::move(word));
    } while (reader.skip(';'));
    filter.items.push_back(std::move(item));
  } while (reader.skip(','));
  return filter;
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
