// SPDX-License-Identifier: BSD-2-Clause
// The decision record: why each candidate was or was not chosen.
//
// Example (statements):
//    weft::DecisionRecord record;
//    record.add({.candidate = "verbs",
//                .stage = weft::Stage::kDevice,
//                .accepted = false,
//                .reason = "no device matches path:/dev/infiniband/uverbs*",
//                .remedy = "load the kernel driver, or disable verbs in the site file"});
//    for (const weft::Decision &d : record.decisions()) std::string reason = d.reason;
//
// One record per fi_getinfo call; `weft why` prints it. Not a log: nothing is printed here.
#ifndef WEFT_CORE_BASE_DECISION_H
#define WEFT_CORE_BASE_DECISION_H

#include <string>
#include <string_view>
#include <vector>

namespace weft {

// The stages of choosing, in order. `weft why` shows them by these names.
enum class Stage {
  kManifest,
  kPolicy,
  kTrust,
  kArchitecture,
  kDevice,
  kDlopen,
  kSymbol,
  kNegotiate,
  kInit,
  kGetinfo,
  kHints,
  kRank,
  kSelected,
};

std::string_view stage_name(Stage stage);  // "manifest", "policy", ...

struct Decision {
  std::string candidate;  // unit ("verbs") or stack ("tcp;ofi_rxm")
  Stage stage = Stage::kManifest;
  bool accepted = false;
  std::string reason;  // plain words, with the names and numbers that decided
  std::string remedy;  // what to do about it; empty where nothing is wrong
  // What decided: "file:line:column", "environment FI_PROVIDER", path of a plugin; empty: built in.
  std::string rule;
  // The configuration asks for this provider, and leaves it no interface or device of this host.
  bool lost = false;
};

class DecisionRecord {
 public:
  void add(Decision decision) { decisions_.push_back(std::move(decision)); }
  const std::vector<Decision> &decisions() const { return decisions_; }
  // The furthest stage that `candidate` reached; null if it was never considered.
  const Decision *last(std::string_view candidate) const;
  std::string to_json() const;  // array of objects with the members above (json.cc)
  std::string to_text() const;  // a table for people

 private:
  std::vector<Decision> decisions_;
};

}  // namespace weft

#endif
