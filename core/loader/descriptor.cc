// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/descriptor.h"

#include <weft/printable.h>

#include <cinttypes>
#include <cstdarg>
#include <cstddef>
#include <cstring>
#include <set>
#include <utility>

#ifndef WEFT_VERSION
#define WEFT_VERSION "0.1.0"
#endif

namespace weft {
namespace {

// The struct sizes of ABI 1.0: where the last member that must be there ends. They stay the same
// when the structs grow.
constexpr size_t kDescSize = offsetof(weft_plugin_desc, fini) + sizeof(weft_plugin_desc::fini);
constexpr size_t kUnitSize = offsetof(weft_unit, hook) + sizeof(void *);
constexpr size_t kParamSize = offsetof(weft_param, maximum) + sizeof(weft_param::maximum);
constexpr size_t kProviderUnitSize =
    offsetof(weft_provider_unit, create) + sizeof(weft_provider_unit::create);
constexpr size_t kLayerUnitSize = offsetof(weft_layer_unit, wrap) + sizeof(weft_layer_unit::wrap);
constexpr size_t kHookUnitSize =
    offsetof(weft_hook_unit, release) + sizeof(weft_hook_unit::release);

constexpr uint64_t kMustUnderstand = UINT64_C(0xffffffff00000000);
constexpr uint64_t kKnownDescCaps = 0, kKnownUnitCaps = 0;
constexpr uint32_t kEpTypes =
    WEFT_EP_BIT(FI_EP_MSG) | WEFT_EP_BIT(FI_EP_DGRAM) | WEFT_EP_BIT(FI_EP_RDM);

__attribute__((format(printf, 1, 2))) tl::unexpected<Rejection> faulty(const char *cause, ...) {
  va_list args;
  va_start(args, cause);
  auto rejection = vreject(Stage::kNegotiate, cause, args);
  va_end(args);
  return with_remedy(std::move(rejection), "%s", kFaultyPlugin);
}

// Copies text that ends within `bound` bytes. Text is for people, YAML and JSON: it is made
// printable.
bool copy_text(const char *from, size_t bound, std::string &to) {
  to.clear();
  if (from == nullptr) return true;
  const size_t length = strnlen(from, bound);
  if (length == bound) return false;
  to = printable({from, length});
  return true;
}

// An untrusted name, in the form that a rejection may show.
std::string shown(const char *name) {
  if (name == nullptr) return "(null)";
  const size_t length = strnlen(name, kMaxName);
  return printable({name, length < 32 ? length : 32});
}

Checked<ParamInfo> check_param(const char *unit, uint32_t i, const weft_param *param) {
  if (param == nullptr) return faulty("params[%u] of unit '%s' is NULL", i, unit);
  if (param->struct_size < kParamSize)
    return faulty("params[%u] of unit '%s' has struct_size %u, ABI 1.0 needs %zu", i, unit,
                  param->struct_size, kParamSize);
  ParamInfo info;
  if (!copy_text(param->name, kMaxName, info.name))
    return faulty("the name of params[%u] of unit '%s' has no end within %zu bytes", i, unit,
                  kMaxName);
  if (!valid_name(info.name, false))
    return faulty("params[%u] of unit '%s' is named '%s': only a-z 0-9 _ are allowed", i, unit,
                  shown(param->name).c_str());
  if (param->type < WEFT_TYPE_BOOL || param->type > WEFT_TYPE_LIST)
    return faulty("parameter '%s' of unit '%s' has type %u, known are %u to %u", info.name.c_str(),
                  unit, param->type, WEFT_TYPE_BOOL, WEFT_TYPE_LIST);
  if (!copy_text(param->default_value, kMaxText, info.default_value) ||
      !copy_text(param->help, kMaxText, info.help))
    return faulty("default or help of parameter '%s' of unit '%s' has no end within %zu bytes",
                  info.name.c_str(), unit, kMaxText);
  if (param->minimum > param->maximum)
    return faulty("parameter '%s' of unit '%s' has minimum %" PRId64 " above maximum %" PRId64,
                  info.name.c_str(), unit, param->minimum, param->maximum);
  if ((param->minimum != 0 || param->maximum != 0) && param->type != WEFT_TYPE_INT &&
      param->type != WEFT_TYPE_SIZE)
    return faulty("parameter '%s' of unit '%s' has limits, but is no number", info.name.c_str(),
                  unit);
  info.type = param->type;
  info.has_default = param->default_value != nullptr;
  info.minimum = param->minimum;
  info.maximum = param->maximum;
  return info;
}

// Checks that a unit has the table of its kind, complete, and no other.
Checked<void> check_tables(const char *name, const weft_unit &unit) {
  const bool provider = unit.provider != nullptr, layer = unit.layer != nullptr,
             hook = unit.hook != nullptr;
  if (unit.kind < WEFT_KIND_PROVIDER || unit.kind > WEFT_KIND_HOOK)
    return faulty("unit '%s' is of kind %u, known are 1 (provider), 2 (layer), 3 (hook)", name,
                  unit.kind);
  if (provider != (unit.kind == WEFT_KIND_PROVIDER) || layer != (unit.kind == WEFT_KIND_LAYER) ||
      hook != (unit.kind == WEFT_KIND_HOOK))
    return faulty(
        "unit '%s' of kind %u has the tables provider=%d layer=%d hook=%d: exactly the one "
        "of its kind must be set",
        name, unit.kind, provider, layer, hook);
  if (provider && (unit.provider->struct_size < kProviderUnitSize || !unit.provider->create))
    return faulty(
        "the provider table of unit '%s' has struct_size %u (ABI 1.0 needs %zu) or no "
        "create function",
        name, unit.provider->struct_size, kProviderUnitSize);
  if (layer && (unit.layer->struct_size < kLayerUnitSize || !unit.layer->wrap))
    return faulty(
        "the layer table of unit '%s' has struct_size %u (ABI 1.0 needs %zu) or no wrap "
        "function",
        name, unit.layer->struct_size, kLayerUnitSize);
  if (hook && (unit.hook->struct_size < kHookUnitSize || !unit.hook->create || !unit.hook->overlay))
    return faulty(
        "the hook table of unit '%s' has struct_size %u (ABI 1.0 needs %zu), no create "
        "function or no overlay",
        name, unit.hook->struct_size, kHookUnitSize);
  return {};
}

Checked<UnitInfo> check_unit(uint32_t i, const weft_unit *unit) {
  if (unit == nullptr) return faulty("units[%u] is NULL", i);
  if (unit->magic != WEFT_UNIT_MAGIC)
    return faulty("units[%u] begins with magic 0x%08x, not 0x%08x (\"WFTU\")", i, unit->magic,
                  WEFT_UNIT_MAGIC);
  if (unit->struct_size < kUnitSize)
    return faulty("units[%u] has struct_size %u, ABI 1.0 needs %zu", i, unit->struct_size,
                  kUnitSize);
  UnitInfo info;
  if (!copy_text(unit->name, kMaxName, info.name))
    return faulty("the name of units[%u] has no end within %zu bytes", i, kMaxName);
  if (!valid_name(info.name, true))
    return faulty("units[%u] is named '%s': only a-z 0-9 - _ are allowed", i,
                  shown(unit->name).c_str());
  const char *name = info.name.c_str();
  if (const uint64_t unknown = unit->caps & kMustUnderstand & ~kKnownUnitCaps)
    return with_remedy(reject(Stage::kNegotiate,
                              "unit '%s' sets capability bits 0x%" PRIx64
                              ", which this core does not know and must "
                              "understand",
                              name, unknown),
                       "update weft to a release that knows them");
  if (!copy_text(unit->ofi_name, kMaxName, info.ofi_name))
    return faulty("the ofi_name of unit '%s' has no end within %zu bytes", name, kMaxName);
  if (info.ofi_name.empty()) info.ofi_name = info.name;
  if (!valid_name(info.ofi_name, true))
    return faulty("unit '%s' has the ofi_name '%s': only a-z 0-9 - _ are allowed", name,
                  shown(unit->ofi_name).c_str());
  if (!copy_text(unit->summary, kMaxText, info.summary))
    return faulty("the summary of unit '%s' has no end within %zu bytes", name, kMaxText);
  if (Checked<void> tables = check_tables(name, *unit); !tables)
    return tl::unexpected<Rejection>(tables.error());
  if ((unit->needs_ep | unit->offers_ep) & ~kEpTypes)
    return faulty("unit '%s' needs 0x%x and offers 0x%x: endpoint types beyond 0x%x are not known",
                  name, unit->needs_ep, unit->offers_ep, kEpTypes);
  if (unit->kind != WEFT_KIND_LAYER && (unit->inner_min | unit->inner_max) != 0)
    return faulty("unit '%s' takes %u to %u inner providers, but only a layer takes any", name,
                  unit->inner_min, unit->inner_max);
  if (unit->kind == WEFT_KIND_LAYER && (unit->inner_min < 1 || unit->inner_min > unit->inner_max ||
                                        unit->inner_max > WEFT_MAX_INNER))
    return faulty(
        "layer '%s' takes %u to %u inner providers: at least 1 and at most %u are allowed", name,
        unit->inner_min, unit->inner_max, WEFT_MAX_INNER);
  if (unit->maturity < WEFT_MATURITY_STABLE || unit->maturity > WEFT_MATURITY_EXPERIMENTAL)
    return faulty("unit '%s' has maturity %u, known are 1 to 3", name, unit->maturity);
  if (unit->security < WEFT_SECURITY_NO_NETWORK || unit->security > WEFT_SECURITY_TRUSTED_PEERS)
    return faulty("unit '%s' has security %u, known are 1 to 3", name, unit->security);
  if (unit->device_count > kMaxDevices || (unit->device_count != 0 && unit->devices == nullptr))
    return faulty("unit '%s' has %u devices (%s); at most %zu are allowed", name,
                  unit->device_count, unit->devices == nullptr ? "no array" : "array given",
                  kMaxDevices);
  if (unit->param_count > kMaxParams || (unit->param_count != 0 && unit->params == nullptr))
    return faulty("unit '%s' has %u parameters (%s); at most %zu are allowed", name,
                  unit->param_count, unit->params == nullptr ? "no array" : "array given",
                  kMaxParams);
  for (uint32_t d = 0; d < unit->device_count; ++d) {
    std::string device;
    if (unit->devices[d] == nullptr || !copy_text(unit->devices[d], kMaxText, device))
      return faulty("devices[%u] of unit '%s' is NULL or has no end within %zu bytes", d, name,
                    kMaxText);
    const size_t colon = device.find(':');
    if (colon == 0 || colon == std::string::npos || colon + 1 == device.size() ||
        device.find_first_not_of("abcdefghijklmnopqrstuvwxyz") != colon)
      return faulty(
          "devices[%u] of unit '%s' is '%s': it must look like pci:15b3:* or path:/dev/x*", d, name,
          device.c_str());
    info.devices.push_back(std::move(device));
  }
  std::set<std::string> seen;
  for (uint32_t p = 0; p < unit->param_count; ++p) {
    Checked<ParamInfo> param = check_param(name, p, unit->params[p]);
    if (!param) return tl::unexpected<Rejection>(param.error());
    if (!seen.insert(param->name).second)
      return faulty("unit '%s' declares parameter '%s' twice", name, param->name.c_str());
    info.params.push_back(*std::move(param));
  }
  constexpr size_t kWithRemedy = offsetof(weft_unit, device_remedy) + sizeof(void *);
  if (unit->struct_size >= kWithRemedy &&
      !copy_text(unit->device_remedy, kMaxText, info.device_remedy))
    return faulty("the device_remedy of unit '%s' has no end within %zu bytes", name, kMaxText);
  info.kind = unit->kind;
  info.version = unit->version;
  info.needs_ep = unit->needs_ep;
  info.inner_min = unit->inner_min;
  info.inner_max = unit->inner_max;
  info.offers_ep = unit->offers_ep;
  info.rank = unit->rank;
  info.maturity = unit->maturity;
  info.security = unit->security;
  return info;
}

Checked<void> check_versions(const weft_plugin_desc &desc, const CoreAbi &abi) {
  if (desc.abi_major > abi.major)
    return with_remedy(reject(Stage::kNegotiate, "built for plugin ABI %u.%u; this core has %u.%u",
                              desc.abi_major, desc.abi_minor, abi.major, abi.minor),
                       "update weft to a release with ABI %u, or get the plugin built for ABI %u",
                       desc.abi_major, abi.major);
  if (desc.abi_major < abi.major_min)
    return with_remedy(
        reject(Stage::kNegotiate, "built for plugin ABI %u.%u; this core loads %u and newer",
               desc.abi_major, desc.abi_minor, abi.major_min),
        "update the plugin");
  if (desc.abi_major == abi.major && desc.min_core_minor > abi.minor)
    return with_remedy(
        reject(Stage::kNegotiate, "needs a core with ABI %u.%u or newer; this one has %u.%u",
               desc.abi_major, desc.min_core_minor, abi.major, abi.minor),
        "update weft, or use an older release of the plugin");
  if (const uint64_t missing = desc.required_core_caps & ~abi.caps)
    return with_remedy(reject(Stage::kNegotiate,
                              "requires core capabilities 0x%" PRIx64 ", of which this core lacks "
                              "0x%" PRIx64,
                              desc.required_core_caps, missing),
                       "update weft to a release that offers them");
  if (const uint64_t unknown = desc.caps & kMustUnderstand & ~kKnownDescCaps)
    return with_remedy(
        reject(Stage::kNegotiate,
               "sets capability bits 0x%" PRIx64 ", which this core does not know and "
               "must understand",
               unknown),
        "update weft to a release that knows them");
  return {};
}

}  // namespace

bool valid_name(std::string_view name, bool dash) {
  if (name.empty()) return false;
  for (char c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || (dash && c == '-')))
      return false;
  return true;
}

