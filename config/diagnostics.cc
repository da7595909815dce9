// SPDX-License-Identifier: BSD-2-Clause
#include "config/diagnostics.h"

#include <weft/printable.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace weft::config {

namespace {

// Longer words get no suggestion; the bound keeps a file of huge keys cheap.
constexpr size_t kMaxWord = 40;

// Edits (insert, delete, replace, swap of neighbours) that make `a` into `b`; both at most kMaxWord
// long.
size_t distance(std::string_view a, std::string_view b) {
  using Row = std::array<size_t, kMaxWord + 1>;
  Row before{}, above{}, row{};
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = above;
    above = row;
  }
  return above[b.size()];
}

}  // namespace

void Diagnostics::add(uint32_t severity, Where where, std::string_view cause,
                      std::string_view remedy) {
  std::string text(cause);
  text += " (line " + std::to_string(where.line) + ", column " + std::to_string(where.column) + ")";
  if (!remedy.empty()) text.append(": ").append(remedy);
  entries_.push_back({severity, where, std::move(text)});
}

void Diagnostics::error(Where where, std::string_view cause, std::string_view remedy) {
  add(WEFT_DIAG_ERROR, where, cause, remedy);
  has_errors_ = true;
}

void Diagnostics::warning(Where where, std::string_view cause, std::string_view remedy) {
  add(WEFT_DIAG_WARNING, where, cause, remedy);
}

void Diagnostics::deliver(const char *file, weft_diag_fn fn, void *arg) {
  if (fn == nullptr) return;
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry &a, const Entry &b) {
    return a.where.line != b.where.line ? a.where.line < b.where.line
                                        : a.where.column < b.where.column;
  });
  for (const Entry &entry : entries_) {
    const weft_where where{file, entry.where.line, entry.where.column};
    fn(arg, entry.severity, &where, entry.text.c_str());
  }
}

std::string quoted(std::string_view text) {
  bool clipped = false;
  if (text.size() > kMaxWord) {
    text = text.substr(0, kMaxWord);
    // Do not cut a UTF-8 sequence in two.
    while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80)
      text.remove_suffix(1);
    if (!text.empty() && (static_cast<unsigned char>(text.back()) & 0x80) != 0)
      text.remove_suffix(1);
    clipped = true;
  }
  std::string out = "'" + printable(text);
  out += clipped ? "...'" : "'";
  return out;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> known) {
  std::string_view nearest;
  size_t least = kMaxWord;
  if (word.size() <= kMaxWord) {
    for (std::string_view candidate : known) {
      const size_t edits = distance(word, candidate);
      // A third of the word may be wrong; beyond that a suggestion would not help.
      if (edits < least && edits <= std::max<size_t>(1, candidate.size() / 3)) {
        least = edits;
        nearest = candidate;
      }
    }
  }
  if (!nearest.empty()) return "did you mean " + quoted(nearest) + "?";
  std::string out = "known here: ";
  for (size_t i = 0; i < known.size(); ++i) out += (i == 0 ? "" : ", ") + quoted(known[i]);
  return out;
}

}  // namespace weft::config
