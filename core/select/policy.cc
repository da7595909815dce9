// SPDX-License-Identifier: BSD-2-Clause
// Judges units, stacks and parameters by a merged policy.
#include "core/select/policy.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "config/policy_keys.h"
#include "core/base/render.h"
#include "core/base/same_word.h"
#include "core/select/merging.h"

namespace weft {
namespace {

bool is_named(const UnitInfo &unit, std::string_view name) {
  return same_word(unit.name, name) || (!unit.ofi_name.empty() && same_word(unit.ofi_name, name));
}

// The units of a stack that an entry of FI_PROVIDER spells out, in the order of StackUnits.
void append_words(const FilterItem &item, std::vector<std::pair<const Word *, size_t>> &words) {
  for (const FilterItem &branch : item.branches) append_words(branch, words);
  for (const Word &word : item.units) {
    const bool is_first = &word == item.units.data();
    words.emplace_back(&word, is_first ? item.branches.size() : 1);
  }
}

bool is_tree_of(const FilterItem &item, const StackUnits &units) {
  std::vector<std::pair<const Word *, size_t>> words;
  append_words(item, words);
  return std::equal(words.begin(), words.end(), units.begin(), units.end(),
                    [](const auto &word, const StackUnit &unit) {
                      return is_named(*unit.unit, word.first->text) &&
                             (word.second == unit.inner || unit->kind == WEFT_KIND_PROVIDER);
                    });
}

// Whether an entry of FI_PROVIDER names a stack.
bool item_admits(const FilterItem &item, const StackUnits &units) {
  const auto same = [](const Word &word, const StackUnit &unit) {
    return is_named(*unit.unit, word.text);
  };
  if (!item.branches.empty()) return !is_chain(units) && is_tree_of(item, units);
  if (item.units.size() == 1)
    return std::any_of(units.begin(), units.end(), [&](const StackUnit &unit) {
      return is_named(*unit.unit, item.units[0].text);
    });
  if (!is_chain(units)) return false;
  return std::equal(item.units.begin(), item.units.end(), units.begin(), units.end(), same) ||
         std::equal(item.units.rbegin(), item.units.rend(), units.begin(), units.end(), same);
}

void set_built_in(const PolicyKey &key, std::optional<Sourced<bool>> &value) {
  value = {key.more.built_in == words_of(key.form)[0], {Rule::built_in()}};
}
void set_built_in(const PolicyKey &key, std::optional<Sourced<int64_t>> &value) {
  int64_t number = 0;
  std::from_chars(key.more.built_in.data(), key.more.built_in.data() + key.more.built_in.size(),
                  number);
  value = {number, {Rule::built_in()}};
}

}  // namespace

Policy::Policy() {
  for_each_key<PolicyContent>([&](const PolicyKey &key, auto member) {
    if constexpr (requires { set_built_in(key, this->*member); })
      if (!key.more.built_in.empty()) set_built_in(key, this->*member);
  });
}

size_t strength_of(const Policy &policy, const Rule &where) {
  if (where.is(Rule::Kind::kBuiltIn)) return 0;
  const auto file = std::ranges::find(policy.files, where.name, &PolicyFile::path);
  return static_cast<size_t>(file - policy.files.begin());
}

const Sourced<std::string> *final_key(const Policy &policy, std::string_view key) {
  // A key is covered by itself and by all above it. Of those that are final the weakest says it.
  size_t place = policy.final_keys.size();
  for (std::string_view above = key; !above.empty();) {
    const auto found = policy.finals.find(above);
    if (found != policy.finals.end()) place = std::min(place, found->second);
    const size_t dot = above.rfind('.');
    above = above.substr(0, dot == std::string_view::npos ? 0 : dot);
  }
  return place < policy.final_keys.size() ? &policy.final_keys[place] : nullptr;
}

bool filter_names(const Policy &policy, const UnitInfo &unit) {
  if (!policy.filter || policy.filter->exclude) return false;
  bool named = false;
  for (const FilterItem &item : policy.filter->items)
    each_word(item, [&](const Word &word) { named = named || is_named(unit, word.text); });
  return named;
}

bool enables(const Policy &policy, const UnitInfo &unit) {
  return policy.enable && std::ranges::any_of(policy.enable->value, [&](const auto &one) {
           return is_named(unit, one.value);
         });
}

Judgement judge_unit(const Policy &policy, const UnitInfo &unit, bool by_key) {
  const bool lifted = filter_names(policy, unit);
  for (const auto &disabled : policy.disable) {
    if (!is_named(unit, disabled.value)) continue;
    if (lifted && !disabled.origin.final) continue;
    return {false, Cause::kSwitchedOff, unit.name + " is disabled",
            disabled.origin.final ? "the key is final: ask who administers this host"
                                  : "take it out of providers.disable, or name it in FI_PROVIDER",
            disabled.origin.where};
  }
  if (policy.enable && unit.kind == WEFT_KIND_PROVIDER &&
      !((lifted || by_key) && !policy.enable->origin.final)) {
    if (!enables(policy, unit))
      return {false, Cause::kSwitchedOff, unit.name + " is not in providers.enable",
              policy.enable->origin.final ? "the key is final: ask who administers this host"
                                          : "add it to providers.enable, or name it in FI_PROVIDER",
              policy.enable->origin.where};
  }
  return {};
}

Judgement judge_filter(const Policy &policy, const StackUnits &units) {
  if (!policy.filter) return {};
  const ProviderFilter &filter = *policy.filter;
  const bool named = std::any_of(filter.items.begin(), filter.items.end(),
                                 [&](const FilterItem &item) { return item_admits(item, units); });
  if (named != filter.exclude) return {};
  const std::string given = as_given("FI_PROVIDER", filter.text);
  return {false, Cause::kNotChosen,
          filter.exclude ? given + " excludes it" : given + " does not name it",
          filter.exclude ? "take it out of the list" : "add it to the list, or unset the variable",
          Rule::environment("FI_PROVIDER")};
}

std::string in_capitals(std::string_view name) {
  std::string out;
  for (const char c : name) {
    out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c == '-' ? '_' : c;
  }
  return out;
}

std::vector<std::string> prefixes_of(const UnitInfo &unit) {
  std::vector<std::string> prefixes = {"FI_" + in_capitals(unit.name) + "_"};
  if (!unit.ofi_name.empty() && unit.ofi_name != unit.name)
    prefixes.push_back("FI_" + in_capitals(unit.ofi_name) + "_");
  return prefixes;
}

std::vector<std::string> variables_of(const UnitInfo &unit, std::string_view param) {
  std::vector<std::string> names;
  for (const std::string &prefix : prefixes_of(unit)) names.push_back(prefix + in_capitals(param));
  return names;
}

const Sourced<std::string> *final_param(const Policy &policy, const UnitInfo &unit,
                                        std::string_view param) {
  for (const std::string &name : {unit.name, unit.ofi_name}) {
    if (name.empty()) continue;
    const std::string key = "params." + name + "." + std::string(param);
    if (const Sourced<std::string> *final = final_key(policy, key)) return final;
  }
  return nullptr;
}

const Sourced<std::string> *overruled_by(const Policy &policy, const UnitInfo &unit,
                                         const Setting &setting) {
  const Sourced<std::string> *final = final_param(policy, unit, setting.key);
  if (final == nullptr) return nullptr;
  const bool stronger =
      strength_of(policy, setting.where) > strength_of(policy, final->origin.where);
  return stronger ? final : nullptr;
}

std::vector<Setting> settings_at(const Policy &policy, const UnitInfo &unit,
                                 const std::vector<Setting> &own) {
  std::vector<Setting> settings = settings_of(policy, unit);
  std::ranges::copy_if(own, std::back_inserter(settings), [&](const Setting &setting) {
    return overruled_by(policy, unit, setting) == nullptr;
  });
  return settings;
}

std::vector<Setting> settings_of(const Policy &policy, const UnitInfo &unit,
                                 std::vector<Diagnostic> *diagnostics,
                                 std::vector<UnusedSetting> *unused) {
  std::vector<Setting> settings;
  const auto leave_out = [&](Setting setting, Override how, const Rule &by) {
    if (unused != nullptr) unused->push_back({std::move(setting), how, by});
  };
  // Merging took the names of a unit for two units: here they are one.
  for (const auto &[name, key, value] : policy.params) {
    if (!is_named(unit, name)) continue;
    const Setting setting{key, value.value, value.origin.where};
    if (const Sourced<std::string> *final = overruled_by(policy, unit, setting)) {
      if (diagnostics != nullptr)
        diagnostics->push_back({false, setting.where,
                                "params." + name + "." + key + " is final in " +
                                    text_of(final->origin.where) +
                                    ": what stands here is ignored"});
      leave_out(setting, Override::kFinal, final->origin.where);
      continue;
    }
    settings.push_back(setting);
  }
  std::ranges::stable_sort(settings, {}, [&](const Setting &setting) {
    return std::pair(std::string_view(setting.key), strength_of(policy, setting.where));
  });
  if (policy.variables.empty()) return settings;
  struct Refused {
    Setting given;
    std::string reason;
  };
  for (const ParamInfo &param : unit.params) {
    std::vector<Refused> refused;
    for (const std::string &variable : variables_of(unit, param.name)) {
      const auto found = policy.variables.find(variable);
      if (found == policy.variables.end()) continue;
      const Setting given{param.name, found->second, Rule::environment(variable)};
      if (const Sourced<std::string> *final = final_param(policy, unit, param.name)) {
        if (diagnostics != nullptr)
          diagnostics->push_back({false, Rule::environment(variable),
                                  "params." + unit.name + "." + param.name + " is final in " +
                                      text_of(final->origin.where) + ": the variable is ignored"});
        leave_out(given, Override::kFinal, final->origin.where);
        continue;
      }
      const Result<ParamValue> parsed =
          parse_param({param.type, param.name, param.minimum, param.maximum}, found->second);
      if (parsed)
        settings.push_back(given);
      else
        refused.push_back({given, parsed.error().text});
    }
    if (refused.empty()) continue;
    // What counts in their place may be a variable with the other name of the unit.
    const auto last = std::find_if(settings.rbegin(), settings.rend(), [&](const Setting &setting) {
      return setting.key == param.name;
    });
    const Setting *const other = last != settings.rend() ? &*last : nullptr;
    for (const Refused &one : refused) {
      leave_out(one.given, Override::kRefused,
                other != nullptr    ? other->where
                : param.has_default ? Rule::of_declaration()
                                    : Rule());
      if (diagnostics != nullptr)
        diagnostics->push_back(
            {true, one.given.where,
             unused_line(one.given.where.name, one.reason, other,
                         param.has_default ? param.default_value.c_str() : nullptr)});
    }
  }
  return settings;
}

}  // namespace weft
