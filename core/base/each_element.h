// SPDX-License-Identifier: BSD-2-Clause
// All elements of a stack whose last one may have branches: as the policy writes it, as a candidate
// and as a plan.
//
// Example:
//    struct Part {
//      std::string name;
//      std::vector<std::vector<Part>> branches;
//    };
//    inline std::string names(const std::vector<Part> &stack) {
//      std::string out;
//      weft::each_element(stack, [&](const Part &part) { out += part.name; });
//      return out;
//    }
//
// Not for units without elements: core/select/stack_units.h.
#ifndef WEFT_CORE_BASE_EACH_ELEMENT_H
#define WEFT_CORE_BASE_EACH_ELEMENT_H

#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace weft {

// Calls `each(element)` from the application down, one branch after the other.
template <class Element, class Each>
void each_element(const std::vector<Element> &chain, const Each &each) {
  for (const Element &element : chain) {
    each(element);
    for (const std::vector<Element> &branch : element.branches) each_element(branch, each);
  }
}

// Puts an element at the end of a chain. A layer over one branch is the same as in a chain: what it
// stands over comes behind it.
template <class Element>
void add_over(Element element, std::vector<Element> &chain) {
  std::vector<std::vector<Element>> branches;
  if (element.branches.size() == 1) branches.swap(element.branches);
  chain.push_back(std::move(element));
  if (!branches.empty())
    chain.insert(chain.end(), std::make_move_iterator(branches[0].begin()),
                 std::make_move_iterator(branches[0].end()));
}

}  // namespace weft

#endif
