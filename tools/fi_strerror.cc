// SPDX-License-Identifier: BSD-2-Clause

// fi_strerror: prints the text of libfabric error numbers.

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <rdma/fi_errno.h>

#include "tools/finish_output.h"

namespace {

void print_usage(FILE *to) {
  std::fprintf(
      to,
      "Usage: fi_strerror FI_ERROR_CODE...\n"
      "\n"
      "Prints the text of each libfabric error number, one per line.\n"
      "A number may be decimal, octal (0...) or hexadecimal (0x...); its sign is ignored,\n"
      "so the negative values that the API returns can be given as they are.\n"
      "\n"
      "  -h, --help   print this help\n");
}

// Accepts an integer constant whose magnitude fits into an int, and nothing else.
bool parse_error_number(const char *text, int *number) {
  char *end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text, &end, 0);
  if (end == text || *end != '\0' || errno != 0 || value > INT_MAX || value < -INT_MAX) {
    return false;
  }
  *number = static_cast<int>(value < 0 ? -value : value);
  return true;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 2) {
    print_usage(stderr);
    return EXIT_FAILURE;
  }
  // No getopt: "-22" is an argument here, not an option.
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "-h") == 0 || std::strcmp(argv[i], "--help") == 0) {
      print_usage(stdout);
      return EXIT_SUCCESS;
    }
  }
  int status = EXIT_SUCCESS;
  for (int i = 1; i < argc; ++i) {
    int number = 0;
    if (parse_error_number(argv[i], &number)) {
      std::printf("%s\n", fi_strerror(number));
    } else {
      std::fprintf(stderr,
                   "fi_strerror: '%s' is not an error number: give a decimal, octal or hexadecimal "
                   "integer\n",
                   argv[i]);
      status = EXIT_FAILURE;
    }
  }
  return weft::finish_output("fi_strerror", status);
}
