// SPDX-License-Identifier: BSD-2-Clause
// The parameters of rxd.
//
// Example:
//    // A value that makes no sense is an error, which says where the value comes from.
//    inline Result<uint64_t> patience_ns(const weft_instance *instance) {
//      WEFT_TRY(const Options options, Options::from(instance));
//      return options.peer_timeout_ns;
//    }
//
// The endpoint derives the protocol's settings from them (protocol/core.h, Settings).
#ifndef WEFT_PLUGINS_RXD_SETTINGS_H
#define WEFT_PLUGINS_RXD_SETTINGS_H

#include <weft/sdk/unit/params.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "plugins/rxd/protocol/core.h"

namespace weft::rxd {

// Bytes: one packet must hold an atomic with all its operands.
inline constexpr size_t kLeastDatagram = 1280;

namespace parameters {
inline constexpr weft_param kAll[] = {
    sdk::size_param("datagram_size", "0",
                    "bytes of the largest datagram that is sent or received; 0: as the provider "
                    "beneath carries; below 1280: 1280. Sizes above 1472 are used after a probe",
                    0, 65535),
    sdk::string_param("checksum", "auto",
                      "CRC32C of every packet to weft peers: on, off, or auto: on unless both ends "
                      "are on one host; used if either end wants it"),
    sdk::string_param("auth_key_file", nullptr,
                      "file with the auth_key of endpoints that are opened without one, readable "
                      "by its owner only; with a key every packet carries a MAC, and packets "
                      "without one are dropped"),
    sdk::int_param("tx_size", "1024", "default of tx_attr.size: operations in flight per endpoint",
                   1, 1048576),
    sdk::int_param("rx_size", "8192", "default of rx_attr.size: receives expected per endpoint", 1,
                   1048576),
    sdk::size_param("rx_pool", "8M",
                    "bytes of receive buffers per endpoint, of datagram_size each; they are "
                    "touched when they are first used",
                    256 << 10, int64_t(1) << 34),
    sdk::size_param("receive_window", "0",
                    "bytes that the provider beneath holds until they are read, which limits how "
                    "much peers send unacknowledged; 0: as the provider says",
                    0, int64_t(1) << 32),
    sdk::size_param("unexpected_limit", "64M",
                    "bytes of messages without a posted receive, per endpoint; beyond it senders "
                    "wait",
                    0, int64_t(1) << 40),
    sdk::int_param("peer_timeout_ms", "120000",
                   "milliseconds without an answer after which a peer is given up, and operations "
                   "to it fail with FI_ETIMEDOUT",
                   100, 86400000),
    sdk::int_param("close_linger_ms", "1000",
                   "milliseconds that fi_close waits for acknowledgements", 0, 600000),
    sdk::bool_param("stock_peers", "1",
                    "talk to endpoints of stock libfabric, in their format; off: weft peers only"),
    sdk::int_param("max_stock_peers", "1024",
                   "stock peers that have asked for a connection and sent nothing since; beyond "
                   "it the oldest is removed",
                   1, 1 << 24),
    sdk::int_param("max_unnamed_peers", "32768",
                   "peers that talk to us and are not in the address vector; beyond it the peer "
                   "that was idle longest is removed; if none is idle, newcomers must wait",
                   1, 1 << 24),
    sdk::yield_after_param(),
    sdk::string_param("libcuda", "libcuda.so.1",
                      "the driver's library for memory of CUDA devices (FI_HMEM); empty: none"),
};
}  // namespace parameters

struct Options {
  size_t datagram_size = 0;
  Checksum checksum = Checksum::kAuto;
  std::string auth_key_file;
  size_t tx_size = 1024, rx_size = 1024;
  size_t rx_pool = 8 << 20;
  size_t receive_window = 0;
  uint64_t unexpected_limit = 64 << 20;
  uint64_t peer_timeout_ns = 0;
  uint64_t close_linger_ns = 0;
  bool stock_peers = true;
  size_t max_stock_peers = 1024;
  size_t max_unnamed_peers = 32768;
  std::string libcuda;

  static Result<Options> from(const weft_instance *instance);
};

}  // namespace weft::rxd

#endif
