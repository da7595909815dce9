// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/front.h"

#include <rdma/fi_domain.h>
#include <rdma/providers/fi_log.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "core/base/decision.h"
#include "core/base/info.h"
#include "core/base/nearest.h"
#include "core/base/tostr.h"
#include "core/loader/loader.h"
#include "core/select/call_record.h"
#include "core/select/candidates.h"
#include "core/select/match.h"
#include "core/select/misses.h"
#include "core/select/policy.h"
#include "core/select/rules.h"
#include "core/stack/stack.h"

namespace weft {
namespace {

using nlohmann::ordered_json;

std::string dump(const ordered_json &json) {
  // Texts quote files and environment, which need not be UTF-8.
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

struct FreeInfo {
  void operator()(fi_info *info) const { free_info(info); }
};
using InfoPtr = std::unique_ptr<fi_info, FreeInfo>;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char &c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string in_quotes(std::string_view text) {
  return "\"" + std::string(text) + "\"";
}

// An element of a prov_name list, or all of it.
bool mentions(std::string_view candidate, const std::set<std::string> &names) {
  if (names.contains(lower(candidate))) return true;
  while (true) {
    const size_t end = candidate.find(';');
    if (names.contains(lower(candidate.substr(0, end)))) return true;
    if (end == std::string_view::npos) return false;
    candidate.remove_prefix(end + 1);
  }
}

bool same_text(const char *a, const char *b) {
  return a == nullptr || b == nullptr ? a == b : std::strcmp(a, b) == 0;
}

bool same_bytes(const void *a, size_t a_size, const void *b, size_t b_size) {
  if (a == nullptr || b == nullptr) return a == b;
  return a_size == b_size && std::memcmp(a, b, a_size) == 0;
}

// Whether an application could tell the two apart. The text holds every member; making it is worth
// it only for what already looks alike.
bool same_info(const fi_info &a, const fi_info &b) {
  if (a.caps != b.caps || a.ep_attr->type != b.ep_attr->type ||
      a.ep_attr->protocol != b.ep_attr->protocol || a.addr_format != b.addr_format ||
      !same_text(a.fabric_attr->prov_name, b.fabric_attr->prov_name) ||
      !same_text(a.fabric_attr->name, b.fabric_attr->name) ||
      !same_text(a.domain_attr->name, b.domain_attr->name) ||
      !same_bytes(a.src_addr, a.src_addrlen, b.src_addr, b.src_addrlen) ||
      !same_bytes(a.dest_addr, a.dest_addrlen, b.dest_addr, b.dest_addrlen))
    return false;
  std::string texts[2];
  for (size_t i = 0; i < 2; ++i) {
    texts[i].resize(16384);
    to_text(i == 0 ? &a : &b, FI_TYPE_INFO, texts[i].data(), texts[i].size());
  }
  return std::strcmp(texts[0].c_str(), texts[1].c_str()) == 0;
}

// The place of a diagnostic in front of its text, unless the text says it already.
std::string line_of(const Diagnostic &diagnostic) {
  std::string where = diagnostic.where;
  if (where.rfind("environment ", 0) == 0) return diagnostic.text;
  if (diagnostic.text.find("(line ") != std::string::npos) {
    for (int i = 0; i < 2; ++i) {
      const size_t colon = where.rfind(':');
      if (colon != std::string::npos &&
          where.find_first_not_of("0123456789", colon + 1) == std::string::npos)
        where.resize(colon);
    }
  }
  return where.empty() ? diagnostic.text : where + ": " + diagnostic.text;
}

bool same_settings(const std::vector<Setting> &a, const std::vector<Setting> &b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Setting &x, const Setting &y) {
    return x.key == y.key && x.value == y.value;
  });
}

std::string ep_type_text(fi_ep_type type) {
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

// What became of a candidate when it was loaded and built. Fixed once it is there.
struct Built {
  std::shared_ptr<Stack> stack;         // null: it cannot be used
  std::string name;                     // the candidate's, but for elements that were skipped
  std::vector<const UnitInfo *> units;  // from the wire up, without hooks and what was skipped
  DecisionRecord decisions;
};

struct Slot {
  Candidate candidate;
  std::vector<const UnitInfo *> units;
  std::unique_ptr<const Built> owned;
  std::atomic<const Built *> built{nullptr};  // null: nobody wanted it so far
};

struct Found {
  InfoPtr info;
  const Slot *slot = nullptr;
  const Built *built = nullptr;
  int32_t rank = 0;
  std::string rank_rule;
};

uint32_t maturity_of(const Built &built) {
  uint32_t worst = 0;
  for (const UnitInfo *unit : built.units) worst = std::max(worst, unit->maturity);
  return worst;
}

// Best first: what the site put into `use`, then rank, then the more mature, the simpler and the
// better ranked stack; names at last, so that the order never depends on chance.
bool is_better(const Found &a, const Found &b) {
  const auto key = [&](const Found &found) {
    const Built &built = *found.built;
    return std::tuple(found.slot->candidate.preference, -static_cast<int64_t>(found.rank),
                      maturity_of(built), built.units.size(),
                      -static_cast<int64_t>(built.units.back()->rank),
                      std::string_view(built.name));
  };
  return key(a) < key(b);
}

}  // namespace

struct Front::Impl {
  explicit Impl(FrontOptions given) : options(std::move(given)) {}

