// SPDX-License-Identifier: BSD-2-Clause
// Runs a command that asks the library in a child of this process, so that a plugin that hangs or
// crashes ends only the child. The plugin is named, and the command runs again without it.
//
// Example:
//     int main_of_why(const std::function<int()> &why) {
//       const int status = supervised("weft why", nullptr, why);  // what the child printed was printed
//       return status;
//     }
//
// Only for a process with one thread that has not called the library yet. The child has the
// terminal of this process; its stderr comes at the end.
#ifndef WEFT_TOOLS_WEFT_SUPERVISE_H
#define WEFT_TOOLS_WEFT_SUPERVISE_H

#include <weft/result.h>

#include <functional>
#include <string>

#include "tools/weft/library.h"

namespace weft::cli {

// What the library is told before anything is asked (supposing.h).
using Before = std::function<Result<void>(const Library &)>;

// The exit status of `command`, the result of `run` in the child.
int supervised(const std::string &command, const Before &before, const std::function<int()> &run);

}  // namespace weft::cli

#endif
