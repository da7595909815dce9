// SPDX-License-Identifier: BSD-2-Clause
#include "tools/stats/lines.h"

#include <absl/strings/str_format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace weft::stats {
namespace {

// Three significant digits, without trailing zeros.
std::string three_digits(double value) {
  const int digits = value >= 99.5 || value == std::floor(value) ? 0 : value >= 9.95 ? 1 : 2;
  return absl::StrFormat("%.*f", digits, value);
}

double value(const Row &row, const char *name) {
  return static_cast<double>(row.value(name).value_or(0));
}

Line line_of(const Snapshot &snapshot, const Row &row, double seconds) {
  Line line{snapshot.pid, snapshot.program, row.label("element"), row.label("operation"),
            row.label("peer")};
  const bool queue = row.schema->name == "queue";
  line.calls = value(row, queue ? "reads" : "calls") / seconds;
  line.bytes = value(row, queue ? "received_bytes" : "bytes") / seconds;
  line.again = value(row, queue ? "empty" : "again") / seconds;
  line.errors = value(row, "errors") / seconds;
  const auto *times = row.histogram("latency");
  if (times == nullptr || total(times->second) == 0) times = row.histogram("post");
  if (times != nullptr && total(times->second) != 0) {
    line.p50 = quantile(*times->first, times->second, 0.5);
    line.p99 = quantile(*times->first, times->second, 0.99);
  }
  return line;
}

// Identifies a row: the same name at two moments is the same row.
std::string name_of(const Row &row) {
  std::string name = row.schema->name;
  for (const Label &label : row.labels) name += '\0' + label.name + '\0' + label.text;
  return name;
}

}  // namespace

std::vector<Line> lines_of(const std::vector<Snapshot> &snapshots, double seconds) {
  std::vector<Line> lines;
  for (const Snapshot &snapshot : snapshots) {
    for (const Row &row : merged(snapshot.rows, {"object", "stack"}))
      lines.push_back(line_of(snapshot, row, seconds));
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line &a, const Line &b) { return a.calls > b.calls; });
  return lines;
}

std::vector<Snapshot> since(std::vector<Snapshot> now, const std::vector<Snapshot> &before) {
  std::map<std::pair<uint64_t, uint64_t>, const Snapshot *> known;
  for (const Snapshot &one : before) known.emplace(std::pair(one.pid, one.opened_ns), &one);
  for (Snapshot &snapshot : now) {
    snapshot.rows = merged(std::move(snapshot.rows), {"object", "stack"});
    const auto earlier = known.find({snapshot.pid, snapshot.opened_ns});
    if (earlier == known.end()) continue;
    const std::vector<Row> rows = merged(earlier->second->rows, {"object", "stack"});
    std::map<std::string, const Row *> by_name;
    for (const Row &row : rows) by_name.emplace(name_of(row), &row);
    for (Row &row : snapshot.rows) {
      if (const auto same = by_name.find(name_of(row)); same != by_name.end())
        row.subtract(*same->second);
    }
  }
  return now;
}

std::string short_number(double value) {
  static constexpr const char *kUnits[] = {"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return three_digits(value) + kUnits[unit];
}

std::string duration_text(double ns) {
  static constexpr const char *kUnits[] = {" ns", " µs", " ms", " s"};
  if (!(ns >= 0)) return "-";
  size_t unit = 0;
  while (ns >= 999.5 && unit + 1 < std::size(kUnits)) {
    ns /= 1000;
    ++unit;
  }
  // A fraction of a nanosecond only comes from the middle of a histogram's bucket.
  return three_digits(unit == 0 ? std::round(ns) : ns) + kUnits[unit];
}

}  // namespace weft::stats
