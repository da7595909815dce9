// SPDX-License-Identifier: BSD-2-Clause
// What goes to the carrier, and what comes back from it.
#include <rdma/fi_errno.h>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

// An operation that did not leave at once, with this error.
int Core::start_later(Peer &p, TxOp &op, ssize_t rc) {
  if (rc != -FI_EAGAIN && !is_link_error(rc)) return int(rc);
  if (rc != -FI_EAGAIN) {
    // This operation is the first to find the link dead. Earlier operations are lost. This one is
    // queued for the next link, unless part of it was sent.
    ended(*op.connection, int(-rc));
    if (op.offset != 0) {
      in_flight_.end(op, int(-rc));
      return 0;
    }
  }
  outbox_.enqueue(p, op);
  demand(p);
  return 0;
}

// The peer of an operation, of which nothing is known yet. Null: nor is its address.
Peer *Core::meet(uint32_t index, const sdk::Address *address) {
  if (address == nullptr) return nullptr;
  Peer &p = peers_.get(*address);
  if (p.is_stranger()) rename(p, index);
  return &p;
}

void Core::resume() {
  sender_.resume([this](Connection &c) { return flush(c); });
}

// Sends what is queued. False: it has to wait.
bool Core::flush(Connection &c) {
  const ssize_t rc = outbox_.flush(c);
  if (rc == -FI_EAGAIN) return false;
  if (rc != 0) on_closed(c, int(-rc));
  return true;
}

void Core::on_sent(Token &token, int err) {
  switch (token.kind) {
    case Token::Kind::kOp:
      return in_flight_.on_sent(static_cast<TxOp &>(token), err);
    case Token::Kind::kSegment:
      return outbox_.on_sent(static_cast<Segment &>(token), err);
    case Token::Kind::kControl:
      return answers_.free(static_cast<Control &>(token));
    case Token::Kind::kMessage: {
      auto &m = static_cast<RxMessage &>(token);
      return proceed(m, fetches_.on_read(m, err));
    }
  }
}

// ---- answers ----

Control *Core::new_control(Connection &c, PacketType type, uint64_t id) {
  Control *const control = answers_.make(c, type, id);
  if (control == nullptr) fail_peer(c, "more requests than it takes answers for");
  return control;
}

void Core::queue_control(Connection &c, Control &control) {
  const int rc = answers_.queue(c, control);
  if (rc == Answers::kTooMuch) return fail_peer(c, "more atomics than it takes results for");
  if (rc != 0) on_closed(c, rc);
}

void Core::answer(Connection &c, PacketType type, uint64_t id) {
  if (Control *control = new_control(c, type, id)) queue_control(c, *control);
}

void Core::on_reposted(Connection &c, uint32_t count) {
  sender_.repost(c, count);
  if (c.state_ == State::kConnected && !sender_.tell_credits(c)) sender_.block(c);
}

}  // namespace weft::rxm
