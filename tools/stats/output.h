// SPDX-License-Identifier: BSD-2-Clause
// Snapshots as text: JSON for programs, the exposition format of Prometheus for monitors.
//
// Example:
//     #include <iostream>
//     void print(const Snapshot &snapshot) {
//       std::cout << to_json(snapshot) << "\n" << prometheus({snapshot});
//     }
//
// All names come from the segments' descriptions of themselves: the counter `calls` of the type
// `operation` becomes weft_operation_calls_total. Not for people: lines.h.
#ifndef WEFT_TOOLS_STATS_OUTPUT_H
#define WEFT_TOOLS_STATS_OUTPUT_H

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/stats/counters.h"
#include "tools/stats/segment.h"

namespace weft::stats {

nlohmann::ordered_json to_json(const Snapshot &snapshot);

// Sums the objects of a process, so that a value never falls when an endpoint closes. Times are in
// seconds.
std::string prometheus(const std::vector<Snapshot> &snapshots,
                       const std::vector<Counted> &counted = {});

}  // namespace weft::stats

#endif
