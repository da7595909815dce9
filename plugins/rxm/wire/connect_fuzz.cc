// SPDX-License-Identifier: BSD-2-Clause
// Parses any bytes as private data of connections. Accepted data must encode to the same bytes.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "plugins/rxm/wire/connect_data.h"

using namespace weft::rxm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::vector<uint8_t> bytes(data, data + size);
  if (const auto parsed = parse_connect(bytes)) {
    ConnectBytes again = encode(*parsed);
    again[7] = bytes[7];  // the lane, which a parser ignores
    if (!std::equal(again.begin(), again.end(), bytes.begin())) std::abort();
  }
  if (const auto parsed = parse_accept(bytes)) {
    const AcceptBytes again = encode(*parsed);
    if (!std::equal(again.begin(), again.begin() + 13, bytes.begin())) std::abort();
  }
  parse_reject(bytes);
  return 0;
}
