// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/candidates.h"

#include <weft/nearest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/base/each_element.h"
#include "core/base/same_word.h"
#include "core/select/near.h"
#include "core/select/suggestions.h"
#include "core/stack/check_order.h"

namespace weft {
namespace {

constexpr uint32_t bit(uint32_t kind) {
  return 1u << kind;
}
constexpr uint32_t kStackable = bit(WEFT_KIND_PROVIDER) | bit(WEFT_KIND_LAYER);

// Names in FI_PROVIDER that are told one by one. Those behind them are counted.
constexpr size_t kMaxBadNames = 64;

using Chain = std::vector<CandidateElement>;

std::vector<ElementKind> kinds_of(const Chain &chain) {
  std::vector<ElementKind> kinds;
  for (const CandidateElement &element : chain) {
    const UnitInfo &unit = *element.unit;
    ElementKind &kind = kinds.emplace_back(ElementKind{
        unit.name, unit.kind, unit.needs_ep, unit.offers_ep, unit.inner_min, unit.inner_max});
    for (const Chain &branch : element.branches) kind.branches.push_back(kinds_of(branch));
  }
  return kinds;
}

void append_units(const Chain &chain, StackUnits &units) {
  for (auto element = chain.rbegin(); element != chain.rend(); ++element) {
    for (const Chain &branch : element->branches) append_units(branch, units);
    if (element->unit->kind == WEFT_KIND_HOOK) continue;
    if (element->branches.empty())
      units.emplace_back(element->unit);
    else
      units.emplace_back(element->unit, element->branches.size());
  }
}

class Maker {
 public:
  Maker(const Policy &policy, const std::vector<UnitInfo> &units, DecisionRecord &notes)
      : policy_(policy), units_(units), notes_(notes) {
    for (const StackSpec &spec : policy.stacks) stacks_.emplace(spec.name, &spec);
    if (policy.use)
      for (const Sourced<std::string> &name : policy.use->value) used_.insert(name.value);
    if (policy.filter && !policy.filter->exclude) read_filter();
  }

  std::vector<Candidate> make() {
    hooks();
    use();
    filter();
    defaults();
    named();
    return std::move(made_);
  }

 private:
  static void reject(Candidate &candidate, Stage stage, Judgement verdict) {
    candidate.stage = stage;
    candidate.verdict = std::move(verdict);
    candidate.verdict.accepted = false;
  }

  void hooks() {
    for (const Word &word : policy_.hooks) {
      const UnitInfo *unit = find_unit(units_, word.text);
      const auto given = policy_.variables.find("FI_HOOK");
      const std::string column =
          (given != policy_.variables.end() ? as_given("FI_HOOK", given->second) : "FI_HOOK") +
          " (column " + std::to_string(word.column) + "): ";
      const Rule rule = Rule::environment("FI_HOOK", static_cast<uint32_t>(word.column));
      if (unit == nullptr || unit->kind != WEFT_KIND_HOOK) {
        hooks_refused_ = {
            false, Cause::kBadName,
            column + (unit == nullptr ? "no hook \"" + word.text + "\""
                                      : "\"" + word.text + "\" is a " +
                                            std::string(kind_name(unit->kind)) + ", no hook"),
            known_units(units_, word.text, bit(WEFT_KIND_HOOK)), rule};
        return;
      }
      if (Judgement verdict = judge_unit(policy_, *unit); !verdict.accepted) {
        hooks_refused_ = std::move(verdict);
        return;
      }
      if (std::find(hooks_.begin(), hooks_.end(), unit) != hooks_.end()) {
        hooks_refused_ = {false, Cause::kBadOrder, column + "hook \"" + word.text + "\" twice",
                          "name it once", rule};
        return;
      }
      hooks_.push_back(unit);
    }
  }

