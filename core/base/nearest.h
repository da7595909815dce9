// SPDX-License-Identifier: BSD-2-Clause
// The known word that was probably meant, for error messages.
//
// Example (statements):
//    std::string tcp = weft::nearest("tpc", {"tcp", "udp"});
//    std::string nothing = weft::nearest("banana", {"tcp", "udp"});  // "": nothing is close
//
// Not for choosing anything: only for telling a person.
#ifndef WEFT_CORE_BASE_NEAREST_H
#define WEFT_CORE_BASE_NEAREST_H

#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Letters wrong, missing, added or swapped with their neighbour count one each; up to a third of
// the word, at least one and at most three, may be so. Upper and lower case are the same.
std::string nearest(std::string_view word, const std::vector<std::string> &known);

}  // namespace weft

#endif
