// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/inbox.h"

#include <memory>
#include <new>
#include <utility>

namespace weft::rxm {

namespace {

constexpr size_t kKeptParts = 8;  // entries of RxMessage::parts that stay allocated in the pool
constexpr size_t kMaxUnfinished = 64;  // segmented messages arriving at once on one connection

}  // namespace

Inbox::Inbox(Carrier &carrier, Upper &upper, const Settings &settings, Counters &counters,
             Peers &peers, Shares &shares, Fetches &fetches)
    : carrier_(carrier),
      upper_(upper),
      settings_(settings),
      counters_(counters),
      peers_(peers),
      shares_(shares),
      fetches_(fetches) {}

Inbox::~Inbox() {
  for (const Connection *c : peers_.connections()) {
    RxMessage *m = c != nullptr ? c->arriving.rendezvous_.first : nullptr;
    for (; m != nullptr; m = m->following) fetches_.conceal(*m);
  }
}

RxMessage *Inbox::add(Connection &c, RxMessage::Form form, const sdk::Message &message) {
  RxMessage *m = pool_.take();
  if (m == nullptr) return nullptr;
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
  m->from = &c.peer();
  ++c.peer().kept_;
  m->connection = nullptr;
  m->receive = nullptr;
  m->received = 0;
  m->charged = 0;
  if (form != RxMessage::Form::kWhole) {
    m->connection = &c;
    c.arriving.list_of(*m).add(*m);
  }
  return m;
}

void Inbox::free(RxMessage &m) {
  drop_parts(m);
  fetches_.conceal(m);
  fetches_.stop_waiting(m);
  unlist(m);
  Peer &p = *m.from;
  if (--p.kept_ == 0 && p.connections() == nullptr) peers_.note_unused(p);
  pool_.give(&m);
}

void Inbox::unlist(RxMessage &m) {
  Connection *c = std::exchange(m.connection, nullptr);
  if (c == nullptr) return;
  c->arriving.list_of(m).remove(m);
  if (m.form == RxMessage::Form::kSegments) --c->arriving.unfinished_count_;
}

// ---- what is kept ----

void Inbox::charge(RxMessage &m, uint64_t bytes) {
  m.charged += bytes;
  shares_.charge(*m.from, int64_t(bytes));
}

bool Inbox::keep(const Connection &c, RxMessage &m, std::span<const uint8_t> bytes,
                 Buffer &buffer) {
  counters_.saved_bytes.add_alone(bytes.size());
  const uint64_t cost = sizeof(RxMessage) + bytes.size();
  Peer &p = *m.from;
  const bool greedy = shares_.takes_too_much(p), within = shares_.may_charge(p, cost);
  const bool scarce = bytes.empty() || carrier_.buffers_low() || greedy;
  if (greedy && !within) shares_.hold_all(p);
  // A held connection still brings the packets that the carrier has read already, at most as many
  // as there are buffers. Copy them past the limit, to leave the free buffers to other peers.
  if (scarce && (c.is_held() || within)) {
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

void Inbox::drop_parts(RxMessage &m) {
  for (Part &part : m.parts) {
    if (part.buffer == nullptr) continue;
    shares_.add_buffers(*m.from, -1);
    carrier_.release(*part.buffer);
  }
  m.parts.clear();
  if (m.parts.capacity() > kKeptParts) std::vector<Part>().swap(m.parts);
  shares_.charge(*m.from, -int64_t(m.charged));
  m.charged = 0;
}

void Inbox::save(RxMessage &m) {
  counters_.saved.add_alone();
  upper_.receiver().save(m);
}

Inbox::Word Inbox::saved_all(Connection &c, RxMessage &m) {
  if (m.tell == Tell::kNothing) return {};
  m.form = RxMessage::Form::kWhole;
  if (m.tell == Tell::kMatched) {
    m.connection = &c;
    c.arriving.matchless_.add(m);
    return {};
  }
  m.tell = Tell::kNothing;
  return {&c, m.id};
}

// ---- segments ----

void Inbox::place(RxMessage &m, uint64_t at, std::span<const uint8_t> bytes) const {
  const sdk::Receive &r = *m.receive;
  if (at >= r.length) return;
  if (!sdk::hmem_scatter(settings_.hmem, r.iov, r.count, at, bytes.data(),
                         std::min<uint64_t>(bytes.size(), r.length - at)) &&
      m.err == 0)
    m.err = FI_EIO;
}

// The message that this segment belongs to, or begins. Not null: what is wrong with it.
const char *Inbox::find_segment(Connection &c, const Packet &p, const sdk::Message &message,
                                Tell asked, RxMessage *&m) {
  // A sender may reuse the id after the last segment, even if no receive has matched by then.
  m = c.arriving.unfinished_.first;
  while (m != nullptr && m->id != p.message) m = m->following;
  const bool first = p.segment == SegmentKind::kFirst;
  if (first != (m == nullptr))
    return first ? "the first segment of a message twice" : "a segment without the first";
  if (first) {
    // A correct peer sends all segments of a message before the next one, so it is far from this.
    if (c.arriving.unfinished_count_ == kMaxUnfinished)
      return "too many segmented messages at once";
    m = add(c, RxMessage::Form::kSegments, message);
    if (m == nullptr) return kNoMemory;
    ++c.arriving.unfinished_count_;
    m->id = p.message;
    m->tell = asked;
    m->receive = upper_.receiver().match(message);
    if (m->receive == nullptr) save(*m);
  } else if (p.segment_number != m->next_segment || p.size != m->message.length) {
    return "a segment out of order";
  }
  if (p.payload.size() > m->message.length - m->received ||
      (p.segment == SegmentKind::kLast) != (m->received + p.payload.size() == m->message.length))
    return "segments that do not add up to the length of their message";
  return nullptr;
}

Inbox::Taken Inbox::take_segment(Connection &c, const Packet &p, const sdk::Message &message,
                                 Tell asked, Buffer &buffer) {
  Taken taken;
  RxMessage *m = nullptr;
  taken.violation = find_segment(c, p, message, asked, m);
  if (taken.violation != nullptr) return taken;
  if (m->receive != nullptr) {
    place(*m, m->received, p.payload);
  } else if (!m->discarded) {
    taken.kept = keep(c, *m, p.payload, buffer);
  }
  m->received += p.payload.size();
  ++m->next_segment;
  if (p.segment == SegmentKind::kLast) {
    end_segments(c, *m, taken);
  } else if (m->waits_for_bytes()) {
    upper_.receiver().on_more(*m);
  }
  return taken;
}

void Inbox::end_segments(Connection &c, RxMessage &m, Taken &taken) {
  if (m.receive != nullptr) {
    taken.word = finish(m, m.err);
  } else if (m.discarded) {
    if (m.tell != Tell::kNothing) taken.word = {&c, m.id};
    free(m);
  } else {
    unlist(m);
    taken.word = saved_all(c, m);
    if (m.waits_for_bytes()) upper_.receiver().on_more(m);
  }
}

// ---- rendezvous ----

RxMessage *Inbox::written(const Connection &c, uint64_t id) {
  RxMessage *m = c.arriving.rendezvous_.first;
  // Only a message for which we named a target: others are still being read into.
  while (m != nullptr && (m->id != id || (m->exposed == 0 && !m->failed))) m = m->following;
  return m;
}

// ---- the receiver wants it, or not ----

Inbox::Word Inbox::deliver(RxMessage &m) {
  if (m.form != RxMessage::Form::kRendezvous) {
    uint64_t at = 0;
    for (const Part &part : m.parts) {
      place(m, at, {part.bytes, part.length});
      at += part.length;
    }
  }
  drop_parts(m);
  const bool ends =
      m.form == RxMessage::Form::kWhole ||
      (m.form == RxMessage::Form::kSegments && m.connection == nullptr);  // no more is to come
  return ends ? finish(m, m.err) : Word{};
}

Inbox::Word Inbox::discard(RxMessage &m, bool tells) {
  drop_parts(m);
  if (m.form == RxMessage::Form::kSegments && m.connection != nullptr) {
    m.discarded = true;  // more segments are coming
    return {};
  }
  if (m.form != RxMessage::Form::kSegments && m.connection != nullptr && tells) {
    // The sender waits for an answer, and a negative one does not exist.
    const Word word{m.connection, m.id, m.form == RxMessage::Form::kRendezvous};
    free(m);
    return word;
  }
  if (m.peeks && m.tokens != 0) {  // reads may still write to the memory
    m.discarded = m.over = true;
    return {};
  }
  if (m.peeks) fetches_.end_peek(m);
  free(m);
  return {};
}

int Inbox::read_first(const RxMessage &m, void *to, size_t n) {
  if (m.err != 0) return -m.err;
  if (m.received < n) return -FI_EAGAIN;
  auto *at = static_cast<uint8_t *>(to);
  for (const Part &part : m.parts) {
    const size_t k = std::min(n, part.length);
    if (k != 0) std::memcpy(at, part.bytes, k);
    at += k;
    n -= k;
  }
  return 0;
}

Inbox::Word Inbox::finish(RxMessage &m, int err) {
  sdk::Receive *r = m.receive;
  const sdk::Message message = m.message;
  const size_t received = size_t(std::min<uint64_t>(m.received, r->length));
  const Word word{m.tell != Tell::kNothing ? m.connection : nullptr, m.id};
  free(m);
  upper_.receiver().complete(*r, message, received, err);
  return word;
}

// ---- the connection ends ----

void Inbox::lose(RxMessage &m, int err) {
  m.tell = Tell::kNothing;
  if (m.peeks && m.tokens == 0) fetches_.end_peek(m);
  if (m.discarded) return free(m);
  if (m.receive == nullptr) {
    // Keep it as a failed message in its place in the order: complete messages of the peer are
    // behind it, and the receive that matches it gets the error. It still counts against the limit,
    // so that peers that come and die cannot fill the memory.
    drop_parts(m);
    if (!shares_.may_charge(*m.from, sizeof(RxMessage))) {
      upper_.receiver().forget(m);
      return free(m);
    }
    fetches_.conceal(m);
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
    return fetches_.stop_waiting(m);
  }
  if (m.form == RxMessage::Form::kRendezvous) m.received = 0;
  finish(m, err);
}

void Inbox::lose_all(Connection &c, int err) {
  for (RxMessage *m : {c.arriving.rendezvous_.first, c.arriving.unfinished_.first})
    while (m != nullptr) lose(*std::exchange(m, m->following), err);
}

void Inbox::untie(Connection &c) {
  while (RxMessage *const m = c.arriving.matchless_.first) unlist(*m);
}

void Inbox::rename(const Peer &p, uint32_t before, uint32_t now) {
  for (const Connection *c = p.connections(); c != nullptr; c = c->next())
    for (RxMessage *m : {c->arriving.rendezvous_.first, c->arriving.unfinished_.first})
      for (; m != nullptr; m = m->following)
        if (m->receive != nullptr && m->message.source == before) m->message.source = now;
  upper_.receiver().rename_source(before, now);
}

}  // namespace weft::rxm
