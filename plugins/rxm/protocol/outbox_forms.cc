// SPDX-License-Identifier: BSD-2-Clause
// Outbox: operations that are not a message of one packet.
#include <rdma/fi_errno.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/transfers/atomic.h>
#include <weft/sdk/transfers/levels.h>

#include <algorithm>

#include "plugins/rxm/protocol/outbox.h"

namespace weft::rxm {

// ---- segments ----

ssize_t Outbox::transmit_segments(Connection &c, TxOp &op) {
  while (op.offset < op.length) {
    const auto n = size_t(std::min<uint64_t>(op.length - op.offset, parts_.settings.eager_limit));
    // A message of which a segment was sent cannot be taken back: any error but -FI_EAGAIN ends the
    // connection.
    if (const ssize_t rc = transmit_segment(c, op, n); rc != 0)
      return op.offset == 0 || rc == -FI_EAGAIN ? rc : -FI_ECONNABORTED;
    parts_.in_flight.depart(c, op);
    op.offset += n;
  }
  op.sent = true;
  if (op.until != Tell::kNothing) parts_.in_flight.await(c, op);
  parts_.counters.segmented.add_alone();
  return 0;
}

// The next `n` bytes.
ssize_t Outbox::transmit_segment(Connection &c, TxOp &op, size_t n) {
  const Settings &settings = parts_.settings;
  Segment *const s = c.composed.segments_ < settings.max_segments ? segments_.take() : nullptr;
  if (s == nullptr) return -FI_EAGAIN;
  const bool last = op.offset + n == op.length;
  s->kind = Token::Kind::kSegment;
  s->op = &op;
  ++c.composed.segments_;
  s->header = op.header;
  s->header.segment_size = uint16_t(n);
  s->header.segment_number = uint32_t(op.offset / settings.eager_limit);
  s->header.control_data = uint64_t(op.offset == 0 ? SegmentKind::kFirst
                                    : last         ? SegmentKind::kLast
                                                   : SegmentKind::kMiddle);
  iovec iov[1 + sdk::kIovLimit] = {{&s->header, kHeaderSize}};
  void *desc[1 + sdk::kIovLimit] = {};
  size_t count = 1 + sdk::slice(op.iov, desc_of(op), op.count, op.offset, n, iov + 1, desc + 1);
  if (count > settings.iov_limit) {
    s->copy = std::make_unique_for_overwrite<uint8_t[]>(n);
    if (!sdk::hmem_gather(settings.hmem, s->copy.get(), op.iov, op.count, op.offset, n)) {
      free(*s);
      return -FI_EIO;
    }
    iov[1] = {s->copy.get(), n};
    desc[1] = nullptr;
    count = 2;
  }
  ++op.tokens;
  const uint64_t level = op.until == Tell::kNothing ? op.flags & FI_TRANSMIT_COMPLETE : 0;
  const uint64_t more = last ? op.mark() | op.asked() | (op.flags & FI_MORE) : FI_MORE;
  const ssize_t rc = parts_.sender.send(c, iov, count, FI_COMPLETION | level | more, s, desc);
  if (rc != 0) {
    --op.tokens;
    free(*s);
  }
  return rc;
}

void Outbox::free(Segment &s) {
  s.copy.reset();
  --s.op->connection->composed.segments_;
  segments_.give(&s);
}

void Outbox::on_sent(Segment &s, int err) {
  TxOp &op = *s.op;
  free(s);
  parts_.in_flight.on_segment_sent(op, err);
}

// ---- packets that the peer answers ----

ssize_t Outbox::transmit_rendezvous(Connection &c, TxOp &op) {
  if (const ssize_t rc = parts_.offers.describe(c, op); rc != 0) return rc;
  const iovec iov{&op.header, kHeaderSize + kVectorListSize};
  const uint64_t flags = op.asked() | (op.flags & FI_MORE) | FI_COMPLETION;
  ++op.tokens;
  if (const ssize_t rc = parts_.sender.send(c, &iov, 1, flags, &op); rc != 0) {
    --op.tokens;
    if (rc != -FI_EAGAIN) parts_.offers.undescribe(op);
    return rc;
  }
  parts_.counters.rendezvous.add_alone();
  parts_.in_flight.await(c, op);
  return 0;
}

ssize_t Outbox::transmit_atomic(Connection &c, TxOp &op) {
  if (c.level() == 0 &&
      (op.flags & FI_COMMIT_COMPLETE ||
       !sdk::stock_executes(op.header.atomic.operation, op.header.atomic.datatype)))
    return -FI_EOPNOTSUPP;
  const size_t operands = size_t(op.header.size) - kAtomicVectorsSize;
  iovec iov[2] = {{&op.header, kHeaderSize + kAtomicVectorsSize}, {op.bounce.get(), operands}};
  if (op.bounce == nullptr) iov[0].iov_len += operands;
  const uint64_t flags = op.asked() | (op.flags & FI_MORE) | FI_COMPLETION;
  const size_t count = op.bounce == nullptr ? 1 : 2;
  ++op.tokens;
  if (const ssize_t rc = parts_.sender.send(c, iov, count, flags, &op); rc != 0) {
    --op.tokens;
    return rc;
  }
  parts_.in_flight.await(c, op);
  return 0;
}

// ---- remote memory access: the carrier does it ----

ssize_t Outbox::transmit_access(Connection &c, TxOp &op) {
  const bool write = op.form == TxOp::Form::kWrite;
  uint64_t flags = op.asked() | (op.flags & (FI_MORE | FI_REMOTE_CQ_DATA | sdk::kRmaRemoteLevels));
  if (write) flags |= FI_RMA;
  if (op.inject) flags |= FI_INJECT;
  const bool takes_receive = write && op.flags & FI_REMOTE_CQ_DATA;
  if (takes_receive && !c.sending.credits().has_room()) return -FI_EAGAIN;
  Token *const token = op.inject ? nullptr : &op;
  if (token != nullptr) {
    flags |= FI_COMPLETION;
    ++op.tokens;
  }
  Carrier &carrier = parts_.carrier;
  const ssize_t rc = write ? carrier.write(*c.link(), op.iov, desc_of(op), op.count, op.vectors,
                                           op.vector_count, op.data, flags, token)
                           : carrier.read(*c.link(), op.iov, desc_of(op), op.count, op.vectors,
                                          op.vector_count, flags, token);
  if (rc != 0) {
    if (token != nullptr) --op.tokens;
    return rc;
  }
  if (takes_receive) parts_.sender.spend(c);
  if (token != nullptr) parts_.in_flight.depart(c, op);
  op.sent = true;
  if (token == nullptr && !op.queued) parts_.in_flight.settle(op);
  return 0;
}

}  // namespace weft::rxm