weft_offer make_offer(const weft_core_services *services, const CoreAbi &abi) {
  weft_offer offer{};
  offer.magic = WEFT_OFFER_MAGIC;
  offer.struct_size = sizeof offer;
  offer.abi_major = abi.major;
  offer.abi_minor = abi.minor;
  offer.abi_major_min = abi.major_min;
  offer.core_caps = abi.caps;
  offer.core = services;
  offer.core_version = WEFT_VERSION;
  return offer;
}

Checked<PluginRecord> check_descriptor(const weft_plugin_desc *desc, const weft_error &why,
                                       const CoreAbi &abi) {
  if (desc == nullptr) {
    std::string text;
    if (!copy_text(why.text, sizeof why.text, text)) text = "(reason not terminated)";
    return with_remedy(reject(Stage::kNegotiate, "the plugin declines this core: %s",
                              text.empty() ? "it gave no reason" : text.c_str()),
                       "see the plugin's documentation for the weft releases it supports");
  }
  if (desc->magic != WEFT_DESC_MAGIC)
    return faulty("the descriptor begins with magic 0x%08x, not 0x%08x (\"WFTD\")", desc->magic,
                  WEFT_DESC_MAGIC);
  if (desc->struct_size < kDescSize)
    return faulty("the descriptor has struct_size %u, ABI 1.0 needs %zu", desc->struct_size,
                  kDescSize);
  if (Checked<void> versions = check_versions(*desc, abi); !versions)
    return tl::unexpected<Rejection>(versions.error());

  PluginRecord record;
  if (!copy_text(desc->name, kMaxName, record.name))
    return faulty("the name of the plugin has no end within %zu bytes", kMaxName);
  if (!valid_name(record.name, true))
    return faulty("the plugin is named '%s': only a-z 0-9 - _ are allowed",
                  shown(desc->name).c_str());
  if (!copy_text(desc->vendor, kMaxText, record.vendor) ||
      !copy_text(desc->version, kMaxText, record.version) ||
      !copy_text(desc->license, kMaxText, record.license) ||
      !copy_text(desc->support, kMaxText, record.support))
    return faulty("vendor, version, license or support has no end within %zu bytes", kMaxText);
  if (record.vendor.empty() || record.version.empty() || record.license.empty())
    return faulty("the descriptor names no %s", record.vendor.empty()    ? "vendor"
                                                : record.version.empty() ? "version"
                                                                         : "license");
  record.abi_major = desc->abi_major;
  record.abi_minor = desc->abi_minor;
  record.min_core_minor = desc->min_core_minor;

  if (desc->unit_count == 0 || desc->unit_count > WEFT_MAX_UNITS || desc->units == nullptr)
    return faulty("unit_count is %u (%s); 1 to %d are allowed", desc->unit_count,
                  desc->units == nullptr ? "no array" : "array given", WEFT_MAX_UNITS);
  std::set<std::string> names;
  for (uint32_t i = 0; i < desc->unit_count; ++i) {
    Checked<UnitInfo> unit = check_unit(i, desc->units[i]);
    if (!unit) return tl::unexpected<Rejection>(unit.error());
    if (!names.insert(unit->name).second ||
        (unit->ofi_name != unit->name && !names.insert(unit->ofi_name).second))
      return faulty("units[%u] '%s' (%s) has a name that another unit of the same file has", i,
                    unit->name.c_str(), unit->ofi_name.c_str());
    unit->plugin = record.name;
    unit->vendor = record.vendor;
    unit->plugin_version = record.version;
    unit->license = record.license;
    unit->support = record.support;
    record.units.push_back(*std::move(unit));
  }
  return record;
}

const weft_unit *find_unit(const weft_plugin_desc &desc, const std::string &name) {
  for (uint32_t i = 0; i < desc.unit_count; ++i)
    if (name == desc.units[i]->name) return desc.units[i];
  return nullptr;
}

}  // namespace weft
