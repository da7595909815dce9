// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/receiver.h"

#include <weft/sdk/av.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace weft::sdk {
namespace {

static_assert(Av::kNone == Matcher::kAnySource);

constexpr uint64_t kLookFlags = FI_PEEK | FI_CLAIM | FI_DISCARD;
constexpr uint64_t kKnownFlags =
    kLookFlags | FI_COMPLETION | FI_MULTI_RECV | FI_MORE | FI_TRANSMIT_COMPLETE;

uint64_t kind(bool tagged) {
  return FI_RECV | (tagged ? FI_TAGGED : FI_MSG);
}

uint64_t flags_of(const Message &m) {
  return kind(m.tagged) | (m.has_data ? FI_REMOTE_CQ_DATA : 0);
}

bool is_valid(const RecvRequest &q) {
  if (q.count > Receive::kIovLimit || (q.count != 0 && q.iov == nullptr)) return false;
  if (q.flags & FI_MULTI_RECV && q.count != 1) return false;
  size_t length = 0;
  for (size_t i = 0; i < q.count; ++i) {
    if (__builtin_add_overflow(length, q.iov[i].iov_len, &length)) return false;
    if (q.iov[i].iov_base == nullptr && q.iov[i].iov_len != 0) return false;
  }
  return true;
}

}  // namespace

Receiver::Receiver(ReceiverSink &sink, const ReceiverSettings &settings)
    : sink_(sink), settings_(settings), receives_(settings.size), parts_(SIZE_MAX) {}

Receiver::~Receiver() {
  visit_unexpected(Matcher::kAnySource, [this](Unexpected &m) {
    forget(m);
    sink_.discard(m);
  });
}

fi_addr_t Receiver::name(uint32_t source) const {
  if (!settings_.source || av == nullptr || source >= Matcher::kFirstUnnamed)
    return FI_ADDR_NOTAVAIL;
  return av->reported(source);
}

Receive *Receiver::take(const RecvRequest &q, uint32_t source) {
  Receive *r = receives_.take();
  if (r == nullptr) return nullptr;
  r->tag = q.tagged ? q.tag : 0;
  r->ignore = q.tagged ? q.ignore : 0;
  r->source = source;
  r->context = q.context;
  r->flags = q.flags;
  r->tagged = q.tagged;
  r->count = uint32_t(q.count);
  r->length = 0;
  for (size_t i = 0; i < q.count; ++i) {
    r->iov[i] = q.iov[i];
    r->length += q.iov[i].iov_len;
  }
  r->buffer = nullptr;
  return r;
}

ssize_t Receiver::post(const RecvRequest &q) {
  if (q.flags & ~kKnownFlags) return -FI_EBADFLAGS;
  uint32_t source = Matcher::kAnySource;
  if (settings_.directed && q.src != FI_ADDR_UNSPEC) {
    if (av != nullptr) source = av->peer_of(q.src);
    if (source == Matcher::kAnySource) return -FI_EINVAL;
  }
  if (q.flags & kLookFlags) return look(q, source);
  if (!is_valid(q)) return -FI_EINVAL;
  Receive *r = take(q, source);
  if (r == nullptr) return -FI_EAGAIN;
  Matcher &m = matcher(q.tagged);
  if (q.flags & FI_MULTI_RECV) {
    fill(*r, m);
  } else if (Matcher::Arrived *a = m.find_arrived(source, r->tag, r->ignore)) {
    m.remove(*a);
    sink_.deliver(static_cast<Unexpected &>(*a), *r);
  } else {
    m.post(*r);
  }
  return 0;
}

// ---- multi-receive buffers ----

// A part of the buffer for a message. Null: what is left is too short for it, and the buffer takes
// no more (it was ended if nobody uses it). One that nothing was placed into yet takes a message
// of any length, and truncates it.
Receive *Receiver::take_part(Receive &b, uint64_t length, Cq *to_cq, Cntr *to_cntr) {
  const size_t left = b.length - b.at;
  Receive *part = length <= left || b.at == 0 ? parts_.take() : nullptr;
  size_t n = 0;
  if (part != nullptr) {
    n = size_t(std::min<uint64_t>(length, left));
    part->tagged = b.tagged;
    part->context = b.context;
    part->flags = b.flags;
    part->buffer = &b;
    part->count = 1;
    part->length = n;
    part->iov[0] = {static_cast<char *>(b.iov[0].iov_base) + b.at, n};
    b.at += n;
    ++b.users;
  }
  if (part == nullptr || left - n < std::max<size_t>(min_multi_recv, 1)) {
    b.open = false;
    if (b.queued) matcher(b.tagged).remove(b);
    if (b.users == 0) end(b, to_cq, to_cntr);
  }
  return part;
}

