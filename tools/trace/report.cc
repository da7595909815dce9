// SPDX-License-Identifier: BSD-2-Clause
#include "tools/trace/report.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstring>
#include <map>
#include <tuple>

namespace weft::trace {
namespace {

using Json = nlohmann::ordered_json;

Json distribution(std::vector<int64_t> &values) {
  Json json;
  json["count"] = values.size();
  json["p50"] = percentile(values, 0.5);
  json["p90"] = percentile(values, 0.9);
  json["p99"] = percentile(values, 0.99);
  json["p99_9"] = percentile(values, 0.999);
  json["max"] = values.empty() ? 0 : values.back();
  return json;
}

struct OpCount {
  uint64_t calls = 0, errors = 0, bytes = 0;
  std::vector<int64_t> durations, latencies;
};

std::string element_of(const Timeline &timeline, const Event &event) {
  const ObjectInfo *object = timeline.object(event.process, event.record->object);
  return object != nullptr && !object->element.empty() ? object->element : "?";
}

bool is_read(Op op) {
  return op == Op::cq_read || op == Op::cq_readfrom || op == Op::cq_sread || op == Op::cq_sreadfrom;
}

Json operations(const Timeline &timeline, size_t process) {
  std::map<std::pair<std::string, Op>, OpCount> counts;
  for (const Event &event : timeline.events_of(process)) {
    if (event.op() == Op::retries) continue;
    OpCount &count = counts[{element_of(timeline, event), event.op()}];
    ++count.calls;
    if (event.record->result < 0) ++count.errors;
    const Kind kind = event.info().kind;
    if (kind == Kind::kPostTx || kind == Kind::kPostRx || kind == Kind::kInject)
      count.bytes += event.record->result == 0 ? event.record->size : 0;
    if (kind != Kind::kNote && event.measured)
      count.durations.push_back(event.end_ns - event.begin_ns);
  }
  for (const Span &span : timeline.spans_of(process)) {
    if (span.end != SpanEnd::kCompleted) continue;
    const Event &post = timeline.events[span.post];
    counts[{element_of(timeline, post), post.op()}].latencies.push_back(span.end_ns -
                                                                        span.begin_ns);
  }
  Json list = Json::array();
  for (auto &[key, count] : counts) {
    Json one;
    one["element"] = key.first;
    one["op"] = kOps[size_t(key.second)].name;
    one["calls"] = count.calls;
    one["errors"] = count.errors;
    one["bytes"] = count.bytes;
    if (!count.durations.empty()) one["call_ns"] = distribution(count.durations);
    if (!count.latencies.empty()) one["completion_ns"] = distribution(count.latencies);
    list.push_back(std::move(one));
  }
  return list;
}

Json describe(const Timeline &timeline, const Span &span) {
  const Event &post = timeline.events[span.post];
  const Record &r = *post.record;
  Json json;
  json["element"] = element_of(timeline, post);
  json["op"] = post.info().name;
  json["object"] = timeline.object_name(span.process, r.object);
  json["thread"] = timeline.process_of(post).threads[post.thread].tid;
  json["at_ns"] = span.begin_ns;
  json["bytes"] = span.bytes;
  if (r.peer != kNoPeer) json["peer"] = r.peer;
  json["tag"] = r.tag;
  json["context"] = r.context;
  return json;
}

// The time that reads of completion queues waited: from the first read in vain until one found an
// entry.
Json waiting(const Timeline &timeline, size_t process) {
  struct Wait {
    uint64_t reads = 0, in_vain = 0;
    uint64_t ns = 0;  // may wrap in a damaged trace
    int64_t longest = 0;
  };
  std::map<uint64_t, Wait> queues;
  const ClockInfo &clock = (*timeline.processes)[process].clock;
  for (const Event &event : timeline.events_of(process)) {
    if (!is_read(event.op())) continue;
    Wait &wait = queues[event.record->object];
    ++wait.reads;
    int64_t ns = event.op() == Op::cq_sread || event.op() == Op::cq_sreadfrom
                     ? event.end_ns - event.begin_ns
                     : 0;
    if (event.record->flags != 0 && event.record->tag != 0 &&
        event.record->tag <= event.record->begin) {
      wait.in_vain += event.record->flags;
      ns += int64_t(clock.length_ns(event.record->begin - event.record->tag));
    }
    wait.ns += uint64_t(ns);
    wait.longest = std::max(wait.longest, ns);
  }
  Json list = Json::array();
  for (const auto &[id, wait] : queues) {
    list.push_back({{"object", timeline.object_name(process, id)},
                    {"reads", wait.reads},
                    {"reads_in_vain", wait.in_vain},
                    {"waited_ns", wait.ns},
                    {"longest_ns", wait.longest}});
  }
  return list;
}

// Endpoints that send and receive in turns. Half of the time from one send to the next is what a
// ping-pong benchmark calls latency.
Json ping_pongs(const Timeline &timeline, size_t process) {
  struct Last {
    int64_t sent = -1;
    bool received = false;
    uint64_t bytes = 0;
  };
  struct Step {
    int64_t at;
    uint64_t endpoint;
    bool receives;
    uint64_t bytes;
  };
  std::vector<Step> steps;
  for (const Span &span : timeline.spans_of(process)) {
    const Event &post = timeline.events[span.post];
    if (post.op() > Op::trecvmsg || (span.receives && span.end != SpanEnd::kCompleted)) continue;
    steps.push_back({span.receives ? span.end_ns : span.begin_ns, post.record->object,
                     span.receives, span.bytes});
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step &a, const Step &b) { return a.at < b.at; });
  std::map<uint64_t, Last> endpoints;
  std::map<std::pair<uint64_t, uint64_t>, std::vector<int64_t>> halves;
  for (const Step &step : steps) {
    Last &last = endpoints[step.endpoint];
    if (step.receives) {
      // Two receives in a row, or messages of different sizes, are no ping-pong.
      if (last.received || step.bytes != last.bytes) last.sent = -1;
      last.received = true;
      continue;
    }
    if (last.received && last.sent >= 0 && step.bytes == last.bytes)
      halves[{step.endpoint, step.bytes}].push_back((step.at - last.sent) / 2);
    last = {step.at, false, step.bytes};
  }
  Json list = Json::array();
  for (auto &[key, values] : halves) {
    if (values.size() < 10) continue;  // too few: it may be chance
    Json one;
    one["object"] = timeline.object_name(process, key.first);
    one["bytes"] = key.second;
    one["half_round_trip_ns"] = distribution(values);
    list.push_back(std::move(one));
  }
  return list;
}

Json pairs_of(const Timeline &timeline, size_t process) {
  std::map<std::pair<std::string, size_t>, std::vector<int64_t>> delays;
  for (const Span &span : timeline.spans_of(process)) {
    if (span.receives || span.pair == kNone) continue;
    const Span &other = timeline.spans[span.pair];
    delays[{element_of(timeline, timeline.events[span.post]), other.process}].push_back(
        other.end_ns - span.begin_ns);
  }
  Json list = Json::array();
  for (auto &[key, values] : delays) {
    Json one;
    one["element"] = key.first;
    one["to_pid"] = (*timeline.processes)[key.second].pid;
    one["send_to_receive_ns"] = distribution(values);
    list.push_back(std::move(one));
  }
  return list;
}

void add(std::string &text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void add(std::string &text, const char *format, ...) {
  char line[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  text += line;
}

double us(const Json &ns) {
  return ns.get<double>() / 1000;
}

void add_distribution(std::string &text, const Json &d) {
  add(text, "%9.2f %9.2f %9.2f %9.2f %10.2f", us(d["p50"]), us(d["p90"]), us(d["p99"]),
      us(d["p99_9"]), us(d["max"]));
}

}  // namespace

int64_t percentile(std::vector<int64_t> &values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = size_t(std::ceil(share * double(values.size())));
  return values[std::min(values.size() - 1, rank == 0 ? 0 : rank - 1)];
}

namespace {

// The slowest and the failed transmits.
Json slowest_of(const Timeline &timeline, std::vector<const Span *> &slow, size_t limit) {
  const size_t n = std::min(limit, slow.size());
  std::partial_sort(slow.begin(), slow.begin() + ptrdiff_t(n), slow.end(),
                    [](const Span *a, const Span *b) {
                      return a->end_ns - a->begin_ns > b->end_ns - b->begin_ns;
                    });
  Json list = Json::array();
  for (size_t i = 0; i < n; ++i) {
    Json json = describe(timeline, *slow[i]);
    json["ns"] = slow[i]->end_ns - slow[i]->begin_ns;
    if (slow[i]->end == SpanEnd::kFailed)
      json["error"] = fi_strerror(negated(timeline.events[slow[i]->completion].record->result));
    list.push_back(std::move(json));
  }
  return list;
}

// Posts that have no completion.
Json unmatched_of(const Timeline &timeline, size_t p, const std::vector<const Span *> &open,
                  size_t limit) {
  Json unmatched{{"sends", 0}, {"receives", 0}, {"of_closed_objects", 0}};
  unmatched["first"] = Json::array();
  size_t sends = 0, closed = 0;
  for (const Span *span : open) {
    sends += span->receives ? 0 : 1;
    const ObjectInfo *object = timeline.object(p, timeline.events[span->post].record->object);
    const bool gone = object != nullptr && object->closed;
    closed += gone ? 1 : 0;
    if (unmatched["first"].size() >= limit) continue;
    Json json = describe(timeline, *span);
    json["object_closed"] = gone;
    unmatched["first"].push_back(std::move(json));
  }
  unmatched["sends"] = sends;
  unmatched["receives"] = open.size() - sends;
  unmatched["of_closed_objects"] = closed;
  return unmatched;
}

}  // namespace

Json make_report(const Timeline &timeline, const ReportOptions &options) {
  Json report;
  report["length_ns"] = timeline.end_ns;
  report["processes"] = Json::array();
  for (size_t p = 0; p < timeline.processes->size(); ++p) {
    const Snapshot &process = (*timeline.processes)[p];
    Json one;
    one["pid"] = process.pid;
    one["host"] = process.host;
    one["program"] = process.program;
    one["arguments"] = process.arguments;
    one["state"] = process.alive ? "alive" : process.ended ? "ended" : "dead";
    one["recording"] = phase_name(process.phase);
    one["clock_offset_ns"] = timeline.offsets[p].ns;
    one["clock"] = timeline.offsets[p].how;
    uint64_t records = 0, overwritten = 0, torn = 0;
    for (const ThreadInfo &thread : process.threads) {
      records += thread.records.size();
      overwritten += thread.overwritten();
      torn += thread.torn;
    }
    one["threads"] = process.threads.size();
    one["records"] = records;
    one["lost"] = {{"overwritten", overwritten},
                   {"torn", torn},
                   {"without_ring", process.lost_records},
                   {"objects", process.lost_objects},
                   {"addresses", process.lost_addresses},
                   {"completions_without_post", timeline.unlinked[p]},
                   {"sends_without_pair", timeline.pairs_left_out[p]}};
    one["operations"] = operations(timeline, p);
    one["ping_pong"] = ping_pongs(timeline, p);
    one["waiting"] = waiting(timeline, p);
    one["pairs"] = pairs_of(timeline, p);

    std::vector<const Span *> slow, open;
    for (const Span &span : timeline.spans_of(p)) {
      // A receive that lasts long waits for its sender; it is not slow.
      if (span.end == SpanEnd::kFailed || (span.end == SpanEnd::kCompleted && !span.receives))
        slow.push_back(&span);
      if (span.end == SpanEnd::kUnknown && span.expects) open.push_back(&span);
    }
    one["slowest"] = slowest_of(timeline, slow, options.slowest);
    one["unmatched"] = unmatched_of(timeline, p, open, options.unmatched);
    report["processes"].push_back(std::move(one));
  }
  return report;
}

// ---- text ----

namespace {

void add_process(std::string &text, const Json &p) {
  const Json &lost = p["lost"];
  add(text, "process %u on %s (%s): %s\n", p["pid"].get<unsigned>(),
      p["host"].get_ref<const std::string &>().c_str(),
      p["state"].get_ref<const std::string &>().c_str(),
      p["arguments"].get_ref<const std::string &>().c_str());
  add(text,
      "  %llu records of %llu threads; lost: %llu overwritten, %llu torn, %llu without a "
      "ring\n",
      p["records"].get<unsigned long long>(), p["threads"].get<unsigned long long>(),
      lost["overwritten"].get<unsigned long long>(), lost["torn"].get<unsigned long long>(),
      lost["without_ring"].get<unsigned long long>());
  add(text, "  clock: %s, offset %lld ns\n", p["clock"].get_ref<const std::string &>().c_str(),
      p["clock_offset_ns"].get<long long>());
}

void add_operations(std::string &text, const Json &p) {
  add(text, "\n  %-8s %-17s %9s %7s %14s  %s\n", "element", "operation", "calls", "errors", "bytes",
      "call, us: p50       p90       p99     p99.9        max");
  for (const Json &op : p["operations"]) {
    add(text, "  %-8s %-17s %9llu %7llu %14llu  ",
        op["element"].get_ref<const std::string &>().c_str(),
        op["op"].get_ref<const std::string &>().c_str(), op["calls"].get<unsigned long long>(),
        op["errors"].get<unsigned long long>(), op["bytes"].get<unsigned long long>());
    if (op.contains("call_ns")) add_distribution(text, op["call_ns"]);
    text += '\n';
  }
}

void add_completions(std::string &text, const Json &p) {
  bool any = false;
  for (const Json &op : p["operations"]) {
    if (!op.contains("completion_ns")) continue;
    if (!any)
      add(text, "\n  %-8s %-17s %9s  %s\n", "element", "post to completion", "spans",
          "us: p50       p90       p99     p99.9        max");
    any = true;
    add(text, "  %-8s %-17s  %9llu  ", op["element"].get_ref<const std::string &>().c_str(),
        op["op"].get_ref<const std::string &>().c_str(),
        op["completion_ns"]["count"].get<unsigned long long>());
    add_distribution(text, op["completion_ns"]);
    text += '\n';
  }
}

void add_ping_pongs(std::string &text, const Json &p) {
  bool any = false;
  for (const Json &one : p["ping_pong"]) {
    if (!any)
      add(text, "\n  %-18s %9s %9s  %s\n", "ping-pong", "bytes", "trips",
          "half, us: p50      p90       p99     p99.9        max");
    any = true;
    add(text, "  %-18s %9llu %9llu  ", one["object"].get_ref<const std::string &>().c_str(),
        one["bytes"].get<unsigned long long>(),
        one["half_round_trip_ns"]["count"].get<unsigned long long>());
    add_distribution(text, one["half_round_trip_ns"]);
    text += '\n';
  }
}

void add_pairs(std::string &text, const Json &p) {
  bool any = false;
  for (const Json &one : p["pairs"]) {
    if (!any)
      add(text, "\n  %-18s %9s %9s  %s\n", "send to receive", "to", "pairs",
          "us: p50       p90       p99     p99.9        max");
    any = true;
    add(text, "  %-18s %9u %9llu  ", one["element"].get_ref<const std::string &>().c_str(),
        one["to_pid"].get<unsigned>(),
        one["send_to_receive_ns"]["count"].get<unsigned long long>());
    add_distribution(text, one["send_to_receive_ns"]);
    text += '\n';
  }
}

void add_waiting(std::string &text, const Json &p) {
  add(text, "\n  waiting for completions\n");
  for (const Json &one : p["waiting"]) {
    add(text, "  %-18s %9llu reads, %llu in vain; waited %.3f ms, at most %.3f ms at once\n",
        one["object"].get_ref<const std::string &>().c_str(),
        one["reads"].get<unsigned long long>(), one["reads_in_vain"].get<unsigned long long>(),
        us(one["waited_ns"]) / 1000, us(one["longest_ns"]) / 1000);
  }
}

void add_slowest(std::string &text, const Json &p) {
  add(text, "\n  slowest transmits, and what failed; post to completion\n");
  for (const Json &one : p["slowest"]) {
    add(text, "  %10.2f us  %s %s, %llu bytes, tag 0x%llx, at %.3f ms%s%s\n", us(one["ns"]),
        one["object"].get_ref<const std::string &>().c_str(),
        one["op"].get_ref<const std::string &>().c_str(), one["bytes"].get<unsigned long long>(),
        one["tag"].get<unsigned long long>(), us(one["at_ns"]) / 1000,
        one.contains("error") ? ": " : "",
        one.contains("error") ? one["error"].get_ref<const std::string &>().c_str() : "");
  }
}

void add_unmatched(std::string &text, const Json &p) {
  const Json &unmatched = p["unmatched"];
  add(text,
      "\n  without a completion: %llu sends, %llu receives; of these %llu of closed "
      "objects\n",
      unmatched["sends"].get<unsigned long long>(), unmatched["receives"].get<unsigned long long>(),
      unmatched["of_closed_objects"].get<unsigned long long>());
  for (const Json &one : unmatched["first"]) {
    add(text, "    %s %s, %llu bytes, tag 0x%llx, context 0x%llx, at %.3f ms%s\n",
        one["object"].get_ref<const std::string &>().c_str(),
        one["op"].get_ref<const std::string &>().c_str(), one["bytes"].get<unsigned long long>(),
        one["tag"].get<unsigned long long>(), one["context"].get<unsigned long long>(),
        us(one["at_ns"]) / 1000, one["object_closed"].get<bool>() ? ", object closed" : "");
  }
}

}  // namespace

std::string to_text(const Json &report) {
  std::string text;
  for (const Json &process : report["processes"]) {
    for (const auto add_part : {add_process, add_operations, add_completions, add_ping_pongs,
                                add_pairs, add_waiting, add_slowest, add_unmatched})
      add_part(text, process);
    text += '\n';
  }
  return text;
}

}  // namespace weft::trace
