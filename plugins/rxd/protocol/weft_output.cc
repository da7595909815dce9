// SPDX-License-Identifier: BSD-2-Clause
// Output to a weft peer: operations become frames, and frames become packets.
#include <rdma/fi_errno.h>

#include <algorithm>

#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd {
namespace {

constexpr size_t kCopied = 1024;     // largest payload that is copied into the packet, bytes
constexpr size_t kWorthwhile = 256;  // bytes: less room than this is not filled with data
constexpr size_t kMaxPayload = 65535;
constexpr uint32_t kMessageHead = 24;  // bytes of a message frame without payload, about
constexpr uint64_t kGatherTime = 4000;
// Limit of our remote accesses that the peer has not answered. It is below the peer's kMaxOwed, so
// that two sides that access each other's memory cannot wait for each other for ever.
constexpr uint32_t kMaxUnanswered = 256;

}  // namespace

// ---- operations ----

void WeftConversation::start(TxOp &op) {
  replies_.sent(core_.passes());
  op.next = nullptr;
  op.previous = last_;
  (last_ != nullptr ? last_->next : first_) = &op;
  last_ = &op;
  if (unsent_ == nullptr) unsent_ = &op;
  if (op.more) {
    core_.want_room(peer_);
    if (op.on_device) begin_copies(op);
  } else if (gathers(op)) {
    core_.want_room(peer_);
    core_.want_idle(peer_);
  } else {
    pump();
  }
}

// Whether a short message of a stream waits a moment to share a packet with the next one: a system
// call costs more than ten messages. It does not wait if the application may be about to compute
// (weft/sdk/patience.h), nor if it has no completion: its sender may never make progress again.
bool WeftConversation::gathers(const TxOp &op) {
  if (op.kind != TxOp::Kind::kMessage || !op.report || op.length > kCopied ||
      channel_.outstanding() < kStream)
    return false;
  Carrier &carrier = core_.carrier();
  if (gather_until_ == 0 && !carrier.progress_is_near()) return false;
  gathered_ += uint32_t(op.length) + kMessageHead;
  if (gathered_ + overhead() >= std::min<size_t>(datagram_, OutPacket::kFrames)) {
    carrier.sent_before_progress();
    return false;
  }
  if (gather_until_ == 0) gather_until_ = carrier.now_ns() + kGatherTime;
  return true;
}

void WeftConversation::make_ready(TxOp &op) {
  if (op.is_ready) return;
  op.is_ready = true;
  op.ready = nullptr;
  (ready_last_ != nullptr ? ready_last_->ready : ready_) = &op;
  ready_last_ = &op;
}

void WeftConversation::not_ready(TxOp &op) {
  if (!op.is_ready) return;
  op.is_ready = false;
  TxOp *before = nullptr;
  for (TxOp *o = ready_; o != &op; o = o->ready) before = o;
  (before != nullptr ? before->ready : ready_) = op.ready;
  if (ready_last_ == &op) ready_last_ = before;
}

void WeftConversation::unlink(TxOp &op) {
  (op.previous != nullptr ? op.previous->next : first_) = op.next;
  (op.next != nullptr ? op.next->previous : last_) = op.previous;
}

// Ends the operation if nothing more is to come. It is reported later, by end_settled(), because
// the caller may be walking a list.
void WeftConversation::settle(TxOp &op) {
  if (op.packets != 0 || !op.started) return;
  switch (op.kind) {
    case TxOp::Kind::kMessage:
      if (!op.answered && (op.delivery || op.sent != op.length)) return;
      break;
    case TxOp::Kind::kRead:
    case TxOp::Kind::kWrite:
    case TxOp::Kind::kAtomic:
      if (!op.answered) return;
      break;
  }
  not_ready(op);
  if (op.counted) --unanswered_;
  // If the peer ended the message early, fewer bytes were sent than were counted.
  if (op.kind == TxOp::Kind::kMessage)
    unasked_ -= op.charged - std::min({op.charged, op.sent, kPrefix});
  unlink(op);
  op.next = nullptr;
  (settled_last_ != nullptr ? settled_last_->next : settled_) = &op;
  settled_last_ = &op;
}

void WeftConversation::end_settled() {
  while (TxOp *op = settled_) {
    settled_ = op->next;
    if (settled_ == nullptr) settled_last_ = nullptr;
    op->next = nullptr;
    core_.end(*op, op->status);
  }
}

// ---- the loop ----

bool WeftConversation::has_output() const {
  return answers_ != nullptr || reads_ != nullptr || pulls_ != 0 || ready_ != nullptr ||
         unsent_ != nullptr || wants_ping_;
}

