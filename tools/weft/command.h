// SPDX-License-Identifier: BSD-2-Clause
// The subcommands of weft. Each adds itself to the command line; parsing sets `action` to the
// function of the subcommand that was typed.
//
// Example:
//     Result<int> run(int argc, char **argv) {
//       CLI::App app;
//       Action action;
//       add_info(app, action);
//       app.parse(argc, argv);
//       return action();  // the exit status
//     }
//
// Every subcommand knows --json, and then writes JSON to stdout whatever the exit status is.
#ifndef WEFT_TOOLS_WEFT_COMMAND_H
#define WEFT_TOOLS_WEFT_COMMAND_H

#include <weft/result.h>

#include <CLI/CLI.hpp>
#include <functional>

namespace weft::cli {

using Action = std::function<Result<int>()>;

void add_info(CLI::App &app, Action &action);
// `separated`: the command line has the word "--".
void add_why(CLI::App &app, Action &action, const bool &separated);
void add_explain(CLI::App &app, Action &action);
void add_plugin(CLI::App &app, Action &action);
// These ask about other machines as well (supposing.h).
struct SupposingOptions;
void add_config(CLI::App &app, Action &action, SupposingOptions &supposing);
void add_policy(CLI::App &app, Action &action, SupposingOptions &supposing);
void add_hook(CLI::App &app, Action &action);
void add_cxi(CLI::App &app, Action &action);
void add_doctor(CLI::App &app, Action &action);

// Exit statuses. Doctor has others: 0 all is well, 1 warnings, 2 failures.
inline constexpr int kExitOk = 0;
inline constexpr int kExitNo = 1;     // the answer is no: nothing matches, the check failed
inline constexpr int kExitUsage = 2;  // wrong usage, or an error before there was an answer

}  // namespace weft::cli

#endif
