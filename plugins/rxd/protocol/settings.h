// SPDX-License-Identifier: BSD-2-Clause
// Settings: what an application, a user and the place of an endpoint decide about its protocol.
//
// Example:
//    // Of an endpoint that checks what it reads, and forgets a silent peer after a minute.
//    inline Settings careful() {
//      Settings settings;
//      settings.checksum = Checksum::kOn;
//      settings.peer_timeout_ns = 60'000'000'000;
//      return settings;
//    }
//
// Not for what the network is like: that is the carrier's.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_SETTINGS_H
#define WEFT_PLUGINS_RXD_PROTOCOL_SETTINGS_H

#include <weft/sdk/memory/hmem.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft::rxd {

// Credit at the beginning of a connection, in each direction: messages, and KiB of unasked payload.
inline constexpr uint32_t kFirstMessages = 64;
inline constexpr uint32_t kFirstCredit = 64;

enum class Checksum : uint8_t { kAuto, kOn, kOff };

struct Settings {
  size_t tx_size = 1024;         // operations in flight
  size_t first_datagram = 1472;  // bytes, to stock peers and at first
  Checksum checksum = Checksum::kAuto;
  uint64_t unexpected_limit = 64 << 20;  // bytes of unexpected messages
  uint64_t peer_timeout_ns = 10'000'000'000;
  size_t max_stock_peers = 1024;     // stock peers that have not proven their address
  size_t max_unnamed_peers = 32768;  // peers that are not in the address vector
  bool stock_peers = true;           // answer stock peers, and speak their protocol
  uint32_t handshake_rate = 1000;    // answers per second to peers that have not proven an address
  std::string auth_key;
  const sdk::Hmem *hmem = nullptr;  // FI_HMEM: buffers may be memory of devices
  uint8_t place = 0;                // of a context of a scalable endpoint
  uint8_t last_place = 0;           // of the contexts, if this is the first one
  bool only_transmits = false;      // such a context, to which nobody connects
};

}  // namespace weft::rxd

#endif
