// SPDX-License-Identifier: BSD-2-Clause
// Parses any bytes as private data of connections. Accepted data says the same when it is encoded
// again.
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
    // The answer has no place; a parser ignores one.
    if (parse_accept(encode(*parsed)) != parsed) std::abort();
  }
  parse_reject(bytes);
  return 0;
}
