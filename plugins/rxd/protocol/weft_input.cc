// SPDX-License-Identifier: BSD-2-Clause
// Packets from a weft peer: they are checked and put in order, and their frames go to the parts
// that take them. A packet that violates the protocol ends the conversation.
#include <rdma/fi_errno.h>

#include "plugins/rxd/protocol/device_copies.h"
#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd {

// ---- packets ----

bool WeftConversation::on_packet(std::span<const uint8_t> bytes, Buffer &buffer) {
  Core &core = link_.core;
  const auto parsed = wire::parse(bytes);
  if (!parsed) {
    core.counters().rejected.add_alone();
    return false;
  }
  const wire::Packet &packet = *parsed;
  const bool is_data = packet.header.kind == wire::PacketKind::kData;
  const uint64_t number = is_data ? link_.channel.number_of(packet.header.sequence) : 0;
  if (!sender_.seal().fits(packet, number)) {
    core.counters().rejected.add_alone();
    return false;
  }
  const uint64_t looked = core.carrier().looked_ns(), now = link_.now();
  const Moment moment(now, looked != 0 ? now - looked : 0);
  note_heard(now);
  core.trust(link_.peer);
  if (packet.header.has(wire::kFlagAcknowledgement)) {
    take_acknowledgement(packet.acknowledgement, moment);
    if (link_.peer.losing) return false;
  }
  link_.want_idle();
  switch (packet.header.kind) {
    case wire::PacketKind::kData:
      return take_data(packet, bytes, buffer, moment);
    case wire::PacketKind::kProbe:
      sender_.probed(*std::get_if<wire::Probe>(&packet.content), now);
      return false;
    case wire::PacketKind::kProbed:
      if (outbox_.size().answered(std::get_if<wire::Probed>(&packet.content)->number))
        link_.channel.set_datagram(outbox_.size().bytes());
      return false;
    case wire::PacketKind::kClose:
      take_close();
      return false;
    case wire::PacketKind::kClosed:
      closing_.answered();
      return false;
    default:
      return false;
  }
}

void WeftConversation::take_close() {
  sender_.close(wire::PacketKind::kClosed, link_.now());
  operations_.end_settled();
  link_.core.counters().closed_by_peer.add_alone();
  link_.core.lose(link_.peer, FI_ECONNRESET, true);
}

void WeftConversation::take_acknowledgement(const wire::Acknowledgement &ack, Moment now) {
  const auto arrived = [this](void *packet) {
    auto &p = *static_cast<OutPacket *>(packet);
    operations_.release(p);
    answers_.release(p);
    outbox_.free(p);
  };
  if (!link_.channel.on_acknowledgement(ack, now, arrived)) {
    link_.violated("an acknowledgement of packets that were never sent");
    return;
  }
  if (const uint8_t cuts = link_.channel.take_cuts(); cuts != 0) {
    Counters &counters = link_.core.counters();
    if ((cuts & Congestion::kForLoss) != 0) counters.cut_for_loss.add_alone();
    if ((cuts & Congestion::kForDelay) != 0) counters.cut_for_delay.add_alone();
    if ((cuts & Congestion::kCollapsed) != 0) counters.collapses.add_alone();
  }
  operations_.credit().raise(ack.messages, ack.credit);
}

bool WeftConversation::take_data(const wire::Packet &packet, std::span<const uint8_t> bytes,
                                 Buffer &buffer, Moment moment) {
  Core &core = link_.core;
  Channel &channel = link_.channel;
  const uint64_t number = channel.number_of(packet.header.sequence);
  const bool ordered = packet.header.has(wire::kFlagOrdered);
  const Channel::Arrival arrival = channel.look(number);
  if (arrival == Channel::Arrival::kDuplicate) {
    core.counters().duplicates.add_alone();
    channel.duplicate(packet.header, moment);
    link_.want_room();
    return false;
  }
  if (arrival == Channel::Arrival::kOutside) {
    core.counters().dropped.add_alone();
    return false;
  }
  // Too many unanswered accesses: the peer retransmits this packet, we answer the others meanwhile.
  if (ordered && answers_.is_full()) return false;
  arrivals_.saw(bytes.size());
  const bool in_order = arrival == Channel::Arrival::kInOrder;
  const bool waits = (order_.is_stalled() || core.full()) && Order::reports(packet);
  if (waits || (ordered ? !in_order : !order_.has_begun(packet))) {
    // All packets before it are here, and none of them began the operation.
    if (in_order && !waits) return link_.violated("data of an operation that was never begun");
    return keep(packet, number, bytes, buffer, moment, waits);
  }
  channel.accept(number, packet.header, moment);
  if (channel.owed() >= Channel::Owed::kAsked) link_.want_room();
  arrivals_.on_packet(moment.now);
  if (process(packet, Order::Frames::kAll) && !order_.empty()) take_kept();
  operations_.end_settled();
  return false;
}

