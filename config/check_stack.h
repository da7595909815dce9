// SPDX-License-Identifier: BSD-2-Clause
// What the elements of a stack in weft.yaml can get wrong together, with the place in the file.
//
// Example:
//     // Both were made of `list`: element i of item i.
//     inline void check(const std::vector<StackElement> &elements, const Node &list,
//                       Diagnostics &diag) {
//       check_chain(elements, list, list.where, "stack 'rdm'", diag);
//       check_ways_down(elements, list, diag);
//     }
//
// Not for what single elements get wrong (policy.cc), and not for names: the core knows the units.
#ifndef WEFT_CONFIG_CHECK_STACK_H
#define WEFT_CONFIG_CHECK_STACK_H

#include <string_view>
#include <vector>

#include "config/diagnostics.h"
#include "config/policy.h"
#include "config/tree.h"

namespace weft::config {

// A stack or a branch, `what`, ends with its provider or with a layer over branches, and nothing
// stands below it. `where` is the place of what is missing.
void check_chain(const std::vector<StackElement> &elements, const Node &list, const Where &where,
                 std::string_view what, Diagnostics &diag);

// From 1 to WEFT_MAX_INNER branches, and no two of them the same. `over` is the list of branches.
bool check_branches(const StackElement &layer, const Node &over, Diagnostics &diag);

// No layer in a branch stands beneath itself.
void check_ways_down(const std::vector<StackElement> &elements, const Node &list,
                     Diagnostics &diag);

}  // namespace weft::config

#endif
