// SPDX-License-Identifier: BSD-2-Clause
// The decision record: why each candidate was or was not chosen.
//
// Example (statements):
//    weft::DecisionRecord record;
//    record.add({.candidate = "verbs",
//                .stage = weft::Stage::kDevice,
//                .reason = "no device matches path:/dev/infiniband/uverbs*",
//                .remedy = "load the kernel driver, or disable verbs in the site file",
//                .rule = weft::Rule::plugin("/usr/lib/weft/verbs.so")});
//    for (const weft::Decision &one : record.decisions())
//      if (one.cause == weft::Cause::kNotChosen) break;  // by data, never by its words
//
// One record per fi_getinfo call; `weft why` prints it. Whoever decides by a decision reads its
// stage, cause, rule, refusals and distance; the words are for people, and core/base/render.h alone
// makes texts of them. Not a log: nothing is printed here.
#ifndef WEFT_CORE_BASE_DECISION_H
#define WEFT_CORE_BASE_DECISION_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/refusal.h"
#include "core/base/rule.h"

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

enum class Cause : uint8_t {
  kWords,        // the reason stands in words alone, as the loader gives it
  kBadName,      // no unit or stack has this name, or one of another kind
  kMalformed,    // FI_PROVIDER, FI_HOOK or the call itself cannot be understood
  kNotChosen,    // FI_PROVIDER does not name it, or excludes it
  kSwitchedOff,  // `disable`, `enable` or a rule of providers.rank leaves it out
  kBadOrder,     // its elements do not go together
  kOutranked,    // another stack with its name comes before it
  kNotNamed,     // it is only for those who ask for its name
  kElement,      // an element cannot be used, and a decision on that element says why
  kHints,        // `refusals` do not fit
  kUnit,         // a unit says so, in its own words over the plugin ABI
  kLost,         // a unit says so for which the configuration asks: it has nothing left
  kNothing,      // it offered nothing
  kSelected,     // it answers
};

// The way out: words, and names in place of a wrong one.
struct Remedy {
  Remedy() = default;
  Remedy(std::string given) : words(std::move(given)) {}  // NOLINT(google-explicit-constructor)
  Remedy(const char *given) : words(given) {}             // NOLINT(google-explicit-constructor)

  bool empty() const { return words.empty() && meant.empty() && !known; }

  std::string words;
  std::string meant;  // the name that is nearest to a wrong one; empty: none is near
  std::optional<std::vector<std::string>> known;  // all names that would be right
};

struct Decision {
  std::string candidate;  // unit ("verbs") or stack ("tcp;ofi_rxm")
  Stage stage = Stage::kManifest;
  bool accepted = false;
  Cause cause = Cause::kWords;
  std::string reason = {};                // plain words; empty where `refusals` say it
  std::vector<Refusal> refusals = {};     // every hint that does not fit
  Remedy remedy = {};                     // empty where nothing is wrong
  Rule rule = {};                         // the place that decided
  std::optional<uint32_t> distance = {};  // none: the refusals or the stage give it
};

// How far a candidate was from an answer, for the order of those that gave none: 0 is nearest.
uint32_t distance_of(const Decision &decision);
// The distance of candidates that were rejected at this stage, where nothing more is known.
uint32_t distance_of(Stage stage);

class DecisionRecord {
 public:
  void add(Decision decision) { decisions_.push_back(std::move(decision)); }
  const std::vector<Decision> &decisions() const { return decisions_; }
  // The furthest stage that `candidate` reached; null if it was never considered.
  const Decision *last(std::string_view candidate) const;

  // render.cc
  std::string to_json() const;  // {"candidate", "stage", "accepted", "reason", "remedy", "rule"}
  std::string to_text() const;  // a table for people

 private:
  std::vector<Decision> decisions_;
};

// How a value of the configuration came to have no effect.
enum class Override : uint8_t {
  kReplaced,   // a stronger source has the same key
  kLifted,     // a stronger source names what is disabled
  kShadowed,   // a later rule has the same match
  kFinal,      // the key is final
  kNotSystem,  // the key counts only in files of the system
  kRefused,    // the parameter does not take the value
};

// A mistake in the configuration, or (`note`) something that is only good to know.
struct Diagnostic {
  bool error = false;
  Rule where = {};
  std::string text = {};
  bool note = false;
  bool tells_line = false;  // the text has line and column already, as those of the YAML reader
};

}  // namespace weft

#endif
