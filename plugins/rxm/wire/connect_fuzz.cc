// SPDX-License-Identifier: BSD-2-Clause
// Private data of connections, any bytes: what is accepted encodes to the same.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "plugins/rxm/wire/connect_data.h"

using namespace weft::rxm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::vector<uint8_t> bytes(data, data + size);
  if (const auto parsed = parse_connect(bytes)) {
    ConnectBytes again = encode(*parsed);
    again[7] = bytes[7];  // not ours to know
    if (!std::equal(again.begin(), again.end(), bytes.begin())) std::abort();
  }
  if (const auto parsed = parse_accept(bytes)) {
    const AcceptBytes again = encode(*parsed);
    if (!std::equal(again.begin(), again.begin() + 13, bytes.begin())) std::abort();
  }
  parse_reject(bytes);
  return 0;
}
