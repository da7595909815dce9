// SPDX-License-Identifier: BSD-2-Clause
// A peer that there is something to say to, and the connection with it. Only the Core changes one.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_CONNECTION_H
#define WEFT_PLUGINS_RXM_PROTOCOL_CONNECTION_H

#include <weft/sdk/address.h>

#include "plugins/rxm/protocol/operations.h"

namespace weft::rxm {

enum class State : uint8_t {
  kIdle,        // no connection, nothing under way
  kConnecting,  // our request is out
  kWaiting,     // the peer said that there is another connection: it comes, or we try again
  kAccepting,   // we accepted the peer's
  kConnected,
};

class Connection {
 public:
  const sdk::SockAddr &address() const { return address_; }
  uint32_t slot() const { return slot_; }
  uint32_t index() const { return index_; }
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

  sdk::SockAddr address_;
  State state_ = State::kIdle;
  // Not found by address: the passive half of a connection to ourselves, a rival, or what a rival
  // has replaced.
  bool own_ = false;
  bool shares_name_ = false;  // with such
  bool blocked_ = false;      // in Core::blocked_
  bool flow_control_ = false;
  bool retry_ = false;   // in Core::retrying_
  bool unused_ = false;  // in Core::unused_
  // The end of an idle connection, agreed with a weft peer. Operations wait for what follows.
  bool asked_ = false;   // we asked for it
  bool agreed_ = false;  // the peer did, and we send nothing more
  uint8_t level_ = 0;    // of the peer's extensions
  uint32_t slot_ = 0, index_ = kNoIndex;
  uint32_t peer_slot_ = 0, peer_process_ = 0;
  Link *link_ = nullptr;
  TxOp *first_ = nullptr, *last_ = nullptr;  // not yet at the carrier
  Control *control_ = nullptr, *control_last_ = nullptr;
  size_t controls_ = 0;  // of it: queued, or at the carrier
  uint64_t owed_ = 0;    // bytes of results in them
  size_t segments_ = 0;  // at the carrier
  // What it made us keep.
  size_t kept_ = 0;       // messages
  size_t buffers_ = 0;    // that they are in
  uint64_t charged_ = 0;  // bytes of copies
  bool held_ = false;     // in Core::held_
  bool heard_ = false;    // something came
  List<TxOp, &TxOp::previous, &TxOp::following> in_flight_;
  using Messages = List<RxMessage, &RxMessage::previous, &RxMessage::following>;
  Messages messages_;    // rendezvous
  Messages unfinished_;  // in segments, the last of which has not come
  size_t unfinished_count_ = 0;
  Messages &list_of(const RxMessage &m) {
    return m.form == RxMessage::Form::kSegments ? unfinished_ : messages_;
  }
  size_t flights_ = 0;  // operations in in_flight_
  uint32_t attempts_ = 0;
  uint64_t started_at_ = 0, retry_at_ = 0;
  // Another process said that it is at this address. Whoever really is, is asked: by a connection
  // that we make.
  bool contested_ = false;  // in Core::contested_: shall be asked
  uint32_t contests_ = 0;
  uint64_t contest_at_ = 0;
  Connection *rival_ = nullptr;  // which asks; the rival's: what it may replace
  bool disputed_ = false;        // was a rival, until what it might have replaced ended
  // Our request, when the other one came; and it is accepted, until contest_at_ perhaps in vain.
  bool crossed_ = false, accepted_ = false;
  uint64_t credits_ = 1, reposted_ = 0, last_use_ = 0;
};

}  // namespace weft::rxm

#endif
