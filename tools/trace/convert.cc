// SPDX-License-Identifier: BSD-2-Clause
#include "tools/trace/convert.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/trace/perfetto.pb.h"

namespace weft::trace {
namespace {

std::string call_name(const Timeline &timeline, const Event &event) {
  std::string name = event.info().name;
  const ObjectInfo *object = timeline.object(event.process, event.record->object);
  if (object != nullptr && !object->element.empty()) name += " (" + object->element + ")";
  return name;
}

bool is_note(const Event &event) {
  return event.op() == Op::completion || event.op() == Op::completion_error;
}

std::string result_text(const Event &event) {
  const int32_t result = event.record->result;
  return result < 0 ? fi_strerror(negated(result)) : std::to_string(result);
}

// Passes the details that a viewer shows of an event to `value` and `text`, one by one.
template <class Value, class Text>
void annotate(const Timeline &timeline, const Event &event, Value value, Text text) {
  const Record &r = *event.record;
  text("object", timeline.object_name(event.process, r.object));
  value("size", r.size);
  if (r.peer != kNoPeer) value("peer", r.peer);
  value("tag", r.tag);
  value("flags", r.flags);
  value("context", r.context);
  text("result", result_text(event));
  if (!event.measured) text("duration", "guessed from others of its kind");
}

// The children of each event, in order of time.
struct Tree {
  std::vector<std::vector<size_t>> children;
  std::map<std::pair<size_t, size_t>, std::vector<size_t>> roots;  // by process and thread
};
Tree tree_of(const Timeline &timeline) {
  Tree tree;
  tree.children.resize(timeline.events.size());
  for (size_t i = 0; i < timeline.events.size(); ++i) {
    const Event &event = timeline.events[i];
    if (event.parent != kNone)
      tree.children[event.parent].push_back(i);
    else
      tree.roots[{event.process, event.thread}].push_back(i);
  }
  const auto by_time = [&](size_t a, size_t b) {
    return timeline.events[a].begin_ns < timeline.events[b].begin_ns;
  };
  for (auto &list : tree.children) std::stable_sort(list.begin(), list.end(), by_time);
  for (auto &[key, list] : tree.roots) std::stable_sort(list.begin(), list.end(), by_time);
  return tree;
}

// ---- Perfetto ----

class PerfettoWriter {
 public:
  PerfettoWriter(const Timeline &timeline, std::ostream &out) : timeline_(timeline), out_(out) {}

  void write() {
    for (size_t p = 0; p < timeline_.processes->size(); ++p) describe(p);
    const Tree tree = tree_of(timeline_);
    for (const auto &[key, roots] : tree.roots) {
      int64_t from = 0;
      for (const size_t i : roots) from = slice(tree, i, from, INT64_MAX);
      flush();
    }
    spans();
    flush();
  }

 private:
  static uint64_t process_uuid(size_t process) { return (uint64_t(process) + 1) << 40; }
  static uint64_t thread_uuid(size_t process, size_t thread) {
    return process_uuid(process) + thread + 1;
  }

  perfetto::TracePacket &packet() {
    perfetto::TracePacket &packet = *trace_.add_packet();
    packet.set_trusted_packet_sequence_id(1);
    if (first_) packet.set_sequence_flags(1);
    first_ = false;
    if (trace_.packet_size() > 4096) full_ = true;
    return packet;
  }
  // Protobuf messages written one after the other read as one message with all their packets.
  void flush() {
    out_ << trace_.SerializeAsString();
    trace_.Clear();
    full_ = false;
  }

  void describe(size_t p) {
    const Snapshot &process = (*timeline_.processes)[p];
    perfetto::TrackDescriptor &track = *packet().mutable_track_descriptor();
    track.set_uuid(process_uuid(p));
    track.mutable_process()->set_pid(int32_t(process.pid));
    track.mutable_process()->add_cmdline(process.arguments);
    const std::string &program = process.program;
    track.mutable_process()->set_process_name(program.substr(program.rfind('/') + 1) + " on " +
                                              process.host);
    for (size_t t = 0; t < process.threads.size(); ++t) {
      perfetto::TrackDescriptor &below = *packet().mutable_track_descriptor();
      below.set_uuid(thread_uuid(p, t));
      below.set_parent_uuid(process_uuid(p));
      below.mutable_thread()->set_pid(int32_t(process.pid));
      below.mutable_thread()->set_tid(int32_t(process.threads[t].tid));
      below.mutable_thread()->set_thread_name(process.threads[t].name);
    }
  }

