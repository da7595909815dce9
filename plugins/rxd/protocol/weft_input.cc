// SPDX-License-Identifier: BSD-2-Clause
// Packets from a weft peer: check them, put them in order, process their frames. A packet that
// violates the protocol ends the conversation.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdio>

#include "plugins/rxd/protocol/device_copies.h"
#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd {
namespace {

constexpr uint32_t kMaxOwed = 512;         // operations; a correct peer stays far below
constexpr uint64_t kMinPullPackets = 128;  // with fewer large ones both sides wait in turns
constexpr uint64_t kMaxPullWindow = 16 << 20;

}  // namespace

bool WeftConversation::fail(const char *what) {
  char text[200];
  std::snprintf(text, sizeof text, "the connection with %s ends: it sent %s",
                peer_.address.to_string().c_str(), what);
  core_.counters().violations.add_alone();
  core_.upper().warn_of_peer(text);
  core_.lose(peer_, FI_ECONNRESET, true);
  return false;
}

// ---- packets ----

bool WeftConversation::on_packet(std::span<const uint8_t> bytes, Buffer &buffer) {
  const auto parsed = wire::parse(bytes);
  if (!parsed) {
    core_.counters().rejected.add_alone();
    return false;
  }
  const wire::Packet &packet = *parsed;
  const bool is_data = packet.header.kind == wire::PacketKind::kData;
  const uint64_t number = is_data ? channel_.number_of(packet.header.sequence) : 0;
  if (packet.header.has(wire::kFlagChecksum) < checksum_ ||
      packet.header.has(wire::kFlagMac) != authentic_ || !wire::checksum_fits(packet) ||
      (authentic_ && !wire::mac_fits(*key_, packet, uint32_t(number >> 32)))) {
    core_.counters().rejected.add_alone();
    return false;
  }
  const uint64_t looked = core_.carrier().looked_ns(), now = core_.carrier().now_ns();
  const Moment moment(now, looked != 0 ? now - looked : 0);
  heard_at_ = now;
  channel_.heard(now);
  core_.trust(peer_);
  if (packet.header.has(wire::kFlagAcknowledgement)) {
    take_acknowledgement(packet.acknowledgement, moment);
    if (peer_.losing) return false;
  }
  core_.want_idle(peer_);
  switch (packet.header.kind) {
    case wire::PacketKind::kData:
      return take_data(packet, bytes, buffer, moment);
    case wire::PacketKind::kProbe: {
      const auto &probe = *std::get_if<wire::Probe>(&packet.content);
      uint8_t *answer = scratch();
      wire::Writer w({answer, sizeof(Pools::Scratch)});
      w.probed(header(wire::PacketKind::kProbed, 0, now), probe.number, probe.size);
      send_scratch(answer, w.size());
      return false;
    }
    case wire::PacketKind::kProbed: {
      const auto &probed = *std::get_if<wire::Probed>(&packet.content);
      if (probe_at_ == 0 || probed.number != probing_) return false;
      probe_at_ = 0;
      probe_ = UINT8_MAX;
      datagram_ = probing_;
      channel_.set_datagram(datagram_);
      return false;
    }
    case wire::PacketKind::kClose:
      take_close();
      return false;
    case wire::PacketKind::kClosed:
      if (parting_) {
        parted_ = true;
        close_at_ = 0;
      }
      return false;
    default:
      return false;
  }
}

bool WeftConversation::take_close() {
  send_alone(wire::PacketKind::kClosed, core_.carrier().now_ns());
  end_settled();
  core_.counters().closed_by_peer.add_alone();
  core_.lose(peer_, FI_ECONNRESET, true);
  return false;
}

