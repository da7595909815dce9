// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/fuzz/side.h"

#include <algorithm>
#include <cstring>

#include "plugin-api/sdk/testing/test_buffered.h"

namespace weft::rxm {

Side::Side(World &world, uint16_t port, const Settings &settings, const Buffered &buffered)
    : world_(world),
      port_(port),
      buffered_(buffered),
      receiver_(*this, {.size = 256, .directed = true, .source = true, .buffered = buffered.on}) {
  if (buffered.on)
    FUZZ_CHECK(sdk::set_buffered(receiver_, buffered.limit, buffered.min) == 0, "an option");
  fi_cq_attr attr{};
  attr.format = FI_CQ_FORMAT_TAGGED;
  attr.size = 64;
  cq_ = *sdk::Cq::open(domain_.context, &attr, nullptr);
  av_ = *sdk::Av::open(domain_.context, FI_SOCKADDR_IN, nullptr, nullptr);
  av_->add_user(*this, true);
  receiver_.cq = cq_;
  receiver_.av = av_;
  region = memory.lend(kRegionSize, 0);
  for (size_t i = 0; i < kRegionSize; ++i) region[i] = pattern(port, i);
  core_.emplace(*this, *this, settings);
  core_->set_own_address(address_of(port, world.low));
  shares_ = !settings.credits;
  writes_ = settings.rendezvous_write;
}

Side::~Side() {
  core_->abandon();
  receiver_.visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
    receiver_.forget(m);
    core_->discard(static_cast<RxMessage &>(m));
  });
  FUZZ_CHECK(core_->unexpected_bytes() == 0, "bytes of messages are left over");
  core_.reset();
  FUZZ_CHECK(regions_.empty(), "registrations are left over");
  FUZZ_CHECK(buffers_ == 0, "buffers are left over");
  fi_close(cq_->base());
  av_->remove_user(*this);
  fi_close(av_->base());
  for (Link &link : world_.links) {
    if (link.side != this) continue;
    link.side = nullptr;
    link.owner = nullptr;
    link.open = false;
    link.news.clear();
    link.inbox.clear();
  }
  std::erase_if(world_.returns, [this](const World::Return &r) { return r.side == this; });
}

void Side::insert(uint16_t port, uint8_t who) {
  reap();  // completions in the queue have the old names
  const sdk::Address address = address_of(port, world_.low);
  fi_addr_t index = FI_ADDR_NOTAVAIL;
  FUZZ_CHECK(av_->insert(address.data(), 1, &index, 0, nullptr) == 1, "an address was refused");
  if (names_.size() <= index) names_.resize(index + 1, kNobody);
  names_[index] = who;
}

void Side::remove(fi_addr_t index) {
  reap();
  if (index >= names_.size() || names_[index] == kNobody) return;
  FUZZ_CHECK(av_->remove(&index, 1, 0) == 0, "an address could not be removed");
  names_[index] = kNobody;
  ++removed;  // such a peer was no stranger when it connected
}

void Side::send(fi_addr_t to, size_t length, uint8_t how) {
  TxOp *op = begin(to);
  if (op == nullptr) return;
  const uint64_t id = base + sent.size() + 1;
  const bool tagged = (how & 1) != 0, relayed = name(to) == kByRelay;
  Sent s{.to = to,
         .length = length,
         .tagged = tagged,
         .has_data = !tagged || relayed || id % 4 == 0,
         .id = id};
  s.bytes = memory.lend(length, 0);
  for (size_t i = 0; i < length; ++i) s.bytes[i] = pattern(id, i);
  op->length = length;
  op->data = relayed ? kRelayed | id << 1 | (port_ == kHonest ? 1 : 0) : id;
  op->tag = tag_of(id);
  op->inject = (how & 2) != 0 && length <= 64;
  op->fence = (how & 4) != 0;
  const size_t half = (how & 8) != 0 ? length / 2 : length;
  op->iov[0] = {s.bytes, half};
  op->iov[1] = {s.bytes + half, length - half};
  op->count = (how & 8) != 0 ? 2 : 1;
  core_->prepare_message(*op, s.tagged, s.has_data,
                         (how & 32) != 0   ? Tell::kMatched
                         : (how & 16) != 0 ? Tell::kDelivered
                                           : Tell::kNothing);
  const bool inject = op->inject;
  uint8_t *bytes = s.bytes;
  if (inject) s.bytes = nullptr;
  go(*op, s, to);
  if (inject) give_back(bytes);
}

