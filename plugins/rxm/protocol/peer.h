// SPDX-License-Identifier: BSD-2-Clause
// Peer: what there is once for each address: its name, the operations that wait for a link, the
// memory that its messages occupy, and which of its connections counts (weft/sdk/peer/link.h).
//
// Example:
//    inline std::string describe(const Peer &peer) {
//      std::string text = peer.address().to_string();
//      if (peer.is_stranger()) text += ", not in the address vector";
//      return text;
//    }
//
// Peers (peers.h) makes it when there is something to send to the address, or when a process there
// connects. The Core deletes it when it has no connection and no message. Only the Core and its
// parts change it. Not for what is on the wire of one connection: connection.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_PEER_H
#define WEFT_PLUGINS_RXM_PROTOCOL_PEER_H

#include <weft/sdk/addresses/address.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/peer/link.h>
#include <weft/sdk/transfers/match.h>

#include "plugins/rxm/protocol/operations.h"

namespace weft::rxm {

class Connection;

class Peer {
 public:
  // `number` tells strangers apart.
  Peer(const sdk::Address &address, uint32_t number) : address_(address), number_(number) {}

  const sdk::Address &address() const { return address_; }
  uint32_t index() const { return index_; }  // in the address vector; kNoIndex: not there
  bool is_stranger() const { return index_ == kNoIndex; }
  const OpQueue &queue() const { return queue_; }   // operations that the carrier does not have
  const Connection *main() const { return main_; }  // the connection that counts; null: none
  Connection *connections() const { return connections_; }  // the first; each has the next
  const sdk::PeerLink &link() const { return link_; }
  // Of its messages in the receiver: its entry in the address vector, or kFirstUnnamed and more.
  uint32_t source() const {
    return is_stranger() ? sdk::Matcher::kFirstUnnamed + number_ : sdk::Av::entry_of(index_);
  }

 private:
  friend class Core;
  friend class Peers;
  friend class Shares;
  friend class StrangerLimit;
  friend class Connection;
  friend class Deadlines;
  friend class Inbox;
  friend class Outbox;
  friend struct PartsWorld;  // of tests
  // In doubt the end of a dead link arrives within doubt_ns. Within again_ns all is read that a
  // peer sent before it closed a connection: one that is replaced brings nothing more.
  static constexpr sdk::PeerLink::Rules kRules{
      .doubt_ns = 100'000'000, .again_ns = 5'000'000'000, .longest_pause_ns = 500'000'000};

  // By which operations leave at once; null: they wait. It is main_, or null.
  Connection *way_ = nullptr;
  OpQueue queue_;  // of the Outbox
  const sdk::Address address_;
  const uint32_t number_;
  uint32_t index_ = kNoIndex;
  uint8_t place_ = 0;        // what it says of itself: ConnectData::place
  bool unused_ : 1 = false;  // in Peers::unused_
  bool timed_ : 1 = false;   // in Deadlines::waiting_
  uint32_t attempts_ = 0;    // since there was a link, or nothing to send
  sdk::PeerLink link_{kRules};
  Connection *main_ = nullptr;     // PeerLink's link: all that is sent
  Connection *attempt_ = nullptr;  // PeerLink's attempt
  Connection *probe_ = nullptr;    // PeerLink's probe
  // All of them, also the second end of one to ourselves, and those that are over.
  Connection *connections_ = nullptr;
  uint32_t open_ = 0;  // of them: those that the carrier has
  // Memory held for its messages.
  uint32_t kept_ = 0;     // messages, of the Inbox
  uint32_t buffers_ = 0;  // receive buffers that hold them
  uint64_t charged_ = 0;  // bytes of copies
};

}  // namespace weft::rxm

#endif