  // ---- preparation: files, plugins, candidates
  // -----------------------------------------------------

  const std::string *variable(const char *name) const {
    const auto found = options.environment.find(name);
    return found != options.environment.end() && !found->second.empty() ? &found->second : nullptr;
  }

  // $XDG_..., which must be absolute to count, or a folder in the home; empty: neither.
  std::string user_folder(const char *xdg, const char *in_home) const {
    if (options.secure) return {};
    if (const std::string *folder = variable(xdg); folder != nullptr && folder->front() == '/')
      return *folder;
    const std::string *home = variable("HOME");
    return home != nullptr && home->front() == '/' ? *home + in_home : std::string();
  }

  PolicySources sources() const {
    PolicySources sources;
    sources.system_folders = {options.system_root + "/usr/share/weft",
                              options.system_root + "/etc/weft"};
    if (const std::string folder = user_folder("XDG_CONFIG_HOME", "/.config"); !folder.empty())
      sources.user_file = folder + "/weft/weft.yaml";
    for (const auto &[name, value] : options.environment) {
      if (name.rfind("FI_", 0) == 0) sources.environment.emplace(name, value);
    }
    sources.reader_library = options.library_folder + "/weft/weft-config.so";
    sources.secure = options.secure;
    sources.library_folder = options.library_folder;
    return sources;
  }

  LoaderOptions loader_options() const {
    LoaderOptions loading;
    for (const auto &folder : policy.plugin_path) loading.folders.push_back(folder.value);
    if (!options.library_folder.empty())
      loading.folders.push_back(options.library_folder + "/weft");
    loading.reader_library = options.library_folder + "/weft/weft-config.so";
    loading.probe_program = options.library_folder + "/weft/weft-probe";
    const std::string cache = user_folder("XDG_CACHE_HOME", "/.cache");
    loading.quarantine_file = cache.empty() ? options.system_root + "/var/cache/weft/quarantine"
                                            : cache + "/weft/quarantine";
    loading.probe_budget = std::chrono::milliseconds(policy.probe_budget_ms.value);
    loading.unprobed_allow = policy.unprobed_allow.value;
    loading.secure = options.secure;
    loading.library_folder = options.library_folder;
    loading.own_threads = options.own_threads;
    loading.services = options.services;
    if (policy.filter && !policy.filter->exclude) {
      for (const FilterItem &item : policy.filter->items) {
        std::string &stack = loading.chosen.emplace_back();
        for (const Word &word : item.units) stack += (stack.empty() ? "" : ";") + lower(word.text);
      }
      // Hooks and the stacks in use are chosen as well.
      for (const Word &hook : policy.hooks) loading.chosen.push_back(lower(hook.text));
      for (const StackSpec &spec : policy.stacks) {
        for (const StackElement &element : spec.elements) loading.chosen.push_back(element.name);
      }
    }
    return loading;
  }

  void prepare() {
    std::lock_guard lock(mutex);
    if (ready) return;
    policy = load_policy(sources());
    loader = std::make_unique<Loader>(loader_options());
    slots.clear();
    notes = {};
    for (Candidate &candidate : make_candidates(policy, loader->units(), notes)) {
      Slot &slot = slots.emplace_back();  // of a deque: they never move
      slot.candidate = std::move(candidate);
      slot.units = slot.candidate.units();
      if (!slot.candidate.verdict.accepted) continue;
      if (Verdict verdict = judge_stack(policy, slot.units, place); !verdict.accepted) {
        slot.candidate.stage = Stage::kPolicy;
        slot.candidate.verdict = std::move(verdict);
      }
    }
    names = check_names(policy, loader->units());
    for (const UnitInfo &unit : loader->units()) (void)settings_of(policy, unit, &names);
    tell_about_configuration();
    ready = true;
  }

  // What a person should know even if something was found: files that were left out, variables that
  // do nothing.
  void tell_about_configuration() {
    for (const Diagnostic &one : policy.diagnostics) notice(line_of(one));
    for (const Diagnostic &one : names) {
      const bool of_filter = one.where == "environment FI_PROVIDER";
      if (one.note) {
        log(FI_LOG_CORE, __func__, __LINE__, one.text, FI_LOG_INFO);
        continue;
      }
      if (one.error || (!of_filter && one.where.rfind("environment ", 0) == 0))
        notice(line_of(one));
    }
    for (const Decision &one : notes.decisions()) {
      // A name that is nearly one that exists is a slip; others may be meant for hosts that have
      // them.
      if (one.remedy.rfind("did you mean", 0) == 0) notice(one.reason + ": " + one.remedy);
    }
  }

  void notice(const std::string &line) {
    {
      std::lock_guard lock(notice_mutex);
      if (!noticed.insert(line).second) return;
    }
    if (options.notice) options.notice(line);
  }

