// SPDX-License-Identifier: BSD-2-Clause
// Converts a timeline into what others can show.
//
//   std::ofstream out("run.perfetto-trace", std::ios::binary);
//   write_trace(timeline, Form::perfetto, out);        // ui.perfetto.dev opens it
//
// Calls are slices of their thread, inner ones within outer ones; a post and its completion are a
// slice of a lane of their endpoint, and an arrow from the call to the completion; a send and the
// receive that took it are an arrow from process to process. Not for numbers: report.h.
#ifndef WEFT_TOOLS_TRACE_CONVERT_H
#define WEFT_TOOLS_TRACE_CONVERT_H

#include <weft/result.h>

#include <ostream>
#include <string>

#include "tools/trace/timeline.h"

namespace weft::trace {

enum class Form { perfetto, chrome, csv };

Result<Form> read_form(const std::string &name);
void write_trace(const Timeline &timeline, Form form, std::ostream &out);

// Spans laid out so that in a lane one is over before the next begins: by span, the lane of its
// endpoint; kNone where all lanes are full.
std::vector<size_t> lanes_of(const Timeline &timeline, size_t most = 32);

}  // namespace weft::trace

#endif
