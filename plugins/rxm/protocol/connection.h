// SPDX-License-Identifier: BSD-2-Clause
// A peer and the connection with it. The Core makes a Connection when there is something to send to
// a peer, or when a peer connects, and deletes it when it is idle and empty again.
//
// Example:
//    inline std::string describe(const Connection &c) {
//      std::string text = c.address().to_string();
//      if (c.index() == UINT32_MAX) text += ", not in the address vector";
//      if (c.state() != State::kConnected) text += ", not connected";
//      return text;
//    }
//
// Only the Core changes it. Not for how bytes travel: that is the carrier's Link.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_CONNECTION_H
#define WEFT_PLUGINS_RXM_PROTOCOL_CONNECTION_H

#include <weft/sdk/address.h>
#include <weft/sdk/replies.h>

#include "plugins/rxm/protocol/operations.h"
#include "plugins/rxm/wire/bare.h"

namespace weft::rxm {

enum class State : uint8_t {
  kIdle,        // no link
  kConnecting,  // our request is on its way
  kWaiting,     // the peer refused for now: wait for its request, or retry later
  kAccepting,   // we accepted the peer's request
  kConnected,
};

class Connection {
 public:
  const sdk::Address &address() const { return address_; }
  uint32_t slot() const { return slot_; }    // names it in packets to us
  uint32_t index() const { return index_; }  // in the address vector; kNoIndex: not there
  State state() const { return state_; }

 private:
  friend class Core;
  template <class T, T *T::*kPrevious, T *T::*kNext>
  struct List {
    T *first = nullptr;
    void add(T &t) {
      t.*kPrevious = nullptr;
      t.*kNext = first;
      if (first != nullptr) first->*kPrevious = &t;
      first = &t;
    }
    void remove(T &t) {
      (t.*kPrevious != nullptr ? t.*kPrevious->*kNext : first) = t.*kNext;
      if (t.*kNext != nullptr) t.*kNext->*kPrevious = t.*kPrevious;
    }
  };

  sdk::Address address_;
  State state_ = State::kIdle;
  // Not in Core::by_address_: the passive half of a connection to ourselves, a rival, or a
  // connection that its rival replaced.
  bool own_ = false;
  bool shares_name_ = false;  // there is or was an `own_` connection with the same address
  bool blocked_ = false;      // in Core::blocked_
  bool flow_control_ = false;
  bool retry_ = false;   // in Core::retrying_
  bool unused_ = false;  // in Core::unused_
  // Why new operations wait. One test sees all of them (Core::start).
  // The end of an idle connection, agreed with a weft peer:
  bool asked_ : 1 = false;    // we asked the peer to part
  bool agreed_ : 1 = false;   // we agreed to part, and send nothing more
  bool quiet_ : 1 = false;    // sends nothing before it has heard of the peer
  bool doubted_ : 1 = false;  // our request to the same address is accepted: rivals.cc
  bool waits() const { return asked_ | agreed_ | quiet_ | doubted_; }
  uint8_t level_ = 0;          // of the peer's extensions; 0: stock
  bool bare_ = false;          // the peer takes messages without a header
  uint8_t place_ = 0;          // what the peer says of itself: ConnectData::place
  bool held_ = false;          // in Core::held_: the carrier takes no packets from it
  bool heard_ = false;         // a packet arrived on this link
  bool useful_ = false;        // a whole message, or another request, has come
  uint8_t useless_looks_ = 0;  // Core::look_at_strangers
  sdk::Replies replies_;       // to what the peer is told of its messages
  uint32_t slot_ = 0, index_ = kNoIndex;
  uint32_t peer_slot_ = 0, peer_process_ = 0;
  Link *link_ = nullptr;
  TxOp *first_ = nullptr, *last_ = nullptr;  // queue of operations that the carrier does not have
  Control *control_ = nullptr, *control_last_ = nullptr;  // queue of answers
  uint32_t controls_ = 0;                                 // answers queued or at the carrier
  uint32_t segments_ = 0;                                 // at the carrier
  uint64_t owed_ = 0;                                     // bytes of atomics' results in controls_
  // Memory held for messages of this peer.
  uint32_t kept_ = 0;                                        // messages
  uint32_t buffers_ = 0;                                     // receive buffers that hold them
  uint64_t charged_ = 0;                                     // bytes of copies
  List<TxOp, &TxOp::previous, &TxOp::following> in_flight_;  // operations that wait for an answer
  using Messages = List<RxMessage, &RxMessage::previous, &RxMessage::following>;
  Messages messages_;    // rendezvous
  Messages unfinished_;  // in segments, before the last one
  Messages matchless_;   // complete; their sender waits until they meet their receives
  uint32_t unfinished_count_ = 0;
  uint32_t attempts_ = 0;
  Messages &list_of(const RxMessage &m) {
    switch (m.form) {
      case RxMessage::Form::kWhole:
        return matchless_;
      case RxMessage::Form::kSegments:
        return unfinished_;
      case RxMessage::Form::kRendezvous:
        return messages_;
    }
    return messages_;
  }
  size_t flights_ = 0;  // operations at the carrier, or waiting for an answer
  uint64_t started_at_ = 0, retry_at_ = 0;
  // Another process claimed this peer's address. The owner of the address decides: we connect to it
  // by a rival.
  bool contested_ = false;  // in Core::contested_: the owner is to be asked at contest_at_
  bool disputed_ = false;   // a former rival: the connection that it might replace has ended
  // crossed_: our request crossed the peer's. accepted_: it was accepted, but the link may prove
  // dead before contest_at_.
  bool crossed_ = false, accepted_ = false;
  uint32_t contests_ = 0;
  uint64_t contest_at_ = 0;
  Connection *rival_ = nullptr;  // the rival of this connection; of a rival: the one it may replace
  BareTags tags_sent_, tags_heard_;  // on this link
  uint64_t credits_ = 1, reposted_ = 0, last_use_ = 0;
  uint64_t seen_use_ = UINT64_MAX;  // last_use_ at the last look at strangers
  // When the peer first asked for another connection, and last_use_ at that time.
  uint64_t doubted_at_ = 0, doubted_use_ = 0;
};

}  // namespace weft::rxm

#endif