// What was saved goes first, then the buffer is posted. Until then it has one user more, since
// what is delivered may complete at once.
void Receiver::fill(Receive &b, Matcher &m) {
  b.users = 1;
  b.at = 0;
  b.err = 0;
  b.open = true;
  while (b.open) {
    Matcher::Arrived *a = m.find_arrived(b.source, b.tag, b.ignore);
    if (a == nullptr) break;
    auto &message = static_cast<Unexpected &>(*a);
    Receive *part = take_part(b, message.message.length, cq, cntr);
    if (part == nullptr) break;
    m.remove(*a);
    sink_.deliver(message, *part);
  }
  --b.users;
  if (b.open) {
    m.post(b);
  } else if (b.users == 0) {
    end(b, cq, cntr);
  }
}

// The buffer is the application's again.
void Receiver::end(Receive &b, Cq *to_cq, Cntr *to_cntr) {
  if (b.err == 0) {
    if (to_cq != nullptr) to_cq->push({.context = b.context, .flags = FI_MULTI_RECV});
  } else {
    if (to_cntr != nullptr) to_cntr->add_error();
    if (to_cq != nullptr)
      to_cq->push_error({.context = b.context,
                         .flags = kind(b.tagged) | FI_MULTI_RECV,
                         .tag = b.tag,
                         .err = b.err,
                         .prov_errno = b.err});
  }
  receives_.give(&b);
}

// ---- messages ----

Receive *Receiver::take_posted(Matcher &m, const Message &message) {
  const uint64_t tag = message.tagged ? message.tag : 0;
  while (Matcher::Posted *p = m.find_posted(message.source, tag)) {
    auto &r = static_cast<Receive &>(*p);
    if (!(r.flags & FI_MULTI_RECV)) {
      m.remove(r);
      return &r;
    }
    if (Receive *part = take_part(r, message.length, cq, cntr)) return part;
  }
  return nullptr;
}

Receive *Receiver::match(const Message &message) {
  return take_posted(matcher(message.tagged), message);
}

void Receiver::complete(Receive &r, const Message &m, size_t received, int err, Cq *to_cq,
                        Cntr *to_cntr) {
  Receive *const b = r.buffer;
  // The buffer goes with the last of its parts, whichever that is.
  bool ends = b != nullptr && --b->users == 0 && !b->open;
  void *const place = b != nullptr ? r.iov[0].iov_base : nullptr;
  uint64_t excess = 0;
  if (err == 0 && m.length > r.length) {
    err = FI_ETRUNC;
    excess = m.length - r.length;
  }
  if (to_cntr != nullptr) {
    if (err == 0) {
      to_cntr->add_events(1, received);
    } else {
      to_cntr->add_error();
    }
  }
  const bool nameless = err == 0 && settings_.source_err && m.source >= Matcher::kFirstUnnamed;
  if (to_cq == nullptr) {
    // Nobody to tell.
  } else if (err == 0 && !nameless) {
    if (reports(r.flags)) {
      uint64_t flags = flags_of(m);
      const bool says_end = ends && b->err == 0;
      if (says_end) flags |= FI_MULTI_RECV;
      to_cq->push({.context = r.context,
                   .flags = flags,
                   .len = received,
                   .buf = place,
                   .data = m.data,
                   .tag = m.tag,
                   .src_addr = name(m.source)});
      if (says_end) {
        receives_.give(b);
        ends = false;
      }
    }
  } else {
    // Received all right, but from nobody that the application knows (fi_cq.3, FI_SOURCE_ERR).
    const int code = nameless ? FI_EADDRNOTAVAIL : err;
    to_cq->push_error({.context = r.context,
                       .flags = flags_of(m),
                       .len = received,
                       .buf = place,
                       .data = m.data,
                       .tag = m.tag,
                       .olen = size_t(excess),
                       .err = code,
                       .prov_errno = code,
                       .err_data = nameless ? sink_.source_address(m) : std::string(),
                       .src_addr = name(m.source)});
  }
  (b != nullptr ? parts_ : receives_).give(&r);
  if (ends) end(*b, to_cq, to_cntr);
}

void Receiver::save(Unexpected &m) {
  m.tag = m.message.tagged ? m.message.tag : 0;
  m.source = m.message.source;
  m.claimed_ = false;
  matcher(m.message.tagged).arrive(m);
}

void Receiver::forget(Unexpected &m) {
  if (m.queued) {
    matcher(m.message.tagged).remove(m);
  } else if (m.claimed_) {
    unclaim(m);
  }
}

