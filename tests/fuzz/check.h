// SPDX-License-Identifier: BSD-2-Clause
// FUZZ_CHECK, for the fuzz targets: a check that stays in every build.
//
// Example (statements):
//    const int left = 0;
//    FUZZ_CHECK(left == 0);
//    FUZZ_CHECK(left == 0, "messages are left over");  // where the condition does not say it
#ifndef WEFT_TESTS_FUZZ_CHECK_H
#define WEFT_TESTS_FUZZ_CHECK_H

#include <cstdio>
#include <cstdlib>

#define FUZZ_CHECK(condition, ...)                                                         \
  do {                                                                                     \
    if (!(condition))                                                                      \
      ::weft::fuzz::fail_check(__FILE__, __LINE__, #condition __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)

namespace weft::fuzz {

[[noreturn]] inline void fail_check(const char *file, int line, const char *condition,
                                    const char *what = "does not hold") {
  std::fprintf(stderr, "%s:%d: %s (%s)\n", file, line, what, condition);
  std::abort();
}

}  // namespace weft::fuzz

#endif
