// SPDX-License-Identifier: BSD-2-Clause
// weft why -- COMMAND: the fi_getinfo() calls of a program, their results and misses, and the
// fabric that it opened.
//
// Example:
//     Result<int> explain_ping_pong() {
//       return why_command({"fi_pingpong", "-p", "tpc"}, /*json=*/false);
//     }
//
// The library itself records the calls (core/api/why_file.h). The program is neither traced nor
// rebuilt, and the processes that it starts are recorded too.
#ifndef WEFT_TOOLS_WEFT_WHY_COMMAND_H
#define WEFT_TOOLS_WEFT_WHY_COMMAND_H

#include <weft/result.h>

#include <string>
#include <vector>

namespace weft::cli {

// The command's exit status.
Result<int> why_command(const std::vector<std::string> &command, bool json);

}  // namespace weft::cli

#endif
