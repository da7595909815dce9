// SPDX-License-Identifier: BSD-2-Clause
// Connection: one link with a peer, and what is on its way there. It belongs to one Peer for its
// life, of which the connection that counts, an attempt, a probe and others may be there at a time.
//
// Example:
//    inline std::string describe(const Connection &c) {
//      std::string text = c.address().to_string();
//      if (c.index() == UINT32_MAX) text += ", not in the address vector";
//      if (c.state() != State::kConnected) text += ", not connected";
//      return text;
//    }
//
// Only the Core and its parts change it. Not for how bytes travel: that is the carrier's Link.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_CONNECTION_H
#define WEFT_PLUGINS_RXM_PROTOCOL_CONNECTION_H

#include "plugins/rxm/protocol/connection_state.h"
#include "plugins/rxm/protocol/doubt.h"
#include "plugins/rxm/protocol/operations.h"
#include "plugins/rxm/protocol/peer.h"
#include "plugins/rxm/wire/bare.h"
#include "plugins/rxm/wire/connect_data.h"

namespace weft::rxm {

enum class State : uint8_t {
  kConnecting,  // our request is on its way, or accepted in doubt
  kAccepting,   // we accepted the peer's request
  kConnected,
  kEnded,  // it is deleted when all has come back that the carrier had
};

class Connection {
 public:
  Connection(Peer &peer, uint32_t slot) : peer_(peer), slot_(slot), source_(peer.source()) {}

  Peer &peer() const { return peer_; }
  const sdk::Address &address() const { return peer_.address(); }
  uint32_t slot() const { return slot_; }  // names it in packets to us
  uint32_t index() const { return peer_.index(); }
  State state() const { return state_; }
  Link *link() const { return link_; }               // null: the carrier has none
  uint32_t peer_slot() const { return peer_slot_; }  // names it in packets to the peer
  uint8_t level() const { return level_; }           // of the peer's extensions; 0: stock
  bool takes_bare() const { return bare_; }          // messages without a header
  bool is_quiet() const { return quiet_; }    // sends nothing before it has heard of the peer
  bool is_held() const { return held_; }      // the carrier takes no packets from it
  Connection *next() const { return next_; }  // of the same peer
  // Whether the peer may be told of our receives.
  bool may_tell_credits() const { return !idleness.has_agreed() && !quiet_; }
  // Why operations do not leave by it (Peer::way_).
  bool waits() const { return idleness.leaves() || quiet_; }
  // Nothing is queued or in flight, and no answer is outstanding.
  bool is_idle() const {
    const bool queues = peer_.main_ == this && !peer_.queue_.empty();
    return !queues && answers.empty() && departed.count() == 0 && arriving.empty();
  }
  // Whether the peer may be asked to part.
  bool may_part() const {
    return state_ == State::kConnected && level_ != 0 && !waits() && is_idle();
  }
  // Packets may come before the news that the peer has accepted, and with them its level.
  bool may_be_told() const { return state_ == State::kConnecting || level_ >= kLevelOfTelling; }

  Sending sending;
  AnswerQueue answers;
  Arriving arriving;
  Composed composed;
  Departed departed;
  Idleness idleness;
  Silence silence;

  // ---- for the Core ----
  void set_state(State state) { state_ = state; }
  void set_link(Link *link) { link_ = link; }
  void set_started(uint64_t now) { started_at_ = now; }
  void set_heard() { heard_ = true; }    // a packet has come
  void set_useful() { useful_ = true; }  // a whole message has, or another request
  void set_level(uint8_t level) {
    level_ = level;
    bare_ = level >= kLevelOfBare;
  }

 private:
  friend class Core;
  friend class Peers;
  friend class Shares;
  friend class StrangerLimit;

  Peer &peer_;
  const uint32_t slot_;
  uint32_t source_;  // of its peer
  State state_ = State::kConnecting;
  bool quiet_ = false;
  uint8_t level_ = 0;
  bool bare_ = false;
  bool held_ = false;  // in Shares::held_
  bool heard_ = false;
  bool useful_ = false;
  uint32_t peer_slot_ = 0;
  Link *link_ = nullptr;
  Connection *next_ = nullptr;  // of its peer
  uint64_t started_at_ = 0;
  BareTags tags_heard_;
  Doubt doubt_;
};

}  // namespace weft::rxm

#endif
