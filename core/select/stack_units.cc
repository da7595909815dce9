// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/stack_units.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>

#include "core/match/match.h"

namespace weft {
namespace {

template <class NameOf>
std::string name_by(const StackUnits &units, NameOf name_of) {
  std::vector<std::string> parts;  // those that nothing stands over so far
  for (const StackUnit &unit : units) {
    const size_t first = parts.size() - std::min(unit.inner, parts.size());
    std::string over = prov_name_over(std::span(parts).subspan(first), name_of(*unit.unit));
    parts.resize(first);
    parts.push_back(std::move(over));
  }
  // More than one only if the units are no stack.
  std::string name;
  for (const std::string &part : parts) name += (name.empty() ? "" : ";") + part;
  return name;
}

}  // namespace

std::string stack_name(const StackUnits &units) {
  return name_by(units, [](const UnitInfo &unit) -> const std::string & {
    return unit.ofi_name.empty() ? unit.name : unit.ofi_name;
  });
}

std::string stack_own_name(const StackUnits &units) {
  return name_by(units, [](const UnitInfo &unit) -> const std::string & { return unit.name; });
}

bool is_chain(const StackUnits &units) {
  return std::none_of(units.begin(), units.end(),
                      [](const StackUnit &unit) { return unit.inner > 1; });
}

int32_t rank_of(const StackUnits &units) {
  std::optional<int32_t> best;
  for (const StackUnit &unit : units)
    if (unit->kind == WEFT_KIND_PROVIDER) best = std::max(best.value_or(unit->rank), unit->rank);
  return best.value_or(units.empty() ? 0 : units.front()->rank);
}

}  // namespace weft
