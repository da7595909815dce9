// SPDX-License-Identifier: BSD-2-Clause
#include "tools/fi_pingpong/report.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <cstdio>
#include <iterator>
#include <string>

namespace weft::pingpong {
namespace {

// 1500 -> "1.4k", 15000 -> "14k": a decimal only below ten and only when it is not zero; cut off,
// not rounded.
std::string size_text(uint64_t bytes) {
  static constexpr const char *kUnits[] = {"k", "m", "g", "t", "p", "e"};
  if (bytes < 1024) {
    return absl::StrCat(bytes);
  }
  size_t unit = 0;
  uint64_t base = 1024;
  while (unit + 1 < std::size(kUnits) && bytes / base >= 1024) {
    base *= 1024;
    ++unit;
  }
  // base/1024 steps keep this within 64 bits.
  const uint64_t tenths = (bytes % base) / (base / 1024) * 10 / 1024;
  const std::string whole = absl::StrCat(bytes / base);
  const bool decimal = tenths != 0 && bytes / base < 10;
  return absl::StrCat(whole, decimal ? absl::StrCat(".", tenths) : "", kUnits[unit]);
}

std::string count_text(uint64_t count) {
  if (count >= 1'000'000'000) return absl::StrCat(count / 1'000'000'000, "b");
  if (count >= 1'000'000) return absl::StrCat(count / 1'000'000, "m");
  if (count >= 1'000) return absl::StrCat(count / 1'000, "k");
  return absl::StrCat(count);
}

}  // namespace

void Report::add(uint64_t size, uint64_t sent, uint64_t answers, double microseconds) {
  if (!header_printed_) {
    absl::PrintF(
        "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n");
    header_printed_ = true;
  }
  const uint64_t total = 2 * sent * size;
  const double per_transfer = microseconds / (2.0 * static_cast<double>(sent));
  // Equal numbers are marked =; otherwise the difference, + where answers are missing.
  const char sign = answers == sent ? '=' : answers < sent ? '+' : '-';
  const uint64_t shown = answers == sent  ? answers
                         : answers < sent ? sent - answers
                                          : answers - sent;
  absl::PrintF("%-8s%-8s%c%-8s%-8s%8.2fs%10.2f%11.2f%11.2f\n", size_text(size), count_text(sent),
               sign, count_text(shown), size_text(total), microseconds / 1e6,
               static_cast<double>(total) / microseconds, per_transfer, 1.0 / per_transfer);
  std::fflush(stdout);
}

}  // namespace weft::pingpong