void WeftConversation::take_acknowledgement(const wire::Acknowledgement &ack, Moment now) {
  const bool sensible = channel_.on_acknowledgement(
      ack, now, [this](void *packet) { arrived(*static_cast<OutPacket *>(packet)); });
  if (!sensible) {
    fail("an acknowledgement of packets that were never sent");
    return;
  }
  if (const uint8_t cuts = channel_.take_cuts(); cuts != 0) {
    Counters &counters = core_.counters();
    if ((cuts & Congestion::kForLoss) != 0) counters.cut_for_loss.add_alone();
    if ((cuts & Congestion::kForDelay) != 0) counters.cut_for_delay.add_alone();
    if ((cuts & Congestion::kCollapsed) != 0) counters.collapses.add_alone();
  }
  may_start_ = std::max(may_start_, wire::extend(ack.messages, may_start_));
  may_send_ = std::max(may_send_, wire::extend(ack.credit, may_send_ >> 10) << 10);
}

void WeftConversation::arrived(OutPacket &p) {
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
  if (p.answer != nullptr && --p.answer->packets == 0 && p.answer->sent == p.answer->length)
    free_answer(*p.answer);
  pools_.packets.give(&p);
}

bool WeftConversation::take_data(const wire::Packet &packet, std::span<const uint8_t> bytes,
                                 Buffer &buffer, Moment moment) {
  const uint64_t now = moment.now;
  const uint64_t number = channel_.number_of(packet.header.sequence);
  const bool ordered = packet.header.has(wire::kFlagOrdered);
  const Channel::Arrival arrival = channel_.look(number);
  if (arrival == Channel::Arrival::kDuplicate) {
    core_.counters().duplicates.add_alone();
    channel_.duplicate(packet.header, moment);
    core_.want_room(peer_);
    return false;
  }
  if (arrival == Channel::Arrival::kOutside) {
    core_.counters().dropped.add_alone();
    return false;
  }
  // Too many unanswered accesses: the peer retransmits this packet, we answer the others meanwhile.
  if (ordered && owed_ >= kMaxOwed) return false;
  if (bytes.size() > seen_) {
    seen_ = uint32_t(bytes.size());
    share();
  }
  const bool in_order = arrival == Channel::Arrival::kInOrder;
  const bool waits = (stalled_ || core_.full()) && reports(packet);
  if (waits || (ordered ? !in_order : !begun_here(packet))) {
    if (in_order && !waits) {
      // All packets before it are here, and none of them began the operation.
      return fail("data of an operation that was never begun");
    }
    if (!keep(number, bytes, buffer, waits)) {
      core_.counters().dropped.add_alone();
      // No room: it counts as lost. Tell the peer which packets are missing before it.
      channel_.duplicate(packet.header, moment);
      core_.want_room(peer_);
      return false;
    }
    core_.counters().early.add_alone();
    channel_.accept(number, packet.header, moment);
    core_.want_room(peer_);
    if (waits) {
      stalled_ = resumes_ = true;
      // The application may wait for these answers before it reads its completions.
      process(packet, Frames::kAnswers);
      end_settled();
    }
    return true;
  }
  channel_.accept(number, packet.header, moment);
  if (channel_.owed() >= Channel::Owed::kAsked) core_.want_room(peer_);
  // The pull window is twice what arrived in the last round trip.
  if (const uint64_t trip = channel_.round_trip().smoothed();
      trip != 0 && now - epoch_at_ >= trip) {
    const uint64_t least = std::max(kMinPullWindow, kMinPullPackets * seen_);
    pull_window_ = std::clamp(2 * epoch_bytes_, least, kMaxPullWindow);
    epoch_at_ = now;
    epoch_bytes_ = 0;
  }
  if (process(packet, Frames::kAll) && kept_ != nullptr) take_kept();
  end_settled();
  return false;
}

// Whether all operations of the peer that the packet's data frames name have begun here.
bool WeftConversation::begun_here(const wire::Packet &packet) const {
  wire::FrameReader frames(packet);
  while (frames.next()) {
    if (frames.kind() == wire::FrameKind::kData && !frames.data().answers &&
        int32_t(frames.id() - their_next_id_) >= 0)
      return false;
  }
  return true;
}

