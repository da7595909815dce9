// SPDX-License-Identifier: BSD-2-Clause
// The decision record for people: how far each candidate came, and what stopped it.
//
// Example (statements):
//     const Json answer = Json::array();
//     for (const Candidate &candidate : by_candidate(answer))
//       if (!candidate.chosen()) print_field(candidate.name, candidate.last().reason, 8);
#ifndef WEFT_TOOLS_WEFT_DECISIONS_H
#define WEFT_TOOLS_WEFT_DECISIONS_H

#include <string>
#include <vector>

#include "tools/weft/text.h"

namespace weft::cli {

struct Decision {
  std::string candidate, stage;
  bool accepted = false;
  std::string reason, remedy, rule;
  bool lost = false;  // the configuration asks for it, and leaves it nothing of this host
};

struct Candidate {
  std::string name;
  std::vector<Decision> decisions;  // in the order in which they were made
  // The outcome: "selected", or the decision that stopped it.
  const Decision &last() const;
  bool chosen() const;
  // "selected", "rejected", or "usable": no decision is against it.
  const char *verdict() const;
};

// In the order in which they first appear.
std::vector<Candidate> by_candidate(const Json &decisions);

// The decision on the stack that the first answer is of: those on selected stacks are in the order
// of their answers, and several stacks may have one name. Empty: nothing was selected.
Decision on_first_answer(const Json &decisions);

// The stages of the pipeline, in order.
const std::vector<std::string> &stages();

void print_candidates(const std::vector<Candidate> &candidates);
void print_candidate(const Candidate &candidate);

}  // namespace weft::cli

#endif