  perfetto::TrackEvent &event_at(int64_t ns, uint64_t track, perfetto::TrackEvent::Type type) {
    perfetto::TracePacket &p = packet();
    p.set_timestamp(uint64_t(std::max<int64_t>(ns, 0)));
    perfetto::TrackEvent &event = *p.mutable_track_event();
    event.set_type(type);
    event.set_track_uuid(track);
    return event;
  }
  static void value(perfetto::TrackEvent &event, const char *name, uint64_t number) {
    perfetto::DebugAnnotation &one = *event.add_debug_annotations();
    one.set_name(name);
    one.set_uint_value(number);
  }
  static void text(perfetto::TrackEvent &event, const char *name, const std::string &words) {
    perfetto::DebugAnnotation &one = *event.add_debug_annotations();
    one.set_name(name);
    one.set_string_value(words);
  }

  // Writes an event within [from, to], because slices of one track must nest. Returns its end.
  int64_t slice(const Tree &tree, size_t index, int64_t from, int64_t to) {
    const Event &event = timeline_.events[index];
    const uint64_t track = thread_uuid(event.process, event.thread);
    const int64_t begin = std::clamp(event.begin_ns, from, to);
    const int64_t end = std::clamp(event.end_ns, begin, to);
    const bool note = is_note(event);
    perfetto::TrackEvent &opened = event_at(
        begin, track,
        note ? perfetto::TrackEvent::TYPE_INSTANT : perfetto::TrackEvent::TYPE_SLICE_BEGIN);
    opened.set_name(call_name(timeline_, event));
    opened.add_categories("weft");
    annotate(
        timeline_, event, [&](const char *n, uint64_t v) { value(opened, n, v); },
        [&](const char *n, const std::string &v) { text(opened, n, v); });
    if (event.span != kNone) flows(opened, index);
    if (note) return begin;
    int64_t at = begin;
    for (const size_t child : tree.children[index]) at = slice(tree, child, at, end);
    event_at(end, track, perfetto::TrackEvent::TYPE_SLICE_END);
    if (full_ && event.parent == kNone) flush();
    return end;
  }
  void flows(perfetto::TrackEvent &event, size_t index) {
    const size_t number = timeline_.events[index].span;
    const Span &span = timeline_.spans[number];
    if (span.post == index) {
      if (span.completion != kNone) event.add_flow_ids(2 * number + 1);
      if (!span.receives && span.pair != kNone) event.add_flow_ids(2 * number + 2);
    } else if (span.completion == index) {
      event.add_terminating_flow_ids(2 * number + 1);
      if (span.receives && span.pair != kNone) event.add_terminating_flow_ids(2 * span.pair + 2);
    }
  }

  void spans() {
    const std::vector<size_t> lanes = lanes_of(timeline_);
    std::map<std::tuple<size_t, uint64_t, bool, size_t>, std::vector<size_t>> tracks;
    for (size_t i = 0; i < timeline_.spans.size(); ++i) {
      const Span &span = timeline_.spans[i];
      if (lanes[i] != kNone && span.completion != kNone)
        tracks[{span.process, timeline_.events[span.post].record->object, span.receives, lanes[i]}]
            .push_back(i);
    }
    uint64_t uuid = uint64_t{1} << 62;
    for (const auto &[key, list] : tracks) {
      const auto &[process, object, receives, lane] = key;
      perfetto::TrackDescriptor &track = *packet().mutable_track_descriptor();
      track.set_uuid(++uuid);
      track.set_parent_uuid(process_uuid(process));
      track.set_name(timeline_.object_name(process, object) + (receives ? " receives" : " sends") +
                     (lane > 0 ? " " + std::to_string(lane + 1) : ""));
      for (const size_t i : list) {
        const Span &span = timeline_.spans[i];
        const Event &post = timeline_.events[span.post];
        perfetto::TrackEvent &begin =
            event_at(span.begin_ns, uuid, perfetto::TrackEvent::TYPE_SLICE_BEGIN);
        begin.set_name(post.info().name);
        begin.add_categories("weft");
        value(begin, "bytes", span.bytes);
        value(begin, "tag", post.record->tag);
        value(begin, "context", post.record->context);
        if (span.end == SpanEnd::kFailed)
          text(begin, "error", result_text(timeline_.events[span.completion]));
        event_at(span.end_ns, uuid, perfetto::TrackEvent::TYPE_SLICE_END);
        if (full_) flush();
      }
    }
  }

