// SPDX-License-Identifier: BSD-2-Clause
// Has a plugin tried out by weft-probe, in a process of its own with a time budget.
//
// Example (statements):
//    weft::PluginRecord record = weft::probe_in_child({.program = "/usr/lib/weft/weft-probe"},
//                                                     "/opt/frobco/frob.so");
//    // ok (with all metadata), rejected, quarantined; unprobed: the probe itself could not run
//    auto verdict = record.verdict;
//
// Only for a process with one thread: the caller sees to that (count_threads()). The child may
// crash, hang or write nonsense; its report is parsed as such. The application's SIGCHLD handling
// is left alone, its handler runs after the child was reaped.
#ifndef WEFT_CORE_LOADER_PROBE_H
#define WEFT_CORE_LOADER_PROBE_H

#include <chrono>
#include <string>

#include "core/loader/plugin_record.h"

namespace weft {

struct ProbeOptions {
  std::string program;
  std::chrono::milliseconds budget{2000};
  bool secure = false;  // the child gets no environment
};

inline constexpr int kProbeReportFd = 3;
// "at\tSTAGE\n" or "at\tSTAGE\tUNIT\n": where the child is.
inline constexpr std::string_view kProbeMark = "at\t";

PluginRecord probe_in_child(const ProbeOptions &options, const std::string &library);

// The report of a child that ended in the way that `ending` says ("exited with status 1"); empty:
// ended well. `passing`: that may be the machine's fault.
PluginRecord judge_report(std::string_view report, const std::string &ending,
                          const std::string &library, bool passing = false);

}  // namespace weft

#endif
