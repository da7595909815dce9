// SPDX-License-Identifier: BSD-2-Clause
// The parameters of rxm (docs/man/weft-rxm.7), and their values in one instance.
//
// Example:
//    inline bool fits_one_packet(const weft_instance *instance, size_t length) {
//      const Options options = Options::from(instance);  // the layer does it once
//      return length <= options.buffer_size;
//    }
//
// Not for limits that are no parameters: Settings in protocol/core.h.
#ifndef WEFT_PLUGINS_RXM_SETTINGS_H
#define WEFT_PLUGINS_RXM_SETTINGS_H

#include <weft/sdk/unit/params.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft::rxm {

namespace parameters {
inline constexpr weft_param kAll[] = {
    sdk::size_param(
        "buffer_size", "16384",
        "bytes up to which a message goes in one packet; larger ones go in several, or the "
        "receiver reads them; must be the same at all peers",
        512, 1 << 20),
    sdk::size_param(
        "sar_limit", "65536",
        "bytes up to which a message goes to a weft peer in segments of buffer_size; the "
        "receiver reads larger ones, and a stock peer all above buffer_size",
        0, int64_t(1) << 40),
    sdk::bool_param(
        "use_rndv_write", "0",
        "the sender writes large messages, instead of the receiver reading them; must be "
        "the same at all peers"),
    sdk::int_param("tx_size", "2048", "default of tx_attr.size: operations in flight per endpoint",
                   1, 1048576),
    sdk::int_param("rx_size", "8192", "default of rx_attr.size: receives expected per endpoint", 1,
                   1048576),
    sdk::size_param("rx_pool", "4M",
                    "bytes of receive buffers per endpoint, of buffer_size and a header each; "
                    "they take memory when they are first used",
                    64 << 10, int64_t(1) << 34),
    sdk::size_param(
        "unexpected_limit", "64M",
        "bytes of copies of unexpected messages (without a posted receive) per endpoint; "
        "beyond it they stay in receive buffers, and peers that occupy too many of "
        "them wait",
        0, int64_t(1) << 40),
    sdk::int_param("max_connections", "0",
                   "connections per endpoint beyond which the one that was idle for the longest "
                   "is closed, if its peer agrees; connections to stock peers stay; 0: no limit",
                   0, 1 << 24),
    sdk::int_param(
        "max_unnamed_peers", "0",
        "connections per endpoint of peers that are not in the address vector; beyond it "
        "one that sent no packet for a second, or is idle, is closed, and new peers "
        "have to wait; 0: half of the descriptors that the process may open",
        0, 1 << 24),
    sdk::int_param("connect_timeout_ms", "30000",
                   "milliseconds for which connecting is retried, while the peer answers that it "
                   "connects to us, or hangs up without an answer, or while the port that the "
                   "provider beneath has chosen is in use",
                   1, 86400000),
    sdk::int_param(
        "close_linger_ms", "1000",
        "milliseconds that fi_close waits for operations whose connection is being made, and "
        "exit() without it for those that were injected",
        0, 600000),
    sdk::yield_after_param(),
    sdk::string_param(
        "libcuda", "libcuda.so.1",
        "the driver's library for memory of CUDA devices (FI_HMEM), which the provider "
        "beneath must have, too; empty: none"),
};
}  // namespace parameters

struct Options {
  size_t buffer_size = 16384;
  uint64_t sar_limit = 65536;
  bool rendezvous_write = false;
  size_t tx_size = 1024, rx_size = 1024;
  size_t rx_pool = 4 << 20;
  uint64_t unexpected_limit = 64 << 20;
  size_t max_connections = 0, max_unnamed_peers = 0;
  uint64_t connect_timeout_ns = 0;
  uint64_t close_linger_ns = 0;
  std::string libcuda;

  static Options from(const weft_instance *instance);
};

}  // namespace weft::rxm

#endif
