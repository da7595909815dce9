// SPDX-License-Identifier: BSD-2-Clause
// Runs a program and collects its output. The program ends with the process that runs it.
//
// Example:
//     Result<void> refresh(const std::string &probe, const std::string &folder) {
//       WEFT_TRY(const ChildResult result,
//                run_child({probe, "--refresh", folder}, {}, std::chrono::seconds(60)));
//       if (result.status != 0) return fail(FI_EIO, "%s: %s", probe.c_str(), result.err.c_str());
//       return {};
//     }
//
// Not for the code of plugins: that runs in a process of its own, weft-probe or a trial.
#ifndef WEFT_TOOLS_WEFT_CHILD_H
#define WEFT_TOOLS_WEFT_CHILD_H

#include <sys/types.h>
#include <weft/result.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace weft::cli {

struct ChildResult {
  int status = 0;        // exit status; not 0 if a signal has ended it
  int signal = 0;        // the signal that has ended it
  std::string out, err;  // at most kMaxChildOutput bytes of each
};

// For a child behind fork(): it is killed when its parent ends, whatever ends that. False: it
// cannot be, or the parent has ended before.
bool end_with(pid_t parent);

inline constexpr size_t kMaxChildOutput = size_t{64} << 20;

// `environment` is added to the environment of this process. When the time is over the program is
// killed, and the result is an error.
Result<ChildResult> run_child(const std::vector<std::string> &command,
                              const std::map<std::string, std::string> &environment,
                              std::chrono::milliseconds limit);

}  // namespace weft::cli

#endif