void WeftConversation::pump() {
  if (ended_ || peer_.losing) return;
  gathered_ = 0;
  gather_until_ = 0;
  const uint64_t now = core_.carrier().now_ns();
  for (Channel::Lost lost; channel_.next_lost(lost, now);) {
    if (transmit(*static_cast<OutPacket *>(lost.packet), lost.number, now, lost.ask) ==
        -FI_EAGAIN) {
      core_.want_room(peer_);
      return arm(now);
    }
    channel_.sent_again(lost.number, now);
    core_.counters().repeated.add_alone();
  }
  while (pending_ != nullptr || has_output()) {
    const bool bulk =
        ready_ != nullptr || reads_ != nullptr || (unsent_ != nullptr && unsent_->length > kCopied);
    const size_t estimate = pending_ != nullptr
                                ? overhead() + pending_->used + pending_->length
                                : (bulk ? datagram_ : std::min<size_t>(datagram_, 512));
    const Channel::Gate gate = channel_.gate(estimate, now);
    if (gate == Channel::Gate::kPace) core_.want_room(peer_);
    if (gate != Channel::Gate::kOpen) break;
    if (pending_ == nullptr) {
      const Built built = build(pending_);
      if (built == Built::kNoMemory) core_.want_room(peer_);
      if (built != Built::kPacket) break;
    }
    OutPacket &p = *pending_;
    const size_t size = overhead() + p.used + p.length;
    if (transmit(p, channel_.next_number(), now, false) == -FI_EAGAIN) {
      core_.want_room(peer_);
      break;
    }
    channel_.sent(size, now, &p);
    pending_ = nullptr;
    release_copied(p);
  }
  if (parting_ && close_at_ == 0 && !parted_ && first_ == nullptr && pending_ == nullptr &&
      answers_ == nullptr && channel_.outstanding() == 0) {
    send_alone(wire::PacketKind::kClose, now);
    if (core_.waits_for_answers()) {
      close_at_ = now + close_pause();
    } else {
      parted_ = true;
    }
  }
  arm(now);
  end_settled();
}

// Ends the operations whose bytes were copied into the packet, unless they end by an
// acknowledgement or by `done`.
void WeftConversation::release_copied(OutPacket &p) {
  for (TxOp **at = &p.began; *at != nullptr;) {
    TxOp *op = *at;
    if (!op->copied || op->delivery || op->transmit) {
      at = &op->beside;
      continue;
    }
    *at = op->beside;
    op->beside = nullptr;
    --op->packets;
    settle(*op);
  }
}

WeftConversation::Built WeftConversation::build(OutPacket *&packet) {
  OutPacket *p = pools_.packets.take();
  if (p == nullptr) return Built::kNoMemory;
  p->began = p->source = nullptr;
  p->answer = nullptr;
  p->length = 0;
  p->ordered = p->asks = false;
  // `room`: bytes of the datagram for frames and payload. The frames alone must also fit OutPacket.
  const size_t room = datagram_ - overhead();
  wire::Writer w({p->bytes + OutPacket::kHead, std::min(room, OutPacket::kFrames)});
  add_answers(w);
  if (pulls_ != 0) add_pulls(w);
  bool closed = false;
  data_turn_ = !data_turn_;
  if (data_turn_) closed = add_data(*p, w, room);
  if (!closed) closed = add_starts(*p, w, room);
  if (!closed && !data_turn_) closed = add_data(*p, w, room);
  if (wants_ping_ && (w.size() != 0 || w.ping())) wants_ping_ = false;
  p->used = uint16_t(w.size());
  if (p->used == 0) {
    pools_.packets.give(p);
    return Built::kNothing;
  }
  packet = p;
  return Built::kPacket;
}

// ---- frames ----

void WeftConversation::add_answers(wire::Writer &w) {
  while (Answer *a = answers_) {
    if (a->kind == Answer::Kind::kResult) {
      if (w.room() < wire::kResultFrameSize + a->length) return;
      w.result({.status = a->status, .id = a->id}, a->length);
      if (a->length != 0) w.payload({a->result->bytes, size_t(a->length)});
    } else if (!w.done({.status = a->status, .id = a->id})) {
      return;
    }
    answers_ = a->next;
    if (answers_ == nullptr) answers_last_ = nullptr;
    if (a->counts) --owed_;
    free_answer(*a);
  }
}

void WeftConversation::add_pulls(wire::Writer &w) {
  for (Incoming *m = messages_; m != nullptr && pulls_ != 0; m = m->following) {
    if (!m->wants_pull) continue;
    if (!w.pull({.id = m->id, .limit = m->limit})) return;
    m->wants_pull = false;
    --pulls_;
  }
}