  // The last steps for every candidate: the hooks of FI_HOOK, the order of elements, the policy.
  void add(Candidate candidate) {
    const StackUnits units = candidate.units();
    if (candidate.verdict.accepted) {
      if (candidate.name.empty()) candidate.name = stack_name(units);
      // A hook that is on top already is not put there twice.
      const auto bottom = std::find_if(
          candidate.elements.begin(), candidate.elements.end(),
          [](const CandidateElement &element) { return element.unit->kind != WEFT_KIND_HOOK; });
      std::vector<CandidateElement> on_top;
      for (const UnitInfo *hook : hooks_) {
        const bool there =
            std::any_of(candidate.elements.begin(), bottom,
                        [&](const CandidateElement &one) { return one.unit == hook; });
        if (!there) on_top.push_back({hook, {}, false});
      }
      candidate.elements.insert(candidate.elements.begin(), on_top.begin(), on_top.end());
      judge(candidate, units);
    }
    made_.push_back(std::move(candidate));
    if (policy_.local_shm->value && made_.back().verdict.accepted) add_near();
  }

  // The near stack of the last candidate. Programs find it by its version, which is below those of
  // units: hints with the version of the near one admit both.
  void add_near() {
    const Candidate &stack = made_.back();
    std::optional<Candidate> near = make_near(stack, units_, policy_.local_shm->origin.where);
    if (!near) return;
    std::vector<uint32_t> &versions = near_[stack.name];
    auto known = std::ranges::find(versions, stack.version);
    if (known == versions.end()) known = versions.insert(known, stack.version);
    near->version = FI_VERSION(0, known - versions.begin() + 1);
    if (near->verdict.accepted) judge_near(*near);
    made_.push_back(*std::move(near));
  }

  // The stack whose name it has was admitted: that leaves link and memory, which `local` names.
  void judge_near(Candidate &near) {
    if (policy_.filter && policy_.filter->exclude)
      if (Judgement verdict = judge_filter(policy_, near.units()); !verdict.accepted)
        return reject(near, Stage::kPolicy, std::move(verdict));
    for (const std::string_view name : {kNearLayer, kNearProvider}) {
      Judgement verdict = judge_unit(policy_, *find_unit(units_, name), true);
      if (!verdict.accepted) return reject(near, Stage::kPolicy, std::move(verdict));
    }
    if (const Result<void> order = check_order(kinds_of(near.elements)); !order)
      reject(near, Stage::kPolicy,
             {false, Cause::kBadOrder, order.error().text, "set `local: none`", near.local});
  }

  void judge(Candidate &candidate, const StackUnits &units) {
    if (policy_.refusal)
      return reject(candidate, Stage::kPolicy,
                    {false, Cause::kMalformed, policy_.refusal->text,
                     "correct the variable, or unset it", policy_.refusal->where});
    if (const Judgement &verdict = filter_on(units);
        !verdict.accepted && !(candidate.only_by_name && wanted_by_filter(candidate.name)))
      return reject(candidate, Stage::kPolicy, verdict);
    Judgement of_units;
    each_element(candidate.elements, [&](const CandidateElement &element) {
      if (of_units.accepted) of_units = verdict_on(*element.unit);
    });
    if (!of_units.accepted) return reject(candidate, Stage::kPolicy, std::move(of_units));
    if (!hooks_refused_.accepted) return reject(candidate, Stage::kPolicy, hooks_refused_);
    if (const Result<void> order = check_order(kinds_of(candidate.elements)); !order)
      return reject(
          candidate, Stage::kPolicy,
          {false, Cause::kBadOrder, order.error().text, "correct the stack", candidate.origin});
  }

  // The lists that they are judged by may be long, and a unit is part of many candidates, and the
  // same units make many stacks.
  const Judgement &verdict_on(const UnitInfo &unit) {
    const auto [verdict, is_new] = verdicts_.try_emplace(&unit);
    if (is_new) verdict->second = judge_unit(policy_, unit);
    return verdict->second;
  }

  const Judgement &filter_on(const StackUnits &units) {
    const auto [verdict, is_new] = filtered_.try_emplace(stack_own_name(units));
    if (is_new) verdict->second = judge_filter(policy_, units);
    return verdict->second;
  }

  void use() {
    if (!policy_.use) return;
    size_t place = 0;
    std::vector<std::string> known;
    for (const StackSpec &one : policy_.stacks) known.push_back(one.name);
    Suggestions suggestions;
    for (const Sourced<std::string> &name : policy_.use->value) {
      Candidate candidate;
      candidate.preference = place++;
      candidate.origin = Rule::stack(name.value);
      const auto [first, last] = stacks_.equal_range(name.value);
      for (auto part = first; part != last; ++part) {
        Candidate made = candidate;
        fill(made, *part->second);
        add(std::move(made));
      }
      if (first != last) continue;
      Remedy remedy;
      remedy.meant = suggestions.nearest_to(name.value, known);
      if (remedy.meant.empty()) remedy.words = "define it under stacks";
      candidate.name = name.value;
      reject(candidate, Stage::kPolicy,
             {false, Cause::kBadName, "no stack is called \"" + name.value + "\"",
              std::move(remedy), name.origin.where});
      add(std::move(candidate));
    }
  }

