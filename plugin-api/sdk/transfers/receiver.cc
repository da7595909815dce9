// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/transfers/receiver.h"

#include <weft/sdk/addresses/av.h>
#include <weft/sdk/transfers/deferred.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#include "buffered_receives.h"
#include "plugin-api/sdk/objects/imported_receives.h"

namespace weft::sdk {
namespace {

static_assert(Av::kNone == Matcher::kAnySource);

constexpr uint64_t kLookFlags = FI_PEEK | FI_CLAIM | FI_DISCARD;
constexpr uint64_t kKnownFlags =
    kLookFlags | FI_COMPLETION | FI_MULTI_RECV | FI_MORE | FI_TRANSMIT_COMPLETE | kDeferred;

uint64_t kind(bool tagged) {
  return FI_RECV | (tagged ? FI_TAGGED : FI_MSG);
}

bool is_valid(const RecvRequest &q) {
  if (q.count > kIovLimit || (q.count != 0 && q.iov == nullptr)) return false;
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
    : sink_(&sink), settings_(settings), own_(settings.size) {
  if (!settings.buffered) return;
  buffered_ = std::make_unique<BufferedReceives>(*this, settings);
  queues_ = &buffered_->queues();
}

Receiver::Receiver(const ReceiverSettings &settings)
    : sink_(nullptr), settings_(settings), own_(settings.size) {}

Receiver::~Receiver() {
  visit_unexpected(Matcher::kAnySource, [this](Unexpected &m) {
    forget(m);
    sink_->discard(m);
  });
  leave();
}

// ---- shared receive contexts ----

void Receiver::share(Receiver &context) {
  context.own_.users.push_back(this);
  if (sink_->waits_for_receives(context.own_.import != nullptr)) context.own_.told.push_back(this);
  queues_ = &context.own_;
}

void Receiver::leave() {
  if (buffered_ != nullptr) return buffered_->stop();
  if (!shares()) return;
  const auto give_up = [this](Receive &r) {
    if (r.taker_ == this) complete(r, {.tagged = r.tagged}, 0, FI_ECANCELED);
  };
  std::erase(queues_->users, this);
  std::erase(queues_->told, this);
  queues_->parts.visit(give_up);
  queues_->receives.visit(give_up);
  if (queues_->import != nullptr) {
    queues_->import->visit(give_up);
    queues_->import->leave(cq);
  }
  queues_ = &own_;
}

Receiver &Receiver::speaker() {
  for (Receiver *user : queues_->users)
    if (user->cq != nullptr) return *user;
  for (Receiver *user : queues_->users)  // a peer of a lent context has none of both
    if (user->av != nullptr) return *user;
  return queues_->users.empty() ? *this : *queues_->users.front();
}

// In turns, because the first endpoint that is told may take the receive.
void Receiver::tell_users() {
  const std::vector<Receiver *> &told = queues_->told;
  const size_t n = told.size();
  if (++queues_->turn >= n) queues_->turn = 0;
  for (size_t i = 0, at = queues_->turn; i < n; ++i) {
    told[at]->sink_->on_shared_receive();
    if (++at == n) at = 0;
  }
}

void Receiver::deliver(Unexpected &m, Receive &r) {
  Receiver &to = *m.receiver_;
  if (to.shares()) r.taker_ = &to;
  to.sink_->deliver(m, r);
}

fi_addr_t Receiver::name(uint32_t source) const {
  if (!settings_.source || av == nullptr || source >= Matcher::kFirstUnnamed)
    return FI_ADDR_NOTAVAIL;
  return av->reported(source);
}

Receive *Receiver::take(const RecvRequest &q, uint32_t source) {
  Receive *r = queues_->receives.take();
  if (r == nullptr) return nullptr;
  if (settings_.descriptors && !keep_descriptors(*r, q)) {
    queues_->receives.give(r);
    return nullptr;
  }
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

// False: no memory.
bool Receiver::keep_descriptors(Receive &r, const RecvRequest &q) {
  if (r.desc_ == nullptr) r.desc_.reset(new (std::nothrow) void *[kIovLimit]);
  if (r.desc_ == nullptr) return false;
  for (size_t i = 0; i < q.count; ++i) r.desc_[i] = q.desc != nullptr ? q.desc[i] : nullptr;
  return true;
}

// False: the request names a source that the address vector does not have.
bool Receiver::find_source(const RecvRequest &q, uint32_t &source) {
  source = Matcher::kAnySource;
  if (q.src == FI_ADDR_UNSPEC || !speaker().settings_.directed) return true;
  // From whichever context of that endpoint.
  if (Av *names = speaker().av) source = Av::entry_of(names->peer_of(q.src));
  return source != Matcher::kAnySource;
}

ssize_t Receiver::post(const RecvRequest &q) {
  if (shares()) return buffered_ != nullptr ? buffered_->post(q) : -FI_EOPNOTSUPP;
  if (q.flags & ~kKnownFlags) return -FI_EBADFLAGS;
  uint32_t source;
  if (!find_source(q, source)) return -FI_EINVAL;
  if (q.flags & kLookFlags) return look(q, source);
  if (!is_valid(q)) return -FI_EINVAL;
  Receive *r = take(q, source);
  if (r == nullptr) return -FI_ENOMEM;
  if (q.flags & FI_MULTI_RECV) {
    r->users = 1;  // until saved messages are in it: a delivered one may complete at once
    r->at = 0;
    r->err = 0;
    r->open = true;
    fill(*r);
    return 0;
  }
  Matcher &m = matcher(q.tagged);
  auto *saved = static_cast<Unexpected *>(m.find_arrived(source, r->tag, r->ignore));
  if (saved == nullptr) {
    enlist(*r);
    return 0;
  }
  m.remove(*saved);
  deliver(*saved, *r);
  return 0;
}

void Receiver::enlist(Receive &r) {
  if (settings_.keeps) {
    r.number = ++posts_;
    if (sink_->keep(r)) return;
  }
  matcher(r.tagged).post(r);
}

// ---- receives that the protocol keeps ----

Receive *Receiver::part_at(Receive &b, size_t at, size_t length) {
  Receive *const part = queues_->parts.take();
  if (part == nullptr) return nullptr;
  part->tagged = b.tagged;
  part->context = b.context;
  part->flags = b.flags;
  part->buffer = &b;
  part->count = 1;
  part->length = length;
  part->iov[0] = {static_cast<char *>(b.iov[0].iov_base) + at, length};
  b.at = std::max(b.at, at + length);
  ++b.users;
  return part;
}

void Receiver::close_buffer(Receive &b) {
  b.open = false;
  if (b.users == 0) end(b);
}

// A message may have been saved since it was posted.
void Receiver::put_back(Receive &r) {
  if (r.flags & FI_MULTI_RECV) {
    ++r.users;
    return fill(r);
  }
  Matcher &m = matcher(r.tagged);
  auto *const saved = static_cast<Unexpected *>(m.find_arrived(r.source, r.tag, r.ignore));
  if (saved == nullptr) return m.post(r);
  m.remove(*saved);
  deliver(*saved, r);
}

Receive *Receiver::take_oldest() {
  const auto any = [](const Matcher::Posted &) { return true; };
  auto *const tagged = static_cast<Receive *>(queues_->tagged.search_posted(any));
  auto *const untagged = static_cast<Receive *>(queues_->untagged.search_posted(any));
  Receive *const oldest =
      tagged == nullptr || (untagged != nullptr && untagged->number < tagged->number) ? untagged
                                                                                      : tagged;
  if (oldest != nullptr) matcher(oldest->tagged).remove(*oldest);
  return oldest;
}

// ---- multi-receive buffers ----

// A part of the buffer for a message. Null: the rest is too short for the message, and the buffer
// takes no more (it has ended if it has no users). An empty buffer takes a message of any length,
// and truncates it.
Receive *Receiver::take_part(Receive &b, uint64_t length) {
  const size_t left = b.length - b.at;
  const size_t n = size_t(std::min<uint64_t>(length, left));
  Receive *const part = length <= left || b.at == 0 ? part_at(b, b.at, n) : nullptr;
  if (part == nullptr || left - n < std::max<size_t>(queues_->min_multi_recv, 1)) {
    b.open = false;
    if (b.queued) matcher(b.tagged).remove(b);
    if (b.users == 0) end(b);
  }
  return part;
}

// Saved messages go first; then the buffer is posted.
void Receiver::fill(Receive &b) {
  Matcher &m = matcher(b.tagged);
  while (b.open) {
    auto *message = static_cast<Unexpected *>(m.find_arrived(b.source, b.tag, b.ignore));
    if (message == nullptr) break;
    Receive *part = take_part(b, message->message.length);
    if (part == nullptr) break;
    m.remove(*message);
    deliver(*message, *part);
  }
  --b.users;
  if (b.open) {
    enlist(b);
  } else if (b.users == 0) {
    end(b);
  }
}

// The buffer is the application's again.
void Receiver::end(Receive &b) {
  Receiver &teller = cq != nullptr ? *this : speaker();
  if (b.err == 0) {
    if (teller.cq != nullptr) teller.cq->push({.context = b.context, .flags = FI_MULTI_RECV});
  } else {
    if (teller.cntr != nullptr) teller.cntr->add_error();
    if (teller.cq != nullptr)
      teller.cq->push_error({.context = b.context,
                             .flags = kind(b.tagged) | FI_MULTI_RECV,
                             .tag = b.tag,
                             .err = b.err,
                             .prov_errno = b.err});
  }
  queues_->receives.give(&b);
}

// ---- messages ----

Receive *Receiver::take_posted(Matcher &m, const Message &message, bool *full) {
  const uint64_t tag = message.tagged ? message.tag : 0;
  while (Matcher::Posted *p = m.find_posted(message.source, tag)) {
    auto &r = static_cast<Receive &>(*p);
    if (!(r.flags & FI_MULTI_RECV)) {
      if (shares()) {
        if (buffered_ != nullptr) return buffered_->match(message, &r, full);
        r.taker_ = this;
      }
      m.remove(r);
      return &r;
    }
    if (full != nullptr && cq != nullptr && cq->holds_back()) {
      *full = true;
      return nullptr;
    }
    if (Receive *part = take_part(r, message.length)) {
      if (shares()) part->taker_ = this;
      return part;
    }
  }
  return shares() ? match_elsewhere(message, full) : nullptr;
}

// A buffered receiver needs no receive for untagged messages. The owner of an imported context is
// asked: nothing is posted here.
Receive *Receiver::match_elsewhere(const Message &message, bool *full) {
  if (buffered_ != nullptr)
    return message.tagged ? nullptr : buffered_->match(message, nullptr, full);
  if (queues_->import == nullptr) return nullptr;
  if (full != nullptr && cq != nullptr && cq->holds_back()) {
    *full = true;
    return nullptr;
  }
  return queues_->import->match(*this, message);
}

Receive *Receiver::match(const Message &message, bool *full) {
  return take_posted(matcher(message.tagged), message, full);
}

void Receiver::complete(Receive &r, const Message &m, size_t received, int err) {
  if (r.flags & kDeferred) [[unlikely]]
    return complete_deferred(r, m, received, err);
  if (shares()) {
    r.taker_ = nullptr;
    if (buffered_ != nullptr) return buffered_->complete(r, m, received, err);
    if (queues_->import != nullptr) return complete_imported(r, m, received, err);
  }
  Receive *const b = r.buffer;
  // The buffer goes with the last of its parts, whichever that is.
  bool ends = b != nullptr && --b->users == 0 && !b->open;
  void *const place = b != nullptr ? r.iov[0].iov_base : nullptr;
  if (err == 0 && m.length > r.length) err = FI_ETRUNC;
  if (cntr != nullptr) {
    if (err == 0) {
      cntr->add_events(1, received);
    } else {
      cntr->add_error();
    }
  }
  const bool nameless = err == 0 && settings_.source_err && m.source >= Matcher::kFirstUnnamed;
  if (cq == nullptr) {
    // Reported nowhere.
  } else if (err == 0 && !nameless) {
    if (reports(r.flags)) {
      uint64_t flags = flags_of(m);
      const bool says_end = ends && b->err == 0;
      if (says_end) flags |= FI_MULTI_RECV;
      cq->push({.context = r.context,
                .flags = flags,
                .len = received,
                .buf = place,
                .data = m.data,
                .tag = m.tag,
                .src_addr = name(m.source)});
      if (says_end) {
        queues_->receives.give(b);
        ends = false;
      }
    }
  } else {
    report_error(r, m, received, err, place);
  }
  (b != nullptr ? queues_->parts : queues_->receives).give(&r);
  if (ends) end(*b);
}

// As others, but for where it is told: to the work's counter, and where it asks to the queue.
void Receiver::complete_deferred(Receive &r, const Message &m, size_t received, int err) {
  const Deferred::Origin work = DeferredQueue::end(std::exchange(r.context, nullptr));
  r.context = work.context;
  r.flags = work.report ? FI_COMPLETION : 0;
  const struct Usual {
    Usual(Receiver &receiver, Cntr *counter)
        : receiver(receiver),
          counter(std::exchange(receiver.cntr, counter)),
          selective(std::exchange(receiver.selective, true)) {}
    ~Usual() {
      receiver.cntr = counter;
      receiver.selective = selective;
    }
    Receiver &receiver;
    Cntr *const counter;
    const bool selective;
  } usual(*this, work.completion);
  complete(r, m, received, err);
}

// `err` 0: received, but the sender is not in the address vector (fi_cq.3, FI_SOURCE_ERR).
void Receiver::report_error(const Receive &r, const Message &m, size_t received, int err,
                            void *place) {
  const bool nameless = err == 0;
  const int code = nameless ? FI_EADDRNOTAVAIL : err;
  cq->push_error({.context = r.context,
                  .flags = flags_of(m),
                  .len = received,
                  .buf = place,
                  .data = m.data,
                  .tag = m.tag,
                  .olen = err == FI_ETRUNC && m.length > r.length ? size_t(m.length - r.length) : 0,
                  .err = code,
                  .prov_errno = m.prov_errno != 0 ? m.prov_errno : code,
                  .err_data = nameless ? sink_->source_address(m) : std::string(),
                  .src_addr = nameless ? sink_->source_key(m) : name(m.source)});
}

// The owner's entry says what the completion tells beside the message: whether a multi-receive
// buffer ends with it.
void Receiver::complete_imported(Receive &r, const Message &m, size_t received, int err) {
  if (err == 0 && m.length > r.length) err = FI_ETRUNC;
  if (cntr != nullptr) {
    if (err == 0) {
      cntr->add_events(1, received);
    } else {
      cntr->add_error();
    }
  }
  void *const place = r.count != 0 ? r.iov[0].iov_base : nullptr;
  const bool nameless = err == 0 && settings_.source_err && m.source >= Matcher::kFirstUnnamed;
  if (cq != nullptr && (err != 0 || nameless)) {
    report_error(r, m, received, err, place);
    // As end() tells it of a buffer of our own: an error does not say that a buffer ends.
    if (r.flags & FI_MULTI_RECV)
      cq->push({.context = r.context, .flags = FI_MULTI_RECV});
  } else if (cq != nullptr && reports(r.flags)) {
    cq->push({.context = r.context,
              .flags = flags_of(m) | (r.flags & FI_MULTI_RECV),
              .len = received,
              .buf = place,
              .data = m.data,
              .tag = m.tag,
              .src_addr = name(m.source)});
  }
  queues_->import->give_back(static_cast<ImportedReceive &>(r), cq);
}

fi_addr_t Receiver::address_for(uint32_t source) const {
  const bool wanted = settings_.source || settings_.directed;
  if (!wanted || av == nullptr || source >= Matcher::kFirstUnnamed) return FI_ADDR_UNSPEC;
  return av->reported(source);
}

void Receiver::save(Unexpected &m) {
  m.tag = m.message.tagged ? m.message.tag : 0;
  m.source = m.message.source;
  m.receiver_ = this;
  m.claimed_ = m.waits_ = false;
  m.buffered_ = Unexpected::kElsewhere;
  if (buffered_ != nullptr) return buffered_->save(m);
  matcher(m.message.tagged).arrive(m);
  if (queues_->import != nullptr) queues_->import->save(*this, m);
}

void Receiver::forget(Unexpected &m) {
  if (m.queued) {
    matcher(m.message.tagged).remove(m);
    if (queues_->import != nullptr) queues_->import->forget(m);
  } else if (m.claimed_) {
    unclaim(m);
  } else if (m.buffered_ != Unexpected::kElsewhere) {
    buffered_->forget(m);
  }
}

bool Receiver::is_told_early(const Message &message) {
  return buffered_ != nullptr && buffered_->is_told_early(message);
}

size_t Receiver::first_bytes() const {
  return buffered_ != nullptr ? buffered_->min() : 0;
}

void Receiver::on_more(Unexpected &m) {
  if (m.waits_) buffered_->on_more(m);
}

Unexpected *Receiver::next_buffered(Unexpected *m) {
  return buffered_->next(m);
}

void Receiver::rename_source(uint32_t from, uint32_t to) {
  if (buffered_ != nullptr) return buffered_->rename(from, to);
  // First all that have a receive now, in order of arrival; then they are delivered: that may
  // change the lists.
  Unexpected *ready = nullptr, **last = &ready;
  const auto is_mine = [this](const Matcher::Arrived &a) {
    return static_cast<const Unexpected &>(a).receiver_ == this;
  };
  for (Matcher *m : {&queues_->tagged, &queues_->untagged}) {
    if (m->arrived() == 0) continue;
    m->visit_arrived(from, [&](Matcher::Arrived &a) {
      if (!is_mine(a)) return;
      auto &u = static_cast<Unexpected &>(a);
      u.message.source = to;
      Receive *r = queues_->import == nullptr ? take_posted(*m, u.message) : nullptr;
      if (r == nullptr) return;
      m->remove(u);
      u.source = to;
      u.holder_ = r;
      u.next_ = nullptr;
      *last = &u;
      last = &u.next_;
    });
    m->rename(from, to, is_mine);
  }
  for (Unexpected *u = queues_->claimed; u != nullptr; u = u->next_)
    if (u->source == from && is_mine(*u)) u->source = u->message.source = to;
  while (ready != nullptr) {
    Unexpected &u = *std::exchange(ready, ready->next_);
    deliver(u, *static_cast<Receive *>(u.holder_));
  }
  if (queues_->import != nullptr) queues_->import->on_new_names();
}

// ---- looking at what arrived ----

Unexpected *Receiver::find_claimed(bool tagged, const void *context) const {
  Unexpected *m = queues_->claimed;
  while (m != nullptr && (m->holder_ != context || m->message.tagged != tagged)) m = m->next_;
  return m;
}

void Receiver::unclaim(Unexpected &m) {
  Unexpected **at = &queues_->claimed;
  while (*at != &m) at = &(*at)->next_;
  *at = m.next_;
  --queues_->claimed_count;
  m.claimed_ = false;
}

void Receiver::report_none(const RecvRequest &q) {
  if (Cq *to = speaker().cq)
    to->push_error({.context = q.context,
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
  if (!peek && !drop && !is_valid(q)) return -FI_EINVAL;
  Matcher &m = matcher(q.tagged);
  const auto find = [&]() -> Unexpected * {
    if (!peek) return find_claimed(q.tagged, q.context);
    return static_cast<Unexpected *>(q.tagged ? m.find_arrived(source, q.tag, q.ignore)
                                              : m.find_arrived(source, 0, 0));
  };
  Unexpected *u = find();
  if (u == nullptr && peek && speaker().cq != nullptr) {
    // An application that peeks in a loop reads only errors, and reading those makes no progress.
    speaker().cq->engine().progress();
    u = find();
  }
  if (u == nullptr) {
    report_none(q);
    return 0;
  }
  // A message of a peer (FI_PEER) is told of by an endpoint of ours.
  Receiver &owner = *u->receiver_, &teller = owner.cq != nullptr ? owner : speaker();
  if (!peek && !drop) {
    Receive *const r = take(q, source);
    if (r == nullptr) return -FI_ENOMEM;  // it stays claimed
    unclaim(*u);
    deliver(*u, *r);
    return 0;
  }
  if (teller.cq != nullptr && teller.reports(q.flags))
    teller.cq->push({.context = q.context,
                     .flags = flags_of(u->message),
                     .len = size_t(u->message.length),
                     .data = u->message.data,
                     .tag = u->message.tag,
                     .src_addr = teller.name(u->source)});
  if (drop) {
    forget(*u);
    owner.sink_->discard(*u);
  } else if (claim) {
    m.remove(*u);
    Unexpected **last = &queues_->claimed;
    while (*last != nullptr) last = &(*last)->next_;
    *last = u;
    u->next_ = nullptr;
    u->holder_ = q.context;
    u->claimed_ = true;
    ++queues_->claimed_count;
  }
  return 0;
}

// ---- the end of receives ----

void Receiver::fail(Receive &r, int err) {
  if (r.flags & FI_MULTI_RECV) {
    r.open = false;
    r.err = err;
    if (r.users == 0) end(r);
    return;
  }
  Receiver &teller = speaker();
  if (r.flags & kDeferred) {
    DeferredQueue::finish(
        teller.cq,
        {.context = r.context, .flags = kind(r.tagged) | kDeferred, .tag = r.tag, .err = err});
    queues_->receives.give(&r);
    return;
  }
  if (teller.cntr != nullptr) teller.cntr->add_error();
  if (teller.cq != nullptr)
    teller.cq->push_error({.context = r.context,
                           .flags = kind(r.tagged),
                           .tag = r.tag,
                           .err = err,
                           .prov_errno = err});
  queues_->receives.give(&r);
}

const void *Receiver::context_of(const Receive &r) {
  return r.flags & kDeferred ? static_cast<const Deferred *>(r.context)->origin().context
                             : r.context;
}

ssize_t Receiver::cancel(const void *context) {
  if (context == nullptr || (shares() && buffered_ == nullptr))
    return -FI_ENOENT;  // fi_endpoint.3: found by its context, or not at all
  for (Matcher *m : {&queues_->tagged, &queues_->untagged}) {
    Matcher::Posted *p = m->search_posted([&](const Matcher::Posted &posted) {
      return context_of(static_cast<const Receive &>(posted)) == context;
    });
    if (p == nullptr) continue;
    m->remove(*p);
    fail(static_cast<Receive &>(*p), FI_ECANCELED);
    return 0;
  }
  return -FI_ENOENT;
}

void Receiver::fail_posted(int err) {
  if (shares() && buffered_ == nullptr) return;  // they are the context's
  for (Matcher *m : {&queues_->tagged, &queues_->untagged}) {
    while (Matcher::Posted *p = m->search_posted([](const Matcher::Posted &) { return true; })) {
      m->remove(*p);
      fail(static_cast<Receive &>(*p), err);
    }
  }
}

}  // namespace weft::sdk
