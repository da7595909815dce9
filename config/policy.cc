// SPDX-License-Identifier: BSD-2-Clause
#include "config/parse_policy.h"

#include <algorithm>
#include <array>
#include <map>
#include <type_traits>
#include <utility>

#include "config/check_stack.h"
#include "config/policy_keys.h"
#include "config/schema.h"
#include "config/tree.h"

namespace weft::config {

namespace {

template <class... Values>
constexpr bool is_one_of(const KeyMember &member) {
  return (member.is<Values>() || ...);
}

// Whether the member of a key can hold what its form says.
constexpr bool fits(const PolicyKey &key) {
  using P = PolicyContent;
  const KeyMember &member = key.member;
  switch (key.form) {
    case KeyForm::kVersion:
    case KeyForm::kGroup:
      return member.is_none();
    case KeyForm::kUnits:
    case KeyForm::kLabels:
    case KeyForm::kFolders:
    case KeyForm::kKeys:
      return is_one_of<NameList P::*, std::optional<Sourced<NameList>> P::*>(member);
    case KeyForm::kRules:
      return is_one_of<std::vector<RankRule> P::*>(member);
    case KeyForm::kStacks:
      return is_one_of<std::vector<StackSpec> P::*>(member);
    case KeyForm::kParams:
      return is_one_of<std::vector<UnitParam> P::*>(member);
    case KeyForm::kBranches:
      return is_one_of<std::vector<std::vector<StackElement>> StackElement::*>(member);
    case KeyForm::kSettings:
      return is_one_of<std::vector<Setting> StackElement::*>(member);
    case KeyForm::kUnit:
      return is_one_of<std::string StackElement::*>(member);
    case KeyForm::kNumber:
      return is_one_of<std::optional<Sourced<int64_t>> P::*, std::optional<int32_t> RankRule::*>(
          member);
    case KeyForm::kBoolean:
      return is_one_of<std::optional<bool> RankRule::*>(member);
    case KeyForm::kPattern:
    case KeyForm::kSubnet:
    case KeyForm::kEpType:
      return is_one_of<std::string RankRule::*>(member);
    case KeyForm::kAllowDeny:
    case KeyForm::kShmNone:
      return is_one_of<std::optional<Sourced<bool>> P::*>(member);
    case KeyForm::kFailSkip:
      return is_one_of<bool StackElement::*>(member);
  }
  return false;
}

// Whether it is said how files merge, where they do.
constexpr bool merges(const PolicyKey &key) {
  return key.member.is_of<PolicyContent>() == (key.merge != KeyMerge::kNone);
}

static_assert(std::all_of(kPolicyKeys.begin(), kPolicyKeys.end(), fits));
static_assert(std::all_of(kPolicyKeys.begin(), kPolicyKeys.end(), merges));

// 'providers.enable'; of the keys of rules and elements only what stands in them: 'match.netdev'.
std::string what_of(const PolicyKey &key) {
  const size_t list = key.path.find("[].");
  return quoted(list == std::string_view::npos ? key.path : key.path.substr(list + 3));
}

class PolicyReader {
 public:
  PolicyReader(std::string_view path, Diagnostics &diag) : path_(path), diag_(diag) {}

  PolicyContent read(const Node &root) {
    PolicyContent policy;
    if (root.kind == Node::Kind::kNull)
      diag_.error(root.where, "the file says nothing", "begin it with 'version: 1'");
    else
      read_keys(root, "", "the file", "'key: value' lines", policy);
    return policy;
  }

 private:
  using Nodes = std::vector<const Node *>;
  using Given = std::vector<const PolicyKey *>;

  Origin origin(const Node &node) const {
    return {Rule::file(path_, node.where.line, node.where.column)};
  }

  // Reads the keys that the table has beneath `parent` into `target`. Returns those that the file
  // gives; nothing if the node is no map.
  template <class Target>
  std::optional<Given> read_keys(const Node &node, std::string_view parent, std::string_view what,
                                 std::string_view example, Target &target) {
    std::vector<std::string_view> names;
    for_each_beneath(parent, [&](const PolicyKey &key) { names.push_back(key.name()); });
    Given given;
    const bool is_map =
        read_map(node, what, names, example, diag_, [&](const Node &name, const Node &value) {
          const PolicyKey &key = *find_policy_key(parent, name.text);
          given.push_back(&key);
          if (key.member.is_none())
            read_group(key, value, target);
          else
            key.member.with<Target>([&](auto member) { fill(key, name, value, target, member); });
        });
    if (!is_map) return std::nullopt;
    for_each_beneath(parent, [&](const PolicyKey &key) {
      if (key.more.need == KeyNeed::kRequired &&
          std::find(given.begin(), given.end(), &key) == given.end())
        diag_.error(node.where, key.more.missing, key.more.remedy);
    });
    return given;
  }