  void fill(Candidate &candidate, const StackSpec &spec) {
    candidate.in_file = !spec.origin.where.is(Rule::Kind::kBuiltIn);
    candidate.protocol = spec.protocol;
    candidate.auto_progress = spec.auto_progress;
    candidate.only_for_caps = spec.only_for_caps;
    if (fill(candidate, spec.elements, "", candidate.elements) == Filled::kRefused)
      candidate.name = spec.name;
  }

  enum class Filled { kWhole, kLeftOut, kRefused };

  // Makes a chain of what the policy says. A branch without its provider may be left out. `where`
  // begins what is said of a branch: "branch 2 of link: ".
  Filled fill(Candidate &candidate, const std::vector<StackElement> &from, const std::string &where,
              Chain &to) {
    for (const StackElement &element : from) {
      const UnitInfo *unit = find_unit(units_, element.name);
      if (unit == nullptr || unit->kind != element.kind) {
        if (element.skip_if_unavailable && element.kind == WEFT_KIND_PROVIDER)
          return Filled::kLeftOut;
        if (element.skip_if_unavailable) continue;
        const std::string kind(kind_name(element.kind));
        reject(candidate, Stage::kManifest,
               {false, Cause::kBadName,
                where + (unit == nullptr ? "no plugin has a " + kind + " \"" + element.name + "\""
                                         : element.name + " is a " +
                                               std::string(kind_name(unit->kind)) + ", no " + kind),
                known_units(units_, element.name, bit(element.kind)), element.where});
        return Filled::kRefused;
      }
      CandidateElement made{unit, element.params, element.skip_if_unavailable};
      for (size_t i = 0; i < element.branches.size(); ++i) {
        Chain branch;
        const Filled filled =
            fill(candidate, element.branches[i],
                 where + "branch " + std::to_string(i + 1) + " of " + element.name + ": ", branch);
        if (filled == Filled::kRefused) return filled;
        if (filled == Filled::kWhole) made.branches.push_back(std::move(branch));
      }
      if (!element.branches.empty() && made.branches.empty()) {
        reject(candidate, Stage::kManifest,
               {false, Cause::kBadName,
                where + "no plugin has the provider of any branch of " + element.name,
                "install one of them", element.where});
        return Filled::kRefused;
      }
      add_over(std::move(made), to);
    }
    return Filled::kWhole;
  }

  // Names in FI_PROVIDER: unknown ones are reported, stacks of several units are tried as they are.
  void filter() {
    if (!policy_.filter) return;
    WordSet labels;
    for (const StackSpec &spec : policy_.stacks) labels.insert(spec.name);
    size_t bad = 0;
    for (const FilterItem &item : policy_.filter->items) {
      const bool is_one = item.units.size() == 1 && item.branches.empty();
      if (is_one && find_unit(units_, item.units[0].text) == nullptr &&
          labels.contains(item.units[0].text))
        continue;  // named() has it
      Candidate candidate;
      candidate.origin = Rule::spelt_in("FI_PROVIDER");
      const bool whole = fill(item, candidate.elements, bad);
      if (!whole || policy_.filter->exclude || is_one) continue;
      // Both orders are accepted: the provider is the end of the stack.
      if (candidate.elements.front().unit->kind == WEFT_KIND_PROVIDER)
        std::reverse(candidate.elements.begin(), candidate.elements.end());
      add(std::move(candidate));
    }
    if (bad > kMaxBadNames)
      notes_.add({.candidate = "FI_PROVIDER",
                  .stage = Stage::kManifest,
                  .cause = Cause::kBadName,
                  .reason = as_given("FI_PROVIDER", policy_.filter->text) + ": " +
                            std::to_string(bad - kMaxBadNames) + " more names that no provider has",
                  .remedy = "correct the variable",
                  .rule = Rule::environment("FI_PROVIDER")});
  }