  const Timeline &timeline_;
  std::ostream &out_;
  perfetto::Trace trace_;
  bool first_ = true, full_ = false;
};

// ---- Chrome ----

// The JSON of Chrome's trace viewer: calls are slices, spans from post to completion are arrows.
class ChromeWriter {
 public:
  ChromeWriter(const Timeline &timeline, std::ostream &out) : timeline_(timeline), out_(out) {}

  void write() {
    put_names();
    for (const Event &event : timeline_.events) put_event(event);
    put_spans();
    Json clocks = Json::array();
    for (size_t p = 0; p < timeline_.processes->size(); ++p)
      clocks.push_back({{"pid", (*timeline_.processes)[p].pid},
                        {"offset_ns", timeline_.offsets[p].ns},
                        {"how", timeline_.offsets[p].how}});
    if (*separator_ == '{') out_ << separator_;
    out_ << "\n],\"otherData\":{\"clocks\":" << clocks.dump() << "}}\n";
  }

 private:
  using Json = nlohmann::ordered_json;
  static double us(int64_t ns) { return double(ns) / 1000; }
  void put(const Json &json) {
    out_ << separator_ << json.dump(-1, ' ', false, Json::error_handler_t::replace);
    separator_ = ",\n";
  }

  void put_names() {
    for (size_t p = 0; p < timeline_.processes->size(); ++p) {
      const Snapshot &process = (*timeline_.processes)[p];
      put({{"ph", "M"},
           {"name", "process_name"},
           {"pid", process.pid},
           {"args",
            {{"name",
              process.program.substr(process.program.rfind('/') + 1) + " on " + process.host}}}});
      for (const ThreadInfo &thread : process.threads)
        put({{"ph", "M"},
             {"name", "thread_name"},
             {"pid", process.pid},
             {"tid", thread.tid},
             {"args", {{"name", thread.name}}}});
    }
  }

  void put_event(const Event &event) {
    const Snapshot &process = timeline_.process_of(event);
    Json json{{"ph", is_note(event) ? "i" : "X"},
              {"name", call_name(timeline_, event)},
              {"cat", "call"},
              {"pid", process.pid},
              {"tid", process.threads[event.thread].tid},
              {"ts", us(event.begin_ns)}};
    if (is_note(event))
      json["s"] = "t";
    else
      json["dur"] = us(event.end_ns - event.begin_ns);
    Json &args = json["args"];
    annotate(
        timeline_, event, [&](const char *n, uint64_t v) { args[n] = v; },
        [&](const char *n, const std::string &v) { args[n] = v; });
    put(json);
  }

  void put_spans() {
    for (size_t i = 0; i < timeline_.spans.size(); ++i) {
      const Span &span = timeline_.spans[i];
      if (span.completion == kNone) continue;
      const Event &post = timeline_.events[span.post];
      const Event &done = timeline_.events[span.completion];
      const uint32_t pid = timeline_.process_of(post).pid;
      const uint32_t from = timeline_.process_of(post).threads[post.thread].tid;
      const uint32_t to = timeline_.process_of(done).threads[done.thread].tid;
      const std::string id = std::to_string(i);
      const std::string name =
          timeline_.object_name(span.process, post.record->object) + " " + post.info().name;
      put({{"ph", "b"},
           {"cat", "span"},
           {"id", id},
           {"name", name},
           {"pid", pid},
           {"tid", from},
           {"ts", us(span.begin_ns)},
           {"args", {{"bytes", span.bytes}, {"tag", post.record->tag}}}});
      put({{"ph", "e"},
           {"cat", "span"},
           {"id", id},
           {"name", name},
           {"pid", pid},
           {"tid", to},
           {"ts", us(span.end_ns)}});
      put({{"ph", "s"},
           {"cat", "completion"},
           {"id", id},
           {"name", "completion"},
           {"pid", pid},
           {"tid", from},
           {"ts", us(span.begin_ns)}});
      put({{"ph", "f"},
           {"bp", "e"},
           {"cat", "completion"},
           {"id", id},
           {"name", "completion"},
           {"pid", pid},
           {"tid", to},
           {"ts", us(span.end_ns)}});
      if (span.receives && span.pair != kNone) put_message(span, id, pid, to);
    }
  }

