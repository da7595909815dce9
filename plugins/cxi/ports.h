// SPDX-License-Identifier: BSD-2-Clause
// Ports: what an endpoint has of its NIC from fi_enable to fi_close, for all of its parts.
//
// Example:
//    // A put of nothing to a peer, which the peer knows to be from us.
//    inline Transfer knock(const Ports &ports, const Peer &peer, Index index, uint64_t bits) {
//      Transfer put;
//      put.to = {peer.nid, peer.pid, index};
//      put.match_bits = bits;
//      put.initiator = ports.initiator;
//      return put;
//    }
//
// Not for what only one part has: portals, queues of events.
#ifndef WEFT_PLUGINS_CXI_PORTS_H
#define WEFT_PLUGINS_CXI_PORTS_H

#include <cstdint>
#include <memory>

#include "plugins/cxi/nic/nic.h"

namespace weft::cxi {

class DeviceMemory;

// An endpoint of the fabric, in our VNI.
struct Peer {
  Nid nid = 0;
  Pid pid = 0;

  constexpr uint64_t key() const { return uint64_t{nid} << kPidBits | pid; }
  // As events name it.
  static constexpr Peer of(uint32_t initiator) {
    return {.nid = initiator & kMatchAnyEp & kMaxNid, .pid = Pid(initiator >> kMatchEpBits)};
  }
  constexpr uint32_t initiator() const { return match_id(pid, nid); }
  bool operator==(const Peer &) const = default;
};

struct Ports {
  Lni *lni = nullptr;
  Memory all;                             // the memory of the process
  const DeviceMemory *devices = nullptr;  // FI_HMEM; null: no buffer is a device's
  Nid nid = 0;
  Profile profile;
  std::unique_ptr<Endpoint> endpoint;
  uint32_t initiator = 0;  // how peers know us
  bool counts_successes_alone = false;
};

}  // namespace weft::cxi

#endif
