// SPDX-License-Identifier: BSD-2-Clause
//
// Time from exec to the first fi_getinfo result, measured on a small C program that is started anew
// for every sample.
//
// Example (statements):
//     StartupResult result = measure_startup("/path/weft-bench-startup", "tcp", 200, 30.0);
//
// The caller must not have used libfabric itself; the environment is passed on.
#ifndef WEFT_BENCH_STARTUP_H
#define WEFT_BENCH_STARTUP_H

#include <string>

#include "bench.h"

namespace weft::bench {

struct StartupResult {
  Samples ns;
  std::string library;  // The libfabric that the probe ran on.
};

// `provider` goes into FI_PROVIDER; empty leaves the environment as it is. The first samples, which
// fill the page cache, are dropped.
StartupResult measure_startup(const std::string &probe, const std::string &provider, uint32_t count,
                              double timeout_seconds);

}  // namespace weft::bench

#endif  // WEFT_BENCH_STARTUP_H
