// SPDX-License-Identifier: BSD-2-Clause
// Settings: what a Core is told of its endpoint and of the carrier, and the limits that it keeps.
//
// Example:
//    // Each connection has 32 receives of its own.
//    inline Settings with_credits(Settings settings) {
//      settings.credits = true;
//      settings.receive_count = 32;
//      return settings;
//    }
//
// Not for the parameters of rxm: plugins/rxm/settings.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_SETTINGS_H
#define WEFT_PLUGINS_RXM_PROTOCOL_SETTINGS_H

#include <weft/sdk/memory/hmem.h>

#include <cstddef>
#include <cstdint>

namespace weft::rxm {

struct Settings {
  uint32_t process = 0;           // tells this process from others at the same address
  uint32_t eager_limit = 16384;   // bytes of payload in one packet; must be equal at both sides
  uint64_t sar_limit = 65536;     // bytes up to which a message goes in segments
  bool rendezvous_write = false;  // the sender writes large messages; else the receiver reads them
  size_t tx_size = 1024;          // operations in flight
  size_t inject_limit = 128;      // of the carrier; bytes, with the header
  size_t iov_limit = 4;           // of the carrier
  uint32_t receive_count = 256;   // receive buffers: per connection with `credits`, else shared
  bool credits = false;           // each connection has its own receives: offer flow control
  // With `credits`: the side that accepted a connection sends nothing before it has heard of the
  // other. iWARP wants that (RFC 5044, section 7.1.2). Who asked sends credits at once.
  bool asker_first = false;
  size_t max_connections = 0;  // 0: no limit
  // Bytes of copies of unexpected messages. One peer gets at most three quarters of them, all
  // strangers together half.
  uint64_t unexpected_limit = 64 << 20;
  uint64_t connect_timeout_ns = 30'000'000'000;
  size_t max_strangers = SIZE_MAX;  // connections of strangers
  // Per peer in the address vector; a stranger gets one sixteenth.
  size_t max_controls = 1 << 16;    // answers that the peer does not take
  uint64_t owed_limit = 64 << 20;   // bytes of atomics' results that the peer does not take
  size_t max_segments = 512;        // at the carrier, per connection
  bool descriptors = false;         // TxOp::desc is filled in
  const sdk::Hmem *hmem = nullptr;  // FI_HMEM: buffers may be memory of devices
  uint8_t place = 0;                // ConnectData::place
  uint8_t last_place = 0;           // AcceptData::last_place
  bool only_transmits = false;      // a context to which nobody connects
  bool bare = false;                // messages have remote data, and it is known who sent them
};

}  // namespace weft::rxm

#endif
