// SPDX-License-Identifier: BSD-2-Clause
// The decisions, stacks, plugins and settings of the front as JSON (weft/diagnosis.h).
#include <rdma/fi_domain.h>
#include <weft/nearest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/base/render.h"
#include "core/base/tostr.h"
#include "core/loader/discovery.h"
#include "core/select/front_impl.h"

namespace weft {
namespace {

using nlohmann::ordered_json;

// One unit of the name of a stack, or the whole name.
bool mentions(std::string_view candidate, const std::set<std::string> &names) {
  if (names.contains(lower(candidate))) return true;
  while (true) {
    const size_t end = candidate.find_first_of(";(+)");
    if (names.contains(lower(candidate.substr(0, end)))) return true;
    if (end == std::string_view::npos) return false;
    candidate.remove_prefix(end + 1);
  }
}

std::string caps_text(uint64_t caps) {
  char text[1024];
  to_text(&caps, FI_TYPE_CAPS, text, sizeof text);
  return text;
}

ordered_json chain_json(const std::vector<Stack::Explanation> &chain) {
  ordered_json json = ordered_json::array();
  for (const Stack::Explanation &element : chain) {
    ordered_json one = {{"unit", element.element}, {"lines", element.lines}};
    for (const auto &branch : element.branches) one["branches"].push_back(chain_json(branch));
    json.push_back(std::move(one));
  }
  return json;
}

}  // namespace

std::set<std::string> Front::Impl::names_of(std::string_view name) const {
  std::set<std::string> all = {lower(name)};
  if (const UnitInfo *unit = find_unit(loader->units(), name)) {
    all.insert(lower(unit->name));
    if (!unit->ofi_name.empty()) all.insert(lower(unit->ofi_name));
  }
  return all;
}

Result<std::string> Front::Impl::why_json(std::string_view name) {
  prepare();
  DecisionRecord asked;
  bool have = false;
  {
    std::lock_guard lock(record_mutex);
    asked = last;
    have = has_last;
  }
  if (!have) {
    fi_info *list = nullptr;
    (void)getinfo({FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), nullptr, nullptr, 0, nullptr},
                  &list);
    free_info(list);
    std::lock_guard lock(record_mutex);
    asked = last;
  }
  const std::set<std::string> wanted = names_of(name);
  DecisionRecord told;
  for (const DecisionRecord *from :
       {&loader->discovery(), static_cast<const DecisionRecord *>(&asked)}) {
    for (const Decision &one : from->decisions()) {
      const std::string_view candidate = one.candidate;
      const bool library = candidate.size() > 3 &&
                           candidate.substr(candidate.size() - 3) == ".so" &&
                           lower(candidate.substr(0, candidate.size() - 3)) == lower(name);
      if (name.empty() || library || mentions(candidate, wanted)) told.add(one);
    }
  }
  if (told.decisions().empty()) {
    for (const Slot &slot : slots) {
      if (!slot.candidate.only_by_name || lower(slot.candidate.name) != lower(name)) continue;
      Remedy remedy = "give it in FI_PROVIDER, or in prov_name of the hints";
      if (slot.candidate.only_for_caps != 0)
        remedy.words += ", with " + caps_text(slot.candidate.only_for_caps) + " in caps";
      told.add({.candidate = slot.candidate.label(),
                .stage = Stage::kPolicy,
                .cause = Cause::kNotNamed,
                .reason = "only those who ask for this name are offered it",
                .remedy = std::move(remedy),
                .rule = slot.candidate.origin});
    }
  }
  if (told.decisions().empty() && !name.empty()) told.add(absence_of(name));
  return told.to_json();
}

Decision Front::Impl::absence_of(std::string_view name) const {
  if (const UnitInfo *unit = find_unit(loader->units(), name))
    return {.candidate = std::string(name),
            .stage = Stage::kPolicy,
            .cause = Cause::kNotNamed,
            .reason = "it is a " + std::string(kind_name(unit->kind)) + " that no stack uses",
            .remedy = "name it in FI_HOOK or in a stack"};
  Decision absence{.candidate = std::string(name),
                   .stage = Stage::kManifest,
                   .cause = Cause::kBadName,
                   .reason = "no plugin has a unit or stack of this name",
                   .remedy = known_units(loader->units(), name, ~0u)};
  // It may be in a folder that was not looked into.
  for (const Decision &one : loader->discovery().decisions()) {
    const bool is_folder = std::any_of(policy.plugin_path.begin(), policy.plugin_path.end(),
                                       [&](const Sourced<std::string> &folder) {
                                         return one.rule == Rule::plugin(tidy_path(folder.value));
                                       });
    if (one.accepted || !is_folder) continue;
    absence.reason += "; the folder " + one.rule.name + " was refused: " + reason_of(one);
    absence.remedy.words += text_of(one.remedy) + "; ";
  }
  return absence;
}

