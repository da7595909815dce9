// SPDX-License-Identifier: BSD-2-Clause
// Outbox: operations that leave, or wait to: for a connection, for room at the carrier, or for
// credits. It turns them into packets and calls of the carrier.
//
// Example:
//    // 0, or the error with which the operation was not sent.
//    inline ssize_t start(Outbox &outbox, Peer &peer, TxOp &op) {
//      const ssize_t rc = outbox.send(peer, op);
//      if (rc != -FI_EAGAIN) return rc;
//      outbox.enqueue(peer, op);  // it leaves by flush()
//      return 0;
//    }
//
// It owns the queues of peers, segments, and what a connection has in Connection::composed. Not for
// operations that have left: in_flight.h. What a small message passes is in outbox.cc and in
// headers, so that the compiler sees it as a whole.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_OUTBOX_H
#define WEFT_PLUGINS_RXM_PROTOCOL_OUTBOX_H

#include <weft/sdk/memory/pool.h>

#include <optional>
#include <span>

#include "plugins/rxm/protocol/answers.h"
#include "plugins/rxm/protocol/carrier.h"
#include "plugins/rxm/protocol/counters.h"
#include "plugins/rxm/protocol/forms.h"
#include "plugins/rxm/protocol/idle_limit.h"
#include "plugins/rxm/protocol/in_flight.h"
#include "plugins/rxm/protocol/offers.h"
#include "plugins/rxm/protocol/sender.h"
#include "plugins/rxm/protocol/settings.h"
#include "plugins/rxm/protocol/upper.h"

namespace weft::rxm {

class Outbox {
 public:
  // What it is made over.
  struct Parts {
    Carrier &carrier;
    Upper &upper;
    const Settings &settings;
    Counters &counters;
    const Forms &forms;
    IdleLimit &idle_limit;
    Sender &sender;
    Answers &answers;
    Offers &offers;
    InFlight &in_flight;
  };

  explicit Outbox(const Parts &parts) : parts_(parts) {}
  Outbox(const Outbox &) = delete;
  Outbox &operator=(const Outbox &) = delete;

  // ---- operations ----
  // Sends it at once. -FI_EAGAIN: it has to wait; is_link_error(): the connection, op.connection,
  // is dead. With any error it is still the caller's, and op.offset says whether a part has left.
  ssize_t send(Peer &p, TxOp &op);
  // It waits behind those of the peer that wait already.
  void enqueue(Peer &p, TxOp &op);
  // Sends what waits: credits, answers, operations. 0: there is nothing left, or it does not leave
  // by this connection; -FI_EAGAIN: there is no room; another error: the connection has failed.
  ssize_t flush(Connection &c);
  // All that waits, to be ended.
  OpQueue take_all(Peer &p) { return std::exchange(p.queue_, {}); }
  // Those that fail with the connection that counts: all, if they leave by it now; else one of
  // which a part was sent. What stays goes by another.
  OpQueue take_failing(Peer &p);
  // The carrier has sent it.
  void on_sent(Segment &segment, int err);

 private:
  ssize_t transmit(Connection &c, TxOp &op);
  ssize_t transmit_eager(Connection &c, TxOp &op);
  ssize_t transmit_with_header(Connection &c, TxOp &op);
  std::optional<uint32_t> bare_data(const Connection &c, const TxOp &op) const;
  ssize_t transmit_whole(Connection &c, TxOp &op, std::span<const iovec> iov, void *const *desc,
                         size_t length, std::optional<uint32_t> data);
  // outbox_forms.cc
  ssize_t transmit_segments(Connection &c, TxOp &op);
  ssize_t transmit_segment(Connection &c, TxOp &op, size_t n);
  ssize_t transmit_rendezvous(Connection &c, TxOp &op);
  ssize_t transmit_access(Connection &c, TxOp &op);
  ssize_t transmit_atomic(Connection &c, TxOp &op);
  void free(Segment &segment);
  void *const *desc_of(const TxOp &op) const { return op.descriptors(parts_.settings.descriptors); }

  const Parts parts_;
  sdk::Pool<Segment> segments_{SIZE_MAX};
};

}  // namespace weft::rxm

#endif