  // Makes a chain of what FI_PROVIDER spells out. False: a name is not there, which is noted.
  bool fill(const FilterItem &item, Chain &to, size_t &bad) {
    bool whole = true;
    std::vector<Chain> branches;
    for (const FilterItem &branch : item.branches)
      whole = fill(branch, branches.emplace_back(), bad) && whole;
    for (const Word &word : item.units) {
      const UnitInfo *unit = find_unit(units_, word.text);
      if (unit == nullptr || unit->kind == WEFT_KIND_HOOK) {
        whole = false;
        if (++bad <= kMaxBadNames) note_bad_name(word, unit);
        continue;
      }
      to.push_back({unit, {}, false, std::move(branches)});
      branches.clear();
    }
    std::reverse(to.begin(), to.end());
    return whole;
  }

  void note_bad_name(const Word &word, const UnitInfo *hook) {
    notes_.add({.candidate = word.text,
                .stage = Stage::kManifest,
                .cause = Cause::kBadName,
                .reason = as_given("FI_PROVIDER", policy_.filter->text) + " (column " +
                          std::to_string(word.column) + "): " +
                          (hook == nullptr ? "no provider \"" + word.text + "\""
                                           : "\"" + word.text + "\" is a hook, no provider"),
                .remedy = hook == nullptr ? known_units(units_, word.text, kStackable)
                                          : Remedy("name it in FI_HOOK"),
                .rule = Rule::environment("FI_PROVIDER", static_cast<uint32_t>(word.column))});
  }

  // The stacks that FI_PROVIDER names.
  void read_filter() {
    for (const FilterItem &item : policy_.filter->items) {
      if (!item.branches.empty()) {
        const std::string tree = text_of(item);
        wanted_.insert({tree, in_ofi_names(tree, units_)});
        continue;
      }
      std::string there, back;  // the provider first, or last
      for (size_t i = 0; i < item.units.size(); ++i) {
        there += (i == 0 ? "" : ";") + item.units[i].text;
        back += (i == 0 ? "" : ";") + item.units[item.units.size() - 1 - i].text;
      }
      wanted_.insert({there, back, in_ofi_names(there, units_), in_ofi_names(back, units_)});
    }
  }
  bool wanted_by_filter(std::string_view name) const { return wanted_.contains(name); }

  void named() {
    for (const StackSpec &spec : policy_.stacks) {
      const bool used = used_.contains(spec.name);
      if ((used && !wanted_by_filter(spec.name)) || find_unit(units_, spec.name) != nullptr)
        continue;
      Candidate candidate;
      candidate.name = spec.name;
      candidate.only_by_name = true;
      candidate.origin =
          wanted_by_filter(spec.name) ? Rule::spelt_in("FI_PROVIDER") : Rule::stack(spec.name);
      candidate.version = spec.version;
      fill(candidate, spec);
      add(std::move(candidate));
    }
  }

  void defaults() {
    for (const UnitInfo &unit : units_) {
      if (unit.kind != WEFT_KIND_PROVIDER) continue;
      Candidate candidate;
      candidate.elements.push_back({&unit, {}, false});
      add(std::move(candidate));
    }
    for (const UnitInfo &layer : units_) {
      if (layer.kind != WEFT_KIND_LAYER || layer.inner_max > 1) continue;
      for (const UnitInfo &provider : units_) {
        if (provider.kind != WEFT_KIND_PROVIDER || (layer.needs_ep & provider.offers_ep) == 0)
          continue;
        Candidate candidate;
        candidate.elements = {{&layer, {}, false}, {&provider, {}, false}};
        add(std::move(candidate));
        layers_over(layer, provider);
      }
    }
  }

  // Layers over a layer. Who asks for one names it.
  void layers_over(const UnitInfo &layer, const UnitInfo &provider) {
    for (const UnitInfo &top : units_) {
      if (&top == &layer || top.kind != WEFT_KIND_LAYER || top.inner_max > 1 ||
          (top.needs_ep & layer.offers_ep) == 0)
        continue;
      Candidate candidate;
      candidate.elements = {{&top, {}, false}, {&layer, {}, false}, {&provider, {}, false}};
      candidate.name = stack_name(candidate.units());
      candidate.only_by_name = true;
      if (wanted_by_filter(candidate.name)) continue;  // filter() has it
      add(candidate);
      stand_in(std::move(candidate), layer, provider);
    }
  }

