// SPDX-License-Identifier: BSD-2-Clause
// What can be set about the tcp provider, and what it counts.
//
//   Settings settings = Settings::from(instance);
//   stats.add(Stat::kFramesRejected);
#ifndef WEFT_PLUGINS_TCP_SETTINGS_H
#define WEFT_PLUGINS_TCP_SETTINGS_H

#include <weft/plugin.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::tcp {

inline constexpr size_t kInjectSize = 128;
inline constexpr size_t kMaxInjectSize =
    16384;                                     // FI_EP_RDM, to those who ask: the bytes are copied
inline constexpr size_t kMaxRdmQueue = 65536;  // the same: operations in flight, receives
inline constexpr size_t kPrivateDataSize = 256;

struct Settings {
  std::vector<std::string> interfaces;  // patterns; empty: all
  std::string auth_key_file;            // the key of who is opened without one; empty: none
  uint64_t connect_timeout_ns = 0;      // from fi_connect to the peer's answer; 0: none
  uint64_t handshake_timeout_ns = 0;    // for a stranger to finish its request
  int close_linger_ms = 0;              // how long fi_close waits for injected data to leave
  int backlog = 0;
  size_t max_handshakes = 0;  // strangers that may be in the middle of their request
  size_t tx_size = 0, rx_size = 0;
  bool nodelay = true;
  int send_buffer = 0, recv_buffer = 0;  // SO_SNDBUF, SO_RCVBUF; 0: the kernel tunes them
  std::string local_congestion;          // TCP_CONGESTION between processes of one host; empty: the
                                         // kernel's default
  // FI_EP_RDM:
  uint64_t max_saved_size = 0;           // bytes of a tagged message that is sent unasked
  uint64_t max_saved_per_peer = 0;       // bytes of messages without a receive, of one peer
  uint64_t max_saved = 0;                // the same, of all peers of an endpoint
  size_t max_connections = 0;            // per endpoint; 0: no limit
  size_t max_unnamed_peers = 0;          // that are not in the address vector, per endpoint
  uint16_t port_low = 0, port_high = 0;  // of listeners whose address names no port; 0: any

  static Settings from(const weft_instance *instance);
};

// Counted per fabric; read through WEFT_COUNTERS_OPS (weft/plugin.h).
enum class Stat {
  kConnectionsAccepted,
  kConnectionsRefusedVersion,  // a connection message that is not ours: a port scan, another
                               // protocol
  kConnectionsRefusedTimeout,  // a stranger that never finished its request
  kConnectionsRefusedKey,      // a stranger without our auth_key
  kAcceptsHeld,                // as many unfinished requests as allowed: the next ones waited
  kAcceptFailures,             // EMFILE and the like
  kFramesRejected,             // a peer sent what the protocol does not allow
  kRmaRejected,                // a peer asked for memory that it may not touch
  kConnectionsLost,
  kIdentitiesDisputed,  // somebody said that it is a peer to whom we are connected
  kPeersRefused,        // max_unnamed_peers
  kCount,
};

class Stats {
 public:
  void add(Stat stat) { values_[size_t(stat)].fetch_add(1, std::memory_order_relaxed); }
  size_t read(weft_counter *out, size_t count) const;

 private:
  std::array<std::atomic<uint64_t>, size_t(Stat::kCount)> values_{};
};

}  // namespace weft::tcp

#endif
