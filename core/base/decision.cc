// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/decision.h"

#include <algorithm>
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

const Decision *DecisionRecord::last(std::string_view candidate) const {
  const Decision *furthest = nullptr;
  for (const Decision &decision : decisions_) {
    if (decision.candidate != candidate) continue;
    // Of two decisions on one stage the later one counts.
    if (furthest == nullptr || decision.stage >= furthest->stage) furthest = &decision;
  }
  return furthest;
}

std::string DecisionRecord::to_text() const {
  size_t candidate_width = 0, stage_width = 0;
  for (const Decision &decision : decisions_) {
    candidate_width = std::max(candidate_width, decision.candidate.size());
    stage_width = std::max(stage_width, stage_name(decision.stage).size());
  }
  const auto padded = [](std::string_view text, size_t width) {
    std::string cell(text);
    cell.resize(std::max(width, cell.size()), ' ');
    return cell + "  ";
  };
  std::string text;
  for (const Decision &decision : decisions_) {
    text += padded(decision.candidate, candidate_width);
    text += padded(stage_name(decision.stage), stage_width);
    text += decision.accepted ? "yes  " : "no   ";
    text += decision.reason;
    if (!decision.rule.empty()) text += " (" + decision.rule + ")";
    if (!decision.remedy.empty()) text += ": " + decision.remedy;
    while (text.back() == ' ') text.pop_back();
    text += '\n';
  }
  return text;
}

}  // namespace weft
