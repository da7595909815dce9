// SPDX-License-Identifier: BSD-2-Clause
// The clocks of a trace file: nanoseconds of CLOCK_MONOTONIC and ticks, and a reading of both.
//
// Example (statements):
//    const ClockPair now = both_clocks(monotonic_ns);  // or both_clocks(time_stamp), on x86-64
//
// Not for the choice between the time stamps and CLOCK_MONOTONIC as ticks: FileHeader::clock
// (formats/trace.h) has it.
#ifndef WEFT_FORMATS_TRACE_CLOCK_H
#define WEFT_FORMATS_TRACE_CLOCK_H

#include <time.h>

#include <cstdint>

#include "formats/trace.h"
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace weft::trace {

inline uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000000000 + uint64_t(now.tv_nsec);
}

#if defined(__x86_64__)
inline uint64_t time_stamp() {
  return __rdtsc();
}
#endif

// Both clocks at one moment: of five readings the one that was disturbed least.
template <class Ticks>
ClockPair both_clocks(Ticks ticks) {
  ClockPair best{};
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const uint64_t before = ticks();
    const uint64_t ns = monotonic_ns();
    const uint64_t after = ticks();
    if (after - before >= least) continue;
    least = after - before;
    best = {before + least / 2, ns};
  }
  return best;
}

}  // namespace weft::trace

#endif
