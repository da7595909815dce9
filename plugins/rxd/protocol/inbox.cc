// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/inbox.h"

#include <rdma/fi_errno.h>

#include <new>

#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/protocol/device_copies.h"

namespace weft::rxd {

bool Inbox::whole(Peer &peer, const sdk::Message &message, std::span<const uint8_t> payload,
                  Incoming *&m, bool &lost) {
  sdk::Receiver &receiver = core_.upper().receiver();
  lost = false;
  m = nullptr;
  if (sdk::Receive *r = receiver.match(message)) {
    const size_t n = std::min<size_t>(payload.size(), r->length);
    int err = 0;
    if (core_.hmem() != nullptr) {
      if (!sdk::hmem_scatter(core_.hmem(), r->iov, r->count, 0, payload.data(), n)) err = FI_EIO;
    } else if (r->count == 1 &&
               n > 0) {  // memcpy must not get a null pointer, not even for 0 bytes
      std::memcpy(r->iov[0].iov_base, payload.data(), n);
    } else {
      scatter(r->iov, r->count, 0, payload.data(), n);
    }
    receiver.complete(*r, message, n, err);
    return true;
  }
  m = messages_.take();
  if (m == nullptr) {
    lost = true;
    return false;
  }
  m->message = message;
  m->tag = message.tag;
  m->source = message.source;
  m->conversation = nullptr;
  m->peer = &peer;
  m->receive = nullptr;
  m->announced = m->discarded = m->wants_done = m->wants_pull = false;
  m->err = 0;
  m->limit = m->target = m->unasked = m->charged = m->room = 0;
  m->kept = nullptr;
  if (!make_room(*m, payload.size())) {
    messages_.give(m);
    m = nullptr;
    lost = true;
    return false;
  }
  core_.counters().saved.add_alone();
  core_.counters().saved_bytes.add_alone(payload.size());
  if (!payload.empty()) std::memcpy(m->kept, payload.data(), payload.size());
  m->arrived = m->end = payload.size();
  m->saved = true;
  ++peer.saved;
  charge(*m, sizeof(Incoming));
  receiver.save(*m);
  return false;
}

Incoming *Inbox::make(Peer &peer, Conversation *conversation, const sdk::Message &message,
                      uint32_t id) {
  Incoming *m = messages_.take();
  if (m == nullptr) return nullptr;
  m->message = message;
  m->tag = message.tag;
  m->source = message.source;
  m->conversation = conversation;
  m->peer = &peer;
  m->previous = m->following = nullptr;
  m->announced = m->discarded = m->wants_done = m->wants_pull = false;
  m->id = id;
  m->err = 0;
  m->arrived = m->end = m->limit = m->target = m->first = m->unasked = m->charged = m->room = 0;
  m->kept = nullptr;
  m->receive = nullptr;
  m->saved = false;
  return m;
}

Incoming *Inbox::begin(Peer &peer, Conversation *conversation, const sdk::Message &message,
                       uint32_t id) {
  Incoming *m = make(peer, conversation, message, id);
  if (m == nullptr) return nullptr;
  m->receive = core_.upper().receiver().match(message);
  if (m->receive != nullptr) {
    if (core_.copies() != nullptr) m->landing = core_.copies()->landing_of(*m);
    return m;
  }
  core_.counters().saved.add_alone();
  m->saved = true;
  ++peer.saved;
  charge(*m, sizeof(Incoming));
  core_.upper().receiver().save(*m);
  return m;
}

Incoming *Inbox::begin(Peer &peer, Conversation *conversation, const sdk::Message &message,
                       uint32_t id, sdk::Receive &matched) {
  Incoming *m = make(peer, conversation, message, id);
  if (m == nullptr) {
    core_.upper().receiver().complete(matched, message, 0, FI_ENOMEM);
    return nullptr;
  }
  m->receive = &matched;
  if (core_.copies() != nullptr) m->landing = core_.copies()->landing_of(*m);
  return m;
}

// Makes m.kept at least `size` bytes long, and keeps its content.
bool Inbox::make_room(Incoming &m, uint64_t size) {
  if (size <= m.room) return true;
  if (m.room == 0 && size <= kInlineSize) {
    m.kept = m.bytes;
    m.room = kInlineSize;
    return true;
  }
  // The room doubles, so that a message in many packets is not copied for each of them.
  const uint64_t want = m.room == 0 ? size : std::min(m.message.length, std::max(size, 2 * m.room));
  std::unique_ptr<uint8_t[]> copy(new (std::nothrow) uint8_t[want]);
  if (copy == nullptr) return false;
  if (m.room != 0) std::memcpy(copy.get(), m.kept, m.room);
  charge(m, want - (m.copy != nullptr ? m.room : 0));
  m.copy = std::move(copy);
  m.kept = m.copy.get();
  m.room = want;
  return true;
}

bool Inbox::place(Incoming &m, uint64_t offset, std::span<const uint8_t> bytes) {
  const uint64_t length = m.message.length;
  if (offset > length || bytes.size() > length - offset || bytes.size() > length - m.arrived)
    return false;
  if (!bytes.empty() && !m.discarded) {
    if (m.receive != nullptr) {
      const sdk::Receive &r = *m.receive;
      const uint64_t n =
          offset < r.length ? std::min<uint64_t>(bytes.size(), r.length - offset) : 0;
      if (m.landing != nullptr) {
        (void)core_.copies()->put(*m.landing, offset, bytes.first(n));  // finish() has its status
      } else if (!sdk::hmem_scatter(core_.hmem(), r.iov, r.count, offset, bytes.data(), n)) {
        m.err = FI_EIO;
      }
    } else {
      if (!make_room(m, offset + bytes.size())) return false;
      core_.counters().saved_bytes.add_alone(bytes.size());
      std::memcpy(m.kept + offset, bytes.data(), bytes.size());
    }
  }
  m.arrived += bytes.size();
  m.end = std::max(m.end, offset + bytes.size());
  return true;
}

void Inbox::drop(Incoming &m) {
  bytes_ -= m.charged;
  m.charged = 0;
  m.copy.reset();
  m.kept = nullptr;
  m.room = 0;
  if (m.saved) --m.peer->saved;
  m.saved = false;
  messages_.give(&m);
}

void Inbox::finish(Incoming &m, int err) {
  m.conversation = nullptr;
  if (m.discarded) return drop(m);
  if (m.receive == nullptr) {
    m.err = err;
    return;
  }
  if (m.landing != nullptr) {
    if (err == 0) core_.copies()->lands(*m.landing);
    const uint16_t status = core_.copies()->end(m.landing);
    if (m.err == 0) m.err = status;
  }
  if (err == 0) err = m.err;  // a device has failed
  sdk::Receive *r = m.receive;
  const sdk::Message message = m.message;
  const auto received =
      err != 0 ? size_t(0) : size_t(std::min<uint64_t>(m.message.length, r->length));
  drop(m);
  core_.upper().receiver().complete(*r, message, received, err);
}

void Inbox::orphan(Incoming &m, int err) {
  // A message without a receive keeps its place in the order, because complete messages of the peer
  // may follow it; its later receive fails with `err`. Its bytes are freed.
  if (m.receive == nullptr && !m.discarded) {
    bytes_ -= m.charged;
    m.charged = 0;
    m.copy.reset();
    m.kept = nullptr;
    m.room = 0;
    charge(m, sizeof(Incoming));
    if (bytes_ > limit_) {  // messages of many ended peers must not pile up
      core_.upper().receiver().forget(m);
      return drop(m);
    }
  }
  const bool waits = m.waits_for_bytes();
  finish(m, err);
  if (waits) core_.upper().receiver().on_more(m);
}

bool Inbox::deliver(Incoming &m) {
  if (m.room != 0 && m.err == 0) {
    const sdk::Receive &r = *m.receive;
    const uint64_t n = std::min({m.room, m.message.length, uint64_t(r.length)});
    if (n != 0 && !sdk::hmem_scatter(core_.hmem(), r.iov, r.count, 0, m.kept, n)) m.err = FI_EIO;
  }
  bytes_ -= m.charged;
  m.charged = 0;
  m.copy.reset();
  m.kept = nullptr;
  m.room = 0;
  if (m.conversation != nullptr) {
    if (core_.copies() != nullptr) m.landing = core_.copies()->landing_of(m);
    return false;
  }
  finish(m, m.err);
  return true;
}

}  // namespace weft::rxd