void Receiver::rename_source(uint32_t from, uint32_t to) {
  // First all that have a receive now, in order of arrival; then they are delivered: that may
  // change the lists.
  Unexpected *ready = nullptr, **last = &ready;
  for (Matcher *m : {&tagged_, &untagged_}) {
    if (m->arrived() == 0) continue;
    m->visit_arrived(from, [&](Matcher::Arrived &a) {
      auto &u = static_cast<Unexpected &>(a);
      u.message.source = to;
      Receive *r = take_posted(*m, u.message);
      if (r == nullptr) return;
      m->remove(u);
      u.source = to;
      u.holder_ = r;
      u.next_ = nullptr;
      *last = &u;
      last = &u.next_;
    });
    m->rename(from, to);
  }
  for (Unexpected *u = claimed_; u != nullptr; u = u->next_)
    if (u->source == from) u->source = u->message.source = to;
  while (ready != nullptr) {
    Unexpected &u = *std::exchange(ready, ready->next_);
    sink_.deliver(u, *static_cast<Receive *>(u.holder_));
  }
}

// ---- looking at what arrived ----

Unexpected *Receiver::find_claimed(bool tagged, const void *context) const {
  Unexpected *m = claimed_;
  while (m != nullptr && (m->holder_ != context || m->message.tagged != tagged)) m = m->next_;
  return m;
}

void Receiver::unclaim(Unexpected &m) {
  Unexpected **at = &claimed_;
  while (*at != &m) at = &(*at)->next_;
  *at = m.next_;
  --claimed_count_;
  m.claimed_ = false;
}

void Receiver::report_none(const RecvRequest &q) {
  if (cq != nullptr)
    cq->push_error({.context = q.context,
                    .flags = kind(q.tagged),
                    .tag = q.tagged ? q.tag : 0,
                    .err = FI_ENOMSG,
                    .prov_errno = FI_ENOMSG});
}

// FI_PEEK with or without FI_CLAIM or FI_DISCARD; FI_CLAIM with or without FI_DISCARD.
ssize_t Receiver::look(const RecvRequest &q, uint32_t source) {
  const bool peek = q.flags & FI_PEEK, claim = q.flags & FI_CLAIM, drop = q.flags & FI_DISCARD;
  if (q.flags & FI_MULTI_RECV || (peek && claim && drop) || (!peek && !claim)) return -FI_EINVAL;
  if (claim && q.context == nullptr) return -FI_EINVAL;  // what the claim is found again by
  Receive *r = nullptr;
  if (!peek && !drop) {
    if (!is_valid(q)) return -FI_EINVAL;
    if (left() == 0) return -FI_EAGAIN;
  }
  Matcher &m = matcher(q.tagged);
  Unexpected *u = nullptr;
  if (!peek) {
    u = find_claimed(q.tagged, q.context);
  } else if (auto *a = q.tagged ? m.find_arrived(source, q.tag, q.ignore)
                                : m.find_arrived(source, 0, 0)) {
    u = static_cast<Unexpected *>(a);
  }
  if (u == nullptr) {
    report_none(q);
    return 0;
  }
  if (!peek && !drop) {
    r = take(q, source);
    if (r == nullptr) return -FI_EAGAIN;  // no memory; it stays claimed
    unclaim(*u);
    sink_.deliver(*u, *r);
    return 0;
  }
  if (cq != nullptr && reports(q.flags))
    cq->push({.context = q.context,
              .flags = flags_of(u->message),
              .len = size_t(u->message.length),
              .data = u->message.data,
              .tag = u->message.tag,
              .src_addr = name(u->source)});
  if (drop) {
    forget(*u);
    sink_.discard(*u);
  } else if (claim) {
    m.remove(*u);
    Unexpected **last = &claimed_;
    while (*last != nullptr) last = &(*last)->next_;
    *last = u;
    u->next_ = nullptr;
    u->holder_ = q.context;
    u->claimed_ = true;
    ++claimed_count_;
  }
  return 0;
}

// ---- the end of receives ----

void Receiver::fail(Receive &r, int err) {
  if (r.flags & FI_MULTI_RECV) {
    r.open = false;
    r.err = err;
    if (r.users == 0) end(r, cq, cntr);
    return;
  }
  if (cntr != nullptr) cntr->add_error();
  if (cq != nullptr)
    cq->push_error({.context = r.context,
                    .flags = kind(r.tagged),
                    .tag = r.tag,
                    .err = err,
                    .prov_errno = err});
  receives_.give(&r);
}

ssize_t Receiver::cancel(const void *context) {
  if (context == nullptr) return -FI_ENOENT;  // fi_endpoint.3: found by its context, or not at all
  for (Matcher *m : {&tagged_, &untagged_}) {
    Matcher::Posted *p = m->search_posted([&](const Matcher::Posted &posted) {
      return static_cast<const Receive &>(posted).context == context;
    });
    if (p == nullptr) continue;
    m->remove(*p);
    fail(static_cast<Receive &>(*p), FI_ECANCELED);
    return 0;
  }
  return -FI_ENOENT;
}

void Receiver::fail_posted(int err) {
  for (Matcher *m : {&tagged_, &untagged_}) {
    while (Matcher::Posted *p = m->search_posted([](const Matcher::Posted &) { return true; })) {
      m->remove(*p);
      fail(static_cast<Receive &>(*p), err);
    }
  }
}

}  // namespace weft::sdk
