// SPDX-License-Identifier: BSD-2-Clause
// The settings of the tcp provider.
//
// Example:
//    // A fabric has them, and its endpoints use them.
//    struct Owner {
//      explicit Owner(const weft_instance *instance) : settings(Settings::from(instance)) {}
//      const Settings settings;
//    };
//
// Not for the wishes of an application: those are in its fi_info.
#ifndef WEFT_PLUGINS_TCP_SETTINGS_H
#define WEFT_PLUGINS_TCP_SETTINGS_H

#include <weft/plugin.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::tcp {

inline constexpr size_t kInjectSize = 128;
// FI_EP_RDM, if the hints ask for it: bytes of an inject, which are copied; and operations in
// flight, or receives.
inline constexpr size_t kMaxInjectSize = 16384;
inline constexpr size_t kMaxRdmQueue = 65536;
inline constexpr size_t kPrivateDataSize = 256;

struct Settings {
  std::vector<std::string> interfaces;  // patterns; empty: all
  std::string auth_key_file;            // key of objects opened without one; empty: none
  uint64_t connect_timeout_ns = 0;      // from fi_connect to the peer's answer; 0: none
  uint64_t handshake_timeout_ns = 0;    // for a stranger to finish its request
  int close_linger_ms = 0;              // how long fi_close and exit() wait for data to leave
  uint64_t close_linger_ns() const { return uint64_t(close_linger_ms) * 1'000'000u; }
  int backlog = 0;
  size_t max_handshakes = 0;  // strangers with an incomplete request
  size_t tx_size = 0, rx_size = 0;
  bool nodelay = true;
  int send_buffer = 0, recv_buffer = 0;  // SO_SNDBUF, SO_RCVBUF; 0: the kernel tunes them
  // TCP_CONGESTION between processes of one host; empty: the kernel's default.
  std::string local_congestion;
  // FI_EP_RDM:
  uint64_t max_saved_size = 0;           // bytes of a tagged message without an announcement
  uint64_t max_saved_per_peer = 0;       // bytes of saved messages, of one peer
  uint64_t max_saved = 0;                // the same, of all peers of an endpoint
  size_t max_connections = 0;            // per endpoint; 0: no limit
  size_t max_unnamed_peers = 0;          // not in the address vector, per endpoint
  std::string libcuda;                   // the driver's library; empty: no memory of devices
  uint16_t port_low = 0, port_high = 0;  // of listeners without a given port; 0: any

  static Settings from(const weft_instance *instance);
};

}  // namespace weft::tcp

#endif
