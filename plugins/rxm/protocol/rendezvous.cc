// SPDX-License-Identifier: BSD-2-Clause
// Rendezvous: the sender announces a large message. The receiver reads it from the sender's memory,
// or names its own memory and the sender writes it (Settings::rendezvous_write).
#include <rdma/fi_errno.h>

#include <algorithm>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

// ---- sender ----

void Core::take_read_done(Connection &c, const Packet &p) {
  TxOp *op = in_flight_.awaited(c, p.message);
  if (op == nullptr || (op->form != TxOp::Form::kRendezvous && op->until == Tell::kNothing))
    return fail_peer(c, "word of a message that waits for none");
  in_flight_.end(*op, 0);
}

void Core::take_target(Connection &c, const Packet &p) {
  TxOp *op = in_flight_.awaited(c, p.message);
  if (op == nullptr || !Offers::may_write(*op))
    return fail_peer(c, "a target for a rendezvous that does not exist");
  offers_.aim(*op, {p.vectors, p.count});
  write(c, *op);
}

// Writes the message to the memory that the receiver named, then sends kWriteDone, which the
// receiver answers where the operation waits for that.
void Core::write(Connection &c, TxOp &op) {
  const ssize_t rc = offers_.write(c, op);
  if (rc == -FI_EAGAIN) return;
  if (rc != 0) return on_closed(c, int(-rc));
  const bool waits = Offers::waits(c, op);
  const uint64_t id = OperationTable::id_of(op);
  if (!waits) in_flight_.end(op, 0);
  if (Control *const control = new_control(c, PacketType::kWriteDone, id)) {
    if (waits) control->header.flags = kFlagTellDelivered;
    queue_control(c, *control);
  }
}

void Core::resume_writes() {
  offers_.resume([this](TxOp &op) { write(*op.connection, op); });
}

// ---- receiver ----

bool Core::take_rendezvous(Connection &c, const Packet &p, Buffer &buffer) {
  const sdk::Message message = message_of(c, p);
  RxMessage *m = new_message(c, RxMessage::Form::kRendezvous, message);
  if (m == nullptr) return false;
  counters_.rendezvous_taken.add_alone();
  m->id = p.message;
  m->count = p.count;
  std::copy_n(p.vectors, p.count, m->vectors);
  m->receive = upper_.receiver().match(message);
  if (m->receive != nullptr) {
    fetch(*m);
    return false;
  }
  const bool kept = inbox_.keep(c, *m, {}, buffer);
  inbox_.save(*m);
  return kept;
}

// Gets the bytes of a matched rendezvous: reads them, or tells the sender where to write them.
void Core::fetch(RxMessage &m) {
  if (!fetches_.is_written(m)) return proceed(m, fetches_.read(m));
  Fetches::Target target;
  if (const int err = fetches_.expose(m, target); err != 0) return ended(*m.connection, err);
  Connection &c = *m.connection;
  Control *control = new_control(c, PacketType::kWriteTarget, m.id);
  if (control == nullptr) return;  // the connection and this message have ended
  encode_vectors({target.vectors, target.count}, control->wire);
  control->length += kVectorListSize;
  queue_control(c, *control);
}

void Core::proceed(RxMessage &m, const Fetches::Outcome &outcome) {
  switch (outcome.step) {
    case Fetches::Step::kWaits:
      return;
    case Fetches::Step::kAll:
      return fetched(m);
    case Fetches::Step::kLost:
      return ended(*m.connection, outcome.err);
    case Fetches::Step::kOver:
      return say(inbox_.finish(m, m.err));
    case Fetches::Step::kPeekOver:
      return inbox_.lose(m, m.err);
  }
}

// The first bytes, of which the application is told before the message has a receive. The message
// stays as it was.
int Core::peek(RxMessage &m, void *to, size_t n) {
  if (m.peeked) return -m.err;
  if (!fetches_.begin_peek(m, to, n)) return -FI_ENOMEM;
  fetch(m);  // may end here, and with it the message
  return -FI_EAGAIN;
}

void Core::fetched(RxMessage &m) {
  if (m.peeks) {
    fetches_.end_peek(m);
    m.peeked = true;
    m.failed = false;
    return upper_.receiver().on_more(m);
  }
  Connection &c = *m.connection;
  const uint64_t id = m.id;
  end_fetch(m);
  answer(c, PacketType::kReadDone, id);
}

// All of the message has come, or its receive has failed.
void Core::end_fetch(RxMessage &m) {
  if (m.failed) m.received = 0;
  say(inbox_.finish(m, m.failed ? m.err : 0));
}

void Core::take_write_done(Connection &c, const Packet &p) {
  RxMessage *const m = Inbox::written(c, p.message);
  if (m == nullptr) return fail_peer(c, "the end of a write that we did not request");
  end_fetch(*m);
  if (asked_of(c, p) != Tell::kNothing) tell(&c, p.message);
}

}  // namespace weft::rxm
