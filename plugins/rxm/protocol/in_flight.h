// SPDX-License-Identifier: BSD-2-Clause
// InFlight: the application's operations from take() to their end. An operation ends when the
// carrier has returned all tokens of it, and the peer has answered if it waits for that.
//
// Example:
//    // A packet of the operation is with the carrier, which returns its token.
//    inline void sent(InFlight &operations, Connection &c, TxOp &op) {
//      op.sent = true;
//      operations.depart(c, op);
//    }
//    // The peer has answered.
//    inline bool on_answer(InFlight &operations, Connection &c, uint64_t id) {
//      TxOp *const op = operations.awaited(c, id);
//      if (op != nullptr) operations.end(*op, 0);
//      return op != nullptr;
//    }
//
// It owns what a connection has in Connection::departed. Not for those that wait to be sent
// (outbox.h).
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_IN_FLIGHT_H
#define WEFT_PLUGINS_RXM_PROTOCOL_IN_FLIGHT_H

#include "plugins/rxm/protocol/connection.h"
#include "plugins/rxm/protocol/counters.h"
#include "plugins/rxm/protocol/offers.h"
#include "plugins/rxm/protocol/operation_table.h"
#include "plugins/rxm/protocol/sender.h"
#include "plugins/rxm/protocol/upper.h"

namespace weft::rxm {

class InFlight {
 public:
  // At most `most` operations.
  InFlight(size_t most, Sender &sender, Offers &offers, Upper &upper, Counters &counters)
      : sender_(sender), offers_(offers), upper_(upper), counters_(counters), table_(most) {}
  ~InFlight();
  InFlight(const InFlight &) = delete;
  InFlight &operator=(const InFlight &) = delete;

  // Null: there are `most`.
  TxOp *take() {
    TxOp *const op = table_.take();
    if (op == nullptr) counters_.tx_full.add_alone();
    return op;
  }
  void give(TxOp &op) { table_.give(op); }
  // fi_cancel of what has begun; false: there is none.
  bool cancel(const void *context) { return table_.cancel(context); }
  size_t size() const { return table_.in_use(); }

  // The carrier has a packet of it.
  void depart(Connection &c, TxOp &op) {
    if (op.counted) return;
    op.counted = true;
    ++c.departed.count_;
  }
  // The carrier has its packet, and the peer will answer.
  void await(Connection &c, TxOp &op) {
    depart(c, op);
    op.sent = op.answer = true;
    c.departed.awaited_.add(op);
  }
  // The one that the peer answers. Null: there is none with this id on this connection.
  TxOp *awaited(const Connection &c, uint64_t id) const {
    TxOp *const op = table_.find(id);
    return op != nullptr && op->answer && op->connection == &c ? op : nullptr;
  }

  // A token of it has come back.
  void on_sent(TxOp &op, int err) {
    --op.tokens;
    // The peer's word counts, which has come or is on its way, or the end of the connection.
    if (op.until != Tell::kNothing && !op.writing) return settle(op);
    if (err != 0 && op.answer) return end(op, err);
    if (err != 0 && op.err == 0) op.err = err;
    settle(op);
  }
  // The same of a segment.
  void on_segment_sent(TxOp &op, int err) {
    --op.tokens;
    if (err != 0 && op.err == 0 && op.until == Tell::kNothing) op.err = err;
    settle(op);
  }
  // Ends it, if nothing is outstanding any more.
  void settle(TxOp &op) {
    if (!op.sent || op.answer || op.tokens != 0 || op.queued) return;
    if (op.counted) {
      op.counted = false;
      Connection &c = *op.connection;
      // A fenced operation may wait for it.
      if (--c.departed.count_ == 0 && !c.peer().queue().empty()) sender_.block(c);
    }
    if (op.exposed != 0) offers_.conceal(op);
    if (op.err != 0) counters_.failed.add_alone();
    upper_.on_done(op, op.err);
    table_.give(op);
  }
  // Ends the protocol's part of it. It completes when the carrier has returned all tokens.
  void end(TxOp &op, int err);
  void end_all(OpQueue queue, int err);
  // The connection is over: what waits for an answer there. What the carrier has comes back.
  void end_awaited(Connection &c, int err);

 private:
  Sender &sender_;
  Offers &offers_;
  Upper &upper_;
  Counters &counters_;
  OperationTable table_;
};

}  // namespace weft::rxm

#endif
