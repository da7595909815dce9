// SPDX-License-Identifier: BSD-2-Clause
// A unit has two names, and files may use either (policy.h).
#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "core/base/same_word.h"
#include "core/select/candidates.h"
#include "core/select/merging.h"
#include "core/select/policy.h"

namespace weft {
namespace {

// The strongest place that enables a unit, by each name that is written there.
using Enabled = std::map<const UnitInfo *, std::map<std::string, Sourced<std::string>, LessWord>>;

void add(const Policy &policy, const NameList &names, const std::vector<UnitInfo> &units,
         Enabled &enabled) {
  for (const Sourced<std::string> &name : names) {
    const UnitInfo *unit = find_unit(units, name.value);
    if (unit == nullptr) continue;
    Sourced<std::string> &strongest = enabled[unit].try_emplace(name.value, name).first->second;
    if (strength_of(policy, strongest.origin.where) < strength_of(policy, name.origin.where))
      strongest = name;
  }
}

// Merging has compared the words. What is left is disabled by one name and enabled by the other.
void lift_by_other_name(Policy &policy, const std::vector<UnitInfo> &units) {
  Enabled enabled;
  // An `enable` that a stronger one has replaced has lifted what is weaker all the same.
  for (const Overridden &one : policy.overridden)
    if (one.how == Override::kReplaced && one.values.enable)
      add(policy, one.values.enable->value, units, enabled);
  if (policy.enable) add(policy, policy.enable->value, units, enabled);
  if (enabled.empty()) return;
  const Sourced<std::string> *final = final_key(policy, "providers.disable");
  const auto lifted_by = [&](const Sourced<std::string> &disabled) -> const Sourced<std::string> * {
    const auto names = enabled.find(find_unit(units, disabled.value));
    if (names == enabled.end()) return nullptr;
    for (const auto &[word, name] : names->second)
      if (!same_word(word, disabled.value) &&
          strength_of(policy, name.origin.where) > strength_of(policy, disabled.origin.where))
        return &name;
    return nullptr;
  };
  std::erase_if(policy.disable, [&](const Sourced<std::string> &disabled) {
    const Sourced<std::string> *name = lifted_by(disabled);
    if (name == nullptr) return false;
    if (final != nullptr)
      policy.diagnostics.push_back(stays_disabled(*name, disabled, *final));
    else
      policy.overridden.push_back({{.disable = {disabled}}, Override::kLifted, name->origin.where});
    return final == nullptr;
  });
}

}  // namespace

void join_names(Policy &policy, const std::vector<UnitInfo> &units) {
  lift_by_other_name(policy, units);
  note_shadowed_rules(policy, [&](const std::string &provider) {
    const auto unit = std::ranges::find_if(units, [&](const UnitInfo &one) {
      return !one.ofi_name.empty() && (one.name == provider || one.ofi_name == provider);
    });
    return unit != units.end() ? unit->name : in_ofi_names(provider, units);
  });
}

}  // namespace weft
