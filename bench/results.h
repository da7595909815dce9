// SPDX-License-Identifier: BSD-2-Clause
//
// The figures of one measurement, for the report and for the terminal.
//
// Example:
//     nlohmann::json Report(const Spec &spec, Samples *samples) {
//       PrintHeading(spec.test);
//       const nlohmann::json result = Describe(spec, samples, 0);
//       PrintResult(spec.test, result);
//       return result;
//     }
#ifndef WEFT_BENCH_RESULTS_H_
#define WEFT_BENCH_RESULTS_H_

#include <cstdint>
#include <nlohmann/json.hpp>

#include "bench.h"

namespace weft::bench {

// Sorts the samples. `waited_ns`: how long both sides together waited for their CPUs.
nlohmann::json Describe(const Spec &spec, Samples *samples, uint64_t waited_ns);
void PrintHeading(Test test);
void PrintResult(Test test, const nlohmann::json &result);

}  // namespace weft::bench

#endif  // WEFT_BENCH_RESULTS_H_
