// SPDX-License-Identifier: BSD-2-Clause
// Units from classes: a provider, a layer or a hook is a class, and WEFT_PLUGIN makes a plugin of
// one or more.
//
// Example:
//    class Frob {  // a provider
//     public:
//      static constexpr UnitInfo info{.name = "frob",
//                                     .summary = "messages over Frobco cards",
//                                     .version = FI_VERSION(1, 0),
//                                     .offers_ep = WEFT_EP_BIT(FI_EP_MSG),
//                                     .security = WEFT_SECURITY_TRUSTED_PEERS};
//      static weft::Result<std::unique_ptr<Frob>> create(const weft_instance *instance);
//      weft::Result<InfoList> getinfo(const GetinfoQuery &query);
//      weft::Result<fid_fabric *> fabric(const fi_fabric_attr &attr, void *context);
//      weft::Result<void> explain(const LineSink &line);  // optional
//    };
//    constexpr PluginInfo plugin{
//        .name = "frobco", .vendor = "Frobco", .version = "1.0.0", .license = "BSD-2-Clause"};
//    WEFT_PLUGIN(plugin, Frob)
//
// A layer has the same members, and the provider beneath it is the second argument of create. A
// layer that takes several says how many in its info (inner_min, inner_max) and gets all of them.
//
// Example:
//    class Above {
//     public:
//      static weft::Result<std::unique_ptr<Above>> create(const weft_instance *, Inner inner);
//    };
//    class AboveSeveral {
//     public:
//      static weft::Result<std::unique_ptr<AboveSeveral>> create(const weft_instance *,
//                                                                std::span<const Inner> inner);
//    };
//
// A hook has a member for each op that it wants, named as in weft/sdk/objects/ops.h (where tables
// share a name: cq_read, eq_read, cntr_read, av_insert, mr_reg). The link and the fid come before
// the op's arguments. If it keeps state per object, it has the type ObjectState and attach().
//
// Example:
//    class Count {
//     public:
//      static constexpr UnitInfo info{.name = "count", .summary = "counts sends"};
//      struct ObjectState {
//        size_t sends = 0;
//      };
//      weft::Result<std::unique_ptr<ObjectState>> attach(fid *fid);  // null: not this object
//      ssize_t send(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len,
//                   void *desc, fi_addr_t dest, void *context) {
//        ++object_state<Count>(link).sends;  // deleted with the object
//        return link.next.msg->send(ep, buf, len, desc, dest, context);
//      }
//    };
//    static_assert(Hook<Count>);
//
// A constructor with the same parameters may replace create. Nothing that a unit throws leaves the
// plugin. A member that is missing or has the wrong form is a compile error in plain English. Not
// for the objects that a fabric opens: see weft/sdk/objects/fid.h and weft/sdk/objects/ops.h.
#ifndef WEFT_SDK_UNIT_H
#define WEFT_SDK_UNIT_H

#include <weft/plugin.h>
#include <weft/result.h>
#include <weft/sdk/unit/boundary.h>
#include <weft/sdk/unit/hook.h>
#include <weft/sdk/unit/params.h>
#include <weft/sdk/unit/provider.h>
#include <weft/sdk/unit/unit_info.h>

#include <array>
#include <span>
#include <string_view>

