// SPDX-License-Identifier: BSD-2-Clause
// The lines that fi_pingpong prints: one for each message size, in columns.
//
// Example (statements):
//     Report report;
//     report.add(64, 10, 10, 35.5);    // 10 messages of 64 bytes, 10 answers, 35.5 microseconds
#ifndef WEFT_TOOLS_FI_PINGPONG_REPORT_H
#define WEFT_TOOLS_FI_PINGPONG_REPORT_H

#include <cstdint>

namespace weft::pingpong {

class Report {
 public:
  void add(uint64_t size, uint64_t sent, uint64_t answers, double microseconds);

 private:
  bool header_printed_ = false;
};

}  // namespace weft::pingpong

#endif
