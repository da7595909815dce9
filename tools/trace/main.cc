// SPDX-License-Identifier: BSD-2-Clause
// weft-trace: records the calls and completions of processes, and shows what was recorded. Users
// write `weft trace`.
#include "tools/trace/commands.h"
#include "tools/weft/command_line.h"

namespace weft::cli {
namespace {

int run(int argc, char **argv) {
  CLI::App app("Records the calls and completions of processes, and shows what was recorded.",
               "weft trace");
  app.footer("`weft trace COMMAND --help` explains a command; weft-trace(1) all of them.");
  Action action;
  add_trace(app, action);
  return run_command_line(app, action, argc, argv);
}

}  // namespace
}  // namespace weft::cli

int main(int argc, char **argv) {
  return weft::cli::run_program("weft trace", weft::cli::run, argc, argv);
}
