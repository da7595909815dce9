// SPDX-License-Identifier: BSD-2-Clause
// The end of a program that has printed an answer. One that could not be written whole, because the
// disk is full for instance, is no answer, whatever the exit status was going to be.
//
// Example:
//    int main() {
//      std::printf("an answer\n");
//      return weft::finish_output("example", 0);
//    }
#ifndef WEFT_TOOLS_FINISH_OUTPUT_H
#define WEFT_TOOLS_FINISH_OUTPUT_H

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace weft {

// The exit status: `status`, or 2 with a line on stderr if stdout did not take everything.
inline int finish_output(const char *program, int status) {
  errno = 0;
  const bool failed_before = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !failed_before) return status;
  std::fprintf(stderr, "%s: the output is not complete: %s\n", program,
               errno != 0 ? std::strerror(errno) : "stdout did not take all of it");
  return 2;
}

}  // namespace weft

#endif
