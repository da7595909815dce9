// SPDX-License-Identifier: BSD-2-Clause
// Names of providers, layers and stacks are the same in upper and lower case.
//
// Example (statements):
//    bool same = weft::same_word("OFI_RXM", "ofi_rxm");  // true
#ifndef WEFT_CORE_BASE_SAME_WORD_H
#define WEFT_CORE_BASE_SAME_WORD_H

#include <strings.h>

#include <string_view>

namespace weft {

inline bool same_word(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace weft

#endif
