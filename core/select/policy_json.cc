// SPDX-License-Identifier: BSD-2-Clause
// The merged policy as JSON: what `weft config show --all` and `weft config lint` print.
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <utility>

#include "config/policy_keys.h"
#include "core/base/each_element.h"
#include "core/base/json.h"
#include "core/base/render.h"
#include "core/select/candidates.h"
#include "core/select/meaning.h"
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

// A list of values, each with its key and origin, and with its meaning where that is written in
// another way.
class Values {
 public:
  explicit Values(const Meaning &meaning) : meaning_(meaning) {}

  void add(const std::string &path, ordered_json value, const Origin &origin,
           const ordered_json &means = nullptr) {
    const bool same = means.is_null() || means == value;
    list_.push_back({{"key", path},
                     {"value", std::move(value)},
                     {"origin", text_of(origin.where)},
                     {"final", origin.final}});
    if (!same) list_.back()["means"] = means;
  }

  template <class T>
  void add(const PolicyKey &key, const std::optional<Sourced<T>> &value) {
    if (!value) return;
    const std::string path(key.path);
    if constexpr (std::is_same_v<T, NameList>)
      add(path, names(value->value), value->origin, meaning_.of(key.form, value->value));
    else if constexpr (std::is_same_v<T, bool>)
      add(path, words_of(key.form)[value->value ? 0 : 1], value->origin);
    else
      add(path, value->value, value->origin);
  }
  void add(const PolicyKey &key, const NameList &list) {
    for (const auto &one : list)
      add(path_of(key, one), one.value, one.origin, meaning_.of(key.form, one.value));
  }
  void add(const PolicyKey &key, const std::vector<RankRule> &rules) {
    for (const RankRule &rule : rules)
      add(path_of(key, rule), rule_json(rule), rule.origin, rule_json(meaning_.of(rule)));
  }
  void add(const PolicyKey &key, const std::vector<StackSpec> &stacks) {
    for (const StackSpec &spec : stacks)
      add(path_of(key, spec), stack_json(spec.elements), spec.origin,
          stack_json(meaning_.of(spec.elements)));
  }
  void add(const PolicyKey &key, const std::vector<UnitParam> &params) {
    for (const UnitParam &param : params)
      add(path_of(key, param), param.value.value, param.value.origin);
  }

  ordered_json take() { return std::move(list_); }

 private:
  const Meaning &meaning_;
  ordered_json list_ = ordered_json::array();
};

// The values of a policy, those that count and those that do not.
class PolicyValues {
 public:
  PolicyValues(const Policy &policy, const std::vector<UnitInfo> &units,
               std::vector<Diagnostic> &diagnostics)
      : policy_(policy), units_(units), diagnostics_(diagnostics) {
    for (const Overridden &one : policy.overridden) overridden(one);
    lifted_by_filter();
    params_in_stacks();
    // In the order of the table of keys. The environment stands in front of the parameters.
    for_each_key<PolicyContent>([&](const PolicyKey &key, auto member) {
      if constexpr (std::is_same_v<decltype(member), std::vector<UnitParam> PolicyContent::*>) {
        add_environment();
        params(key, policy_.*member);
      } else {
        values_.add(key, policy_.*member);
      }
    });
  }

  ordered_json values() { return values_.take(); }
  ordered_json overridden() { return std::move(overridden_); }

 private:
  void overridden(const Overridden &one) {
    Values without_effect(meaning_);
    for_each_key<PolicyContent>(
        [&](const PolicyKey &key, auto member) { without_effect.add(key, one.values.*member); });
    overridden(without_effect.take(), one.how, one.by);
  }
  void overridden(ordered_json values, Override how, const Rule &by) {
    for (ordered_json &value : values) {
      value.erase("final");
      value.erase("means");
      value["how"] = word_of(how);
      value["by"] = text_of(by);
      value["text"] = text_of(how, by);
      overridden_.push_back(std::move(value));
    }
  }
  void overridden(const std::string &path, const Setting &setting, Override how, const Rule &by) {
    Values without_effect(meaning_);
    without_effect.add(path, setting.value, {setting.where});
    overridden(without_effect.take(), how, by);
  }

  void lifted_by_filter() {
    for (const auto &disabled : policy_.disable) {
      const UnitInfo *unit = find_unit(units_, disabled.value);
      if (unit == nullptr || disabled.origin.final || !filter_names(policy_, *unit)) continue;
      overridden({.values = {.disable = {disabled}},
                  .how = Override::kLifted,
                  .by = Rule::environment("FI_PROVIDER")});
    }
  }

