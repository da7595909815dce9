// SPDX-License-Identifier: BSD-2-Clause
// How many rounds of a long test run under sanitizers, which make it ten times as long. For tests
// of one thread: with ThreadSanitizer they show little, so few rounds of them are left there.
// Without sanitizers all run.
//
// Example (statements):
//    for (uint64_t seed = 0; seed < rounds(3000); ++seed) {
//      // ...
//    }
//
// run_seeds() of test_seeds.h has numbers of its own.
#ifndef WEFT_SDK_TEST_ROUNDS_H
#define WEFT_SDK_TEST_ROUNDS_H

#include <algorithm>
#include <cstdint>

namespace weft::sdk {

#if defined(__SANITIZE_THREAD__)
inline constexpr unsigned kRoundsDivisor = 12;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr unsigned kRoundsDivisor = 3;
#else
inline constexpr unsigned kRoundsDivisor = 1;
#endif

constexpr unsigned rounds(unsigned all) {
  return std::max(1u, all / kRoundsDivisor);
}

}  // namespace weft::sdk

#endif
