// SPDX-License-Identifier: BSD-2-Clause
// The two steps of build_timeline that find what belongs together.
//
// Example:
//     void add(Timeline &timeline, size_t process, const std::vector<Event> &events) {
//       const size_t first = timeline.events.size();
//       timeline.events.insert(timeline.events.end(), events.begin(), events.end());
//       link_posts(timeline, process, first);  // posts and completions become spans
//     }
//     void finish(Timeline &timeline) {
//       pair_ends(timeline);  // sends and receives become pairs; the clocks' offsets are found
//     }
//
// Not for users of a timeline: timeline.h.
#ifndef WEFT_TOOLS_TRACE_LINKING_H
#define WEFT_TOOLS_TRACE_LINKING_H

#include "tools/trace/timeline.h"

namespace weft::trace {

inline bool is_post(Kind kind) {
  return kind == Kind::kPostTx || kind == Kind::kPostRx || kind == Kind::kInject;
}
inline bool is_completion(Op op) {
  return op == Op::completion || op == Op::completion_error;
}

// The events of the process are those from `first` on.
void link_posts(Timeline &timeline, size_t process, size_t first);

void pair_ends(Timeline &timeline);

}  // namespace weft::trace

#endif
