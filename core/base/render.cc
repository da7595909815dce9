// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/render.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/json.h"

namespace weft {
namespace {

std::string in_line(std::string text, std::string_view next) {
  if (!text.empty() && !next.empty()) text += ": ";
  return text.append(next);
}

std::string body_of(const Refusal &refusal) {
  const std::string &wanted = refusal.wanted, &offered = refusal.offered;
  switch (refusal.how) {
    case Misfit::kAbove:
      return " " + wanted + " is above " + offered;
    case Misfit::kOther:
      return ": " + wanted + " wanted, " + offered + " offered";
    case Misfit::kLacking:
      return ": " + wanted + " wanted, offered is " + offered;
    case Misfit::kRequired:
      return " lacks " + offered + ", which is required here";
    case Misfit::kNone:
      return ": " + wanted + " wanted, not offered";
    case Misfit::kNoRoom:
      return ": " + wanted + " given, " + offered + " needed";
    case Misfit::kWords:
      break;
  }
  return refusal.words;
}

const Refusal &hardest(std::span<const Refusal> refusals) {
  return *std::ranges::max_element(refusals, {}, &Refusal::distance);
}

}  // namespace

std::string text_of(const Rule &rule) {
  switch (rule.kind) {
    case Rule::Kind::kNone:
      return {};
    case Rule::Kind::kBuiltIn:
      return "built-in";
    case Rule::Kind::kDefault:
      return "default";
    case Rule::Kind::kEnvironment:
      return "environment " + rule.name;
    case Rule::Kind::kStack:
      return "stack " + rule.name;
    case Rule::Kind::kPlugin:
    case Rule::Kind::kSpelt:
    case Rule::Kind::kCall:
      return rule.name;
    case Rule::Kind::kFile:
      break;
  }
  std::string text = rule.name;
  if (rule.line != 0) text += ":" + std::to_string(rule.line);
  if (rule.line != 0 && rule.column != 0) text += ":" + std::to_string(rule.column);
  return text;
}

std::string text_of(const Remedy &remedy) {
  std::string text = remedy.words;
  if (!remedy.meant.empty()) text += "did you mean \"" + remedy.meant + "\"?";
  if (!remedy.known) return text;
  text += remedy.meant.empty() ? "known: " : " known: ";
  bool first = true;
  for (const std::string &name : *remedy.known) {
    text += (first ? "" : ", ") + name;
    first = false;
  }
  if (first) text += "none, since no such plugin is installed";
  return text;
}

std::string text_of(const Refusal &refusal, std::string_view whose) {
  const std::string_view name = refusal.attribute.name();
  return std::string(name.empty() ? "" : whose).append(name) + body_of(refusal);
}

std::string text_of(std::span<const Refusal> refusals, std::string_view whose) {
  std::string text;
  for (const Refusal &one : refusals) text += (text.empty() ? "" : "; ") + text_of(one, whose);
  return text;
}

std::string reason_of(const Decision &decision) {
  return decision.refusals.empty() ? decision.reason : text_of(decision.refusals);
}

std::string short_reason_of(const Decision &decision) {
  if (decision.refusals.empty()) return decision.reason;
  const size_t others = decision.refusals.size() - 1;
  return text_of(hardest(decision.refusals)) +
         (others > 0 ? " (and " + std::to_string(others) + " more)" : "");
}

std::string line_of(const Decision &decision, LineParts parts) {
  std::string line = in_line(parts.candidate ? decision.candidate : "", reason_of(decision));
  const bool is_variable =
      decision.rule.is(Rule::Kind::kEnvironment) || decision.rule.is(Rule::Kind::kSpelt);
  const std::string rule = text_of(decision.rule);
  if (parts.rule && !is_variable && line.find(rule) == std::string::npos) line += " (" + rule + ")";
  return in_line(std::move(line), parts.remedy ? text_of(decision.remedy) : "");
}

std::string miss_line(const Decision &decision) {
  constexpr std::string_view kPrefix = "hints.";
  std::string reason = short_reason_of(decision);
  if (const size_t at = reason.find(kPrefix); at != std::string::npos)
    reason.erase(at, kPrefix.size());
  // Units put their name in front of what they say themselves.
  const bool has_name = reason.starts_with(decision.candidate + ": ");
  return in_line(in_line(has_name ? "" : decision.candidate, reason), text_of(decision.remedy));
}

std::string lost_line(const Decision &decision, std::string_view provider) {
  std::string line = decision.reason;
  if (!decision.rule.empty()) line += " (" + text_of(decision.rule) + ")";
  return in_line(in_line(std::move(line), std::string(provider) + " is left out"),
                 text_of(decision.remedy));
}

std::string line_of(const Diagnostic &diagnostic) {
  if (diagnostic.where.is(Rule::Kind::kEnvironment)) return diagnostic.text;
  Rule where = diagnostic.where;
  if (diagnostic.tells_line) where.line = where.column = 0;
  return in_line(text_of(where), diagnostic.text);
}

std::string_view word_of(Override how) {
  switch (how) {
    case Override::kReplaced:
      return "replaced";
    case Override::kLifted:
      return "lifted";
    case Override::kShadowed:
      return "shadowed";
    case Override::kFinal:
      return "final";
    case Override::kRefused:
      return "refused";
    case Override::kNotSystem:
      break;
  }
  return "not system";
}

std::string text_of(Override how, const Rule &by) {
  switch (how) {
    case Override::kReplaced:
      return "replaced at " + text_of(by);
    case Override::kLifted:
      return "lifted by " + text_of(by);
    case Override::kShadowed:
      return "the later rule at " + text_of(by) + " has the same match";
    case Override::kFinal:
      return "ignored, since the key is final in " + text_of(by);
    case Override::kRefused:
      return "no value of this parameter: " + (by.empty() ? "it counts as not set"
                                               : by.is(Rule::Kind::kDefault)
                                                   ? "the default counts"
                                                   : "the value of " + text_of(by) + " counts");
    case Override::kNotSystem:
      break;
  }
  return "ignored, since the key counts only in files of the system";
}

nlohmann::ordered_json json_of(const DecisionRecord &record) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Decision &decision : record.decisions()) {
    nlohmann::ordered_json entry;
    entry["candidate"] = decision.candidate;
    entry["stage"] = std::string(stage_name(decision.stage));
    entry["accepted"] = decision.accepted;
    entry["reason"] = reason_of(decision);
    entry["remedy"] = text_of(decision.remedy);
    entry["rule"] = text_of(decision.rule);
    if (decision.cause == Cause::kLost) entry["lost"] = true;
    list.push_back(std::move(entry));
  }
  return list;
}

nlohmann::ordered_json json_of(const Diagnostic &diagnostic) {
  return {{"severity", diagnostic.error  ? "error"
                       : diagnostic.note ? "note"
                                         : "warning"},
          {"where", text_of(diagnostic.where)},
          {"text", diagnostic.text}};
}

nlohmann::ordered_json miss_json(const Decision &decision) {
  return {{"candidate", decision.candidate},
          {"stage", std::string(stage_name(decision.stage))},
          {"reason", short_reason_of(decision)},
          {"remedy", text_of(decision.remedy)},
          {"text", miss_line(decision)}};
}

std::string DecisionRecord::to_json() const {
  return dump(json_of(*this));
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
    text += reason_of(decision);
    if (!decision.rule.empty()) text += " (" + text_of(decision.rule) + ")";
    text = in_line(std::move(text), text_of(decision.remedy));
    while (text.back() == ' ') text.pop_back();
    text += '\n';
  }
  return text;
}

}  // namespace weft
