// SPDX-License-Identifier: BSD-2-Clause
#include "tools/stats/output.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <weft/printable.h>

#include <map>
#include <set>

#include "formats/profile.h"

namespace weft::stats {
namespace {

using nlohmann::ordered_json;

ordered_json histogram_json(const Row &row, const Field &field,
                            const std::vector<uint64_t> &buckets) {
  ordered_json json{{"unit", field.unit}, {"count", total(buckets)}};
  if (const auto sum = row.value(field.sum)) json["sum"] = *sum;
  for (const auto &[name, part] : {std::pair("p50", 0.5), {"p90", 0.9}, {"p99", 0.99}})
    json[name] = quantile(field, buckets, part);
  ordered_json filled = ordered_json::array();
  for (uint32_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i] == 0) continue;
    filled.push_back({{"from", profile::bucket_start(i, field.sub_bits)},
                      {"below", profile::bucket_start(i + 1, field.sub_bits)},
                      {"count", buckets[i]}});
  }
  json["buckets"] = std::move(filled);
  return json;
}

// Names in the exposition format are letters, digits and underscores.
std::string word(std::string_view text) {
  std::string clean(text);
  for (char &c : clean) {
    if (!absl::ascii_isalnum(c)) c = '_';
  }
  return clean;
}

std::string escaped(std::string_view text, bool quotes) {
  std::string clean;
  for (const char c : printable(text)) {  // a program name may have any bytes; the format is UTF-8
    if (c == '\\' || (c == '"' && quotes)) clean += '\\';
    clean += c;
  }
  return clean;
}

std::string number(double value) {
  return absl::StrFormat("%.9g", value);
}

struct Family {
  std::string help, type, samples;
};

// Times are in seconds, the base unit; other values keep their unit.
double scale(const Field &field) {
  return field.unit == "ns" ? 1e-9 : 1;
}
std::string unit_suffix(const Field &field, std::string_view name) {
  const std::string unit = field.unit == "ns" ? "seconds" : word(field.unit);
  return unit.empty() || name.ends_with(unit) ? "" : "_" + unit;
}
std::string base_name(const Field &field) {
  std::string name = word(field.name);
  if (field.unit == "ns" && name.ends_with("_ns")) name.resize(name.size() - 3);
  return name + unit_suffix(field, name);
}

void add_histogram(std::map<std::string, Family> &families, const std::string &name,
                   const std::string &labels, const Row &row, const Field &field,
                   const std::vector<uint64_t> &buckets) {
  Family &family = families[name];
  family.help = field.help;
  family.type = "histogram";
  // One boundary per power of two; the JSON has the finer ones.
  const uint32_t step = 1u << field.sub_bits;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < buckets.size(); ++i) {
    sum += buckets[i];
    if ((i + 1) % step != 0 || i + 1 == buckets.size()) continue;
    const double below = static_cast<double>(profile::bucket_start(i + 1, field.sub_bits));
    // Inclusive, of whole numbers.
    const double le = field.unit == "ns" ? below * 1e-9 : below - 1;
    absl::StrAppend(&family.samples, name, "_bucket{", labels, ",le=\"", number(le), "\"} ", sum,
                    "\n");
  }
  absl::StrAppend(&family.samples, name, "_bucket{", labels, ",le=\"+Inf\"} ", sum, "\n");
  const double values = static_cast<double>(row.value(field.sum).value_or(0)) * scale(field);
  absl::StrAppend(&family.samples, name, "_sum{", labels, "} ", number(values), "\n");
  absl::StrAppend(&family.samples, name, "_count{", labels, "} ", sum, "\n");
}

