// SPDX-License-Identifier: BSD-2-Clause
// Segmented messages: messages of several packets, in both directions.
#include <rdma/fi_errno.h>
#include <weft/sdk/iov.h>

#include <algorithm>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

using sdk::slice;

namespace {

constexpr size_t kMaxUnfinished = 64;  // segmented messages arriving at once on one connection

}  // namespace

ssize_t Core::transmit_segments(Connection &c, TxOp &op) {
  const uint64_t level = op.until == Tell::kNothing ? op.flags & FI_TRANSMIT_COMPLETE : 0;
  while (op.offset < op.length) {
    Segment *s = c.segments_ < settings_.max_segments ? segments_.take() : nullptr;
    ssize_t rc = -FI_EAGAIN;
    const auto n = size_t(std::min<uint64_t>(op.length - op.offset, settings_.eager_limit));
    const bool last = op.offset + n == op.length;
    if (s != nullptr) {
      s->kind = Token::Kind::kSegment;
      s->op = &op;
      ++c.segments_;
      s->header = op.header;
      s->header.segment_size = uint16_t(n);
      s->header.segment_number = uint32_t(op.offset / settings_.eager_limit);
      s->header.control_data = uint64_t(op.offset == 0 ? SegmentKind::kFirst
                                        : last         ? SegmentKind::kLast
                                                       : SegmentKind::kMiddle);
      iovec iov[1 + sdk::kIovLimit] = {{&s->header, kHeaderSize}};
      void *desc[1 + sdk::kIovLimit] = {};
      size_t count = 1 + slice(op.iov, desc_of(op), op.count, op.offset, n, iov + 1, desc + 1);
      if (count > settings_.iov_limit) {
        s->copy = std::make_unique_for_overwrite<uint8_t[]>(n);
        if (!sdk::hmem_gather(settings_.hmem, s->copy.get(), op.iov, op.count, op.offset, n))
          return -FI_EIO;
        iov[1] = {s->copy.get(), n};
        desc[1] = nullptr;
        count = 2;
      }
      ++op.tokens;
      const uint64_t more = last ? op.mark() | op.asked() | (op.flags & FI_MORE) : FI_MORE;
      rc = sender_.send(c, iov, count, FI_COMPLETION | level | more, s, desc);
      if (rc != 0) {
        --op.tokens;
        free_segment(*s);
      }
    }
    // A message of which a segment was sent cannot be taken back: any error but -FI_EAGAIN ends the
    // connection.
    if (rc != 0) return op.offset == 0 || rc == -FI_EAGAIN ? rc : -FI_ECONNABORTED;
    in_flight_.depart(c, op);
    op.offset += n;
  }
  op.sent = true;
  if (op.until != Tell::kNothing) in_flight_.await(c, op);
  counters_.segmented.add_alone();
  return 0;
}

void Core::free_segment(Segment &s) {
  s.copy.reset();
  --s.op->connection->segments_;
  segments_.give(&s);
}

bool Core::take_segment(Connection &c, const Packet &p, Buffer &buffer) {
  // A sender may reuse the id after the last segment, even if no receive has matched by then.
  RxMessage *m = c.unfinished_.first;
  while (m != nullptr && m->id != p.message) m = m->following;
  const bool first = p.segment == SegmentKind::kFirst;
  if (first != (m == nullptr)) {
    fail_peer(c, first ? "the first segment of a message twice" : "a segment without the first");
    return false;
  }
  bool kept = false;
  if (first) {
    // A correct peer sends all segments of a message before the next one, so it is far from this.
    if (c.unfinished_count_ == kMaxUnfinished) {
      fail_peer(c, "too many segmented messages at once");
      return false;
    }
    const sdk::Message message = message_of(c, p);
    m = new_message(c, RxMessage::Form::kSegments, message);
    if (m == nullptr) return false;
    ++c.unfinished_count_;
    m->id = p.message;
    m->tell = asked_of(c, p);
    m->receive = upper_.receiver().match(message);
    if (m->receive == nullptr) {
      counters_.saved.add_alone();
      upper_.receiver().save(*m);
    }
  } else if (p.segment_number != m->next_segment || p.size != m->message.length) {
    fail_peer(c, "a segment out of order");
    return false;
  }
  if (p.payload.size() > m->message.length - m->received ||
      (p.segment == SegmentKind::kLast) != (m->received + p.payload.size() == m->message.length)) {
    fail_peer(c, "segments that do not add up to the length of their message");
    return false;
  }
  if (m->receive != nullptr) {
    place(*m, m->received, p.payload);
  } else if (!m->discarded) {
    kept = keep(c, *m, p.payload, buffer);
  }
  m->received += p.payload.size();
  ++m->next_segment;
  if (p.segment != SegmentKind::kLast) {
    if (m->waits_for_bytes()) upper_.receiver().on_more(*m);
    return kept;
  }
  if (m->receive != nullptr) {
    finish(*m, m->err);
  } else if (m->discarded) {
    const bool awaited = m->tell != Tell::kNothing;
    free_message(*m);
    if (awaited) tell(&c, p.message);
  } else {
    unlist(*m);
    tell_saved(c, *m);
    if (m->waits_for_bytes()) upper_.receiver().on_more(*m);
  }
  return kept;
}

}  // namespace weft::rxm
