// SPDX-License-Identifier: BSD-2-Clause
// Operations: those that the application has started toward one peer, in order, from start to end:
// which have not begun, which may send more, which wait for an answer, which are over. It takes the
// peer's answers, and keeps the credit that the peer has granted.
//
// Example:
//    // The first operation that has not begun is in a packet, with all its bytes.
//    inline void begin(Operations &operations, OutPacket &p) {
//      TxOp &op = *operations.unsent();
//      op.id = operations.next_id();
//      op.sent = op.allowed = op.length;
//      operations.begin(p);
//    }
//    // The packet has arrived. What is over by that is reported.
//    inline void arrived(Operations &operations, OutPacket &p) {
//      operations.release(p);
//      operations.end_settled();
//    }
//
// Not for their frames (outbox.h).
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_OPERATIONS_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_OPERATIONS_H

#include <cstdint>
#include <span>

#include "plugins/rxd/protocol/conversation.h"
#include "plugins/rxd/protocol/weft/credit.h"
#include "plugins/rxd/protocol/weft/link.h"

namespace weft::rxd {

class Operations {
 public:
  Operations(Link &link, const Credit &credit) : link_(link), credit_(credit) {}
  Operations(const Operations &) = delete;
  Operations &operator=(const Operations &) = delete;

  Credit &credit() { return credit_; }
  bool empty() const { return first_ == nullptr; }
  // Whether some have begun and are not over.
  bool waits() const { return first_ != nullptr && first_ != unsent_; }

  // ---- those that have not begun ----
  void add(TxOp &op);
  TxOp *unsent() const { return unsent_; }  // the first one
  // Whether it may begin, apart from credit.
  bool may_begin(const TxOp &op) const {
    return (!op.fence || &op == first_) &&
           (op.kind == TxOp::Kind::kMessage || unanswered_ < kMaxUnanswered);
  }
  uint32_t next_id() const { return next_id_; }
  // unsent() begins in the packet.
  void begin(OutPacket &p);
  // It cannot begin, nor can anything be done about it: it ends with FI_E...
  void fail(TxOp &op, uint16_t status);

  // ---- those that may send more ----
  TxOp *ready() const { return ready_; }
  void make_ready(TxOp &op);
  // ready() has put bytes into a packet: it is another one's turn.
  void took_turn();

  // ---- answers; false: the conversation is over ----
  bool take(const wire::PullFrame &f);
  bool take(const wire::DoneFrame &f);
  bool take(const wire::ResultFrame &f, std::span<const uint8_t> payload);
  bool take(const wire::DataFrame &f, std::span<const uint8_t> payload);  // of a read
  void finish(TxOp &read);  // all data of a read have come

  // ---- the end of operations; end_settled() reports those that are over ----
  // The packet has arrived: one less is under way for each operation in it.
  void release(OutPacket &p);
  // The packet has left: ends operations whose bytes were copied into it, unless they end by an
  // acknowledgement or by `done`.
  void release_copied(OutPacket &p);
  void end_settled();
  void end_copies();
  // As in Conversation::end().
  void end(int err, Conversation::Queue *unsent);

  // How much of an operation the peer is known to take. It asks for a message when it has a
  // receive.
  static uint64_t wanted(const TxOp &op) {
    return op.kind == TxOp::Kind::kMessage && op.allowed <= kPrefix ? op.allowed : op.length;
  }

 private:
  // Limit of our remote accesses that the peer has not answered. It is below what the peer owes at
  // most (Answers), so that two sides that access each other's memory cannot wait for each other
  // for ever.
  static constexpr uint32_t kMaxUnanswered = 256;

  TxOp *find(uint32_t id) const {
    for (TxOp *op = first_; op != nullptr && op != unsent_; op = op->next)
      if (op->id == id) return op;
    return nullptr;
  }
  // An answer to an operation that is not there: it is over, or was never sent.
  bool missed(uint32_t id, const char *what) {
    return int32_t(id - next_id_) < 0 || link_.violated(what);
  }
  void settle(TxOp &op);
  void not_ready(TxOp &op);
  void land(TxOp &op, uint64_t offset, std::span<const uint8_t> payload);

  Link &link_;
  Credit credit_;
  // In order: those that have begun, then from unsent_ on those that have not.
  TxOp *first_ = nullptr, *last_ = nullptr, *unsent_ = nullptr;
  TxOp *ready_ = nullptr, *ready_last_ = nullptr;      // by TxOp::ready
  TxOp *settled_ = nullptr, *settled_last_ = nullptr;  // to be reported
  uint32_t next_id_ = 0;
  uint32_t unanswered_ = 0;  // remote accesses
};

}  // namespace weft::rxd

#endif
