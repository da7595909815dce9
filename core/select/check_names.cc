// SPDX-License-Identifier: BSD-2-Clause
// Checks that the names in a policy are those of known units and parameters (policy.h).
#include <weft/nearest.h>

#include <algorithm>
#include <map>

#include "config/policy_keys.h"
#include "core/base/each_element.h"
#include "core/base/render.h"
#include "core/base/same_word.h"
#include "core/select/candidates.h"
#include "core/select/near.h"
#include "core/select/policy.h"
#include "core/select/stock_variables.h"
#include "core/select/suggestions.h"

namespace weft {
namespace {

// Names that there are, for those that are written.
class Names {
 public:
  void add(const std::string &name) {
    if (set_.insert(name).second) in_order_.push_back(name);
  }
  bool has(std::string_view name) const { return set_.contains(name); }
  const std::vector<std::string> &in_order() const { return in_order_; }

 private:
  WordSet set_;
  std::vector<std::string> in_order_;
};

// Collects the names of a policy that no unit has.
class NameCheck {
 public:
  NameCheck(const Policy &policy, const std::vector<UnitInfo> &units,
            std::vector<Diagnostic> &found)
      : policy_(policy), units_(units), found_(found) {
    for (const UnitInfo &unit : units) add_names(unit, known_);
    for (const StackSpec &spec : policy.stacks) stacks_.add(spec.name);
  }

  // The value of a key, by its type. Those that name nothing come here.
  template <class Value>
  void value(const PolicyKey &, const Value &) {}
  void value(const PolicyKey &key, const NameList &names) {
    for (const Sourced<std::string> &one : names) {
      if (key.form == KeyForm::kUnits)
        unit(one.value, std::string(key.path), one.origin.where);
      else if (key.form == KeyForm::kLabels)
        word(one.value, std::string(key.path), one.origin.where, stacks_, "stack", true);
      else if (key.form == KeyForm::kKeys)
        final(one);
    }
  }
  void value(const PolicyKey &key, const std::optional<Sourced<NameList>> &names) {
    if (names) value(key, names->value);
  }
  void value(const PolicyKey &key, const std::optional<Sourced<bool>> &value) {
    if (key.form != KeyForm::kShmNone || !value || !value->value) return;
    const Rule &where = value->origin.where;
    const bool is_variable = where.is(Rule::Kind::kEnvironment);
    for (const std::string_view name : {kNearProvider, kNearLayer})
      unit(std::string(name), is_variable ? where.name + "=shm" : "`local: shm`", where);
  }
  void value(const PolicyKey &key, const std::vector<RankRule> &rules) {
    for (const RankRule &rule : rules) {
      // Stacks and patterns need not match any unit.
      if (!rule.provider.empty() && rule.provider.find_first_of("*?[;") == std::string::npos)
        unit(rule.provider, std::string(key.path), rule.origin.where);
    }
  }
  void value(const PolicyKey &, const std::vector<StackSpec> &stacks) {
    for (const StackSpec &spec : stacks) {
      if (spec.version != 0) continue;  // built in, whatever is installed
      each_element(spec.elements,
                   [&](const StackElement &one) { element(one, "stack " + spec.name); });
    }
  }
  void value(const PolicyKey &key, const std::vector<UnitParam> &params) {
    const std::string path(key.path);
    for (const UnitParam &one : params) {
      if (const UnitInfo *known = find_unit(units_, one.unit))
        param(*known, one.key, one.value.value, path + "." + one.unit, one.value.origin.where);
      else
        unit(one.unit, path, one.value.origin.where);
    }
  }

  // A unit may be installed on other hosts, so an unknown one is a warning.
  void unit(const std::string &name, const std::string &what, const Rule &where) {
    word(name, what, where, known_, "unit", false);
  }

