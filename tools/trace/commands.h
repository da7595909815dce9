// SPDX-License-Identifier: BSD-2-Clause
// The subcommands of weft-trace, which is `weft trace`.
//
// Example (statements):
//     CLI::App app;
//     Action action;
//     add_trace(app, action);  // tools/weft/command.h says what the two are
//
// Not for what it shows: report.h, convert.h.
#ifndef WEFT_TOOLS_TRACE_COMMANDS_H
#define WEFT_TOOLS_TRACE_COMMANDS_H

#include "tools/weft/command.h"

namespace weft::cli {

void add_trace(CLI::App &app, Action &action);

}  // namespace weft::cli

#endif
