// SPDX-License-Identifier: BSD-2-Clause
// A segment of any content gives an error or rows, and the rows can be printed. The last byte of
// the input damages later reads, as a writer may change the segment while it is read.
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/odd_numbers.h"
#include "tools/stats/lines.h"
#include "tools/stats/output.h"
#include "tools/stats/segment.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  size_t reads = 0;
  const uint8_t damage = size > 0 ? data[size - 1] : 0;
  const weft::stats::Source source = [&](uint64_t offset, void *to, size_t wanted) {
    if (offset > size || wanted > size - offset) return false;
    std::memcpy(to, data + offset, wanted);
    if (damage != 0 && ++reads % damage == 0 && wanted > 0)
      static_cast<uint8_t *>(to)[reads % wanted] ^= 1;
    return true;
  };
  const weft::Result<weft::stats::Snapshot> snapshot = weft::stats::read_segment(source);
  if (!snapshot) {
    if (snapshot.error().text.empty()) std::abort();
    return 0;
  }
  if (snapshot->rows.size() > size) std::abort();
  (void)weft::stats::to_json(*snapshot).dump(-1, ' ', false,
                                             nlohmann::json::error_handler_t::replace);
  (void)weft::stats::prometheus({*snapshot});
  // As `weft stats` and two updates of `weft top` do.
  for (const weft::stats::Line &line : weft::stats::lines_of({*snapshot}, 1)) {
    if (weft::stats::duration_text(line.p50).empty() ||
        weft::stats::short_number(line.calls).empty())
      std::abort();
  }
  if (const auto later = weft::stats::read_segment(source))
    (void)weft::stats::lines_of(weft::stats::since({*later}, {*snapshot}), 0.5);
  return 0;
}
