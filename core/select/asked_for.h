// SPDX-License-Identifier: BSD-2-Clause
// Who asks for the providers of a stack: a person by the configuration, or a program by its hints.
//
// Example:
//     // A provider of which nobody must be silent: it was asked for.
//     inline bool is_wanted(const Policy &policy, const Candidate &candidate,
//                           const fi_info *hints) {
//       return names_providers(policy, candidate, hints) || is_configured(policy, candidate);
//     }
//
// Not for what may be used: that is judge_unit() and judge_filter() of policy.h.
#ifndef WEFT_CORE_SELECT_ASKED_FOR_H
#define WEFT_CORE_SELECT_ASKED_FOR_H

#include <rdma/fabric.h>

#include "core/select/candidates.h"
#include "core/select/policy.h"

namespace weft {

// Whether somebody names each provider of the stack: FI_PROVIDER, a stack of the configuration, or
// prov_name of the hints (WEFT_GETINFO_NAMED). Hints with an open object are about a provider that
// was named before. `hints` may be null.
bool names_providers(const Policy &policy, const Candidate &candidate, const fi_info *hints);

// Whether the configuration names, enables or sets parameters of a provider of the stack.
bool is_configured(const Policy &policy, const Candidate &candidate);

}  // namespace weft

#endif