void Side::access(fi_addr_t to, bool write, size_t length) {
  TxOp *op = begin(to);
  if (op == nullptr) return;
  length = std::min(length, kRegionSize);
  Sent s{.to = to, .length = length, .kind = write ? Sent::Kind::kWrite : Sent::Kind::kRead};
  s.bytes = memory.lend(length, kUntouched);
  // Write the bytes that the region has already, so that reads always find the same.
  for (size_t i = 0; write && i < length; ++i) s.bytes[i] = pattern(kHonest, i);
  op->form = write ? TxOp::Form::kWrite : TxOp::Form::kRead;
  op->length = length;
  op->iov[0] = {s.bytes, length};
  op->count = 1;
  op->vectors[0] = {0, length, kRegionKey};
  op->vector_count = 1;
  go(*op, s, to);
}

void Side::add(fi_addr_t to) {
  TxOp *op = begin(to);
  if (op == nullptr) return;
  Sent s{.to = to, .length = 8, .kind = Sent::Kind::kAtomic};
  s.bytes = memory.lend(8, kUntouched);
  prepare_fetch_add(*core_, *op, s.bytes, kCounterKey);
  go(*op, s, to);
}

void Side::post(fi_addr_t source, bool tagged, size_t length, bool multi, bool pieces) {
  if (memory.blocks() > 2 * kManyBlocks) return;
  if (buffered_.on && !tagged) return;  // such messages need no receives, and others no memory
  if (buffered_.on) length = 0, multi = pieces = false;
  auto p = std::make_unique<Posted>();
  p->bytes = memory.lend(length, kUntouched);
  p->length = length;
  p->source = source;
  p->who = name(source);
  p->number = received.size();
  p->multi = multi;
  const size_t half = pieces && !multi ? length / 2 : length;
  const iovec iov[2] = {{p->bytes, half}, {p->bytes + half, length - half}};
  Posted *posted = &record(std::move(p));
  const ssize_t rc = receiver_.post({.tagged = tagged,
                                     .iov = iov,
                                     .count = pieces && !multi ? 2u : 1u,
                                     .src = source,
                                     .ignore = ~UINT64_C(0),
                                     .flags = multi ? FI_MULTI_RECV : 0,
                                     .context = posted});
  if (rc == 0) return;
  FUZZ_CHECK(rc == -FI_EAGAIN || rc == -FI_EINVAL, "a receive was refused");
  take_back(*posted);
  ++posted->ended;
}

void Side::look(fi_addr_t source, bool tagged, uint64_t flags) {
  if (name(source) == kNobody || name(source) == 0) return;
  auto p = std::make_unique<Posted>();
  p->look = true;
  p->claims = (flags & FI_CLAIM) != 0;
  Posted *posted = &record(std::move(p));
  if (receiver_.post({.tagged = tagged,
                      .src = source,
                      .ignore = ~UINT64_C(0),
                      .flags = FI_PEEK | flags,
                      .context = posted}) != 0)
    ++posted->ended;
}

void Side::take_claimed(bool tagged, size_t length, bool drop) {
  reap();
  for (auto &p : received) {
    if (!p->claimed) continue;
    p->claimed = p->claims = false;
    p->ended = 0;
    p->look = drop;
    if (!drop) {
      p->bytes = memory.lend(length, kUntouched);
      p->length = length;
    }
    const iovec iov{p->bytes, length};
    if (receiver_.post({.tagged = tagged,
                        .iov = &iov,
                        .count = drop ? 0u : 1u,
                        .flags = uint64_t(FI_CLAIM | (drop ? FI_DISCARD : 0)),
                        .context = p.get()}) != 0) {
      take_back(*p);
      ++p->ended;
    }
    return;
  }
}

