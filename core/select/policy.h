// SPDX-License-Identifier: BSD-2-Clause
// The policy: what site, user and environment said, merged into one model with the origin of every
// value.
//
//   Policy policy = load_policy(sources);
//   for (const Diagnostic &one : policy.diagnostics) ...       // wrong files, keys that are final,
//   unknown variables Verdict verdict = judge_unit(policy, unit);                 // may it be used
//   at all; reason and rule
//
// Precedence, weakest first: built-in, /usr/share/weft/*.yaml, /etc/weft/*.yaml (each in order of
// names), user file, FI_CONFIG file, FI_* environment. Of `enable`, `use` and single values the
// strongest counts; `disable`, `rank`, `stacks` (by name), `params` (by unit and key) and plugin
// paths add up. Naming a unit in a stronger `enable` or in FI_PROVIDER lifts a weaker `disable`. A
// key that a system file marks `final` cannot be changed by what comes later. A file with an error
// is told and left out as a whole: half a policy would be one that nobody wrote. With AT_SECURE
// only system files count.
//
// This is data; choosing is the front's business.
#ifndef WEFT_CORE_SELECT_POLICY_H
#define WEFT_CORE_SELECT_POLICY_H

#include <weft/config.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/loader/loader.h"
#include "core/select/environment.h"
#include "core/stack/params.h"

namespace weft {

struct Origin {
  std::string where;  // "/etc/weft/10-site.yaml:3:5", "environment FI_PROVIDER", "built-in"
  bool final = false;
};

template <class T>
struct Sourced {
  T value{};
  Origin origin;
};

struct StackElement {
  uint32_t kind = 0;  // WEFT_KIND_...; 0: any (from FI_PROVIDER)
  std::string name;
  bool skip_if_unavailable = false;
  std::vector<Setting> params;
  std::string where;
};

struct StackSpec {  // from the application down to the wire
  std::string name;
  std::vector<StackElement> elements;
  Origin origin;
};

struct RankRule {
  std::string provider, netdev, subnet, ep_type, hostname, executable;  // globs; empty: any
  std::optional<int32_t> rank;
  std::optional<bool> enable;
  Origin origin;
};

struct Diagnostic {
  bool error = false;
  std::string where;  // "/etc/weft/10-site.yaml:3:5"
  std::string text;
  bool note = false;  // no mistake, only good to know
};

struct PolicyFile {
  std::string path;
  bool system = false;
  bool used = false;  // false: had errors
};

struct Policy {
  std::optional<Sourced<std::vector<Sourced<std::string>>>> enable;  // allow-list of providers
  std::vector<Sourced<std::string>> disable;
  std::vector<RankRule> ranks;  // strongest last
  std::vector<StackSpec> stacks;
  std::optional<Sourced<std::vector<Sourced<std::string>>>> use;
  std::map<std::pair<std::string, std::string>, Sourced<std::string>> params;  // (unit, key)
  std::optional<ProviderFilter> filter;                                        // FI_PROVIDER
  std::vector<Word> hooks;                                                     // FI_HOOK
  std::vector<Sourced<std::string>> plugin_path;  // most preferred first; with FI_PROVIDER_PATH
  Sourced<bool> unprobed_allow{true, {"built-in"}};
  Sourced<bool> control_allow{true, {"built-in"}};  // with FI_CONTROL
  Sourced<int64_t> probe_budget_ms{2000, {"built-in"}};

  std::map<std::string, std::string> variables;  // FI_*, for the parameters of units
  std::vector<Sourced<std::string>> final_keys;  // dotted
  std::vector<PolicyFile> files;                 // weakest first
  std::vector<Diagnostic> diagnostics;
  std::vector<Policy> flawed;  // files with errors, each as far as it could be read: not obeyed,
                               // only held against the names that there are
  std::string refusal;  // FI_PROVIDER or FI_HOOK cannot be understood: nothing may be chosen, and
                        // this is why
};

struct PolicySources {
  std::vector<std::string> system_folders;         // weakest first
  std::string user_file;                           // empty: none
  std::map<std::string, std::string> environment;  // FI_*; FI_CONFIG names a file
  std::string reader_library;                      // weft-config.so, opened only if there is a file
  const weft_config_reader *reader = nullptr;      // instead of it
  std::string library_folder;                      // of libfabric.so.1 (file_trust.h)
  bool secure = false;
};

Policy load_policy(const PolicySources &sources);

// Whether a dotted key ("params.tcp.interfaces") is final; null: no. The key that says so covers
// all beneath it.
const Sourced<std::string> *final_key(const Policy &policy, std::string_view key);

struct Verdict {
  bool accepted = true;
  std::string reason, remedy, rule;
};

// What enable, disable and FI_PROVIDER (as far as it names the unit to lift them) say of one unit.
Verdict judge_unit(const Policy &policy, const UnitInfo &unit);

// What FI_PROVIDER says of a stack; units from the wire up, without hooks.
Verdict judge_filter(const Policy &policy, const std::vector<const UnitInfo *> &units);

// What everybody set for a unit, weakest first, with the environment as strongest. Diagnostics:
// variables that a final key overrules.
std::vector<Setting> settings_of(const Policy &policy, const UnitInfo &unit,
                                 std::vector<Diagnostic> *diagnostics = nullptr);

std::string in_capitals(std::string_view name);              // "hook-trace": HOOK_TRACE
std::vector<std::string> prefixes_of(const UnitInfo &unit);  // of its variables: "FI_TCP_"

// The environment variables of a parameter, as stock libfabric names them: "FI_TCP_IFACE", or two
// for "rxm" (ofi_rxm).
std::vector<std::string> variables_of(const UnitInfo &unit, std::string_view param);

// Names in the policy that no unit has, and variables of units (FI_TCP_...) that no parameter of
// theirs has; a note where stock libfabric knows such a variable.
std::vector<Diagnostic> check_names(const Policy &policy, const std::vector<UnitInfo> &units);

// {"files": [{"path", "used"}], "diagnostics": [{"severity", "where", "text"}], "values": [{"key",
// "value", "origin", "final"}]}
std::string policy_json(const Policy &policy, const std::vector<UnitInfo> &units);

}  // namespace weft

#endif
