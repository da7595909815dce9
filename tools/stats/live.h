// SPDX-License-Identifier: BSD-2-Clause
// What running processes count now: the segments of the hook profile, and the counters of plugins,
// which the processes tell on their control sockets.
//
// Example:
//     #include <cstdio>
//     void print(uint64_t pid) {
//       const Result<Live> live = look(pid);
//       if (!live) std::puts(live.error().text.c_str());
//       for (const Counted &one : live ? live->counted : std::vector<Counted>())
//         std::printf("%s %llu\n", one.name.c_str(), (unsigned long long)one.value);
//     }
//
// A process that does not answer is waited for kPatience, once per look.
#ifndef WEFT_TOOLS_STATS_LIVE_H
#define WEFT_TOOLS_STATS_LIVE_H

#include <absl/time/time.h>
#include <weft/result.h>

#include <cstdint>
#include <vector>

#include "tools/stats/counters.h"
#include "tools/stats/segment.h"

namespace weft::stats {

inline constexpr absl::Duration kPatience = absl::Seconds(2);

struct Live {
  std::vector<Snapshot> snapshots;
  std::vector<Counted> counted;
  bool empty() const { return snapshots.empty() && counted.empty(); }
};

// `pid` 0: all processes of this user; those that do not answer are left out, with a line on
// stderr. Another number: an error where that process tells nothing in either way.
Result<Live> look(uint64_t pid);

}  // namespace weft::stats

#endif
