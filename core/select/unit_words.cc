// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/unit_words.h"

#include <cctype>
#include <utility>

#include "core/base/refusal.h"
#include "core/base/render.h"

namespace weft {
namespace {

// Whether the text has this word, which is no part of a longer one.
bool has_word(std::string_view text, std::string_view word) {
  const auto is_apart = [&](size_t at) {
    return at >= text.size() || std::isalnum(static_cast<unsigned char>(text[at])) == 0;
  };
  if (word.empty()) return false;
  for (size_t at = 0; (at = text.find(word, at)) != std::string_view::npos; ++at)
    if ((at == 0 || is_apart(at - 1)) && is_apart(at + word.size())) return true;
  return false;
}

}  // namespace

std::optional<uint32_t> distance_in_words(std::string_view words) {
  constexpr std::string_view kPrefix = "hints.";
  const size_t at = words.find(kPrefix);
  if (at == std::string_view::npos) return std::nullopt;
  words.remove_prefix(at + kPrefix.size());
  words = words.substr(0, words.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_."));
  // The struct counts where kAttributes does not have the member.
  while (!words.empty()) {
    if (const uint32_t distance = distance_of_attribute(words); distance != 0) return distance;
    const size_t dot = words.rfind('.');
    words = words.substr(0, dot == std::string_view::npos ? 0 : dot);
  }
  return 1;  // a limit
}

Decision said_by_unit(Stage stage, std::string words) {
  const std::optional<uint32_t> distance = distance_in_words(words);
  return {.candidate = {},
          .stage = stage,
          .cause = Cause::kUnit,
          .reason = std::move(words),
          .distance = distance};
}

Rule setting_in_words(const Policy &policy, const Candidate &candidate, std::string_view words) {
  Setting quoted;
  for (const UnitInfo *unit : candidate.providers()) {
    for (const Setting &setting : settings_of(policy, *unit)) {
      // A short value, such as "no", may be in the words by chance. The strongest comes last.
      if (setting.value.size() >= quoted.value.size() && has_word(words, setting.value))
        quoted = setting;
    }
  }
  return quoted.where;
}

bool is_in_words(const Rule &rule, std::string_view words) {
  return words.find(text_of(rule)) != std::string_view::npos;
}

}  // namespace weft
