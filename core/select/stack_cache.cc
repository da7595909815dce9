// SPDX-License-Identifier: BSD-2-Clause
// Builds the stack of a candidate when it is needed, keeps it, and opens its fabrics.
#include <algorithm>

#include "core/base/each_element.h"
#include "core/base/render.h"
#include "core/select/call_record.h"
#include "core/select/front_impl.h"
#include "core/select/unit_words.h"

namespace weft {
namespace {

StackNames names_of_elements(const std::vector<CandidateElement> &elements) {
  StackNames names;
  for (const CandidateElement &element : elements) {
    ElementName &name = names.emplace_back(ElementName{element.unit->name});
    for (const std::vector<CandidateElement> &branch : element.branches)
      name.branches.push_back(names_of_elements(branch));
  }
  return names;
}

bool has_settings(const std::vector<PlanElement> &elements) {
  return std::any_of(elements.begin(), elements.end(), [](const PlanElement &element) {
    return !element.settings.empty() ||
           std::any_of(element.branches.begin(), element.branches.end(), has_settings);
  });
}

}  // namespace

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

// Loads what a candidate needs and makes its plan.
class Front::Impl::Composer {
 public:
  Composer(Impl &front, const Slot &slot, Built &made) : front_(front), slot_(slot), made_(made) {}

  enum class Composed { kWhole, kLeftOut, kFailed };

  // A branch without its provider may be left out. `used` are the elements that are in the plan.
  Composed chain(const std::vector<CandidateElement> &from, std::vector<PlanElement> &to,
                 std::vector<CandidateElement> &used) {
    for (const CandidateElement &element : from) {
      const UnitInfo &unit = *element.unit;
      DecisionRecord loading;
      const LoadedUnit *loaded = front_.loader->load(unit.name, loading);
      for (const Decision &decision : loading.decisions()) made_.decisions.add(decision);
      if (loaded == nullptr) {
        if (element.skip_if_unavailable && unit.kind == WEFT_KIND_PROVIDER)
          return Composed::kLeftOut;
        if (element.skip_if_unavailable) continue;
        if (made_.name != unit.name)
          refuse(loading.decisions().empty() ? Stage::kInit : loading.decisions().back().stage,
                 "its " + std::string(kind_name(unit.kind)) + " " + unit.name + " cannot be used",
                 "see " + unit.name);
        return Composed::kFailed;
      }
      PlanElement planned{*loaded, settings_at(front_.policy, unit, element.settings)};
      CandidateElement kept{&unit, element.settings, element.skip_if_unavailable};
      if (!branches(element, planned, kept)) return Composed::kFailed;
      add_over(std::move(planned), to);
      add_over(std::move(kept), used);
    }
    return Composed::kWhole;
  }

 private:
  bool branches(const CandidateElement &layer, PlanElement &planned, CandidateElement &kept) {
    for (const std::vector<CandidateElement> &branch : layer.branches) {
      std::vector<PlanElement> plan;
      std::vector<CandidateElement> used;
      const Composed composed = chain(branch, plan, used);
      if (composed == Composed::kFailed) return false;
      if (composed == Composed::kLeftOut) continue;
      planned.branches.push_back(std::move(plan));
      kept.branches.push_back(std::move(used));
    }
    if (layer.branches.empty() || !planned.branches.empty()) return true;
    refuse(Stage::kDevice, "no branch of its layer " + layer.unit->name + " can be used",
           "see their providers");
    return false;
  }

  void refuse(Stage stage, std::string reason, std::string remedy) {
    made_.decisions.add({.candidate = slot_.candidate.label(),
                         .stage = stage,
                         .cause = Cause::kElement,
                         .reason = std::move(reason),
                         .remedy = std::move(remedy),
                         .rule = slot_.candidate.cause()});
  }

