// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/arrivals.h"

#include <algorithm>

namespace weft::rxd {

// ---- the list ----

void Arrivals::append(Incoming &m) {
  m.following = nullptr;
  m.previous = last_;
  (last_ != nullptr ? last_->following : first_) = &m;
  last_ = &m;
}

void Arrivals::remove(Incoming &m) {
  (m.previous != nullptr ? m.previous->following : first_) = m.following;
  (m.following != nullptr ? m.following->previous : last_) = m.previous;
  m.previous = m.following = nullptr;
  if (hint_ == &m) hint_ = nullptr;
  if (m.wants_pull) {
    m.wants_pull = false;
    --pulls_;
  }
  if (m.target != 0 && --arriving_ == 0) --link_.pools.pulling;
}

Incoming *Arrivals::find(uint32_t id) {
  if (hint_ != nullptr && hint_->id == id) return hint_;
  for (Incoming *m = first_; m != nullptr; m = m->following) {
    if (m->id != id) continue;
    hint_ = m;
    return m;
  }
  return nullptr;
}

// ---- messages come ----

bool Arrivals::take(const wire::MessageFrame &f, std::span<const uint8_t> payload) {
  if (!grants_.begin()) return link_.violated("more messages than its credit allows");
  const sdk::Message message{.tagged = f.tagged,
                             .has_data = f.has_data,
                             .source = link_.core.source_of(link_.peer),
                             .tag = f.tag,
                             .data = f.data,
                             .length = f.total};
  return f.announced ? take_first(f, message, payload) : take_whole(f, message, payload);
}

bool Arrivals::take_whole(const wire::MessageFrame &f, const sdk::Message &message,
                          std::span<const uint8_t> payload) {
  Incoming *m = nullptr;
  bool lost = false;
  if (link_.core.inbox().whole(link_.peer, message, payload, m, lost)) {
    grants_.consume(payload.size());
    return !f.wants_done || answers_.done(f.id, 0, false);
  }
  if (lost) return link_.no_memory("no memory for a message that arrived");
  if (f.wants_done) {
    m->conversation = &owner_;
    m->wants_done = true;
    m->id = f.id;
    append(*m);
  }
  return hold(*m, payload.size()) || link_.violated("more bytes than its credit allows");
}

bool Arrivals::take_first(const wire::MessageFrame &f, const sdk::Message &message,
                          std::span<const uint8_t> payload) {
  Incoming *m = link_.core.inbox().begin(link_.peer, &owner_, message, f.id);
  if (m == nullptr) return link_.no_memory("no memory for a message that arrived");
  m->announced = true;
  m->wants_done = f.wants_done;
  append(*m);
  if (!link_.core.inbox().place(*m, 0, payload))
    return link_.violated("more bytes than its credit allows");
  if (m->receive == nullptr) {
    if (!hold(*m, payload.size())) return link_.violated("more bytes than its credit allows");
    if (m->waits_for_bytes()) link_.core.upper().receiver().on_more(*m);
    return true;
  }
  grants_.consume(payload.size());
  want(*m);
  return true;
}

bool Arrivals::take(Incoming &m, const wire::DataFrame &f, std::span<const uint8_t> payload) {
  const uint64_t end = f.offset + payload.size();
  if (end > std::max(m.limit, std::min(m.message.length, kPrefix)) ||
      !link_.core.inbox().place(m, f.offset, payload))
    return link_.violated("data that were not requested");
  const uint64_t charged =
      f.offset < kPrefix ? std::min<uint64_t>(payload.size(), kPrefix - f.offset) : 0;
  if (m.receive == nullptr) {
    if (!hold(m, charged) && end > m.limit)
      return link_.violated("more bytes than its credit allows");
    if (m.waits_for_bytes()) link_.core.upper().receiver().on_more(m);
    return true;
  }
  grants_.consume_more(charged);
  window_.arrived(payload.size());
  if (m.arrived >= m.target) {
    complete(m);
  } else {
    pull(m);
  }
  return true;
}

// The sender counts the bytes of a message as it sends them, also if it was discarded meanwhile.
// (It does not count those of a write, and gets a little too much.)
void Arrivals::take_late(const wire::DataFrame &f, size_t n) {
  if (f.offset >= kPrefix) return;
  grants_.consume_more(std::min<uint64_t>(n, kPrefix - f.offset));
  raise_credit();
}

void Arrivals::complete(Incoming &m) {
  if (m.landing != nullptr && link_.waits_for_copies(*m.landing)) return;
  const bool tells = m.wants_done || (m.announced && m.target != 0 && m.target != m.message.length);
  const uint32_t id = m.id;
  remove(m);
  link_.core.inbox().finish(m, 0);
  if (tells) answers_.done(id, 0, false);
}

// ---- pulls ----

// The message got a receive: decides how much of it to pull.
void Arrivals::want(Incoming &m) {
  const uint64_t room = m.receive->length;
  // The first kPrefix bytes may come unasked, so they are always expected.
  m.target = std::min(m.message.length, std::max(room, kPrefix));
  if (m.target != 0 && arriving_++ == 0) {
    ++link_.pools.pulling;
    share();
  }
  if (m.arrived >= m.target) return complete(m);
  m.limit = m.arrived;
  pull(m);
}

void Arrivals::pull(Incoming &m) {
  const uint64_t limit = window_.limit(m.limit, m.arrived, m.target, arriving_);
  if (limit == m.limit) return;
  m.limit = limit;
  want_pull(m);
}

void Arrivals::add_pulls(wire::Writer &w) {
  for (Incoming *m = first_; m != nullptr && pulls_ != 0; m = m->following) {
    if (!m->wants_pull) continue;
    if (!w.pull({.id = m->id, .limit = m->limit})) return;
    m->wants_pull = false;
    --pulls_;
  }
}

// Conversations in which long messages are arriving share the room in the socket.
void Arrivals::share() {
  link_.channel.set_share(
      window_.share(link_.core.carrier().receive_window(), link_.pools.pulling));
}

// ---- receives ----

void Arrivals::fetch(Incoming &m) {
  consumed(m);
  if (m.announced) {
    want(m);
  } else {
    complete(m);
  }
}

// They come unasked if the peer has credit for them, which is not known here.
void Arrivals::fetch_first(Incoming &m, size_t n) {
  if (!m.announced || m.limit >= n) return;
  m.limit = n;
  link_.want_idle();
  want_pull(m);
}

void Arrivals::discard(Incoming &m) {
  consumed(m);
  const bool tells = m.wants_done || m.announced;
  const uint32_t id = m.id;
  remove(m);
  link_.core.inbox().drop(m);
  if (tells) answers_.done(id, 0, false);
}

// New credit is sent at once if the peer has run out of it, or soon will.
void Arrivals::raise_credit() {
  if (grants_.raise(link_.inbox_room())) link_.want_idle();
}

void Arrivals::end(int err) {
  while (Incoming *m = first_) {
    first_ = m->following;
    m->following = m->previous = nullptr;
    m->conversation = nullptr;
    const bool all = m->receive == nullptr && m->arrived == m->message.length;
    if (all) {
      link_.core.inbox().finish(*m, 0);
    } else {
      link_.core.inbox().orphan(*m, err);
    }
  }
  last_ = hint_ = nullptr;
  if (arriving_ != 0) --link_.pools.pulling;
  arriving_ = pulls_ = 0;
}

}  // namespace weft::rxd
