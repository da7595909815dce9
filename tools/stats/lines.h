// SPDX-License-Identifier: BSD-2-Clause
// Snapshots as lines for people: one per process, element, operation and peer.
//
// Example:
//     void print_medians(const std::vector<Snapshot> &now, const std::vector<Snapshot> &before) {
//       for (const Line &line : lines_of(since(now, before), 1.0))
//         std::puts(duration_text(line.p50).c_str());
//     }
//
// `weft stats` and `weft top` print these lines. Not for programs: output.h.
#ifndef WEFT_TOOLS_STATS_LINES_H
#define WEFT_TOOLS_STATS_LINES_H

#include <cstdint>
#include <string>
#include <vector>

#include "tools/stats/segment.h"

namespace weft::stats {

// Of an interval, or since counting began.
struct Line {
  uint64_t pid = 0;
  std::string program, element, operation, peer;
  double calls = 0, bytes = 0, again = 0, errors = 0;  // per second, or in all
  double p50 = -1, p99 = -1;                           // ns; negative: nothing was measured
};

// The busiest first. The counts are divided by `seconds`; 1: totals.
std::vector<Line> lines_of(const std::vector<Snapshot> &snapshots, double seconds);

// The counts since an earlier snapshot. A process without an earlier one began at 0.
std::vector<Snapshot> since(std::vector<Snapshot> now, const std::vector<Snapshot> &before);

// 1234567 as "1.23M".
std::string short_number(double value);
// Nanoseconds in a unit that fits: "850 ns", "23.6 µs", "143 ms", "12.5 s"; "-" for a negative one.
std::string duration_text(double ns);

}  // namespace weft::stats

#endif
