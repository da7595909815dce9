// SPDX-License-Identifier: BSD-2-Clause
// weft why -- COMMAND: what a program asked of fi_getinfo(), what it got and missed, and what it
// opened.
//
//   WEFT_TRY(const int status, why_command({"fi_pingpong", "-p", "tpc"}, json));
//
// The library writes it down itself (core/api/why_file.h): the program is neither traced nor built
// anew, and what it starts is seen too.
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
