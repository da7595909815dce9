// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo(): asks each stack, filters and ranks the offers, and records why.
#include <rdma/fi_domain.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "core/base/info.h"
#include "core/base/render.h"
#include "core/base/tostr.h"
#include "core/select/asked_for.h"
#include "core/select/call_record.h"
#include "core/select/call_watch.h"
#include "core/select/front_impl.h"
#include "core/select/near.h"
#include "core/select/same_info.h"
#include "core/select/unit_words.h"

namespace weft {
namespace {

std::string ep_type_text(int type) {
  char text[64];
  to_text(&type, FI_TYPE_EP_TYPE, text, sizeof text);
  return text;
}

std::string ep_types_text(uint32_t bits) {
  std::string text;
  for (const fi_ep_type type : {FI_EP_MSG, FI_EP_RDM, FI_EP_DGRAM}) {
    if ((bits & WEFT_EP_BIT(type)) != 0) text += (text.empty() ? "" : " or ") + ep_type_text(type);
  }
  return text;
}

uint32_t maturity_of(const Built &built) {
  uint32_t worst = 0;
  for (const StackUnit &unit : built.units) worst = std::max(worst, unit->maturity);
  return worst;
}

// Best first: stacks in `use`, then rank, then the more mature, the simpler and the better ranked
// stack. The next criterion is the name, so the order never depends on chance. A near stack comes
// directly before the one whose name it has.
bool is_better(const Found &a, const Found &b) {
  const auto key = [&](const Found &found) {
    const Built &built = *found.built;
    return std::tuple(found.slot->candidate.preference, -static_cast<int64_t>(found.rank),
                      maturity_of(built), built.units.size(),
                      -static_cast<int64_t>(built.units.back()->rank), std::string_view(built.name),
                      !found.slot->candidate.is_near());
  };
  return key(a) < key(b);
}

// What a near stack has covered is left out.
void drop_covered(const fi_info *hints, std::vector<Found> &found) {
  const auto is_covered = [&](const Found &plain) {
    return !plain.slot->candidate.is_near() && std::ranges::any_of(found, [&](const Found &near) {
      return near.slot->candidate.is_near() && covers(hints, *near.info, *plain.info);
    });
  };
  std::vector<Found> left;
  std::vector<bool> covered;
  for (const Found &one : found) covered.push_back(is_covered(one));
  for (size_t i = 0; i < found.size(); ++i)
    if (!covered[i]) left.push_back(std::move(found[i]));
  found = std::move(left);
}

Decision decision_of(Stage stage, const Judgement &verdict) {
  return {.candidate = {},
          .stage = stage,
          .cause = verdict.cause,
          .reason = verdict.reason,
          .remedy = verdict.remedy,
          .rule = verdict.rule};
}

}  // namespace

std::optional<Refusal> Front::Impl::left_out(Slot &slot, const fi_info *hints) {
  if (hints == nullptr) return std::nullopt;
  const fi_fabric_attr *fabric = hints->fabric_attr;
  const auto wants = [&] {
    if (is_named(slot.candidate, hints) || admits(fabric->prov_name, slot.units)) return true;
    const Built *built = shrunk(slot);
    return built != nullptr && admits(fabric->prov_name, built->units);
  };
  if (fabric != nullptr && fabric->prov_name != nullptr && !wants())
    return Refusal{"fabric_attr.prov_name", Misfit::kOther, in_quotes(fabric->prov_name),
                   in_quotes(slot.candidate.name)};
  const uint32_t offered = slot.offers_ep;
  // Descriptors speak of the types that the API has today; of others the provider answers itself.
  const int wanted = hints->ep_attr != nullptr ? ep_type_of(*hints->ep_attr) : FI_EP_UNSPEC;
  if (wanted > FI_EP_UNSPEC && wanted <= FI_EP_RDM && offered != 0 &&
      (offered & WEFT_EP_BIT(wanted)) == 0)
    return Refusal{"ep_attr.type", Misfit::kOther, ep_type_text(wanted), ep_types_text(offered)};
  const Built *built = slot.built.load(std::memory_order_acquire);
  const auto is_strange = [&](const auto *object) {
    return object != nullptr &&
           (built == nullptr || built->stack == nullptr || !built->stack->made(&object->fid));
  };
  constexpr const char *kElsewhere = " was opened by another stack";
  if (fabric != nullptr && is_strange(fabric->fabric))
    return Refusal{.attribute = "fabric_attr.fabric", .words = kElsewhere};
  if (hints->domain_attr != nullptr && is_strange(hints->domain_attr->domain))
    return Refusal{.attribute = "domain_attr.domain", .words = kElsewhere};
  return std::nullopt;
}

// The hints for the stack itself, if the program asks for the protocol of the provider whose place
// the stack takes.
InfoPtr Front::Impl::without_replaced_protocol(const Slot &slot, const fi_info *hints) {
  const uint32_t replaced = slot.candidate.protocol;
  if (replaced == FI_PROTO_UNSPEC || hints == nullptr || hints->ep_attr == nullptr ||
      hints->ep_attr->protocol != replaced || hints->ep_attr->type == FI_EP_MSG)
    return nullptr;
  InfoPtr asked(dup_info(hints));
  if (asked != nullptr) asked->ep_attr->protocol = FI_PROTO_UNSPEC;
  return asked;
}

// Progress that the program does not ask for is automatic.
void Front::Impl::make_auto(const fi_info *hints, fi_domain_attr &returned) {
  const fi_domain_attr *const asked = hints != nullptr ? hints->domain_attr : nullptr;
  if (asked == nullptr || asked->control_progress == FI_PROGRESS_UNSPEC)
    returned.control_progress = FI_PROGRESS_AUTO;
  if (asked == nullptr || asked->data_progress == FI_PROGRESS_UNSPEC)
    returned.data_progress = FI_PROGRESS_AUTO;
}

bool Front::Impl::ask(Slot &slot, const Question &question, DecisionRecord &record, Misses &misses,
                      std::vector<Found> &found) {
  const auto reject = [&](Decision decision) {
    decision.candidate = slot.candidate.label();
    if (decision.rule.empty()) decision.rule = slot.candidate.cause();
    record.add(decision);
    misses.add(std::move(decision));
  };
  if (slot.candidate.only_by_name && !slot.candidate.origin.is(Rule::Kind::kSpelt) &&
      !is_named(slot.candidate, question.hints))
    return false;
  const uint64_t caps = question.hints != nullptr ? question.hints->caps : 0;
  if ((slot.candidate.only_for_caps & ~caps) != 0) return false;
  const Judgement &verdict = slot.candidate.verdict;
  if (!verdict.accepted) {
    reject(decision_of(slot.candidate.stage, verdict));
    return false;
  }
  if (const std::optional<Refusal> refusal = left_out(slot, question.hints)) {
    reject({.stage = Stage::kHints, .cause = Cause::kHints, .refusals = {*refusal}});
    return true;
  }
  const Built &built = build(slot);
  for (const Decision &decision : built.decisions.decisions()) {
    record.add(decision);
    if (built.stack != nullptr || decision.accepted) continue;
    Decision miss = decision;
    miss.candidate = slot.candidate.label();
    misses.add(std::move(miss));
  }
  Stack *const stack = built.stack.get();
  if (stack == nullptr) return false;

  std::vector<std::vector<Refusal>> refusals;  // those of the offers, each set once
  std::vector<std::string> refused;
  const InfoPtr asked = without_replaced_protocol(slot, question.hints);
  const uint64_t named =
      names_providers(policy, slot.candidate, question.hints) ? WEFT_GETINFO_NAMED : 0;
  auto offered = stack->getinfo(
      question.version, question.node, question.service, question.flags | named,
      asked != nullptr ? asked.get() : question.hints,
      [&](const fi_info &, const Match &why) {
        if (std::ranges::find(refusals, why.refusals) == refusals.end())
          refusals.push_back(why.refusals);
      },
      [&](const std::string &why) {
        if (std::find(refused.begin(), refused.end(), why) == refused.end()) refused.push_back(why);
      });
  // A branch may have nothing where others answered.
  for (const std::string &why : refused) reject(said_by_unit(Stage::kHints, why));
  if (!offered) {
    // Of a near stack's network the stack by itself tells.
    if (offered.error().code == FI_ENODEV && !slot.candidate.is_near() &&
        is_configured(policy, slot.candidate)) {
      Decision decision = lost(slot, offered.error().text);
      record.add(decision);
      decision.remedy = {};  // a notice told it
      misses.add(std::move(decision));
    } else {
      reject(said_by_unit(Stage::kGetinfo, offered.error().text));
    }
    return false;
  }
  std::vector<InfoPtr> fitting;
  for (fi_info *info : *offered) {
    fitting.emplace_back(info);
    if (asked != nullptr) info->ep_attr->protocol = slot.candidate.protocol;
    if (slot.candidate.auto_progress) make_auto(question.hints, *info->domain_attr);
  }
  const size_t before = found.size();
  for (InfoPtr &info : fitting) {
    RuleOutcome outcome = judge_info(policy, built.units, place, *info);
    if (!outcome.verdict.accepted) {
      reject(decision_of(Stage::kRank, outcome.verdict));
      continue;
    }
    const bool again = std::any_of(found.begin() + static_cast<ptrdiff_t>(before), found.end(),
                                   [&](const Found &one) { return same_info(*one.info, *info); });
    if (again) continue;
    const char *name = info->fabric_attr->name != nullptr ? info->fabric_attr->name : "";
    const fi_fabric_attr *wanted =
        question.hints != nullptr ? question.hints->fabric_attr : nullptr;
    if (wanted != nullptr && wanted->fabric != nullptr) {
      // narrow_info() put it there; it is open on one network only.
      if (!stack->opened_as(&wanted->fabric->fid, name)) {
        // The stack is right, so this is nearer than a fabric of another one.
        reject({.stage = Stage::kHints,
                .cause = Cause::kHints,
                .refusals = {{.attribute = "fabric_attr.fabric",
                              .words = std::string(" is not ") + name,
                              .distance = distance_of(Stage::kHints)}}});
        continue;
      }
    } else {
      info->fabric_attr->fabric = reinterpret_cast<struct fid_fabric *>(stack->open_fabric(name));
    }
    found.push_back({std::move(info), &slot, &built, outcome.rank.value_or(rank_of(built.units)),
                     outcome.rank_rule});
  }
  for (std::vector<Refusal> &one : refusals)
    reject({.stage = Stage::kHints, .cause = Cause::kHints, .refusals = std::move(one)});
  if (offered->empty() && refusals.empty())
    reject({.stage = Stage::kGetinfo, .cause = Cause::kNothing, .reason = "it offered nothing"});
  if (found.size() > before) misses.drop(slot.candidate.label());
  return true;
}

// The configuration asks for a provider, and leaves it nothing of this host. Whoever wrote it must
// hear that even where another provider answers.
Decision Front::Impl::lost(const Slot &slot, std::string reason) {
  const std::string &wire = slot.units.front()->name;
  Decision decision{.candidate = slot.candidate.label(),
                    .stage = Stage::kGetinfo,
                    .cause = Cause::kLost,
                    .reason = std::move(reason),
                    .remedy = "`weft explain " + wire + "` shows what this host has",
                    .distance = 0};
  decision.rule = setting_in_words(policy, slot.candidate, decision.reason);
  if (decision.rule.empty()) decision.rule = slot.candidate.origin;
  {
    std::lock_guard lock(notice_mutex);
    if (!told_lost.insert(wire).second) return decision;
  }
  notice(lost_line(decision, wire));
  return decision;
}

void Front::Impl::check_prov_name(const fi_info *hints, Misses &misses) const {
  if (hints == nullptr || hints->fabric_attr == nullptr || hints->fabric_attr->prov_name == nullptr)
    return;
  std::string_view rest = hints->fabric_attr->prov_name;
  if (rest.starts_with('^')) return;
  const bool is_tree = rest.find('(') != std::string_view::npos;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find_first_of(",;(+)"), rest.size());
    const std::string name(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (name.empty() && is_tree) continue;  // beside a bracket
    const bool known = std::any_of(slots.begin(), slots.end(), [&](const Slot &slot) {
      return lower(slot.candidate.name) == lower(name);
    });
    if (known || find_unit(loader->units(), name) != nullptr) continue;
    misses.add({.candidate = name,
                .stage = Stage::kManifest,
                .cause = Cause::kBadName,
                .reason = "no provider or layer is called " + in_quotes(name),
                .remedy = known_units(loader->units(), name,
                                      1u << WEFT_KIND_PROVIDER | 1u << WEFT_KIND_LAYER),
                .distance = 0});
  }
}