  // Parameters as the units get them; those of units that are not here as they were written.
  void params(const PolicyKey &key, const std::vector<UnitParam> &params) {
    for (const UnitInfo &unit : units_) params_of(key, unit);
    for (const UnitParam &param : params) {
      if (find_unit(units_, param.unit) == nullptr) values_.add(key, std::vector{param});
    }
  }

  void params_of(const PolicyKey &key, const UnitInfo &unit) {
    const auto path = [&](const std::string &name) {
      return path_of(key, UnitParam{unit.name, name, {}});
    };
    std::map<std::string, Setting> strongest;
    std::vector<UnusedSetting> unused;
    const std::vector<Setting> settings = settings_of(policy_, unit, &diagnostics_, &unused);
    for (const UnusedSetting &one : unused)
      overridden(path(one.setting.key), one.setting, one.how, one.by);
    for (const Setting &setting : settings) strongest[setting.key] = setting;
    for (const Setting &setting : settings) {
      const Rule &by = strongest[setting.key].where;
      if (setting.where != by) overridden(path(setting.key), setting, Override::kReplaced, by);
    }
    for (const auto &[name, setting] : strongest) {
      values_.add(path(name), setting.value,
                  {setting.where, final_param(policy_, unit, name) != nullptr},
                  meaning_.of_param(unit, name, setting.value));
    }
    for (const ParamInfo &param : unit.params) {
      if (!strongest.contains(param.name) && param.has_default)
        values_.add(path(param.name), param.default_value, {Rule::of_declaration()},
                    meaning_.of_param(unit, param.name, param.default_value));
    }
  }

  // What stands at a place of a stack, where a weaker source has made the parameter final.
  void params_in_stacks() {
    for (const StackSpec &spec : policy_.stacks) {
      each_element(spec.elements, [&](const StackElement &element) {
        const UnitInfo *unit = find_unit(units_, element.name);
        if (unit == nullptr) return;
        for (const Setting &setting : element.params)
          if (const Sourced<std::string> *final = overruled_by(policy_, *unit, setting))
            overridden("stacks." + spec.name + "[].params." + setting.key, setting,
                       Override::kFinal, final->origin.where);
      });
    }
  }

  void add_environment() {
    if (policy_.filter) {
      ordered_json items = ordered_json::array();
      for (const FilterItem &item : policy_.filter->items) items.push_back(text_of(item));
      values_.add(policy_.filter->exclude ? "filter.exclude" : "filter.include", std::move(items),
                  {Rule::environment("FI_PROVIDER")});
    }
    if (!policy_.hooks.empty()) {
      ordered_json hooks = ordered_json::array();
      for (const Word &word : policy_.hooks) hooks.push_back(word.text);
      values_.add("hooks", std::move(hooks), {Rule::environment("FI_HOOK")});
    }
  }

  const Policy &policy_;
  const std::vector<UnitInfo> &units_;
  std::vector<Diagnostic> &diagnostics_;
  const Meaning meaning_{units_};
  Values values_{meaning_};
  ordered_json overridden_ = ordered_json::array();
};

}  // namespace

std::string policy_json(const Policy &policy, const std::vector<UnitInfo> &units) {
  std::vector<Diagnostic> diagnostics = policy.diagnostics;
  PolicyValues all_values(policy, units, diagnostics);
  std::vector<const Policy *> all = {&policy};
  for (const Policy &one : policy.flawed) all.push_back(&one);
  // A name that a file with errors shares with the others is told once.
  std::set<std::pair<std::string, std::string>> told;
  for (const Diagnostic &one : diagnostics) told.emplace(text_of(one.where), one.text);
  for (const Policy *one : all) {
    for (Diagnostic &name : check_names(*one, units))
      if (told.emplace(text_of(name.where), name.text).second)
        diagnostics.push_back(std::move(name));
  }
  ordered_json json;
  json["files"] = ordered_json::array();
  for (const PolicyFile &file : policy.files)
    json["files"].push_back({{"path", file.path},
                             {"system", file.system},
                             {"used", file.used},
                             {"as", file.as.empty() ? file.path : file.as}});
  json["diagnostics"] = ordered_json::array();
  for (const Diagnostic &one : diagnostics) json["diagnostics"].push_back(json_of(one));
  json["values"] = all_values.values();
  json["overridden"] = all_values.overridden();
  return dump(json);
}

}  // namespace weft
