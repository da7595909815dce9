// SPDX-License-Identifier: BSD-2-Clause
// Messages from a weft peer: how they come to their receives, how much of a long one to pull, and
// the credit that the peer gets for more. Data of reads and writes arrive by the same frames, so
// they are here too.
#include <rdma/fi_errno.h>

#include <algorithm>

#include "plugins/rxd/protocol/device_copies.h"
#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd {
namespace {

constexpr uint32_t kMaxMessages = 1024;  // credit of a peer whose messages are consumed
constexpr uint32_t kMaxCredit = 4096;    // KiB, the same

}  // namespace

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
      core_.upper().warn_of_peer("no memory for a message that arrived");
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
    core_.upper().warn_of_peer("no memory for a message that arrived");
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
    if (m->waits_for_bytes()) core_.upper().receiver().on_more(*m);
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
  if (m.landing != nullptr && waits_for_copies(*m.landing)) return;
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
    if (core_.copies() != nullptr) {
      land(*op, f.offset, payload);
    } else {
      scatter(op->iov, op->count, f.offset, payload.data(), payload.size());
    }
    op->received += payload.size();
    if (op->received >= op->length) finish(*op);
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
      if (held_ > most_held() && end > m->limit) return fail("more bytes than its credit allows");
      if (m->waits_for_bytes()) core_.upper().receiver().on_more(*m);
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
    const uint16_t status = r->landing != nullptr
                                ? core_.copies()->put(*r->landing, f.offset, payload)
                                : core_.write_to({r->vectors, r->count}, f.offset, payload);
    r->arrived += payload.size();
    if (status != 0 || r->arrived >= r->length) return finish(*r, status);
    return true;
  }
  // Data of an operation that is over. Its sender counts those of a message as it sends them, also if
  // the message was discarded meanwhile. (It does not count a write's, and gets a little too much.)
  if (f.offset < kPrefix) {
    wanted_bytes_ += std::min<uint64_t>(payload.size(), kPrefix - f.offset);
    raise_credit();
  }
  return true;
}

// All data of a read have come.
void WeftConversation::finish(TxOp &read) {
  if (read.landing != nullptr) {
    if (waits_for_copies(*read.landing)) return;
    const uint16_t status = core_.copies()->end(read.landing);
    if (read.status == 0) read.status = status;
  }
  read.answered = true;
  settle(read);
}

void WeftConversation::consumed(const Incoming &m) {
  ++wanted_;
  wanted_bytes_ += m.unasked;
  held_ -= std::min(held_, m.unasked);
  raise_credit();
}

void WeftConversation::raise_credit() {
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

// They come unasked if the peer has credit for them, which is not known here.
void WeftConversation::fetch_first(Incoming &m, size_t n) {
  if (!m.announced || m.limit >= n) return;
  m.limit = n;
  core_.want_idle(peer_);
  if (m.wants_pull) return;
  m.wants_pull = true;
  ++pulls_;
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

}  // namespace weft::rxd