bool Side::settle_told(size_t which, size_t length, bool drop, bool pieces) {
  if (notices_.empty()) return false;
  fuzz::Notice n = notices_.take(which);
  auto made = std::make_unique<Posted>();
  made->bytes = memory.lend(length, kUntouched);
  made->length = length;
  made->whole = !n.more;
  made->source = n.source;
  made->who = n.who;
  const size_t half = pieces ? length / 2 : length;
  const iovec iov[2] = {{made->bytes, half}, {made->bytes + half, length - half}};
  Posted &p = record(std::move(made));
  void *const before = std::exchange(n.context->context, &p);
  const ssize_t rc = receiver_.post({.tagged = n.tagged,
                                     .iov = iov,
                                     .count = drop     ? 0u
                                              : pieces ? 2u
                                                       : 1u,
                                     .flags = drop ? FI_DISCARD : FI_CLAIM,
                                     .context = n.context});
  if (rc == 0 && !drop) return true;
  take_back(p);
  ++p.ended;
  if (rc == 0) {
    Sent *s = honest_message(n.source, n.flags, n.data, n.tag);
    FUZZ_CHECK(s == nullptr || ++s->arrived == 1, "a message arrived twice");
    return true;
  }
  FUZZ_CHECK(rc == -FI_EAGAIN, "a message could not be claimed or discarded");
  n.context->context = before;
  notices_.put_back(std::move(n));
  return false;
}

void Side::settle_nothing(uint8_t how) {
  fi_recv_context none{};
  const iovec iov{nullptr, 0};
  const ssize_t rc = receiver_.post({.tagged = (how & 1) != 0,
                                     .iov = &iov,
                                     .count = 1,
                                     .flags = (how & 2) != 0 ? FI_DISCARD : FI_CLAIM,
                                     .context = (how & 4) != 0 ? &none : nullptr});
  FUZZ_CHECK(rc == -FI_EINVAL, "what is not a message was claimed");
}

void Side::cancel(size_t which) {
  if (received.empty()) return;
  Posted &p = *received[which % received.size()];
  if (p.source != 0) receiver_.cancel(&p);  // keep receives for the honest peer
}

void Side::reap() {
  fi_cq_tagged_entry e{};
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  for (;;) {
    const ssize_t n = cq_->readfrom(&e, 1, &source);
    if (n == 1) {
      succeeded(e, source);
    } else if (n == -FI_EAVAIL) {
      fi_cq_err_entry err{};
      FUZZ_CHECK(cq_->readerr(&err, 0) == 1, "an error that cannot be read");
      failed(err);
    } else {
      return;
    }
  }
}

void Side::end_receives() {
  receiver_.fail_posted(FI_ECANCELED);
  reap();
  for (const auto &p : received) FUZZ_CHECK(p->ended == 1 || p->claimed, "a receive did not end");
}

void Side::expect_ended() {
  for (const Sent &s : sent) FUZZ_CHECK(s.ended == 1, "an operation did not end");
  FUZZ_CHECK(core_->in_flight() == 0 && !core_->has_queued(), "operations are left over");
}

void Side::expect_arrived(fi_addr_t to) {
  // Messages match receives in the order in which they were sent.
  for (auto &order : order_) {
    std::sort(order.begin(), order.end());
    for (size_t i = 1; i < order.size(); ++i)
      FUZZ_CHECK(order[i - 1].second < order[i].second, "a message overtook another");
  }
  for (size_t i = promised; i < sent.size(); ++i) {
    const Sent &s = sent[i];
    if (s.to != to) continue;
    FUZZ_CHECK(s.ended == 1, "an operation with the honest peer did not end");
    FUZZ_CHECK(s.err == 0, "an operation with the honest peer failed");
    FUZZ_CHECK(s.kind != Sent::Kind::kMessage || s.arrived == 1,
               "a message of the honest peer was lost");
  }
}

bool Side::all_arrived(fi_addr_t to) const {
  for (size_t i = promised; i < sent.size(); ++i)
    if (sent[i].to == to && (sent[i].ended == 0 || (sent[i].kind == Sent::Kind::kMessage &&
                                                    sent[i].err == 0 && sent[i].arrived == 0)))
      return false;
  return true;
}

void Side::pass_time(uint64_t ns) {
  (void)ns;
  if (deadline_ == 0 || deadline_ > world_.now) return;
  deadline_ = 0;
  core_->on_deadline();
}

void Side::expect_named() {
  receiver_.visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
    FUZZ_CHECK(m.message.source == core_->source_of(*static_cast<RxMessage &>(m).from),
               "a message is saved under a name that may become another's");
  });
}

bool Side::peek(const Link &by, const RmaVector &v, std::vector<uint8_t> &out) {
  const uint8_t *at = reach(by, v, FI_REMOTE_READ);
  if (at != nullptr) out.assign(at, at + v.length);
  return at != nullptr;
}

bool Side::poke(const Link &by, const RmaVector &v, const uint8_t *bytes) {
  uint8_t *at = reach(by, v, FI_REMOTE_WRITE);
  if (at != nullptr && v.length != 0) std::memcpy(at, bytes, v.length);
  return at != nullptr;
}

