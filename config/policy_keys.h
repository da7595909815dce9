// SPDX-License-Identifier: BSD-2-Clause
// The keys of weft.yaml(5), as one table. From it come the reader (policy.cc), the merging of files
// (core/select/load_policy.cc), `weft config show` (core/select/policy_json.cc), and by the target
// `config-docs` docs/weft.yaml.schema.json and the section KEYS of docs/man/weft.yaml.5.
//
// A new key is a member of PolicyContent, RankRule or StackElement (policy.h) and one entry here.
//
// Example:
//     // Where each value stands that has one place.
//     inline std::vector<Rule> places(const PolicyContent &policy) {
//       std::vector<Rule> out;
//       for_each_key<PolicyContent>([&](const PolicyKey &, auto member) {
//         const auto &value = policy.*member;
//         if constexpr (requires { value->origin; })
//           if (value) out.push_back(value->origin.where);
//       });
//       return out;
//     }
//
// What only several keys together can get wrong (a stack without a provider) is the reader's. Not
// for the names and parameters of units: their plugins declare them.
#ifndef WEFT_CONFIG_POLICY_KEYS_H
#define WEFT_CONFIG_POLICY_KEYS_H

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "config/policy.h"

namespace weft {

// What may be written as the value of a key.
enum class KeyForm {
  kVersion,   // 1
  kGroup,     // a map of the keys beneath it in the table
  kUnits,     // a list of the names of units
  kLabels,    // a list of the names of stacks
  kFolders,   // a list of absolute paths
  kKeys,      // a list of keys of this table that may be final
  kRules,     // a list of maps, whose keys are PATH[].KEY
  kStacks,    // a map of lists of maps (elements), whose keys are PATH.LABEL[].KEY
  kBranches,  // a list of lists of elements
  kParams,    // a map from units to settings
  kSettings,  // a map from parameters to values
  kUnit,      // the name of a unit
  kNumber,    // from minimum to maximum
  kBoolean,
  kPattern,
  kSubnet,
  // One of words_of(form):
  kEpType,
  kAllowDeny,
  kShmNone,
  kFailSkip,
};

inline constexpr std::array<std::string_view, 3> kEpTypeWords = {"msg", "rdm", "dgram"};
inline constexpr std::array<std::string_view, 2> kAllowDenyWords = {"allow", "deny"};
inline constexpr std::array<std::string_view, 2> kShmNoneWords = {"shm", "none"};
inline constexpr std::array<std::string_view, 2> kFailSkipWords = {"fail", "skip"};

// The kinds of units, in the order of the constants of plugin.h, which count from 1.
inline constexpr std::array<std::string_view, 3> kUnitKinds = {"provider", "layer", "hook"};
static_assert(WEFT_KIND_PROVIDER == 1 && WEFT_KIND_LAYER == 2 && WEFT_KIND_HOOK == 3);

constexpr std::span<const std::string_view> words_of(KeyForm form) {
  switch (form) {
    case KeyForm::kEpType:
      return kEpTypeWords;
    case KeyForm::kAllowDeny:
      return kAllowDenyWords;
    case KeyForm::kShmNone:
      return kShmNoneWords;
    case KeyForm::kFailSkip:
      return kFailSkipWords;
    default:
      return {};
  }
}

// How the value of a stronger file joins those of weaker ones.
enum class KeyMerge {
  kNone,     // part of a rule or an element, which are not merged
  kReplace,  // in their place
  kLift,     // in their place, and providers.disable loses what is listed, unless it is final
  kBehind,   // behind them
  kInFront,  // in front of them
  kByName,   // each stack and each parameter in the place of the one with its name
  kSystem,   // behind them; counts only in files of the system
};

enum class KeyNeed {
  kOptional,
  kRequired,
  kAnyOf,  // one or more of the keys beside it that have this need
  kOneOf,  // exactly one of them
};

using NameList = std::vector<Sourced<std::string>>;

template <class T, class Member>
inline constexpr bool is_member_of = false;
template <class T, class Value>
inline constexpr bool is_member_of<T, Value T::*> = true;

template <class Member>
struct KeySlot {
  Member member = nullptr;
};

// One of these pointers to members at most is not null. A variant says the same, and takes the
// compiler longer: each visit of one instantiates a function and a table for all of its types.
template <class... Members>
struct KeySlots : private KeySlot<Members>... {
  constexpr KeySlots() = default;
  template <class T, class Value>
  constexpr KeySlots(Value T::*member) : KeySlot<Value T::*>{member} {}

