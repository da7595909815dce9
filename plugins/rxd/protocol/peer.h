// SPDX-License-Identifier: BSD-2-Clause
// Peer: what an endpoint knows of an address that it talks to, or wants to talk to.
//
// Example:
//    // Whether our own handshake with the peer has no answer yet.
//    inline bool is_called(const Peer &peer) {
//      return peer.link.state() == sdk::PeerLink::State::kAttempt;
//    }
//
// `link` says whether there is a connection, and which one counts. Datagrams need less of it than
// streams do, as each request has a proof (sdk::PeerLink::Proof::kAddress), and each side answers a
// request with its one number for the peer:
// - kAttempt: `handshake` is under way. Requests that cross need no loser: both are accepted.
// - kUp: there is a conversation.
// - kAsking: the peer is in doubt, or is asked for its places, by a handshake that verifies the
//   connection, or finds a process of the other dialect. Whatever else the peer sends ends a doubt.
// - An RTS in stock's format proves nothing. While we ask the peer ourselves it does not count, and
//   it causes doubt of a connection as often as AnswerLimit allows.
// - When the connection ends during a doubt, that handshake ends too: it asks about numbers that no
//   other connection may have. The next one begins anew.
// So kInsist, kBackoff and kDoubt do not occur: pauses are the handshake's.
//
// Not for what is said in a connection (conversation.h).
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_PEER_H
#define WEFT_PLUGINS_RXD_PROTOCOL_PEER_H

#include <weft/sdk/addresses/address.h>
#include <weft/sdk/peer/link.h>

#include <cstdint>
#include <memory>

#include "plugins/rxd/protocol/conversation.h"
#include "plugins/rxd/protocol/handshake.h"

namespace weft::rxd {

inline constexpr uint32_t kNoIndex = UINT32_MAX;

class WeftConversation;

// Conversations use the first members only.
struct Peer {
  sdk::Address address;
  Path *path = nullptr;
  uint32_t number = 0;        // our number for the peer, >= 1: connection number, stock's index
  uint32_t index = kNoIndex;  // in the address vector
  uint32_t saved = 0;         // unexpected messages of the peer
  std::unique_ptr<Conversation> conversation;
  // ---- Core's ----
  sdk::PeerLink link;
  Handshake handshake;
  WeftConversation *weft = nullptr;         // `conversation`, if it is a WeftConversation
  Peer *older = nullptr, *newer = nullptr;  // peers without an index, by the last packet's time
  TxOp *first = nullptr, *last = nullptr;   // operations that wait for the handshake
  uint32_t cookie = 0;                      // of the present connection, or of the next one
  bool wants_idle = false;                  // is in Core::idle_
  bool wants_room = false;                  // is in Core::blocked_
  bool losing = false;                      // is in Core::losing_
  bool requeue = false;
  bool by_source = false;  // counts in Core::by_source_
  uint8_t place = 0;       // what it says of itself: kPartPlace
  bool proven = false;     // a stock peer has answered our question, or used our number
  bool roams = false;  // a stock peer has answered our question from another address than its own
  int err = 0;
  uint64_t settled_at = 0;  // when the connection was made
  uint64_t deadline = 0;    // of the conversation

  // A question of ours to the peer's address has no answer yet.
  bool is_asked() const {
    return link.state() == sdk::PeerLink::State::kAttempt ||
           link.state() == sdk::PeerLink::State::kAsking;
  }
  bool is_doubted() const { return link.state() == sdk::PeerLink::State::kAsking; }
  // The index in our RTS to the peer, which comes back in CTS and challenge. Only a process that
  // receives at the peer's address can know the upper half.
  uint64_t rts_index() const { return uint64_t{handshake.question()} << 32 | number; }
};

}  // namespace weft::rxd

#endif
