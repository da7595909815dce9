// SPDX-License-Identifier: BSD-2-Clause
#include "tools/trace/timeline.h"

#include <algorithm>
#include <climits>
#include <map>
#include <utility>

#include "tools/trace/linking.h"

namespace weft::trace {
namespace {

// ---- nesting ----

// Finds the parent of each call. Records are written when calls return, so children come first.
void nest(std::vector<Event> &events, size_t first) {
  std::vector<std::vector<size_t>> waiting(257);
  size_t deepest = 0;
  for (size_t i = first; i < events.size(); ++i) {
    const size_t depth = events[i].record->depth;
    for (size_t d = depth + 1; d <= deepest; ++d) {
      for (const size_t child : waiting[d]) {
        // A child of a call that was not recorded has no parent.
        if (events[child].begin_ns >= events[i].begin_ns) events[child].parent = i;
      }
      waiting[d].clear();
    }
    waiting[depth].push_back(i);
    deepest = std::max(depth, deepest);
  }
}

// Not all posts in quick succession were measured. A post that was not gets the median duration of
// those that were; it ends before the next call begins, and not before its children end.
void guess_ends(std::vector<Event> &events, size_t first) {
  std::map<std::pair<Op, uint32_t>, std::vector<int64_t>> durations;
  for (size_t i = first; i < events.size(); ++i) {
    const Event &event = events[i];
    if (event.measured && is_post(event.info().kind))
      durations[{event.op(), event.record->object}].push_back(event.end_ns - event.begin_ns);
  }
  for (auto &[key, values] : durations)
    std::nth_element(values.begin(), values.begin() + ptrdiff_t(values.size() / 2), values.end());
  std::vector<int64_t> next(257, INT64_MAX);  // when the next call begins, by depth
  for (size_t i = events.size(); i-- > first;) {
    Event &event = events[i];
    const size_t depth = event.record->depth;
    int64_t limit = INT64_MAX;
    for (size_t d = 0; d <= depth; ++d) limit = std::min(limit, next[d]);
    if (!event.measured) {
      const auto found = durations.find({event.op(), event.record->object});
      if (found != durations.end()) event.end_ns += found->second[found->second.size() / 2];
      event.end_ns = std::max(event.begin_ns, std::min(event.end_ns, limit));
    }
    next[depth] = event.begin_ns;
  }
  for (size_t i = first; i < events.size(); ++i) {
    const Event &event = events[i];
    if (event.parent != kNone && !events[event.parent].measured)
      events[event.parent].end_ns = std::max(events[event.parent].end_ns, event.end_ns);
  }
}

}  // namespace

const ObjectInfo *Timeline::object(size_t process, uint64_t id) const {
  const auto &rows = index[process];
  const auto found = std::lower_bound(rows.begin(), rows.end(), id,
                                      [](const auto &row, uint64_t v) { return row.first < v; });
  return found != rows.end() && found->first == id ? found->second : nullptr;
}

std::string Timeline::object_name(size_t process, uint64_t id) const {
  const ObjectInfo *found = object(process, id);
  if (found == nullptr) return "object " + std::to_string(id);
  return found->element + " " + class_name(found->fclass) + " " + std::to_string(id);
}

namespace {

// How to bring the times of a process to the clock of the first one.
ClockOffset offset_of(const Snapshot &process, const Snapshot &first) {
  ClockOffset offset;
  if (&process == &first) {
    offset.how = "the clock of the timeline";
  } else if (process.boot_id == first.boot_id && !process.boot_id.empty()) {
    offset.how = "the same clock";
  } else {
    offset.is_estimate = true;
    offset.ns = process.clock.to_real_ns(0) - first.clock.to_real_ns(0);
    offset.how = "from the wall clocks of the two hosts, as good as these agree";
  }
  return offset;
}

// Appends the events of a thread. Returns when the first of them began, or `earliest`.
int64_t add_events(Timeline &timeline, size_t p, size_t t, int64_t earliest) {
  const Snapshot &process = (*timeline.processes)[p];
  const size_t first = timeline.events.size();
  for (const Record &record : process.threads[t].records) {
    if (record.op == 0 || record.op >= kOpCount) continue;  // of a newer plugin
    Event &event = timeline.events.emplace_back();
    event.process = p;
    event.thread = t;
    event.record = &record;
    event.begin_ns = process.clock.to_ns(record.begin) + timeline.offsets[p].ns;
    event.measured = record.duration != kNotMeasured;
    event.end_ns = event.begin_ns;
    if (event.measured) event.end_ns += int64_t(process.clock.length_ns(record.duration));
    earliest = std::min(earliest, event.begin_ns);
  }
  nest(timeline.events, first);
  guess_ends(timeline.events, first);
  return earliest;
}

}  // namespace

Timeline build_timeline(const std::vector<Snapshot> &processes) {
  Timeline timeline;
  timeline.processes = &processes;
  timeline.unlinked.resize(processes.size());
  timeline.pairs_left_out.resize(processes.size());
  timeline.index.resize(processes.size());
  int64_t earliest = INT64_MAX;
  for (size_t p = 0; p < processes.size(); ++p) {
    for (const ObjectInfo &object : processes[p].objects)
      timeline.index[p].emplace_back(object.id, &object);
    std::sort(timeline.index[p].begin(), timeline.index[p].end());
    timeline.offsets.push_back(offset_of(processes[p], processes[0]));
    for (size_t t = 0; t < processes[p].threads.size(); ++t)
      earliest = add_events(timeline, p, t, earliest);
  }
  if (timeline.events.empty()) earliest = 0;
  timeline.begin_monotonic_ns = earliest;
  for (Event &event : timeline.events) {
    event.begin_ns -= earliest;
    event.end_ns -= earliest;
  }
  size_t first = 0;
  // link_posts() takes all events from `first` on, so the processes are added one at a time.
  std::vector<Event> all = std::move(timeline.events);
  timeline.events.clear();
  timeline.events.reserve(all.size());
  for (size_t p = 0; p < processes.size(); ++p) {
    first = timeline.events.size();
    timeline.first_event.push_back(first);
    timeline.first_span.push_back(timeline.spans.size());
    while (timeline.events.size() < all.size() && all[timeline.events.size()].process == p)
      timeline.events.push_back(all[timeline.events.size()]);
    link_posts(timeline, p, first);
  }
  timeline.first_event.push_back(timeline.events.size());
  timeline.first_span.push_back(timeline.spans.size());
  pair_ends(timeline);
  for (const Event &event : timeline.events)
    timeline.end_ns = std::max(timeline.end_ns, event.end_ns);
  return timeline;
}

}  // namespace weft::trace