// Adds operations that have not begun, as many as fit. True: a payload follows, nothing else fits.
bool WeftConversation::add_starts(OutPacket &p, wire::Writer &w, size_t room) {
  bool starved = false;
  while (TxOp *op = unsent_) {
    if (op->fence && op != first_) break;
    if (op->kind != TxOp::Kind::kMessage && unanswered_ >= kMaxUnanswered) break;
    const bool was_empty = w.size() == 0;
    const size_t before = w.size();
    bool closed = false;
    if (op->kind == TxOp::Kind::kMessage) {
      if (started_ >= may_start_) {
        starved = true;
        break;
      }
      closed = begin_message(p, w, room, *op);
    } else {
      closed = begin_access(p, w, room, *op);
    }
    if (w.size() == before) {  // the operation did not fit
      if (was_empty) {
        // It does not fit an empty packet either: impossible with this datagram size.
        unsent_ = op->next;
        op->started = op->answered = true;
        op->status = FI_EMSGSIZE;
        settle(*op);
        core_.want_idle(peer_);
        continue;
      }
      break;
    }
    unsent_ = op->next;
    begun(p, *op);
    if (op->sent < op->allowed) make_ready(*op);
    if (closed) {
      starved_ = false;
      return true;
    }
  }
  if (!starved) {
    ask_at_ = 0;
    asked_ = 0;
  }
  if (starved && !starved_) core_.counters().waited_for_credit.add_alone();
  starved_ = starved;
  return false;
}

void WeftConversation::begun(OutPacket &p, TxOp &op) {
  op.started = true;
  op.counted = op.kind != TxOp::Kind::kMessage;
  if (op.counted) ++unanswered_;
  ++op.packets;
  op.beside = p.began;
  p.began = &op;
  p.ordered = true;
  ++next_id_;
}

void WeftConversation::add_payload(OutPacket &p, TxOp &op, uint64_t offset, uint64_t n) {
  p.source = &op;
  p.offset = offset;
  p.length = uint32_t(n);
  ++op.packets;
}

bool WeftConversation::begin_message(OutPacket &p, wire::Writer &w, size_t room, TxOp &op) {
  wire::MessageFrame f{.tagged = op.tagged,
                       .has_data = op.has_data,
                       .wants_done = op.delivery,
                       .id = next_id_,
                       .tag = op.tag,
                       .data = op.data,
                       .total = op.length};
  const uint64_t credit = may_send_ > unasked_ ? may_send_ - unasked_ : 0;
  const size_t whole = wire::message_size(f);
  const bool fits = w.size() + whole + op.length <= room && op.length <= kMaxPayload;
  if (fits && op.length <= credit) {
    const bool copy = op.length <= kCopied && w.room() >= whole + op.length;
    if (!copy && (op.length <= kCopied || w.room() < whole)) return false;
    p.last = uint16_t(w.size());
    w.message(f, op.length);
    op.id = next_id_;
    op.sent = op.allowed = op.charged = op.length;
    unasked_ += op.length;
    ++started_;
    if (!copy) {
      p.asks = true;
      add_payload(p, op, 0, op.length);
      return true;
    }
    op.copied = true;
    if (op.transmit) p.asks = true;
    pieces(op.iov, op.count, 0, op.length, [&w](const uint8_t *at, size_t n) {
      w.payload({at, n});
    });
    return false;
  }
  // A long message that does not fit behind other frames begins in a packet of its own.
  if (w.size() != 0 && w.size() + whole + std::min<uint64_t>(op.length, kWorthwhile) > room)
    return false;
  if (w.size() != 0 && op.length <= room - whole && op.length <= credit) return false;
  f.announced = true;
  const size_t size = wire::message_size(f);
  if (w.room() < size) return false;
  const uint64_t n =
      std::min<uint64_t>({op.length, credit, room - w.size() - size, kMaxPayload, kPrefix});
  p.last = uint16_t(w.size());
  w.message(f, n);
  op.id = next_id_;
  op.announced = true;
  core_.counters().announced.add_alone();
  op.sent = n;
  op.charged = n;
  const uint64_t prefix = std::min(op.length, kPrefix);
  if (prefix <= credit) op.charged = prefix;
  op.allowed = op.charged;
  unasked_ += op.charged;
  ++started_;
  start_probes(core_.carrier().now_ns());
  if (n != 0) {
    add_payload(p, op, 0, n);
    return true;
  }
  return false;
}

