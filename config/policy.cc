// SPDX-License-Identifier: BSD-2-Clause
#include "config/parse_policy.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "config/schema.h"
#include "config/tree.h"

namespace weft::config {

namespace {

using Key = std::string_view;
constexpr std::array<Key, 8> kTopKeys = {"version", "providers", "stacks",  "use",
                                         "params",  "plugins",   "control", "final"};
constexpr std::array<Key, 3> kProviderKeys = {"enable", "disable", "rank"};
constexpr std::array<Key, 3> kRuleKeys = {"match", "rank", "enable"};
constexpr std::array<Key, 6> kMatchKeys = {"provider", "netdev",   "subnet",
                                           "ep_type",  "hostname", "executable"};
constexpr std::array<Key, 3> kEpTypes = {"msg", "rdm", "dgram"};
constexpr std::array<Key, 5> kElementKeys = {"provider", "layer", "hook", "params",
                                             "on_unavailable"};
constexpr std::array<Key, 2> kUnavailable = {"fail", "skip"};
constexpr std::array<Key, 3> kPluginKeys = {"path", "unprobed", "probe_budget_ms"};
constexpr std::array<Key, 2> kAllowDeny = {"allow", "deny"};
constexpr std::array<Key, 6> kFinalKeys = {"providers", "stacks",  "use",
                                           "params",    "plugins", "control"};

constexpr int64_t kMaxProbeBudgetMs = 600'000;

class PolicyReader {
 public:
  PolicyReader(std::string_view path, Diagnostics &diag) : path_(path), diag_(diag) {}

  PolicyContent read(const Node &root) {
    bool has_version = false;
    if (root.kind == Node::Kind::kNull) {
      diag_.error(root.where, "the file says nothing", "begin it with 'version: 1'");
      return {};
    }
    const bool is_map =
        read_map(root, "the file", kTopKeys, "'key: value' lines", diag_,
                 [&](const Node &key, const Node &value) {
                   if (key.text == "version") {
                     has_version = true;
                     version(value);
                   } else if (key.text == "providers") {
                     providers(value);
                   } else if (key.text == "stacks") {
                     stacks(value);
                   } else if (key.text == "use") {
                     use(key, value);
                   } else if (key.text == "params") {
                     params(value);
                   } else if (key.text == "plugins") {
                     plugins(value);
                   } else if (key.text == "control") {
                     if (const auto word = read_word(value, "'control'", kAllowDeny, diag_))
                       policy_.control_allow = {*word == 0, origin(key)};
                   } else if (key.text == "final") {
                     final_keys(value);
                   }
                 });
    if (is_map && !has_version)
      diag_.error(root.where, "'version' is missing", "begin the file with 'version: 1'");
    return std::move(policy_);
  }

 private:
  enum class Naming { kUnit, kLabel };
  using Nodes = std::vector<const Node *>;

  Origin origin(const Node &node) const {
    return {path_ + ":" + std::to_string(node.where.line) + ":" +
            std::to_string(node.where.column)};
  }
  Sourced<std::string> sourced(const Node &node) const { return {node.text, origin(node)}; }
  std::vector<Sourced<std::string>> sourced(const Nodes &nodes) const {
    std::vector<Sourced<std::string>> out;
    for (const Node *node : nodes) out.push_back(sourced(*node));
    return out;
  }

  void version(const Node &node) {
    if (const auto number = read_integer(node, "'version'", 1, 1'000'000, diag_);
        number && *number != 1)
      diag_.error(node.where, "version " + std::to_string(*number) + " of this format is unknown",
                  "this release reads version 1");
  }

  // The entries of a list of names. A name that is given twice gets a warning.
  Nodes names(const Node &node, std::string_view what, Naming naming) {
    Nodes out;
    std::map<std::string_view, Where> seen;
    const std::string entry = std::string("an entry of ").append(what);
    read_list(node, what, "[a, b]", diag_, [&](const Node &item) {
      if (item.kind == Node::Kind::kBad) return;
      if (!expect(item, Node::Kind::kScalar, entry, "a name", diag_)) return;
      if (!(naming == Naming::kUnit ? check_name(item, entry, diag_)
                                    : check_label(item, entry, diag_)))
        return;
      told_twice(seen, item);
      out.push_back(&item);
    });
    return out;
  }