int Front::Impl::getinfo(const Question &question, fi_info **out) {
  *out = nullptr;
  prepare();
  Misses misses;
  const int ret = choose_watched(question, misses, out);
  if (ret == 0 && !options.record) return 0;
  check_prov_name(question.hints, misses);
  const std::vector<Decision> nearest = misses.sorted();
  if (ret == -FI_ENODATA) tell_misses(nearest);
  if (options.record)
    options.record(getinfo_record(question, ret, *out, nearest,
                                  [this](const fi_info &answer) { return tree_of(answer); }));
  return ret;
}

// What a near stack is that programs know by another name; empty: the answer is of no such stack.
std::string Front::Impl::tree_of(const fi_info &answer) const {
  const fi_fabric_attr &fabric = *answer.fabric_attr;
  for (const Slot &slot : slots)
    if (slot.candidate.is_near() && slot.candidate.version == fabric.prov_version &&
        fabric.prov_name != nullptr && slot.candidate.name == fabric.prov_name)
      return slot.candidate.tree;
  return {};
}

int Front::Impl::choose_watched(const Question &question, Misses &misses, fi_info **out) {
  const CallWatch watch(*calls, std::chrono::milliseconds(policy.probe_budget_ms->value),
                        [this](const PluginCalls::Call &call) { tell_overdue(call); });
  // Only a thread that is there is counted: one too many would hide one of the application's.
  struct Counted {
    Counted(std::atomic<size_t> &all, size_t number) : all(all), number(number) { all += number; }
    ~Counted() { all -= number; }
    std::atomic<size_t> &all;
    const size_t number;
  } counted(watches, watch.watches() ? 1 : 0);
  return choose(question, misses, out);
}

