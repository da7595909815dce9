// SPDX-License-Identifier: BSD-2-Clause
// Rendezvous: the sender announces a large message. The receiver reads it from the sender's memory,
// or names its own memory and the sender writes it (Settings::rendezvous_write).
#include <rdma/fi_errno.h>
#include <weft/sdk/iov.h>

#include <algorithm>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

using sdk::slice;

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

// Writes the message to the memory that the receiver named, then sends kWriteDone, which the receiver
// answers where the operation waits for that.
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
  counters_.saved.add_alone();
  const bool kept = keep(c, *m, {}, buffer);
  upper_.receiver().save(*m);
  return kept;
}

// Gets the bytes of a matched rendezvous: reads them, or tells the sender where to write them.
void Core::fetch(RxMessage &m) {
  Connection &c = *m.connection;
  const sdk::Receive &r = *m.receive;
  const uint64_t want = std::min<uint64_t>(m.message.length, r.length);
  if (settings_.rendezvous_write && want != 0) {
    RmaVector vectors[kMaxVectors];
    size_t count = 0;
    for (size_t i = 0; i < r.count; ++i) {
      if (r.iov[i].iov_len == 0) continue;
      int err = 0;
      Registration *registration =
          carrier_.expose(*c.link_, r.iov[i], FI_REMOTE_WRITE, vectors[count], err);
      if (registration == nullptr) {
        if (c.level_ == 0) return lose_peer(m, err);
        // A weft peer writes nothing, and says so: only this receive has failed.
        while (m.exposed != 0) carrier_.conceal(*m.registrations[--m.exposed]);
        m.failed = true;
        m.err = err;
        vectors[0] = {0, 0, kInvalidKey};
        count = 1;
        break;
      }
      m.registrations[m.exposed++] = registration;
      vectors[count++].length = r.iov[i].iov_len;
    }
    m.received = want;
    Control *control = new_control(c, PacketType::kWriteTarget, m.id);
    if (control == nullptr) return;  // the connection and this message have ended
    encode_vectors({vectors, count}, control->wire);
    control->length += kVectorListSize;
    return queue_control(c, *control);
  }
  while (m.received < want) {
    const RmaVector &vector = m.vectors[m.next_vector];
    const uint64_t n = std::min<uint64_t>(vector.length, want - m.received);
    if (n != 0) {
      iovec iov[sdk::kIovLimit];
      void *desc[sdk::kIovLimit];
      const size_t count = slice(r.iov, r.desc(), r.count, m.received, n, iov, desc);
      for (size_t i = 0; i < count; ++i)
        if (desc[i] != nullptr) desc[i] = carrier_.inner_descriptor(desc[i]);
      const RmaVector from{vector.address, n, vector.key};
      ssize_t rc = -FI_EAGAIN;
      ++m.tokens;
      if (c.state_ == State::kConnected)
        rc = carrier_.read(*c.link_, iov, desc, count, &from, 1, FI_COMPLETION, &m);
      if (rc != 0) --m.tokens;
      if (rc == -FI_EAGAIN) {
        m.waits = true;
        fetching_.push_back(&m);
        return;
      }
      if (is_link_error(rc)) return lose_peer(m, int(-rc));
      if (rc != 0) {  // of this receive only: no memory, or it cannot be registered
        m.failed = true;
        if (m.err == 0) m.err = int(-rc);
        m.received = want;
        break;
      }
      m.received += n;
    }
    ++m.next_vector;
  }
  if (m.tokens == 0) fetched(m);
}

// The first bytes, of which the application is told before the message has a receive. The message
// stays as it was.
int Core::peek(RxMessage &m, void *to, size_t n) {
  if (m.peeked) return -m.err;
  sdk::Receive *const r = firsts_.take();
  if (r == nullptr) return -FI_ENOMEM;
  r->iov[0] = {to, n};
  r->count = 1;
  r->length = n;
  m.receive = r;
  m.peeks = true;
  fetch(m);  // may end here, and with it the message
  return -FI_EAGAIN;
}

void Core::end_peek(RxMessage &m) {
  firsts_.give(std::exchange(m.receive, nullptr));
  if (std::exchange(m.waits, false)) std::erase(fetching_, &m);
  m.peeks = false;
  m.received = 0;
  m.next_vector = 0;
}

void Core::resume_fetches() {
  // Try each entry once. A connection that ends meanwhile removes its entries.
  for (size_t turns = fetching_.size(); turns != 0 && !fetching_.empty(); --turns) {
    RxMessage *m = fetching_.front();
    fetching_.erase(fetching_.begin());
    m->waits = false;
    fetch(*m);
  }
}

void Core::on_read(RxMessage &m, int err) {
  --m.tokens;
  if (err != 0 && m.err == 0) m.err = err;
  if (m.tokens != 0) return;
  const uint64_t want = std::min<uint64_t>(m.message.length, m.receive->length);
  if (m.over && m.peeks) {
    m.over = false;
    return lose(m, m.err);
  }
  if (m.over) {
    m.received = 0;
    return finish(m, m.err);
  }
  if (m.err != 0 && !m.failed) return lose_peer(m, m.err);
  if (m.received == want && !m.waits) fetched(m);
}

void Core::fetched(RxMessage &m) {
  if (m.peeks) {
    end_peek(m);
    m.peeked = true;
    m.failed = false;
    return upper_.receiver().on_more(m);
  }
  Connection &c = *m.connection;
  const uint64_t id = m.id;
  if (m.failed) m.received = 0;
  finish(m, m.failed ? m.err : 0);
  answer(c, PacketType::kReadDone, id);
}

void Core::take_write_done(Connection &c, const Packet &p) {
  for (RxMessage *m = c.messages_.first; m != nullptr; m = m->following) {
    // Only a message for which we named a target: others are still being read into.
    if (m->id != p.message || (m->exposed == 0 && !m->failed)) continue;
    if (m->failed) m->received = 0;
    finish(*m, m->failed ? m->err : 0);
    if (asked_of(c, p) != Tell::kNothing) tell(&c, p.message);
    return;
  }
  fail_peer(c, "the end of a write that we did not request");
}

// The bytes cannot be fetched. Only the end of the connection tells the sender.
void Core::lose_peer(RxMessage &m, int err) {
  ended(*m.connection, err);
}

}  // namespace weft::rxm
