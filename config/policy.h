// SPDX-License-Identifier: BSD-2-Clause
// One policy file as C++ data: what the schema of weft.yaml(5) can say, with the place of each
// statement.
//
//   Diagnostics diag;
//   std::optional<Policy> policy = parse_policy(text, diag);
//   if (!policy) diag.deliver(path, callback, arg);
//
// One file only: how files, environment and API come together, and whether named units exist, is
// the core's business.
#ifndef WEFT_CONFIG_POLICY_H
#define WEFT_CONFIG_POLICY_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"

namespace weft::config {

struct Name {
  std::string text;
  Where where;
};

template <class T>
struct Placed {
  T value{};
  Where where;
};

struct RankRule {
  std::optional<std::string> provider, netdev, subnet, ep_type, hostname, executable;
  std::optional<int32_t> rank;
  std::optional<bool> enable;
  Where where;
};

struct Setting {
  std::string unit;  // empty in a stack
  std::string key, value;
  Where where;
};

struct StackElement {
  uint32_t kind = 0;  // WEFT_KIND_...
  bool skip_if_unavailable = false;
  std::string name;
  std::vector<Setting> params;
  Where where;
};

struct Stack {
  std::string name;
  std::vector<StackElement> elements;  // from the application down to the wire
  Where where;
};

struct Policy {
  std::optional<std::vector<Name>> enable;
  std::optional<Placed<std::vector<Name>>> use;
  std::vector<Name> disable, plugin_path, final_keys;
  std::vector<RankRule> ranks;
  std::vector<Stack> stacks;
  std::vector<Setting> params;
  std::optional<Placed<bool>> unprobed_allow, control;
  std::optional<Placed<uint32_t>> probe_budget_ms;
};

// Nothing if `diag` has an error.
std::optional<Policy> parse_policy(std::string_view text, Diagnostics &diag);

// What could be read, whatever errors `diag` has: not to be obeyed, but its names can be checked.
// Nothing if the text is no YAML.
std::optional<Policy> parse_policy_in_part(std::string_view text, Diagnostics &diag);

}  // namespace weft::config

#endif
