// SPDX-License-Identifier: BSD-2-Clause
// What the plugins of a process count, as it answered on its control socket (core/control).
//
// Example:
//     #include <cstdio>
//     void print_losses(uint64_t pid, const nlohmann::ordered_json &fabrics) {
//       for (const Counted &one : counted_of(pid, "app", fabrics))
//         if (one.name == "connections_lost" && one.value != 0) std::puts(one.element.c_str());
//     }
//
// Nothing here trusts the answer. Not for the counts of the hook profile: segment.h.
#ifndef WEFT_TOOLS_STATS_COUNTERS_H
#define WEFT_TOOLS_STATS_COUNTERS_H

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace weft::stats {

// One counter of one fabric. The texts have no control characters.
struct Counted {
  uint64_t pid = 0;
  std::string program;
  uint64_t fabric = 0;      // the number of the object in its process
  std::string fabric_name;  // empty: an inner fabric
  std::string stack, element;
  std::string hook;  // empty: the element itself counts
  std::string name, what;
  uint64_t value = 0;
};

// `fabrics`: the array of an answer. What is missing or has another type is left out.
std::vector<Counted> counted_of(uint64_t pid, const std::string &program,
                                const nlohmann::ordered_json &fabrics);

// The differences to an earlier look; a counter that is new, or of a new process, began at 0.
std::vector<Counted> since(std::vector<Counted> now, const std::vector<Counted> &before);

// Grouped by fabric and hook, for `weft stats --json`.
nlohmann::ordered_json to_json(const std::vector<Counted> &counted);

}  // namespace weft::stats

#endif