void Front::Impl::tell_overdue(const PluginCalls::Call &call) {
  notice("fi_getinfo waits for " + call.unit + " (" + call.library +
         "), which has not returned from " + call.name + " for " +
         std::to_string(policy.probe_budget_ms->value) + " ms: if it hangs, FI_PROVIDER=^" +
         call.unit + " goes without it; `weft plugin check " + call.library + "` tries it");
}

void Front::Impl::tell_misses(const std::vector<Decision> &misses) const {
  if (misses.empty()) return;
  log(FI_LOG_CORE, "fi_getinfo", __LINE__,
      "nothing fits; the nearest: " + miss_line(misses.front()) +
          (misses.size() > 1 ? " (" + std::to_string(misses.size() - 1) +
                                   " more at FI_LOG_LEVEL=info, all about it by `weft why -- "
                                   "COMMAND`)"
                             : ""));
  for (const Decision &miss : misses)
    log(FI_LOG_CORE, "fi_getinfo", __LINE__, miss_line(miss), FI_LOG_INFO);
}

int Front::Impl::choose(const Question &question, Misses &misses, fi_info **out) {
  if ((question.flags & FI_PROV_ATTR_ONLY) != 0) return list_units(question.version, out);
  DecisionRecord record = notes;
  if ((question.flags & FI_SOURCE) != 0 && question.node == nullptr &&
      question.service == nullptr) {
    const Decision decision{.stage = Stage::kGetinfo,
                            .cause = Cause::kMalformed,
                            .reason = "FI_SOURCE without node and service",
                            .remedy = "give the address of the source"};
    record.add(decision);
    misses.add(decision);
    remember(std::move(record));
    return -FI_ENODATA;
  }
  std::vector<Found> found;
  Misses of_near;  // told only where something answered: else the stacks by themselves are nearer
  std::set<std::pair<std::string, uint32_t>> answered;  // the working stacks so far, and parts
  bool reached_hints = false;
  for (Slot &slot : slots) {
    if (slot.candidate.verdict.accepted &&
        answered.contains({slot.candidate.name, slot.candidate.version})) {
      if (!slot.candidate.origin.empty())
        record.add({.candidate = slot.candidate.name,
                    .stage = Stage::kPolicy,
                    .cause = Cause::kOutranked,
                    .reason = "another stack with this prov_name comes before it",
                    .rule = slot.candidate.origin});
      continue;
    }
    Misses &own = slot.candidate.is_near() ? of_near : misses;
    reached_hints = ask(slot, question, record, own, found) || reached_hints;
    const Built *built = slot.built.load(std::memory_order_acquire);
    if (built != nullptr && built->stack != nullptr)
      answered.emplace(built->name, slot.candidate.version);
  }
  if (!found.empty())
    for (Decision &miss : of_near.sorted()) misses.add(std::move(miss));
  if (policy.local_shm->value) drop_covered(question.hints, found);
  std::stable_sort(found.begin(), found.end(), is_better);
  tell_selected(found, record);
  if (found.empty() && !reached_hints) tell_cause(record);
  remember(std::move(record));
  if (found.empty()) return -FI_ENODATA;
  fi_info **end = out;
  for (Found &one : found) {
    *end = one.info.release();
    end = &(*end)->next;
  }
  return 0;
}