  // The reader of files compares the words: here a unit is one by both of its names.
  void both_enabled_and_disabled() {
    if (!policy_.enable) return;
    std::map<const UnitInfo *, const Sourced<std::string> *> enabled;
    for (const auto &name : policy_.enable->value)
      enabled.emplace(find_unit(units_, name.value), &name);
    for (const auto &name : policy_.disable) {
      const UnitInfo *unit = find_unit(units_, name.value);
      const auto both = enabled.find(unit);
      if (unit == nullptr || both == enabled.end() || same_word(both->second->value, name.value) ||
          both->second->origin.where.name != name.origin.where.name)
        continue;
      found_.push_back({true, name.origin.where,
                        "providers.disable names \"" + name.value + "\", and \"" +
                            both->second->value + "\", which is the same unit, is enabled at " +
                            text_of(both->second->origin.where)});
    }
  }

  // "stacks.rdm" or "params.tcp.iface". A site may forbid a stack that it does not define.
  void final(const Sourced<std::string> &key) {
    const std::string_view path = key.value;
    const size_t dot = path.find('.'), second = path.find('.', dot + 1);
    if (dot == std::string_view::npos) return;
    const std::string top(path.substr(0, dot)), name(path.substr(dot + 1, second - dot - 1));
    const Rule &where = key.origin.where;
    if (top == "stacks") word(name, "final: stacks", where, stacks_, "stack", false);
    if (top != "params") return;
    const UnitInfo *known = find_unit(units_, name);
    if (known == nullptr)
      unit(name, "final: params", where);
    else if (second != std::string_view::npos)
      declared(*known, std::string(path.substr(second + 1)), "final: params." + name, where);
  }

  void element(const StackElement &element, const std::string &what) {
    const UnitInfo *unit = find_unit(units_, element.name);
    const std::string kind(kind_of(element.kind));
    if (unit == nullptr) {
      Names words;
      for (const UnitInfo &one : units_) {
        if (one.kind == element.kind) add_names(one, words);
      }
      word(element.name, what, element.where, words, kind, false);
      return;
    }
    if (element.kind != 0 && unit->kind != element.kind)
      found_.push_back({true, element.where,
                        what + " names \"" + element.name + "\" as a " + kind + ", and it is a " +
                            std::string(kind_of(unit->kind))});
    for (const Setting &setting : element.params) {
      param(*unit, setting.key, setting.value, what + ": params", setting.where);
      if (const Sourced<std::string> *final = overruled_by(policy_, *unit, setting))
        found_.push_back({false, setting.where,
                          what + ": params." + unit->name + "." + setting.key + " is final in " +
                              text_of(final->origin.where) + ": what stands here is ignored"});
    }
  }

  // An unknown parameter of a known unit is always a mistake.
  void declared(const UnitInfo &unit, const std::string &key, const std::string &what,
                const Rule &where) {
    Names words;
    for (const ParamInfo &one : unit.params) words.add(one.name);
    word(key, what, where, words, "parameter", true);
  }
  void param(const UnitInfo &unit, const std::string &key, const std::string &value,
             const std::string &what, const Rule &where) {
    declared(unit, key, what, where);
    for (const ParamInfo &one : unit.params) {
      if (one.name != key) continue;
      const auto parsed = parse_param({one.type, one.name, one.minimum, one.maximum}, value);
      if (!parsed) found_.push_back({true, where, what + "." + key + ": " + parsed.error().text});
    }
  }

  void word(const std::string &name, const std::string &what, const Rule &where, const Names &words,
            const std::string &kind, bool error) {
    if (words.has(name)) return;
    const std::string close = suggestions_.nearest_to(name, words.in_order());
    found_.push_back({error, where,
                      what + " names \"" + name + "\", and there is no such " + kind +
                          (close.empty() ? "" : ": did you mean \"" + close + "\"?")});
  }

