// SPDX-License-Identifier: BSD-2-Clause
// The two steps of build_timeline that find what belongs together.
//
//   link_posts(timeline, process, first_event);   // posts and completions of one process: spans
//   pair_ends(timeline);                          // sends and receives of all: pairs, clock offsets
//
// Not for users of a timeline: timeline.h.
#ifndef WEFT_TOOLS_TRACE_LINKING_H
#define WEFT_TOOLS_TRACE_LINKING_H

#include "tools/trace/timeline.h"

namespace weft::trace {

inline bool is_post(Kind kind) {
  return kind == Kind::post_tx || kind == Kind::post_rx || kind == Kind::inject;
}
inline bool is_completion(Op op) {
  return op == Op::completion || op == Op::completion_error;
}

// The events of the process are those from `first` on.
void link_posts(Timeline &timeline, size_t process, size_t first);

void pair_ends(Timeline &timeline);

}  // namespace weft::trace

#endif
