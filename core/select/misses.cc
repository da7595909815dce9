// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/misses.h"

#include <algorithm>

namespace weft {

uint32_t distance_of_stage(Stage stage) {
  switch (stage) {
    case Stage::kRank:  // it fits; a rule switches it off
      return 1;
    case Stage::kHints:
      return 16;
    case Stage::kGetinfo:  // its own words, often about an address
      return 4;
    default:  // it was not even asked: the earlier, the further
      return 200 - static_cast<uint32_t>(stage);
  }
}

void Misses::add(Miss miss) {
  const auto known = std::find_if(misses_.begin(), misses_.end(),
                                  [&](const Miss &one) { return one.candidate == miss.candidate; });
  if (known == misses_.end())
    misses_.push_back(std::move(miss));
  else if (miss.distance < known->distance)
    *known = std::move(miss);
}

void Misses::drop(std::string_view candidate) {
  std::erase_if(misses_, [&](const Miss &one) { return one.candidate == candidate; });
}

bool Misses::has(std::string_view candidate) const {
  return std::any_of(misses_.begin(), misses_.end(),
                     [&](const Miss &one) { return one.candidate == candidate; });
}

std::vector<Miss> Misses::sorted() const {
  std::vector<Miss> all = misses_;
  std::stable_sort(all.begin(), all.end(),
                   [](const Miss &a, const Miss &b) { return a.distance < b.distance; });
  return all;
}

std::string text_of(const Miss &miss) {
  constexpr std::string_view kPrefix = "hints.";
  std::string reason = miss.reason;
  if (const size_t at = reason.find(kPrefix); at != std::string::npos)
    reason.erase(at, kPrefix.size());
  // Units put their name in front of what they say themselves.
  std::string text;
  if (!miss.candidate.empty() && !reason.starts_with(miss.candidate + ": "))
    text = miss.candidate + ": ";
  text += reason;
  if (!miss.remedy.empty()) text += ": " + miss.remedy;
  return text;
}

}  // namespace weft
