// SPDX-License-Identifier: BSD-2-Clause
// Candidates: every stack that can be built from the known units, in the order in which they are
// tried, each with the verdict of the policy, before anything is opened.
//
// Example:
//     inline std::vector<std::string> admitted(const Policy &policy,
//                                              const std::vector<UnitInfo> &units) {
//       DecisionRecord notes;
//       std::vector<std::string> names;
//       for (const Candidate &one : make_candidates(policy, units, notes))
//         if (one.verdict.accepted) names.push_back(one.name);  // "tcp", "tcp;ofi_rxm"
//       return names;
//     }
//
// First the stacks of `use`, then those that FI_PROVIDER spells out, then each provider alone, then
// each layer over each provider that offers what it needs. Stacks that are defined but not in `use`
// can be asked for by name, in FI_PROVIDER or in hints. The hooks of FI_HOOK are on all of them.
// Only stacks that the policy or FI_PROVIDER spells out have more than one layer, so there are few.
// Only those of the policy and of FI_PROVIDER have branches: a layer that may take several
// providers is in no other. With `local: shm` each stack with FI_EP_RDM has a near one behind it
// (near.h).
#ifndef WEFT_CORE_SELECT_CANDIDATES_H
#define WEFT_CORE_SELECT_CANDIDATES_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/decision.h"
#include "core/loader/loader.h"
#include "core/select/policy.h"
#include "core/select/stack_units.h"

namespace weft {

struct CandidateElement {
  const UnitInfo *unit = nullptr;
  std::vector<Setting> settings;  // those of this place in this stack
  bool skip_if_unavailable = false;
  // A chain for each provider of the last element, if that is a layer over several.
  std::vector<std::vector<CandidateElement>> branches = {};
};

struct Candidate {
  static constexpr size_t kNoPreference = SIZE_MAX;

  std::string name;  // prov_name: "tcp;ofi_rxm"; of an incomplete stack, its name in the policy
  std::vector<CandidateElement> elements;  // from the application down, with hooks
  bool only_by_name = false;               // only if a program or user asks for this name
  uint64_t only_for_caps = 0;              // only if a program asks for these capabilities
  uint32_t protocol = 0;                   // StackSpec::protocol
  bool auto_progress = false;              // StackSpec::auto_progress
  uint32_t version = 0;                    // StackSpec::version, where it has the name of the spec
  size_t preference = kNoPreference;       // place in `use`
  bool in_file = false;                    // a stack of a file, not one that is built in
  Rule origin;                             // the stack of the policy, or FI_PROVIDER, that names it
  // Of a near stack (near.h), what it is: "(shm+tcp);link". Its name is that of the stack "tcp".
  std::string tree = {};
  Rule local = {};               // of a near stack: the place of `local`
  Stage stage = Stage::kPolicy;  // that of the verdict
  Judgement verdict;

  StackUnits units() const;
  bool is_near() const { return !tree.empty(); }
  const Rule &cause() const { return is_near() ? local : origin; }  // why it is there
  // Those that an application knows: without link and memory of a near stack.
  StackUnits shown_units() const;
  std::vector<const UnitInfo *> providers() const;  // of these
  // Its name in diagnosis: "sockets(udp)" for one of several parts, "tcp((shm+tcp);link)".
  std::string label() const;
  // Whether an element may be left out when it is built. The stack then has another name.
  bool may_shrink() const;
};

// `notes` gets the decisions that concern no candidate, about unknown names.
std::vector<Candidate> make_candidates(const Policy &policy, const std::vector<UnitInfo> &units,
                                       DecisionRecord &notes);

// The unit with this name, by either of its names, in any case. Null: there is none.
const UnitInfo *find_unit(const std::vector<UnitInfo> &units, std::string_view name);

// A prov_name with the names that OFI has for the units in it: "tcp;rxm" is "tcp;ofi_rxm".
std::string in_ofi_names(std::string_view prov_name, const std::vector<UnitInfo> &units);

// The names of the units of these kinds (bits 1 << WEFT_KIND_...), and the one that is nearest to
// the written one.
Remedy known_units(const std::vector<UnitInfo> &units, std::string_view written, uint32_t kinds);

std::string_view kind_name(uint32_t kind);  // "provider", "layer", "hook"

}  // namespace weft

#endif