  void log(int32_t subsys, const char *func, int32_t line, const std::string &text,
           int32_t level = FI_LOG_WARN) const {
    const weft_core_services &core = options.services;
    if (core.log == nullptr) return;
    if (core.log_enabled != nullptr && core.log_enabled(nullptr, level, subsys) == 0) return;
    core.log(nullptr, level, subsys, func, line, text.c_str());
  }

  // ---- building
  // ------------------------------------------------------------------------------------

  // Loads and builds what nobody wanted before.
  const Built &build(Slot &slot) {
    if (const Built *built = slot.built.load(std::memory_order_acquire)) return *built;
    std::lock_guard lock(mutex);
    if (slot.owned != nullptr) return *slot.owned;
    auto made = std::make_unique<Built>();
    compose(slot, *made);
    slot.owned = std::move(made);
    slot.built.store(slot.owned.get(), std::memory_order_release);
    return *slot.owned;
  }

  void compose(const Slot &slot, Built &made) {
    made.name = slot.candidate.name;
    StackPlan plan;
    for (const CandidateElement &element : slot.candidate.elements) {
      const UnitInfo &unit = *element.unit;
      DecisionRecord loading;
      const LoadedUnit *loaded = loader->load(unit.name, loading);
      for (const Decision &decision : loading.decisions()) made.decisions.add(decision);
      if (loaded == nullptr) {
        if (element.skip_if_unavailable) continue;
        if (made.name != unit.name)
          made.decisions.add(
              {made.name,
               loading.decisions().empty() ? Stage::kInit : loading.decisions().back().stage, false,
               "its " + std::string(kind_name(unit.kind)) + " " + unit.name + " cannot be used",
               "see " + unit.name, slot.candidate.origin});
        return;
      }
      std::vector<Setting> settings = settings_of(policy, unit);
      settings.insert(settings.end(), element.settings.begin(), element.settings.end());
      plan.elements.push_back({*loaded, std::move(settings)});
      if (unit.kind != WEFT_KIND_HOOK) made.units.insert(made.units.begin(), &unit);
    }
    plan.name = slot.candidate.only_by_name ? slot.candidate.name : stack_name(made.units);
    Result<std::shared_ptr<Stack>> stack = Stack::build(plan, &options.services, options.objects);
    if (stack) {
      made.name = plan.name;
      made.stack = *std::move(stack);
    } else {
      made.decisions.add(
          {made.name, Stage::kInit, false, stack.error().text, "", slot.candidate.origin});
    }
  }

  // ---- asking
  // --------------------------------------------------------------------------------------

  // Whether the question leaves this stack out before it is opened.
  std::optional<Refusal> left_out(const Slot &slot, const fi_info *hints) const {
    if (hints == nullptr) return std::nullopt;
    const fi_fabric_attr *fabric = hints->fabric_attr;
    if (fabric != nullptr && fabric->prov_name != nullptr && !is_named(slot.candidate, hints) &&
        !admits(fabric->prov_name, slot.units))
      return Refusal{"hints.fabric_attr.prov_name: " + in_quotes(fabric->prov_name) + " wanted, " +
                         in_quotes(slot.candidate.name) + " offered",
                     64};
    const uint32_t offered = slot.units.back()->offers_ep;
    if (hints->ep_attr != nullptr && hints->ep_attr->type != FI_EP_UNSPEC && offered != 0 &&
        (offered & WEFT_EP_BIT(hints->ep_attr->type)) == 0)
      return Refusal{"hints.ep_attr.type: " + ep_type_text(hints->ep_attr->type) + " wanted, " +
                         ep_types_text(offered) + " offered",
                     16};
    for (const auto &[what, fid] :
         {std::pair<const char *, const struct fid *>(
              "fabric_attr.fabric",
              fabric != nullptr && fabric->fabric != nullptr ? &fabric->fabric->fid : nullptr),
          std::pair<const char *, const struct fid *>(
              "domain_attr.domain",
              hints->domain_attr != nullptr && hints->domain_attr->domain != nullptr
                  ? &hints->domain_attr->domain->fid
                  : nullptr)}) {
      const Built *built = slot.built.load(std::memory_order_acquire);
      if (fid != nullptr &&
          (built == nullptr || built->stack == nullptr || !built->stack->made(fid)))
        return Refusal{std::string("hints.") + what + " was opened by another stack", 32};
    }
    return std::nullopt;
  }

  // Whether the hints ask for a stack by the name that the policy gave it.
  static bool is_named(const Candidate &candidate, const fi_info *hints) {
    return hints != nullptr && hints->fabric_attr != nullptr &&
           hints->fabric_attr->prov_name != nullptr &&
           lower(hints->fabric_attr->prov_name) == lower(candidate.name);
  }

  // prov_name_admits() by either name of each unit.
  static bool admits(const char *wanted, const std::vector<const UnitInfo *> &units) {
    const bool exclude = wanted[0] == '^';
    std::string own_names;
    for (const UnitInfo *unit : units) own_names += (own_names.empty() ? "" : ";") + unit->name;
    const bool by_ofi = prov_name_admits(wanted, stack_name(units));
    const bool by_own = prov_name_admits(wanted, own_names);
    return exclude ? by_ofi && by_own : by_ofi || by_own;
  }