  void told_twice(std::map<std::string_view, Where> &seen, const Node &item) {
    const auto [first, is_new] = seen.emplace(item.text, item.where);
    if (!is_new)
      diag_.warning(item.where, quoted(item.text) + " is given twice",
                    "it stands in line " + std::to_string(first->second.line) + " already");
  }

  void use(const Node &key, const Node &node) {
    const Nodes stacks = names(node, "'use'", Naming::kLabel);
    policy_.use = {sourced(stacks), origin(stacks.empty() ? key : *stacks.front())};
  }

  void providers(const Node &node) {
    Nodes enabled, disabled;
    read_map(node, "'providers'", kProviderKeys, "providers: {disable: [udp]}", diag_,
             [&](const Node &key, const Node &value) {
               if (key.text == "enable") {
                 enabled = names(value, "'providers.enable'", Naming::kUnit);
                 policy_.enable = {sourced(enabled),
                                   enabled.empty() ? Origin{path_} : origin(*enabled.front())};
               } else if (key.text == "disable") {
                 disabled = names(value, "'providers.disable'", Naming::kUnit);
                 policy_.disable = sourced(disabled);
               } else {
                 read_list(value, "'providers.rank'", "[{match: {provider: verbs}, rank: 900}]",
                           diag_, [&](const Node &item) { rule(item); });
               }
             });
    check_disjoint(enabled, disabled);
  }

  void check_disjoint(const Nodes &enabled, const Nodes &disabled) {
    std::map<std::string_view, Where> lines;
    for (const Node *name : enabled) lines.emplace(name->text, name->where);
    for (const Node *name : disabled) {
      const auto both = lines.find(name->text);
      if (both != lines.end())
        diag_.error(name->where, quoted(name->text) + " is both enabled and disabled",
                    "it is enabled in line " + std::to_string(both->second.line) +
                        "; remove it from one of the lists");
    }
  }

  void rule(const Node &node) {
    RankRule rule;
    rule.origin = origin(node);
    bool has_match = false, has_effect = false;
    const auto number = [&](const Node &value) -> std::optional<int32_t> {
      const auto n = read_integer(value, "'rank'", std::numeric_limits<int32_t>::min(),
                                  std::numeric_limits<int32_t>::max(), diag_);
      if (!n) return std::nullopt;
      return static_cast<int32_t>(*n);
    };
    const bool is_map = read_map(node, "a rule of 'providers.rank'", kRuleKeys,
                                 "{match: {provider: verbs}, rank: 900}", diag_,
                                 [&](const Node &key, const Node &value) {
                                   if (key.text == "match") {
                                     has_match = true;
                                     match(value, rule);
                                   } else {
                                     has_effect = true;
                                     if (key.text == "rank")
                                       rule.rank = number(value);
                                     else
                                       rule.enable = read_bool(value, "'enable'", diag_);
                                   }
                                 });
    if (!is_map) return;
    if (!has_match)
      diag_.error(node.where, "a rule without 'match'",
                  "say what it is for; 'match: {}' is for everything");
    if (!has_effect)
      diag_.error(node.where, "a rule that changes nothing", "add 'rank: N' or 'enable: false'");
    policy_.ranks.push_back(std::move(rule));
  }

  void match(const Node &node, RankRule &rule) {
    read_map(node, "'match'", kMatchKeys, "match: {provider: verbs}", diag_,
             [&](const Node &key, const Node &value) {
               const std::string what = "'match." + key.text + "'";
               if (key.text == "provider") {
                 rule.provider = read_glob(value, what, diag_).value_or("");
               } else if (key.text == "netdev") {
                 rule.netdev = read_glob(value, what, diag_).value_or("");
               } else if (key.text == "subnet") {
                 rule.subnet = read_subnet(value, what, diag_).value_or("");
               } else if (key.text == "ep_type") {
                 if (const auto word = read_word(value, what, kEpTypes, diag_))
                   rule.ep_type = std::string(kEpTypes[*word]);
               } else if (key.text == "hostname") {
                 rule.hostname = read_glob(value, what, diag_).value_or("");
               } else {
                 rule.executable = read_glob(value, what, diag_).value_or("");
               }
             });
  }