 private:
  static void add_names(const UnitInfo &unit, Names &words) {
    words.add(unit.name);
    if (!unit.ofi_name.empty() && unit.ofi_name != unit.name) words.add(unit.ofi_name);
  }
  static std::string_view kind_of(uint32_t kind) { return kind != 0 ? kind_name(kind) : "unit"; }

  const Policy &policy_;
  const std::vector<UnitInfo> &units_;
  std::vector<Diagnostic> &found_;
  Names known_, stacks_;
  Suggestions suggestions_;
};

// The library's own variables, and one that launchers set for every libfabric.
constexpr std::string_view kCoreVariables[] = {
    "FI_PROVIDER",   "FI_PROVIDER_PATH", "FI_HOOK",         "FI_CONTROL",
    "FI_CONFIG",     "FI_LINK",          "FI_LOG_LEVEL",    "FI_LOG_PROV",
    "FI_LOG_SUBSYS", "FI_LOG_INTERVAL",  "FI_UNIVERSE_SIZE"};

// A variable of no unit may be of another library or release. One that is near to a name of ours is
// misspelt.
void check_core_variable(const std::string &variable, const std::string &value,
                         std::vector<Diagnostic> &found) {
  if (variable == "FI_UNIVERSE_SIZE") {
    const auto size = parse_param({WEFT_TYPE_INT, variable, 1, int64_t{1} << 32}, value);
    if (!size)
      found.push_back({true, Rule::environment(variable),
                       unused_line(variable, size.error().text, nullptr, nullptr)});
    return;
  }
  if (std::ranges::find(kCoreVariables, variable) != std::end(kCoreVariables) ||
      is_stock_variable(variable))
    return;
  const std::string meant = nearest(variable, kCoreVariables);
  if (!meant.empty())
    found.push_back({false, Rule::environment(variable),
                     variable + " is not known and has no effect: did you mean " + meant + "?"});
}

}  // namespace

std::vector<Diagnostic> check_names(const Policy &policy, const std::vector<UnitInfo> &units) {
  std::vector<Diagnostic> found;
  NameCheck check(policy, units, found);
  for_each_key<PolicyContent>(
      [&](const PolicyKey &key, auto member) { check.value(key, policy.*member); });
  check.both_enabled_and_disabled();
  if (policy.filter) {
    const std::string given = as_given("FI_PROVIDER", policy.filter->text);
    for (const FilterItem &item : policy.filter->items) {
      each_word(item, [&](const Word &word) {
        check.unit(word.text, given + " (column " + std::to_string(word.column) + ")",
                   Rule::environment("FI_PROVIDER", static_cast<uint32_t>(word.column)));
      });
    }
  }
  for (const auto &[variable, value] : policy.variables) {
    // The longest prefix counts: FI_OFI_RXM_... belongs to rxm even if there is a unit "ofi".
    const UnitInfo *owner = nullptr;
    std::string prefix;
    for (const UnitInfo &unit : units) {
      for (const std::string &one : prefixes_of(unit)) {
        if (variable.size() > one.size() && variable.compare(0, one.size(), one) == 0 &&
            one.size() > prefix.size()) {
          owner = &unit;
          prefix = one;
        }
      }
    }
    if (owner == nullptr) {
      check_core_variable(variable, value, found);
      continue;
    }
    std::vector<std::string> variables;
    bool declared = false;
    for (const ParamInfo &param : owner->params) {
      variables.push_back(prefix + in_capitals(param.name));
      if (variables.back() != variable) continue;
      declared = true;
    }
    if (declared) continue;
    if (is_stock_variable(variable)) {
      found.push_back({false, Rule::environment(variable),
                       variable + " is a variable of stock libfabric that has no effect on " +
                           owner->name + " here",
                       true});
      continue;
    }
    const std::string close = nearest(variable, variables);
    found.push_back({false, Rule::environment(variable),
                     variable + " is no parameter of " + owner->name +
                         (close.empty() ? std::string() : ": did you mean " + close + "?")});
  }
  return found;
}

}  // namespace weft
