// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/trial_report.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <weft/printable.h>

#include <algorithm>

namespace weft::cli {
namespace {

size_t count(const std::vector<TestRow> &rows, TrialState state) {
  return size_t(std::count_if(rows.begin(), rows.end(),
                              [state](const TestRow &row) { return row.verdict.state == state; }));
}

// Text for an attribute of XML: printable, and nothing that ends it.
std::string escaped(const std::string &text) {
  std::string result;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result.push_back(c);
    }
  }
  return result;
}

std::string case_of(const TestRow &row) {
  const std::string head = absl::StrCat("  <testcase classname=\"", escaped(row.subject),
                                        "\" name=\"", escaped(row.check), "\"");
  const Verdict &verdict = row.verdict;
  switch (verdict.state) {
    case TrialState::kFail:
      return absl::StrCat(head, "><failure message=\"", escaped(verdict.finding), "\">",
                          escaped(verdict.remedy), "</failure></testcase>\n");
    case TrialState::kNotChecked:
      return absl::StrCat(head, "><skipped message=\"", escaped(verdict.finding),
                          "\"/></testcase>\n");
    default:
      return absl::StrCat(head, "/>\n");
  }
}

}  // namespace

bool is_good(const std::vector<TestRow> &rows) {
  return count(rows, TrialState::kFail) == 0;
}

void print_rows(const std::string &file, const std::vector<TestRow> &rows) {
  absl::PrintF("%s\n", emphasized(file, Emphasis::kStrong));
  Table table({"SUBJECT", "CHECK", "RESULT", "FINDING"});
  for (const TestRow &row : rows) {
    const TrialState state = row.verdict.state;
    table.add({row.subject, row.check, word_of(state), row.verdict.finding},
              state == TrialState::kFail         ? Emphasis::kBad
              : state == TrialState::kNotChecked ? Emphasis::kDoubtful
                                                 : Emphasis::kNone);
    if (!row.verdict.remedy.empty()) table.note(absl::StrCat("remedy: ", row.verdict.remedy));
  }
  table.print(2);
  absl::PrintF("%d passed, %d failed, %d not checked\n", count(rows, TrialState::kOk),
               count(rows, TrialState::kFail), count(rows, TrialState::kNotChecked));
}

Json json_of(const std::string &file, const std::vector<TestRow> &rows) {
  Json list = Json::array();
  for (const TestRow &row : rows)
    list.push_back({{"subject", row.subject},
                    {"check", row.check},
                    {"result", word_of(row.verdict.state)},
                    {"finding", row.verdict.finding},
                    {"remedy", row.verdict.remedy}});
  return {{"file", file},
          {"good", is_good(rows)},
          {"passed", count(rows, TrialState::kOk)},
          {"failed", count(rows, TrialState::kFail)},
          {"not_checked", count(rows, TrialState::kNotChecked)},
          {"rows", std::move(list)}};
}

std::string junit_of(const std::string &file, const std::vector<TestRow> &rows) {
  std::string text = absl::StrFormat(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"%s\" tests=\"%d\" "
      "failures=\"%d\" skipped=\"%d\">\n",
      escaped(file), rows.size(), count(rows, TrialState::kFail),
      count(rows, TrialState::kNotChecked));
  for (const TestRow &row : rows) text += case_of(row);
  return text + "</testsuite>\n";
}

}  // namespace weft::cli
