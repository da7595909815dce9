// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/decisions.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <weft/printable.h>

#include <algorithm>

namespace weft::cli {
namespace {

size_t stage_index(const std::string &stage) {
  const auto &all = stages();
  return static_cast<size_t>(std::find(all.begin(), all.end(), stage) - all.begin());
}

Decision decision_of(const Json &json) {
  return {.candidate = text_of(json, "candidate"),
          .stage = text_of(json, "stage"),
          .accepted = flag_of(json, "accepted"),
          .reason = text_of(json, "reason"),
          .remedy = text_of(json, "remedy"),
          .rule = text_of(json, "rule"),
          .lost = flag_of(json, "lost")};
}

}  // namespace

const std::vector<std::string> &stages() {
  static const std::vector<std::string> kStages = {
      "manifest",  "policy", "trust",   "architecture", "device", "dlopen",  "symbol",
      "negotiate", "init",   "getinfo", "hints",        "rank",   "selected"};
  return kStages;
}

const Decision &Candidate::last() const {
  const Decision *furthest = &decisions.front();
  // Of several decisions at one stage the latest counts.
  for (const Decision &decision : decisions)
    if (stage_index(decision.stage) >= stage_index(furthest->stage)) furthest = &decision;
  return *furthest;
}

bool Candidate::chosen() const {
  return last().accepted && last().stage == "selected";
}

const char *Candidate::verdict() const {
  return chosen() ? "selected" : last().accepted ? "usable" : "rejected";
}

Decision on_first_answer(const Json &decisions) {
  if (!decisions.is_array()) return {};
  for (const Json &one : decisions)
    if (flag_of(one, "accepted") && text_of(one, "stage") == "selected") return decision_of(one);
  return {};
}

std::vector<Candidate> by_candidate(const Json &decisions) {
  std::vector<Candidate> candidates;
  if (!decisions.is_array()) return candidates;
  for (const Json &one : decisions) {
    Decision decision = decision_of(one);
    const auto known =
        std::find_if(candidates.begin(), candidates.end(),
                     [&](const Candidate &other) { return other.name == decision.candidate; });
    if (known != candidates.end()) {
      known->decisions.push_back(std::move(decision));
    } else {
      candidates.push_back({decision.candidate, {}});
      candidates.back().decisions.push_back(std::move(decision));
    }
  }
  return candidates;
}

void print_candidates(const std::vector<Candidate> &candidates) {
  Table table({"CANDIDATE", "STAGE", "VERDICT", "REASON"});
  for (const Candidate &candidate : candidates) {
    const Decision &last = candidate.last();
    table.add({candidate.name, last.stage, candidate.verdict(), last.reason},
              candidate.chosen() ? Emphasis::kGood : Emphasis::kNone);
    if (!last.rule.empty()) table.note(absl::StrCat("rule: ", last.rule));
    if (!last.remedy.empty()) table.note(absl::StrCat("remedy: ", last.remedy));
  }
  table.print();
}

void print_candidate(const Candidate &candidate) {
  const Decision &last = candidate.last();
  const Emphasis emphasis = candidate.chosen() ? Emphasis::kGood
                            : last.accepted    ? Emphasis::kStrong
                                               : Emphasis::kBad;
  absl::PrintF("%s: %s\n", printable(candidate.name), emphasized(candidate.verdict(), emphasis));
  constexpr size_t kWidth = 8;
  print_field(
      "stage",
      absl::StrCat(last.stage, " (", stage_index(last.stage) + 1, " of ", stages().size(), ")"),
      kWidth, 2);
  print_field("reason", last.reason, kWidth, 2);
  if (!last.rule.empty()) print_field("rule", last.rule, kWidth, 2);
  if (!last.remedy.empty()) print_field("remedy", last.remedy, kWidth, 2);
  if (candidate.decisions.size() < 2) return;
  absl::PrintF("\n");
  Table table({"STAGE", "VERDICT", "REASON"});
  for (const Decision &decision : candidate.decisions) {
    table.add({decision.stage, decision.accepted ? "yes" : "no", decision.reason});
    if (!decision.rule.empty()) table.note(absl::StrCat("rule: ", decision.rule));
    if (!decision.remedy.empty()) table.note(absl::StrCat("remedy: ", decision.remedy));
  }
  table.print(2);
}

}  // namespace weft::cli