  Impl &front_;
  const Slot &slot_;
  Built &made_;
};

void Front::Impl::compose(const Slot &slot, Built &made) {
  made.name = slot.candidate.name;
  StackPlan plan;
  Candidate kept;
  if (Composer(*this, slot, made).chain(slot.candidate.elements, plan.elements, kept.elements) !=
      Composer::Composed::kWhole)
    return;
  kept.tree = slot.candidate.tree;
  made.units = kept.shown_units();
  const std::string name = stack_name(made.units);
  const std::string &shown = slot.candidate.only_by_name ? slot.candidate.name : name;
  plan.name = kept.is_near() ? stack_name(kept.units()) : shown;
  plan.prov_name = shown;
  made.elements = std::move(kept.elements);
  plan.version = slot.candidate.version;
  plan.protocol = slot.candidate.protocol;
  plan.calls = calls;
  plan.tell = [this](const std::string &line) { notice(line); };
  Result<std::shared_ptr<Stack>> stack = Stack::build(plan, &options.services, options.objects);
  if (stack) {
    made.name = plan.prov_name;
    made.stack = *std::move(stack);
  } else {
    made.decisions.add({.candidate = slot.candidate.label(),
                        .stage = Stage::kInit,
                        .cause = Cause::kUnit,
                        .reason = stack.error().text,
                        .rule = slot.candidate.cause()});
    if (stack.error().code == FI_EINVAL && has_settings(plan.elements))
      tell_wrong_setting(stack.error().text);
  }
}

// A value that only the unit knows to be wrong. What a declaration tells was told before.
void Front::Impl::tell_wrong_setting(const std::string &text) {
  const bool told = std::any_of(names.begin(), names.end(), [&](const Diagnostic &one) {
    return one.error && is_in_words(one.where, text);
  });
  if (!told) notice(text);
}

std::string Front::Impl::unusable_line(const Built &built) {
  std::string why;
  for (const Decision &one : built.decisions.decisions()) {
    if (one.accepted || (one.cause == Cause::kElement && !why.empty())) continue;
    why = line_of(one);
  }
  return why;
}

// The units of a chain may be named from either end, by either of their names.
bool Front::Impl::is_named(const Candidate &candidate, const fi_info *hints) const {
  if (hints == nullptr || hints->fabric_attr == nullptr || hints->fabric_attr->prov_name == nullptr)
    return false;
  const std::string_view wanted = hints->fabric_attr->prov_name;
  if (lower(wanted) == lower(candidate.name)) return true;
  const size_t units = prov_name_units(wanted);
  return units > 1 && units == prov_name_units(candidate.name) &&
         wanted.find_first_of(",^") == std::string_view::npos &&
         prov_name_admits(in_ofi_names(wanted, loader->units()), candidate.name);
}

bool Front::Impl::admits(const char *wanted, const StackUnits &units) {
  const bool exclude = wanted[0] == '^';
  const bool by_ofi = prov_name_admits(wanted, stack_name(units));
  const bool by_own = prov_name_admits(wanted, stack_own_name(units));
  return exclude ? by_ofi && by_own : by_ofi || by_own;
}

const Built *Front::Impl::shrunk(Slot &slot) {
  if (!slot.candidate.verdict.accepted || !slot.candidate.may_shrink()) return nullptr;
  const Built &built = build(slot);
  return built.stack != nullptr ? &built : nullptr;
}

bool Front::Impl::is_called(Slot &slot, std::string_view prov_name) {
  if (lower(slot.candidate.name) == lower(prov_name)) return true;
  if (slot.candidate.only_by_name) return false;
  // The same stack, in another order or with other names of its units.
  if (prov_name.find_first_of(",^") != std::string_view::npos) return false;
  const auto names = [&](const StackUnits &units) {
    return prov_name_units(prov_name) == units.size() &&
           admits(std::string(prov_name).c_str(), units);
  };
  if (names(slot.units)) return true;
  const Built *built = shrunk(slot);
  return built != nullptr && names(built->units);
}

// Those that fi_fabric() may open for the attributes, the best first. Parts of one stack differ in
// their versions; where the application took none over, the endpoint's type may decide.
std::vector<Slot *> Front::Impl::slots_called(const fi_fabric_attr &attr, const fi_info *info) {
  std::vector<Slot *> called;
  for (Slot &slot : slots)
    if (slot.candidate.verdict.accepted && is_called(slot, attr.prov_name)) called.push_back(&slot);
  const int type =
      info != nullptr && info->ep_attr != nullptr ? ep_type_of(*info->ep_attr) : FI_EP_UNSPEC;
  const auto fits = [&](const Slot *slot) {
    if (slot->candidate.version == attr.prov_version) return 2;
    return type > FI_EP_UNSPEC && type <= FI_EP_RDM && (slot->offers_ep & WEFT_EP_BIT(type)) != 0
               ? 1
               : 0;
  };
  if (std::any_of(called.begin(), called.end(),
                  [](const Slot *slot) { return slot->candidate.version != 0; }))
    std::stable_sort(called.begin(), called.end(),
                     [&](const Slot *a, const Slot *b) { return fits(a) > fits(b); });
  return called;
}

int Front::Impl::fabric(fi_fabric_attr *attr, const fi_info *info, fid_fabric **out,
                        void *context) {
  StackNames stack;
  Rule local;
  std::string why;
  const int ret = open_fabric(attr, info, out, context, stack, local, why);
  if (ret == 0) {
    log(FI_LOG_FABRIC, "fi_fabric", __LINE__,
        "stack " + std::string(attr->prov_name) +
            (local.empty() ? "" : " with `local: shm` (" + text_of(local) + ")") +
            " opened: application > " + text_of(stack) + " > wire",
        FI_LOG_INFO);
  } else {
    log(FI_LOG_FABRIC, "fi_fabric", __LINE__, why);
  }
  if (options.record)
    options.record(fabric_record(attr->prov_name != nullptr ? attr->prov_name : "",
                                 attr->name != nullptr ? attr->name : "", stack, ret, why));
  return ret;
}

int Front::Impl::open_fabric(fi_fabric_attr *attr, const fi_info *info, fid_fabric **out,
                             void *context, StackNames &stack, Rule &local, std::string &why) {
  prepare();
  if (attr->prov_name == nullptr || attr->prov_name[0] == '\0') {
    why = "attr.prov_name is not set: take the attributes from fi_getinfo()";
    return -FI_EINVAL;
  }
  std::string unusable;
  for (Slot *slot : slots_called(*attr, info)) {
    const Built &built = build(*slot);
    if (built.stack == nullptr) {
      unusable = unusable_line(built);
      continue;
    }
    Result<fid_fabric *> opened = built.stack->fabric(attr, context);
    if (!opened) {
      why = opened.error().text;
      return -opened.error().code;
    }
    *out = *opened;
    stack = names_of_elements(built.elements);
    local = slot->candidate.local;
    return 0;
  }
  why = "no stack " + in_quotes(attr->prov_name) +
        (unusable.empty() ? std::string() : " (" + unusable + ")") + ": `weft why` tells more";
  return -FI_ENODEV;
}

}  // namespace weft