  template <class Target>
  void read_group(const PolicyKey &key, const Node &node, Target &target) {
    if (key.form == KeyForm::kVersion) {
      version(key, node);
      return;
    }
    constexpr bool has_lists = std::is_same_v<Target, PolicyContent>;
    if (has_lists) lists_.clear();
    read_keys(node, key.path, what_of(key), key.more.example, target);
    if (has_lists) check_disjoint(lists_["providers.enable"], lists_["providers.disable"]);
  }

  void version(const PolicyKey &key, const Node &node) {
    if (const auto number = read_integer(node, what_of(key), 1, 1'000'000, diag_);
        number && *number != 1)
      diag_.error(node.where, "version " + std::to_string(*number) + " of this format is unknown",
                  "this release reads version 1");
  }

  // fill() reads the value of one key, by the type of its member: `name` is the key in the file,
  // `node` the value.

  // ---- lists of names

  void fill(const PolicyKey &key, const Node &, const Node &node, PolicyContent &policy,
            NameList PolicyContent::*member) {
    policy.*member = sourced(list(key, node));
  }

  void fill(const PolicyKey &key, const Node &name, const Node &node, PolicyContent &policy,
            std::optional<Sourced<NameList>> PolicyContent::*member) {
    const Nodes &entries = list(key, node);
    policy.*member = {sourced(entries), origin(entries.empty() ? name : *entries.front())};
  }

  // The entries that are right. One that is given twice gets a warning.
  const Nodes &list(const PolicyKey &key, const Node &node) {
    Nodes &out = lists_[key.path];
    out.clear();
    std::map<std::string_view, Where> seen;
    const std::string what = what_of(key), entry = "an entry of " + what;
    read_list(node, what, key.more.example, diag_, [&](const Node &item) {
      if (!check_entry(key.form, item, entry)) return;
      told_twice(seen, item);
      out.push_back(&item);
    });
    return out;
  }

  bool check_entry(KeyForm form, const Node &item, const std::string &what) {
    switch (form) {
      case KeyForm::kUnits:
        return expect(item, Node::Kind::kScalar, what, "a name", diag_) &&
               check_name(item, what, diag_);
      case KeyForm::kLabels:
        return expect(item, Node::Kind::kScalar, what, "a name", diag_) &&
               check_label(item, what, diag_);
      case KeyForm::kFolders:
        return read_text(item, what, diag_) && check_absolute(item);
      default:
        return read_text(item, what, diag_) && check_final(item);
    }
  }

  void told_twice(std::map<std::string_view, Where> &seen, const Node &item) {
    const auto [first, is_new] = seen.emplace(item.text, item.where);
    if (!is_new)
      diag_.warning(item.where, quoted(item.text) + " is given twice",
                    "it stands in line " + std::to_string(first->second.line) + " already");
  }

  NameList sourced(const Nodes &nodes) const {
    NameList out;
    for (const Node *node : nodes) out.push_back({node->text, origin(*node)});
    return out;
  }

  bool check_absolute(const Node &item) {
    if (item.text.front() == '/') return true;
    diag_.error(item.where, quoted(item.text) + " is no absolute path",
                "programs run in many folders; begin it with '/'");
    return false;
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
    const PolicyKey *top = find_policy_key("", part[0]);
    if (top == nullptr || !top->may_be_final) return no_key(suggestion(part[0], finals("")));
    const size_t deepest = top->form == KeyForm::kParams                                   ? 3
                           : top->form == KeyForm::kGroup || top->form == KeyForm::kStacks ? 2
                                                                                           : 1;
    if (count > deepest)
      return no_key("it has no more than " + std::to_string(deepest) +
                    (deepest == 1 ? " part" : " parts"));
    if (count == 1 || top->form != KeyForm::kGroup) return true;
    const PolicyKey *inner = find_policy_key(top->path, part[1]);
    if (inner == nullptr || !inner->may_be_final)
      return no_key(suggestion(part[1], finals(top->path)));
    return true;
  }

  static std::vector<std::string_view> finals(std::string_view parent) {
    std::vector<std::string_view> names;
    for_each_beneath(parent, [&](const PolicyKey &key) {
      if (key.may_be_final) names.push_back(key.name());
    });
    return names;
  }

  // ---- single values

