// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/nearest.h"

#include <algorithm>
#include <cctype>

namespace weft {
namespace {

// Names are short. A longer word is no misspelt name.
constexpr size_t kLongest = 64;

// Optimal string alignment distance, in three rows.
size_t distance(std::string_view a, std::string_view b) {
  const auto at = [](std::string_view text, size_t i) {
    return std::tolower(static_cast<unsigned char>(text[i]));
  };
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); j++) last[j] = j;
  for (size_t i = 1; i <= a.size(); i++) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); j++) {
      const bool same = at(a, i - 1) == at(b, j - 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && at(a, i - 1) == at(b, j - 2) && at(a, i - 2) == at(b, j - 1)) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string> &known) {
  if (word.empty() || word.size() > kLongest) return "";
  const size_t allowed = std::clamp<size_t>(word.size() / 3, 1, 3);
  std::string best;
  size_t best_distance = allowed + 1;
  for (const std::string &candidate : known) {
    if (candidate.size() > kLongest) continue;
    const size_t d = distance(word, candidate);
    if (d < best_distance) {
      best = candidate;
      best_distance = d;
    }
  }
  return best;
}

}  // namespace weft
