// SPDX-License-Identifier: BSD-2-Clause
// Arriving packets, messages of one packet, and saved (unexpected) messages. Everything that a small
// message passes is in this file.
#include <rdma/fi_errno.h>
#include <weft/sdk/av.h>
#include <weft/sdk/iov.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

using sdk::scatter;

namespace {

constexpr size_t kKeptParts = 8;  // entries of RxMessage::parts that stay allocated in the pool

}  // namespace

// Puts the first `n` bytes into the memory of a receive. 0 or FI_EIO: a device has failed.
[[gnu::always_inline]] inline int Core::place_whole(const sdk::Receive &r,
                                                    std::span<const uint8_t> payload,
                                                    size_t n) const {
  if (settings_.hmem != nullptr)
    return sdk::hmem_scatter(settings_.hmem, r.iov, r.count, 0, payload.data(), n) ? 0 : FI_EIO;
  if (r.count == 1 && n > 0) {  // memcpy must not get a null pointer, even for 0 bytes
    std::memcpy(r.iov[0].iov_base, payload.data(), n);
  } else {
    scatter(r.iov, r.count, 0, payload.data(), n);
  }
  return 0;
}

// Inline: a message that is expected passes only this.
[[gnu::always_inline]] inline bool Core::take_whole(Connection &c, const sdk::Message &message,
                                                    std::span<const uint8_t> payload,
                                                    Buffer &buffer) {
  sdk::Receiver &receiver = upper_.receiver();
  sdk::Receive *const r = receiver.match(message);
  if (r == nullptr) return save_whole(c, message, payload, buffer);
  const size_t n = std::min<size_t>(payload.size(), r->length);
  receiver.complete(*r, message, n, place_whole(*r, payload, n));
  return false;
}

// A message whose sender waits for word of it.
bool Core::take_awaited(Connection &c, const Packet &p, Tell asked, Buffer &buffer) {
  const sdk::Message message = message_of(c, p);
  sdk::Receiver &receiver = upper_.receiver();
  if (sdk::Receive *const r = receiver.match(message)) {
    const size_t n = std::min<size_t>(p.payload.size(), r->length);
    receiver.complete(*r, message, n, place_whole(*r, p.payload, n));
    tell(&c, p.message);
    return false;
  }
  RxMessage *m = new_message(c, RxMessage::Form::kWhole, message);
  if (m == nullptr) return false;
  counters_.saved.add_alone();
  const bool kept = keep(c, *m, p.payload, buffer);
  m->received = p.payload.size();
  m->id = p.message;
  m->tell = asked;
  receiver.save(*m);
  tell_saved(c, *m);
  return kept;
}

// The message is complete and saved, and in no list of the connection.
void Core::tell_saved(Connection &c, RxMessage &m) {
  if (m.tell == Tell::kNothing) return;
  m.form = RxMessage::Form::kWhole;
  if (m.tell == Tell::kMatched) {
    m.connection = &c;
    return c.matchless_.add(m);
  }
  m.tell = Tell::kNothing;
  tell(&c, m.id);
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
  counters_.saved.add_alone();
  const bool kept = keep(c, *m, payload, buffer);
  m->received = payload.size();
  upper_.receiver().save(*m);
  return kept;
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
  c.useful_ |= p.type != PacketType::kSegment || p.segment == SegmentKind::kLast;
}