  void fill(const PolicyKey &key, const Node &name, const Node &node, PolicyContent &policy,
            std::optional<Sourced<bool>> PolicyContent::*member) {
    if (const auto word = read_word(node, what_of(key), words_of(key.form), diag_))
      policy.*member = {*word == 0, origin(name)};
  }

  void fill(const PolicyKey &key, const Node &name, const Node &node, PolicyContent &policy,
            std::optional<Sourced<int64_t>> PolicyContent::*member) {
    if (const auto number =
            read_integer(node, what_of(key), key.more.minimum, key.more.maximum, diag_))
      policy.*member = {*number, origin(name)};
  }

  // ---- rules

  void fill(const PolicyKey &key, const Node &, const Node &node, PolicyContent &policy,
            std::vector<RankRule> PolicyContent::*member) {
    const std::string_view example = key.more.example;
    read_list(node, what_of(key), example, diag_, [&](const Node &item) {
      RankRule rule;
      rule.origin = origin(item);
      const auto given = read_keys(item, std::string(key.path) + "[]", "a rule of " + what_of(key),
                                   example.substr(1, example.size() - 2), rule);
      if (!given) return;
      if (std::none_of(given->begin(), given->end(),
                       [](const PolicyKey *one) { return one->more.need == KeyNeed::kAnyOf; }))
        diag_.error(item.where, "a rule that changes nothing", "add 'rank: N' or 'enable: false'");
      (policy.*member).push_back(std::move(rule));
    });
  }

  void fill(const PolicyKey &key, const Node &, const Node &node, RankRule &rule,
            std::string RankRule::*member) {
    const std::string what = what_of(key);
    if (key.form == KeyForm::kPattern) {
      rule.*member = read_glob(node, what, diag_).value_or("");
    } else if (key.form == KeyForm::kSubnet) {
      rule.*member = read_subnet(node, what, diag_).value_or("");
    } else if (const auto word = read_word(node, what, words_of(key.form), diag_)) {
      rule.*member = words_of(key.form)[*word];
    }
  }

  void fill(const PolicyKey &key, const Node &, const Node &node, RankRule &rule,
            std::optional<int32_t> RankRule::*member) {
    if (const auto number =
            read_integer(node, what_of(key), key.more.minimum, key.more.maximum, diag_))
      rule.*member = static_cast<int32_t>(*number);
  }

  void fill(const PolicyKey &key, const Node &, const Node &node, RankRule &rule,
            std::optional<bool> RankRule::*member) {
    rule.*member = read_bool(node, what_of(key), diag_);
  }

  // ---- stacks

  using Chain = std::vector<StackElement>;

  void fill(const PolicyKey &stacks, const Node &, const Node &node, PolicyContent &policy,
            std::vector<StackSpec> PolicyContent::*member) {
    read_map(node, what_of(stacks), {}, stacks.more.example, diag_,
             [&](const Node &label, const Node &value) {
               check_label(label, "the stack", diag_);
               StackSpec out{label.text, {}, origin(label)};
               const std::string what = "stack " + quoted(label.text);
               elements_whole_ = true;
               read_chain(value, what, label.where, "[{layer: rxm}, {provider: verbs}]",
                          out.elements);
               if (elements_whole_) check_ways_down(out.elements, value, diag_);
               (policy.*member).push_back(std::move(out));
             });
  }

  // A stack or a branch. `where` is the place of what it lacks.
  void read_chain(const Node &node, const std::string &what, const Where &where,
                  std::string_view example, Chain &out) {
    const bool others_whole = std::exchange(elements_whole_, true);
    const bool is_list = read_list(node, what, example, diag_, [&](const Node &item) {
      if (auto made = element(item)) out.push_back(std::move(*made));
    });
    if (is_list && node.items.empty())
      diag_.error(node.where, what + " is empty",
                  "list its elements from the application down to the wire, the provider last");
    else if (is_list && elements_whole_)
      check_chain(out, node, where, what, diag_);
    elements_whole_ = is_list && !node.items.empty() && elements_whole_ && others_whole;
  }

  // What has a name at least.
  std::optional<StackElement> element(const Node &node) {
    static constexpr std::string_view kPath = "stacks.LABEL[]";
    StackElement out;
    out.where = origin(node).where;
    over_ = nullptr;
    const auto given = read_keys(node, kPath, "an element of a stack",
                                 "{provider: NAME}, {layer: NAME} or {hook: NAME}", out);
    const Node *const over = std::exchange(over_, nullptr);
    if (given && out.kind == 0)
      diag_.error(node.where, "an element without a unit",
                  "add 'provider: NAME', 'layer: NAME' or 'hook: NAME'");
    const bool skips_provider =
        out.kind == WEFT_KIND_PROVIDER && out.skip_if_unavailable && depth_ == 0;
    if (skips_provider)
      diag_.error(node.where, "a stack cannot do without its provider",
                  "remove 'on_unavailable: skip'");
    if (!given || out.kind == 0 || skips_provider) elements_whole_ = false;
    if (over != nullptr && out.kind != 0 && !branches(node, *over, out)) elements_whole_ = false;
    if (out.name.empty()) return std::nullopt;
    return out;
  }

