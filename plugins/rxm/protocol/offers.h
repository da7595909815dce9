// SPDX-License-Identifier: BSD-2-Clause
// Offers: the sender's side of large messages. Their memory is exposed to the peer, which reads it;
// or the peer names its own, and they are written there (Settings::rendezvous_write).
//
// Example:
//    // What the peer has named for the message. 0: all of it is on its way; -FI_EAGAIN: resume()
//    // goes on; another error: the connection has failed.
//    inline ssize_t take(Offers &offers, Connection &c, TxOp &op, std::span<const RmaVector> target) {
//      if (!Offers::may_write(op)) return -FI_EPROTO;
//      offers.aim(op, target);
//      return offers.write(c, op);
//    }
//
// It owns the registrations of operations, and those whose writes wait for room. Not for the
// packets that announce them, nor for what the receiver does (fetches.h).
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_OFFERS_H
#define WEFT_PLUGINS_RXM_PROTOCOL_OFFERS_H

#include <algorithm>
#include <span>
#include <vector>

#include "plugins/rxm/protocol/carrier.h"
#include "plugins/rxm/protocol/connection.h"
#include "plugins/rxm/protocol/operations.h"
#include "plugins/rxm/protocol/settings.h"

namespace weft::rxm {

class Offers {
 public:
  Offers(Carrier &carrier, const Settings &settings) : carrier_(carrier), settings_(settings) {}
  Offers(const Offers &) = delete;
  Offers &operator=(const Offers &) = delete;

  // ---- memory ----
  // Exposes the memory of the message to the peer and writes the vectors behind its header. 0, or
  // -FI_E.... Nothing, if it has been done.
  ssize_t describe(const Connection &c, TxOp &op);
  // The registrations are valid for one link. A new link needs new ones.
  void undescribe(TxOp &op) {
    conceal(op);
    op.vector_count = 0;
  }
  void conceal(TxOp &op);

  // ---- writes to the memory that the peer has named ----
  static bool may_write(const TxOp &op) {
    return op.form == TxOp::Form::kRendezvous && !op.writing;
  }
  // Whether the peer has to tell of the end before the operation ends.
  static bool waits(const Connection &c, const TxOp &op) {
    return op.until != Tell::kNothing && c.level() >= kLevelOfTelling;
  }
  void aim(TxOp &op, std::span<const RmaVector> target);
  // 0: the carrier has all of it; -FI_EAGAIN: resume() will bring it again; another error: the
  // connection has failed.
  ssize_t write(const Connection &c, TxOp &op);
  bool has_waiting() const { return !waiting_.empty(); }
  // Calls `write` for each that waits, once. Those of a connection that ends meanwhile go.
  template <class F>
  void resume(F write) {
    for (size_t turns = waiting_.size(); turns != 0 && !waiting_.empty(); --turns) {
      TxOp *const op = waiting_.front();
      waiting_.erase(waiting_.begin());
      write(*op);
    }
  }
  // The operation ends.
  void forget(TxOp &op) {
    if (op.writing) std::erase(waiting_, &op);
  }

 private:
  Carrier &carrier_;
  const Settings &settings_;
  std::vector<TxOp *> waiting_;
};

}  // namespace weft::rxm

#endif
