// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/outbox.h"

#include <rdma/fi_errno.h>

#include "plugins/rxd/protocol/device_copies.h"

namespace weft::rxd {
namespace {

constexpr size_t kCopied = 1024;       // largest payload that is copied into the packet, bytes
constexpr uint32_t kMessageHead = 24;  // bytes of a message frame without payload, about
constexpr uint64_t kGatherTime = 4000;

// Copies the first `n` bytes of the operation behind its frame.
void copy(wire::Writer &w, const TxOp &op, uint64_t n) {
  pieces(op.iov, op.count, 0, n, [&w](const uint8_t *at, size_t k) { w.payload({at, k}); });
}

}  // namespace

// ---- what waits ----

// A short message of a stream waits a moment to share a packet with the next one: a system call
// costs more than ten messages. It does not wait if the application may be about to compute
// (weft/sdk/progress/patience.h), nor if it has no completion: its sender may never make progress
// again.
bool Outbox::gathers(const TxOp &op) {
  if (op.kind != TxOp::Kind::kMessage || !op.report || op.length > kCopied ||
      link_.channel.outstanding() < kStream)
    return false;
  Carrier &carrier = link_.core.carrier();
  if (gather_until_ == 0 && !carrier.progress_is_near()) return false;
  gathered_ += uint32_t(op.length) + kMessageHead;
  if (gathered_ + link_.overhead >= std::min<size_t>(size_.bytes(), OutPacket::kFrames)) {
    carrier.sent_before_progress();
    return false;
  }
  if (gather_until_ == 0) gather_until_ = carrier.now_ns() + kGatherTime;
  return true;
}

bool Outbox::gathers_copies(const TxOp &op) {
  gathered_ += uint32_t(std::min<uint64_t>(op.length, DeviceCopies::kFirst));
  return gathered_ < DeviceCopies::kPart && link_.channel.outstanding() >= kStream &&
         link_.core.carrier().progress_is_near();
}

// ---- packets ----

size_t Outbox::estimate(const Answers &answers) const {
  if (pending_ != nullptr) return link_.overhead + pending_->used + pending_->length;
  const TxOp *unsent = operations_.unsent();
  const bool bulk = operations_.ready() != nullptr || answers.has_reads() ||
                    (unsent != nullptr && unsent->length > kCopied);
  return bulk ? size_.bytes() : std::min<size_t>(size_.bytes(), 512);
}

Outbox::Built Outbox::build(Answers &answers, Arrivals &arrivals) {
  OutPacket *p = link_.pools.packets.take();
  if (p == nullptr) return Built::kNoMemory;
  p->clear();
  // `room`: bytes of the datagram for frames and payload. The frames alone must also fit OutPacket.
  const size_t room = size_.bytes() - link_.overhead;
  wire::Writer w({p->bytes + OutPacket::kHead, std::min(room, OutPacket::kFrames)});
  answers.add(w);
  if (arrivals.wants_pulls()) arrivals.add_pulls(w);
  bool closed = false;
  data_turn_ = !data_turn_;
  if (data_turn_) closed = add_data(*p, w, room, answers);
  if (!closed) closed = add_starts(*p, w, room);
  if (!closed && !data_turn_) closed = add_data(*p, w, room, answers);
  if (pings_.wanted() && (w.size() != 0 || w.ping())) pings_.sent();
  p->used = uint16_t(w.size());
  if (p->used == 0) {
    free(*p);
    return Built::kNothing;
  }
  pending_ = p;
  return Built::kPacket;
}

void Outbox::add_payload(OutPacket &p, TxOp &op, uint64_t offset, uint64_t n) {
  p.source = &op;
  p.offset = offset;
  p.length = uint32_t(n);
  ++op.packets;
}

void Outbox::probe_larger() {
  const uint64_t now = link_.now();
  if (const uint32_t bytes = size_.start(now); bytes != 0) sender_.probe(bytes, now);
}

// ---- operations begin ----

// Adds operations that have not begun, as many as fit. True: a payload follows, nothing else fits.
bool Outbox::add_starts(OutPacket &p, wire::Writer &w, size_t room) {
  while (TxOp *op = operations_.unsent()) {
    if (!operations_.may_begin(*op)) break;
    const size_t before = w.size();
    bool closed = false;
    if (op->kind == TxOp::Kind::kMessage) {
      if (!operations_.credit().has_message()) {
        if (pings_.starve()) link_.core.counters().waited_for_credit.add_alone();
        return false;
      }
      closed = begin_message(p, w, room, *op);
    } else {
      closed = begin_access(p, w, room, *op);
    }
    if (w.size() == before) {  // the operation did not fit
      if (before != 0) break;
      // It does not fit an empty packet either: impossible with this datagram size.
      operations_.fail(*op, FI_EMSGSIZE);
      link_.want_idle();
      continue;
    }
    operations_.begin(p);
    if (closed) {
      pings_.pass();
      return true;
    }
  }
  pings_.feed();
  return false;
}

bool Outbox::begin_message(OutPacket &p, wire::Writer &w, size_t room, TxOp &op) {
  wire::MessageFrame f{.tagged = op.tagged,
                       .has_data = op.has_data,
                       .wants_done = op.delivery,
                       .id = operations_.next_id(),
                       .tag = op.tag,
                       .data = op.data,
                       .total = op.length};
  Credit &credit = operations_.credit();
  const size_t whole = wire::message_size(f);
  const bool fits = w.size() + whole + op.length <= room && op.length <= kMaxPayload;
  if (!fits || op.length > credit.bytes()) return announce(p, w, room, op, f);
  const bool copies = op.length <= kCopied && w.room() >= whole + op.length;
  if (!copies && (op.length <= kCopied || w.room() < whole)) return false;
  p.last = uint16_t(w.size());
  w.message(f, op.length);
  op.id = f.id;
  op.sent = op.allowed = op.charged = op.length;
  credit.begin(op.length);
  if (!copies) {
    p.asks = true;
    add_payload(p, op, 0, op.length);
    return true;
  }
  op.copied = true;
  if (op.transmit) p.asks = true;
  copy(w, op, op.length);
  return false;
}

// A message of which only the first bytes leave now, or none.
bool Outbox::announce(OutPacket &p, wire::Writer &w, size_t room, TxOp &op, wire::MessageFrame &f) {
  Credit &credit = operations_.credit();
  const uint64_t bytes = credit.bytes();
  const size_t whole = wire::message_size(f);
  // A long message that does not fit behind other frames begins in a packet of its own.
  if (w.size() != 0 && w.size() + whole + std::min<uint64_t>(op.length, kWorthwhile) > room)
    return false;
  if (w.size() != 0 && op.length <= room - whole && op.length <= bytes) return false;
  f.announced = true;
  const size_t size = wire::message_size(f);
  if (w.room() < size) return false;
  const uint64_t n =
      std::min<uint64_t>({op.length, bytes, room - w.size() - size, kMaxPayload, kPrefix});
  p.last = uint16_t(w.size());
  w.message(f, n);
  op.id = f.id;
  op.announced = true;
  link_.core.counters().announced.add_alone();
  op.sent = n;
  op.allowed = op.charged = credit.announce(op.length, n);
  probe_larger();
  if (n == 0) return false;
  add_payload(p, op, 0, n);
  return true;
}

bool Outbox::begin_access(OutPacket &p, wire::Writer &w, size_t room, TxOp &op) {
  op.id = operations_.next_id();
  p.last = uint16_t(w.size());
  switch (op.kind) {
    case TxOp::Kind::kMessage:
      break;
    case TxOp::Kind::kRead:
      w.read(op.id, {op.vectors, op.vector_count});
      if (op.length > size_.bytes()) probe_larger();
      break;
    case TxOp::Kind::kWrite:
      return begin_write(p, w, room, op);
    case TxOp::Kind::kAtomic:
      begin_atomic(w, op);
      break;
  }
  return false;
}

bool Outbox::begin_write(OutPacket &p, wire::Writer &w, size_t room, TxOp &op) {
  const std::span<const RmaVector> where(op.vectors, op.vector_count);
  const wire::WriteFrame f{
      .has_data = op.has_data, .id = op.id, .total = op.length, .data = op.data};
  const size_t size = wire::write_size(f.has_data, where.size());
  if (w.room() < size) return false;
  const uint64_t n = std::min<uint64_t>({op.length, room - w.size() - size, kMaxPayload});
  if (w.size() != 0 && n < op.length) return false;  // it begins in a packet of its own
  const bool copies = n == op.length && n <= kCopied && w.room() >= size + n;
  if (!copies && n <= kCopied && n == op.length && w.size() != 0) return false;
  w.write(f, where, n);
  op.sent = n;
  op.allowed = op.length;
  if (op.length > size_.bytes()) probe_larger();
  if (copies) {
    copy(w, op, n);
    return false;
  }
  add_payload(p, op, 0, n);
  return true;
}

void Outbox::begin_atomic(wire::Writer &w, const TxOp &op) {
  RmaVector vectors[kMaxVectors];
  const size_t count = op.vector_count;
  std::copy_n(op.vectors, count, vectors);
  const size_t element = sdk::datatype_size(op.datatype);
  if (w.room() < wire::atomic_size(count) + size_t(op.length) || element == 0) return;
  uint64_t result = 0;
  for (size_t i = 0; i < count; ++i) {
    result += vectors[i].length;
    vectors[i].length /= element;
  }
  if (op.atomic != sdk::AtomicKind::kWrite && result > link_.result_room) return;
  w.atomic({.kind = uint8_t(op.atomic), .datatype = op.datatype, .operation = op.op, .id = op.id},
           {vectors, count}, op.length);
  copy(w, op, op.length);
}

// ---- data ----

// Adds data of an operation that has begun, or of a read of the peer. True: they follow the frames.
bool Outbox::add_data(OutPacket &p, wire::Writer &w, size_t room, Answers &answers) {
  answers.drop_failed();
  TxOp *op = operations_.ready();
  if (op == nullptr && !answers.has_reads()) return false;
  if (w.room() < wire::kDataFrameSize) return false;
  const uint64_t most = std::min<uint64_t>(room - w.size() - wire::kDataFrameSize, kMaxPayload);
  if (answers.has_reads() && (op == nullptr || data_turn_)) return answers.add_data(p, w, most);
  const uint64_t n = std::min(most, op->allowed - op->sent);
  if (w.size() != 0 && n < op->allowed - op->sent && most < kWorthwhile) return false;
  p.last = uint16_t(w.size());
  w.data({.answers = false, .id = op->id, .offset = op->sent}, n);
  add_payload(p, *op, op->sent, n);
  op->sent += n;
  if (op->kind == TxOp::Kind::kMessage) {
    if (op->sent == op->length) p.asks = true;
    op->charged = operations_.credit().charge(op->charged, op->sent);
  }
  operations_.took_turn();
  return true;
}

}  // namespace weft::rxd
