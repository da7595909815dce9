// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/outbox.h"

#include <rdma/fi_errno.h>
#include <weft/sdk/memory/iov.h>

#include <algorithm>

namespace weft::rxm {

// Gives the carrier the packet of a message. `data`: of a bare message.
[[gnu::always_inline]] inline ssize_t Outbox::transmit_whole(Connection &c, TxOp &op,
                                                             std::span<const iovec> iov,
                                                             void *const *desc, size_t length,
                                                             std::optional<uint32_t> data) {
  const bool waits = op.until != Tell::kNothing;
  constexpr uint64_t kLevels = FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
  uint64_t flags = op.mark() | op.asked() | (op.flags & (waits ? FI_MORE : FI_MORE | kLevels));
  if (length <= parts_.settings.inject_limit) flags |= FI_INJECT;
  if (data) flags |= FI_REMOTE_CQ_DATA;
  Token *const token = op.inject ? nullptr : &op;
  if (token != nullptr) {
    flags |= FI_COMPLETION;
    ++op.tokens;
  }
  const ssize_t rc =
      parts_.sender.send(c, iov.data(), iov.size(), flags, token, desc, data.value_or(0));
  if (rc != 0) {
    if (token != nullptr) --op.tokens;
    return rc;
  }
  op.sent = true;
  if (waits) {
    parts_.in_flight.await(c, op);
  } else if (token != nullptr) {
    parts_.in_flight.depart(c, op);
  } else if (!op.queued) {  // it ends when the carrier has it
    parts_.in_flight.settle(op);
  }
  return 0;
}

// The remote data with which the message needs no header; nullopt: it needs one.
inline std::optional<uint32_t> Outbox::bare_data(const Connection &c, const TxOp &op) const {
  if (!c.takes_bare() || op.has_data || op.until != Tell::kNothing ||
      op.count > parts_.settings.iov_limit)
    return std::nullopt;
  return op.tagged ? c.composed.tags_.data_of(op.tag) : kBareUntagged;
}

// Sends a message of one packet.
[[gnu::always_inline]] inline ssize_t Outbox::transmit_eager(Connection &c, TxOp &op) {
  const std::optional<uint32_t> data = bare_data(c, op);
  if (!data) return transmit_with_header(c, op);
  const ssize_t rc = transmit_whole(c, op, {op.iov, op.count}, desc_of(op), op.length, data);
  if (rc == 0) parts_.counters.bare.add_alone();
  return rc;
}

ssize_t Outbox::transmit_with_header(Connection &c, TxOp &op) {
  const Settings &settings = parts_.settings;
  parts_.forms.suit(c, op);
  if (op.form == TxOp::Form::kRendezvous) {
    op.header.connection = c.peer_slot();
    return transmit_rendezvous(c, op);
  }
  Forms::make_header(op, PacketType::kEager);
  if (op.until != Tell::kNothing) op.header.message = OperationTable::id_of(op);
  op.header.connection = c.peer_slot();
  iovec iov[1 + sdk::kIovLimit];
  void *with_header[1 + sdk::kIovLimit];
  void *const *desc = nullptr;
  size_t count = 1;
  if (op.count == 1 && op.iov[0].iov_base == op.bytes) {
    iov[0] = {&op.header, kHeaderSize + size_t(op.length)};
  } else {
    iov[0] = {&op.header, kHeaderSize};
    if (op.length != 0) {
      if (op.count < settings.iov_limit) {
        for (size_t i = 0; i < op.count; ++i) iov[count++] = op.iov[i];
        if (settings.descriptors) {
          with_header[0] = nullptr;
          std::copy_n(op.desc, op.count, with_header + 1);
          desc = with_header;
        }
      } else {
        if (op.bounce == nullptr) {
          op.bounce = std::make_unique_for_overwrite<uint8_t[]>(op.length);
          if (!sdk::hmem_gather(settings.hmem, op.bounce.get(), op.iov, op.count, 0, op.length))
            return -FI_EIO;
        }
        iov[count++] = {op.bounce.get(), size_t(op.length)};
      }
    }
  }
  const bool learns = c.takes_bare() && op.tagged;
  const uint64_t tag = op.tag;
  const ssize_t rc =
      transmit_whole(c, op, {iov, count}, desc, kHeaderSize + op.length, std::nullopt);
  if (rc == 0 && learns) c.composed.tags_.learn(tag);  // the operation may have ended
  return rc;
}

[[gnu::always_inline]] inline ssize_t Outbox::transmit(Connection &c, TxOp &op) {
  parts_.sender.replies(c);
  if (op.fence && c.departed.count() != 0 && op.offset == 0) return -FI_EAGAIN;
  if (parts_.settings.max_connections != 0) parts_.idle_limit.touch(c);
  if (op.form == TxOp::Form::kEager) return transmit_eager(c, op);
  parts_.forms.suit(c, op);
  op.header.connection = c.peer_slot();
  switch (op.form) {
    case TxOp::Form::kEager:  // since suit()
      return transmit_with_header(c, op);
    case TxOp::Form::kSegments:
      return transmit_segments(c, op);
    case TxOp::Form::kRendezvous:
      return transmit_rendezvous(c, op);
    case TxOp::Form::kRead:
    case TxOp::Form::kWrite:
      return transmit_access(c, op);
    case TxOp::Form::kAtomic:
      return transmit_atomic(c, op);
  }
  return -FI_EINVAL;
}

ssize_t Outbox::send(Peer &p, TxOp &op) {
  Connection *const c = p.way_;
  if (c == nullptr || !p.queue_.empty()) return -FI_EAGAIN;
  op.connection = c;
  return transmit(*c, op);
}

void Outbox::enqueue(Peer &p, TxOp &op) {
  parts_.counters.queued.add_alone();
  const Connection *const c = p.main();
  if (c != nullptr && c->state() == State::kConnected && !c->sending.credits().has_room())
    parts_.counters.waited_for_credits.add_alone();
  if (op.inject && !(op.count == 1 && op.iov[0].iov_base == op.bytes)) {
    parts_.forms.own_data(op);
    op.inject = true;
  }
  p.queue_.push(op);
  parts_.upper.on_wait(op);
  if (p.way_ != nullptr) parts_.sender.block(*p.way_);
}

ssize_t Outbox::flush(Connection &c) {
  if (c.is_quiet()) return 0;  // the peer's first packet makes it go on
  if (!parts_.sender.tell_credits(c)) return -FI_EAGAIN;
  if (const ssize_t rc = parts_.answers.flush(c); rc != 0) return rc;
  const Peer &p = c.peer();
  OpQueue &queue = c.peer().queue_;
  while (p.way_ == &c && !queue.empty()) {
    TxOp &op = *queue.first();
    op.connection = &c;
    const ssize_t rc = transmit(c, op);
    if (rc == -FI_EAGAIN || is_link_error(rc)) return rc;
    // The operation may have ended already, but `next` stays valid until the pool hands it out
    // again.
    if (queue.first() != &op) return 0;
    queue.pop();
    if (rc != 0) {
      parts_.in_flight.end(op, int(-rc));
    } else {
      parts_.in_flight.settle(op);
    }
  }
  return 0;
}

OpQueue Outbox::take_failing(Peer &p) {
  for (TxOp *op = p.queue_.first(); op != nullptr; op = op->next)
    if (op->form == TxOp::Form::kRendezvous) parts_.offers.undescribe(*op);
  if (p.way_ != nullptr) return take_all(p);
  OpQueue begun;
  if (!p.queue_.empty() && p.queue_.first()->offset != 0) begun.push(p.queue_.pop());
  return begun;
}

}  // namespace weft::rxm