  // An arrow from the sender to the receive that took its message.
  void put_message(const Span &span, const std::string &id, uint32_t pid, uint32_t to) {
    const Span &sent = timeline_.spans[span.pair];
    const Event &source = timeline_.events[sent.post];
    put({{"ph", "s"},
         {"cat", "message"},
         {"id", "m" + id},
         {"name", "message"},
         {"pid", timeline_.process_of(source).pid},
         {"tid", timeline_.process_of(source).threads[source.thread].tid},
         {"ts", us(sent.begin_ns)}});
    put({{"ph", "f"},
         {"bp", "e"},
         {"cat", "message"},
         {"id", "m" + id},
         {"name", "message"},
         {"pid", pid},
         {"tid", to},
         {"ts", us(span.end_ns)}});
  }

  const Timeline &timeline_;
  std::ostream &out_;
  const char *separator_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
};

void write_chrome(const Timeline &timeline, std::ostream &out) {
  ChromeWriter(timeline, out).write();
}

// ---- CSV ----

std::string quoted(const std::string &text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    out += c;
    if (c == '"') out += c;
  }
  return out + "\"";
}

void write_csv(const Timeline &timeline, std::ostream &out) {
  out << "pid,tid,begin_ns,duration_ns,depth,element,object,op,size,peer,tag,flags,context,result,"
         "span,completion_ns,pair\n";
  for (const Event &event : timeline.events) {
    const Snapshot &process = timeline.process_of(event);
    const Record &r = *event.record;
    const ObjectInfo *object = timeline.object(event.process, r.object);
    out << process.pid << ',' << process.threads[event.thread].tid << ',' << event.begin_ns << ','
        << (event.measured ? std::to_string(event.end_ns - event.begin_ns) : "") << ','
        << unsigned(r.depth) << ',' << quoted(object != nullptr ? object->element : "") << ','
        << class_name(r.fclass) << ' ' << r.object << ',' << event.info().name << ',' << r.size
        << ',';
    if (r.peer != kNoPeer) out << r.peer;
    out << ',' << r.tag << ',' << r.flags << ',' << r.context << ',' << r.result << ',';
    if (event.span != kNone) {
      const Span &span = timeline.spans[event.span];
      out << event.span << ',';
      if (span.completion != kNone) out << span.end_ns - span.begin_ns;
      out << ',';
      if (span.pair != kNone) out << span.pair;
    } else {
      out << ",,";
    }
    out << '\n';
  }
}

}  // namespace

Result<Form> read_form(const std::string &name) {
  if (name == "perfetto") return Form::kPerfetto;
  if (name == "chrome") return Form::kChrome;
  if (name == "csv") return Form::kCsv;
  return fail(FI_EINVAL, "no form \"%s\": perfetto, chrome or csv", name.c_str());
}

std::vector<size_t> lanes_of(const Timeline &timeline, size_t most) {
  std::vector<size_t> order(timeline.spans.size()), lanes(timeline.spans.size(), kNone);
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return timeline.spans[a].begin_ns < timeline.spans[b].begin_ns;
  });
  std::map<std::tuple<size_t, uint64_t, bool>, std::vector<int64_t>> ends;
  for (const size_t i : order) {
    const Span &span = timeline.spans[i];
    if (span.completion == kNone) continue;
    auto &busy = ends[{span.process, timeline.events[span.post].record->object, span.receives}];
    size_t lane = 0;
    while (lane < busy.size() && busy[lane] > span.begin_ns) ++lane;
    if (lane == most) continue;
    if (lane == busy.size()) busy.push_back(0);
    busy[lane] = span.end_ns;
    lanes[i] = lane;
  }
  return lanes;
}

void write_trace(const Timeline &timeline, Form form, std::ostream &out) {
  switch (form) {
    case Form::kPerfetto:
      return PerfettoWriter(timeline, out).write();
    case Form::kChrome:
      return write_chrome(timeline, out);
    case Form::kCsv:
      return write_csv(timeline, out);
  }
}

}  // namespace weft::trace
