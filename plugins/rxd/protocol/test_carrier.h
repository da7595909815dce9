// SPDX-License-Identifier: BSD-2-Clause
// The paths and the receive buffers of simulated carriers. carrier.h leaves both types to whoever
// implements it; these are those of simulation.h, stock_simulation.h and the fuzz targets.
//
// Example:
//    // Joins the pieces of a datagram, as a carrier must before the caller may reuse the memory.
//    inline Buffer copy(const iovec *iov, size_t count) {
//      Buffer copied;
//      for (size_t i = 0; i < count; ++i) {
//        const auto *at = static_cast<const uint8_t *>(iov[i].iov_base);
//        copied.bytes.insert(copied.bytes.end(), at, at + iov[i].iov_len);
//      }
//      return copied;
//    }
//
// Not for the plugin: its buffers are in lower.h, its paths are addresses of the inner provider.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_TEST_CARRIER_H
#define WEFT_PLUGINS_RXD_PROTOCOL_TEST_CARRIER_H

#include <weft/sdk/addresses/address.h>

#include <cstdint>
#include <vector>

#include "plugins/rxd/protocol/carrier.h"

namespace weft::rxd {

struct Path {
  sdk::Address to;
};
struct Buffer {
  std::vector<uint8_t> bytes;
};

}  // namespace weft::rxd

#endif