// `waits`: for the application.
bool WeftConversation::keep(const wire::Packet &packet, uint64_t number,
                            std::span<const uint8_t> bytes, Buffer &buffer, Moment moment,
                            bool waits) {
  Counters &counters = link_.core.counters();
  const bool kept = order_.keep(link_, number, bytes, buffer, waits);
  link_.want_room();
  if (!kept) {
    counters.dropped.add_alone();
    // No room: it counts as lost. Tell the peer which packets are missing before it.
    link_.channel.duplicate(packet.header, moment);
    return false;
  }
  counters.early.add_alone();
  link_.channel.accept(number, packet.header, moment);
  if (waits) {
    order_.stall();
    // The application may wait for these answers before it reads its completions.
    process(packet, Order::Frames::kAnswers);
    operations_.end_settled();
  }
  return true;
}

// ---- frames ----

bool WeftConversation::process(const wire::Packet &packet, Order::Frames which) {
  wire::FrameReader frames(packet);
  while (frames.next()) {
    if (which != Order::Frames::kAll &&
        Order::is_answer(frames) != (which == Order::Frames::kAnswers))
      continue;
    if (!take_frame(frames)) return false;
  }
  if (frames.reject() != wire::Reject::kNone) return link_.violated(wire::text_of(frames.reject()));
  return true;
}

bool WeftConversation::take_frame(const wire::FrameReader &frames) {
  if (wire::starts(frames.kind()) && !order_.begin(frames.id()))
    return link_.violated("an operation out of order");
  switch (frames.kind()) {
    case wire::FrameKind::kMessage:
      return arrivals_.take(frames.message(), frames.payload());
    case wire::FrameKind::kData:
      return take_payload(frames.data(), frames.payload());
    case wire::FrameKind::kPull:
      return operations_.take(frames.pull());
    case wire::FrameKind::kDone:
      return operations_.take(frames.done());
    case wire::FrameKind::kRead:
      return accesses_.read(frames.id(), frames.vectors());
    case wire::FrameKind::kWrite:
      return accesses_.write(frames.write(), frames.vectors(), frames.payload());
    case wire::FrameKind::kAtomic:
      return accesses_.atomic(frames.atomic(), frames.vectors(), frames.payload());
    case wire::FrameKind::kResult:
      return operations_.take(frames.result(), frames.payload());
    case wire::FrameKind::kPing:
      return true;
  }
  return true;
}

bool WeftConversation::take_payload(const wire::DataFrame &f, std::span<const uint8_t> payload) {
  if (f.answers) return operations_.take(f, payload);
  if (Incoming *m = arrivals_.find(f.id)) return arrivals_.take(*m, f, payload);
  if (Remote *r = accesses_.find(f.id)) return accesses_.take(*r, f, payload);
  arrivals_.take_late(f, payload.size());
  return true;
}

void WeftConversation::take_kept() {
  order_.take(link_, [this](const wire::Packet &packet, Order::Frames which) {
    return process(packet, which);
  });
}

// ---- the application ----

void WeftConversation::fetch(Incoming &m) {
  arrivals_.fetch(m);
  pump();
}

void WeftConversation::discard(Incoming &m) {
  arrivals_.discard(m);
  pump();
}

// The application may have read its completions: end what waits for copies, process kept packets.
void WeftConversation::resume() {
  if (link_.core.full()) return link_.want_room();
  const bool stalled = order_.is_stalled();
  if (stalled) take_kept();
  if (!link_.landings.empty()) end_landings();
  operations_.end_settled();
  // The peer may wait for a new limit or for credit.
  if (stalled && !link_.peer.losing) sender_.acknowledge(link_.now());
}

void WeftConversation::end_landings() {
  link_.landings.take(*link_.copies(), [this](Landing &landing) {
    if (landing.message != nullptr) {
      arrivals_.complete(*landing.message);
    } else if (landing.read != nullptr) {
      operations_.finish(*landing.read);
    } else {
      accesses_.finish(*landing.write, 0);
    }
  });
}

}  // namespace weft::rxd
