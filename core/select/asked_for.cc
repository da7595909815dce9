// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/asked_for.h"

#include <algorithm>

#include "core/base/same_word.h"

namespace weft {
namespace {

bool hints_name(const fi_info *hints, const UnitInfo &unit) {
  if (hints == nullptr || hints->fabric_attr == nullptr || hints->fabric_attr->prov_name == nullptr)
    return false;
  std::string_view rest = hints->fabric_attr->prov_name;
  if (rest.starts_with('^')) return false;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find_first_of(",;(+)"), rest.size());
    const std::string_view word = rest.substr(0, end);
    if (same_word(word, unit.name) || (!unit.ofi_name.empty() && same_word(word, unit.ofi_name)))
      return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

bool has_open_object(const fi_info *hints) {
  return hints != nullptr &&
         ((hints->fabric_attr != nullptr && hints->fabric_attr->fabric != nullptr) ||
          (hints->domain_attr != nullptr && hints->domain_attr->domain != nullptr));
}

// FI_PROVIDER or a stack of a file spells it out.
bool is_spelt_out(const Candidate &candidate) {
  return candidate.origin.is(Rule::Kind::kSpelt) || candidate.in_file;
}

}  // namespace

bool names_providers(const Policy &policy, const Candidate &candidate, const fi_info *hints) {
  if (is_spelt_out(candidate) || has_open_object(hints)) return true;
  return std::ranges::all_of(candidate.providers(), [&](const UnitInfo *unit) {
    return filter_names(policy, *unit) || hints_name(hints, *unit);
  });
}

bool is_configured(const Policy &policy, const Candidate &candidate) {
  if (is_spelt_out(candidate)) return true;
  return std::ranges::any_of(candidate.providers(), [&](const UnitInfo *unit) {
    return filter_names(policy, *unit) || enables(policy, *unit) ||
           !settings_of(policy, *unit).empty();
  });
}

}  // namespace weft