void Front::Impl::tell_selected(const std::vector<Found> &found, DecisionRecord &record) {
  std::set<const Slot *> told;
  for (size_t i = 0; i < found.size(); ++i) {
    const Slot *slot = found[i].slot;
    if (!told.insert(slot).second) continue;
    const auto count = std::count_if(found.begin(), found.end(),
                                     [&](const Found &one) { return one.slot == slot; });
    std::string reason = std::to_string(count) + " of " + std::to_string(found.size()) +
                         " answers, the first at place " + std::to_string(i + 1) + "; ";
    if (slot->candidate.preference != Candidate::kNoPreference)
      reason += "number " + std::to_string(slot->candidate.preference + 1) + " in `use`, ";
    const Candidate &candidate = slot->candidate;
    if (candidate.is_near()) reason += "peers of this host through memory, ";
    reason += "rank " + std::to_string(found[i].rank);
    record.add({.candidate = candidate.version != 0 ? candidate.label() : found[i].built->name,
                .stage = Stage::kSelected,
                .accepted = true,
                .cause = Cause::kSelected,
                .reason = std::move(reason),
                .rule = found[i].rank_rule.empty() ? candidate.cause() : found[i].rank_rule});
  }
}

int Front::Impl::list_units(uint32_t version, fi_info **out) {
  InfoPtr first;
  fi_info *last = nullptr;
  for (const UnitInfo &unit : loader->units()) {
    InfoPtr info(alloc_info());
    if (info == nullptr) return -FI_ENOMEM;
    info->fabric_attr->prov_name = strdup(stack_name({StackUnit(&unit)}).c_str());
    if (info->fabric_attr->prov_name == nullptr) return -FI_ENOMEM;
    info->fabric_attr->prov_version = unit.version;
    info->fabric_attr->api_version = version;
    if (last == nullptr) {
      first = std::move(info);
      last = first.get();
    } else {
      last->next = info.release();
      last = last->next;
    }
  }
  *out = first.release();
  return *out != nullptr ? 0 : -FI_ENODATA;
}

