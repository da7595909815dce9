// SPDX-License-Identifier: BSD-2-Clause
#include "core/probe/record_json.h"

#include <absl/strings/str_cat.h>

#include <array>
#include <nlohmann/json.hpp>

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char *, 4> kVerdicts = {"unprobed", "ok", "rejected", "quarantined"};
constexpr std::array<const char *, 4> kKinds = {"", "provider", "layer", "hook"};
constexpr std::array<const char *, 4> kMaturity = {"", "stable", "beta", "experimental"};
constexpr std::array<const char *, 4> kSecurity = {"", "no network", "robust", "trusted peers"};
constexpr std::array<const char *, 6> kTypes = {"", "bool", "int", "size", "string", "list"};

template <size_t N>
const char *word(const std::array<const char *, N> &words, size_t value) {
  return value < N ? words[value] : "";
}

Json endpoints(uint32_t bits) {
  Json list = Json::array();
  if ((bits & WEFT_EP_BIT(FI_EP_MSG)) != 0) list.push_back("msg");
  if ((bits & WEFT_EP_BIT(FI_EP_RDM)) != 0) list.push_back("rdm");
  if ((bits & WEFT_EP_BIT(FI_EP_DGRAM)) != 0) list.push_back("dgram");
  return list;
}

Json param_json(const ParamInfo &param) {
  Json json = {{"name", param.name},
               {"type", word(kTypes, param.type)},
               {"help", param.help},
               {"default", param.has_default ? Json(param.default_value) : Json(nullptr)}};
  if (param.minimum != 0 || param.maximum != 0) {
    json["minimum"] = param.minimum;
    json["maximum"] = param.maximum;
  }
  return json;
}

Json unit_json(const UnitInfo &unit) {
  Json params = Json::array();
  for (const ParamInfo &param : unit.params) params.push_back(param_json(param));
  return {{"name", unit.name},
          {"ofi_name", unit.ofi_name.empty() ? unit.name : unit.ofi_name},
          {"kind", word(kKinds, unit.kind)},
          {"version", absl::StrCat(FI_MAJOR(unit.version), ".", FI_MINOR(unit.version))},
          {"summary", unit.summary},
          {"rank", unit.rank},
          {"maturity", word(kMaturity, unit.maturity)},
          {"security", word(kSecurity, unit.security)},
          {"needs", endpoints(unit.needs_ep)},
          {"inner_min", unit.inner_min},
          {"inner_max", unit.inner_max},
          {"offers", endpoints(unit.offers_ep)},
          {"devices", unit.devices},
          {"params", std::move(params)}};
}

Json json_of(const PluginRecord &record) {
  const bool refused = record.verdict != Verdict::kOk && !record.rejection.cause.empty();
  Json json = {{"library", record.library},
               {"verdict", word(kVerdicts, static_cast<size_t>(record.verdict))},
               {"stage", refused ? std::string(stage_name(record.rejection.stage)) : ""},
               {"reason", record.rejection.cause},
               {"remedy", record.rejection.remedy},
               {"name", record.name},
               {"vendor", record.vendor},
               {"version", record.version},
               {"license", record.license},
               {"support", record.support}};
  json["abi"] = record.abi_major == 0 ? "" : absl::StrCat(record.abi_major, ".", record.abi_minor);
  json["min_core_minor"] = record.min_core_minor;
  json["units"] = Json::array();
  for (const UnitInfo &unit : record.units) json["units"].push_back(unit_json(unit));
  return json;
}

// Texts come from plugins and need not be UTF-8.
std::string dumped(const Json &json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string record_json(const PluginRecord &record) {
  return dumped(json_of(record));
}

std::string records_json(const std::vector<PluginRecord> &records) {
  Json list = Json::array();
  for (const PluginRecord &record : records) list.push_back(json_of(record));
  return dumped(list);
}

}  // namespace weft
