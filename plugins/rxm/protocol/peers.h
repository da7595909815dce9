// SPDX-License-Identifier: BSD-2-Clause
// Peers: the peers of an endpoint and their connections, by address, by index of the address
// vector, by source, and by slot; and what all strangers together have. It owns them.
//
// Example:
//    // The peer `index` of the address vector.
//    inline Peer &peer_at(Peers &peers, uint32_t index, const sdk::Address &address) {
//      if (Peer *known = peers.at(index)) return *known;
//      Peer &peer = peers.get(address);
//      if (peer.is_stranger()) peers.set_index(peer, index);
//      return peer;
//    }
//
// A peer that is only in the address vector has no entry here. Not for which connection counts, nor
// for limits: these are the Core's.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_PEERS_H
#define WEFT_PLUGINS_RXM_PROTOCOL_PEERS_H

#include <weft/sdk/memory/index_table.h>

#include <unordered_map>
#include <vector>

#include "plugins/rxm/protocol/connection.h"
#include "plugins/rxm/protocol/peer.h"

namespace weft::rxm {

class Peers {
 public:
  // Of peers that are not in the address vector.
  struct Strangers {
    size_t connected = 0;  // peers with a connection at the carrier
    size_t buffers = 0;    // receive buffers that hold their messages
    uint64_t charged = 0;  // bytes of copies of their messages
  };

  Peers() = default;
  ~Peers();
  Peers(const Peers &) = delete;
  Peers &operator=(const Peers &) = delete;

  // Null: there is none.
  Peer *at(uint32_t index) const { return by_index_.at(index); }
  Peer *find(const sdk::Address &address) const;
  Peer *of_source(uint32_t source) const;  // a stranger
  Connection *in_slot(uint32_t slot) const { return slot < slots_.size() ? slots_[slot] : nullptr; }
  // Entries may be null.
  const std::vector<Peer *> &all() const { return by_number_; }
  const std::vector<Connection *> &connections() const { return slots_; }
  size_t objects() const;  // connections, and peers without one
  const Strangers &strangers() const { return strangers_; }

  // The peer at this address, which is made if there is none.
  Peer &get(const sdk::Address &address);
  Connection &connect(Peer &peer);
  void erase(Connection &connection);
  void erase(Peer &peer);  // without connections
  // It may have no connection, no message and no operation any more.
  void note_unused(Peer &peer) {
    if (!peer.unused_) unused_.push_back(&peer);
    peer.unused_ = true;
  }
  bool has_unused() const { return !unused_.empty(); }
  // Calls `release` for each of these, which must not note any. True: the peer needs no further
  // look, and may have been erased.
  template <class F>
  void visit_unused(F release) {
    for (size_t i = 0; i < unused_.size();) {
      Peer &peer = *unused_[i];
      peer.unused_ = false;
      if (!release(peer)) {
        peer.unused_ = true;
        ++i;
        continue;
      }
      unused_[i] = unused_.back();
      unused_.pop_back();
    }
  }
  // kNoIndex: it is a stranger from now on. Its messages have another source then.
  void set_index(Peer &peer, uint32_t index);
  // The carrier has the connection, or has it no more.
  void opened(Connection &connection);
  void closed(Connection &connection);
  // Memory for messages of this peer is taken, or given back.
  void add_buffers(Peer &peer, int count) {
    peer.buffers_ += uint32_t(count);
    if (peer.is_stranger()) strangers_.buffers += size_t(count);
  }
  void add_bytes(Peer &peer, int64_t bytes) {
    peer.charged_ += uint64_t(bytes);
    if (peer.is_stranger()) strangers_.charged += uint64_t(bytes);
  }

 private:
  void count_stranger(const Peer &peer, int times);

  sdk::IndexTable<Peer> by_index_;
  std::unordered_map<sdk::Address, Peer *, sdk::AddressHash> by_address_;
  std::vector<Peer *> by_number_;
  std::vector<uint32_t> free_numbers_;
  std::vector<Connection *> slots_;  // by Connection::slot(); null: free
  std::vector<uint32_t> free_slots_;
  std::vector<Peer *> unused_;
  Strangers strangers_;
};

}  // namespace weft::rxm

#endif
