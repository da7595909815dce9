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
//      return put;  // for a VniQueue, with peer.vni
//    }
//
// With keys in its address vector (FI_AV_AUTH_KEY) an endpoint is in several VNIs, with the same
// PID in each; otherwise it is in one. Not for what only one part has: portals, queues of events.
#ifndef WEFT_PLUGINS_CXI_PORTS_H
#define WEFT_PLUGINS_CXI_PORTS_H

#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/cxi/nic/nic.h"

namespace weft::cxi {

class DeviceMemory;

// An endpoint of the fabric.
struct Peer {
  Nid nid = 0;
  Pid pid = 0;
  Vni vni = 0;

  constexpr uint64_t key() const { return uint64_t{vni} << 32 | uint64_t{nid} << kPidBits | pid; }
  static constexpr Peer of_key(uint64_t key) {
    return {
        .nid = Nid(key >> kPidBits & kMaxNid), .pid = Pid(key & kAnyPid), .vni = Vni(key >> 32)};
  }
  // As events name it. One that goes by its rank (words.h: is_logical()) is nowhere: sources.h
  // knows where.
  static constexpr Peer of(uint32_t initiator, Vni vni) {
    const Pid pid = Pid(initiator >> kMatchEpBits);
    if (is_logical(initiator)) return nowhere(pid, vni);
    return {.nid = initiator & kMatchAnyEp & kMaxNid, .pid = pid, .vni = vni};
  }
  // Of a sender whose rank says nothing: no NIC has this number.
  static constexpr Peer nowhere(Pid pid, Vni vni) {
    return {.nid = kMaxNid, .pid = pid, .vni = vni};
  }
  constexpr bool is_nowhere() const { return nid == kMaxNid; }
  constexpr uint32_t initiator() const { return match_id(pid, nid); }
  constexpr uint32_t initiator_as(uint32_t rank) const { return match_id(pid, kLogical | rank); }
  constexpr Peer in(Vni other) const { return {.nid = nid, .pid = pid, .vni = other}; }
  bool operator==(const Peer &) const = default;
};

struct Ports {
  Lni *lni = nullptr;
  Memory all;                             // the memory of the process
  const DeviceMemory *devices = nullptr;  // FI_HMEM; null: no buffer is a device's
  Nid nid = 0;
  Profile profile;                                   // that queues begin with
  std::vector<std::unique_ptr<Endpoint>> endpoints;  // one for each VNI
  uint32_t initiator = 0;                            // how peers know us,
  uint32_t sender = 0;  // and as whom we send to applications: FI_SYMMETRIC has us send our rank
  bool counts_successes_alone = false;

  // Takes a PID that is free in all of the VNIs. FI_EADDRINUSE: there is none, or not `pid`.
  Result<void> claim(const std::vector<Vni> &vnis, Pid pid);
  bool has_pid() const { return !endpoints.empty(); }
  Pid pid() const { return endpoints.front()->pid(); }
  Peer self() const { return {.nid = nid, .pid = pid()}; }  // in no VNI
  bool is_in(Vni vni) const;
  Result<void> map(Portal &portal, Index index) const;  // in all of the VNIs
};

// A transmit queue whose transfers have a VNI each.
class VniQueue {
 public:
  Result<void> open(Lni &lni, size_t depth, const Profile &profile);
  // As TransmitQueue::post(). -FI_EINVAL: the service does not allow the VNI.
  int post(const Transfer &transfer, Vni vni);
  void flush() { queue_->flush(); }
  void close() { queue_.reset(); }

 private:
  std::unique_ptr<TransmitQueue> queue_;
  Profile profile_;  // that the queue has
};

}  // namespace weft::cxi

#endif
