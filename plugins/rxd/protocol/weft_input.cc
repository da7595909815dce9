// SPDX-License-Identifier: BSD-2-Clause
// Packets from a weft peer: check them, put them in order, process their frames. A packet that
// violates the protocol ends the conversation. Messages and credit are here too.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd {
namespace {

constexpr uint32_t kMaxOwed = 512;         // operations; a correct peer stays far below
constexpr uint32_t kMaxMessages = 1024;    // credit of a peer whose messages are consumed
constexpr uint32_t kMaxCredit = 4096;      // KiB, the same
constexpr uint64_t kMinPullPackets = 128;  // with fewer large ones both sides wait in turns
constexpr uint64_t kMaxPullWindow = 16 << 20;

}  // namespace

bool WeftConversation::fail(const char *what) {
  char text[200];
  std::snprintf(text, sizeof text, "the connection with %s ends: it sent %s",
                peer_.address.to_string().c_str(), what);
  core_.upper().warn(text);
  core_.lose(peer_, FI_ECONNRESET, true);
  return false;
}

// ---- packets ----

bool WeftConversation::on_packet(std::span<const uint8_t> bytes, Buffer &buffer) {
  const auto parsed = wire::parse(bytes);
  if (!parsed) {
    ++core_.count().rejected;
    return false;
  }
  const wire::Packet &packet = *parsed;
  const bool is_data = packet.header.kind == wire::PacketKind::kData;
  const uint64_t number = is_data ? channel_.number_of(packet.header.sequence) : 0;
  if (packet.header.has(wire::kFlagChecksum) < checksum_ ||
      packet.header.has(wire::kFlagMac) != authentic_ || !wire::checksum_fits(packet) ||
      (authentic_ && !wire::mac_fits(*key_, packet, uint32_t(number >> 32)))) {
    ++core_.count().rejected;
    return false;
  }
  const uint64_t now = core_.carrier().now_ns();
  heard_at_ = now;
  channel_.heard(now);
  core_.trust(peer_);
  if (packet.header.has(wire::kFlagAcknowledgement)) {
    take_acknowledgement(packet.acknowledgement, now);
    if (peer_.losing) return false;
  }
  core_.want_idle(peer_);
  switch (packet.header.kind) {
    case wire::PacketKind::kData:
      return take_data(packet, bytes, buffer, now);
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
  core_.lose(peer_, FI_ECONNRESET, true);
  return false;
}

void WeftConversation::take_acknowledgement(const wire::Acknowledgement &ack, uint64_t now) {
  const bool sensible = channel_.on_acknowledgement(
      ack, now, [this](void *packet) { arrived(*static_cast<OutPacket *>(packet)); });
  if (!sensible) {
    fail("an acknowledgement of packets that were never sent");
    return;
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
                                 Buffer &buffer, uint64_t now) {
  const uint64_t number = channel_.number_of(packet.header.sequence);
  const bool ordered = packet.header.has(wire::kFlagOrdered);
  const Channel::Arrival arrival = channel_.look(number);
  if (arrival == Channel::Arrival::kDuplicate) {
    ++core_.count().duplicates;
    channel_.duplicate(packet.header, now);
    core_.want_room(peer_);
    return false;
  }
  if (arrival == Channel::Arrival::kOutside) return false;
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
      // No room: it counts as lost. Tell the peer which packets are missing before it.
      channel_.duplicate(packet.header, now);
      core_.want_room(peer_);
      return false;
    }
    channel_.accept(number, packet.header, now);
    core_.want_room(peer_);
    if (waits) {
      stalled_ = true;
      // The application may wait for these answers before it reads its completions.
      process(packet, Frames::kAnswers);
      end_settled();
    }
    return true;
  }
  channel_.accept(number, packet.header, now);
  if (channel_.owed() >= Channel::Owed::kSoon) core_.want_room(peer_);
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

// ---- messages ----

bool WeftConversation::is_new(uint32_t id) {
  if (id != their_next_id_) return fail("an operation out of order");
  ++their_next_id_;
  return true;
}

void WeftConversation::link(Incoming &m) {
  m.following = nullptr;
  m.previous = messages_last_;
  (messages_last_ != nullptr ? messages_last_->following : messages_) = &m;
  messages_last_ = &m;
}

void WeftConversation::unlink(Incoming &m) {
  (m.previous != nullptr ? m.previous->following : messages_) = m.following;
  (m.following != nullptr ? m.following->previous : messages_last_) = m.previous;
  m.previous = m.following = nullptr;
  if (hint_ == &m) hint_ = nullptr;
  if (m.wants_pull) {
    m.wants_pull = false;
    --pulls_;
  }
  if (m.target != 0 && --pulled_ == 0) --core_.pulling_;
}

// Conversations in which long messages are arriving share the room in the socket.
void WeftConversation::share() {
  const uint64_t packets =
      core_.carrier().receive_window() / seen_ / std::max(core_.pulling_, uint32_t{1});
  channel_.set_share(uint32_t(std::min<uint64_t>(packets, kWindow)));
}

Incoming *WeftConversation::find_incoming(uint32_t id) {
  if (hint_ != nullptr && hint_->id == id) return hint_;
  for (Incoming *m = messages_; m != nullptr; m = m->following) {
    if (m->id != id) continue;
    hint_ = m;
    return m;
  }
  return nullptr;
}

bool WeftConversation::take_message(const wire::MessageFrame &f, std::span<const uint8_t> payload) {
  if (!is_new(f.id)) return false;
  if (++came_ > granted_) return fail("more messages than its credit allows");
  const sdk::Message message{.tagged = f.tagged,
                             .has_data = f.has_data,
                             .source = core_.source_of(peer_),
                             .tag = f.tag,
                             .data = f.data,
                             .length = f.total};
  if (!f.announced) {
    Incoming *m = nullptr;
    bool lost = false;
    if (core_.inbox().whole(peer_, message, payload, m, lost)) {
      ++wanted_;
      wanted_bytes_ += payload.size();
      return !f.wants_done || owe(f.id, 0, false);
    }
    if (lost) {
      core_.upper().warn("no memory for a message that arrived");
      core_.lose(peer_, FI_ENOMEM, true);
      return false;
    }
    m->unasked = payload.size();
    held_ += payload.size();
    if (f.wants_done) {
      m->conversation = this;
      m->wants_done = true;
      m->id = f.id;
      link(*m);
    }
    if (held_ > most_held()) return fail("more bytes than its credit allows");
    return true;
  }
  Incoming *m = core_.inbox().begin(peer_, this, message, f.id);
  if (m == nullptr) {
    core_.upper().warn("no memory for a message that arrived");
    core_.lose(peer_, FI_ENOMEM, true);
    return false;
  }
  m->announced = true;
  m->wants_done = f.wants_done;
  link(*m);
  if (!core_.inbox().place(*m, 0, payload)) return fail("more bytes than its credit allows");
  if (m->receive == nullptr) {
    m->unasked = payload.size();
    held_ += payload.size();
    if (held_ > most_held()) return fail("more bytes than its credit allows");
    return true;
  }
  ++wanted_;
  wanted_bytes_ += payload.size();
  want(*m);
  return true;
}

// The message got a receive: decides how much of it to pull.
void WeftConversation::want(Incoming &m) {
  const uint64_t room = m.receive->length;
  // The first kPrefix bytes may come unasked, so they are always expected.
  m.target = std::min(m.message.length, std::max(room, kPrefix));
  if (m.target != 0 && pulled_++ == 0) {
    ++core_.pulling_;
    share();
  }
  if (m.arrived >= m.target) return complete(m);
  m.limit = m.arrived;
  pull(m);
}

void WeftConversation::pull(Incoming &m) {
  const uint64_t ahead = std::max<uint64_t>(pull_window_ / std::max(pulled_, 1U), kPrefix);
  const uint64_t limit = std::min(m.target, m.arrived + ahead);
  if (limit <= m.limit || (limit - m.limit < ahead / 4 && limit != m.target)) return;
  m.limit = limit;
  if (m.wants_pull) return;
  m.wants_pull = true;
  ++pulls_;
}

void WeftConversation::complete(Incoming &m) {
  const bool tells = m.wants_done || (m.announced && m.target != 0 && m.target != m.message.length);
  const uint32_t id = m.id;
  unlink(m);
  core_.inbox().finish(m, 0);
  if (tells) owe(id, 0, false);
}

bool WeftConversation::take_payload(const wire::DataFrame &f, std::span<const uint8_t> payload) {
  if (f.answers) {
    TxOp *op = find(f.id);
    if (op == nullptr || op->kind != TxOp::Kind::kRead) {
      if (int32_t(f.id - next_id_) < 0 && op == nullptr) return true;  // it has failed
      return fail("an answer that was not requested");
    }
    if (op->answered) return true;
    if (f.offset > op->length || payload.size() > op->length - f.offset)
      return fail("more data than were requested");
    scatter(op->iov, op->count, f.offset, payload.data(), payload.size());
    op->received += payload.size();
    if (op->received >= op->length) {
      op->answered = true;
      settle(*op);
    }
    return true;
  }
  if (Incoming *m = find_incoming(f.id)) {
    const uint64_t end = f.offset + payload.size();
    if (end > std::max(m->limit, std::min(m->message.length, kPrefix)) ||
        !core_.inbox().place(*m, f.offset, payload))
      return fail("data that were not requested");
    const uint64_t charged =
        f.offset < kPrefix ? std::min<uint64_t>(payload.size(), kPrefix - f.offset) : 0;
    if (m->receive == nullptr) {
      m->unasked += charged;
      held_ += charged;
      if (held_ > most_held()) return fail("more bytes than its credit allows");
      return true;
    }
    wanted_bytes_ += charged;
    epoch_bytes_ += payload.size();
    if (m->arrived >= m->target) {
      complete(*m);
    } else {
      pull(*m);
    }
    return true;
  }
  for (Remote *r = remotes_; r != nullptr; r = r->next) {
    if (r->id != f.id) continue;
    if (f.offset > r->length || payload.size() > r->length - f.offset)
      return fail("more data than the write has");
    const uint16_t status = core_.write_to({r->vectors, r->count}, f.offset, payload);
    r->arrived += payload.size();
    if (status != 0 || r->arrived >= r->length) return finish(*r, status);
    return true;
  }
  return true;  // data of an operation that is over
}

void WeftConversation::consumed(const Incoming &m) {
  ++wanted_;
  wanted_bytes_ += m.unasked;
  held_ -= std::min(held_, m.unasked);
  grant();
  // Send the new credit if the peer has run out of credit, or soon will.
  const auto is_short = [](uint64_t told, uint64_t used, uint64_t granted, uint64_t first) {
    const uint64_t left = told > used ? told - used : 0;
    return granted > told &&
           (left <= first / 16 || (left < first / 2 && granted - told >= first / 4));
  };
  if (!is_short(told_, came_, granted_, kFirstMessages) &&
      !is_short(told_kib_, (held_ + wanted_bytes_) >> 10, granted_kib_, kFirstCredit))
    return;
  tell_credit_ = true;
  core_.want_idle(peer_);
}

// Upper bound of the unexpected bytes of one peer, for any amount of credit that was ever granted.
uint64_t WeftConversation::most_held() const {
  return core_.inbox().limit() + (uint64_t{kMaxCredit} << 10);
}

// Grants as much as was consumed and a fixed amount more, so that a peer whose messages are
// received goes on, however much room the messages of others take. While the endpoint has room for
// unexpected messages, a peer always gets some credit: the message that the application waits for
// may be behind many that it does not want.
void WeftConversation::grant() {
  const Inbox &inbox = core_.inbox();
  const bool roomy = inbox.bytes() < inbox.limit() / 2;
  const uint32_t messages = roomy && wanted_ >= kFirstMessages / 2 ? kMaxMessages : kFirstMessages;
  const uint32_t kib =
      roomy && wanted_bytes_ >= uint64_t{kFirstCredit} << 9 ? kMaxCredit : kFirstCredit;
  granted_ = std::max(granted_, wanted_ + messages);
  granted_kib_ = std::max(granted_kib_, (wanted_bytes_ >> 10) + kib);
  if (!roomy) return;
  granted_ = std::max(granted_, came_ + kFirstMessages);
  granted_kib_ = std::max(granted_kib_, ((wanted_bytes_ + held_) >> 10) + kFirstCredit);
}

void WeftConversation::fetch(Incoming &m) {
  consumed(m);
  if (m.announced) {
    want(m);
  } else {
    complete(m);
  }
  pump();
}

void WeftConversation::discard(Incoming &m) {
  consumed(m);
  const bool tells = m.wants_done || m.announced;
  const uint32_t id = m.id;
  unlink(m);
  core_.inbox().drop(m);
  if (tells) owe(id, 0, false);
  pump();
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
  not_ready(*op);
  settle(*op);
  return true;
}

// ---- answers to the peer ----

Answer *WeftConversation::new_answer(Answer::Kind kind, uint32_t id, bool counts) {
  Answer *a = pools_.answers.take();
  if (a == nullptr) {
    core_.upper().warn("no memory for an answer");
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