  template <class Member>
  constexpr bool is() const {
    return KeySlot<Member>::member != nullptr;
  }
  // Calls `call(pointer to member)` if it is one of T.
  template <class T, class Call>
  constexpr void with(Call call) const {
    (call_if_member<T>(call, KeySlot<Members>::member), ...);
  }
  template <class T>
  constexpr bool is_of() const {
    bool found = false;
    with<T>([&](auto) { found = true; });
    return found;
  }
  constexpr bool is_none() const { return !(is<Members>() || ...); }

 private:
  template <class T, class Call, class Member>
  static constexpr void call_if_member(Call &call, Member member) {
    if constexpr (is_member_of<T, Member>)
      if (member != nullptr) call(member);
  }
};

// Where the value goes; nowhere for a group, whose keys have their own members.
using KeyMember =
    KeySlots<NameList PolicyContent::*, std::optional<Sourced<NameList>> PolicyContent::*,
             std::vector<RankRule> PolicyContent::*, std::vector<StackSpec> PolicyContent::*,
             std::vector<UnitParam> PolicyContent::*, std::optional<Sourced<bool>> PolicyContent::*,
             std::optional<Sourced<int64_t>> PolicyContent::*, std::string RankRule::*,
             std::optional<int32_t> RankRule::*, std::optional<bool> RankRule::*,
             std::string StackElement::*, std::vector<Setting> StackElement::*,
             bool StackElement::*, std::vector<std::vector<StackElement>> StackElement::*>;

// What only some keys have.
struct KeyMore {
  std::string_view example = {};  // what the reader shows to who wrote no list or no map
  KeyNeed need = KeyNeed::kOptional;
  std::string_view missing = {}, remedy = {};  // what it says where a required key is missing
  int64_t minimum = 0, maximum = 0;
  std::string_view built_in = {};  // what holds without a file
};

struct PolicyKey {
  std::string_view path;  // "providers.enable"
  KeyForm form;
  KeyMember member;
  KeyMerge merge;
  bool may_be_final;
  std::string_view meaning;  // a line for the JSON Schema and the manual page
  KeyMore more = {};