  // The branches of a layer. They are read behind all other keys of the element, since its name may
  // stand behind `over`.
  void fill(const PolicyKey &, const Node &, const Node &node, StackElement &,
            std::vector<Chain> StackElement::*) {
    over_ = &node;
  }

  bool branches(const Node &node, const Node &over, StackElement &layer) {
    const PolicyKey &key = *find_policy_key("stacks.LABEL[]", "over");
    if (layer.kind != WEFT_KIND_LAYER) {
      diag_.error(over.where,
                  std::string(kUnitKinds[layer.kind - 1]) + " " + quoted(layer.name) +
                      " has branches, but only a layer stands over several providers",
                  "remove 'over', or write " + std::string(key.more.example) + " beside 'layer'");
      return false;
    }
    bool good = !layer.skip_if_unavailable;
    if (!good)
      diag_.error(
          node.where,
          "layer " + quoted(layer.name) + " cannot be skipped: nothing would join its branches",
          "remove 'on_unavailable: skip'");
    ++depth_;
    const bool is_list =
        read_list(over, what_of(key), key.more.example, diag_, [&](const Node &item) {
          const std::string what =
              "branch " + std::to_string(layer.branches.size() + 1) + " of " + quoted(layer.name);
          Chain &branch = layer.branches.emplace_back();
          read_chain(item, what, item.where, "[{provider: shm}], in brackets of its own", branch);
        });
    --depth_;
    if (!is_list) return false;
    return check_branches(layer, over, diag_) && good;
  }

  void fill(const PolicyKey &key, const Node &name, const Node &node, StackElement &element,
            std::string StackElement::*member) {
    if (element.kind != 0) {
      diag_.error(name.where,
                  "an element is one thing, but has " + quoted(kUnitKinds[element.kind - 1]) +
                      " and " + quoted(name.text),
                  "write two elements");
      elements_whole_ = false;
      return;
    }
    const auto kind = std::find(kUnitKinds.begin(), kUnitKinds.end(), key.name());
    element.kind = static_cast<uint32_t>(kind - kUnitKinds.begin()) + 1;
    if (auto unit = read_name(node, what_of(key), diag_))
      element.*member = std::move(*unit);
    else
      elements_whole_ = false;
  }

  void fill(const PolicyKey &key, const Node &, const Node &node, StackElement &element,
            bool StackElement::*member) {
    if (const auto word = read_word(node, what_of(key), words_of(key.form), diag_))
      element.*member = *word == 1;
  }

  void fill(const PolicyKey &key, const Node &, const Node &node, StackElement &element,
            std::vector<Setting> StackElement::*member) {
    settings(node, what_of(key), [&](const Node &param, std::string text) {
      (element.*member).push_back({param.text, std::move(text), origin(param).where});
    });
  }

  // ---- parameters

  void fill(const PolicyKey &key, const Node &, const Node &node, PolicyContent &policy,
            std::vector<UnitParam> PolicyContent::*member) {
    read_map(
        node, what_of(key), {}, key.more.example, diag_, [&](const Node &unit, const Node &value) {
          // Each setting holds a copy of the unit's name, so a name of any length must not
          // get there: the settings of a bad name are checked and left out.
          const bool good = check_name(unit, "the unit", diag_);
          settings(value, quoted(std::string(key.path) + "." + (good ? unit.text : "?")),
                   [&](const Node &param, std::string text) {
                     if (good)
                       (policy.*member)
                           .push_back({unit.text, param.text, {std::move(text), origin(param)}});
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

  const std::string path_;
  Diagnostics &diag_;
  std::map<std::string_view, Nodes> lists_;  // by path, of the group that is being read
  bool elements_whole_ = true;               // of the stack or branch that is being read
  size_t depth_ = 0;                         // of the branch that is being read; 0: none
  const Node *over_ = nullptr;               // the branches of the element that is being read
};

}  // namespace

std::optional<PolicyContent> parse_policy(std::string_view path, std::string_view text,
                                          Diagnostics &diag) {
  const std::optional<Node> root = parse_tree(text, diag);
  if (!root) return std::nullopt;
  return PolicyReader(path, diag).read(*root);
}

}  // namespace weft::config
