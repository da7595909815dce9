// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/text.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <weft/nearest.h>
#include <weft/printable.h>

#include <algorithm>
#include <cstdlib>

namespace weft::cli {
namespace {

bool colours() {
  static const bool yes = [] {
    const char *term = std::getenv("TERM");
    const char *no_colour = std::getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb" &&
           (no_colour == nullptr || *no_colour == '\0');
  }();
  return yes;
}

// The number of characters: in UTF-8 several bytes may be one.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string padded(std::string_view text, size_t width) {
  std::string cell(text);
  const size_t have = width_of(text);
  if (have < width) cell.append(width - have, ' ');
  return cell;
}

// Width of a last column that begins at `column`, at least 24; 0: no limit.
size_t room(size_t column) {
  constexpr size_t kLeast = 24;
  const size_t width = terminal_width();
  if (width == 0) return 0;
  return width > column + kLeast ? width - column : kLeast;
}

}  // namespace

std::string emphasized(std::string_view text, Emphasis emphasis) {
  if (!colours() || emphasis == Emphasis::kNone) return printable(text);
  const char *code = emphasis == Emphasis::kStrong     ? "\033[1m"
                     : emphasis == Emphasis::kGood     ? "\033[32m"
                     : emphasis == Emphasis::kDoubtful ? "\033[33m"
                                                       : "\033[31m";
  return absl::StrCat(code, printable(text), "\033[0m");
}

size_t terminal_width() {
  static const size_t width = [] {
    winsize size{};
    if (isatty(STDOUT_FILENO) != 1) return size_t{0};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size_t{size.ws_col} : size_t{0};
  }();
  return width;
}

std::vector<std::string> wrapped(std::string_view text, size_t width) {
  if (width == 0) return {std::string(text)};
  std::vector<std::string> lines(1);
  if (text.ends_with(' ')) text.remove_suffix(1);
  const std::vector<std::string> words = absl::StrSplit(std::string(text), ' ');
  for (const std::string &word : words) {
    std::string &line = lines.back();
    if (line.empty()) {
      line = word;
    } else if (width_of(line) + 1 + width_of(word) <= width) {
      absl::StrAppend(&line, " ", word);
    } else {
      lines.emplace_back(word);
    }
  }
  return lines;
}

void print_field(std::string_view label, std::string_view text, size_t label_width, size_t indent) {
  const std::string blank(indent + label_width + 2, ' ');
  bool first = true;
  for (const std::string &line : wrapped(printable(text), room(blank.size()))) {
    const std::string start =
        first ? absl::StrCat(std::string(indent, ' '), padded(label, label_width), "  ") : blank;
    absl::PrintF("%s%s\n", start, line);
    first = false;
  }
}

void Table::add(std::vector<std::string> cells, Emphasis emphasis) {
  cells.resize(heads_.size());
  for (std::string &cell : cells) cell = printable(cell);
  rows_.push_back({std::move(cells), emphasis, {}});
}

void Table::note(std::string text) {
  if (!rows_.empty()) rows_.back().notes.push_back(printable(text));
}

void Table::print(size_t indent) const {
  if (heads_.empty()) return;
  const size_t last = heads_.size() - 1;
  std::vector<size_t> widths;
  for (const std::string &head : heads_) widths.push_back(width_of(head));
  for (const Row &row : rows_)
    for (size_t i = 0; i < last; ++i) widths[i] = std::max(widths[i], width_of(row.cells[i]));
  size_t last_column = indent;
  for (size_t i = 0; i < last; ++i) last_column += widths[i] + 2;

  const std::string margin(indent, ' ');
  std::string line = margin;
  for (size_t i = 0; i < last; ++i) absl::StrAppend(&line, padded(heads_[i], widths[i]), "  ");
  absl::PrintF("%s\n", emphasized(line + heads_[last], Emphasis::kStrong));
  for (const Row &row : rows_) {
    line = margin;
    for (size_t i = 0; i < last; ++i) absl::StrAppend(&line, padded(row.cells[i], widths[i]), "  ");
    bool first = true;
    for (const std::string &part : wrapped(row.cells[last], room(last_column))) {
      std::string whole = absl::StrCat(first ? line : std::string(last_column, ' '), part);
      absl::StripTrailingAsciiWhitespace(&whole);
      absl::PrintF("%s\n", emphasized(whole, row.emphasis));
      first = false;
    }
    for (const std::string &note : row.notes)
      for (const std::string &part : wrapped(note, room(indent + 4)))
        absl::PrintF("%s    %s\n", margin, part);
  }
}

void print_json(const Json &json) {
  absl::PrintF("%s\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
}

std::string text_of(const Json &object, std::string_view key) {
  if (!object.is_object()) return {};
  const auto found = object.find(std::string(key));
  if (found == object.end() || found->is_null()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (found->is_number() || found->is_boolean()) return found->dump();
  return {};
}

bool flag_of(const Json &object, std::string_view key) {
  if (!object.is_object()) return false;
  const auto found = object.find(std::string(key));
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

std::vector<std::string> texts_of(const Json &object, std::string_view key) {
  std::vector<std::string> texts;
  if (!object.is_object()) return texts;
  const auto found = object.find(std::string(key));
  if (found == object.end() || !found->is_array()) return texts;
  for (const Json &one : *found)
    if (one.is_string()) texts.push_back(one.get<std::string>());
  return texts;
}

Json array_of(const Json &object, std::string_view key) {
  if (!object.is_object()) return Json::array();
  const auto found = object.find(std::string(key));
  return found != object.end() && found->is_array() ? *found : Json::array();
}

std::string nearest_word(std::string_view word, const std::vector<std::string> &known) {
  return nearest(word, known);
}

}  // namespace weft::cli
