// SPDX-License-Identifier: BSD-2-Clause
#include "buffered_receives.h"

#include <weft/sdk/memory/hmem.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

namespace weft::sdk {
namespace {

constexpr uint64_t kBufferedFlags =
    FI_PEEK | FI_CLAIM | FI_DISCARD | FI_COMPLETION | FI_MORE | FI_TRANSMIT_COMPLETE;

// Bytes of the vectors; SIZE_MAX: they are wrong.
size_t room_of(const RecvRequest &q) {
  if (q.count > kIovLimit || (q.count != 0 && q.iov == nullptr)) return SIZE_MAX;
  size_t room = 0;
  for (size_t i = 0; i < q.count; ++i)
    if (__builtin_add_overflow(room, q.iov[i].iov_len, &room) ||
        (q.iov[i].iov_base == nullptr && q.iov[i].iov_len != 0))
      return SIZE_MAX;
  return room;
}

}  // namespace

BufferedReceives::BufferedReceives(Receiver &receiver, const ReceiverSettings &settings)
    : receiver_(receiver), devices_(settings.devices), queues_(settings.size) {}

BufferedReceives::~BufferedReceives() {
  stop();
}

void BufferedReceives::stop() {
  if (Engine *engine = std::exchange(engine_, nullptr)) engine->remove(*this);
}

int BufferedReceives::set_limit(size_t bytes) {
  if (bytes == SIZE_MAX) bytes = kMostLimit;
  if (bytes > kMostLimit || bytes < min_) return -FI_EMSGSIZE;
  limit_ = bytes;
  return 0;
}

int BufferedReceives::set_min(size_t bytes) {
  if (bytes > limit_ || bytes > receiver_.sink_->most_first()) return -FI_EMSGSIZE;
  min_ = bytes;
  return 0;
}

// ---- notices ----

bool BufferedReceives::grow() {
  const size_t n = std::clamp<size_t>(made_, 16, 1024);
  try {
    chunks_.reserve(chunks_.size() + 1);
    Chunk chunk{std::make_unique<Notice[]>(n), n};
    const auto at = std::ranges::upper_bound(chunks_, place_of(chunk), {}, place_of);
    for (size_t i = 0; i < n; ++i) append(chunk.notices[i]);
    chunks_.insert(at, std::move(chunk));
  } catch (const std::bad_alloc &) {
    return false;
  }
  made_ += n;
  return true;
}

// Null: no memory. The caller has asked has_room().
BufferedReceives::Notice *BufferedReceives::take(size_t bytes) {
  if (free_ == nullptr && !grow()) return nullptr;
  Notice &n = *free_;
  if (n.room < bytes) {
    const size_t room = std::max<size_t>(bytes, 128);
    std::unique_ptr<char[]> memory(new (std::nothrow) char[room]);
    if (memory == nullptr) return nullptr;
    kept_ += room - n.room;
    n.bytes = std::move(memory);
    n.room = room;
  }
  free_ = n.next;
  if (free_ == nullptr) free_last_ = nullptr;
  kept_ -= n.room;
  held_ += n.room;
  n.used = true;
  n.told = n.tagged = n.ready = false;
  n.err = 0;
  n.here = 0;
  n.user = nullptr;
  n.rest = nullptr;
  n.next = n.previous = nullptr;
  return &n;
}

void BufferedReceives::give(Notice &n) {
  held_ -= n.room;
  if (kept_ + n.room > kMostKept) {
    n.bytes.reset();
    n.room = 0;
  }
  kept_ += n.room;
  n.used = n.told = false;
  append(n);
}

void BufferedReceives::append(Notice &n) {
  n.next = nullptr;
  (free_last_ != nullptr ? free_last_->next : free_) = &n;
  free_last_ = &n;
}

// The notice that the application names; null: it is none, or was claimed or discarded.
BufferedReceives::Notice *BufferedReceives::find(const void *context) {
  const auto at = uintptr_t(context);
  const auto behind = std::ranges::upper_bound(chunks_, at, {}, place_of);
  if (behind == chunks_.begin()) return nullptr;
  const Chunk &chunk = *std::prev(behind);
  const size_t offset = at - uintptr_t(chunk.notices.get());
  if (offset % sizeof(Notice) != 0 || offset / sizeof(Notice) >= chunk.count) return nullptr;
  Notice &n = chunk.notices[offset / sizeof(Notice)];
  return n.told ? &n : nullptr;
}

void BufferedReceives::link(Notice &n, Unexpected &rest) {
  n.rest = &rest;
  rest.holder_ = &n;
  rest.buffered_ = Unexpected::kNoticed;
  n.previous = nullptr;
  n.next = rests_;
  if (rests_ != nullptr) rests_->previous = &n;
  rests_ = &n;
}

void BufferedReceives::unlink(Notice &n) {
  (n.previous != nullptr ? n.previous->next : rests_) = n.next;
  if (n.next != nullptr) n.next->previous = n.previous;
  n.next = n.previous = nullptr;
  Unexpected &rest = *std::exchange(n.rest, nullptr);
  rest.buffered_ = Unexpected::kElsewhere;
  rest.holder_ = nullptr;
  rest.waits_ = false;
}

// ---- messages that arrive ----

// The receive takes a message into the notice's memory.
void BufferedReceives::aim(Receive &r, Notice &n) {
  n.user = n.tagged ? r.context : nullptr;
  r.context = &n;
  r.flags = 0;
  r.tagged = n.tagged;
  r.buffer = nullptr;
  r.count = 1;
  r.length = size_t(n.message.length);
  r.iov[0] = {n.bytes.get(), r.length};
  if (r.desc_ != nullptr) r.desc_[0] = nullptr;
}

Receive *BufferedReceives::match(const Message &m, Receive *tag, bool *full) {
  if (full != nullptr && is_full()) {
    *full = true;
    return nullptr;
  }
  if (m.length > limit_ || !has_room(size_t(m.length))) return nullptr;
  if (tag == nullptr && (waiting_ != nullptr || is_full())) return nullptr;  // not past the others
  Notice *const n = take(size_t(m.length));
  if (n == nullptr) return nullptr;
  Receive *const r = tag != nullptr ? tag : queues_.parts.take();
  if (r == nullptr) {
    give(*n);
    return nullptr;
  }
  if (tag != nullptr) queues_.tagged.remove(*tag);
  begin(*n, m);
  aim(*r, *n);
  return r;
}

bool BufferedReceives::is_told_early(const Message &m) {
  return m.length > limit_ && !is_full() && has_room(min_) &&
         (m.tagged ? queues_.tagged.find_posted(m.source, m.tag) != nullptr : waiting_ == nullptr);
}

void BufferedReceives::save(Unexpected &u) {
  Receive *tag = nullptr;
  if (u.message.tagged) {
    tag = static_cast<Receive *>(queues_.tagged.find_posted(u.source, u.tag));
    if (tag == nullptr) return queues_.tagged.arrive(u);
    queues_.tagged.remove(*tag);
  }
  // The protocol is not finished with it, so it cannot be delivered or discarded now.
  if (waiting_ == nullptr && receiver_.cq != nullptr && !is_full() && u.message.length > limit_ &&
      start_long(u, tag))
    return;
  wait(u, tag);
  if (receiver_.cq != nullptr) come_back();
}

void BufferedReceives::pair(Unexpected &u, Receive *tag) {
  wait(u, tag);
  retry();
}

void BufferedReceives::wait(Unexpected &u, Receive *tag) {
  u.holder_ = tag;
  u.buffered_ = Unexpected::kPaired;
  u.next_ = nullptr;
  (waiting_last_ != nullptr ? waiting_last_->next_ : waiting_) = &u;
  waiting_last_ = &u;
}

// With the next flush; if the queue is full, when it was read.
void BufferedReceives::come_back() {
  engine_ = &receiver_.cq->engine();
  engine_->mark_dirty(*this);
}

// False: there is no room for it yet.
bool BufferedReceives::start(Unexpected &u) {
  if (is_full()) {
    come_back();
    return false;
  }
  auto *const tag = static_cast<Receive *>(u.holder_);
  if (u.message.length > limit_) return start_long(u, tag);
  if (!has_room(size_t(u.message.length))) return false;
  Notice *const n = take(size_t(u.message.length));
  if (n == nullptr) return false;
  Receive *const r = tag != nullptr ? tag : queues_.parts.take();
  if (r == nullptr) {
    give(*n);
    return false;
  }
  begin(*n, u.message);
  aim(*r, *n);
  u.buffered_ = Unexpected::kElsewhere;
  receiver_.sink_->deliver(u, *r);
  return true;
}

bool BufferedReceives::start_long(Unexpected &u, Receive *tag) {
  if (!has_room(min_)) return false;
  Notice *const n = take(min_);
  if (n == nullptr) return false;
  begin(*n, u.message);
  if (tag != nullptr) {
    n->user = tag->context;
    queues_.receives.give(tag);
  }
  link(*n, u);
  u.waits_ = true;
  on_more(u);
  return true;
}

void BufferedReceives::on_more(Unexpected &u) {
  Notice &n = *static_cast<Notice *>(u.holder_);
  const int rc = min_ != 0 ? receiver_.sink_->read_first(u, n.bytes.get(), min_) : 0;
  if (rc == -FI_EAGAIN) return;
  u.waits_ = false;
  if (rc != 0) return lose(n, -rc);
  n.here = min_;
  come(n);
}

// What waited, in order of arrival.
void BufferedReceives::retry() {
  while (Unexpected *const u = waiting_) {
    waiting_ = u->next_;  // first: a start may come back here
    if (waiting_ == nullptr) waiting_last_ = nullptr;
    if (start(*u)) continue;
    u->next_ = waiting_;
    waiting_ = u;
    if (waiting_last_ == nullptr) waiting_last_ = u;
    return;
  }
}

void BufferedReceives::complete(Receive &r, const Message &m, size_t received, int err) {
  if (r.flags & FI_CLAIM) {
    const uint64_t flags = r.flags;
    const size_t room = r.length;
    void *const context = r.context;
    queues_.receives.give(&r);
    return report_claim(context, m, receiver_.name(m.source), flags, room, received, err);
  }
  Notice &n = *static_cast<Notice *>(r.context);
  (n.tagged ? queues_.receives : queues_.parts).give(&r);
  n.message = m;
  if (err == 0) {
    n.here = received;
    return come(n);
  }
  if (n.tagged) fail_tag(n.user, m, err);
  leave(n);
  give(n);
}

// The message of an untagged notice has never been: nobody is told.
void BufferedReceives::lose(Notice &n, int err) {
  Unexpected &u = *n.rest;
  unlink(n);
  if (n.tagged) fail_tag(n.user, n.message, err);
  leave(n);
  give(n);
  receiver_.sink_->discard(u);
}

void BufferedReceives::fail_tag(void *context, const Message &m, int err) {
  if (receiver_.cntr != nullptr) receiver_.cntr->add_error();
  if (receiver_.cq != nullptr)
    receiver_.cq->push_error({.context = context,
                              .flags = flags_of(m),
                              .tag = m.tag,
                              .err = err,
                              .prov_errno = err,
                              .src_addr = receiver_.name(m.source)});
}

// ---- what is told, and when ----

void BufferedReceives::begin(Notice &n, const Message &m) {
  n.tagged = m.tagged;
  n.message = m;
  if (m.tagged) return;
  n.older = begun_last_;
  n.newer = nullptr;
  (begun_last_ != nullptr ? begun_last_->newer : begun_) = &n;
  begun_last_ = &n;
}

void BufferedReceives::cut(Notice &n) {
  (n.older != nullptr ? n.older->newer : begun_) = n.newer;
  (n.newer != nullptr ? n.newer->older : begun_last_) = n.older;
}

// What is to be told of it is there.
void BufferedReceives::come(Notice &n) {
  if (n.tagged) return tell(n);
  n.ready = true;
  for (const Notice *older = n.older; older != nullptr; older = older->older)
    if (older->message.source == n.message.source) return;
  leave(n);
}

// It is the oldest of its source, or has failed; those that are ready behind it follow.
void BufferedReceives::leave(Notice &n) {
  if (n.tagged) return;
  const uint32_t source = n.message.source;
  Notice *after = n.newer;
  bool is_first = true;
  for (const Notice *older = n.older; older != nullptr && is_first; older = older->older)
    is_first = older->message.source != source;
  cut(n);
  if (n.ready) tell(n);
  while (is_first && after != nullptr) {
    Notice &next = *std::exchange(after, after->newer);
    if (next.message.source != source) continue;
    if (!next.ready) return;
    cut(next);
    tell(next);
  }
}

void BufferedReceives::tell(Notice &n) {
  if (receiver_.cq == nullptr) return discard(n);  // nobody could claim it
  n.told = true;
  n.context = {n.tagged ? nullptr : ep_, n.user};
  if (receiver_.cntr != nullptr) receiver_.cntr->add_events(1, n.here);
  const Message &m = n.message;
  n.source = receiver_.name(m.source);
  const uint64_t flags = flags_of(m) | (n.rest != nullptr ? FI_MORE : 0);
  if (receiver_.settings_.source_err && m.source >= Matcher::kFirstUnnamed) {
    receiver_.cq->push_error({.context = &n.context,
                              .flags = flags,
                              .len = size_t(m.length),
                              .buf = n.bytes.get(),
                              .data = m.data,
                              .tag = m.tag,
                              .err = FI_EADDRNOTAVAIL,
                              .prov_errno = FI_EADDRNOTAVAIL,
                              .err_data = receiver_.sink_->source_address(m),
                              .src_addr = receiver_.sink_->source_key(m)});
    return;
  }
  receiver_.cq->push({.context = &n.context,
                      .flags = flags,
                      .len = size_t(m.length),
                      .buf = n.bytes.get(),
                      .data = m.data,
                      .tag = m.tag,
                      .src_addr = n.source});
}

// A sender without an address got one, or lost it: tags that were posted for it may take what came.
// What was told of as a whole is not with the protocol any more, so its source may be another's
// now.
void BufferedReceives::rename(uint32_t from, uint32_t to) {
  for (const Chunk &chunk : chunks_)
    for (size_t i = 0; i < chunk.count; ++i)
      if (Notice &n = chunk.notices[i]; n.used && !n.told && n.message.source == from)
        n.message.source = to;
  const auto say = [from, to](Unexpected &u) {
    if (u.source == from) u.source = u.message.source = to;
  };
  for (Unexpected *u = next(nullptr); u != nullptr; u = next(u)) say(*u);
  for (Unexpected *u = queues_.claimed; u != nullptr; u = u->next_) say(*u);
  queues_.tagged.rename(from, to);
  Unexpected *ready = nullptr, **last = &ready;
  queues_.tagged.visit_arrived(to, [&](Matcher::Arrived &a) {
    auto &u = static_cast<Unexpected &>(a);
    u.message.source = to;
    Matcher::Posted *const tag = queues_.tagged.find_posted(to, u.tag);
    if (tag == nullptr) return;
    queues_.tagged.remove(*tag);
    queues_.tagged.remove(u);
    u.holder_ = static_cast<Receive *>(tag);
    u.next_ = nullptr;
    *last = &u;
    last = &u.next_;
  });
  while (ready != nullptr) {
    Unexpected &u = *std::exchange(ready, ready->next_);
    pair(u, static_cast<Receive *>(u.holder_));
  }
}

// ---- messages that go ----

Unexpected *BufferedReceives::next(Unexpected *u) const {
  const Notice *n = rests_;
  if (u == nullptr) {
    if (waiting_ != nullptr) return waiting_;
  } else if (u->buffered_ == Unexpected::kPaired) {
    if (u->next_ != nullptr) return u->next_;
  } else {
    n = static_cast<const Notice *>(u->holder_)->next;
  }
  return n != nullptr ? n->rest : nullptr;
}

// The protocol gives the message up. Of one that the application knows, the claim fails.
void BufferedReceives::forget(Unexpected &u) {
  constexpr int kErr = FI_ECONNABORTED;
  if (u.buffered_ == Unexpected::kPaired) {
    Unexpected **at = &waiting_, *before = nullptr;
    while (*at != &u) before = *at, at = &(*at)->next_;
    *at = u.next_;
    if (waiting_last_ == &u) waiting_last_ = before;
    u.buffered_ = Unexpected::kElsewhere;
    if (auto *const tag = static_cast<Receive *>(u.holder_)) {
      fail_tag(tag->context, u.message, kErr);
      queues_.receives.give(tag);
    }
    return;
  }
  Notice &n = *static_cast<Notice *>(u.holder_);
  const bool is_being_read = u.waits_;  // then the memory is not free before the endpoint is
  unlink(n);
  if (n.told) {
    n.err = kErr;
    return;
  }
  if (n.tagged) fail_tag(n.user, n.message, kErr);
  n.ready = false;
  leave(n);
  if (!is_being_read) give(n);
}

// ---- the application ----

ssize_t BufferedReceives::post(const RecvRequest &q) {
  if (q.flags & ~kBufferedFlags) return -FI_EBADFLAGS;
  if (q.flags & (FI_CLAIM | FI_DISCARD) && !(q.flags & FI_PEEK)) return settle(q);
  uint32_t source;
  if (!receiver_.find_source(q, source)) return -FI_EINVAL;
  if (q.flags & FI_PEEK) return receiver_.look(q, source);
  if (!q.tagged) return -FI_EOPNOTSUPP;  // no receive is posted for untagged messages
  RecvRequest tag = q;
  tag.count = 0;  // buffers are ignored
  Receive *const r = receiver_.take(tag, source);
  if (r == nullptr) return -FI_ENOMEM;
  auto *const saved =
      static_cast<Unexpected *>(queues_.tagged.find_arrived(source, r->tag, r->ignore));
  if (saved == nullptr) {
    queues_.tagged.post(*r);
    return 0;
  }
  queues_.tagged.remove(*saved);
  pair(*saved, r);
  return 0;
}

// FI_CLAIM or FI_DISCARD.
ssize_t BufferedReceives::settle(const RecvRequest &q) {
  Notice *const n = find(q.context);
  if (n == nullptr) {
    // It may be the context of an FI_PEEK with FI_CLAIM.
    if (receiver_.find_claimed(q.tagged, q.context) == nullptr) return -FI_EINVAL;
    return receiver_.look(q, Matcher::kAnySource);
  }
  if (n->tagged != q.tagged) return -FI_EINVAL;
  if (q.flags & FI_DISCARD) {
    discard(*n);
  } else if (const ssize_t rc = claim(*n, q); rc != 0) {
    return rc;
  }
  retry();
  return 0;
}

ssize_t BufferedReceives::claim(Notice &n, const RecvRequest &q) {
  const size_t room = room_of(q);
  if (room == SIZE_MAX) return -FI_EINVAL;
  void *const context = n.context.context;
  if (n.rest != nullptr) {
    Receive *const r = receiver_.take(q, Matcher::kAnySource);
    if (r == nullptr) return -FI_ENOMEM;
    r->context = context;
    Unexpected &u = *n.rest;
    unlink(n);
    give(n);
    receiver_.deliver(u, *r);
    return 0;
  }
  const Message m = n.message;
  size_t received = 0;
  int err = n.err;
  if (err == 0) {
    received = std::min(n.here, room);
    if (received != 0 && !hmem_scatter(devices_, q.iov, q.count, 0, n.bytes.get(), received))
      err = FI_EIO;
  }
  const fi_addr_t source = n.source;
  give(n);
  report_claim(context, m, source, q.flags, room, received, err);
  return 0;
}

void BufferedReceives::discard(Notice &n) {
  Unexpected *const rest = n.rest;
  if (rest != nullptr) unlink(n);
  give(n);
  if (rest != nullptr) receiver_.sink_->discard(*rest);
}

void BufferedReceives::report_claim(void *context, const Message &m, fi_addr_t source,
                                    uint64_t flags, size_t room, size_t received, int err) {
  if (err == 0 && m.length > room) err = FI_ETRUNC;
  if (receiver_.cntr != nullptr) {
    if (err == 0) {
      receiver_.cntr->add_events(1, received);
    } else {
      receiver_.cntr->add_error();
    }
  }
  if (receiver_.cq == nullptr) return;
  const uint64_t about = flags_of(m) | FI_CLAIM;
  if (err != 0) {
    receiver_.cq->push_error(
        {.context = context,
         .flags = about,
         .len = received,
         .data = m.data,
         .tag = m.tag,
         .olen = err == FI_ETRUNC && m.length > room ? size_t(m.length - room) : 0,
         .err = err,
         .prov_errno = err,
         .src_addr = source});
  } else if (receiver_.reports(flags)) {
    receiver_.cq->push({.context = context,
                        .flags = about,
                        .len = received,
                        .data = m.data,
                        .tag = m.tag,
                        .src_addr = source});
  }
}

}  // namespace weft::sdk
