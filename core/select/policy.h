// SPDX-License-Identifier: BSD-2-Clause
// The policy: what site, user and environment said, merged into one model with the origin of every value.
//
//   Result<Policy> policy = load_policy(PolicySources::for_process());
//   policy->provider_allowed("udp")           // verdict, reason, rule
//
// Precedence, weakest first: built-in, /usr/share/weft/*.yaml, /etc/weft/*.yaml, user file, FI_CONFIG file, FI_* environment. A key
// that a system file marks `final` cannot be changed by what comes later. This is data; choosing is select/'s business.
#ifndef WEFT_CORE_SELECT_POLICY_H
#define WEFT_CORE_SELECT_POLICY_H

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  std::map<std::string, Sourced<std::string>> params;
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

// FI_PROVIDER: a list of names or stacks, possibly negated as a whole.
struct ProviderFilter {
  bool exclude = false;             // "^a,b"
  std::vector<std::string> names;   // "tcp", "tcp;ofi_rxm" (from the wire up), "ofi_rxm"
  Origin origin;
};

struct Policy {
  std::optional<Sourced<std::vector<std::string>>> enable;  // allow-list
  std::vector<Sourced<std::string>> disable;
  std::vector<RankRule> ranks;  // strongest last
  std::vector<StackSpec> stacks;
  std::optional<Sourced<std::vector<std::string>>> use;
  std::map<std::pair<std::string, std::string>, Sourced<std::string>> params;  // (unit, key) -> text
  std::optional<ProviderFilter> filter;                                        // FI_PROVIDER
  std::vector<Sourced<std::string>> hooks;                                     // FI_HOOK, outermost first
  std::vector<Sourced<std::string>> plugin_path;                               // policy and FI_PROVIDER_PATH
  Sourced<bool> unprobed_allow{true, {"built-in"}};
  Sourced<int64_t> probe_budget_ms{2000, {"built-in"}};
  std::vector<std::string> warnings;  // e.g. a user file tried to change a final key
  bool has_site_or_user_choice = false;  // somebody configured something that could match nothing
};

}  // namespace weft

#endif
