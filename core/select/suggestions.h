// SPDX-License-Identifier: BSD-2-Clause
// Suggests a known word in place of each wrong one, as long as that takes no time that anybody
// notices: a configuration may have thousands of wrong words, and every program reads it.
//
// Example (statements):
//    weft::Suggestions suggestions;
//    std::string tcp = suggestions.nearest_to("tpc", std::vector<std::string>{"tcp", "udp"});
//
// Only for messages to people. Not for whether a word is known: WordSet (core/base/same_word.h).
#ifndef WEFT_CORE_SELECT_SUGGESTIONS_H
#define WEFT_CORE_SELECT_SUGGESTIONS_H

#include <weft/nearest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

class Suggestions {
 public:
  // As nearest(); "" as well for those that come behind many.
  std::string nearest_to(std::string_view word, const std::vector<std::string> &known) {
    if (known.size() > left_) return "";
    left_ -= known.size();
    return nearest(word, known);
  }

 private:
  size_t left_ = 20'000;  // words that may still be compared: milliseconds
};

}  // namespace weft

#endif