bool WeftConversation::answers(const wire::FrameReader &frames) {
  switch (frames.kind()) {
    case wire::FrameKind::kPull:
    case wire::FrameKind::kDone:
    case wire::FrameKind::kResult:
      return true;
    case wire::FrameKind::kData:
      return frames.data().answers;
    default:
      return false;
  }
}

bool WeftConversation::process(const wire::Packet &packet, Frames which) {
  wire::FrameReader frames(packet);
  while (frames.next()) {
    if (which != Frames::kAll && answers(frames) != (which == Frames::kAnswers)) continue;
    bool good = true;
    switch (frames.kind()) {
      case wire::FrameKind::kMessage:
        good = take_message(frames.message(), frames.payload());
        break;
      case wire::FrameKind::kData:
        good = take_payload(frames.data(), frames.payload());
        break;
      case wire::FrameKind::kPull:
        good = take_pull(frames.pull());
        break;
      case wire::FrameKind::kDone:
        good = take_done(frames.done());
        break;
      case wire::FrameKind::kRead:
        good = take_read(frames.id(), frames.vectors());
        break;
      case wire::FrameKind::kWrite:
        good = take_write(frames.write(), frames.vectors(), frames.payload());
        break;
      case wire::FrameKind::kAtomic:
        good = take_atomic(frames.atomic(), frames.vectors(), frames.payload());
        break;
      case wire::FrameKind::kResult:
        good = take_result(frames.result(), frames.payload());
        break;
      case wire::FrameKind::kPing:
        break;
    }
    if (!good) return false;
  }
  if (frames.reject() != wire::Reject::kNone) return fail(wire::text_of(frames.reject()));
  return true;
}

// ---- answers from the peer ----

bool WeftConversation::take_pull(const wire::PullFrame &f) {
  TxOp *op = find(f.id);
  if (op == nullptr) {
    if (int32_t(f.id - next_id_) >= 0) return fail("a pull of a message that was never sent");
    return true;  // the operation has ended meanwhile
  }
  if (!op->announced || f.limit > op->length) return fail("a pull beyond the end of a message");
  if (op->answered) return true;
  op->allowed = std::max(op->allowed, f.limit);
  if (op->ahead != nullptr) core_.copies()->go_on(*op->ahead, wanted(*op));
  if (op->sent < op->allowed) make_ready(*op);
  return true;
}

bool WeftConversation::take_done(const wire::DoneFrame &f) {
  TxOp *op = find(f.id);
  if (op == nullptr) {
    if (int32_t(f.id - next_id_) >= 0) return fail("an answer to an operation that was never sent");
    return true;
  }
  op->answered = true;
  if (op->status == 0) op->status = f.status;
  if (op->ahead != nullptr) core_.copies()->end(op->ahead);
  if (op->landing != nullptr) end_landing(op->landing);
  not_ready(*op);
  settle(*op);
  return true;
}

// ---- answers to the peer ----

Answer *WeftConversation::new_answer(Answer::Kind kind, uint32_t id, bool counts) {
  Answer *a = pools_.answers.take();
  if (a == nullptr) {
    core_.upper().warn_of_peer("no memory for an answer");
    core_.lose(peer_, FI_ENOMEM, true);
    return nullptr;
  }
  a->next = nullptr;
  a->kind = kind;
  a->failed = false;
  a->count = 0;
  a->status = 0;
  a->id = id;
  a->packets = 0;
  a->length = a->sent = 0;
  a->result = nullptr;
  a->counts = counts;
  if (counts) ++owed_;
  core_.want_room(peer_);
  Answer *&first = kind == Answer::Kind::kRead ? reads_ : answers_;
  Answer *&last = kind == Answer::Kind::kRead ? reads_last_ : answers_last_;
  (last != nullptr ? last->next : first) = a;
  last = a;
  return a;
}

void WeftConversation::free_answer(Answer &a) {
  if (a.result != nullptr) pools_.results.give(a.result);
  a.result = nullptr;
  pools_.answers.give(&a);
}

}  // namespace weft::rxd