  // One stack's answer. False: it did not get as far as the hints.
  bool ask(Slot &slot, const Question &question, DecisionRecord &record, Misses &misses,
           std::vector<Found> &found) {
    const auto reject = [&](Stage stage, const std::string &reason, const std::string &remedy = {},
                            const std::string &rule = {}, uint32_t distance = 0) {
      record.add({slot.candidate.name, stage, false, reason, remedy,
                  rule.empty() ? slot.candidate.origin : rule});
      misses.add({slot.candidate.name, stage, reason, remedy,
                  distance != 0 ? distance : distance_of_stage(stage)});
    };
    if (slot.candidate.only_by_name && slot.candidate.origin != "FI_PROVIDER" &&
        !is_named(slot.candidate, question.hints))
      return false;
    const Verdict &verdict = slot.candidate.verdict;
    if (!verdict.accepted) {
      reject(slot.candidate.stage, verdict.reason, verdict.remedy, verdict.rule);
      return false;
    }
    if (const std::optional<Refusal> refusal = left_out(slot, question.hints)) {
      reject(Stage::kHints, refusal->text, {}, {}, refusal->distance);
      return true;
    }
    const Built &built = build(slot);
    for (const Decision &decision : built.decisions.decisions()) {
      record.add(decision);
      if (built.stack == nullptr && !decision.accepted)
        misses.add({slot.candidate.name, decision.stage, decision.reason, decision.remedy,
                    distance_of_stage(decision.stage)});
    }
    Stack *const stack = built.stack.get();
    if (stack == nullptr) return false;

    std::vector<std::string> reasons;
    std::optional<Match> nearest;
    auto offered =
        stack->getinfo(question.version, question.node, question.service, question.flags,
                       question.hints, [&](const fi_info &, const Match &why) {
                         if (std::find(reasons.begin(), reasons.end(), why.reason) == reasons.end())
                           reasons.push_back(why.reason);
                         if (!nearest || why.distance() < nearest->distance()) nearest = why;
                       });
    if (!offered) {
      reject(Stage::kGetinfo, offered.error().text, {}, {},
             distance_of_refusal(offered.error().text));
      return false;
    }
    std::vector<InfoPtr> fitting;
    for (fi_info *info : *offered) fitting.emplace_back(info);
    const size_t before = found.size();
    for (InfoPtr &info : fitting) {
      RuleOutcome outcome = judge_info(policy, built.units, place, *info);
      if (!outcome.verdict.accepted) {
        reject(Stage::kRank, outcome.verdict.reason, outcome.verdict.remedy, outcome.verdict.rule);
        continue;
      }
      const bool again = std::any_of(found.begin() + static_cast<ptrdiff_t>(before), found.end(),
                                     [&](const Found &one) { return same_info(*one.info, *info); });
      if (again) continue;
      const char *name = info->fabric_attr->name != nullptr ? info->fabric_attr->name : "";
      const fi_fabric_attr *wanted =
          question.hints != nullptr ? question.hints->fabric_attr : nullptr;
      if (wanted != nullptr && wanted->fabric != nullptr) {
        // narrow_info() put it there; it stands for one network only.
        if (!stack->opened_as(&wanted->fabric->fid, name)) {
          reject(Stage::kHints, std::string("hints.fabric_attr.fabric is not ") + name);
          continue;
        }
      } else {
        info->fabric_attr->fabric = reinterpret_cast<struct fid_fabric *>(stack->open_fabric(name));
      }
      found.push_back({std::move(info), &slot, &built,
                       outcome.rank.value_or(built.units.front()->rank), outcome.rank_rule});
    }
    for (const std::string &reason : reasons)
      record.add({slot.candidate.name, Stage::kHints, false, reason, "", slot.candidate.origin});
    if (nearest) misses.add(miss_of(slot.candidate.name, *nearest));
    if (offered->empty() && reasons.empty()) reject(Stage::kGetinfo, "it offered nothing");
    if (found.size() > before) misses.drop(slot.candidate.name);
    return true;
  }

  // The one attribute that matters most.
  static Miss miss_of(const std::string &candidate, const Match &match) {
    std::string reason = match.hardest().text;
    if (const size_t others = match.refusals.size() - 1; others > 0)
      reason += " (and " + std::to_string(others) + " more)";
    return {candidate, Stage::kHints, std::move(reason), "", match.distance()};
  }

  // A name in the hints that nothing here has, as a slip is: the others refuse it all alike.
  void check_prov_name(const fi_info *hints, Misses &misses) const {
    if (hints == nullptr || hints->fabric_attr == nullptr ||
        hints->fabric_attr->prov_name == nullptr)
      return;
    std::string_view rest = hints->fabric_attr->prov_name;
    if (rest.starts_with('^')) return;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find_first_of(",;"), rest.size());
      const std::string name(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
      const bool known = std::any_of(slots.begin(), slots.end(), [&](const Slot &slot) {
        return lower(slot.candidate.name) == lower(name);
      });
      if (known || find_unit(loader->units(), name) != nullptr) continue;
      misses.add(
          {name, Stage::kManifest, "no provider or layer is called " + in_quotes(name),
           known_units(loader->units(), name, 1u << WEFT_KIND_PROVIDER | 1u << WEFT_KIND_LAYER),
           0});
    }
  }