bool WeftConversation::begin_access(OutPacket &p, wire::Writer &w, size_t room, TxOp &op) {
  RmaVector vectors[kMaxVectors];
  std::copy_n(op.vectors, op.vector_count, vectors);
  const std::span<const RmaVector> where(vectors, op.vector_count);
  op.id = next_id_;
  p.last = uint16_t(w.size());
  switch (op.kind) {
    case TxOp::Kind::kMessage:
      break;
    case TxOp::Kind::kRead:
      w.read(next_id_, where);
      if (op.length > datagram_) start_probes(core_.carrier().now_ns());
      break;
    case TxOp::Kind::kWrite: {
      const wire::WriteFrame f{
          .has_data = op.has_data, .id = next_id_, .total = op.length, .data = op.data};
      const size_t size = wire::write_size(f.has_data, where.size());
      if (w.room() < size) return false;
      const uint64_t n = std::min<uint64_t>({op.length, room - w.size() - size, kMaxPayload});
      if (w.size() != 0 && n < op.length) return false;  // it begins in a packet of its own
      const bool copy = n == op.length && n <= kCopied && w.room() >= size + n;
      if (!copy && n <= kCopied && n == op.length && w.size() != 0) return false;
      w.write(f, where, n);
      op.sent = n;
      op.allowed = op.length;
      if (op.length > datagram_) start_probes(core_.carrier().now_ns());
      if (copy) {
        pieces(op.iov, op.count, 0, n, [&w](const uint8_t *at, size_t k) { w.payload({at, k}); });
        return false;
      }
      add_payload(p, op, 0, n);
      return true;
    }
    case TxOp::Kind::kAtomic: {
      const size_t element = sdk::datatype_size(op.datatype);
      const size_t size = wire::atomic_size(where.size()) + size_t(op.length);
      if (w.room() < size || element == 0) return false;
      uint64_t result = 0;
      for (const RmaVector &v : where) result += v.length;
      if (op.atomic != sdk::AtomicKind::kWrite && result > result_room()) return false;
      for (size_t i = 0; i < where.size(); ++i) vectors[i].length /= element;
      w.atomic(
          {.kind = uint8_t(op.atomic), .datatype = op.datatype, .operation = op.op, .id = next_id_},
          where, op.length);
      pieces(op.iov, op.count, 0, op.length, [&w](const uint8_t *at, size_t k) {
        w.payload({at, k});
      });
      break;
    }
  }
  return false;
}

// Adds data of an operation that has begun, or of a read of the peer. True: they follow the frames.
bool WeftConversation::add_data(OutPacket &p, wire::Writer &w, size_t room) {
  while (reads_ != nullptr && reads_->failed) {
    Answer *a = reads_;
    reads_ = a->next;
    if (reads_ == nullptr) reads_last_ = nullptr;
    a->sent = a->length;
    --owed_;
    if (a->packets == 0) free_answer(*a);
  }
  if (ready_ == nullptr && reads_ == nullptr) return false;
  if (w.room() < wire::kDataFrameSize) return false;
  const uint64_t most = std::min<uint64_t>(room - w.size() - wire::kDataFrameSize, kMaxPayload);
  if (Answer *a = reads_; a != nullptr && (ready_ == nullptr || data_turn_)) {
    const uint64_t n = std::min(most, a->length - a->sent);
    if (w.size() != 0 && n < a->length - a->sent && most < kWorthwhile) return false;
    p.last = uint16_t(w.size());
    w.data({.answers = true, .id = a->id, .offset = a->sent}, n);
    p.answer = a;
    p.offset = a->sent;
    p.length = uint32_t(n);
    ++a->packets;
    a->sent += n;
    reads_ = a->next;
    if (reads_ == nullptr) reads_last_ = nullptr;
    a->next = nullptr;
    if (a->sent == a->length) {
      --owed_;
    } else {
      (reads_last_ != nullptr ? reads_last_->next : reads_) = a;
      reads_last_ = a;
    }
    return true;
  }
  TxOp *op = ready_;
  if (op == nullptr) return false;
  const uint64_t n = std::min(most, op->allowed - op->sent);
  if (w.size() != 0 && n < op->allowed - op->sent && most < kWorthwhile) return false;
  p.last = uint16_t(w.size());
  w.data({.answers = false, .id = op->id, .offset = op->sent}, n);
  add_payload(p, *op, op->sent, n);
  op->sent += n;
  if (op->kind == TxOp::Kind::kMessage) {
    if (op->sent == op->length) p.asks = true;
    // The first kPrefix bytes count against the credit, asked for or not: so both sides count the
    // same.
    const uint64_t counted = std::min(op->sent, kPrefix);
    if (counted > op->charged) {
      unasked_ += counted - op->charged;
      op->charged = counted;
    }
  }
  ready_ = op->ready;
  if (ready_ == nullptr) ready_last_ = nullptr;
  op->is_ready = false;
  if (op->sent < op->allowed) make_ready(*op);
  return true;
}

}  // namespace weft::rxd
