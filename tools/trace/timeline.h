// SPDX-License-Identifier: BSD-2-Clause
// Timeline: the records of some processes on one clock, with the links between them.
//
// Example:
//     int64_t longest_ns(const std::vector<Snapshot> &snapshots) {
//       const Timeline timeline = build_timeline(snapshots);
//       int64_t longest = 0;
//       for (const Span &span : timeline.spans)
//         longest = std::max(longest, span.end_ns - span.begin_ns);
//       return longest;
//     }
//
//  * A call within a call of the same thread is its child. The children of a layer's operation are
//    the operations of the provider that it caused.
//  * A post and its completion are one span. The queue of the endpoint, the op_context and the
//    order tell which belong together.
//  * A send and the receive that took it are a pair, if both ends were traced. Addresses, tag, size
//    and order tell which belong together.
// The links are found afterwards. Records whose counterpart was overwritten are counted, not
// linked. So are spans whose pairs would take too long to find, as in a damaged file where all
// endpoints have one address. Not for conclusions: report.h, convert.h.
#ifndef WEFT_TOOLS_TRACE_TIMELINE_H
#define WEFT_TOOLS_TRACE_TIMELINE_H

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/trace/snapshot.h"

namespace weft::trace {

// -code. A damaged file may have INT32_MIN, which has no opposite.
inline int negated(int32_t code) {
  return int(0u - uint32_t(code));
}

inline constexpr size_t kNone = ~size_t{0};

// A record with its place in the timeline.
struct Event {
  size_t process = 0, thread = 0;  // into processes, and its threads
  const Record *record = nullptr;
  int64_t begin_ns = 0, end_ns = 0;  // since the begin of the timeline
  size_t parent = kNone;             // the call that made it
  size_t span = kNone;               // of a post, a completion
  bool measured = true;  // false: its end is estimated from other calls of the operation

  Op op() const { return Op(record->op); }
  const OpInfo &info() const { return kOps[record->op]; }
};

enum class SpanEnd : uint8_t {
  kCompleted,
  kFailed,   // a completion with an error
  kUnknown,  // it has no completion: see `expects`
};

struct Span {
  size_t process = 0;
  size_t post = kNone, completion = kNone;  // events
  SpanEnd end = SpanEnd::kUnknown;
  bool receives = false;
  bool expects = false;  // it should have a completion: not injected, not unsignalled
  uint64_t bytes = 0;    // of a completed receive the received bytes, else the posted ones
  size_t pair = kNone;   // the span at the other end
  int64_t begin_ns = 0, end_ns = 0;
};

struct ClockOffset {
  int64_t ns = 0;   // added to the process's own times
  std::string how;  // in words
  bool is_estimate = false;
};

struct Timeline {
  const std::vector<Snapshot> *processes = nullptr;
  std::vector<Event> events;  // by process and thread, in the order in which they were written
  std::vector<Span> spans;    // by process and time
  std::vector<ClockOffset> offsets;    // by process
  std::vector<size_t> unlinked;        // completions without a post, by process
  std::vector<size_t> pairs_left_out;  // spans without a pair because of lost records, by process
  int64_t begin_monotonic_ns = 0;      // of the first process's clock
  int64_t end_ns = 0;

  // The events and spans of one process, which are contiguous.
  std::span<const Event> events_of(size_t process) const {
    return std::span(events).subspan(first_event[process],
                                     first_event[process + 1] - first_event[process]);
  }
  std::span<const Span> spans_of(size_t process) const {
    return std::span(spans).subspan(first_span[process],
                                    first_span[process + 1] - first_span[process]);
  }
  const Snapshot &process_of(const Event &event) const { return (*processes)[event.process]; }
  const ObjectInfo *object(size_t process, uint64_t id) const;  // null: not in the table
  // "tcp ep 7"
  std::string object_name(size_t process, uint64_t id) const;

  std::vector<size_t> first_event, first_span;  // by process, and the end
  // By process: id to the object.
  std::vector<std::vector<std::pair<uint64_t, const ObjectInfo *>>> index;
};

// `processes` must outlive the result.
Timeline build_timeline(const std::vector<Snapshot> &processes);

}  // namespace weft::trace

#endif
