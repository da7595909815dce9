// SPDX-License-Identifier: BSD-2-Clause
// Any bytes: no crash. An accepted index is the same after it was written and read again.
#include <cstdint>
#include <cstdlib>

#include "core/loader/index.h"
#include "core/loader/probe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  (void)weft::judge_report(text, "", "/opt/x.so");
  const weft::Result<weft::Index> index = weft::parse_index(text, "/opt/weft");
  if (!index) return 0;
  const std::string once = weft::write_index(*index, "/opt/weft");
  const weft::Result<weft::Index> again = weft::parse_index(once, "/opt/weft");
  if (!again || weft::write_index(*again, "/opt/weft") != once) std::abort();
  return 0;
}
