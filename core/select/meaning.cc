// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/meaning.h"

#include <arpa/inet.h>

#include <algorithm>

#include "core/loader/discovery.h"
#include "core/select/candidates.h"
#include "core/stack/params.h"

namespace weft {
namespace {

// "fd00:0::/8" is "fd00::/8".
std::string subnet_in_one_form(const std::string &subnet) {
  const size_t slash = std::min(subnet.find('/'), subnet.size());
  const std::string network = subnet.substr(0, slash);
  for (const int family : {AF_INET, AF_INET6}) {
    unsigned char bytes[sizeof(in6_addr)];
    char text[INET6_ADDRSTRLEN];
    if (inet_pton(family, network.c_str(), bytes) == 1 &&
        inet_ntop(family, bytes, text, sizeof text) != nullptr)
      return text + subnet.substr(slash);
  }
  return subnet;
}

}  // namespace

std::string Meaning::of_unit(const std::string &name) const {
  const UnitInfo *unit = find_unit(units_, name);
  return unit != nullptr ? unit->name : name;
}

std::string Meaning::of(KeyForm form, const std::string &entry) const {
  if (form == KeyForm::kUnits) return of_unit(entry);
  if (form == KeyForm::kFolders) return tidy_path(entry);
  constexpr std::string_view kParams = "params.";
  if (form != KeyForm::kKeys || !entry.starts_with(kParams)) return entry;
  const size_t end = std::min(entry.find('.', kParams.size()), entry.size());
  return std::string(kParams) + of_unit(entry.substr(kParams.size(), end - kParams.size())) +
         entry.substr(end);
}

std::vector<std::string> Meaning::of(KeyForm form, const NameList &names) const {
  std::vector<std::string> all;
  for (const Sourced<std::string> &one : names) all.push_back(of(form, one.value));
  if (form != KeyForm::kUnits) return all;
  std::ranges::sort(all);
  const auto twice = std::ranges::unique(all);
  all.erase(twice.begin(), twice.end());
  return all;
}

RankRule Meaning::of(RankRule rule) const {
  rule.provider = in_ofi_names(rule.provider, units_);
  if (!rule.subnet.empty()) rule.subnet = subnet_in_one_form(rule.subnet);
  return rule;
}

std::vector<StackElement> Meaning::of(std::vector<StackElement> elements) const {
  for (StackElement &element : elements) {
    if (const UnitInfo *unit = find_unit(units_, element.name)) {
      element.name = unit->name;
      for (Setting &setting : element.params)
        setting.value = of_param(*unit, setting.key, setting.value);
    }
    std::ranges::stable_sort(element.params, {}, &Setting::key);
    for (std::vector<StackElement> &branch : element.branches) branch = of(std::move(branch));
  }
  return elements;
}

std::string Meaning::of_param(const UnitInfo &unit, std::string_view key,
                              const std::string &value) const {
  const auto param = std::ranges::find(unit.params, key, &ParamInfo::name);
  if (param == unit.params.end()) return value;
  const Result<ParamValue> parsed =
      parse_param({param->type, param->name, param->minimum, param->maximum}, value);
  if (!parsed || param->type == WEFT_TYPE_STRING || param->type == WEFT_TYPE_LIST) return value;
  return std::to_string(parsed->number);
}

}  // namespace weft
