// SPDX-License-Identifier: BSD-2-Clause
//
// The CPUs that the two sides run on.
//
// Example (statements):
//     const std::vector<int> cpus = choose_cpus();
//     if (!cpus.empty()) pin_to(cpus[0]);
//     const uint64_t before = cpu_wait_ns();
#ifndef WEFT_BENCH_CPUS_H
#define WEFT_BENCH_CPUS_H

#include <cstdint>
#include <vector>

namespace weft::bench {

// Nothing for a negative number.
void pin_to(int cpu);

// Two CPUs of different cores if the process may use such; empty if it may use only one.
std::vector<int> choose_cpus();

// How long this thread has waited for its CPU so far, in nanoseconds. The benchmark always spins,
// so the wait shows the other load of the machine. 0 where the kernel does not tell.
uint64_t cpu_wait_ns();

}  // namespace weft::bench

#endif  // WEFT_BENCH_CPUS_H
