// SPDX-License-Identifier: BSD-2-Clause
// Any bytes of a client of the exporter. A request is whole or too long at the limit, and what
// follows a whole one changes nothing.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tools/stats/metrics_server.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace weft::stats;
  const std::string bytes(reinterpret_cast<const char *>(data), size);
  const HttpAsk ask = parse_ask(bytes);
  if (ask == HttpAsk::kNotWhole) {
    if (size >= MetricsServer::kMaxRequest) std::abort();
  } else if (bytes.find("\r\n\r\n") != std::string::npos && parse_ask(bytes + "\r\n\r\n") != ask) {
    std::abort();
  }
  return 0;
}
