// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/operations.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <utility>

#include "plugins/rxd/protocol/device_copies.h"

namespace weft::rxd {

// ---- lists ----

void Operations::add(TxOp &op) {
  op.next = nullptr;
  op.previous = last_;
  (last_ != nullptr ? last_->next : first_) = &op;
  last_ = &op;
  if (unsent_ == nullptr) unsent_ = &op;
}

void Operations::begin(OutPacket &p) {
  TxOp &op = *unsent_;
  unsent_ = op.next;
  op.started = true;
  op.counted = op.kind != TxOp::Kind::kMessage;
  if (op.counted) ++unanswered_;
  ++op.packets;
  op.beside = p.began;
  p.began = &op;
  p.ordered = true;
  ++next_id_;
  if (op.sent < op.allowed) make_ready(op);
}

void Operations::fail(TxOp &op, uint16_t status) {
  if (unsent_ == &op) unsent_ = op.next;
  op.started = op.answered = true;
  op.status = status;
  settle(op);
}

void Operations::make_ready(TxOp &op) {
  if (op.is_ready) return;
  op.is_ready = true;
  op.ready = nullptr;
  (ready_last_ != nullptr ? ready_last_->ready : ready_) = &op;
  ready_last_ = &op;
}

void Operations::not_ready(TxOp &op) {
  if (!op.is_ready) return;
  op.is_ready = false;
  TxOp *before = nullptr;
  for (TxOp *o = ready_; o != &op; o = o->ready) before = o;
  (before != nullptr ? before->ready : ready_) = op.ready;
  if (ready_last_ == &op) ready_last_ = before;
}

void Operations::took_turn() {
  TxOp &op = *ready_;
  ready_ = op.ready;
  if (ready_ == nullptr) ready_last_ = nullptr;
  op.is_ready = false;
  if (op.sent < op.allowed) make_ready(op);
}

// ---- answers ----

bool Operations::take(const wire::PullFrame &f) {
  TxOp *op = find(f.id);
  if (op == nullptr) return missed(f.id, "a pull of a message that was never sent");
  if (!op->announced || f.limit > op->length)
    return link_.violated("a pull beyond the end of a message");
  if (op->answered) return true;
  op->allowed = std::max(op->allowed, f.limit);
  if (op->ahead != nullptr) link_.copies()->go_on(*op->ahead, wanted(*op));
  if (op->sent < op->allowed) make_ready(*op);
  return true;
}

bool Operations::take(const wire::DoneFrame &f) {
  TxOp *op = find(f.id);
  if (op == nullptr) return missed(f.id, "an answer to an operation that was never sent");
  op->answered = true;
  if (op->status == 0) op->status = f.status;
  if (op->ahead != nullptr) link_.copies()->end(op->ahead);
  if (op->landing != nullptr) link_.landings.end(*link_.copies(), op->landing);
  not_ready(*op);
  settle(*op);
  return true;
}

bool Operations::take(const wire::ResultFrame &f, std::span<const uint8_t> payload) {
  TxOp *op = find(f.id);
  if (op == nullptr) return missed(f.id, "an answer to an operation that was never sent");
  if (op->kind != TxOp::Kind::kAtomic || op->answered)
    return link_.violated("an answer of the wrong kind");
  if (f.status == 0) {
    if (payload.size() != total_of(op->vectors, op->vector_count))
      return link_.violated("the result of an atomic with the wrong length");
    if (!link_.core.give_results(*op, payload)) op->status = FI_EIO;
  }
  op->answered = true;
  if (op->status == 0) op->status = f.status;
  settle(*op);
  return true;
}

bool Operations::take(const wire::DataFrame &f, std::span<const uint8_t> payload) {
  TxOp *op = find(f.id);
  if (op == nullptr) return missed(f.id, "an answer that was not requested");  // or it has failed
  if (op->kind != TxOp::Kind::kRead) return link_.violated("an answer that was not requested");
  if (op->answered) return true;
  if (f.offset > op->length || payload.size() > op->length - f.offset)
    return link_.violated("more data than were requested");
  if (link_.copies() != nullptr) {
    land(*op, f.offset, payload);
  } else {
    scatter(op->iov, op->count, f.offset, payload.data(), payload.size());
  }
  op->received += payload.size();
  if (op->received >= op->length) finish(*op);
  return true;
}

void Operations::land(TxOp &op, uint64_t offset, std::span<const uint8_t> payload) {
  DeviceCopies &copies = *link_.copies();
  if (op.received == 0 && op.landing == nullptr) op.landing = copies.landing_of(op);
  const uint16_t status = op.landing != nullptr ? copies.put(*op.landing, offset, payload)
                          : sdk::hmem_scatter(link_.core.hmem(), op.iov, op.count, offset,
                                              payload.data(), payload.size())
                              ? uint16_t(0)
                              : uint16_t(FI_EIO);
  if (op.status == 0) op.status = status;
}

void Operations::finish(TxOp &read) {
  if (read.landing != nullptr) {
    if (link_.waits_for_copies(*read.landing)) return;
    const uint16_t status = link_.copies()->end(read.landing);
    if (read.status == 0) read.status = status;
  }
  read.answered = true;
  settle(read);
}

// ---- the end ----

// Ends the operation if nothing more is to come. It is reported later, by end_settled(), because
// the caller may be walking a list.
void Operations::settle(TxOp &op) {
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
  if (op.kind == TxOp::Kind::kMessage) credit_.end(op.charged, op.sent);
  (op.previous != nullptr ? op.previous->next : first_) = op.next;
  (op.next != nullptr ? op.next->previous : last_) = op.previous;
  op.next = nullptr;
  (settled_last_ != nullptr ? settled_last_->next : settled_) = &op;
  settled_last_ = &op;
}

void Operations::release(OutPacket &p) {
  for (TxOp *op = p.began; op != nullptr;) {
    TxOp *next = op->beside;
    op->beside = nullptr;
    --op->packets;
    // If the packet also has a payload of this operation, it counts twice.
    if (op != p.source) settle(*op);
    op = next;
  }
  if (p.source != nullptr) {
    --p.source->packets;
    settle(*p.source);
  }
}

void Operations::release_copied(OutPacket &p) {
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

void Operations::end_settled() {
  while (TxOp *op = settled_) {
    settled_ = op->next;
    if (settled_ == nullptr) settled_last_ = nullptr;
    op->next = nullptr;
    link_.core.end(*op, op->status);
  }
}

void Operations::end_copies() {
  DeviceCopies &copies = *link_.copies();
  for (TxOp *op = first_; op != nullptr; op = op->next) {
    copies.end(op->ahead);
    if (op->landing != nullptr) copies.end(op->landing);
  }
}

void Operations::end(int err, Conversation::Queue *unsent) {
  end_settled();
  TxOp *op = std::exchange(first_, nullptr);
  TxOp *const not_begun = std::exchange(unsent_, nullptr);
  last_ = ready_ = ready_last_ = nullptr;
  bool begun = true;
  while (op != nullptr) {
    if (op == not_begun) begun = false;
    TxOp *next = op->next;
    op->next = op->previous = nullptr;
    if (begun || unsent == nullptr) {
      link_.core.end(*op, err);
    } else {
      (unsent->last != nullptr ? unsent->last->next : unsent->first) = op;
      unsent->last = op;
    }
    op = next;
  }
}

}  // namespace weft::rxd
