// SPDX-License-Identifier: BSD-2-Clause
// PeerTable: the peers of an endpoint, found by number, by index in the address vector, or by
// address; and in which order those without an index make room for others.
//
// Example:
//    // A peer that is used for the first time. Throws std::bad_alloc.
//    inline Peer &made(PeerTable &peers, const sdk::Address &address, Path &path, uint32_t index) {
//      Peer *known = peers.find(address);
//      return known != nullptr ? *known : peers.add(address, path, index);
//    }
//    // The peer without an index that was silent for longest and may go.
//    template <class MayGo>
//    Peer *first_to_go(const PeerTable &peers, MayGo may_go) {
//      for (Peer *peer = peers.oldest(); peer != nullptr; peer = peer->newer)
//        if (may_go(*peer)) return peer;
//      return nullptr;
//    }
//
// It owns the peers, and not their paths. Not for who is admitted, nor for what becomes of what a
// peer has begun: that is Core's.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_PEER_TABLE_H
#define WEFT_PLUGINS_RXD_PROTOCOL_PEER_TABLE_H

#include <weft/sdk/memory/index_table.h>

#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "plugins/rxd/protocol/peer.h"

namespace weft::rxd {

class PeerTable {
 public:
  PeerTable() = default;
  ~PeerTable();
  PeerTable(const PeerTable &) = delete;
  PeerTable &operator=(const PeerTable &) = delete;

  // ---- null: there is none ----
  Peer *of_number(uint32_t number) const {
    return number != 0 && number <= slots_.size() ? slots_[number - 1] : nullptr;
  }
  Peer *at(uint32_t index) const { return by_index_.at(index); }
  Peer *find(const sdk::Address &address) const {
    const auto it = by_address_.find(address);
    return it != by_address_.end() ? it->second : nullptr;
  }

  // By number - 1; null where it has no peer.
  std::span<Peer *const> slots() const { return slots_; }
  bool empty() const { return by_address_.empty(); }
  size_t size() const { return by_address_.size(); }
  size_t unnamed() const { return unnamed_; }  // peers without an index

  // A peer at an address that has none; `index` may be kNoIndex. Throws std::bad_alloc, and there
  // is no peer then.
  Peer &add(const sdk::Address &address, Path &path, uint32_t index);
  void remove(Peer &peer);

  // The peer has this index now. Throws std::bad_alloc, and the peer is as before.
  void name(Peer &peer, uint32_t index);
  void unname(Peer &peer);

  // Of the peers without an index: Peer::newer goes on.
  Peer *oldest() const { return oldest_; }
  // The peer goes before no other.
  void heard_of(Peer &peer) {
    if (peer.index != kNoIndex || &peer == newest_) return;
    unlist(peer);
    list(peer);
  }

  // Peers that have not proven their address, the oldest first.
  size_t unproven() const { return unproven_.size(); }
  void add_unproven(const Peer &peer) { unproven_.push_back(peer.number); }
  Peer *take_unproven();  // null: it is gone

 private:
  void list(Peer &peer);  // as the newest
  void unlist(Peer &peer);

  std::vector<Peer *> slots_;
  std::vector<uint32_t> free_slots_;
  std::unordered_map<sdk::Address, Peer *, sdk::AddressHash> by_address_;
  sdk::IndexTable<Peer> by_index_;
  Peer *oldest_ = nullptr, *newest_ = nullptr;
  size_t unnamed_ = 0;
  std::deque<uint32_t> unproven_;  // numbers
};

}  // namespace weft::rxd

#endif
