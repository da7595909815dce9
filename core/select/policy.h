// SPDX-License-Identifier: BSD-2-Clause
// The policy: what the files of site and user (config/policy.h) and the environment say, merged,
// with the origin of every value.
//
// Example:
//     // The line of the site's files because of which a unit may not be used here; empty: it may.
//     inline Rule refused(const PolicySources &sources, const UnitInfo &unit) {
//       const Policy policy = load_policy(sources);  // policy.diagnostics: wrong files, final keys
//       const Judgement verdict = judge_unit(policy, unit);
//       return verdict.accepted ? Rule() : verdict.rule;
//     }
//
// Precedence, weakest first: built-in, /usr/share/weft/*.yaml, /etc/weft/*.yaml (each in order of
// names), user file, FI_CONFIG file, FI_* environment. Of `enable`, `use` and single values the
// strongest counts; `disable`, `rank`, `stacks` (by name), `params` (by unit and key) and plugin
// paths add up. A stronger `enable` or FI_PROVIDER that names a unit lifts a weaker `disable`. No
// stronger source can change a key that a system file marks `final`. A file with an error gets a
// diagnostic and is left out as a whole. With AT_SECURE only system files count.
//
// This is data; the front chooses.
#ifndef WEFT_CORE_SELECT_POLICY_H
#define WEFT_CORE_SELECT_POLICY_H

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/policy.h"
#include "core/base/decision.h"
#include "core/loader/loader.h"
#include "core/select/environment.h"
#include "core/select/stack_units.h"
#include "core/stack/params.h"
#include "core/stack/usable_settings.h"

namespace weft {

struct PolicyFile {
  std::string path;
  bool system = false;
  bool used = false;    // false: had errors
  std::string as = {};  // the path in whose place it was read; empty: its own
};

// What a source says and what does not count.
struct Overridden {
  PolicyContent values;  // nothing but these
  Override how = Override::kReplaced;
  Rule by = {};  // the place that counts instead
};

// The merged policy.
struct Policy : PolicyContent {
  Policy();  // with the built-in values of config/policy_keys.h, which are there in every Policy

  std::optional<ProviderFilter> filter;          // FI_PROVIDER
  std::vector<Word> hooks;                       // FI_HOOK
  std::map<std::string, std::string> variables;  // FI_*, for the parameters of units
  std::vector<PolicyFile> files;                 // weakest first
  std::vector<Diagnostic> diagnostics;
  std::vector<Overridden> overridden;
  std::map<std::string, size_t, std::less<>> finals;  // each of final_keys, and its first place
  // The files with errors, each as far as it could be read. They are not applied; check_names looks
  // at the names in them.
  std::vector<Policy> flawed;
  // FI_PROVIDER or FI_HOOK cannot be understood, so nothing may be chosen.
  std::optional<Diagnostic> refusal;
};

struct PolicySources {
  std::vector<std::string> system_folders;         // weakest first
  std::string user_file;                           // empty: none
  std::map<std::string, std::string> environment;  // FI_*; FI_CONFIG names a file
  std::string reader_library;                      // weft-config.so, opened only if there is a file
  const weft_config_reader *reader = nullptr;      // instead of it
  std::string library_folder;                      // that of libfabric.so.1 (file_trust.h)
  bool secure = false;
  // For questions about a file that is not installed (suppositions.h): a path, and the file that is
  // read in its place, whether something stands there or not.
  std::map<std::string, std::string> stand_ins = {};
};

Policy load_policy(const PolicySources &sources);

// Files may name a unit by either of its names ("rxm", "ofi_rxm"), and load_policy() knows no unit.
// This does the rest, when they are known: a stronger `enable` lifts a `disable` by the other name,
// and rules that name one provider in two ways have the same match.
void join_names(Policy &policy, const std::vector<UnitInfo> &units);

// Whether load_policy() would read a file of this path if it were there.
bool is_read(const PolicySources &sources, const std::string &path);

// Whether a dotted key ("params.tcp.interfaces") is final; null: no. The key that says so covers
// all beneath it.
const Sourced<std::string> *final_key(const Policy &policy, std::string_view key);
// The same for a parameter, by either name of its unit.
const Sourced<std::string> *final_param(const Policy &policy, const UnitInfo &unit,
                                        std::string_view param);

struct Judgement {
  bool accepted = true;
  Cause cause = Cause::kWords;
  std::string reason = {};
  Remedy remedy = {};
  Rule rule = {};
};

// The verdict of enable and disable on one unit. FI_PROVIDER lifts them if it names the unit.
// `by_key`: another key of the policy names it, which is as good as an `enable` that is not final.
Judgement judge_unit(const Policy &policy, const UnitInfo &unit, bool by_key = false);

// Whether FI_PROVIDER names the unit, to have it; whether `enable` does.
bool filter_names(const Policy &policy, const UnitInfo &unit);
bool enables(const Policy &policy, const UnitInfo &unit);

// The verdict of FI_PROVIDER on a stack.
Judgement judge_filter(const Policy &policy, const StackUnits &units);

// A setting that does not count.
struct UnusedSetting {
  Setting setting;
  Override how = Override::kReplaced;
  Rule by = {};  // the place that counts instead
};

// The settings of all sources for a unit, the weakest first, the environment last. Left out are,
// with a diagnostic, settings that a final key overrules, and variables whose values the
// declaration refuses: what holds without them is used.
std::vector<Setting> settings_of(const Policy &policy, const UnitInfo &unit,
                                 std::vector<Diagnostic> *diagnostics = nullptr,
                                 std::vector<UnusedSetting> *unused = nullptr);
// The same at one place of a stack, with what stands there (`own`), which is stronger.
std::vector<Setting> settings_at(const Policy &policy, const UnitInfo &unit,
                                 const std::vector<Setting> &own);
// Why what stands at one place does not count: a weaker source has made it final. Null: it counts.
const Sourced<std::string> *overruled_by(const Policy &policy, const UnitInfo &unit,
                                         const Setting &setting);

std::string in_capitals(std::string_view name);              // "hook-trace": HOOK_TRACE
std::vector<std::string> prefixes_of(const UnitInfo &unit);  // those of its variables: "FI_TCP_"

// The environment variables of a parameter, as stock libfabric names them: "FI_TCP_IFACE", or two
// for "rxm" (ofi_rxm).
std::vector<std::string> variables_of(const UnitInfo &unit, std::string_view param);

// Names in the policy that no unit has, and variables of units (FI_TCP_...) that no parameter of
// theirs has; a note where stock libfabric knows such a variable.
std::vector<Diagnostic> check_names(const Policy &policy, const std::vector<UnitInfo> &units);

// {"files": [{"path", "system", "used", "as"}], "diagnostics": [{"severity", "where", "text"}],
// "values": [{"key", "value", "origin", "final", "means"}], "overridden": [{"key", "value",
// "origin", "how", "by", "text"}]}. "means" is the value in one form ("16384" for "16K"), and is
// left out where it is written so: values with one meaning have one effect.
std::string policy_json(const Policy &policy, const std::vector<UnitInfo> &units);

}  // namespace weft

#endif
