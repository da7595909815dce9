// SPDX-License-Identifier: BSD-2-Clause
// Report: the numbers of a timeline.
//
// Example:
//     void print(const Timeline &timeline) {
//       std::fputs(to_text(make_report(timeline, {.slowest = 3})).c_str(), stdout);
//     }
//
// Times are nanoseconds in the JSON. Percentiles are values that occurred (nearest rank). The
// report counts only the records that are there, and says how many were lost. Not for drawing:
// convert.h.
#ifndef WEFT_TOOLS_TRACE_REPORT_H
#define WEFT_TOOLS_TRACE_REPORT_H

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/trace/timeline.h"

namespace weft::trace {

struct ReportOptions {
  size_t slowest = 10;    // spans
  size_t unmatched = 20;  // posts
};

nlohmann::ordered_json make_report(const Timeline &timeline, const ReportOptions &options = {});
std::string to_text(const nlohmann::ordered_json &report);

// The value that `share` (0 to 1) of the values do not exceed; 0: there are none. Sorts them.
int64_t percentile(std::vector<int64_t> &values, double share);

}  // namespace weft::trace

#endif
