// SPDX-License-Identifier: BSD-2-Clause
// Names of providers, layers and stacks are the same in upper and lower case.
//
// Example (statements):
//    bool same = weft::same_word("OFI_RXM", "ofi_rxm");  // true
//    weft::WordSet words = {"OFI_RXM"};
//    bool found = words.contains("ofi_rxm");  // true
#ifndef WEFT_CORE_BASE_SAME_WORD_H
#define WEFT_CORE_BASE_SAME_WORD_H

#include <strings.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

namespace weft {

inline bool same_word(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// The order of words in which such names are equal.
struct LessWord {
  using is_transparent = void;
  bool operator()(std::string_view a, std::string_view b) const {
    const int order = strncasecmp(a.data(), b.data(), std::min(a.size(), b.size()));
    return order != 0 ? order < 0 : a.size() < b.size();
  }
};
using WordSet = std::set<std::string, LessWord>;

}  // namespace weft

#endif
