// SPDX-License-Identifier: BSD-2-Clause
// The known word that was probably meant, for error messages.
//
// Example (statements):
//    std::string tcp = weft::nearest("tpc", {"tcp", "udp"});
//    std::string nothing = weft::nearest("banana", {"tcp", "udp"});  // "": nothing is close
//
// Only for messages to people, never for a choice.
#ifndef WEFT_NEAREST_H
#define WEFT_NEAREST_H

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// How many letters are wrong, missing or added; two neighbours in the wrong order count one. Case
// does not matter.
inline size_t letters_apart(std::string_view a, std::string_view b) {
  const auto at = [](std::string_view text, size_t i) {
    return text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] - 'A' + 'a') : text[i];
  };
  // Optimal string alignment distance, in three rows.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); j++) last[j] = j;
  for (size_t i = 1; i <= a.size(); i++) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); j++) {
      const bool same = at(a, i - 1) == at(b, j - 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && at(a, i - 1) == at(b, j - 2) && at(a, i - 2) == at(b, j - 1))
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

// The first of the nearest words of `known` (any range of texts), or "". A word is near if at most
// a third of its letters differ, at least 1 and at most 3. A word of more than 64 letters is no
// misspelt name.
template <class Words = std::initializer_list<std::string_view>>
std::string nearest(std::string_view word, const Words &known) {
  constexpr size_t kLongest = 64;
  if (word.empty() || word.size() > kLongest) return "";
  std::string best;
  size_t best_distance = std::clamp<size_t>(word.size() / 3, 1, 3) + 1;
  for (const std::string_view candidate : known) {
    const size_t lengths_apart =
        std::max(word.size(), candidate.size()) - std::min(word.size(), candidate.size());
    if (candidate.size() > kLongest || lengths_apart >= best_distance) continue;
    const size_t distance = letters_apart(word, candidate);
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

}  // namespace weft

#endif
