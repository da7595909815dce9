// SPDX-License-Identifier: BSD-2-Clause
// Whether one answer of fi_getinfo() makes another one superfluous.
//
// Example:
//     inline bool is_needed(const fi_info &second, const fi_info &first) {
//       return !same_info(first, second);
//     }
//
// Not for whether an offer fits the hints: core/match/match.h.
#ifndef WEFT_CORE_SELECT_SAME_INFO_H
#define WEFT_CORE_SELECT_SAME_INFO_H

#include <rdma/fabric.h>

namespace weft {

// No application could tell the two apart. All parts of both must be there.
bool same_info(const fi_info &a, const fi_info &b);

// Whether an application that is offered `near` needs no `plain`: both are of the same device, and
// `near` has all capabilities of the other, but for those that may come unasked.
bool covers(const fi_info *hints, const fi_info &near, const fi_info &plain);

}  // namespace weft

#endif
