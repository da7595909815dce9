// SPDX-License-Identifier: BSD-2-Clause
// The providers and layers of a stack, from the wire up: one branch after the other, then the layer
// above them. Hooks are not among them.
//
// Example:
//     inline bool is_link_over_two(const UnitInfo &shm, const UnitInfo &tcp, const UnitInfo &rxm,
//                                  const UnitInfo &link) {
//       const StackUnits units = {&shm, &tcp, &rxm, {&link, 2}};
//       return stack_name(units) == "(shm+tcp;ofi_rxm);link" && !is_chain(units);
//     }
//
// Not for hooks, parameters and places: those are in a Candidate (candidates.h).
#ifndef WEFT_CORE_SELECT_STACK_UNITS_H
#define WEFT_CORE_SELECT_STACK_UNITS_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/unit.h"

namespace weft {

struct StackUnit {
  // A unit of a chain.
  StackUnit(const UnitInfo *given)  // NOLINT(google-explicit-constructor)
      : unit(given), inner(given->kind == WEFT_KIND_LAYER ? 1 : 0) {}
  StackUnit(const UnitInfo *given, size_t over) : unit(given), inner(over) {}
  const UnitInfo *operator->() const { return unit; }

  const UnitInfo *unit;
  size_t inner;  // over how many providers it stands
};
using StackUnits = std::vector<StackUnit>;

// "tcp;ofi_rxm", "(shm+tcp;ofi_rxm);link": by the names that stock libfabric gives, and by weft's.
std::string stack_name(const StackUnits &units);
std::string stack_own_name(const StackUnits &units);

// No layer stands over several providers.
bool is_chain(const StackUnits &units);

// The rank of the best of its providers.
int32_t rank_of(const StackUnits &units);

}  // namespace weft

#endif
