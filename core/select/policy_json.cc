// SPDX-License-Identifier: BSD-2-Clause
// The merged policy as JSON: what `weft config show --origin` and `weft config lint` print.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "config/policy_keys.h"
#include "core/base/json.h"
#include "core/base/render.h"
#include "core/select/candidates.h"
#include "core/select/policy.h"

namespace weft {
namespace {

using nlohmann::ordered_json;

ordered_json names(const NameList &list) {
  ordered_json out = ordered_json::array();
  for (const auto &one : list) out.push_back(one.value);
  return out;
}

ordered_json rule_json(const RankRule &rule) {
  ordered_json out = {{"match", ordered_json::object()}};
  for_each_key<RankRule>([&](const PolicyKey &key, auto member) {
    const auto &value = rule.*member;
    const std::string name(key.name());
    if constexpr (std::is_same_v<decltype(member), std::string RankRule::*>) {
      if (!value.empty()) out["match"][name] = value;
    } else {
      if (value) out[name] = *value;
    }
  });
  return out;
}

ordered_json stack_json(const std::vector<StackElement> &elements) {
  ordered_json out = ordered_json::array();
  for (const StackElement &element : elements) {
    ordered_json one = {{std::string(kind_name(element.kind)), element.name}};
    for_each_key<StackElement>([&](const PolicyKey &key, auto member) {
      const auto &value = element.*member;
      const std::string name(key.name());
      if constexpr (std::is_same_v<decltype(member), bool StackElement::*>) {
        if (value) one[name] = words_of(key.form)[1];
      } else if constexpr (std::is_same_v<decltype(member), std::vector<Setting> StackElement::*>) {
        for (const Setting &setting : value) one[name][setting.key] = setting.value;
      } else if constexpr (requires { value[0][0].branches; }) {
        for (const auto &branch : value) one[name].push_back(stack_json(branch));
      }
    });
    out.push_back(std::move(one));
  }
  return out;
}

// The values of all keys, each with its origin, in the order of the table of keys.
class Values {
 public:
  Values(const Policy &policy, const std::vector<UnitInfo> &units,
         std::vector<Diagnostic> &diagnostics)
      : policy_(policy), units_(units), diagnostics_(diagnostics) {}

  ordered_json list() {
    for_each_key<PolicyContent>(
        [&](const PolicyKey &key, auto member) { add(key, policy_.*member); });
    return std::move(list_);
  }

 private:
  void add(const std::string &path, ordered_json value, const Origin &origin) {
    list_.push_back({{"key", path},
                     {"value", std::move(value)},
                     {"origin", text_of(origin.where)},
                     {"final", origin.final}});
  }

  template <class T>
  void add(const PolicyKey &key, const std::optional<Sourced<T>> &value) {
    if (!value) return;
    const std::string path(key.path);
    if constexpr (std::is_same_v<T, NameList>)
      add(path, names(value->value), value->origin);
    else if constexpr (std::is_same_v<T, bool>)
      add(path, words_of(key.form)[value->value ? 0 : 1], value->origin);
    else
      add(path, value->value, value->origin);
  }
  void add(const PolicyKey &key, const NameList &list) {
    for (const auto &one : list) add(path_of(key, one), one.value, one.origin);
  }
  void add(const PolicyKey &key, const std::vector<RankRule> &rules) {
    for (const RankRule &rule : rules) add(path_of(key, rule), rule_json(rule), rule.origin);
  }
  void add(const PolicyKey &key, const std::vector<StackSpec> &stacks) {
    for (const StackSpec &spec : stacks)
      add(path_of(key, spec), stack_json(spec.elements), spec.origin);
  }

  // Parameters as the units get them; those of units that are not here as they were written. In
  // front of them what the environment says.
  void add(const PolicyKey &key, const std::vector<UnitParam> &params) {
    add_environment();
    const auto path = [&](const std::string &unit, const std::string &name) {
      return path_of(key, UnitParam{unit, name, {}});
    };
    for (const UnitInfo &unit : units_) {
      std::map<std::string, Setting> strongest;
      for (Setting &setting : settings_of(policy_, unit, &diagnostics_))
        strongest[setting.key] = setting;
      for (const auto &[name, setting] : strongest) {
        const std::string full = path(unit.name, name);
        add(full, setting.value, {setting.where, final_key(policy_, full) != nullptr});
      }
      for (const ParamInfo &param : unit.params) {
        if (!strongest.contains(param.name) && param.has_default)
          add(path(unit.name, param.name), param.default_value, {Rule::of_declaration()});
      }
    }
    for (const UnitParam &param : params) {
      if (find_unit(units_, param.unit) == nullptr)
        add(path_of(key, param), param.value.value, param.value.origin);
    }
  }

  void add_environment() {
    if (policy_.filter) {
      ordered_json items = ordered_json::array();
      for (const FilterItem &item : policy_.filter->items) {
        std::string text;
        for (const Word &word : item.units) text += (text.empty() ? "" : ";") + word.text;
        items.push_back(std::move(text));
      }
      add(policy_.filter->exclude ? "filter.exclude" : "filter.include", std::move(items),
          {Rule::environment("FI_PROVIDER")});
    }
    if (!policy_.hooks.empty()) {
      ordered_json hooks = ordered_json::array();
      for (const Word &word : policy_.hooks) hooks.push_back(word.text);
      add("hooks", std::move(hooks), {Rule::environment("FI_HOOK")});
    }
  }

  const Policy &policy_;
  const std::vector<UnitInfo> &units_;
  std::vector<Diagnostic> &diagnostics_;
  ordered_json list_ = ordered_json::array();
};

}  // namespace

std::string policy_json(const Policy &policy, const std::vector<UnitInfo> &units) {
  std::vector<Diagnostic> diagnostics = policy.diagnostics;
  ordered_json values = Values(policy, units, diagnostics).list();
  std::vector<const Policy *> all = {&policy};
  for (const Policy &one : policy.flawed) all.push_back(&one);
  for (const Policy *one : all) {
    for (Diagnostic &name : check_names(*one, units)) {
      // A name that a file with errors shares with the others is told once.
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
  for (const Diagnostic &one : diagnostics) json["diagnostics"].push_back(json_of(one));
  json["values"] = std::move(values);
  return dump(json);
}

}  // namespace weft
