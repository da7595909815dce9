// SPDX-License-Identifier: BSD-2-Clause
#include "config/check_stack.h"

#include <algorithm>
#include <string>

#include "config/policy_keys.h"

namespace weft::config {

namespace {

using Chain = std::vector<StackElement>;

std::string with_kind(const StackElement &element) {
  return std::string(kUnitKinds[element.kind - 1]) + " " + quoted(element.name);
}

bool same_branch(const Chain &a, const Chain &b) {
  const auto same_setting = [](const Setting &x, const Setting &y) {
    return x.key == y.key && x.value == y.value;
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const StackElement &x, const StackElement &y) {
                      return x.kind == y.kind && x.name == y.name &&
                             std::equal(x.params.begin(), x.params.end(), y.params.begin(),
                                        y.params.end(), same_setting) &&
                             std::equal(x.branches.begin(), x.branches.end(), y.branches.begin(),
                                        y.branches.end(), same_branch);
                    });
}

// `above` are the layers on the way down so far.
void check_way_down(const Chain &chain, const Node &list, std::vector<std::string_view> above,
                    bool in_branch, Diagnostics &diag) {
  for (size_t i = 0; i < chain.size(); ++i) {
    const StackElement &element = chain[i];
    if (element.kind != WEFT_KIND_LAYER) continue;
    const bool told = i > 0 && chain[i - 1].name == element.name;  // by check_chain
    if (in_branch && !told && std::find(above.begin(), above.end(), element.name) != above.end())
      diag.error(list.items[i].where, with_kind(element) + " stands beneath itself",
                 "remove one: a layer stands once on the way down to each provider");
    above.push_back(element.name);
    if (element.branches.empty()) continue;
    const std::vector<Node> &entries = list.items[i].items;  // key, value, key, value...
    for (size_t k = 0; k + 1 < entries.size(); k += 2) {
      if (entries[k].text != "over") continue;
      for (size_t b = 0; b < element.branches.size(); ++b)
        check_way_down(element.branches[b], entries[k + 1].items[b], above, true, diag);
    }
  }
}

}  // namespace

void check_chain(const std::vector<StackElement> &elements, const Node &list, const Where &where,
                 std::string_view what, Diagnostics &diag) {
  // The provider, or the layer with the branches.
  const auto bottom = std::find_if(elements.begin(), elements.end(), [](const StackElement &one) {
    return one.kind == WEFT_KIND_PROVIDER || !one.branches.empty();
  });
  if (bottom == elements.end())
    diag.error(where, std::string(what) + " has no provider",
               "end it with {provider: NAME}, which moves the bytes");
  for (size_t i = static_cast<size_t>(bottom - elements.begin()) + 1; i < elements.size(); ++i) {
    if (bottom->kind == WEFT_KIND_PROVIDER)
      diag.error(list.items[i].where,
                 with_kind(elements[i]) + " stands below the provider " + quoted(bottom->name),
                 "a stack runs from the application down to the wire and ends with its one "
                 "provider");
    else
      diag.error(list.items[i].where,
                 with_kind(elements[i]) + " stands below the branches of " + with_kind(*bottom),
                 "move it into a branch, or above " + quoted(bottom->name));
  }
  for (size_t i = 1; i < elements.size(); ++i)
    if (elements[i].kind == elements[i - 1].kind && elements[i].name == elements[i - 1].name &&
        elements[i].kind != WEFT_KIND_PROVIDER)
      diag.error(list.items[i].where, quoted(elements[i].name) + " stands twice in a row",
                 "remove one");
}

bool check_branches(const StackElement &layer, const Node &over, Diagnostics &diag) {
  const size_t count = layer.branches.size();
  if (count == 0 || count > WEFT_MAX_INNER) {
    diag.error(over.where,
               count == 0 ? "'over' is empty" : "'over' has " + std::to_string(count) + " branches",
               "list from 1 to " + std::to_string(WEFT_MAX_INNER) +
                   " branches, each in brackets of its own: [{provider: shm}]");
    return false;
  }
  bool good = true;
  for (size_t i = 0; i < count; ++i) {
    const auto &branch = layer.branches[i];
    if (branch.empty()) continue;  // was reported
    for (size_t j = 0; j < i; ++j) {
      if (!same_branch(branch, layer.branches[j])) continue;
      diag.error(over.items[i].where,
                 "branch " + std::to_string(i + 1) + " of " + quoted(layer.name) +
                     " is the same as branch " + std::to_string(j + 1),
                 "remove one, or give them different 'params'");
      good = false;
      break;
    }
  }
  return good;
}

void check_ways_down(const std::vector<StackElement> &elements, const Node &list,
                     Diagnostics &diag) {
  check_way_down(elements, list, {}, false, diag);
}

}  // namespace weft::config
