// SPDX-License-Identifier: BSD-2-Clause
// An endpoint of core_fuzz.cc with its application, which knows of every buffer whose it is, and of
// every operation and receive how often it ended. As a carrier it moves bytes between real memory.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_FUZZ_SIDE_H
#define WEFT_PLUGINS_RXM_PROTOCOL_FUZZ_SIDE_H

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/av.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "plugins/rxm/protocol/fuzz_world.h"
#include "plugins/rxm/protocol/test_atomic.h"
#include "tests/fuzz/world.h"

namespace weft::rxm {

// An endpoint and its application.
class Side final : public Carrier,
                   public Core::Upper,
                   public sdk::ReceiverSink,
                   public sdk::AvUser {
 public:
  Side(World &world, uint16_t port, const Settings &settings)
      : world_(world),
        port_(port),
        receiver_(*this, {.size = 256, .directed = true, .source = true}) {
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
  ~Side() {
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

  // ---- the application ----
  struct Sent {
    fi_addr_t to;
    uint8_t *bytes = nullptr;    // null: the memory is the application's
    uint64_t *result = nullptr;  // of an atomic
    size_t length = 0;
    enum class Kind { kMessage, kRead, kWrite, kAtomic } kind = Kind::kMessage;
    bool tagged = false;
    int ended = 0, err = 0, arrived = 0;
  };
  struct Posted {
    uint8_t *bytes = nullptr;
    size_t length = 0, at = 0;
    fi_addr_t source = FI_ADDR_UNSPEC;
    uint8_t who = 0;    // at `source` when it was posted
    size_t number = 0;  // of the call
    bool multi = false, look = false, claims = false, claimed = false;
    int ended = 0;
  };

  void insert(uint16_t port, uint8_t who) {
    reap();  // what was reported already has the old names
    const sdk::SockAddr address = address_of(port, world_.low);
    fi_addr_t index = FI_ADDR_NOTAVAIL;
    FUZZ_CHECK(av_->insert(address.c(), 1, &index, 0, nullptr) == 1, "an address was refused");
    if (names_.size() <= index) names_.resize(index + 1, kNobody);
    names_[index] = who;
  }
  void remove(fi_addr_t index) {
    reap();
    if (index >= names_.size() || names_[index] == kNobody) return;
    FUZZ_CHECK(av_->remove(&index, 1, 0) == 0, "an address could not be removed");
    names_[index] = kNobody;
    ++removed;  // who was no stranger when it connected
  }
  size_t names() const { return names_.size(); }
  uint8_t name(fi_addr_t index) const { return index < names_.size() ? names_[index] : kNobody; }

  void send(fi_addr_t to, size_t length, uint8_t how) {
    TxOp *op = begin(to);
    if (op == nullptr) return;
    const uint64_t id = base + sent.size() + 1;
    Sent s{.to = to, .length = length, .tagged = (how & 1) != 0};
    s.bytes = memory.lend(length, 0);
    for (size_t i = 0; i < length; ++i) s.bytes[i] = pattern(id, i);
    op->length = length;
    op->data = op->tag = id;
    op->inject = (how & 2) != 0 && length <= 64;
    op->fence = (how & 4) != 0;
    const size_t half = (how & 8) != 0 ? length / 2 : length;
    op->iov[0] = {s.bytes, half};
    op->iov[1] = {s.bytes + half, length - half};
    op->count = (how & 8) != 0 ? 2 : 1;
    core_->prepare_message(*op, s.tagged, true, (how & 16) != 0);
    const bool inject = op->inject;
    uint8_t *bytes = s.bytes;
    if (inject) s.bytes = nullptr;
    go(*op, s, to);
    if (inject) give_back(bytes);
  }
  void access(fi_addr_t to, bool write, size_t length) {
    TxOp *op = begin(to);
    if (op == nullptr) return;
    length = std::min(length, kRegionSize);
    Sent s{.to = to, .length = length, .kind = write ? Sent::Kind::kWrite : Sent::Kind::kRead};
    s.bytes = memory.lend(length, kUntouched);
    // What is written to the region is what is in it: who reads it always finds the same.
    for (size_t i = 0; write && i < length; ++i) s.bytes[i] = pattern(kHonest, i);
    op->form = write ? TxOp::Form::kWrite : TxOp::Form::kRead;
    op->length = length;
    op->iov[0] = {s.bytes, length};
    op->count = 1;
    op->vectors[0] = {0, length, kRegionKey};
    op->vector_count = 1;
    go(*op, s, to);
  }
  void add(fi_addr_t to) {
    TxOp *op = begin(to);
    if (op == nullptr) return;
    Sent s{.to = to, .length = 8, .kind = Sent::Kind::kAtomic};
    s.bytes = memory.lend(8, kUntouched);
    prepare_fetch_add(*core_, *op, s.bytes, kCounterKey);
    go(*op, s, to);
  }
  void post(fi_addr_t source, bool tagged, size_t length, bool multi, bool pieces) {
    if (memory.blocks() > 2 * kManyBlocks) return;
    auto p = std::make_unique<Posted>();
    p->bytes = memory.lend(length, kUntouched);
    p->length = length;
    p->source = source;
    p->who = name(source);
    p->number = received.size();
    p->multi = multi;
    const size_t half = pieces && !multi ? length / 2 : length;
    const iovec iov[2] = {{p->bytes, half}, {p->bytes + half, length - half}};
    Posted *posted = p.get();
    received.push_back(std::move(p));
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
  // FI_PEEK with or without FI_CLAIM or FI_DISCARD, of one source: the honest peer's are not for
  // it.
  void look(fi_addr_t source, bool tagged, uint64_t flags) {
    if (name(source) == kNobody || name(source) == 0) return;
    auto p = std::make_unique<Posted>();
    p->look = true;
    p->claims = (flags & FI_CLAIM) != 0;
    Posted *posted = p.get();
    received.push_back(std::move(p));
    if (receiver_.post({.tagged = tagged,
                        .src = source,
                        .ignore = ~UINT64_C(0),
                        .flags = FI_PEEK | flags,
                        .context = posted}) != 0)
      ++posted->ended;
  }
  void take_claimed(bool tagged, size_t length, bool drop) {
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
  void cancel(size_t which) {
    if (received.empty()) return;
    Posted &p = *received[which % received.size()];
    if (p.source != 0) receiver_.cancel(&p);  // not those for the honest peer's messages
  }
  // Completions.
  void reap() {
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
  void end_receives() {
    receiver_.fail_posted(FI_ECANCELED);
    reap();
    for (const auto &p : received) FUZZ_CHECK(p->ended == 1 || p->claimed, "a receive did not end");
  }
  void expect_ended() {
    for (const Sent &s : sent) FUZZ_CHECK(s.ended == 1, "an operation did not end");
    FUZZ_CHECK(core_->in_flight() == 0 && !core_->has_queued(), "operations are left over");
  }
  // Between the endpoint and the honest peer.
  void expect_arrived(fi_addr_t to) {
    // In the order of the receives stands what was sent in order.
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
  bool all_arrived(fi_addr_t to) const {
    for (size_t i = promised; i < sent.size(); ++i)
      if (sent[i].to == to && (sent[i].ended == 0 || (sent[i].kind == Sent::Kind::kMessage &&
                                                      sent[i].err == 0 && sent[i].arrived == 0)))
        return false;
    return true;
  }
  void pass_time(uint64_t ns) {
    (void)ns;
    if (deadline_ == 0 || deadline_ > world_.now) return;
    deadline_ = 0;
    core_->on_deadline();
  }
  uint64_t deadline() const { return deadline_; }
  bool idle() const { return core_->in_flight() == 0 && receiver_.unexpected() == 0; }
  size_t unexpected() const { return receiver_.unexpected(); }
  void expect_named() {
    receiver_.visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
      FUZZ_CHECK(m.message.source == core_->source_of(*static_cast<RxMessage &>(m).from),
                 "a message is saved under a name that may become another's");
    });
  }
  bool full() const { return memory.blocks() > kManyBlocks; }
  Core &core() { return *core_; }

  static constexpr uint8_t kNobody = 0xff;
  static constexpr size_t kManyBlocks = 600;
  fuzz::Memory memory;
  std::deque<Sent> sent;
  std::vector<std::unique_ptr<Posted>> received;
  uint8_t *region = nullptr;
  uint64_t counter = 0;
  Side *peer = nullptr;  // the other honest one, and
  size_t removed = 0;
  bool restarted = false;  // whether it is not the first
  // Operations toward it that are promised to arrive: those after it has spoken.
  size_t promised = 0;
  uint64_t base = 0;  // of the numbers of messages

  // What a peer does to memory that is registered here. False: not allowed.
  bool peek(const Link &by, const RmaVector &v, std::vector<uint8_t> &out) {
    const uint8_t *at = reach(by, v, FI_REMOTE_READ);
    if (at != nullptr) out.assign(at, at + v.length);
    return at != nullptr;
  }
  bool poke(const Link &by, const RmaVector &v, const uint8_t *bytes) {
    uint8_t *at = reach(by, v, FI_REMOTE_WRITE);
    if (at != nullptr && v.length != 0) std::memcpy(at, bytes, v.length);
    return at != nullptr;
  }
  std::vector<uint64_t> keys() const {
    std::vector<uint64_t> all;
    for (const auto &[key, r] : regions_) all.push_back(key);
    return all;
  }

  // ---- what happens beneath ----
  void arrive(Link &from, const sdk::SockAddr &source, const std::vector<uint8_t> &bytes) {
    Request request{&from};
    core_->on_request(request, source, address_of(port_, world_.low), bytes);
    FUZZ_CHECK(request.answered, "a request was not answered");
  }
  // False: it has to wait.
  bool take(Link &link, Item &item) {
    switch (item.kind) {
      case Item::Kind::kPacket: {
        if (link.held) return false;
        if (shares_ ? buffers_ >= kSharedBuffers : link.in_use >= kOwnBuffers) return false;
        auto *buffer = new Buffer;
        buffer->bytes = std::make_unique<uint8_t[]>(item.bytes.size());
        buffer->length = item.bytes.size();
        std::copy(item.bytes.begin(), item.bytes.end(), buffer->bytes.get());
        buffer->link = &link;
        ++buffers_;
        ++link.in_use;
        if (link.owner == nullptr ||
            !core_->on_packet(*link.owner, {buffer->bytes.get(), buffer->length}, *buffer))
          release(*buffer);
        return true;
      }
      case Item::Kind::kRead: {
        Item reply{.kind = Item::Kind::kReply, .bytes = {}, .vector = {}, .token = item.token};
        FUZZ_CHECK(peek(link, item.vector, reply.bytes), "an honest read was refused");
        if (link.other->open) link.other->inbox.push_back(std::move(reply));
        return true;
      }
      case Item::Kind::kWrite:
        FUZZ_CHECK(poke(link, item.vector, item.bytes.data()), "an honest write was refused");
        return true;
      case Item::Kind::kReply: {
        const auto it = std::find_if(link.reads.begin(), link.reads.end(),
                                     [&](const Link::Read &r) { return r.token == item.token; });
        if (it == link.reads.end()) return true;
        const Link::Read read = *it;
        link.reads.erase(it);
        size_t at = 0;
        for (const iovec &v : read.into) {
          FUZZ_CHECK(memory.holds(v.iov_base, v.iov_len), "a read into memory that was given back");
          const size_t n = std::min(v.iov_len, item.bytes.size() - at);
          if (n != 0) std::memcpy(v.iov_base, item.bytes.data() + at, n);
          at += n;
        }
        core_->on_sent(*read.token, item.err);
        return true;
      }
      case Item::Kind::kClosed:
        link.open = false;
        if (link.owner != nullptr) core_->on_closed(*link.owner, FI_ECONNRESET);
        return true;
    }
    return true;
  }
  void come_back(const World::Return &r) {
    for (const iovec &v : r.into) {
      // Until then the carrier may write.
      FUZZ_CHECK(memory.holds(v.iov_base, v.iov_len), "memory of a read was given back too early");
      std::memset(v.iov_base, 0xee, v.iov_len);
    }
    core_->on_sent(*r.token, FI_ECANCELED);
  }

  // ---- Carrier ----
  Link *connect(Connection &owner, const sdk::SockAddr &to, std::span<const uint8_t> data,
                int &err) override {
    const uint16_t port = to.port();
    const bool attacker = port != kHonest && port != kEndpoint;
    if (attacker && world_.scarce) {
      err = EMFILE;
      return nullptr;
    }
    Link &link = world_.make(this, &owner);
    if (attacker) {
      link.who = uint8_t(port - kAttacker + 1);
      world_.calls.push_back(&link);
      return &link;
    }
    const std::vector<uint8_t> bytes(data.begin(), data.end());
    world_.events.push_back([&world = world_, &link, port, bytes, own = port_] {
      if (!link.open || link.owner == nullptr) return;
      Side *target = port == kHonest ? world.honest : world.endpoint;
      if (target != nullptr) {
        sdk::SockAddr from = address_of(own, world.low);
        from.set_port(uint16_t(40000 + world.links.size()));
        return target->arrive(link, from, bytes);
      }
      link.open = false;
      link.side->core().on_refused(*link.owner, FI_ECONNREFUSED, {});
    });
    return &link;
  }
  Link *accept(Connection &owner, Request &request, std::span<const uint8_t> data,
               int &err) override {
    Link *from = request.from;
    if (from->side == nullptr && world_.scarce) {
      err = ENOMEM;
      return nullptr;
    }
    request.answered = true;
    Link &link = world_.make(this, &owner);
    link.other = from;
    from->other = &link;
    link.news.push_back([&link] { link.side->core().on_connected(*link.owner, {}); });
    if (from->side == nullptr) {  // the attacker does not care for what it is told
      if (!from->open)
        link.inbox.push_back({.kind = Item::Kind::kClosed, .bytes = {}, .vector = {}});
      return &link;
    }
    if (!from->open || from->owner == nullptr) {
      link.inbox.push_back({.kind = Item::Kind::kClosed, .bytes = {}, .vector = {}});
    } else {
      const std::vector<uint8_t> bytes(data.begin(), data.end());
      from->news.push_back([from, bytes] { from->side->core().on_connected(*from->owner, bytes); });
    }
    return &link;
  }
  void reject(Request &request, std::span<const uint8_t> data) override {
    if (std::exchange(request.answered, true)) return;
    Link *from = request.from;
    if (from->side == nullptr || from->owner == nullptr) {
      from->open = false;
      return;
    }
    const std::vector<uint8_t> bytes(data.begin(), data.end());
    from->news.push_back([from, bytes] {
      from->open = false;
      from->side->core().on_refused(*from->owner, FI_ECONNREFUSED, bytes);
    });
  }
  void close(Link &link, bool idle) override {
    FUZZ_CHECK(link.owner != nullptr && link.side == this, "a link was closed twice");
    link.owner = nullptr;
    FUZZ_CHECK(!idle || (link.sent.empty() && link.reads.empty()),
               "called idle, but the carrier has operations");
    for (Token *token : link.sent) world_.returns.push_back({this, token, {}});
    for (Link::Read &read : link.reads) world_.returns.push_back({this, read.token, read.into});
    link.sent.clear();
    link.reads.clear();
    link.news.clear();
    std::erase_if(world_.asks, [&](const World::Ask &a) { return a.link == &link; });
    std::erase(world_.calls, &link);
    if (!std::exchange(link.open, false) || link.other == nullptr) return;
    if (link.other->side != nullptr && link.other->open)
      link.other->inbox.push_back({.kind = Item::Kind::kClosed, .bytes = {}, .vector = {}});
    if (link.other->side == nullptr) link.other->open = false;
  }
  ssize_t send(Link &link, const iovec *iov, size_t count, uint64_t flags, Token *token) override {
    FUZZ_CHECK(((flags & FI_COMPLETION) != 0) == (token != nullptr), "who is to be told of it?");
    FUZZ_CHECK(count <= core_->settings().iov_limit, "too many pieces");
    if (const ssize_t rc = admit(link); rc != 0) return rc;
    Item item{.kind = Item::Kind::kPacket, .bytes = gather(iov, count), .vector = {}};
    FUZZ_CHECK(item.bytes.size() >= kHeaderSize &&
                   item.bytes.size() <= kHeaderSize + core_->settings().eager_limit,
               "a packet of a length that cannot be");
    if (token != nullptr) link.sent.push_back(token);
    if (link.other->side != nullptr) {
      link.other->inbox.push_back(std::move(item));
      return 0;
    }
    WireHeader header;
    std::memcpy(&header, item.bytes.data(), sizeof header);
    if (world_.ids.size() < 64) world_.ids.push_back(header.message);
    return 0;
  }
  ssize_t read(Link &link, const iovec *iov, size_t count, const RmaVector *from, size_t n,
               uint64_t, Token *token) override {
    FUZZ_CHECK(n == 1 && token != nullptr, "a read that is not one");
    if (const ssize_t rc = admit(link); rc != 0) return rc;
    size_t length = 0;
    for (size_t i = 0; i < count; ++i) {
      FUZZ_CHECK(memory.holds(iov[i].iov_base, iov[i].iov_len), "a read into no memory");
      length += iov[i].iov_len;
    }
    FUZZ_CHECK(length == from->length, "a read of another length");
    link.reads.push_back({token, {iov, iov + count}});
    if (link.other->side != nullptr) {
      link.other->inbox.push_back(
          {.kind = Item::Kind::kRead, .bytes = {}, .vector = *from, .token = token});
    } else {
      world_.asks.push_back({&link, token, length});
    }
    return 0;
  }
  ssize_t write(Link &link, const iovec *iov, size_t count, const RmaVector *to, size_t n, uint64_t,
                uint64_t, Token *token) override {
    FUZZ_CHECK(n == 1, "a write that is not one");
    if (const ssize_t rc = admit(link); rc != 0) return rc;
    Item item{.kind = Item::Kind::kWrite, .bytes = gather(iov, count), .vector = *to};
    FUZZ_CHECK(item.bytes.size() == to->length, "a write of another length");
    if (token != nullptr) link.sent.push_back(token);
    if (link.other->side != nullptr) link.other->inbox.push_back(std::move(item));
    return 0;
  }
  void release(Buffer &buffer) override {
    Link *link = buffer.link;
    --buffers_;
    --link->in_use;
    delete &buffer;
    if (!shares_ && link->owner != nullptr)
      world_.events.push_back([link] {
        if (link->owner != nullptr) link->side->core().on_reposted(*link->owner, 1);
      });
  }
  bool buffers_low() const override { return !shares_ || buffers_ > kSharedBuffers * 3 / 4; }
  size_t buffers_left() const override { return shares_ ? kSharedBuffers - buffers_ : kOwn; }
  bool hold(Link &link, bool held) override {
    FUZZ_CHECK(link.owner != nullptr && link.held != held, "a link was held twice");
    link.held = held;
    return true;
  }
  Registration *expose(Link &link, const iovec &iov, uint64_t access, RmaVector &vector,
                       int &) override {
    FUZZ_CHECK(link.owner != nullptr && link.side == this, "memory for a closed link");
    // What is for the honest peer is open to nobody else.
    const bool honest = link.other->side != nullptr;
    for (const Sent &s : sent)
      FUZZ_CHECK(restarted || honest || s.bytes == nullptr || s.bytes != iov.iov_base || s.to != 0,
                 "a message to the honest peer is open to another");
    for (const auto &r : received)
      FUZZ_CHECK(
          restarted || honest || r->bytes == nullptr || r->bytes != iov.iov_base || r->source != 0,
          "a receive from the honest peer is open to another");
    const uint64_t key = ++last_key_;
    regions_[key] = {iov, access, &link};
    vector = {0, iov.iov_len, key};
    return reinterpret_cast<Registration *>(key);
  }
  void conceal(Registration &registration) override {
    FUZZ_CHECK(regions_.erase(reinterpret_cast<uint64_t>(&registration)) == 1,
               "a registration ended twice");
  }
  ssize_t resolve(const RmaVector &v, uint64_t, iovec *iov, size_t room) override {
    if (v.key != kCounterKey || v.address != 0 || v.length > sizeof counter || room == 0)
      return -FI_EACCES;
    iov[0] = {&counter, size_t(v.length)};
    return 1;
  }
  uint64_t now_ns() override { return world_.now; }
  void set_deadline(uint64_t at) override { deadline_ = at; }

  // ---- Core::Upper ----
  void on_done(TxOp &op, int err) override {
    Sent &s = sent.at(reinterpret_cast<uint64_t>(op.context) - 1);
    FUZZ_CHECK(++s.ended == 1, "an operation ended twice");
    s.err = err;
    if (err == 0 && !restarted) {
      const bool read = s.kind == Sent::Kind::kRead;
      for (size_t i = 0; read && i < s.length; ++i)
        FUZZ_CHECK(name(s.to) == 0 ? s.bytes[i] == pattern(kHonest, i) : s.bytes[i] >> 4 == 0xa,
                   "a read without the bytes");
      FUZZ_CHECK(s.kind != Sent::Kind::kAtomic || s.bytes[0] != kUntouched,
                 "an atomic without its result");
    }
    if (s.bytes != nullptr) give_back(std::exchange(s.bytes, nullptr));
  }
  sdk::Receiver &receiver() override { return receiver_; }
  uint32_t index_of(const sdk::SockAddr &address) override { return av_->find(address); }
  void warn(const char *text) override { FUZZ_CHECK(port_ != kHonest, text); }
  void on_remote_atomic(uint64_t, std::span<const RmaVector>) override {}

  // ---- sdk::ReceiverSink, sdk::AvUser ----
  void deliver(sdk::Unexpected &m, sdk::Receive &r) override {
    core_->deliver(static_cast<RxMessage &>(m), r);
  }
  void discard(sdk::Unexpected &m) override { core_->discard(static_cast<RxMessage &>(m)); }
  void on_av_removed(uint32_t index) override { core_->forget(index); }
  void on_av_inserted(uint32_t index, const sdk::SockAddr &address) override {
    core_->introduce(index, address);
  }

 private:
  struct Region {
    iovec iov;
    uint64_t access;
    Link *link;  // whose peer alone may reach it
  };

  uint8_t *reach(const Link &by, const RmaVector &v, uint64_t access) {
    if (v.key == kRegionKey)
      return v.address <= kRegionSize && v.length <= kRegionSize - v.address ? region + v.address
                                                                             : nullptr;
    const auto it = regions_.find(v.key);
    if (it == regions_.end() || it->second.link != &by || !(it->second.access & access) ||
        v.address > it->second.iov.iov_len || v.length > it->second.iov.iov_len - v.address)
      return nullptr;
    return static_cast<uint8_t *>(it->second.iov.iov_base) + v.address;
  }
  void give_back(uint8_t *bytes) {
    for (const auto &[key, r] : regions_)
      FUZZ_CHECK(r.iov.iov_base != bytes, "memory of what has ended is still registered");
    memory.take_back(bytes);
  }
  void take_back(Posted &p) {
    if (p.bytes != nullptr) give_back(std::exchange(p.bytes, nullptr));
  }
  TxOp *begin(fi_addr_t to) {
    return memory.blocks() > kManyBlocks || name(to) == kNobody ? nullptr : core_->take();
  }
  void go(TxOp &op, const Sent &s, fi_addr_t to) {
    op.context = reinterpret_cast<void *>(sent.size() + 1);
    sent.push_back(s);
    const std::optional<sdk::SockAddr> address = av_->address(uint32_t(to));
    if (core_->start(op, uint32_t(to), &*address) == 0) return;
    Sent &record = sent.back();
    record.ended = 1;
    record.err = -1;
    if (record.bytes != nullptr) give_back(std::exchange(record.bytes, nullptr));
    core_->give(op);
  }
  ssize_t admit(Link &link) {
    FUZZ_CHECK(link.owner != nullptr && link.side == this, "a call with a closed link");
    FUZZ_CHECK(link.other != nullptr, "a call before the link was connected");
    if (!link.open) return -FI_ENOTCONN;
    if (link.other->side == nullptr && (world_.mute || !link.other->open)) return -FI_EAGAIN;
    if (link.sent.size() + link.reads.size() > 8) return -FI_EAGAIN;
    if (world_.stutter != 0 && ++world_.tries % world_.stutter == 0) return -FI_EAGAIN;
    return 0;
  }
  static std::vector<uint8_t> gather(const iovec *iov, size_t count) {
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < count; ++i) {
      const auto *at = static_cast<const uint8_t *>(iov[i].iov_base);
      bytes.insert(bytes.end(), at, at + iov[i].iov_len);
    }
    return bytes;
  }
  void end(Posted &p) {
    FUZZ_CHECK(++p.ended == 1, "a receive ended twice");
    take_back(p);
  }
  void succeeded(const fi_cq_tagged_entry &e, fi_addr_t source) {
    auto &p = *static_cast<Posted *>(e.op_context);
    if (p.look) {
      FUZZ_CHECK(++p.ended == 1, "a look ended twice");
      p.claimed = p.claims;
      return;
    }
    if (e.flags & FI_RECV) check(p, e, source, std::min(e.len, p.length));
    if (!p.multi || e.flags & FI_MULTI_RECV) end(p);
  }
  void failed(const fi_cq_err_entry &e) {
    auto &p = *static_cast<Posted *>(e.op_context);
    if (p.look) {
      FUZZ_CHECK(++p.ended == 1, "a look ended twice");
      return;
    }
    if (e.err == FI_ETRUNC) {
      fi_cq_tagged_entry as{e.op_context, e.flags, e.len, e.buf, e.data, e.tag};
      check(p, as, e.src_addr, e.len, true);
    } else if (e.err != FI_ECANCELED && e.err != FI_ENOMSG) {
      FUZZ_CHECK(restarted || name(e.src_addr) != 0, "a receive from the honest peer failed");
    }
    // A message that fails takes its part of a multi-receive buffer along.
    if (!p.multi || e.flags & FI_MULTI_RECV || e.err == FI_ECANCELED) end(p);
  }
  void check(Posted &p, const fi_cq_tagged_entry &e, fi_addr_t source, size_t n, bool cut = false) {
    const uint8_t *at = p.multi ? static_cast<const uint8_t *>(e.buf) : p.bytes;
    FUZZ_CHECK(at >= p.bytes && at + n <= p.bytes + p.length, "a message beside its buffer");
    const uint8_t who = name(source);
    const bool known = peer != nullptr && e.data > peer->base &&
                       e.data <= peer->base + peer->sent.size() && e.flags & FI_REMOTE_CQ_DATA;
    if (who == 0 && (!restarted || known)) {
      FUZZ_CHECK(known, "a message in the honest peer's name");
      Sent &s = peer->sent[e.data - peer->base - 1];
      promised = std::min(promised, sent.size());
      order_[s.tagged].emplace_back(p.number, e.data);
      FUZZ_CHECK(s.kind == Sent::Kind::kMessage && s.tagged == ((e.flags & FI_TAGGED) != 0),
                 "another kind of message");
      FUZZ_CHECK(cut ? s.length > n : s.length == n, "a message of another length");
      FUZZ_CHECK(++s.arrived == 1, "a message arrived twice");
      for (size_t i = 0; i < n; ++i)
        FUZZ_CHECK(at[i] == pattern(e.data, i), "a message of the honest peer was spoilt");
      return;
    }
    if (restarted && who == 0) return;  // of the last one, or in its name while there was none
    const uint8_t mark = who != kNobody || n == 0 ? mark_of(who) : at[0];
    for (size_t i = 0; i < n; ++i) {
      // Who says that it has written need not have done so.
      if (writes_ && at[i] == kUntouched) continue;
      FUZZ_CHECK(at[i] >> 4 == 0xa, "a success without the bytes");
      FUZZ_CHECK(writes_ || at[i] == mark, "a message of somebody else");
    }
    for (size_t i = n; !p.multi && i < p.length; ++i)
      FUZZ_CHECK(p.bytes[i] == kUntouched || writes_, "bytes behind the end of a message");
  }

  World &world_;
  const uint16_t port_;
  fuzz::Domain domain_;
  sdk::Cq *cq_ = nullptr;
  sdk::Av *av_ = nullptr;
  sdk::Receiver receiver_;
  std::optional<Core> core_;
  bool shares_ = true, writes_ = false;
  std::vector<uint8_t> names_;  // by fi_addr_t: 0 the honest peer, 1.. the attacker's
  std::map<uint64_t, Region> regions_;
  uint64_t last_key_ = 100, deadline_ = 0;
  size_t buffers_ = 0;
  // By kind of message: receive, message of the honest peer.
  std::vector<std::pair<size_t, uint64_t>> order_[2];
};

}  // namespace weft::rxm

#endif