  // Stock's layers have collective operations inside of them: with these capabilities the name of
  // such a layer is that of the stack with ours on top.
  void stand_in(Candidate candidate, const UnitInfo &layer, const UnitInfo &provider) {
    const UnitInfo &top = *candidate.elements.front().unit;
    candidate.name = stack_name({StackUnit(&provider), StackUnit(&layer)});
    candidate.only_for_caps = FI_COLLECTIVE;
    candidate.version = top.version != layer.version ? top.version : top.version + 1;
    candidate.verdict = {};
    if (wanted_by_filter(candidate.name)) candidate.origin = Rule::spelt_in("FI_PROVIDER");
    add(std::move(candidate));
  }

  const Policy &policy_;
  const std::vector<UnitInfo> &units_;
  DecisionRecord &notes_;
  std::vector<const UnitInfo *> hooks_;
  Judgement hooks_refused_;
  std::multimap<std::string_view, const StackSpec *>
      stacks_;  // by name, in the order of the policy
  std::set<std::string_view> used_;
  WordSet wanted_;  // the names of FI_PROVIDER, each in all of its forms
  std::map<const UnitInfo *, Judgement> verdicts_;
  std::map<std::string, Judgement> filtered_;  // by the names of the units
  std::map<std::string, std::vector<uint32_t>> near_;  // the versions that have near ones, by name
  std::vector<Candidate> made_;
};

}  // namespace

StackUnits Candidate::units() const {
  StackUnits units;
  append_units(elements, units);
  return units;
}

std::vector<const UnitInfo *> Candidate::providers() const {
  std::vector<const UnitInfo *> providers;
  for (const StackUnit &unit : shown_units())
    if (unit->kind == WEFT_KIND_PROVIDER) providers.push_back(unit.unit);
  return providers;
}

StackUnits Candidate::shown_units() const {
  return is_near() ? without_memory(units()) : units();
}

std::string Candidate::label() const {
  return version == 0 ? name : name + "(" + (is_near() ? tree : stack_name(units())) + ")";
}

const UnitInfo *find_unit(const std::vector<UnitInfo> &units, std::string_view name) {
  for (const UnitInfo &unit : units) {
    if (same_word(unit.name, name) || (!unit.ofi_name.empty() && same_word(unit.ofi_name, name)))
      return &unit;
  }
  return nullptr;
}

std::string in_ofi_names(std::string_view prov_name, const std::vector<UnitInfo> &units) {
  std::string out;
  while (true) {
    const size_t end = prov_name.find_first_of(",;(+)");
    const std::string_view word = prov_name.substr(0, end);
    const UnitInfo *unit = find_unit(units, word);
    out += unit != nullptr ? stack_name({StackUnit(unit)}) : std::string(word);
    if (end == std::string_view::npos) return out;
    out += prov_name[end];
    prov_name.remove_prefix(end + 1);
  }
}

Remedy known_units(const std::vector<UnitInfo> &units, std::string_view written, uint32_t kinds) {
  Remedy remedy;
  std::vector<std::string> &names = remedy.known.emplace(), both;
  for (const UnitInfo &unit : units) {
    if ((kinds & bit(unit.kind)) == 0) continue;
    names.push_back(unit.ofi_name.empty() ? unit.name : unit.ofi_name);
    both.push_back(names.back());
    if (unit.name != names.back()) both.push_back(unit.name);
  }
  remedy.meant = nearest(written, both);
  return remedy;
}

bool Candidate::may_shrink() const {
  bool may = false;
  each_element(elements, [&](const CandidateElement &one) {
    may = may || (one.skip_if_unavailable && one.unit->kind != WEFT_KIND_HOOK);
  });
  return may;
}

std::string_view kind_name(uint32_t kind) {
  switch (kind) {
    case WEFT_KIND_PROVIDER:
      return "provider";
    case WEFT_KIND_LAYER:
      return "layer";
    case WEFT_KIND_HOOK:
      return "hook";
    default:
      return "unknown kind";
  }
}

std::vector<Candidate> make_candidates(const Policy &policy, const std::vector<UnitInfo> &units,
                                       DecisionRecord &notes) {
  return Maker(policy, units, notes).make();
}

}  // namespace weft