Result<std::string> Front::Impl::explain_json(std::string_view wanted) {
  prepare();
  std::string why;
  ordered_json all;
  for (Slot &slot : slots) {
    const Candidate &candidate = slot.candidate;
    const bool labelled = candidate.origin == Rule::stack(std::string(wanted));
    if (!wanted.empty() && !labelled && !is_called(slot, wanted)) continue;
    const bool part = labelled || candidate.version != 0;  // perhaps of several
    if (!all.empty() && !part) continue;
    // Without a name it is the best that works, and its near one.
    if (wanted.empty() && (all.empty() ? candidate.is_near()
                                       : !candidate.is_near() || all["stack"] != candidate.name))
      continue;
    if (!slot.candidate.verdict.accepted) {
      why = line_of({.candidate = slot.candidate.name,
                     .reason = slot.candidate.verdict.reason,
                     .remedy = slot.candidate.verdict.remedy});
      continue;
    }
    const Built &built = build(slot);
    if (built.stack == nullptr) {
      why = unusable_line(built);
      continue;
    }
    ordered_json json;
    json["stack"] = built.stack->name();
    if (candidate.is_near()) json["offered_as"] = built.name;
    const Rule &origin = candidate.cause();
    json["origin"] = text_of(origin.empty() ? Rule::built_in() : origin);
    json["elements"] = chain_json(built.stack->explain());
    if (!part && !policy.local_shm->value) return dump(json);
    if (all.empty())
      all = std::move(json);
    else
      all["parts"].push_back(std::move(json));
  }
  if (!all.empty()) return dump(all);
  if (!why.empty()) return tl::unexpected<Error>(Error{FI_ENODATA, why});
  std::vector<std::string> known;
  for (const Slot &slot : slots) known.push_back(slot.candidate.name);
  const std::string close = nearest(wanted, known);
  return fail(FI_ENOENT, "no stack %s%s", in_quotes(wanted).c_str(),
              close.empty() ? "" : (": did you mean " + in_quotes(close) + "?").c_str());
}

ordered_json Front::Impl::unit_json(const UnitInfo &unit) const {
  static constexpr const char *kMaturity[] = {"", "stable", "beta", "experimental"};
  static constexpr const char *kSecurity[] = {"", "no network", "robust", "trusted peers"};
  const auto endpoints = [](uint32_t bits) {
    ordered_json list = ordered_json::array();
    for (const auto &[type, word] :
         {std::pair(FI_EP_MSG, "msg"), {FI_EP_RDM, "rdm"}, {FI_EP_DGRAM, "dgram"}}) {
      if ((bits & WEFT_EP_BIT(type)) != 0) list.push_back(word);
    }
    return list;
  };
  ordered_json json = {{"name", unit.name},
                       {"ofi_name", unit.ofi_name.empty() ? unit.name : unit.ofi_name},
                       {"kind", kind_name(unit.kind)},
                       {"version", std::to_string(FI_MAJOR(unit.version)) + "." +
                                       std::to_string(FI_MINOR(unit.version))},
                       {"summary", unit.summary},
                       {"rank", unit.rank},
                       {"maturity", unit.maturity < 4 ? kMaturity[unit.maturity] : ""},
                       {"security", unit.security < 4 ? kSecurity[unit.security] : ""},
                       {"needs", endpoints(unit.needs_ep)},
                       {"inner_min", unit.inner_min},
                       {"inner_max", unit.inner_max},
                       {"offers", endpoints(unit.offers_ep)},
                       {"devices", unit.devices},
                       {"device_remedy", unit.device_remedy},
                       {"library", unit.library},
                       {"manifest", unit.manifest},
                       {"plugin", unit.plugin}};
  const Judgement verdict = judge_unit(policy, unit);
  json["allowed"] = verdict.accepted;
  if (!verdict.accepted) json["reason"] = verdict.reason + " (" + text_of(verdict.rule) + ")";
  json["params"] = ordered_json::array();
  const std::vector<Setting> settings = settings_of(policy, unit);
  for (const ParamInfo &param : unit.params) {
    ordered_json one = {
        {"name", param.name},
        {"type", type_name(param.type)},
        {"help", param.help},
        {"variable", variables_of(unit, param.name).front()},
        {"default", param.has_default ? ordered_json(param.default_value) : ordered_json()}};
    if (param.minimum != 0 || param.maximum != 0) {
      one["minimum"] = param.minimum;
      one["maximum"] = param.maximum;
    }
    for (const Setting &setting : settings) {
      if (setting.key != param.name) continue;
      one["value"] = setting.value;
      one["origin"] = text_of(setting.where);
    }
    json["params"].push_back(std::move(one));
  }
  return json;
}

