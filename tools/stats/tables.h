// SPDX-License-Identifier: BSD-2-Clause
// What running processes count, as tables for people: the output of `weft stats` and `weft top`.
//
// Example:
//     weft::Result<int> show(uint64_t pid) {
//       WEFT_TRY(const Live live, look(pid));
//       if (live.empty()) explain_nothing();
//       print_totals(live, false);
//       return 0;
//     }
//
// All of it goes to stdout. For programs: output.h, and to_json() of lines here.
#ifndef WEFT_TOOLS_STATS_TABLES_H
#define WEFT_TOOLS_STATS_TABLES_H

#include <nlohmann/json.hpp>
#include <vector>

#include "tools/stats/counters.h"
#include "tools/stats/lines.h"
#include "tools/stats/live.h"

namespace weft::stats {

// What was counted since each process began. The counters of plugins that are 0 only if `zeros`.
void print_totals(const Live &live, bool zeros);

// `rates`: the lines are of one second.
void print_table(const std::vector<Line> &lines, bool rates);

// What the counters of plugins gained in so many seconds, as rates.
void print_rates(const std::vector<Counted> &counted, double seconds);

// Says why there is nothing to print.
void explain_nothing();

nlohmann::ordered_json to_json(const std::vector<Line> &lines);

}  // namespace weft::stats

#endif