std::vector<uint64_t> Side::keys() const {
  std::vector<uint64_t> all;
  for (const auto &[key, r] : regions_) all.push_back(key);
  return all;
}

void Side::on_done(TxOp &op, int err) {
  Sent &s = sent.at(reinterpret_cast<uint64_t>(op.context) - 1);
  FUZZ_CHECK(++s.ended == 1, "an operation ended twice");
  s.err = err;
  if (err == 0 && !restarted) {
    const bool read = s.kind == Sent::Kind::kRead;
    for (size_t i = 0; read && name(s.to) != kByRelay && i < s.length; ++i)
      FUZZ_CHECK(name(s.to) == 0 ? s.bytes[i] == pattern(kHonest, i) : s.bytes[i] >> 4 == 0xa,
                 "a read without the bytes");
    FUZZ_CHECK(s.kind != Sent::Kind::kAtomic || s.bytes[0] != kUntouched,
               "an atomic without its result");
  }
  if (s.bytes != nullptr) give_back(std::exchange(s.bytes, nullptr));
}

void Side::give_back(uint8_t *bytes) {
  for (const auto &[key, r] : regions_)
    FUZZ_CHECK(r.iov.iov_base != bytes, "memory of an operation that ended is still registered");
  memory.take_back(bytes);
}

void Side::go(TxOp &op, const Sent &s, fi_addr_t to) {
  op.context = reinterpret_cast<void *>(sent.size() + 1);
  sent.push_back(s);
  const std::optional<sdk::Address> address = av_->address(uint32_t(to));
  if (core_->start(op, uint32_t(to), &*address) == 0) return;
  Sent &record = sent.back();
  record.ended = 1;
  record.err = -1;
  if (record.bytes != nullptr) give_back(std::exchange(record.bytes, nullptr));
  core_->give(op);
}

void Side::end(Posted &p) {
  FUZZ_CHECK(++p.ended == 1, "a receive ended twice");
  take_back(p);
}

void Side::succeeded(const fi_cq_tagged_entry &e, fi_addr_t source) {
  if (!contexts_.contains(e.op_context)) return noticed(e, source);
  auto &p = *static_cast<Posted *>(e.op_context);
  if (p.look) {
    FUZZ_CHECK(++p.ended == 1, "a peek ended twice");
    p.claimed = p.claims;
    return;
  }
  if (e.flags & FI_RECV) check(p, e, source, std::min(e.len, p.length));
  if (!p.multi || e.flags & FI_MULTI_RECV) end(p);
}

void Side::failed(const fi_cq_err_entry &e) {
  auto &p = *static_cast<Posted *>(e.op_context);
  if (p.look) {
    FUZZ_CHECK(++p.ended == 1, "a peek ended twice");
    return;
  }
  if (e.err == FI_ETRUNC) {
    fi_cq_tagged_entry as{e.op_context, e.flags, e.len, e.buf, e.data, e.tag};
    check(p, as, e.src_addr, e.len, true);
  } else if (e.err != FI_ECANCELED && e.err != FI_ENOMSG) {
    FUZZ_CHECK(restarted || name(e.src_addr) != 0, "a receive from the honest peer failed");
  }
  // A failed message uses up its part of a multi-receive buffer.
  if (!p.multi || e.flags & FI_MULTI_RECV || e.err == FI_ECANCELED) end(p);
}

void Side::check(Posted &p, const fi_cq_tagged_entry &e, fi_addr_t source, size_t n, bool cut) {
  const uint8_t *at = p.multi ? static_cast<const uint8_t *>(e.buf) : p.bytes;
  FUZZ_CHECK(at >= p.bytes && at + n <= p.bytes + p.length, "a message outside of its buffer");
  if (is_actors(source, e.flags, e.data)) return;
  if (Sent *s = honest_message(source, e.flags, e.data, e.tag)) {
    if (!buffered_.on) order_[s->tagged].emplace_back(p.number, s->id);
    FUZZ_CHECK(cut ? s->length > n : s->length == n, "a message of another length");
    FUZZ_CHECK(++s->arrived == 1, "a message arrived twice");
    for (size_t i = 0; i < n; ++i)
      FUZZ_CHECK(at[i] == pattern(s->id, i), "a message of the honest peer was changed");
    return;
  }
  FUZZ_CHECK(!p.whole || source == p.source, "a message is claimed from another than was told");
  const uint8_t who = p.whole ? p.who : name(source);
  if (restarted && who == 0) return;
  // A notice's memory is not kUntouched where the attacker claims a write that it did not do.
  if (writes_ && p.whole) return;
  check_mark(at, n, who);
  for (size_t i = n; !p.multi && i < p.length; ++i)
    FUZZ_CHECK(p.bytes[i] == kUntouched || writes_, "bytes behind the end of a message");
}