// A message without a header.
void Core::note_message(Connection &c) {
  if (!c.heard_) hear(c);
  idle_limit_.touch(c);
  c.useful_ = true;
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

RxMessage *Core::new_message(Connection &c, RxMessage::Form form, const sdk::Message &message) {
  RxMessage *m = messages_.take();
  if (m == nullptr) {
    fail_peer(c, "more messages than there is memory for");
    return nullptr;
  }
  m->kind = Token::Kind::kMessage;
  m->form = form;
  m->message = message;
  m->tag = message.tag;
  m->source = message.source;
  m->discarded = m->over = m->waits = m->failed = m->peeks = m->peeked = false;
  m->tell = Tell::kNothing;
  m->count = m->next_vector = m->exposed = 0;
  m->err = 0;
  m->tokens = 0;
  m->next_segment = 0;
  m->from = &c.peer_;
  ++c.peer_.kept_;
  m->connection = nullptr;
  m->receive = nullptr;
  m->received = 0;
  m->charged = 0;
  if (form != RxMessage::Form::kWhole) {
    m->connection = &c;
    c.list_of(*m).add(*m);
  }
  return m;
}

void Core::free_message(RxMessage &m) {
  drop_parts(m);
  while (m.exposed != 0) carrier_.conceal(*m.registrations[--m.exposed]);
  if (m.waits) std::erase(fetching_, &m);
  unlist(m);
  Peer &p = *m.from;
  if (--p.kept_ == 0 && p.connections_ == nullptr) note_unused(p);
  messages_.give(&m);
}

void Core::unlist(RxMessage &m) {
  Connection *c = std::exchange(m.connection, nullptr);
  if (c == nullptr) return;
  c->list_of(m).remove(m);
  if (m.form == RxMessage::Form::kSegments) --c->unfinished_count_;
}

void Core::drop_parts(RxMessage &m) {
  for (RxMessage::Part &part : m.parts) {
    if (part.buffer == nullptr) continue;
    shares_.add_buffers(*m.from, -1);
    carrier_.release(*part.buffer);
  }
  m.parts.clear();
  if (m.parts.capacity() > kKeptParts) std::vector<RxMessage::Part>().swap(m.parts);
  shares_.charge(*m.from, -int64_t(m.charged));
  m.charged = 0;
}

void Core::place(RxMessage &m, uint64_t at, std::span<const uint8_t> bytes) {
  const sdk::Receive &r = *m.receive;
  if (at >= r.length) return;
  if (!sdk::hmem_scatter(settings_.hmem, r.iov, r.count, at, bytes.data(),
                         std::min<uint64_t>(bytes.size(), r.length - at)) &&
      m.err == 0)
    m.err = FI_EIO;
}

void Core::finish(RxMessage &m, int err) {
  sdk::Receive *r = m.receive;
  const sdk::Message message = m.message;
  const size_t received = size_t(std::min<uint64_t>(m.received, r->length));
  Connection *const waiting = m.tell != Tell::kNothing ? m.connection : nullptr;
  const uint64_t id = m.id;
  free_message(m);
  upper_.receiver().complete(*r, message, received, err);
  tell(waiting, id);
}

// Saves bytes of an unexpected message. True: in the receive buffer; false: in a copy, or nothing
// to save.
bool Core::keep(Connection &c, RxMessage &m, std::span<const uint8_t> bytes, Buffer &buffer) {
  counters_.saved_bytes.add_alone(bytes.size());
  const uint64_t cost = sizeof(RxMessage) + bytes.size();
  Peer &p = *m.from;
  const bool greedy = shares_.takes_too_much(p), within = shares_.may_charge(p, cost);
  const bool scarce = bytes.empty() || carrier_.buffers_low() || greedy;
  if (greedy && !within) shares_.hold_all(p);
  // A held connection still brings the packets that the carrier has read already, at most as many
  // as there are buffers. Copy them past the limit, to leave the free buffers to other peers.
  if (scarce && (c.held_ || within)) {
    std::unique_ptr<uint8_t[]> copy(bytes.empty() ? nullptr
                                                  : new (std::nothrow) uint8_t[bytes.size()]);
    if (copy != nullptr || bytes.empty()) {
      charge(m, cost);
      if (bytes.empty()) return false;
      counters_.copied.add_alone();
      std::memcpy(copy.get(), bytes.data(), bytes.size());
      const uint8_t *at = copy.get();
      m.parts.push_back({nullptr, std::move(copy), at, bytes.size()});
      return false;
    }
  }
  // Past the limit keep the buffer, even for a message without bytes: when no buffers are left, a
  // carrier that cannot hold single links stops reading all of them.
  m.parts.push_back({&buffer, nullptr, bytes.data(), bytes.size()});
  shares_.add_buffers(p, 1);
  return true;
}

void Core::deliver(RxMessage &m, sdk::Receive &receive) {
  m.receive = &receive;
  switch (m.form) {
    case RxMessage::Form::kRendezvous:
      drop_parts(m);
      return fetch(m);
    case RxMessage::Form::kWhole:
    case RxMessage::Form::kSegments: {
      uint64_t at = 0;
      for (const RxMessage::Part &part : m.parts) {
        place(m, at, {part.bytes, part.length});
        at += part.length;
      }
      drop_parts(m);
      if (m.connection == nullptr || m.form == RxMessage::Form::kWhole) finish(m, m.err);
      return;
    }
  }
}

void Core::discard(RxMessage &m) {
  drop_parts(m);
  if (m.form == RxMessage::Form::kSegments && m.connection != nullptr) {
    m.discarded = true;  // more segments are coming
    return;
  }
  if (m.form != RxMessage::Form::kSegments && m.connection != nullptr && !down_) {
    // The sender waits for an answer, and a negative one does not exist.
    Connection *const waiting = m.connection;
    const uint64_t id = m.id;
    const bool whole = m.form == RxMessage::Form::kWhole;
    free_message(m);
    return whole ? tell(waiting, id) : answer(*waiting, PacketType::kReadDone, id);
  }
  if (m.peeks && m.tokens != 0) {  // reads may still write to the memory
    m.discarded = m.over = true;
    return;
  }
  if (m.peeks) end_peek(m);
  free_message(m);
}

// The first bytes of a saved message, of which the application is told before it has a receive.
int Core::read_first(RxMessage &m, void *to, size_t n) {
  if (m.form == RxMessage::Form::kRendezvous) return peek(m, to, n);
  if (m.err != 0) return -m.err;
  if (m.received < n) return -FI_EAGAIN;
  auto *at = static_cast<uint8_t *>(to);
  for (const RxMessage::Part &part : m.parts) {
    const size_t k = std::min(n, part.length);
    if (k != 0) std::memcpy(at, part.bytes, k);
    at += k;
    n -= k;
  }
  return 0;
}

// The connection of this message ended.
void Core::lose(RxMessage &m, int err) {
  m.tell = Tell::kNothing;
  if (m.peeks && m.tokens == 0) end_peek(m);
  if (m.discarded) return free_message(m);
  if (m.receive == nullptr) {
    // Keep it as a failed message in its place in the order: complete messages of the peer are
    // behind it, and the receive that matches it gets the error. It still counts against the limit,
    // so that peers that come and die cannot fill the memory.
    drop_parts(m);
    if (!shares_.may_charge(*m.from, sizeof(RxMessage))) {
      upper_.receiver().forget(m);
      return free_message(m);
    }
    while (m.exposed != 0) carrier_.conceal(*m.registrations[--m.exposed]);
    unlist(m);
    m.form = RxMessage::Form::kWhole;
    m.received = 0;
    m.err = err;
    charge(m, sizeof(RxMessage));
    if (m.waits_for_bytes()) upper_.receiver().on_more(m);
    return;
  }
  if (m.tokens != 0) {  // reads may still write to the receive's memory
    unlist(m);
    m.over = true;
    if (m.err == 0) m.err = err;
    if (m.waits) {
      m.waits = false;
      std::erase(fetching_, &m);
    }
    return;
  }
  if (m.form == RxMessage::Form::kRendezvous) m.received = 0;
  finish(m, err);
}

void Core::lose_messages(Connection &c, int err) {
  for (RxMessage *m : {c.messages_.first, c.unfinished_.first})
    while (m != nullptr) lose(*std::exchange(m, m->following), err);
}

void Core::charge(RxMessage &m, uint64_t bytes) {
  m.charged += bytes;
  shares_.charge(*m.from, int64_t(bytes));
}

}  // namespace weft::rxm