  int getinfo(const Question &question, fi_info **out) {
    *out = nullptr;
    prepare();
    Misses misses;
    const int ret = choose(question, misses, out);
    if (ret == 0 && !options.record) return 0;
    check_prov_name(question.hints, misses);
    const std::vector<Miss> nearest = misses.sorted();
    if (ret == -FI_ENODATA) tell_misses(nearest);
    if (options.record) options.record(getinfo_record(question, ret, *out, nearest));
    return ret;
  }

  // Why nothing was found: one line, and for who wants it one for each candidate.
  void tell_misses(const std::vector<Miss> &misses) const {
    if (misses.empty()) return;
    log(FI_LOG_CORE, "fi_getinfo", __LINE__,
        "nothing fits; the nearest: " + text_of(misses.front()) +
            (misses.size() > 1 ? " (" + std::to_string(misses.size() - 1) +
                                     " more at FI_LOG_LEVEL=info, all about it by `weft why -- "
                                     "COMMAND`)"
                               : ""));
    for (const Miss &miss : misses)
      log(FI_LOG_CORE, "fi_getinfo", __LINE__, text_of(miss), FI_LOG_INFO);
  }

  int choose(const Question &question, Misses &misses, fi_info **out) {
    if ((question.flags & FI_PROV_ATTR_ONLY) != 0) return list_units(question.version, out);
    DecisionRecord record = notes;
    if ((question.flags & FI_SOURCE) != 0 && question.node == nullptr &&
        question.service == nullptr) {
      record.add({"", Stage::kGetinfo, false, "FI_SOURCE without node and service",
                  "give the address of the source", ""});
      misses.add({"", Stage::kGetinfo, "FI_SOURCE without node and service",
                  "give the address of the source", 0});
      remember(std::move(record));
      return -FI_ENODATA;
    }
    std::vector<Found> found;
    std::set<std::string> answered;  // names that are taken by a stack that works
    bool reached_hints = false;
    for (Slot &slot : slots) {
      if (slot.candidate.verdict.accepted && answered.contains(slot.candidate.name)) {
        if (!slot.candidate.origin.empty())
          record.add({slot.candidate.name, Stage::kPolicy, false,
                      "another stack with this prov_name comes before it", "",
                      slot.candidate.origin});
        continue;
      }
      reached_hints = ask(slot, question, record, misses, found) || reached_hints;
      const Built *built = slot.built.load(std::memory_order_acquire);
      if (built != nullptr && built->stack != nullptr) answered.insert(built->name);
    }
    std::stable_sort(found.begin(), found.end(), is_better);
    tell_selected(found, record);
    if (found.empty() && !reached_hints) explain_nothing(record);
    remember(std::move(record));
    if (found.empty()) return -FI_ENODATA;
    fi_info **end = out;
    for (Found &one : found) {
      *end = one.info.release();
      end = &(*end)->next;
    }
    return 0;
  }

