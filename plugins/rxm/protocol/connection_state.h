// SPDX-License-Identifier: BSD-2-Clause
// What single parts of the protocol keep of a connection. Each has one owner, which alone changes
// it; the others ask.
//
// Example:
//    #include "plugins/rxm/protocol/connection.h"
//    inline bool may_wait(const Connection &c) { return c.sending.credits().has_room(); }
//
// Not for what the Core itself knows of a connection: connection.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_CONNECTION_STATE_H
#define WEFT_PLUGINS_RXM_PROTOCOL_CONNECTION_STATE_H

#include <weft/sdk/progress/replies.h>

#include "plugins/rxm/protocol/credits.h"
#include "plugins/rxm/protocol/operations.h"
#include "plugins/rxm/wire/bare.h"

namespace weft::rxm {

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

// Of the Sender: whether there is room for a packet.
class Sending {
 public:
  const Credits &credits() const { return credits_; }

 private:
  friend class Sender;
  Credits credits_;
  sdk::Replies replies_;  // to what the peer is told of its messages
  bool blocked_ = false;  // in Sender::blocked_
};

// Of Answers: what the peer is to be told.
class AnswerQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  uint32_t count() const { return count_; }  // queued or at the carrier

 private:
  friend class Answers;
  Control *first_ = nullptr, *last_ = nullptr;  // queued
  uint32_t count_ = 0;
  uint64_t owed_ = 0;  // bytes of atomics' results in them
};

// Of InFlight: operations that have left.
class Departed {
 public:
  size_t count() const { return count_; }  // at the carrier, or waiting for an answer
  const TxOp *first_awaited() const { return awaited_.first; }

 private:
  friend class InFlight;
  size_t count_ = 0;
  List<TxOp, &TxOp::previous, &TxOp::following> awaited_;  // that wait for an answer
};

// Of the Outbox: what decides how messages are sent.
class Composed {
 private:
  friend class Outbox;
  BareTags tags_;          // of messages that the peer has got
  uint32_t segments_ = 0;  // at the carrier
};

// Of the Inbox: messages of which something is yet to come, or to be told.
class Arriving {
 public:
  bool has_rendezvous() const { return rendezvous_.first != nullptr; }
  bool has_unfinished() const { return unfinished_.first != nullptr; }
  bool has_matchless() const { return matchless_.first != nullptr; }
  bool empty() const { return !has_rendezvous() && !has_unfinished() && !has_matchless(); }
  // Whether the carrier reads the bytes of one.
  bool is_read() const {
    const RxMessage *m = rendezvous_.first;
    while (m != nullptr && m->tokens == 0) m = m->following;
    return m != nullptr;
  }

 private:
  friend class Inbox;
  using Messages = List<RxMessage, &RxMessage::previous, &RxMessage::following>;
  Messages &list_of(const RxMessage &m) {
    return m.form == RxMessage::Form::kWhole      ? matchless_
           : m.form == RxMessage::Form::kSegments ? unfinished_
                                                  : rendezvous_;
  }
  Messages rendezvous_;
  Messages unfinished_;  // in segments, before the last one
  Messages matchless_;   // complete; their sender waits until they meet their receives
  uint32_t unfinished_count_ = 0;
};

// Of IdleLimit: when it was used, and whether it is about to end by agreement with a weft peer.
class Idleness {
 public:
  uint64_t last_use() const { return last_use_; }  // grows with each use of any connection
  bool has_asked() const { return asked_; }        // we asked the peer to part
  bool has_agreed() const { return agreed_; }      // we agreed to part, and send nothing more
  bool leaves() const { return asked_ || agreed_; }

 private:
  friend class IdleLimit;
  uint64_t last_use_ = 0;
  bool asked_ = false, agreed_ = false;
};

// Of StrangerLimit: what its last looks have found.
class Silence {
 private:
  friend class StrangerLimit;
  uint64_t seen_use_ = UINT64_MAX;  // Idleness::last_use() at the last look
  uint8_t looks_ = 0;               // in a row that have found nothing new
};

}  // namespace weft::rxm

#endif
