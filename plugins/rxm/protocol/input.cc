// SPDX-License-Identifier: BSD-2-Clause
// Packets that arrive. Everything that a small message passes is in this file, with inbox.h.
#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

// A message of one packet. Inline: one that is expected passes only this.
[[gnu::always_inline]] inline bool Core::take_whole(Connection &c, const sdk::Message &message,
                                                    std::span<const uint8_t> payload,
                                                    Buffer &buffer) {
  return !inbox_.take(message, payload) && save_whole(c, message, payload, buffer);
}

// A message whose sender waits for word of it.
bool Core::take_awaited(Connection &c, const Packet &p, Tell asked, Buffer &buffer) {
  const sdk::Message message = message_of(c, p);
  if (inbox_.take(message, p.payload)) {
    tell(&c, p.message);
    return false;
  }
  RxMessage *m = new_message(c, RxMessage::Form::kWhole, message);
  if (m == nullptr) return false;
  const bool kept = inbox_.keep(c, *m, p.payload, buffer);
  m->received = p.payload.size();
  m->id = p.message;
  m->tell = asked;
  inbox_.save(*m);
  say(inbox_.saved_all(c, *m));
  return kept;
}

RxMessage *Core::new_message(Connection &c, RxMessage::Form form, const sdk::Message &message) {
  RxMessage *const m = inbox_.add(c, form, message);
  if (m == nullptr) fail_peer(c, Inbox::kNoMemory);
  return m;
}

void Core::say(const Inbox::Word &word) {
  if (word.always) return answer(*word.to, PacketType::kReadDone, word.id);
  tell(word.to, word.id);
}

// `c`: the connection on which a sender waits for word of its message `id`; null: none does.
void Core::tell(Connection *c, uint64_t id) {
  if (c == nullptr || down_ || !c->may_be_told()) return;
  Control *const control = new_control(*c, PacketType::kReadDone, id);
  if (control == nullptr) return;
  control->told = true;
  queue_control(*c, *control);
}

bool Core::save_whole(Connection &c, const sdk::Message &message, std::span<const uint8_t> payload,
                      Buffer &buffer) {
  RxMessage *m = new_message(c, RxMessage::Form::kWhole, message);
  if (m == nullptr) return false;
  m->received = payload.size();
  const bool kept = inbox_.keep(c, *m, payload, buffer);
  inbox_.save(*m);
  return kept;
}

bool Core::take_segment(Connection &c, const Packet &p, Buffer &buffer) {
  const Inbox::Taken taken = inbox_.take_segment(c, p, message_of(c, p), asked_of(c, p), buffer);
  if (taken.violation != nullptr) {
    fail_peer(c, taken.violation);
    return false;
  }
  say(taken.word);
  return taken.kept;
}

bool Core::on_packet(Connection &c, std::span<const uint8_t> bytes, Buffer &buffer) {
  if (c.state_ == State::kEnded) return false;  // the connection has ended
  const Parsed parsed = parse(bytes);
  if (parsed.reject != Reject::kNone) {
    fail_peer(c, text_of(parsed.reject));
    return false;
  }
  const Packet &p = parsed.packet;
  if (!c.heard_) hear(c);
  note_use(c, p);
  switch (p.type) {
    case PacketType::kEager:
      if (p.op == PacketOp::kTagged) c.tags_heard_.learn(p.tag);
      if (const Tell asked = asked_of(c, p); asked != Tell::kNothing) [[unlikely]]
        return take_awaited(c, p, asked, buffer);
      return take_whole(c, message_of(c, p), p.payload, buffer);
    case PacketType::kSegment:
      return take_segment(c, p, buffer);
    case PacketType::kRendezvous:
      return take_rendezvous(c, p, buffer);
    case PacketType::kReadDone:
      take_read_done(c, p);
      return false;
    case PacketType::kAtomic:
      take_atomic(c, p);
      return false;
    case PacketType::kAtomicResponse:
      take_response(c, p);
      return false;
    case PacketType::kCredit:
      if (p.credits > UINT32_MAX) {
        fail_peer(c, "an impossible number of credits");
        return false;
      }
      sender_.grant(c, p.credits);
      return false;
    case PacketType::kWriteTarget:
      take_target(c, p);
      return false;
    case PacketType::kPart:
      take_part(c, p);
      return false;
    case PacketType::kWriteDone:
      take_write_done(c, p);
      return false;
  }
  return false;
}

void Core::note_use(Connection &c, const Packet &p) {
  if (p.type == PacketType::kPart || p.type == PacketType::kCredit) return;
  idle_limit_.touch(c);
  if (p.type != PacketType::kSegment || p.segment == SegmentKind::kLast) c.set_useful();
}

// A message without a header.
void Core::note_message(Connection &c) {
  if (!c.heard_) hear(c);
  idle_limit_.touch(c);
  c.set_useful();
}

bool Core::on_bare_message(Connection &c, std::span<const uint8_t> bytes, uint32_t data,
                           Buffer &buffer) {
  if (c.state_ == State::kEnded) return false;
  const bool tagged = data != kBareUntagged;
  const std::optional<uint64_t> tag = tagged ? c.tags_heard_.tag_of(data) : 0;
  if (!settings_.bare || !tag || bytes.size() > settings_.eager_limit) {
    fail_peer(c, "a message without a header: not asked for, of unknown tag, or too long");
    return false;
  }
  note_message(c);
  const sdk::Message m{
      .tagged = tagged, .source = source_of(c), .tag = *tag, .length = bytes.size()};
  return take_whole(c, m, bytes, buffer);
}

bool Core::on_short_message(Connection &c, std::span<const uint8_t> bytes, bool has_data,
                            uint64_t data, uint64_t tag, Buffer &buffer) {
  if (c.state_ == State::kEnded) return false;
  note_message(c);
  const sdk::Message m{.tagged = true,
                       .has_data = has_data,
                       .source = source_of(c),
                       .tag = tag,
                       .data = data,
                       .length = bytes.size()};
  return take_whole(c, m, bytes, buffer);
}

sdk::Message Core::message_of(Connection &c, const Packet &p) const {
  return {.tagged = p.op == PacketOp::kTagged,
          .has_data = p.has_data,
          .source = source_of(c),
          .tag = p.tag,
          .data = p.data,
          .length = p.size};
}

void Core::take_response(Connection &c, const Packet &p) {
  TxOp *op = in_flight_.awaited(c, p.message);
  if (op == nullptr || op->form != TxOp::Form::kAtomic)
    return fail_peer(c, "an answer to an atomic that does not exist");
  const int err = atomics_.take_result(*op, p);
  if (err == Atomics::kWrongLength) return fail_peer(c, "an atomic's result of another length");
  in_flight_.end(*op, err);
}

void Core::take_atomic(Connection &c, const Packet &p) {
  Control *control = new_control(c, PacketType::kAtomicResponse, p.message);
  if (control == nullptr) return;
  atomics_.execute(p, *control);
  queue_control(c, *control);
}

void Core::deliver(RxMessage &m, sdk::Receive &receive) {
  m.receive = &receive;
  if (m.form != RxMessage::Form::kRendezvous) return say(inbox_.deliver(m));
  inbox_.deliver(m);
  fetch(m);
}

void Core::discard(RxMessage &m) {
  say(inbox_.discard(m, /*tells=*/!down_));
}

// The first bytes of a saved message, of which the application is told before it has a receive.
int Core::read_first(RxMessage &m, void *to, size_t n) {
  return m.form == RxMessage::Form::kRendezvous ? peek(m, to, n) : Inbox::read_first(m, to, n);
}

}  // namespace weft::rxm