  static void tell_selected(const std::vector<Found> &found, DecisionRecord &record) {
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
      reason += "rank " + std::to_string(found[i].rank);
      record.add({found[i].built->name, Stage::kSelected, true, std::move(reason), "",
                  found[i].rank_rule.empty() ? slot->candidate.origin : found[i].rank_rule});
    }
  }

  // FI_PROV_ATTR_ONLY: one entry per unit, nothing of it opened.
  int list_units(uint32_t version, fi_info **out) {
    InfoPtr first;
    fi_info *last = nullptr;
    for (const UnitInfo &unit : loader->units()) {
      InfoPtr info(alloc_info());
      if (info == nullptr) return -FI_ENOMEM;
      info->fabric_attr->prov_name = strdup(stack_name({&unit}).c_str());
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

  // Nothing came as far as the application's hints: then it was the configuration, or there is
  // nothing installed. Says once what the cause is.
  void explain_nothing(const DecisionRecord &record) {
    const bool any_provider =
        std::any_of(loader->units().begin(), loader->units().end(),
                    [](const UnitInfo &unit) { return unit.kind == WEFT_KIND_PROVIDER; });
    if (!policy.refusal.empty()) return;  // was told with the other mistakes of the environment
    if (!any_provider) {
      std::string folders;
      for (const auto &folder : policy.plugin_path) folders += folder.value + ", ";
      std::string line = "no provider plugin can be used (searched: " + folders +
                         options.library_folder + "/weft)";
      for (const Decision &one : loader->discovery().decisions()) {
        if (one.accepted) continue;
        line += "; " + one.candidate + ": " + one.reason +
                (one.remedy.empty() ? "" : ": " + one.remedy);
        break;
      }
      if (loader->discovery().decisions().empty())
        line += ": install one, or name its folder in FI_PROVIDER_PATH";
      return notice(line);
    }
    const bool chosen = policy.filter.has_value() || !policy.hooks.empty() || policy.enable ||
                        !policy.disable.empty() || policy.use || !policy.ranks.empty();
    if (!chosen) return;
    for (const Decision &one : notes.decisions()) {
      if (one.reason.rfind("FI_PROVIDER=", 0) == 0) return notice(one.reason + ": " + one.remedy);
    }
    // The reason of what came furthest among those that the configuration did not simply leave out.
    const Decision *furthest = nullptr;
    for (const Decision &one : record.decisions()) {
      const bool not_named = one.rule == "environment FI_PROVIDER" && one.stage == Stage::kPolicy &&
                             one.reason.rfind("FI_PROVIDER=", 0) == 0;
      if (one.accepted || (not_named && furthest != nullptr)) continue;
      const bool furthest_not_named = furthest != nullptr &&
                                      furthest->rule == "environment FI_PROVIDER" &&
                                      furthest->reason.rfind("FI_PROVIDER=", 0) == 0;
      if (furthest == nullptr || furthest_not_named || one.stage > furthest->stage) furthest = &one;
    }
    if (furthest == nullptr) return;
    std::string line;
    if (policy.filter && furthest->reason.rfind("FI_PROVIDER=", 0) != 0)
      line = "FI_PROVIDER=" + policy.filter->text + ": ";
    // What concerns hooks concerns every stack alike.
    if (furthest->rule != "environment FI_HOOK") line += furthest->candidate + ": ";
    line += furthest->reason;
    if (furthest->rule.rfind("environment ", 0) != 0 && !furthest->rule.empty() &&
        line.find(furthest->rule) == std::string::npos)
      line += " (" + furthest->rule + ")";
    if (!furthest->remedy.empty()) line += ": " + furthest->remedy;
    notice(line);
  }

  void remember(DecisionRecord record) {
    std::lock_guard lock(record_mutex);
    last = std::move(record);
    has_last = true;
  }

  // ---- opening
  // -------------------------------------------------------------------------------------

  static std::string reason_of(const Built &built) {
    std::string why;
    for (const Decision &one : built.decisions.decisions()) {
      if (one.accepted || (one.remedy.rfind("see ", 0) == 0 && !why.empty())) continue;
      why = one.candidate + ": " + one.reason + (one.remedy.empty() ? "" : ": " + one.remedy);
    }
    return why;
  }

  bool is_called(const Slot &slot, std::string_view prov_name) const {
    if (lower(slot.candidate.name) == lower(prov_name)) return true;
    if (slot.candidate.only_by_name) return false;
    // Exactly this stack, in another order or by other names of its units.
    if (prov_name.find_first_of(",^") != std::string_view::npos) return false;
    const auto parts = static_cast<size_t>(std::count(prov_name.begin(), prov_name.end(), ';')) + 1;
    return parts == slot.units.size() && admits(std::string(prov_name).c_str(), slot.units);
  }

  int fabric(fi_fabric_attr *attr, fid_fabric **out, void *context) {
    std::vector<std::string> stack;  // from the application down
    std::string why;
    const int ret = open_fabric(attr, out, context, stack, why);
    if (ret == 0) {
      std::string elements;
      for (const std::string &element : stack)
        elements += (elements.empty() ? "" : " > ") + element;
      log(FI_LOG_FABRIC, "fi_fabric", __LINE__,
          "stack " + std::string(attr->prov_name) + " opened: application > " + elements +
              " > wire",
          FI_LOG_INFO);
    } else {
      log(FI_LOG_FABRIC, "fi_fabric", __LINE__, why);
    }
    if (options.record)
      options.record(fabric_record(attr->prov_name != nullptr ? attr->prov_name : "",
                                   attr->name != nullptr ? attr->name : "", stack, ret, why));
    return ret;
  }

  int open_fabric(fi_fabric_attr *attr, fid_fabric **out, void *context,
                  std::vector<std::string> &stack, std::string &why) {
    prepare();
    if (attr->prov_name == nullptr || attr->prov_name[0] == '\0') {
      why = "attr.prov_name is not set: take the attributes from fi_getinfo()";
      return -FI_EINVAL;
    }
    const std::string wanted = attr->prov_name;
    std::string unusable;
    for (Slot &slot : slots) {
      if (!slot.candidate.verdict.accepted || !is_called(slot, wanted)) continue;
      const Built &built = build(slot);
      if (built.stack == nullptr) {
        unusable = reason_of(built);
        continue;
      }
      Result<fid_fabric *> opened = built.stack->fabric(attr, context);
      if (!opened) {
        why = opened.error().text;
        return -opened.error().code;
      }
      *out = *opened;
      for (const CandidateElement &element : slot.candidate.elements)
        stack.push_back(element.unit->name);
      return 0;
    }
    why = "no stack " + in_quotes(wanted) +
          (unusable.empty() ? std::string() : " (" + unusable + ")") + ": `weft why` tells more";
    return -FI_ENODEV;
  }

  // ---- hooks on live objects
  // -----------------------------------------------------------------------

  Result<std::shared_ptr<Hook>> live_hook(std::string_view name, std::vector<Setting> more) {
    const UnitInfo *unit = find_unit(loader->units(), name);
    if (unit == nullptr || unit->kind != WEFT_KIND_HOOK)
      return fail(FI_ENOENT, "no hook %s: %s", in_quotes(name).c_str(),
                  known_units(loader->units(), name, 1u << WEFT_KIND_HOOK).c_str());
    if (const Verdict verdict = judge_unit(policy, *unit); !verdict.accepted)
      return fail(FI_EPERM, "%s (%s): %s", verdict.reason.c_str(), verdict.rule.c_str(),
                  verdict.remedy.c_str());
    std::lock_guard lock(mutex);
    // The same one each time, so that its state on an object is found again; another if it is to
    // be set otherwise.
    if (const auto known = live_hooks.find(unit->name);
        known != live_hooks.end() && same_settings(known->second.settings, more))
      return known->second.hook;
    DecisionRecord loading;
    const LoadedUnit *loaded = loader->load(unit->name, loading);
    if (loaded == nullptr) {
      const Decision *why = loading.last(unit->name);
      return fail(FI_ENODEV, "hook %s: %s", unit->name.c_str(),
                  why != nullptr ? why->reason.c_str() : "it cannot be loaded");
    }
    InstanceSpec spec;
    spec.unit = *loaded;
    spec.settings = settings_of(policy, *unit);
    spec.settings.insert(spec.settings.end(), more.begin(), more.end());
    spec.core = &options.services;
    WEFT_TRY(std::shared_ptr<Hook> hook, Hook::create(std::move(spec)));
    live_hooks[unit->name] = {hook, std::move(more)};
    return hook;
  }

  // ---- diagnosis
  // -----------------------------------------------------------------------------------

  std::set<std::string> names_of(std::string_view name) const {
    std::set<std::string> all = {lower(name)};
    if (const UnitInfo *unit = find_unit(loader->units(), name)) {
      all.insert(lower(unit->name));
      if (!unit->ofi_name.empty()) all.insert(lower(unit->ofi_name));
    }
    return all;
  }

  Result<std::string> why_json(std::string_view name) {
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
    if (told.decisions().empty() && !name.empty()) {
      const UnitInfo *unit = find_unit(loader->units(), name);
      told.add({std::string(name), unit == nullptr ? Stage::kManifest : Stage::kPolicy, false,
                unit == nullptr
                    ? "no plugin has a unit or stack of this name"
                    : "it is a " + std::string(kind_name(unit->kind)) + " that no stack uses",
                unit == nullptr ? known_units(loader->units(), name, ~0u)
                                : "name it in FI_HOOK or in a stack",
                ""});
    }
    return told.to_json();
  }

  // Slots by stack name, name in the policy or, with "", the best that works.
  Result<std::string> explain_json(std::string_view wanted) {
    prepare();
    std::string why;
    for (Slot &slot : slots) {
      const bool named = wanted.empty() || is_called(slot, wanted) ||
                         slot.candidate.origin == "stack " + std::string(wanted);
      if (!named) continue;
      if (!slot.candidate.verdict.accepted) {
        why = slot.candidate.name + ": " + slot.candidate.verdict.reason;
        if (!slot.candidate.verdict.remedy.empty()) why += ": " + slot.candidate.verdict.remedy;
        continue;
      }
      const Built &built = build(slot);
      if (built.stack == nullptr) {
        why = reason_of(built);
        continue;
      }
      ordered_json json;
      json["stack"] = built.name;
      json["origin"] = slot.candidate.origin.empty() ? "built-in" : slot.candidate.origin;
      json["elements"] = ordered_json::array();
      for (const Stack::Explanation &element : built.stack->explain())
        json["elements"].push_back({{"unit", element.element}, {"lines", element.lines}});
      return dump(json);
    }
    if (!why.empty()) return tl::unexpected<Error>(Error{FI_ENODATA, why});
    std::vector<std::string> known;
    for (const Slot &slot : slots) known.push_back(slot.candidate.name);
    const std::string close = nearest(wanted, known);
    return fail(FI_ENOENT, "no stack %s%s", in_quotes(wanted).c_str(),
                close.empty() ? "" : (": did you mean " + in_quotes(close) + "?").c_str());
  }

  ordered_json unit_json(const UnitInfo &unit) const {
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
                         {"offers", endpoints(unit.offers_ep)},
                         {"devices", unit.devices},
                         {"library", unit.library},
                         {"manifest", unit.manifest},
                         {"plugin", unit.plugin}};
    const Verdict verdict = judge_unit(policy, unit);
    json["allowed"] = verdict.accepted;
    if (!verdict.accepted) json["reason"] = verdict.reason + " (" + verdict.rule + ")";
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
        one["origin"] = setting.where;
      }
      json["params"].push_back(std::move(one));
    }
    return json;
  }

  Result<std::string> plugins_json() {
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
        // A unit whose name belongs to another plugin is known by name only.
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
    json["troubles"] = ordered_json::parse(loader->discovery().to_json());
    json["quarantine"] = loader_options().quarantine_file;
    json["folders"] = ordered_json::array();
    for (const auto &folder : policy.plugin_path)
      json["folders"].push_back({{"path", folder.value}, {"origin", folder.origin.where}});
    json["folders"].push_back({{"path", options.library_folder + "/weft"}, {"origin", "built-in"}});
    return dump(json);
  }

  Result<std::string> config_json() {
    prepare();
    return policy_json(policy, loader->units());
  }

  std::vector<FrontParam> params() {
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
          one.origin = setting.where;
        }
        all.push_back(std::move(one));
      }
    }
    return all;
  }

  const FrontOptions options;
  const Place place = Place::of_process();

  std::mutex mutex;  // preparation, and what is built later
  bool ready = false;
  Policy policy;
  std::unique_ptr<Loader>
      loader;  // goes after the stacks: its plugins' fini() must find nothing open
  DecisionRecord notes;
  std::vector<Diagnostic> names;
  std::deque<Slot> slots;
  struct LiveHook {
    std::shared_ptr<Hook> hook;
    std::vector<Setting> settings;  // that it was attached with
  };
  std::map<std::string, LiveHook> live_hooks;

  std::mutex record_mutex;
  DecisionRecord last;
  bool has_last = false;

  std::mutex notice_mutex;
  std::set<std::string> noticed;
};

