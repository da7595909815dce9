// SPDX-License-Identifier: BSD-2-Clause
// What a policy says, with the origin of every value. These are the only types for it: the YAML
// reader fills a PolicyContent from one file, the core merges those of all files into its Policy
// (core/select/policy.h), and `weft config show` prints that.
//
// Example:
//     // "udp in line 3" for each unit that a file disables.
//     inline std::vector<std::string> disabled(const weft_config_reader &reader, const char *path,
//                                              const std::string &text) {
//       std::vector<std::string> out;
//       weft_policy *read = nullptr;
//       if (reader.read_policy(path, text.data(), text.size(), nullptr, nullptr, &read) == 0)
//         for (const Sourced<std::string> &name : read->disable)
//           out.push_back(name.value + " in line " + std::to_string(name.origin.where.line));
//       reader.free_policy(read);
//       return out;
//     }
//
// Plain data, without functions of its own. The reader allocates and frees it; the core copies what
// it keeps. Both come from one build (WEFT_CONFIG_VERSION, weft_config_reader::policy_size). Not
// for plugins.
#ifndef WEFT_CONFIG_POLICY_H
#define WEFT_CONFIG_POLICY_H

#include <weft/config.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/rule.h"
#include "core/stack/params.h"

namespace weft {

struct Origin {
  Rule where = {};  // a line of a file, a variable, built in
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
  bool skip_if_unavailable = false;  // on_unavailable: skip (default: fail)
  std::vector<Setting> params;
  Rule where = {};
  // Of a layer that is the last element: what it stands over, each from the layer down.
  std::vector<std::vector<StackElement>> branches = {};
};

struct StackSpec {  // from the application down to the wire
  std::string name;
  std::vector<StackElement> elements;
  Origin origin;
  // FI_PROTO_... of a provider whose place it takes: who asks for that gets it. 0: of none.
  uint32_t protocol = 0;
  // prov_version. Stacks with one name are parts of it, told apart by this. 0: that of its unit.
  uint32_t version = 0;
  // Whether that provider made its progress by itself, which its programs take for granted.
  bool auto_progress = false;
  uint64_t only_for_caps = 0;  // it is for programs that ask for these capabilities
};

// One entry of providers.rank; all patterns given must match. Globs with * ? [..], but `subnet` is
// a CIDR and `ep_type` msg, rdm or dgram; empty: any.
struct RankRule {
  std::string provider, netdev, subnet, ep_type, hostname, executable;
  std::optional<int32_t> rank;
  std::optional<bool> enable;
  Origin origin;
};

struct UnitParam {  // params.UNIT.KEY
  std::string unit, key;
  Sourced<std::string> value;  // lists joined by commas
};

struct PolicyContent {
  // Allow-list of providers, even if empty; its origin is the first entry, or the key.
  std::optional<Sourced<std::vector<Sourced<std::string>>>> enable;
  std::vector<Sourced<std::string>> disable;
  std::vector<RankRule> ranks;  // strongest last
  std::vector<StackSpec> stacks;
  // Replaces weaker ones, even if empty; its origin is the first entry, or the key.
  std::optional<Sourced<std::vector<Sourced<std::string>>>> use;
  std::optional<Sourced<bool>> local_shm;         // local: shm
  std::vector<UnitParam> params;                  // in the order of the file; merged: by unit, key
  std::vector<Sourced<std::string>> plugin_path;  // most preferred first
  std::optional<Sourced<bool>> unprobed_allow, control_allow;
  std::optional<Sourced<int64_t>> probe_budget_ms;
  std::vector<Sourced<std::string>> final_keys;  // dotted, "providers.disable"
};

}  // namespace weft

// What weft/config.h passes as an opaque type.
struct weft_policy : weft::PolicyContent {};

#endif
