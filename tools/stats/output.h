// SPDX-License-Identifier: BSD-2-Clause
// Snapshots as text: JSON for programs, the exposition format of Prometheus for monitors.
//
//   std::cout << prometheus({snapshot});
//
// Everything comes from what the segments say of themselves: a counter `calls` of the type
// `operation` is weft_operation_calls_total. For people there are `weft stats` and `weft top`.
#ifndef WEFT_TOOLS_STATS_OUTPUT_H
#define WEFT_TOOLS_STATS_OUTPUT_H

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/stats/segment.h"

namespace weft::stats {

nlohmann::ordered_json to_json(const Snapshot &snapshot);

// Objects of a process are summed: endpoints come and go, and the sums never fall. Times are in
// seconds.
std::string prometheus(const std::vector<Snapshot> &snapshots);

}  // namespace weft::stats

#endif
