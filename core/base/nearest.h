// SPDX-License-Identifier: BSD-2-Clause
// The known word that was probably meant, for error messages.
//
// Example (statements):
//    std::string tcp = weft::nearest("tpc", {"tcp", "udp"});
//    std::string nothing = weft::nearest("banana", {"tcp", "udp"});  // "": nothing is close
//
// Only for messages to people, never for a choice.
#ifndef WEFT_CORE_BASE_NEAREST_H
#define WEFT_CORE_BASE_NEAREST_H

#include <string>
#include <string_view>
#include <vector>

namespace weft {

// A wrong, missing or added letter counts one, as do two neighbours in the wrong order. A word
// is near if this sum is at most a third of its letters, and 1 to 3. Case does not matter.
std::string nearest(std::string_view word, const std::vector<std::string> &known);

}  // namespace weft

#endif
