// SPDX-License-Identifier: BSD-2-Clause
//
// The loop of the benchmarks of many processes: for each size as many operations as take the wished
// time, and a row of the report.
//
// Example:
//     nlohmann::json rows(const std::vector<size_t> &sizes) {
//       return timed_sizes({.test = "barrier", .sizes = sizes}, [](size_t, uint64_t iterations) {
//         return 1e-6 * static_cast<double>(iterations);  // seconds of the slowest process
//       });
//     }
//
// Not for latency and bandwidth between two processes: engine.h.
#ifndef WEFT_BENCH_TIMED_SIZES_H
#define WEFT_BENCH_TIMED_SIZES_H

#include <absl/strings/numbers.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <stdio.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench.h"

namespace weft::bench {

struct TimedOptions {
  std::string test;
  std::vector<size_t> sizes;
  double seconds = 0.2;
  FILE *out = stdout;  // a table
};

inline std::vector<size_t> parse_sizes(const std::string &text, uint64_t least) {
  std::vector<size_t> sizes;
  for (const absl::string_view part : absl::StrSplit(absl::StripSuffix(text, ","), ',')) {
    uint64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < least || size > (64u << 20))
      fail("--sizes: '%s' is not a number of bytes from %d to 67108864", part, least);
    sizes.push_back(size);
  }
  return sizes;
}

// run(size, iterations): how long they take, by the slowest process.
template <class Run>
nlohmann::json timed_sizes(const TimedOptions &options, Run run) {
  nlohmann::json results = nlohmann::json::array();
  absl::FPrintF(options.out, "%9s %10s %12s\n", "bytes", "rounds", "us");
  // New processes are slow at first.
  for (double seconds = 0; seconds < options.seconds; seconds += run(options.sizes[0], 8)) {
  }
  for (const size_t size : options.sizes) {
    uint64_t iterations = 8;
    double seconds = run(size, iterations);
    while (seconds < options.seconds / 4) {
      iterations *= 4;
      seconds = run(size, iterations);
    }
    iterations = std::max<uint64_t>(
        8, static_cast<uint64_t>(static_cast<double>(iterations) * options.seconds / seconds));
    seconds = run(size, iterations);
    const double us = seconds * 1e6 / static_cast<double>(iterations);
    absl::FPrintF(options.out, "%9d %10d %12.2f\n", size, iterations, us);
    results.push_back({{"test", options.test},
                       {"size", size},
                       {"iterations", iterations},
                       {"value", us},
                       {"unit", "us"},
                       {"better", "lower"}});
  }
  return results;
}

}  // namespace weft::bench

#endif  // WEFT_BENCH_TIMED_SIZES_H
