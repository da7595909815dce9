// SPDX-License-Identifier: BSD-2-Clause
// The merged policy as JSON: what `weft config show --origin` and `weft config lint` print.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/select/candidates.h"
#include "core/select/dump.h"
#include "core/select/policy.h"

namespace weft {
namespace {

using nlohmann::ordered_json;

class Values {
 public:
  void add(const std::string &key, ordered_json value, const Origin &origin) {
    list_.push_back({{"key", key},
                     {"value", std::move(value)},
                     {"origin", origin.where},
                     {"final", origin.final}});
  }
  ordered_json take() { return std::move(list_); }

 private:
  ordered_json list_ = ordered_json::array();
};

ordered_json names(const std::vector<Sourced<std::string>> &list) {
  ordered_json out = ordered_json::array();
  for (const auto &one : list) out.push_back(one.value);
  return out;
}

ordered_json rule_json(const RankRule &rule) {
  ordered_json match = ordered_json::object();
  for (const auto &[key, pattern] : {std::pair("provider", &rule.provider),
                                     {"netdev", &rule.netdev},
                                     {"subnet", &rule.subnet},
                                     {"ep_type", &rule.ep_type},
                                     {"hostname", &rule.hostname},
                                     {"executable", &rule.executable}}) {
    if (!pattern->empty()) match[key] = *pattern;
  }
  ordered_json out = {{"match", std::move(match)}};
  if (rule.rank) out["rank"] = *rule.rank;
  if (rule.enable) out["enable"] = *rule.enable;
  return out;
}

ordered_json stack_json(const StackSpec &spec) {
  ordered_json out = ordered_json::array();
  for (const StackElement &element : spec.elements) {
    ordered_json one = {{std::string(kind_name(element.kind)), element.name}};
    for (const Setting &setting : element.params) one["params"][setting.key] = setting.value;
    if (element.skip_if_unavailable) one["on_unavailable"] = "skip";
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

std::string policy_json(const Policy &policy, const std::vector<UnitInfo> &units) {
  Values values;
  if (policy.enable)
    values.add("providers.enable", names(policy.enable->value), policy.enable->origin);
  for (const auto &one : policy.disable) values.add("providers.disable", one.value, one.origin);
  for (const RankRule &rule : policy.ranks)
    values.add("providers.rank", rule_json(rule), rule.origin);
  for (const StackSpec &spec : policy.stacks)
    values.add("stacks." + spec.name, stack_json(spec), spec.origin);
  if (policy.use) values.add("use", names(policy.use->value), policy.use->origin);
  if (policy.filter) {
    ordered_json items = ordered_json::array();
    for (const FilterItem &item : policy.filter->items) {
      std::string text;
      for (const Word &word : item.units) text += (text.empty() ? "" : ";") + word.text;
      items.push_back(std::move(text));
    }
    values.add(policy.filter->exclude ? "filter.exclude" : "filter.include", std::move(items),
               {"environment FI_PROVIDER"});
  }
  if (!policy.hooks.empty()) {
    ordered_json hooks = ordered_json::array();
    for (const Word &word : policy.hooks) hooks.push_back(word.text);
    values.add("hooks", std::move(hooks), {"environment FI_HOOK"});
  }
  // Parameters as the units get them; those of units that are not here as they were written.
  std::vector<Diagnostic> diagnostics = policy.diagnostics;
  for (const UnitInfo &unit : units) {
    std::map<std::string, Setting> strongest;
    for (Setting &setting : settings_of(policy, unit, &diagnostics))
      strongest[setting.key] = setting;
    for (const auto &[key, setting] : strongest) {
      const std::string full = "params." + unit.name + "." + key;
      values.add(full, setting.value, {setting.where, final_key(policy, full) != nullptr});
    }
    for (const ParamInfo &param : unit.params) {
      if (!strongest.contains(param.name) && param.has_default)
        values.add("params." + unit.name + "." + param.name, param.default_value, {"default"});
    }
  }
  for (const auto &[unit, key, value] : policy.params) {
    if (find_unit(units, unit) == nullptr)
      values.add("params." + unit + "." + key, value.value, value.origin);
  }
  for (const auto &one : policy.plugin_path) values.add("plugins.path", one.value, one.origin);
  values.add("plugins.unprobed", policy.unprobed_allow->value ? "allow" : "deny",
             policy.unprobed_allow->origin);
  values.add("control", policy.control_allow->value ? "allow" : "deny",
             policy.control_allow->origin);
  values.add("plugins.probe_budget_ms", policy.probe_budget_ms->value,
             policy.probe_budget_ms->origin);
  for (const auto &one : policy.final_keys) values.add("final", one.value, one.origin);

  std::vector<const Policy *> all = {&policy};
  for (const Policy &one : policy.flawed) all.push_back(&one);
  for (const Policy *one : all) {
    for (Diagnostic &name : check_names(*one, units)) {
      // What a file with errors shares with the others is told once.
      const bool told =
          std::any_of(diagnostics.begin(), diagnostics.end(), [&](const Diagnostic &other) {
            return other.where == name.where && other.text == name.text;
          });
      if (!told) diagnostics.push_back(std::move(name));
    }
  }
  ordered_json json;
  json["files"] = ordered_json::array();
  for (const PolicyFile &file : policy.files)
    json["files"].push_back({{"path", file.path}, {"system", file.system}, {"used", file.used}});
  json["diagnostics"] = ordered_json::array();
  for (const Diagnostic &one : diagnostics)
    json["diagnostics"].push_back({{"severity", one.error  ? "error"
                                                : one.note ? "note"
                                                           : "warning"},
                                   {"where", one.where},
                                   {"text", one.text}});
  json["values"] = values.take();
  return dump(json);
}

}  // namespace weft
