// SPDX-License-Identifier: BSD-2-Clause
#include "tools/stats/tables.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "tools/weft/text.h"

namespace weft::stats {

using cli::Emphasis;
using cli::Json;
using cli::Table;

void print_table(const std::vector<Line> &lines, bool rates) {
  if (lines.empty()) return;
  Table table({"PID", "PROGRAM", "ELEMENT", "OPERATION", "PEER", rates ? "CALLS/S" : "CALLS",
               rates ? "BYTES/S" : "BYTES", rates ? "AGAIN/S" : "AGAIN",
               rates ? "ERRORS/S" : "ERRORS", "P50", "P99"});
  for (const Line &line : lines) {
    table.add({std::to_string(line.pid), line.program, line.element, line.operation, line.peer,
               short_number(line.calls), short_number(line.bytes), short_number(line.again),
               short_number(line.errors), duration_text(line.p50), duration_text(line.p99)},
              line.errors > 0 ? Emphasis::kBad : Emphasis::kNone);
  }
  table.print();
}

namespace {

// The counters of plugins; those that are 0 only if `zeros`.
void print_counted(const std::vector<Counted> &counted, bool zeros) {
  Table table({"PID", "PROGRAM", "STACK", "ELEMENT", "FABRIC", "COUNTER", "VALUE", "WHAT"});
  for (const Counted &one : counted) {
    if (one.value == 0 && !zeros) continue;
    table.add({std::to_string(one.pid), one.program, one.stack,
               one.hook.empty() ? one.element : "hook " + one.hook + " on " + one.element,
               std::to_string(one.fabric), one.name, std::to_string(one.value), one.what});
  }
  if (!table.empty()) table.print();
}

}  // namespace

void print_rates(const std::vector<Counted> &counted, double seconds) {
  Table table({"PID", "PROGRAM", "STACK", "ELEMENT", "FABRIC", "COUNTER", "PER SECOND", "WHAT"});
  for (const Counted &one : counted) {
    table.add({std::to_string(one.pid), one.program, one.stack,
               one.hook.empty() ? one.element : "hook " + one.hook + " on " + one.element,
               std::to_string(one.fabric), one.name, short_number(double(one.value) / seconds),
               one.what});
  }
  if (!table.empty()) table.print();
}

Json to_json(const std::vector<Line> &lines) {
  Json json = Json::array();
  for (const Line &line : lines) {
    json.push_back({{"pid", line.pid},
                    {"program", line.program},
                    {"element", line.element},
                    {"operation", line.operation},
                    {"peer", line.peer},
                    {"calls", line.calls},
                    {"bytes", line.bytes},
                    {"again", line.again},
                    {"errors", line.errors},
                    {"p50_ns", line.p50 < 0 ? Json() : Json(line.p50)},
                    {"p99_ns", line.p99 < 0 ? Json() : Json(line.p99)}});
  }
  return json;
}

void print_totals(const Live &live, bool zeros) {
  const std::vector<Line> lines = lines_of(live.snapshots, 1);
  print_table(lines, false);
  if (!lines.empty() && !live.counted.empty()) std::puts("");
  print_counted(live.counted, zeros);
  if (zeros || live.counted.empty()) return;
  if (std::all_of(live.counted.begin(), live.counted.end(),
                  [](const Counted &one) { return one.value == 0; }))
    std::puts("all counters of plugins are 0: --all shows them");
}

void explain_nothing() {
  std::puts(
      "no process counts anything: none of yours has a fabric of weft open and tells others of it");
}

}  // namespace weft::stats