Front::Front(FrontOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Front::~Front() = default;

int Front::getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const fi_info *hints, fi_info **out) noexcept {
  try {
    return impl_->getinfo({version, node, service, flags, hints}, out);
  } catch (const std::bad_alloc &) {
    return -FI_ENOMEM;
  } catch (const std::exception &error) {
    impl_->log(FI_LOG_CORE, __func__, __LINE__, std::string("fi_getinfo: ") + error.what());
    return -FI_EOTHER;
  }
}

int Front::fabric(fi_fabric_attr *attr, const fi_info *info, uint64_t flags, fid_fabric **fabric,
                  void *context) noexcept {
  (void)info;  // its fabric_attr is `attr`
  try {
    if (flags != 0) {
      impl_->log(FI_LOG_FABRIC, __func__, __LINE__, "fi_fabric2: no flags are defined");
      return -FI_EBADFLAGS;
    }
    return impl_->fabric(attr, fabric, context);
  } catch (const std::bad_alloc &) {
    return -FI_ENOMEM;
  } catch (const std::exception &error) {
    impl_->log(FI_LOG_FABRIC, __func__, __LINE__, std::string("fi_fabric: ") + error.what());
    return -FI_EOTHER;
  }
}

namespace {

// No memory is the one thing that these can meet and not say themselves.
template <class Call>
auto guarded(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc &) {
    return tl::unexpected<Error>(Error{FI_ENOMEM, "no memory"});
  } catch (const std::exception &error) {
    return tl::unexpected<Error>(Error{FI_EOTHER, error.what()});
  }
}

}  // namespace

