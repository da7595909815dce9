// SPDX-License-Identifier: BSD-2-Clause
// The inside of a probe: runs a plugin through dlopen, query, init, getinfo and fini, and watches
// what it does to the process.
//
// Example:
//    #include "core/loader/probe.h"
//    int main_of_the_child() {
//      return weft::probe_here("/opt/frobco/frob.so", weft::kProbeReportFd);  // exit status
//    }
//
// Before each step it writes the name of the step to the report's descriptor, so that the parent
// knows where a crash happened. The record comes last. The process must end afterwards: the plugin
// may have changed anything in it.
#ifndef WEFT_CORE_PROBE_CHILD_H
#define WEFT_CORE_PROBE_CHILD_H

#include <string>

namespace weft {

int probe_here(const std::string &library, int report_fd);

}  // namespace weft

#endif