bool Side::is_actors(fi_addr_t source, uint64_t flags, uint64_t data) {
  if (!world_.acted) return false;
  const uint64_t mark = (flags & FI_REMOTE_CQ_DATA) != 0 ? data >> 32 << 32 : 0;
  if (mark == kStolen) {
    ++thief_tally().told;
    FUZZ_CHECK(
        name(source) != 0 || (restarted && (promised == SIZE_MAX || uint32_t(data) < old_stolen_)),
        "a message of the thief under the honest peer's name");
    return true;
  }
  if (mark == kRelayed) {
    ++relay_tally().told;
    const bool of_honest = (data & 1) != 0;
    FUZZ_CHECK(name(source) != 0 || of_honest == (port_ == kEndpoint),
               "a message of this process under its peer's name");
    return true;
  }
  return name(source) == kByRelay;
}

// The message of the honest peer; null: it is from the earlier honest peer, or from the attacker,
// perhaps under its name.
Side::Sent *Side::honest_message(fi_addr_t source, uint64_t flags, uint64_t data, uint64_t tag) {
  const bool tagged = (flags & FI_TAGGED) != 0, has_data = (flags & FI_REMOTE_CQ_DATA) != 0;
  const uint64_t id = tagged ? id_of_tag(tag) : data;
  const bool known = peer != nullptr && id > peer->base && id <= peer->base + peer->sent.size() &&
                     (tagged ? tag == tag_of(id) : has_data);
  if (name(source) != 0 || (restarted && !known)) return nullptr;
  FUZZ_CHECK(known, "a message under the honest peer's name");
  const uint64_t number = id - peer->base - 1;
  if (number >= peer->promised) meet();
  Sent &s = peer->sent[number];
  FUZZ_CHECK(s.kind == Sent::Kind::kMessage && s.tagged == tagged, "another kind of message");
  FUZZ_CHECK(s.has_data == has_data && data == (has_data ? id : 0), "other remote data");
  return &s;
}

void Side::check_mark(const uint8_t *at, size_t n, uint8_t who) const {
  const uint8_t mark = who != kNobody || n == 0 ? mark_of(who) : at[0];
  for (size_t i = 0; i < n; ++i) {
    // The attacker may claim a write that it did not do.
    if (writes_ && at[i] == kUntouched) continue;
    FUZZ_CHECK(at[i] >> 4 == 0xa, "a receive succeeded without its bytes");
    FUZZ_CHECK(writes_ || at[i] == mark, "a message of another sender");
  }
}

// The receiver tells of a message that it has.
void Side::noticed(const fi_cq_tagged_entry &e, fi_addr_t source) {
  FUZZ_CHECK(buffered_.on, "an unknown receive ended");
  fuzz::Notice &n = notices_.add(e, source, buffered_.min);
  n.who = name(source);
  FUZZ_CHECK(n.more == (n.length > buffered_.limit), "a message is not where it should be");
  size_t number = notes_++;
  if (n.tagged) {  // by order of the tags
    auto &tag = *static_cast<Posted *>(n.context->context);
    FUZZ_CHECK(contexts_.contains(&tag), "a notice without a tag");
    number = tag.number;
    end(tag);
  }
  if (is_actors(source, e.flags, e.data)) return;
  if (Sent *s = honest_message(source, e.flags, e.data, e.tag)) {
    order_[s->tagged].emplace_back(number, s->id);
    FUZZ_CHECK(s->length == n.length, "a message of another length");
    FUZZ_CHECK(++s->told == 1, "a message arrived twice");
    for (size_t i = 0; i < n.bytes.size(); ++i)
      FUZZ_CHECK(n.bytes[i] == pattern(s->id, i), "a message of the honest peer was changed");
  } else if (!writes_ && (!restarted || n.who != 0)) {
    check_mark(n.bytes.data(), n.bytes.size(), n.who);
  }
}

}  // namespace weft::rxm
