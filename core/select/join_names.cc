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

void add(const Policy &policy, const Sourced<std::string> &name, const UnitInfo *unit,
         Enabled &enabled) {
  Sourced<std::string> &strongest = enabled[unit].try_emplace(name.value, name).first->second;
  if (strength_of(policy, strongest.origin.where) < strength_of(policy, name.origin.where))
    strongest = name;
}

// The place that enables by another name what a weaker place disables; null: there is none.
const Sourced<std::string> *lifted_by(const Policy &policy, const std::vector<UnitInfo> &units,
                                      const Sourced<std::string> &disabled,
                                      const Enabled &enabled) {
  const auto names = enabled.find(find_unit(units, disabled.value));
  if (names == enabled.end()) return nullptr;
  for (const auto &[word, name] : names->second)
    if (!same_word(word, disabled.value) &&
        strength_of(policy, name.origin.where) > strength_of(policy, disabled.origin.where))
      return &name;
  return nullptr;
}

// Merging has compared the words. What is left is disabled by one name and enabled by the other.
void lift_by_other_name(Policy &policy, const std::vector<UnitInfo> &units) {
  // A final key binds those that are stronger than its own place.
  const Sourced<std::string> *final = final_key(policy, "providers.disable");
  Enabled enabled, bound;
  const auto add_all = [&](const NameList &names) {
    for (const Sourced<std::string> &name : names) {
      const UnitInfo *unit = find_unit(units, name.value);
      if (unit == nullptr) continue;
      const bool is_bound = final != nullptr && strength_of(policy, name.origin.where) >
                                                    strength_of(policy, final->origin.where);
      add(policy, name, unit, is_bound ? bound : enabled);
    }
  };
  // An `enable` that a stronger one has replaced has lifted what is weaker all the same.
  for (const Overridden &one : policy.overridden)
    if (one.how == Override::kReplaced && one.values.enable) add_all(one.values.enable->value);
  if (policy.enable) add_all(policy.enable->value);
  if (enabled.empty() && bound.empty()) return;
  std::erase_if(policy.disable, [&](const Sourced<std::string> &disabled) {
    if (const Sourced<std::string> *name = lifted_by(policy, units, disabled, enabled)) {
      policy.overridden.push_back({{.disable = {disabled}}, Override::kLifted, name->origin.where});
      return true;
    }
    if (const Sourced<std::string> *name = lifted_by(policy, units, disabled, bound))
      policy.diagnostics.push_back(stays_disabled(*name, disabled, *final));
    return false;
  });
}

}  // namespace

void join_names(Policy &policy, const std::vector<UnitInfo> &units) {
  lift_by_other_name(policy, units);
  note_shadowed_rules(policy,
                      [&](const std::string &provider) { return in_ofi_names(provider, units); });
}

}  // namespace weft
