// SPDX-License-Identifier: BSD-2-Clause
// The candidates that did not answer one fi_getinfo(), and the one decision that kept each from it.
//
// Example (statements):
//     Misses misses;
//     misses.add({.candidate = "tcp",
//                 .stage = Stage::kHints,
//                 .refusals = {{"tx_attr.size", Misfit::kAbove, "4096", "1024"}}});
//     const Decision nearest = misses.sorted().front();
//
// This is the short answer. The decision record (core/base/decision.h) has everything about every
// candidate. A candidate has one miss: the nearest of those that were added (distance_of).
#ifndef WEFT_CORE_SELECT_MISSES_H
#define WEFT_CORE_SELECT_MISSES_H

#include <string_view>
#include <vector>

#include "core/base/decision.h"

namespace weft {

class Misses {
 public:
  void add(Decision miss);
  void drop(std::string_view candidate);  // it answered after all
  bool has(std::string_view candidate) const;
  // The nearest first; of equal ones in the order in which the candidates were tried.
  std::vector<Decision> sorted() const;

 private:
  std::vector<Decision> misses_;
};

}  // namespace weft

#endif
