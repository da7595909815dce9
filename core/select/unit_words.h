// SPDX-License-Identifier: BSD-2-Clause
// Reads the words of units. Over the plugin ABI a refusal is an errno and a text
// (weft_error), and a layer quotes what is beneath it in the same way. So these functions read a
// text, and no others in the core do.
//
// Example:
//     // "rxm: tcp: hints.tx_attr.size 4096 is above 1024" is near, as it is about a limit.
//     inline Decision refused(const std::string &words) {
//       Decision decision = said_by_unit(Stage::kHints, words);
//       const bool near = distance_of(decision) == 1;
//       decision.remedy = near ? "ask for less" : "take another provider";
//       return decision;
//     }
//
// A text that names nothing of this is as far as its stage, and has no place. Not for the core's
// own reasons: those are data (core/base/decision.h).
#ifndef WEFT_CORE_SELECT_UNIT_WORDS_H
#define WEFT_CORE_SELECT_UNIT_WORDS_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/decision.h"
#include "core/select/candidates.h"
#include "core/select/policy.h"

namespace weft {

// A decision with the distance of the first attribute that the words name ("hints.tx_attr.size").
Decision said_by_unit(Stage stage, std::string words);

// The distance of that attribute: that of a limit if kAttributes does not have it; nothing if they
// name none.
std::optional<uint32_t> distance_in_words(std::string_view words);

// Where the setting stands that a provider of the candidate quotes in its words; empty: it quotes
// none.
Rule setting_in_words(const Policy &policy, const Candidate &candidate, std::string_view words);

// Whether the words have the place of a rule.
bool is_in_words(const Rule &rule, std::string_view words);

}  // namespace weft

#endif