  // Of "providers.enable": "enable", and "providers"; "" is the top of the file.
  constexpr std::string_view name() const { return path.substr(path.rfind('.') + 1); }
  constexpr std::string_view parent() const {
    return name().size() == path.size() ? std::string_view()
                                        : path.substr(0, path.size() - name().size() - 1);
  }
};

// In the order of the manual page and of `weft config show`. `final` is last: what a file makes
// final it may still set itself.
inline constexpr auto kPolicyKeys = [] {
  using enum KeyForm;
  using enum KeyMerge;
  using enum KeyNeed;
  using P = PolicyContent;
  using R = RankRule;
  using E = StackElement;
  constexpr KeyMember kNowhere;
  constexpr bool kFinal = true, kFree = false;
  constexpr int64_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  // clang-format off
  return std::to_array<PolicyKey>({
    {"version", kVersion, kNowhere, kNone, kFree, "The version of this format.",
     {.need = kRequired, .missing = "'version' is missing",
      .remedy = "begin the file with 'version: 1'"}},

    {"providers", kGroup, kNowhere, kNone, kFinal,
     "Which providers, layers and hooks (units) may be used, and in which order they are preferred.",
     {.example = "providers: {disable: [udp]}"}},
    {"providers.enable", kUnits, &P::enable, kLift, kFinal,
     "Only these providers may be used.", {.example = "[a, b]"}},
    {"providers.disable", kUnits, &P::disable, kBehind, kFinal,
     "These units may not be used.", {.example = "[a, b]"}},
    {"providers.rank", kRules, &P::ranks, kBehind, kFinal,
     "Rules that change the rank of what they match, or whether it may be used.",
     {.example = "[{match: {provider: verbs}, rank: 900}]"}},
    {"providers.rank[].match", kGroup, kNowhere, kNone, kFree,
     "What the rule applies to; all keys given must match.",
     {.example = "match: {provider: verbs}", .need = kRequired, .missing = "a rule without 'match'",
      .remedy = "say what it is for; 'match: {}' is for everything"}},
    {"providers.rank[].match.provider", kPattern, &R::provider, kNone, kFree,
     "Pattern for the name of the provider or of the stack, in upper or lower case, by either name of "
     "each unit."},
    {"providers.rank[].match.netdev", kPattern, &R::netdev, kNone, kFree,
     "Pattern for the network interface that it would use."},
    {"providers.rank[].match.subnet", kSubnet, &R::subnet, kNone, kFree,
     "Subnet of the address that it would use, as in 172.17.0.0/16 or fd00::/8."},
    {"providers.rank[].match.ep_type", kEpType, &R::ep_type, kNone, kFree,
     "Type of endpoint."},
    {"providers.rank[].match.hostname", kPattern, &R::hostname, kNone, kFree,
     "Pattern for the name of this host."},
    {"providers.rank[].match.executable", kPattern, &R::executable, kNone, kFree,
     "Pattern for the name of the program that runs."},
    {"providers.rank[].rank", kNumber, &R::rank, kNone, kFree,
     "Higher is preferred.", {.need = kAnyOf, .minimum = kMin, .maximum = kMax}},
    {"providers.rank[].enable", kBoolean, &R::enable, kNone, kFree,
     "Whether it may be used.", {.need = kAnyOf}},

    {"stacks", kStacks, &P::stacks, kByName, kFinal,
     "Stacks by name, from the application down to the wire.",
     {.example = "stacks: {rdm: [{layer: rxm}, {provider: verbs}]}"}},
    {"stacks.LABEL[].provider", kUnit, &E::name, kNone, kFree,
     "Moves the bytes.", {.need = kOneOf}},
    {"stacks.LABEL[].layer", kUnit, &E::name, kNone, kFree,
     "Offers more than what is below it.", {.need = kOneOf}},
    {"stacks.LABEL[].hook", kUnit, &E::name, kNone, kFree,
     "Watches or changes the calls to what is below it.", {.need = kOneOf}},
    {"stacks.LABEL[].over", kBranches, &E::branches, kNone, kFree,
     "The branches that a layer stands over, each a stack of its own.",
     {.example = "over: [[{provider: shm}], [{layer: rxm}, {provider: tcp}]]"}},
    {"stacks.LABEL[].params", kSettings, &E::params, kNone, kFree,
     "Parameters for this place in this stack only.", {.example = "{key: value}"}},
    {"stacks.LABEL[].on_unavailable", kFailSkip, &E::skip_if_unavailable, kNone, kFree,
     "What happens to the stack if this element cannot be used.", {.built_in = "fail"}},

    {"use", kLabels, &P::use, kReplace, kFinal,
     "The stacks to offer, the preferred one first.", {.example = "[a, b]"}},
    {"local", kShmNone, &P::local_shm, kReplace, kFinal,
     "What reaches the peers of this host, under any network: shm, memory; or none, the network itself.",
     {.built_in = "none"}},
    {"params", kParams, &P::params, kByName, kFinal,
     "Parameters of units, wherever they are used.", {.example = "params: {tcp: {key: value}}"}},

    {"plugins", kGroup, kNowhere, kNone, kFinal,
     "Where plugins come from, and how far they are trusted.",
     {.example = "plugins: {path: [/opt/vendor/lib/weft]}"}},
    {"plugins.path", kFolders, &P::plugin_path, kInFront, kFinal,
     "Folders with more plugins, as absolute paths.", {.example = "[/opt/vendor/lib/weft]"}},
    {"plugins.unprobed", kAllowDeny, &P::unprobed_allow, kReplace, kFinal,
     "Whether a library may be loaded that has no manifest and was not probed.",
     {.built_in = "allow"}},
    {"plugins.probe_budget_ms", kNumber, &P::probe_budget_ms, kReplace, kFinal,
     "How many milliseconds the probe of a library may take.",
     {.minimum = 1, .maximum = 600'000, .built_in = "2000"}},

    {"control", kAllowDeny, &P::control_allow, kReplace, kFinal,
     "Whether a process listens for hooks that its own user attaches.", {.built_in = "allow"}},

    {"final", kKeys, &P::final_keys, kSystem, kFree,
     "Keys that no stronger source may change; for files of the system only.",
     {.example = "[providers.disable]"}},
  });
  // clang-format on
}();
static_assert(kPolicyKeys.back().path == "final");

// Calls `each(key)` for the keys beneath a path.
template <class Each>
constexpr void for_each_beneath(std::string_view parent, Each each) {
  for (const PolicyKey &key : kPolicyKeys)
    if (key.parent() == parent) each(key);
}

// Null: the table has no such key.
constexpr const PolicyKey *find_policy_key(std::string_view parent, std::string_view name) {
  for (const PolicyKey &key : kPolicyKeys)
    if (key.parent() == parent && key.name() == name) return &key;
  return nullptr;
}

// Calls `each(key, pointer to member)` for the keys that fill a member of T.
template <class T, class Each>
constexpr void for_each_key(Each each) {
  for (const PolicyKey &key : kPolicyKeys)
    key.member.with<T>([&](auto member) { each(key, member); });
}

// The path of one value: "providers.disable", "stacks.rdm", "params.tcp.interfaces".
template <class Value>
std::string path_of(const PolicyKey &key, const Value &value) {
  std::string path(key.path);
  if constexpr (std::is_same_v<Value, StackSpec>) path += "." + value.name;
  if constexpr (std::is_same_v<Value, UnitParam>) path += "." + value.unit + "." + value.key;
  return path;
}

}  // namespace weft

#endif
