// SPDX-License-Identifier: BSD-2-Clause
// Output to a weft peer: when packets leave, and what is sent again.
#include <rdma/fi_errno.h>

#include "plugins/rxd/protocol/device_copies.h"
#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd {

// ---- operations ----

void WeftConversation::start(TxOp &op) {
  replies_.sent(link_.core.passes());
  operations_.add(op);
  if (op.more) {
    link_.want_room();
    if (op.on_device) begin_copies(op);
  } else if (outbox_.gathers(op)) {
    link_.want_room();
    link_.want_idle();
  } else {
    pump();
  }
}

// In a stream the first copy of an operation is under way while the application starts the next
// one. An acknowledgement that is to come sends it at the latest.
void WeftConversation::begin_copies(TxOp &op) {
  DeviceCopies &copies = *link_.copies();
  op.ahead = copies.ahead_of(op);
  if (op.ahead != nullptr && op.ahead->first().copies.failed) {
    copies.end(op.ahead);
    operations_.fail(op, FI_EIO);  // start() has asked for the call that tells it
  } else if (!outbox_.gathers_copies(op)) {
    pump();
  }
}

// ---- the loop ----

void WeftConversation::pump() {
  if (ended_ || link_.peer.losing) return;
  outbox_.gather_no_more();
  const uint64_t now = link_.now();
  if (!send_lost(now)) return arm(now);
  send_new(now);
  if (closing_.is_due() && operations_.empty() && outbox_.pending() == nullptr &&
      !answers_.has_short() && link_.channel.outstanding() == 0) {
    sender_.close(wire::PacketKind::kClose, now);
    closing_.sent(now, close_pause(), link_.core.waits_for_answers());
  }
  arm(now);
  operations_.end_settled();
}

// False: the carrier has no room.
bool WeftConversation::send_lost(uint64_t now) {
  for (Channel::Lost lost; link_.channel.next_lost(lost, now);) {
    auto &packet = *static_cast<OutPacket *>(lost.packet);
    if (sender_.send(packet, lost.number, now, lost.ask) == -FI_EAGAIN) {
      link_.want_room();
      return false;
    }
    link_.channel.sent_again(lost.number, now);
    link_.core.counters().repeated.add_alone();
  }
  return true;
}

void WeftConversation::send_new(uint64_t now) {
  Channel &channel = link_.channel;
  while (outbox_.pending() != nullptr || outbox_.has_output(answers_, arrivals_)) {
    const Channel::Gate gate = channel.gate(outbox_.estimate(answers_), now);
    if (gate == Channel::Gate::kPace) link_.want_room();
    if (gate != Channel::Gate::kOpen) return;
    if (outbox_.pending() == nullptr) {
      const Outbox::Built built = outbox_.build(answers_, arrivals_);
      if (built == Outbox::Built::kNoMemory) link_.want_room();
      if (built != Outbox::Built::kPacket) return;
    }
    OutPacket &p = *outbox_.pending();
    const size_t size = link_.overhead + p.used + p.length;
    if (sender_.send(p, channel.next_number(), now, false) == -FI_EAGAIN) return link_.want_room();
    channel.sent(size, now, &p);
    outbox_.left();
    operations_.release_copied(p);
  }
}

// Called at the end of a progress call too, if that brought a packet which must be answered at
// once: the application may stop to make progress after this completion.
void WeftConversation::on_room() {
  const Channel &channel = link_.channel;
  if (order_.is_stalled() || !link_.landings.empty()) resume();
  const uint64_t now = link_.now();
  if (outbox_.gathers(now) && channel.owed() < Channel::Owed::kAsked && !answers_.has_short() &&
      outbox_.pending() == nullptr && !channel.has_lost())
    return link_.want_room();
  if (leaves_with_reply() && link_.core.carrier().flush_later()) return link_.want_room();
  pump();
  if (channel.owed() >= Channel::Owed::kAsked && !sender_.acknowledge(now)) link_.want_room();
}

// Whether there is nothing to send but what the peer is to be told of its messages, and the
// application is likely to reply before its next progress.
bool WeftConversation::leaves_with_reply() {
  const Channel &channel = link_.channel;
  const bool tells = answers_.has_short() || channel.owed() == Channel::Owed::kAsked;
  if (!tells || answers_.owes() || channel.owed() > Channel::Owed::kAsked) return false;
  replies_.told(link_.core.passes());
  return replies_.expected() && outbox_.pending() == nullptr && operations_.ready() == nullptr &&
         operations_.unsent() == nullptr && !arrivals_.wants_pulls() && !outbox_.pings().wanted() &&
         !closing_.has_begun() && !channel.has_lost();
}

void WeftConversation::on_idle() {
  operations_.end_settled();
  pump();
  const uint64_t now = link_.now();
  if (sender_.owes() && !sender_.acknowledge(now)) link_.want_idle();
}

}  // namespace weft::rxd
