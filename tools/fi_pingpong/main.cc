// SPDX-License-Identifier: BSD-2-Clause
// fi_pingpong: sends messages to and fro between two processes over one endpoint each. Options,
// output and the control connection are those of fi_pingpong(1), so that either side may be the
// program of another implementation.
#include <absl/strings/str_format.h>
#include <weft/printable.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>

#include "tools/fi_pingpong/failure.h"
#include "tools/fi_pingpong/options.h"
#include "tools/fi_pingpong/ping_pong.h"

namespace {

int complain(int err, const char *text) {
  absl::FPrintF(stderr, "fi_pingpong: error: %s\n", weft::printable(text));
  return err > 0 && err < 256 ? err : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char **argv) {
  try {
    using namespace weft::pingpong;
    int status = EXIT_SUCCESS;
    const std::optional<Options> options = parse_command_line(argc, argv, &status);
    if (!options) {
      return status;
    }
    verbose_output = options->verbose;
    PingPong(*options).run();
    return EXIT_SUCCESS;
  } catch (const weft::pingpong::Failure &failure) {
    return complain(failure.err(), failure.what());
  } catch (const std::bad_alloc &) {
    return complain(ENOMEM, "out of memory");
  }
}
