// SPDX-License-Identifier: BSD-2-Clause
// Builds the stack of a candidate when it is needed, keeps it, and opens its fabrics.
#include <algorithm>

#include "core/select/call_record.h"
#include "core/select/front_impl.h"

namespace weft {

const Built &Front::Impl::build(Slot &slot) {
  if (const Built *built = slot.built.load(std::memory_order_acquire)) return *built;
  std::lock_guard lock(mutex);
  if (slot.owned != nullptr) return *slot.owned;
  auto made = std::make_unique<Built>();
  compose(slot, *made);
  slot.owned = std::move(made);
  slot.built.store(slot.owned.get(), std::memory_order_release);
  return *slot.owned;
}

void Front::Impl::compose(const Slot &slot, Built &made) {
  made.name = slot.candidate.name;
  StackPlan plan;
  for (const CandidateElement &element : slot.candidate.elements) {
    const UnitInfo &unit = *element.unit;
    DecisionRecord loading;
    const LoadedUnit *loaded = loader->load(unit.name, loading);
    for (const Decision &decision : loading.decisions()) made.decisions.add(decision);
    if (loaded == nullptr) {
      if (element.skip_if_unavailable) continue;
      if (made.name != unit.name)
        made.decisions.add(
            {made.name,
             loading.decisions().empty() ? Stage::kInit : loading.decisions().back().stage, false,
             "its " + std::string(kind_name(unit.kind)) + " " + unit.name + " cannot be used",
             "see " + unit.name, slot.candidate.origin});
      return;
    }
    std::vector<Setting> settings = settings_of(policy, unit);
    settings.insert(settings.end(), element.settings.begin(), element.settings.end());
    plan.elements.push_back({*loaded, std::move(settings)});
    if (unit.kind != WEFT_KIND_HOOK) made.units.insert(made.units.begin(), &unit);
  }
  plan.name = slot.candidate.only_by_name ? slot.candidate.name : stack_name(made.units);
  Result<std::shared_ptr<Stack>> stack = Stack::build(plan, &options.services, options.objects);
  if (stack) {
    made.name = plan.name;
    made.stack = *std::move(stack);
  } else {
    made.decisions.add(
        {made.name, Stage::kInit, false, stack.error().text, "", slot.candidate.origin});
  }
}

std::string Front::Impl::reason_of(const Built &built) {
  std::string why;
  for (const Decision &one : built.decisions.decisions()) {
    if (one.accepted || (one.remedy.rfind("see ", 0) == 0 && !why.empty())) continue;
    why = one.candidate + ": " + one.reason + (one.remedy.empty() ? "" : ": " + one.remedy);
  }
  return why;
}

bool Front::Impl::is_named(const Candidate &candidate, const fi_info *hints) {
  return hints != nullptr && hints->fabric_attr != nullptr &&
         hints->fabric_attr->prov_name != nullptr &&
         lower(hints->fabric_attr->prov_name) == lower(candidate.name);
}

bool Front::Impl::admits(const char *wanted, const std::vector<const UnitInfo *> &units) {
  const bool exclude = wanted[0] == '^';
  std::string own_names;
  for (const UnitInfo *unit : units) own_names += (own_names.empty() ? "" : ";") + unit->name;
  const bool by_ofi = prov_name_admits(wanted, stack_name(units));
  const bool by_own = prov_name_admits(wanted, own_names);
  return exclude ? by_ofi && by_own : by_ofi || by_own;
}

bool Front::Impl::is_called(const Slot &slot, std::string_view prov_name) const {
  if (lower(slot.candidate.name) == lower(prov_name)) return true;
  if (slot.candidate.only_by_name) return false;
  // The same stack, in another order or with other names of its units.
  if (prov_name.find_first_of(",^") != std::string_view::npos) return false;
  const auto parts = static_cast<size_t>(std::count(prov_name.begin(), prov_name.end(), ';')) + 1;
  return parts == slot.units.size() && admits(std::string(prov_name).c_str(), slot.units);
}

int Front::Impl::fabric(fi_fabric_attr *attr, fid_fabric **out, void *context) {
  std::vector<std::string> stack;  // from the application down
  std::string why;
  const int ret = open_fabric(attr, out, context, stack, why);
  if (ret == 0) {
    std::string elements;
    for (const std::string &element : stack) elements += (elements.empty() ? "" : " > ") + element;
    log(FI_LOG_FABRIC, "fi_fabric", __LINE__,
        "stack " + std::string(attr->prov_name) + " opened: application > " + elements + " > wire",
        FI_LOG_INFO);
  } else {
    log(FI_LOG_FABRIC, "fi_fabric", __LINE__, why);
  }
  if (options.record)
    options.record(fabric_record(attr->prov_name != nullptr ? attr->prov_name : "",
                                 attr->name != nullptr ? attr->name : "", stack, ret, why));
  return ret;
}

int Front::Impl::open_fabric(fi_fabric_attr *attr, fid_fabric **out, void *context,
                             std::vector<std::string> &stack, std::string &why) {
  prepare();
  if (attr->prov_name == nullptr || attr->prov_name[0] == '\0') {
    why = "attr.prov_name is not set: take the attributes from fi_getinfo()";
    return -FI_EINVAL;
  }
  const std::string wanted = attr->prov_name;
  std::string unusable;
  for (Slot &slot : slots) {
    if (!slot.candidate.verdict.accepted || !is_called(slot, wanted)) continue;
    const Built &built = build(slot);
    if (built.stack == nullptr) {
      unusable = reason_of(built);
      continue;
    }
    Result<fid_fabric *> opened = built.stack->fabric(attr, context);
    if (!opened) {
      why = opened.error().text;
      return -opened.error().code;
    }
    *out = *opened;
    for (const CandidateElement &element : slot.candidate.elements)
      stack.push_back(element.unit->name);
    return 0;
  }
  why = "no stack " + in_quotes(wanted) +
        (unusable.empty() ? std::string() : " (" + unusable + ")") + ": `weft why` tells more";
  return -FI_ENODEV;
}

}  // namespace weft
