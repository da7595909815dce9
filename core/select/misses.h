// SPDX-License-Identifier: BSD-2-Clause
// The candidates that did not answer one fi_getinfo(), and the one reason that kept each from it.
//
// Example (statements):
//     Misses misses;
//     misses.add({"tcp", Stage::kHints, "tx_attr.size 4096 is above 1024", "ask for less", 1});
//     const std::string nearest = text_of(misses.sorted().front());
//
// This is the short answer. The decision record (core/base/decision.h) has everything about every
// candidate. A candidate has one miss: the nearest of those that were added.
#ifndef WEFT_CORE_SELECT_MISSES_H
#define WEFT_CORE_SELECT_MISSES_H

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/decision.h"

namespace weft {

struct Miss {
  std::string candidate;  // "tcp;ofi_rxm"
  Stage stage = Stage::kHints;
  std::string reason;
  std::string remedy;     // may be empty
  uint32_t distance = 0;  // Match::distance() of the hints; of other stages distance_of_stage()
};

// For candidates that were rejected at another stage than hints.
uint32_t distance_of_stage(Stage stage);

class Misses {
 public:
  void add(Miss miss);
  void drop(std::string_view candidate);  // it answered after all
  bool has(std::string_view candidate) const;
  // The nearest first; of equal ones in the order in which the candidates were tried.
  std::vector<Miss> sorted() const;

 private:
  std::vector<Miss> misses_;
};

// "tcp: tx_attr.size 4096 is above 1024", with the remedy where there is one.
std::string text_of(const Miss &miss);

}  // namespace weft

#endif
