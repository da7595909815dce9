// SPDX-License-Identifier: BSD-2-Clause
// Reads the counts of processes under the hook profile from their segments.
//
// Example:
//     uint64_t calls_of_all(const std::filesystem::path &folder) {
//       uint64_t calls = 0;
//       for (const std::filesystem::path &path : segments(folder)) {
//         const Result<Snapshot> now = read_segment(path);
//         if (!now) continue;
//         for (const Row &row : now->rows) calls += row.value("calls").value_or(0);
//       }
//       return calls;
//     }
//
// A segment describes itself (formats/profile.h); the names and units here come from it. It is the
// memory of another process and changes while it is read: every number is checked before use, and a
// damaged file gives an error. Not for writing.
#ifndef WEFT_TOOLS_STATS_SEGMENT_H
#define WEFT_TOOLS_STATS_SEGMENT_H

#include <weft/result.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::stats {

struct Field {
  std::string name, unit, help;
  uint32_t kind = 0, type = 0, offset = 0, count = 0, sub_bits = 0;
  std::string sum;  // of a histogram: the counter with the sum of its values; may be empty
};

struct Schema {
  std::string name, help;
  uint32_t record_size = 0;
  std::vector<Field> fields;
};

struct Label {
  std::string name, text;
  bool is_number = false;
  bool operator==(const Label &) const = default;
};

// One record, or the sum of those with the same labels.
struct Row {
  std::shared_ptr<const Schema> schema;
  std::vector<Label> labels;
  std::vector<std::pair<const Field *, uint64_t>> values;
  std::vector<std::pair<const Field *, std::vector<uint64_t>>> histograms;

  std::string label(std::string_view name) const;
  std::optional<uint64_t> value(std::string_view name) const;
  const std::pair<const Field *, std::vector<uint64_t>> *histogram(std::string_view name) const;
  // Adds a row of the same schema; subtracts the row of an earlier moment.
  void add(const Row &other);
  void subtract(const Row &earlier);
};

struct Snapshot {
  uint64_t pid = 0;
  std::string program;
  uint64_t opened_ns = 0;  // CLOCK_REALTIME
  uint64_t lost = 0;       // records for which the process had no room
  bool torn = false;       // it changed too fast: the rows are not of one moment
  std::vector<Row> rows;
};

// Copies bytes of a segment; false beyond its end.
using Source = std::function<bool(uint64_t offset, void *to, size_t size)>;
Result<Snapshot> read_segment(const Source &source);
Result<Snapshot> read_segment(const std::filesystem::path &path);

// The segments in a folder, by process. Those of processes that are gone are removed.
std::vector<std::filesystem::path> segments(const std::filesystem::path &folder);

// One process, or with 0 all of them. With 0, a process that cannot be read is reported on stderr
// and left out.
Result<std::vector<Snapshot>> snapshots_of(uint64_t pid);

// Sums rows that differ only in the labels that `drop` names.
std::vector<Row> merged(std::vector<Row> rows, const std::vector<std::string> &drop);

// The value below which `part` (0 to 1) of the counted values are: the middle of its bucket.
double quantile(const Field &field, const std::vector<uint64_t> &buckets, double part);
uint64_t total(const std::vector<uint64_t> &buckets);

}  // namespace weft::stats

#endif