namespace weft::sdk {

// What a plugin says of itself; see weft_plugin_desc.
struct PluginInfo {
  const char *name = nullptr;
  const char *vendor = nullptr;
  const char *version = nullptr;
  const char *license = nullptr;  // SPDX expression
  const char *support = nullptr;  // URL or mail
  uint16_t min_core_minor = 0;
  uint64_t required_core_caps = 0;
  // Optional: work that the whole plugin needs once. The state reaches units as
  // instance->plugin_state.
  Result<void *> (*init)(const weft_offer &offer) = nullptr;
  void (*fini)(void *state) = nullptr;
};

namespace unit_detail {

template <class U>
constexpr auto make_param_pointers() {
  std::array<const weft_param *, U::info.params.size()> pointers{};
  for (size_t i = 0; i < pointers.size(); ++i) pointers[i] = &U::info.params[i];
  return pointers;
}
template <class U>
inline constexpr auto param_pointers = make_param_pointers<U>();

constexpr bool is_name(const char *name, std::string_view more) {
  if (name == nullptr || *name == '\0') return false;
  for (; *name != '\0'; ++name) {
    if (!(*name >= 'a' && *name <= 'z') && !(*name >= '0' && *name <= '9') &&
        more.find(*name) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

constexpr bool params_are_named(std::span<const weft_param> params) {
  for (size_t i = 0; i < params.size(); ++i) {
    if (!is_name(params[i].name, "_") || params[i].help == nullptr) return false;
    for (size_t j = 0; j < i; ++j) {
      if (std::string_view(params[i].name) == params[j].name) return false;
    }
  }
  return true;
}

template <class U>
constexpr void check_info() {
  static_assert(HasInfo<U>,
                "a unit needs `static constexpr weft::sdk::UnitInfo info{...}`, public");
  constexpr const UnitInfo &info = U::info;
  static_assert(is_name(info.name, "-_"),
                "info.name must be there and consist of a-z, 0-9, '-' and '_'");
  static_assert(info.summary != nullptr,
                "info.summary must say in one sentence what the unit does");
  static_assert(info.version != 0, "info.version must be an FI_VERSION(major, minor)");
  static_assert(
      info.maturity >= WEFT_MATURITY_STABLE && info.maturity <= WEFT_MATURITY_EXPERIMENTAL,
      "info.maturity must be a WEFT_MATURITY_...");
  static_assert(
      info.security >= WEFT_SECURITY_NO_NETWORK && info.security <= WEFT_SECURITY_TRUSTED_PEERS,
      "info.security must say what the unit withstands: a WEFT_SECURITY_...");
  static_assert(
      params_are_named(info.params),
      "every entry of info.params needs a name of its own, of a-z, 0-9 and '_', and a help");
}

template <class U>
constexpr weft_unit make_unit() {
  check_info<U>();
  constexpr const UnitInfo &info = U::info;
  weft_unit unit{.magic = WEFT_UNIT_MAGIC,
                 .struct_size = sizeof unit,
                 .version = info.version,
                 .name = info.name,
                 .ofi_name = info.ofi_name,
                 .summary = info.summary,
                 .needs_ep = info.needs_ep,
                 .offers_ep = info.offers_ep,
                 .rank = info.rank,
                 .maturity = info.maturity,
                 .security = info.security,
                 .device_count = static_cast<uint32_t>(info.devices.size()),
                 .devices = info.devices.data(),
                 .params = param_pointers<U>.data(),
                 .param_count = static_cast<uint32_t>(info.params.size()),
                 .device_remedy = info.device_remedy};
  if constexpr (
      requires { &U::getinfo; } || requires { &U::fabric; }) {
    static_assert(
        HasGetinfo<U>,
        "a provider or layer needs `Result<InfoList> getinfo(const GetinfoQuery &query)`, "
        "public");
    static_assert(HasFabric<U>,
                  "a provider or layer needs `Result<fid_fabric *> fabric(const fi_fabric_attr "
                  "&attr, void *context)`, public");
    static_assert(Layer<U> || Provider<U>,
                  "a provider needs a constructor or a `static Result<std::unique_ptr<P>> create` "
                  "with the parameter (const weft_instance *), a layer one with (const "
                  "weft_instance *, Inner) or (const weft_instance *, std::span<const Inner>)");
    static_assert(
        info.offers_ep != 0,
        "info.offers_ep must say which endpoints the unit offers: WEFT_EP_BIT(FI_EP_...)");
    if constexpr (Layer<U>) {
      static_assert(info.needs_ep != 0,
                    "info.needs_ep must say which endpoints the layer needs beneath it: "
                    "WEFT_EP_BIT(FI_EP_...)");
      static_assert(info.inner_min >= 1 && info.inner_min <= info.inner_max &&
                        info.inner_max <= WEFT_MAX_INNER,
                    "info.inner_min and info.inner_max must say how many providers the layer takes "
                    "beneath it, from 1 to WEFT_MAX_INNER");
      static_assert(LayerOfSeveral<U> || info.inner_max == 1,
                    "a layer that takes several providers needs create or a constructor with "
                    "(const weft_instance *, std::span<const Inner>)");
      unit.kind = WEFT_KIND_LAYER;
      unit.inner_min = info.inner_min;
      unit.inner_max = info.inner_max;
      unit.layer = &layer_unit<U>;
    } else {
      static_assert(info.needs_ep == 0,
                    "info.needs_ep is for layers: a provider has nothing beneath");
      static_assert(info.inner_min == 1 && info.inner_max == 1,
                    "info.inner_min and info.inner_max are for layers: a provider has nothing "
                    "beneath");
      unit.kind = WEFT_KIND_PROVIDER;
      unit.provider = &provider_unit<U>;
    }
  } else {
    static_assert(hook_names_an_op<U>(),
                  "this class is no provider or layer (it has no getinfo) and no hook (it has no "
                  "member named as an op of weft/sdk/objects/ops.h)");
    static_assert(Hook<U>,
                  "a hook needs a constructor, or a `static Result<std::unique_ptr<H>> create`, "
                  "without parameters or with (const weft_instance *)");
    unit.kind = WEFT_KIND_HOOK;
    unit.hook = &hook_unit<U>;
  }
  return unit;
}

}  // namespace unit_detail

// The C struct of a unit class.
template <class U>
inline constexpr weft_unit unit = unit_detail::make_unit<U>();

namespace unit_detail {

template <class... Units>
inline constexpr std::array<const weft_unit *, sizeof...(Units)> units{&unit<Units>...};

template <const PluginInfo &kInfo>
int32_t init(const weft_offer *offer, void **state, weft_error *why) noexcept {
  return boundary(why, [&]() -> Result<void> {
    WEFT_TRY(*state, kInfo.init(*offer));
    return {};
  });
}

template <const PluginInfo &kInfo>
void fini(void *state) noexcept {
  try {
    kInfo.fini(state);
  } catch (...) {  // nobody could act on it
  }
}

template <const PluginInfo &kInfo, class... Units>
constexpr weft_plugin_desc make_desc() {
  static_assert(kInfo.name != nullptr && kInfo.vendor != nullptr && kInfo.version != nullptr &&
                    kInfo.license != nullptr,
                "the PluginInfo of WEFT_PLUGIN must have a name, vendor, version and license");
  static_assert(sizeof...(Units) >= 1 && sizeof...(Units) <= WEFT_MAX_UNITS,
                "WEFT_PLUGIN needs at least one unit class, and at most WEFT_MAX_UNITS");
  weft_plugin_desc desc{.magic = WEFT_DESC_MAGIC,
                        .struct_size = sizeof desc,
                        .abi_major = WEFT_ABI_MAJOR,
                        .abi_minor = WEFT_ABI_MINOR,
                        .min_core_minor = kInfo.min_core_minor,
                        .required_core_caps = kInfo.required_core_caps,
                        .name = kInfo.name,
                        .vendor = kInfo.vendor,
                        .version = kInfo.version,
                        .license = kInfo.license,
                        .support = kInfo.support,
                        .units = units<Units...>.data(),
                        .unit_count = sizeof...(Units)};
  if constexpr (kInfo.init != nullptr) desc.init = &init<kInfo>;
  if constexpr (kInfo.fini != nullptr) desc.fini = &fini<kInfo>;
  return desc;
}

template <const PluginInfo &kInfo, class... Units>
inline constexpr weft_plugin_desc desc = make_desc<kInfo, Units...>();

}  // namespace unit_detail
}  // namespace weft::sdk

// WEFT_PLUGIN(info, Unit...): makes this file the plugin. `info` is a constexpr PluginInfo at
// namespace scope, the units are classes. Once per plugin, outside of any namespace.
#define WEFT_PLUGIN(info, ...)                                                         \
  extern "C" WEFT_EXPORT const weft_plugin_desc *weft_plugin_query(const weft_offer *, \
                                                                   weft_error *) {     \
    return &::weft::sdk::unit_detail::desc<info, __VA_ARGS__>;                         \
  }

#endif