// The counters of plugins: a family for each counter of an element or hook. No sample comes twice,
// because Prometheus would then take none of them.
void add_counted(std::map<std::string, Family> &families, const std::vector<Counted> &counted) {
  std::set<std::string> known;
  for (const Counted &one : counted) {
    const std::string clean = word(one.name);
    std::string name = absl::StrCat("weft_", word(one.hook.empty() ? one.element : one.hook), "_",
                                    clean, clean.ends_with("_total") ? "" : "_total");
    std::string sample =
        absl::StrCat(name, "{pid=\"", one.pid, "\",program=\"", escaped(one.program, true),
                     "\",stack=\"", escaped(one.stack, true), "\",element=\"",
                     escaped(one.element, true), "\",fabric=\"", one.fabric, "\"");
    if (clean != one.name) absl::StrAppend(&sample, ",counter=\"", escaped(one.name, true), "\"");
    sample += "} ";
    if (!known.insert(sample).second) continue;
    Family &family = families[name];
    if (!family.type.empty() && family.type != "counter") continue;  // a name of the hook profile
    family.type = "counter";
    if (family.help.empty()) family.help = one.what.empty() ? one.name : one.what;
    absl::StrAppend(&family.samples, sample, one.value, "\n");
  }
}

}  // namespace

ordered_json to_json(const Snapshot &snapshot) {
  ordered_json json{{"pid", snapshot.pid},
                    {"program", snapshot.program},
                    {"opened_ns", snapshot.opened_ns},
                    {"lost_records", snapshot.lost},
                    {"torn", snapshot.torn}};
  ordered_json records = ordered_json::array();
  for (const Row &row : snapshot.rows) {
    ordered_json record{{"type", row.schema->name}};
    for (const Label &label : row.labels) {
      if (label.is_number)
        record["labels"][label.name] = strtoull(label.text.c_str(), nullptr, 10);
      else
        record["labels"][label.name] = label.text;
    }
    for (const auto &[field, value] : row.values) record["values"][field->name] = value;
    for (const auto &[field, buckets] : row.histograms)
      record["histograms"][field->name] = histogram_json(row, *field, buckets);
    records.push_back(std::move(record));
  }
  json["records"] = std::move(records);
  return json;
}

std::string prometheus(const std::vector<Snapshot> &snapshots,
                       const std::vector<Counted> &counted) {
  std::map<std::string, Family> families;
  for (const Snapshot &snapshot : snapshots) {
    const std::string process = absl::StrCat("pid=\"", snapshot.pid, "\",program=\"",
                                             escaped(snapshot.program, true), "\"");
    Family &lost = families["weft_lost_records_total"];
    lost = {
        "records for which a process had no room", "counter",
        absl::StrCat(lost.samples, "weft_lost_records_total{", process, "} ", snapshot.lost, "\n")};
    for (const Row &row : merged(snapshot.rows, {"object"})) {
      std::string labels = process;
      for (const Label &label : row.labels)
        absl::StrAppend(&labels, ",", word(label.name), "=\"", escaped(label.text, true), "\"");
      const std::string prefix = "weft_" + word(row.schema->name) + "_";
      std::set<std::string> sums;  // counters that a histogram already has as its _sum
      for (const auto &[field, buckets] : row.histograms) {
        sums.insert(field->sum);
        add_histogram(families, prefix + base_name(*field), labels, row, *field, buckets);
      }
      for (const auto &[field, value] : row.values) {
        const bool counter = field->kind == profile::kCounter;
        if (sums.contains(field->name) && field->unit == "ns") continue;
        const std::string name = prefix + base_name(*field) + (counter ? "_total" : "");
        Family &family = families[name];
        family.help = field->help;
        family.type = counter ? "counter" : "gauge";
        absl::StrAppend(&family.samples, name, "{", labels, "} ",
                        scale(*field) == 1 ? absl::StrCat(value)
                                           : number(static_cast<double>(value) * scale(*field)),
                        "\n");
      }
    }
  }
  add_counted(families, counted);
  std::string text;
  for (const auto &[name, family] : families) {
    absl::StrAppend(&text, "# HELP ", name, " ", escaped(family.help, false), "\n# TYPE ", name,
                    " ", family.type, "\n", family.samples);
  }
  return text;
}

}  // namespace weft::stats
