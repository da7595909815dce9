// SPDX-License-Identifier: BSD-2-Clause
// Deadline: ends a test with a message if one of its steps hangs.
//
// Example:
//     #include "tools/trace/snapshot.h"
//     void read_all(const std::vector<std::string> &files) {
//       const Deadline deadline(100);  // seconds for each step
//       for (size_t i = 0; i < files.size(); ++i) {
//         deadline.says("file", i, 0);  // a step begins
//         (void)read_any(files[i]);
//       }
//     }
//
// Only for tests: it uses SIGALRM and abort().
#ifndef WEFT_TOOLS_TRACE_DEADLINE_H
#define WEFT_TOOLS_TRACE_DEADLINE_H

#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weft::trace {

class Deadline {
 public:
  explicit Deadline(unsigned seconds) : seconds_(seconds) {
    struct sigaction action {};
    action.sa_handler = [](int) {
      (void)!::write(STDERR_FILENO, doing, strnlen(doing, sizeof doing));
      (void)!::write(STDERR_FILENO, ": does not end\n", 15);
      abort();
    };
    sigaction(SIGALRM, &action, nullptr);
  }
  ~Deadline() { alarm(0); }
  void says(const char *what, size_t place, uint64_t value) const {
    alarm(seconds_);
    std::snprintf(doing, sizeof doing, "%s: %zu is %llu", what, place,
                  static_cast<unsigned long long>(value));
  }

 private:
  static inline char doing[128] = "";
  const unsigned seconds_;
};

}  // namespace weft::trace

#endif
