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

enum class Sanitizer { kNone, kAddress, kThread };
#if defined(__SANITIZE_THREAD__)
inline constexpr Sanitizer kSanitizer = Sanitizer::kThread;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr Sanitizer kSanitizer = Sanitizer::kAddress;
#else
inline constexpr Sanitizer kSanitizer = Sanitizer::kNone;
#endif

inline constexpr unsigned kRoundsDivisor = kSanitizer == Sanitizer::kThread    ? 12
                                           : kSanitizer == Sanitizer::kAddress ? 3
                                                                               : 1;

constexpr unsigned rounds(unsigned all) {
  return std::max(1u, all / kRoundsDivisor);
}

}  // namespace weft::sdk

#endif
