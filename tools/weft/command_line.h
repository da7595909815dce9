// SPDX-License-Identifier: BSD-2-Clause
// The command line of a program with subcommands: weft, weft-trace.
//
// Example:
//     int main(int argc, char **argv) {
//       CLI::App app("Says what there is.", "weft");
//       Action action;
//       add_info(app, action);
//       return run_command_line(app, action, argc, argv);
//     }
#ifndef WEFT_TOOLS_WEFT_COMMAND_LINE_H
#define WEFT_TOOLS_WEFT_COMMAND_LINE_H

#include <string>

#include "tools/weft/command.h"

namespace weft::cli {

// Calls `run` for the command of this name ("weft plugin list"). The result of `run` is an exit
// status; so is that of this.
using Around = std::function<int(const std::string &name, const std::function<int()> &run)>;

// Runs the action of the subcommand that was typed. Of a word that nobody knows it says which was
// probably meant. The exit status.
int run_command_line(CLI::App &app, const Action &action, int argc, char **argv,
                     const Around &around = nullptr);

// The main() of the program `name`: calls `run`. An exception, such as std::bad_alloc, ends it with
// a line on stderr. The exit status.
int run_program(const char *name, int (*run)(int argc, char **argv), int argc, char **argv);

}  // namespace weft::cli

#endif