Result<void> Front::attach_hook(std::span<struct fid *const> roots, std::string_view hook,
                                std::vector<Setting> settings) {
  return guarded([&]() -> Result<void> {
    impl_->prepare();
    WEFT_TRY(const std::shared_ptr<Hook> made, impl_->live_hook(hook, std::move(settings)));
    ObjectTable &objects = *impl_->options.objects;
    std::vector<struct fid *> done;
    Result<void> gone = fail(FI_EINVAL, "hook %s: no object", made->name());
    for (struct fid *root : roots) {
      Result<void> one = objects.attach(root, made);
      if (one) {
        done.push_back(root);
      } else if (one.error().code == FI_EINVAL || one.error().code == FI_EBUSY) {
        gone = std::move(one);
      } else {
        for (struct fid *back : done) (void)objects.detach(back, made->name());
        return one;
      }
    }
    return done.empty() ? std::move(gone) : Result<void>();
  });
}

Result<void> Front::detach_hook(std::span<struct fid *const> roots, std::string_view hook) {
  return guarded([&]() -> Result<void> {
    impl_->prepare();
    const UnitInfo *unit = find_unit(impl_->loader->units(), hook);
    const std::string_view name = unit != nullptr ? std::string_view(unit->name) : hook;
    Result<void> failed = fail(FI_EINVAL, "hook %s: no object", std::string(name).c_str());
    bool done = false;
    for (struct fid *root : roots) {
      Result<void> one = impl_->options.objects->detach(root, name);
      done = done || one.has_value();
      if (!one) failed = std::move(one);
    }
    return done ? Result<void>() : std::move(failed);
  });
}

bool Front::control_allowed() {
  try {
    impl_->prepare();
    return impl_->policy.control_allow.value;
  } catch (const std::exception &) {
    return false;
  }
}

Result<std::string> Front::why_json(std::string_view name) {
  return guarded([&] { return impl_->why_json(name); });
}
Result<std::string> Front::explain_json(std::string_view stack) {
  return guarded([&] { return impl_->explain_json(stack); });
}
Result<std::string> Front::plugins_json() {
  return guarded([&] { return impl_->plugins_json(); });
}
Result<std::string> Front::config_json() {
  return guarded([&] { return impl_->config_json(); });
}
std::vector<FrontParam> Front::params() {
  try {
    return impl_->params();
  } catch (const std::exception &error) {
    impl_->log(FI_LOG_CORE, __func__, __LINE__, std::string("parameters: ") + error.what());
    return {};
  }
}

}  // namespace weft
