// SPDX-License-Identifier: BSD-2-Clause
// weft-trace: records the calls and completions of processes, and shows what was recorded. Users
// write `weft trace`.
#include <cstdio>
#include <exception>

#include "tools/trace/commands.h"
#include "tools/weft/command_line.h"

int main(int argc, char **argv) {
  try {
    CLI::App app("Records the calls and completions of processes, and shows what was recorded.",
                 "weft trace");
    app.footer("`weft trace COMMAND --help` explains a command; weft-trace(1) all of them.");
    weft::cli::Action action;
    weft::cli::add_trace(app, action);
    return weft::cli::run_command_line(app, action, argc, argv);
  } catch (const std::exception &error) {  // such as std::bad_alloc
    std::fprintf(stderr, "weft trace: %s\n", error.what());
    return weft::cli::kExitUsage;
  }
}
