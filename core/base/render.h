// SPDX-License-Identifier: BSD-2-Clause
// Makes texts of what was decided: for terminals, logs, notices and JSON. Nothing else in the core
// does, and nothing reads them.
//
// Example (statements):
//    const weft::Decision decision{.candidate = "tcp",
//                                  .stage = weft::Stage::kPolicy,
//                                  .reason = "tcp is disabled",
//                                  .remedy = "name it in FI_PROVIDER",
//                                  .rule = weft::Rule::file("site.yaml", 2, 5)};
//    weft::line_of(decision);  // "tcp: tcp is disabled: name it in FI_PROVIDER"
//    weft::line_of(decision, {.rule = true});  // "tcp: tcp is disabled (site.yaml:2:5): name ..."
//
// DecisionRecord::to_json() and to_text() are here, too. Not for what an application gets: fi_tostr
// (core/base/tostr.h).
#ifndef WEFT_CORE_BASE_RENDER_H
#define WEFT_CORE_BASE_RENDER_H

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "core/base/decision.h"

namespace weft {

// "/etc/weft/10-site.yaml:3:5", "environment FI_PROVIDER", "stack rdm"; empty: nothing decided.
std::string text_of(const Rule &rule);

// "did you mean "tcp"? known: tcp, udp"
std::string text_of(const Remedy &remedy);

// "hints.tx_attr.size 4096 is above 1024". `whose` stands before the name of the attribute.
std::string text_of(const Refusal &refusal, std::string_view whose = "hints.");
std::string text_of(std::span<const Refusal> refusals, std::string_view whose = "hints.");

// The reason as `weft why` shows it: every refusal.
std::string reason_of(const Decision &decision);
// The refusal that matters most, and how many more there are.
std::string short_reason_of(const Decision &decision);

// The parts that a line on a decision has beside the reason.
struct LineParts {
  bool candidate = true;
  // A variable is left out, since the reason names it, and so is a place that the line has already.
  bool rule = false;
  bool remedy = true;
};
std::string line_of(const Decision &decision, LineParts parts = {});
// The line on a candidate that gave no answer: "tcp: tx_attr.size 4096 is above 1024".
std::string miss_line(const Decision &decision);
// The line on a provider with Cause::kLost.
std::string lost_line(const Decision &decision, std::string_view provider);

// A diagnostic with its place in front, unless the text has it.
std::string line_of(const Diagnostic &diagnostic);

// "replaced", "lifted", ...; and with the place that counts instead: "replaced at site.yaml:3:5".
std::string_view word_of(Override how);
std::string text_of(Override how, const Rule &by);

// The same as DecisionRecord::to_json().
nlohmann::ordered_json json_of(const DecisionRecord &record);
// {"severity", "where", "text"}
nlohmann::ordered_json json_of(const Diagnostic &diagnostic);
// {"candidate", "stage", "reason", "remedy", "text": all in one line}
nlohmann::ordered_json miss_json(const Decision &decision);

}  // namespace weft

#endif
