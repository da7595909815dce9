// SPDX-License-Identifier: BSD-2-Clause
// Near stacks: what `local: shm` of the policy makes of the others. A near stack is the layer link
// over memory and over a stack with FI_EP_RDM, and has the name of that stack.
//
// Example:
//     // "tcp" becomes "(shm+tcp);link", and programs still see "tcp".
//     inline std::string near_of(const Candidate &tcp, const std::vector<UnitInfo> &units) {
//       const std::optional<Candidate> near = make_near(tcp, units, Rule::environment("FI_LINK"));
//       return near ? near->tree : "it stays as it is";
//     }
//
// Link is put directly above what makes the endpoints of FI_EP_RDM: a provider, or a layer that has
// other endpoints beneath it. What stands above that serves the application, and stays above:
// layers over FI_EP_RDM, and hooks, which see the calls of the application. What stands below is
// the network's. Not for what link and memory can do: they say it, when they are asked.
#ifndef WEFT_CORE_SELECT_NEAR_H
#define WEFT_CORE_SELECT_NEAR_H

#include <optional>
#include <string_view>
#include <vector>

#include "core/select/candidates.h"

namespace weft {

// By the names that their plugins give them.
inline constexpr std::string_view kNearLayer = "link", kNearProvider = "shm";

// `local` is the place of the key. Nothing: the stack has no FI_EP_RDM, or it has one of the two
// already. A plugin that is not there makes a verdict.
std::optional<Candidate> make_near(const Candidate &stack, const std::vector<UnitInfo> &units,
                                   const Rule &local);

// The units of a near stack without link and memory: those of the stack whose name it has.
StackUnits without_memory(StackUnits units);

}  // namespace weft

#endif
