// SPDX-License-Identifier: BSD-2-Clause
// The implementation of Front, which several files share. front.cc reads the configuration,
// stack_cache.cc builds and opens stacks, choose.cc answers fi_getinfo(), live_hooks.cc hangs hooks
// on live objects, and diagnosis_json.cc tells why. Not for anything but these files.
#ifndef WEFT_CORE_SELECT_FRONT_IMPL_H
#define WEFT_CORE_SELECT_FRONT_IMPL_H

#include <rdma/providers/fi_log.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/decision.h"
#include "core/base/guarded_call.h"
#include "core/base/info.h"
#include "core/base/plugin_calls.h"
#include "core/loader/loader.h"
#include "core/match/match.h"
#include "core/select/call_record.h"
#include "core/select/candidates.h"
#include "core/select/front.h"
#include "core/select/misses.h"
#include "core/select/policy.h"
#include "core/select/rules.h"
#include "core/select/suppositions.h"
#include "core/stack/stack.h"

namespace weft {

inline std::string lower(std::string_view text) {
  std::string out(text);
  for (char &c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

inline std::string in_quotes(std::string_view text) {
  return "\"" + std::string(text) + "\"";
}

// The result of loading and building a candidate. It never changes.
struct Built {
  std::shared_ptr<Stack> stack;            // null: it cannot be used
  std::string name;                        // those of the candidate, without skipped elements
  std::vector<CandidateElement> elements;  // those of the candidate, without skipped ones
  StackUnits units;                        // those that an application knows, without skipped ones
  DecisionRecord decisions;
};

struct Slot {
  Candidate candidate;
  StackUnits units;        // those that an application knows
  uint32_t offers_ep = 0;  // of the outermost unit
  std::unique_ptr<const Built> owned;
  std::atomic<const Built *> built{nullptr};  // null: not needed so far
};

struct Found {
  InfoPtr info;
  const Slot *slot = nullptr;
  const Built *built = nullptr;
  int32_t rank = 0;
  Rule rank_rule;
};

// The Result that guarded() makes of an exception.
inline tl::unexpected<Error> as_error(int error, const char *text) {
  return tl::unexpected<Error>(Error{error, text});
}

struct Front::Impl {
  explicit Impl(FrontOptions given) : options(std::move(given)) {}

  // ---- preparation: files, plugins, candidates
  const std::string *variable(const char *name) const;
  // $XDG_..., which must be absolute to count, or a folder in the home; empty: neither.
  std::string user_folder(const char *xdg, const char *in_home) const;
  PolicySources sources() const;
  LoaderOptions loader_options() const;
  void prepare();
  void judge_by_rules(Slot &slot, StackRules &rules) const;
  // Notices for the user that are shown even if something was found: files that were left out,
  // variables without effect.
  void tell_about_configuration();
  void notice(const std::string &line);
  // A call into a plugin has not returned for longer than a probe may take.
  void tell_overdue(const PluginCalls::Call &call);
  void log(int32_t subsys, const char *func, int32_t line, const std::string &text,
           int32_t level = FI_LOG_WARN) const;
  // The errno of what guarded() caught; the log gets the text, which follows `call`.
  int as_errno(int32_t subsys, const char *func, const char *call, int error,
               const char *text) const;

  // ---- building
  // Loads and builds a candidate when it is needed first.
  const Built &build(Slot &slot);
  // The stack of a candidate from which elements may be left out, and which then has another name.
  // Null: it cannot be built, or nothing can be left out.
  const Built *shrunk(Slot &slot);
  class Composer;
  void tell_wrong_setting(const std::string &text);
  void compose(const Slot &slot, Built &made);

  // ---- asking
  // Whether the hints and flags exclude this stack before it is opened.
  std::optional<Refusal> left_out(Slot &slot, const fi_info *hints);
  static InfoPtr without_replaced_protocol(const Slot &slot, const fi_info *hints);
  static void make_auto(const fi_info *hints, fi_domain_attr &returned);
  // Whether the hints ask for a stack by the name that the policy gave it.
  bool is_named(const Candidate &candidate, const fi_info *hints) const;
  // prov_name_admits() by either name of each unit.
  static bool admits(const char *wanted, const StackUnits &units);
  // Asks one stack. False: it was rejected before the stage hints.
  bool ask(Slot &slot, const Question &question, DecisionRecord &record, Misses &misses,
           std::vector<Found> &found);
  // The decision on a provider that the configuration asks for and has nothing left; told once.
  Decision lost(const Slot &slot, std::string reason);
  // A name in the hints that no unit has, perhaps a misspelt one: every candidate is refused for
  // it.
  void check_prov_name(const fi_info *hints, Misses &misses) const;
  int getinfo(const Question &question, fi_info **out);
  std::string tree_of(const fi_info &answer) const;
  // Logs why nothing was found: one warning, and at level info a line for each candidate.
  void tell_misses(const std::vector<Decision> &misses) const;
  int choose(const Question &question, Misses &misses, fi_info **out);
  int choose_watched(const Question &question, Misses &misses, fi_info **out);
  static void tell_selected(const std::vector<Found> &found, DecisionRecord &record);
  // FI_PROV_ATTR_ONLY: one entry per unit. Nothing is opened.
  int list_units(uint32_t version, fi_info **out);
  // No candidate came as far as the hints: the configuration is the reason, or nothing is
  // installed. Gives one notice with the cause.
  void tell_cause(const DecisionRecord &record);
  std::string no_plugin_line() const;
  void remember(DecisionRecord record);

  // ---- opening
  // The reason for which a stack could not be built, in one line.
  static std::string unusable_line(const Built &built);
  bool is_called(Slot &slot, std::string_view prov_name);
  std::vector<Slot *> slots_called(const fi_fabric_attr &attr, const fi_info *info);
  int fabric(fi_fabric_attr *attr, const fi_info *info, fid_fabric **out, void *context);
  int open_fabric(fi_fabric_attr *attr, const fi_info *info, fid_fabric **out, void *context,
                  StackNames &stack, Rule &local, std::string &why);

  // ---- hooks on live objects
  Result<std::shared_ptr<Hook>> live_hook(std::string_view name, std::vector<Setting> more);

  // ---- diagnosis
  std::set<std::string> names_of(std::string_view name) const;
  Result<std::string> why_json(std::string_view name);
  // The decision on a name that no decision is about.
  Decision absence_of(std::string_view name) const;
  // Slots by stack name, name in the policy or, with "", the best that works.
  Result<std::string> explain_json(std::string_view wanted);
  nlohmann::ordered_json unit_json(const UnitInfo &unit) const;
  Result<std::string> plugins_json();
  Result<std::string> config_json();
  std::vector<FrontParam> params();

  const FrontOptions options;
  const std::shared_ptr<PluginCalls> calls = std::make_shared<PluginCalls>();
  std::atomic<size_t> watches{0};  // threads of CallWatch

  std::mutex mutex;  // preparation, and what is built later
  bool ready = false;
  Place place = Place::of_process();  // constant once it is ready
  Suppositions supposed;
  std::vector<RefusedFile> refused;
  Policy policy;
  // Destroyed after the stacks: when its plugins' fini() runs, nothing may be open.
  std::unique_ptr<Loader> loader;
  DecisionRecord notes;
  std::vector<Diagnostic> names;
  std::deque<Slot> slots;
  struct LiveHook {
    std::shared_ptr<Hook> hook;
    std::vector<Setting> settings;  // those that it was attached with
  };
  std::map<std::string, LiveHook> live_hooks;

  std::mutex record_mutex;
  DecisionRecord last;
  bool has_last = false;

  std::mutex notice_mutex;
  std::set<std::string> noticed;
  std::set<std::string> told_lost;  // providers
};

}  // namespace weft

#endif
