// SPDX-License-Identifier: BSD-2-Clause
// What one check of `weft plugin test` found.
//
// Example (statements):
//     Verdict verdict = went_wrong("killed by signal 11", "debug it");
//     if (verdict.state == TrialState::kFail) std::puts(verdict.remedy.c_str());
#ifndef WEFT_TOOLS_WEFT_VERDICT_H
#define WEFT_TOOLS_WEFT_VERDICT_H

#include <string>
#include <utility>

namespace weft::cli {

enum class TrialState { kOk, kFail, kNotChecked };

inline const char *word_of(TrialState state) {
  return state == TrialState::kOk     ? "passed"
         : state == TrialState::kFail ? "failed"
                                      : "not checked";
}

struct Verdict {
  TrialState state = TrialState::kOk;
  std::string finding, remedy;
};

inline Verdict went_well(std::string finding) {
  return {TrialState::kOk, std::move(finding), ""};
}
inline Verdict went_wrong(std::string finding, std::string remedy) {
  return {TrialState::kFail, std::move(finding), std::move(remedy)};
}
inline Verdict not_checked(std::string why) {
  return {TrialState::kNotChecked, std::move(why), ""};
}

}  // namespace weft::cli

#endif
