// SPDX-License-Identifier: BSD-2-Clause
// `weft stats`, `weft top`: what plugins count in running processes, and the hook profile.
//
// Example (statements):
//     CLI::App app;
//     Action action;
//     add_stats(app, action);  // tools/weft/command.h says what the two are
//
// They read segments and ask processes: they load no libfabric.
#ifndef WEFT_TOOLS_STATS_COMMANDS_H
#define WEFT_TOOLS_STATS_COMMANDS_H

#include "tools/weft/command.h"

namespace weft::cli {

void add_stats(CLI::App &app, Action &action);
void add_top(CLI::App &app, Action &action);

}  // namespace weft::cli

#endif
