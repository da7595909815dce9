// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/decision.h"

#include <array>

namespace weft {

std::string_view stage_name(Stage stage) {
  static constexpr std::array<std::string_view, 13> kNames = {
      "manifest",  "policy", "trust",   "architecture", "device", "dlopen",  "symbol",
      "negotiate", "init",   "getinfo", "hints",        "rank",   "selected"};
  static_assert(kNames.size() == static_cast<size_t>(Stage::kSelected) + 1);
  const auto index = static_cast<size_t>(stage);
  return index < kNames.size() ? kNames[index] : "unknown";
}

uint32_t distance_of(Stage stage) {
  switch (stage) {
    case Stage::kRank:  // it fits; a rule switches it off
      return 1;
    case Stage::kHints:
      return 16;
    case Stage::kGetinfo:  // its own words, often about an address
      return 4;
    default:  // it was not even asked: the earlier, the further
      return 200 - static_cast<uint32_t>(stage);
  }
}

uint32_t distance_of(const Decision &decision) {
  if (decision.distance) return *decision.distance;
  if (decision.refusals.empty()) return distance_of(decision.stage);
  uint32_t sum = 0;
  for (const Refusal &one : decision.refusals) sum += one.distance;
  return sum;
}

const Decision *DecisionRecord::last(std::string_view candidate) const {
  const Decision *furthest = nullptr;
  for (const Decision &decision : decisions_) {
    if (decision.candidate != candidate) continue;
    // Of two decisions on one stage the later one counts.
    if (furthest == nullptr || decision.stage >= furthest->stage) furthest = &decision;
  }
  return furthest;
}

}  // namespace weft
