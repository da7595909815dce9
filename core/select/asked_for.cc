// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/asked_for.h"

#include <algorithm>
#include <cctype>

#include "core/base/same_word.h"

namespace weft {
namespace {

std::vector<const UnitInfo *> providers_of(const Candidate &candidate) {
  std::vector<const UnitInfo *> providers;
  for (const StackUnit &unit : candidate.units())
    if (unit->kind == WEFT_KIND_PROVIDER) providers.push_back(unit.unit);
  return providers;
}

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

// By FI_PROVIDER, or as a stack of a file.
bool is_spelt_out(const Policy &policy, const Candidate &candidate) {
  return candidate.origin == "FI_PROVIDER" ||
         std::ranges::any_of(policy.stacks, [&](const StackSpec &spec) {
           return spec.origin.where != "built-in" && candidate.origin == "stack " + spec.name;
         });
}

// Whether the text has this word, which is no part of a longer one.
bool has_word(std::string_view text, std::string_view word) {
  const auto is_apart = [&](size_t at) {
    return at >= text.size() || std::isalnum(static_cast<unsigned char>(text[at])) == 0;
  };
  if (word.empty()) return false;
  for (size_t at = 0; (at = text.find(word, at)) != std::string_view::npos; ++at)
    if ((at == 0 || is_apart(at - 1)) && is_apart(at + word.size())) return true;
  return false;
}

}  // namespace

bool names_providers(const Policy &policy, const Candidate &candidate, const fi_info *hints) {
  if (is_spelt_out(policy, candidate) || has_open_object(hints)) return true;
  return std::ranges::all_of(providers_of(candidate), [&](const UnitInfo *unit) {
    return filter_names(policy, *unit) || hints_name(hints, *unit);
  });
}

bool is_configured(const Policy &policy, const Candidate &candidate) {
  if (is_spelt_out(policy, candidate)) return true;
  return std::ranges::any_of(providers_of(candidate), [&](const UnitInfo *unit) {
    return filter_names(policy, *unit) || enables(policy, *unit) ||
           !settings_of(policy, *unit).empty();
  });
}

std::string setting_in(const Policy &policy, const Candidate &candidate, std::string_view reason) {
  Setting quoted;
  for (const UnitInfo *unit : providers_of(candidate)) {
    for (const Setting &setting : settings_of(policy, *unit)) {
      // A short value, such as "no", may be in the reason by chance. The strongest comes last.
      if (setting.value.size() >= quoted.value.size() && has_word(reason, setting.value))
        quoted = setting;
    }
  }
  return quoted.where;
}

}  // namespace weft
