// SPDX-License-Identifier: BSD-2-Clause
// The report of `weft plugin test`: rows, as a table, as JSON and as JUnit's XML, which CI systems
// read.
//
// Example (statements):
//     const std::vector<TestRow> rows = {
//         {"provider frob", "messages go both ways", went_wrong("it hangs", "see the log")}};
//     if (!is_good(rows)) std::puts(junit_of("frob.so", rows).c_str());
#ifndef WEFT_TOOLS_WEFT_TRIAL_REPORT_H
#define WEFT_TOOLS_WEFT_TRIAL_REPORT_H

#include <string>
#include <vector>

#include "tools/weft/text.h"
#include "tools/weft/verdict.h"

namespace weft::cli {

struct TestRow {
  std::string subject;  // "file", "provider frob", "layer crc over tcp"
  std::string check;
  Verdict verdict;
};

// Whether no row failed.
bool is_good(const std::vector<TestRow> &rows);
void print_rows(const std::string &file, const std::vector<TestRow> &rows);
// {"file", "good", "passed", "failed", "not_checked", "rows": [{"subject", "check", "result",
// "finding", "remedy"}]}; "result" is "passed", "failed" or "not checked".
Json json_of(const std::string &file, const std::vector<TestRow> &rows);
// A <testsuite> with a <testcase> for each row.
std::string junit_of(const std::string &file, const std::vector<TestRow> &rows);

}  // namespace weft::cli

#endif
