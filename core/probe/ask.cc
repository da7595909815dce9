// SPDX-License-Identifier: BSD-2-Clause
#include "core/probe/ask.h"

#include <array>
#include <exception>
#include <vector>

#include "core/base/info.h"
#include "core/base/tostr.h"
#include "core/loader/descriptor.h"
#include "core/loader/device.h"
#include "core/probe/services.h"
#include "core/stack/stack.h"

namespace weft {
namespace {

// ---- what stands beneath a layer: a provider that offers nothing ----

int32_t offer_nothing(void *, uint32_t, const char *, const char *, uint64_t, const fi_info *,
                      fi_info **, weft_error *why) {
  return to_c({FI_ENODATA, "nothing is beneath a layer that is probed"}, why);
}
int32_t open_nothing(void *, fi_fabric_attr *, fid_fabric **, void *, weft_error *why) {
  return to_c({FI_ENODATA, "nothing is beneath a layer that is probed"}, why);
}
int32_t create_nothing(const weft_instance *, weft_provider *provider, weft_error *) {
  static const weft_provider_ops ops = {.struct_size = sizeof ops,
                                        .reserved = 0,
                                        .getinfo = offer_nothing,
                                        .fabric = open_nothing,
                                        .explain = nullptr,
                                        .destroy = nullptr};
  *provider = {&ops, nullptr};
  return 0;
}

weft_unit unit_beneath(const weft_unit &layer) {
  static const weft_provider_unit provider = {sizeof provider, 0, create_nothing};
  weft_unit unit{};
  unit.magic = WEFT_UNIT_MAGIC;
  unit.struct_size = sizeof unit;
  unit.kind = WEFT_KIND_PROVIDER;
  unit.name = "nothing";
  unit.offers_ep = layer.needs_ep != 0
                       ? layer.needs_ep
                       : WEFT_EP_BIT(FI_EP_MSG) | WEFT_EP_BIT(FI_EP_RDM) | WEFT_EP_BIT(FI_EP_DGRAM);
  unit.provider = &provider;
  return unit;
}

StackPlan plan_for(const weft_unit &unit, void *state, const UnitInfo &info,
                   const weft_unit &beneath) {
  StackPlan plan{.name = "", .elements = {{{&unit, state, 0, &info}, {}}}};
  if (unit.kind != WEFT_KIND_LAYER) return plan;
  const PlanElement nothing{{&beneath, nullptr, 0, nullptr}, {}};
  if (unit.inner_min == 1)
    plan.elements.push_back(nothing);
  else
    plan.elements[0].branches.assign(unit.inner_min, {nothing});
  return plan;
}

// Reads all of an offer, as the core does.
void read_all(const fi_info &info) {
  std::array<char, 16384> text;
  to_text(&info, FI_TYPE_INFO, text.data(), text.size());
}

void ask(Stack &stack, const fi_info *hints) {
  auto offers =
      stack.getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), nullptr, nullptr, 0, hints, {});
  if (!offers) return;
  for (fi_info *offer : *offers) {
    read_all(*offer);
    free_info(offer);
  }
}

void ask_unit(const weft_unit &unit, void *state, const UnitInfo &info) {
  const weft_unit beneath = unit_beneath(unit);
  const Result<std::shared_ptr<Stack>> stack =
      Stack::build(plan_for(unit, state, info, beneath), &probe_services(), &probe_objects());
  if (!stack) return;  // the process that wants the unit learns of it
  ask(**stack, nullptr);
  const InfoPtr hints(alloc_info());
  ask(**stack, hints.get());
}

}  // namespace

Checked<void> ask_units(const weft_plugin_desc &desc, void *state, const PluginRecord &record,
                        const std::function<void(const std::string &unit)> &before) {
  for (const UnitInfo &info : record.units) {
    const weft_unit *unit = find_unit(desc, info.name);
    if (unit == nullptr || unit->kind == WEFT_KIND_HOOK || !check_devices(info)) continue;
    before(info.name);
    const auto threw = [&](const std::string &what) {
      return tl::unexpected<Rejection>(
          Rejection{Stage::kGetinfo, "an exception left the getinfo of " + info.name + what,
                    kAskVendor, true});
    };
    try {
      ask_unit(*unit, state, info);
    } catch (const std::exception &error) {
      return threw(std::string(": ") + error.what());
    } catch (...) {
      return threw("");
    }
  }
  return {};
}

}  // namespace weft
