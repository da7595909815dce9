// SPDX-License-Identifier: BSD-2-Clause
#include "tools/stats/lines.h"

#include <gtest/gtest.h>

#include "formats/profile.h"

namespace weft::stats {
namespace {

TEST(Lines, DurationsHaveAUnitThatFits) {
  const std::pair<double, const char *> kSaid[] = {{-1, "-"},
                                                   {0, "0 ns"},
                                                   {0.4, "0 ns"},
                                                   {850, "850 ns"},
                                                   {999.4, "999 ns"},
                                                   {999.6, "1.00 µs"},
                                                   {1000, "1 µs"},
                                                   {5230, "5.23 µs"},
                                                   {23'600, "23.6 µs"},
                                                   {143'000'000, "143 ms"},
                                                   {999'499'000, "999 ms"},
                                                   {1.5e9, "1.50 s"},
                                                   {12.5e9, "12.5 s"},
                                                   {5e12, "5000 s"}};
  for (const auto &[ns, text] : kSaid) EXPECT_EQ(duration_text(ns), text) << ns;
}

TEST(Lines, ShortNumbers) {
  const std::pair<double, const char *> kSaid[] = {{0, "0"},     {7, "7"},           {999, "999"},
                                                   {1000, "1k"}, {1234567, "1.23M"}, {99.6, "100"}};
  for (const auto &[value, text] : kSaid) EXPECT_EQ(short_number(value), text) << value;
}

Row row(const std::shared_ptr<const Schema> &schema, const std::string &operation, uint64_t calls) {
  Row row{schema, {{"object", "1", true}, {"operation", operation, false}}, {}, {}};
  row.values.emplace_back(&schema->fields[0], calls);
  return row;
}

TEST(Lines, OfAnIntervalAreDifferences) {
  auto schema = std::make_shared<Schema>();
  schema->name = "operation";
  schema->fields.push_back({"calls", "", "", profile::kCounter, profile::kU64, 0, 1, 0, ""});
  Snapshot before{7, "p", 100, 0, false, {row(schema, "send", 10), row(schema, "recv", 4)}};
  Snapshot now{7, "p",   100,
               0, false, {row(schema, "send", 30), row(schema, "recv", 4), row(schema, "read", 2)}};
  const Snapshot other{8, "q", 100, 0, false, {row(schema, "send", 6)}};
  const std::vector<Line> lines = lines_of(since({now, other}, {before}), 2);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].operation, "send");
  EXPECT_EQ(lines[0].calls, 10);
  EXPECT_EQ(lines[1].pid, 8u);
  EXPECT_EQ(lines[1].calls, 3);
  EXPECT_EQ(lines[2].operation, "read");
  EXPECT_EQ(lines[3].calls, 0);
  // Another process with the same number: its counts start at 0.
  before.opened_ns = 99;
  EXPECT_EQ(lines_of(since({now}, {before}), 1)[0].calls, 30);
}

}  // namespace
}  // namespace weft::stats
