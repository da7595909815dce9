// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/near.h"

#include <algorithm>

#include "core/base/each_element.h"
#include "core/match/match.h"

namespace weft {
namespace {

constexpr uint32_t kRdm = WEFT_EP_BIT(FI_EP_RDM);

// What makes the endpoints: the first element that has no such endpoints beneath it.
std::optional<size_t> maker_of(const std::vector<CandidateElement> &elements) {
  for (size_t i = 0; i < elements.size(); ++i) {
    const UnitInfo &unit = *elements[i].unit;
    if (unit.kind == WEFT_KIND_HOOK) continue;
    if ((unit.offers_ep & kRdm) == 0) return std::nullopt;
    const bool is_over_rdm = unit.kind == WEFT_KIND_LAYER && (unit.needs_ep & kRdm) != 0;
    if (!is_over_rdm || i + 1 == elements.size()) return i;
  }
  return std::nullopt;
}

bool has_either(const std::vector<CandidateElement> &elements) {
  bool has = false;
  each_element(elements, [&](const CandidateElement &element) {
    has = has || element.unit->name == kNearLayer || element.unit->name == kNearProvider;
  });
  return has;
}

Judgement missing(std::string_view what, std::string_view name, const Rule &local) {
  return {false, Cause::kBadName,
          "`local: shm` takes the " + std::string(what) + " " + std::string(name) +
              ", and no plugin has it",
          "install the plugin " + std::string(name) + ", or set `local: none`", local};
}

}  // namespace

std::optional<Candidate> make_near(const Candidate &stack, const std::vector<UnitInfo> &units,
                                   const Rule &local) {
  const std::optional<size_t> maker = maker_of(stack.elements);
  if (!maker || has_either(stack.elements)) return std::nullopt;
  Candidate near = stack;
  near.local = local;
  const UnitInfo *const layer = find_unit(units, kNearLayer);
  const UnitInfo *const memory = find_unit(units, kNearProvider);
  if (layer == nullptr || memory == nullptr) {
    const std::string inner[] = {std::string(kNearProvider), stack_name(stack.units())};
    near.tree = prov_name_over(inner, kNearLayer);
    near.stage = Stage::kManifest;
    near.verdict = layer == nullptr ? missing("layer", kNearLayer, local)
                                    : missing("provider", kNearProvider, local);
    return near;
  }
  const auto first = near.elements.begin() + static_cast<ptrdiff_t>(*maker);
  std::vector<CandidateElement> network(first, near.elements.end());
  near.elements.erase(first, near.elements.end());
  near.elements.push_back({layer, {}, false, {{{memory, {}, false}}, std::move(network)}});
  near.tree = stack_name(near.units());
  return near;
}

StackUnits without_memory(StackUnits units) {
  const auto layer = std::ranges::find_if(
      units, [](const StackUnit &one) { return one->name == kNearLayer && one.inner == 2; });
  if (layer == units.end()) return units;
  units.erase(layer);
  units.erase(units.begin());  // its first branch begins at the wire
  return units;
}

}  // namespace weft
