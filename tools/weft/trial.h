// SPDX-License-Identifier: BSD-2-Clause
// The trials of `weft plugin test`: each tries one thing with a stack, over the C API, in a process
// of its own, so that a plugin that crashes or hangs fails that one trial.
//
// Example (statements):
//     for (const TrialCase &one : trial_cases())
//       if (one.group == TrialGroup::kStack) std::puts(one.name);
//     // In the process of a trial, whose environment says which plugins there are:
//     const Verdict verdict = run_trial("wrong_order", {.stack = "tcp;ofi_rxm"});
//     std::puts(verdict.finding.c_str());
//
// Not a conformance suite: what a stack promises by the man pages is tested in weft's own tree.
#ifndef WEFT_TOOLS_WEFT_TRIAL_H
#define WEFT_TOOLS_WEFT_TRIAL_H

#include <string>
#include <vector>

#include "tools/weft/trial_pair.h"
#include "tools/weft/verdict.h"

namespace weft::cli {

// What a trial is told.
struct TrialTask {
  std::string stack;    // as in FI_PROVIDER
  std::string library;  // the file that has the unit: the trial "loading" asks for it
  std::string unit;     // the unit of the file
  std::string hook;     // a hook that is on the stack, or is to be attached
};

enum class TrialGroup {
  kStack,  // what a stack does
  kCalls,  // what an application does wrong
  kHook,   // a hook on the stack from the beginning
  kLive,   // a hook attached to what is open
};

// What a trial tries: one of the stack's offers, of each type of endpoint.
struct TrialCase {
  const char *name;
  const char *what;  // the row's title
  TrialGroup group;
  Verdict (*run)(const TrialTask &task);
};
const std::vector<TrialCase> &trial_cases();
// An unknown name: not checked.
Verdict run_trial(const std::string &name, const TrialTask &task);

// ---- for the trials: trial.cc has those of stacks and hooks, trial_calls.cc the wrong calls ----

// The hints of all trials: everything that they know how to handle is allowed.
InfoPointer trial_hints(const std::string &stack);
// The first offer of each type of endpoint. Empty: there is none, and `why` says it.
std::vector<InfoPointer> offers_of(const std::string &stack, std::string &why);
// "msg", "rdm", "dgram".
const char *type_name(const fi_info &info);
// Tries each offer: `attempt` returns an error, or a text about this one.
Verdict try_each(const TrialTask &task, const char *remedy,
                 Result<std::string> (*attempt)(const TrialTask &task, fi_info &info));

Verdict try_wrong_order(const TrialTask &task);
Verdict try_disabled(const TrialTask &task);
Verdict try_unbound(const TrialTask &task);
Verdict try_wrong_binds(const TrialTask &task);
Verdict try_wrong_attributes(const TrialTask &task);
Verdict try_wrong_options(const TrialTask &task);
Verdict try_short_buffers(const TrialTask &task);
Verdict try_empty_queue(const TrialTask &task);
Verdict try_wrong_sizes(const TrialTask &task);
Verdict try_wrong_peers(const TrialTask &task);

}  // namespace weft::cli

#endif