  void stacks(const Node &node) {
    read_map(node, "'stacks'", {}, "stacks: {rdm: [{layer: rxm}, {provider: verbs}]}", diag_,
             [&](const Node &key, const Node &value) {
               check_label(key, "the stack", diag_);
               StackSpec out{key.text, {}, origin(key)};
               const std::string what = "stack " + quoted(key.text);
               bool all_read = true;
               const bool is_list = read_list(value, what, "[{layer: rxm}, {provider: verbs}]",
                                              diag_, [&](const Node &item) {
                                                if (auto made = element(item, all_read))
                                                  out.elements.push_back(std::move(*made));
                                              });
               if (is_list && value.items.empty())
                 diag_.error(value.where, what + " is empty",
                             "list its elements from the application down to the wire, the "
                             "provider last");
               else if (is_list && all_read)
                 check_order(out, key, value, what);
               policy_.stacks.push_back(std::move(out));
             });
  }

  // What has a name at least; `whole` is cleared where something is wrong with it.
  std::optional<StackElement> element(const Node &node, bool &whole) {
    StackElement out;
    out.where = origin(node).where;
    const Node *named = nullptr;
    bool good = true;
    const bool is_map = read_map(
        node, "an element of a stack", kElementKeys,
        "{provider: NAME}, {layer: NAME} or {hook: NAME}", diag_,
        [&](const Node &key, const Node &value) {
          if (key.text == "params") {
            settings(value, "'params'", [&](const Node &param, std::string text) {
              out.params.push_back({param.text, std::move(text), origin(param).where});
            });
          } else if (key.text == "on_unavailable") {
            if (const auto word = read_word(value, "'on_unavailable'", kUnavailable, diag_))
              out.skip_if_unavailable = *word == 1;
          } else if (named != nullptr) {
            diag_.error(key.where,
                        "an element is one thing, but has " + quoted(named->text) + " and " +
                            quoted(key.text),
                        "write two elements");
            good = false;
          } else {
            named = &key;
            out.kind = key.text == "provider" ? WEFT_KIND_PROVIDER
                       : key.text == "layer"  ? WEFT_KIND_LAYER
                                              : WEFT_KIND_HOOK;
            if (auto name = read_name(value, quoted(key.text), diag_))
              out.name = std::move(*name);
            else
              good = false;
          }
        });
    if (is_map && named == nullptr) {
      diag_.error(node.where, "an element without a unit",
                  "add 'provider: NAME', 'layer: NAME' or 'hook: NAME'");
      good = false;
    }
    if (named != nullptr && out.kind == WEFT_KIND_PROVIDER && out.skip_if_unavailable) {
      diag_.error(node.where, "a stack cannot do without its provider",
                  "remove 'on_unavailable: skip'");
      good = false;
    }
    if (!is_map || !good) whole = false;
    if (out.name.empty()) return std::nullopt;
    return out;
  }

  // Element i of the stack was made of item i of the list.
  void check_order(const StackSpec &stack, const Node &key, const Node &list,
                   const std::string &what) {
    const auto &elements = stack.elements;
    const auto place = [&](const StackElement &element) {
      return list.items[static_cast<size_t>(&element - elements.data())].where;
    };
    const auto provider = std::find_if(elements.begin(), elements.end(),
                                       [](const auto &e) { return e.kind == WEFT_KIND_PROVIDER; });
    if (provider == elements.end()) {
      diag_.error(key.where, what + " has no provider",
                  "end it with {provider: NAME}, which moves the bytes");
    } else {
      for (auto below = provider + 1; below != elements.end(); ++below)
        diag_.error(place(*below),
                    std::string(below->kind == WEFT_KIND_LAYER  ? "layer "
                                : below->kind == WEFT_KIND_HOOK ? "hook "
                                                                : "provider ") +
                        quoted(below->name) + " stands below the provider " +
                        quoted(provider->name),
                    "a stack runs from the application down to the wire and ends with its one "
                    "provider");
    }
    for (size_t i = 1; i < elements.size(); ++i)
      if (elements[i].kind == elements[i - 1].kind && elements[i].name == elements[i - 1].name &&
          elements[i].kind != WEFT_KIND_PROVIDER)
        diag_.error(place(elements[i]), quoted(elements[i].name) + " stands twice in a row",
                    "remove one");
  }

  void params(const Node &node) {
    read_map(node, "'params'", {}, "params: {tcp: {key: value}}", diag_,
             [&](const Node &key, const Node &value) {
               // Each setting holds a copy of the unit's name, so a name of any length must not
               // get there: the settings of a bad name are checked and left out.
               const bool good = check_name(key, "the unit", diag_);
               settings(value, quoted("params." + (good ? key.text : "?")),
                        [&](const Node &param, std::string text) {
                          if (good)
                            policy_.params.push_back(
                                {key.text, param.text, {std::move(text), origin(param)}});
                        });
             });
  }