std::string Front::Impl::no_plugin_line() const {
  std::string folders;
  for (const auto &folder : policy.plugin_path) folders += folder.value + ", ";
  std::string line =
      "no provider plugin can be used (searched: " + folders + options.library_folder + "/weft)";
  const std::vector<Decision> &troubles = loader->discovery().decisions();
  if (troubles.empty()) return line + ": install one, or name its folder in FI_PROVIDER_PATH";
  const auto first = std::ranges::find(troubles, false, &Decision::accepted);
  return first == troubles.end() ? line : line + "; " + line_of(*first);
}

void Front::Impl::tell_cause(const DecisionRecord &record) {
  if (policy.refusal) return;  // it was told with the other mistakes of the environment
  const auto is_provider = [](const UnitInfo &unit) { return unit.kind == WEFT_KIND_PROVIDER; };
  if (std::ranges::none_of(loader->units(), is_provider)) return notice(no_plugin_line());
  const bool chosen = policy.filter.has_value() || !policy.hooks.empty() || policy.enable ||
                      !policy.disable.empty() || policy.use || !policy.ranks.empty();
  if (!chosen) return;
  // A wrong name in FI_PROVIDER.
  if (const auto &wrong = notes.decisions(); !wrong.empty())
    return notice(line_of(wrong.front(), {.candidate = false}));
  // The candidate that came furthest, of those that FI_PROVIDER does not exclude.
  const Decision *furthest = nullptr;
  for (const Decision &one : record.decisions()) {
    if (one.accepted || (furthest != nullptr && one.cause == Cause::kNotChosen)) continue;
    if (furthest == nullptr || furthest->cause == Cause::kNotChosen || one.stage > furthest->stage)
      furthest = &one;
  }
  if (furthest == nullptr || furthest->cause == Cause::kLost) return;  // a notice told it
  const bool names_filter = !policy.filter || furthest->cause == Cause::kNotChosen;
  // A mistake about hooks concerns every stack.
  const bool of_hooks = furthest->rule.is_variable("FI_HOOK");
  notice((names_filter ? "" : as_given("FI_PROVIDER", policy.filter->text) + ": ") +
         line_of(*furthest, {.candidate = !of_hooks, .rule = true}));
}

void Front::Impl::remember(DecisionRecord record) {
  std::lock_guard lock(record_mutex);
  last = std::move(record);
  has_last = true;
}

}  // namespace weft
