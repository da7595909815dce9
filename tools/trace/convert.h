// SPDX-License-Identifier: BSD-2-Clause
// Converts a timeline into formats of other viewers.
//
// Example:
//     #include <fstream>
//     void write_for_perfetto(const Timeline &timeline) {
//       std::ofstream out("run.perfetto-trace", std::ios::binary);
//       write_trace(timeline, Form::kPerfetto, out);  // ui.perfetto.dev opens it
//     }
//
// Calls are slices of their thread, nested as they called each other. A post and its completion are
// a slice in a lane of their endpoint, and an arrow from the call to the completion. A send and its
// receive are an arrow between processes. Not for numbers: report.h.
#ifndef WEFT_TOOLS_TRACE_CONVERT_H
#define WEFT_TOOLS_TRACE_CONVERT_H

#include <weft/result.h>

#include <ostream>
#include <string>

#include "tools/trace/timeline.h"

namespace weft::trace {

enum class Form { kPerfetto, kChrome, kCsv };

Result<Form> read_form(const std::string &name);
void write_trace(const Timeline &timeline, Form form, std::ostream &out);

// Lays out the spans of each endpoint in lanes without overlap. Returns the lane of each span;
// kNone: all lanes are full.
std::vector<size_t> lanes_of(const Timeline &timeline, size_t most = 32);

}  // namespace weft::trace

#endif
