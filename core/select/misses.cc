// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/misses.h"

#include <algorithm>

namespace weft {

void Misses::add(Decision miss) {
  const auto known =
      std::ranges::find(misses_, miss.candidate, [](const Decision &one) { return one.candidate; });
  if (known == misses_.end())
    misses_.push_back(std::move(miss));
  else if (distance_of(miss) < distance_of(*known))
    *known = std::move(miss);
}

void Misses::drop(std::string_view candidate) {
  std::erase_if(misses_, [&](const Decision &one) { return one.candidate == candidate; });
}

bool Misses::has(std::string_view candidate) const {
  return std::ranges::any_of(misses_,
                             [&](const Decision &one) { return one.candidate == candidate; });
}

std::vector<Decision> Misses::sorted() const {
  std::vector<Decision> all = misses_;
  std::ranges::stable_sort(all, {}, [](const Decision &one) { return distance_of(one); });
  return all;
}

}  // namespace weft
