// SPDX-License-Identifier: BSD-2-Clause
// What becomes of values that several files give, in parts: load_policy() merges them by their
// words, and join_names() once more when the units are known.
//
// Example:
//     inline bool is_weaker(const Policy &policy, const Rule &a, const Rule &b) {
//       return strength_of(policy, a) < strength_of(policy, b);
//     }
//
// Only for those two, and for who compares sources. Not for verdicts: policy.h.
#ifndef WEFT_CORE_SELECT_MERGING_H
#define WEFT_CORE_SELECT_MERGING_H

#include <cstddef>
#include <functional>
#include <string>

#include "core/select/policy.h"

namespace weft {

// The place of a source among the files that were read, the weakest first; behind them all others.
size_t strength_of(const Policy &policy, const Rule &where);

// The warning that an `enable` does not lift a `disable`, which is final.
Diagnostic stays_disabled(const Sourced<std::string> &enabled, const Sourced<std::string> &disabled,
                          const Sourced<std::string> &final);

// Notes the rules that have no effect, since a later one with the same match says all that they
// say. `name_of` is one name for all that mean the same provider. A rule is noted once, however
// often this is called.
void note_shadowed_rules(Policy &policy,
                         const std::function<std::string(const std::string &)> &name_of);

}  // namespace weft

#endif