Result<std::string> Front::Impl::plugins_json() {
  prepare();
  ordered_json json;
  json["plugins"] = ordered_json::array();
  for (const PluginStatus &plugin : loader->plugins()) {
    ordered_json one = {
        {"name", plugin.name},       {"vendor", plugin.vendor},     {"version", plugin.version},
        {"library", plugin.library}, {"manifest", plugin.manifest}, {"state", plugin.state},
        {"stage", plugin.stage},     {"reason", plugin.reason},     {"remedy", plugin.remedy}};
    one["abi"] = plugin.abi;
    one["units"] = ordered_json::array();
    for (const std::string &name : plugin.units) {
      const UnitInfo *unit = find_unit(loader->units(), name);
      // A unit whose name belongs to another plugin is listed by name only.
      if (unit != nullptr && unit->library == plugin.library) {
        if (one.find("license") == one.end()) {
          one["license"] = unit->license;
          one["support"] = unit->support;
        }
        one["units"].push_back(unit_json(*unit));
      } else {
        one["units"].push_back({{"name", name}});
      }
    }
    json["plugins"].push_back(std::move(one));
  }
  json["troubles"] = json_of(loader->discovery());
  json["quarantine"] = loader_options().quarantine_file;
  json["folders"] = ordered_json::array();
  for (const auto &folder : policy.plugin_path)
    json["folders"].push_back({{"path", folder.value}, {"origin", text_of(folder.origin.where)}});
  json["folders"].push_back(
      {{"path", options.library_folder + "/weft"}, {"origin", text_of(Rule::built_in())}});
  return dump(json);
}

Result<std::string> Front::Impl::config_json() {
  prepare();
  return policy_json(policy, loader->units());
}

std::vector<FrontParam> Front::Impl::params() {
  prepare();
  std::vector<FrontParam> all;
  for (const UnitInfo &unit : loader->units()) {
    const std::vector<Setting> settings = settings_of(policy, unit);
    for (const ParamInfo &param : unit.params) {
      FrontParam one;
      one.variable = variables_of(unit, param.name).front();
      one.type = param.type == WEFT_TYPE_BOOL   ? FI_PARAM_BOOL
                 : param.type == WEFT_TYPE_INT  ? FI_PARAM_INT
                 : param.type == WEFT_TYPE_SIZE ? FI_PARAM_SIZE_T
                                                : FI_PARAM_STRING;
      one.help = unit.name + ": " + param.help;
      if (param.has_default) one.help += " (default: " + param.default_value + ")";
      for (const Setting &setting : settings) {
        if (setting.key != param.name) continue;
        one.is_set = true;
        one.value = setting.value;
        one.origin = text_of(setting.where);
      }
      all.push_back(std::move(one));
    }
  }
  return all;
}

Result<std::string> Front::why_json(std::string_view name) {
  return guarded([&] { return impl_->why_json(name); }, as_error);
}
Result<std::string> Front::explain_json(std::string_view stack) {
  return guarded([&] { return impl_->explain_json(stack); }, as_error);
}
Result<std::string> Front::plugins_json() {
  return guarded([&] { return impl_->plugins_json(); }, as_error);
}
Result<std::string> Front::config_json() {
  return guarded([&] { return impl_->config_json(); }, as_error);
}
std::vector<FrontParam> Front::params() {
  return guarded([&] { return impl_->params(); },
                 [&](int, const char *text) {
                   impl_->log(FI_LOG_CORE, "params", __LINE__, std::string("parameters: ") + text);
                   return std::vector<FrontParam>();
                 });
}

}  // namespace weft
