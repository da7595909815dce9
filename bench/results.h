// SPDX-License-Identifier: BSD-2-Clause
//
// The figures of one measurement, for the report and for the terminal.
//
// Example:
//     nlohmann::json report(const Spec &spec, Samples *samples) {
//       print_heading(spec.test);
//       const nlohmann::json result = describe(spec, samples, 0);
//       print_result(spec.test, result);
//       return result;
//     }
#ifndef WEFT_BENCH_RESULTS_H
#define WEFT_BENCH_RESULTS_H

#include <cstdint>
#include <nlohmann/json.hpp>

#include "bench.h"

namespace weft::bench {

// Sorts the samples. `waited_ns`: how long both sides together waited for their CPUs.
nlohmann::json describe(const Spec &spec, Samples *samples, uint64_t waited_ns);
void print_heading(Test test);
void print_result(Test test, const nlohmann::json &result);

}  // namespace weft::bench

#endif  // WEFT_BENCH_RESULTS_H