  // Calls `add(key, value)` for each setting of a map of parameters.
  template <class Add>
  void settings(const Node &node, const std::string &what, Add add) {
    read_map(node, what, {}, "{key: value}", diag_, [&](const Node &key, const Node &value) {
      if (!check_param_name(key, "the parameter", diag_)) return;
      if (auto text = read_value(value, quoted(key.text), diag_)) add(key, std::move(*text));
    });
  }

  void plugins(const Node &node) {
    read_map(node, "'plugins'", kPluginKeys, "plugins: {path: [/opt/vendor/lib/weft]}", diag_,
             [&](const Node &key, const Node &value) {
               if (key.text == "path") {
                 plugin_path(value);
               } else if (key.text == "unprobed") {
                 if (const auto word = read_word(value, "'plugins.unprobed'", kAllowDeny, diag_))
                   policy_.unprobed_allow = {*word == 0, origin(key)};
               } else if (const auto ms = read_integer(value, "'plugins.probe_budget_ms'", 1,
                                                       kMaxProbeBudgetMs, diag_)) {
                 policy_.probe_budget_ms = {*ms, origin(key)};
               }
             });
  }

  void plugin_path(const Node &node) {
    std::map<std::string_view, Where> seen;
    read_list(node, "'plugins.path'", "[/opt/vendor/lib/weft]", diag_, [&](const Node &item) {
      const auto path = read_text(item, "an entry of 'plugins.path'", diag_);
      if (!path) return;
      if (path->front() != '/') {
        diag_.error(item.where, quoted(*path) + " is no absolute path",
                    "programs run in many folders; begin it with '/'");
        return;
      }
      told_twice(seen, item);
      policy_.plugin_path.push_back({*path, origin(item)});
    });
  }

  void final_keys(const Node &node) {
    std::map<std::string_view, Where> seen;
    read_list(node, "'final'", "[providers.disable]", diag_, [&](const Node &item) {
      if (!read_text(item, "an entry of 'final'", diag_)) return;
      if (!check_final(item)) return;
      told_twice(seen, item);
      policy_.final_keys.push_back(sourced(item));
    });
  }

  // A key stands for all that is beneath it: "params.tcp" for each parameter of tcp.
  bool check_final(const Node &item) {
    std::array<std::string_view, 3> part;
    size_t count = 0;
    std::string_view rest = item.text;
    const auto no_key = [&](std::string_view remedy) {
      diag_.error(item.where, quoted(item.text) + " is no key that could be final", remedy);
      return false;
    };
    for (bool more = true; more; ++count) {
      const size_t dot = rest.find('.');
      if (count == part.size() || dot == 0 || rest.empty())
        return no_key("write it like 'providers.disable' or 'params.tcp.interfaces'");
      part[count] = rest.substr(0, dot);
      more = dot != std::string_view::npos;
      if (more) rest.remove_prefix(dot + 1);
    }
    if (std::find(kFinalKeys.begin(), kFinalKeys.end(), part[0]) == kFinalKeys.end())
      return no_key(suggestion(part[0], kFinalKeys));
    const Words beneath = part[0] == "providers" ? Words(kProviderKeys)
                          : part[0] == "plugins" ? Words(kPluginKeys)
                                                 : Words();
    const size_t deepest = part[0] == "params"                        ? 3
                           : part[0] == "use" || part[0] == "control" ? 1
                                                                      : 2;
    if (count > deepest)
      return no_key("it has no more than " + std::to_string(deepest) +
                    (deepest == 1 ? " part" : " parts"));
    if (count == 2 && !beneath.empty() &&
        std::find(beneath.begin(), beneath.end(), part[1]) == beneath.end())
      return no_key(suggestion(part[1], beneath));
    return true;
  }

  const std::string path_;
  Diagnostics &diag_;
  PolicyContent policy_;
};

}  // namespace

std::optional<PolicyContent> parse_policy(std::string_view path, std::string_view text,
                                          Diagnostics &diag) {
  const std::optional<Node> root = parse_tree(text, diag);
  if (!root) return std::nullopt;
  return PolicyReader(path, diag).read(*root);
}

}  // namespace weft::config
