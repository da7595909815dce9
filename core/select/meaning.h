// SPDX-License-Identifier: BSD-2-Clause
// Values of a policy in one form: those that have the same effect look the same ("16K" and
// "16384", the two names of a unit, another order where order means nothing). `weft policy diff`
// compares them.
//
// Example:
//     inline bool same_stack(const Meaning &meaning, const StackSpec &a, const StackSpec &b) {
//       const StackElement first = meaning.of(a.elements).front();
//       return first.name == meaning.of(b.elements).front().name;
//     }
//
// Nothing is chosen by this form, and nothing is refused: what is wrong stays as it is written.
#ifndef WEFT_CORE_SELECT_MEANING_H
#define WEFT_CORE_SELECT_MEANING_H

#include <string>
#include <string_view>
#include <vector>

#include "config/policy_keys.h"
#include "core/base/unit.h"

namespace weft {

class Meaning {
 public:
  // The units are those that are known here. They must outlive this.
  explicit Meaning(const std::vector<UnitInfo> &units) : units_(units) {}

  // An entry of a list: of units, keys, folders or labels.
  std::string of(KeyForm form, const std::string &entry) const;
  // A list as a whole.
  std::vector<std::string> of(KeyForm form, const NameList &names) const;
  RankRule of(RankRule rule) const;
  std::vector<StackElement> of(std::vector<StackElement> elements) const;
  std::string of_param(const UnitInfo &unit, std::string_view key, const std::string &value) const;

 private:
  std::string of_unit(const std::string &name) const;

  const std::vector<UnitInfo> &units_;
};

}  // namespace weft

#endif
