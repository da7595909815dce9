// SPDX-License-Identifier: BSD-2-Clause
// The inside of a probe: runs a plugin through dlopen, query, init and fini, and watches what it
// does to the process.
//
//   return probe_here("/opt/frobco/frob.so", kProbeReportFd);      // exit status
//
// Marks on the report's descriptor how far it came before each step, so that the parent knows where
// a crash happened, and ends with the record. Only for a process that is of no further use.
#ifndef WEFT_CORE_PROBE_CHILD_H
#define WEFT_CORE_PROBE_CHILD_H

#include <string>

namespace weft {

int probe_here(const std::string &library, int report_fd);

}  // namespace weft

#endif
