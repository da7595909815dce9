// SPDX-License-Identifier: BSD-2-Clause
// Memory of devices (FI_HMEM): what is sent of it is copied ahead of the datagrams, what comes for it
// is copied in large pieces, and ends when these copies have.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <utility>

#include "plugins/rxd/protocol/device_copies.h"
#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd {

// ---- output ----

// In a stream the first copy of an operation is under way while the application starts the next one.
// An acknowledgement that is to come sends it at the latest.
void WeftConversation::begin_copies(TxOp &op) {
  DeviceCopies &copies = *core_.copies();
  op.ahead = copies.ahead_of(op);
  if (op.ahead != nullptr && op.ahead->first().copies.failed) {
    copies.end(op.ahead);
    if (unsent_ == &op) unsent_ = nullptr;  // it is the last one
    op.started = op.answered = true;
    op.status = FI_EIO;
    settle(op);  // start() has asked for the call that tells it
    return;
  }
  gathered_ += uint32_t(std::min<uint64_t>(op.length, DeviceCopies::kFirst));
  if (gathered_ >= DeviceCopies::kPart || channel_.outstanding() < kStream ||
      !core_.carrier().progress_is_near())
    pump();
}

// Copies take the place of the payload's vectors: how many there are. -FI_EIO: a device has failed.
ssize_t WeftConversation::fetch(OutPacket &p, iovec *iov, size_t count) {
  DeviceCopies &copies = *core_.copies();
  Ahead *const ahead = p.answer != nullptr ? p.answer->ahead : p.source->ahead;
  ssize_t n = 0;
  if (ahead != nullptr) {
    n = copies.fetch(*ahead, p.offset, p.length,
                     p.answer != nullptr ? p.answer->length : wanted(*p.source), iov);
  } else if (p.answer != nullptr && !copies.finds(iov, count)) {
    return ssize_t(count);
  }
  if (n == 0) n = copies.fetch_now(iov, count, p.length);
  if (n < 0 && p.answer == nullptr) {
    // The peer cannot be told that the rest of one operation does not come.
    core_.upper().warn("a device has failed: a connection ends in the middle of an operation");
    dismiss();
    core_.lose(peer_, FI_EIO, true);
  }
  return n;
}

// How much of an operation the peer is known to take. It asks for a message when it has a receive.
uint64_t WeftConversation::wanted(const TxOp &op) {
  return op.kind == TxOp::Kind::kMessage && op.allowed <= kPrefix ? op.allowed : op.length;
}

// The payload is the carrier's.
void WeftConversation::fetched(const OutPacket &p) {
  Ahead *&ahead = p.answer != nullptr ? p.answer->ahead : p.source->ahead;
  if (ahead == nullptr) return;
  core_.copies()->pass(*ahead, p.offset + p.length);
  if (ahead->sent == (p.answer != nullptr ? p.answer->length : p.source->length))
    core_.copies()->end(ahead);
}

// ---- input ----

// Data of a read.
void WeftConversation::land(TxOp &op, uint64_t offset, std::span<const uint8_t> payload) {
  DeviceCopies &copies = *core_.copies();
  if (op.received == 0 && op.landing == nullptr) op.landing = copies.landing_of(op);
  const uint16_t status =
      op.landing != nullptr ? copies.put(*op.landing, offset, payload)
      : sdk::hmem_scatter(core_.hmem(), op.iov, op.count, offset, payload.data(), payload.size())
          ? uint16_t(0)
          : uint16_t(FI_EIO);
  if (op.status == 0) op.status = status;
}

// All of it has come. True: it ends later, by end_landings().
bool WeftConversation::waits_for_copies(Landing &landing) {
  if (!core_.copies()->lands(landing)) return false;
  if (std::exchange(landing.waits, true)) return true;
  landing.next = landed_;
  landed_ = &landing;
  resumes_ = true;
  core_.want_room(peer_);
  return true;
}

uint16_t WeftConversation::end_landing(Landing *&landing) {
  if (landing->waits) {
    Landing **at = &landed_;
    while (*at != landing) at = &(*at)->next;
    *at = landing->next;
  }
  return core_.copies()->end(landing);
}

void WeftConversation::end_landings() {
  if (landed_ == nullptr) return;
  core_.copies()->settle();
  Landing *all = nullptr;  // in the order in which they came
  while (Landing *l = landed_) {
    landed_ = l->next;
    l->next = std::exchange(all, l);
    l->waits = false;
  }
  while (Landing *l = all) {
    all = l->next;
    if (l->message != nullptr) {
      complete(*l->message);
    } else if (l->read != nullptr) {
      finish(*l->read);
    } else {
      finish(*l->write, 0);
    }
  }
}

// The conversation is over: nothing of it may be under way.
void WeftConversation::end_copies() {
  while (landed_ != nullptr) end_landings();
  DeviceCopies &copies = *core_.copies();
  for (TxOp *op = first_; op != nullptr; op = op->next) {
    copies.end(op->ahead);
    if (op->landing != nullptr) copies.end(op->landing);
  }
  for (Answer *a = reads_; a != nullptr; a = a->next) copies.end(a->ahead);
  if (pending_ != nullptr && pending_->answer != nullptr) copies.end(pending_->answer->ahead);
  for (Remote *r = remotes_; r != nullptr; r = r->next)
    if (r->landing != nullptr) copies.end(r->landing);
}

}  // namespace weft::rxd
