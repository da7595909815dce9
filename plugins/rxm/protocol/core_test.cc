// SPDX-License-Identifier: BSD-2-Clause
// The protocol among simulated peers: a world with its own time, in which connections take as long
// as a seed says, packets wait for buffers, calls say -FI_EAGAIN, and peers die and come back.
// Whatever happens, an operation ends once, a message arrives once at the most and unspoilt, and
// nothing is left over.
#include "plugins/rxm/protocol/core.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>

#include "plugin-api/sdk/test_allocations.h"
#include "plugin-api/sdk/test_instance.h"
#include "plugin-api/sdk/test_seeds.h"
#include "plugin-api/sdk/test_time.h"
#include "plugins/rxm/protocol/test_atomic.h"

namespace weft::rxm {

class Node;

struct Link {
  Node *node = nullptr;
  Connection *owner = nullptr;
  Link *other = nullptr;
  bool open = true;
  bool busy = false;
  bool held = false;                        // takes no packets
  size_t in_use = 0;                        // of its own buffers, where none are shared
  uint64_t last_arrival = 0;                // of what was sent by the other end
  std::deque<std::function<bool()>> inbox;  // false: there is no buffer, later
  std::multiset<Token *> pending;
  std::map<uint64_t, uint64_t> segmented;  // ids of unfinished messages, as a stock peer says them
};

struct Request {
  Node *target = nullptr;
  Link *from = nullptr;
  bool answered = false;
};

struct Buffer {
  std::vector<uint8_t> bytes;
  Link *link = nullptr;  // of its own pool
};

namespace {

struct World : sdk::TestTime {
  explicit World(unsigned seed) : TestTime(1), random(seed) {}
  uint64_t some(uint64_t limit) { return random() % limit; }
  bool chance(unsigned percent) { return random() % 100 < percent; }

  std::mt19937_64 random;
  std::vector<std::unique_ptr<Link>> links;
  std::map<uint16_t, Node *> listening;
  unsigned eagain = 10;        // percent of calls
  unsigned faults = 0;         // percent of calls that need resources
  unsigned crowd = 0;          // percent of requests that get the end of the connection as answer
  const Node *mute = nullptr;  // its calls are put off
  const Node *slow = nullptr;  // what is sent to it stays at the carrier
  bool silent = false;         // nobody hears of a death
  bool holds = true;           // a carrier can hold links
  uint64_t slow_news = 0;      // how much later than its packets a connection may be told of
  std::vector<std::function<void()>> put_off;
  unsigned segments = 0, partings = 0, acknowledged = 0;
};

struct Sent {
  size_t from = 0, to = 0;
  bool message = true, tagged = false;
  bool gone = false;  // the sender died before it ended
  size_t length = 0;
  int ended = 0, err = 0;
  int arrived = 0;
  std::vector<uint8_t> bytes;
};

uint8_t pattern(uint64_t id, size_t i) {
  return uint8_t(id * 131 + i * 7 + (i >> 8));
}

sdk::SockAddr address_of(size_t n) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(uint16_t(5000 + n));
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return sdk::SockAddr(in);
}

}  // namespace

// One incarnation of a peer.
class Node final : public Carrier, public Core::Upper, public sdk::ReceiverSink {
 public:
  Node(World &world, size_t number, uint32_t process, const Settings &base, std::vector<Sent> &sent,
       bool stock)
      : world_(world),
        number_(number),
        stock_(stock),
        sent_(sent),
        receiver_(*this, {.size = 4096}) {
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.size = 64;
    cq_ = *sdk::Cq::open(domain_.context, &attr, nullptr);
    receiver_.cq = cq_;
    Settings settings = base;
    settings.process = process;
    if (stock) settings.max_connections = 0;
    core_ = std::make_unique<Core>(*this, *this, settings);
    core_->set_own_address(address_of(number));
    buffers_.resize(12);
    for (Buffer &b : buffers_) free_.push_back(&b);
    world.listening[address_of(number).port()] = this;
  }
  ~Node() {
    world_.listening.erase(address_of(number_).port());
    core_->abandon();
    receiver_.visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
      receiver_.forget(m);
      core_->discard(static_cast<RxMessage &>(m));
    });
    for (auto &link : world_.links) {
      if (link->node != this) continue;
      link->node = nullptr;
      link->owner = nullptr;
      link->pending.clear();
      if (std::exchange(link->open, false) && !world_.silent) tell_closed(*link, true);
    }
    EXPECT_EQ(core_->unexpected_bytes(), 0u);
    core_.reset();
    EXPECT_TRUE(regions_.empty()) << "registrations left over";
    fi_close(cq_->base());
  }

  // ---- the application ----
  void send(size_t to, size_t length, bool tagged, unsigned kind) {
    TxOp *op = core_->take();
    if (op == nullptr) return;
    const uint64_t id = sent_.size();
    Sent record{.from = number_, .to = to, .tagged = tagged, .length = length, .bytes = {}};
    record.bytes.resize(length);
    for (size_t i = 0; i < length; ++i) record.bytes[i] = pattern(id, i);
    sent_.push_back(std::move(record));
    op->context = reinterpret_cast<void *>(id + 1);
    op->length = length;
    op->tag = id;
    op->data = id;  // untagged messages are known by it
    op->inject = kind == 1 && length <= 64;
    op->fence = kind == 2;
    uint8_t *bytes = sent_[id].bytes.data();
    const size_t half = kind == 3 ? length / 2 : length;
    op->iov[0] = {bytes, half};
    op->iov[1] = {bytes + half, length - half};
    op->count = kind == 3 ? 2 : 1;
    core_->prepare_message(*op, tagged, true, kind == 4);
    go(*op, to, id);
  }
  void add(size_t to, uint64_t *result, uint64_t key) {
    TxOp *op = core_->take();
    if (op == nullptr) return;
    const uint64_t id = sent_.size();
    sent_.push_back({.from = number_, .to = to, .message = false, .bytes = {}});
    op->context = reinterpret_cast<void *>(id + 1);
    prepare_fetch_add(*core_, *op, result, key);
    go(*op, to, id);
  }
  // An atomic that stock peers do not know: nothing of it arrives there.
  void add_wide(size_t to, uint64_t key) {
    TxOp *op = core_->take();
    if (op == nullptr) return;
    const uint64_t id = sent_.size();
    sent_.push_back({.from = number_, .to = to, .message = false, .bytes = {}});
    op->context = reinterpret_cast<void *>(id + 1);
    uint8_t one[16] = {1};
    const fi_ioc operand{one, 1};
    const fi_rma_ioc target{0, 1, key};
    core_->prepare_atomic(*op,
                          {.kind = sdk::AtomicKind::kWrite,
                           .datatype = FI_UINT128,
                           .op = FI_SUM,
                           .operands = &operand,
                           .operand_count = 1,
                           .rma = &target,
                           .rma_count = 1,
                           .elements = 1},
                          16);
    go(*op, to, id);
  }
  void post(size_t length, bool tagged, std::optional<uint64_t> tag = {}) {
    memory_.push_back(std::make_unique<std::vector<uint8_t>>(length));
    const iovec iov{memory_.back()->data(), length};
    const size_t context = memory_.size();
    ASSERT_EQ(receiver_.post({.tagged = tagged,
                              .iov = &iov,
                              .count = 1,
                              .tag = tag.value_or(0),
                              .ignore = tag ? 0 : ~UINT64_C(0),
                              .context = reinterpret_cast<void *>(context)}),
              0);
  }
  // The address vector.
  void forget_everybody() { all_known_ = false; }
  bool knows(size_t n) const { return all_known_ && !unknown_.contains(n); }
  void forget(size_t n) {
    if (unknown_.insert(n).second) core_->forget(uint32_t(n));
  }
  void introduce(size_t n) {
    if (unknown_.erase(n) != 0) core_->introduce(uint32_t(n), address_of(n));
  }
  size_t saved() const { return receiver_.unexpected(); }
  // Anything, to whoever is at the other end.
  void say(const std::vector<uint8_t> &bytes) {
    for (const auto &link : world_.links) {
      if (link->node != this || link->owner == nullptr || !link->open) continue;
      Link *to = link->other;
      deliver_to(*to, [to, bytes] { return to->owner == nullptr || to->node->take(*to, bytes); });
      return;
    }
    FAIL() << "nobody is there";
  }
  void discard_saved() {
    receiver_.visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
      receiver_.forget(m);
      discard(m);
    });
  }
  size_t memory_of_saved() {  // places for parts of messages
    size_t n = 0;
    receiver_.visit_unexpected(sdk::Matcher::kAnySource, [&n](sdk::Unexpected &m) {
      n += static_cast<RxMessage &>(m).parts.capacity();
    });
    return n;
  }
  // A message is saved under the name of who is there to have it, and of nobody else later on.
  void expect_named() {
    receiver_.visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
      EXPECT_EQ(m.message.source, core_->source_of(*static_cast<RxMessage &>(m).from));
    });
  }
  // A request of somebody who says that it is `port`, and nothing else.
  void knock(uint16_t port, uint32_t process) {
    world_.links.push_back(std::make_unique<Link>());
    Link &link = *world_.links.back();
    const ConnectBytes bytes = encode(ConnectData{
        .port = port, .eager_limit = core_->settings().eager_limit, .process = process});
    Request request{this, &link, false};
    core_->on_request(request, address_of(number_), address_of(number_), bytes);
    EXPECT_TRUE(request.answered);
  }
  // Completions: which message came in which receive.
  void reap() {
    fi_cq_tagged_entry e{};
    for (;;) {
      const ssize_t n = cq_->read(&e, 1);
      if (n == 1) {
        note(e.data, size_t(e.op_context), e.len);
      } else if (n == -FI_EAVAIL) {
        fi_cq_err_entry err{};
        ASSERT_EQ(cq_->readerr(&err, 0), 1);
        if (err.err == FI_ETRUNC) {
          EXPECT_EQ(err.len + err.olen, sent_[err.data].length);
          note(err.data, size_t(err.op_context), err.len);
        } else {
          ++broken;
        }
      } else {
        return;
      }
    }
  }

  Core &core() { return *core_; }
  size_t broken = 0;                                  // receives that failed half-way
  std::vector<std::pair<size_t, uint64_t>> received;  // receive, message
  uint64_t counter = 0;                               // what atomics change
  alignas(16) uint8_t wide[16] = {};                  // the same
  static constexpr uint64_t kCounterKey = 7, kWideKey = 8;

  // ---- Carrier ----
  Link *connect(Connection &owner, const sdk::SockAddr &peer, std::span<const uint8_t> data,
                int &err) override {
    if (world_.chance(world_.faults)) {
      err = EMFILE;
      return nullptr;
    }
    Link *link = make(owner);
    const std::vector<uint8_t> bytes = said(data, 12);
    world_.after(1 + world_.some(50), [link, peer, bytes] {
      if (link->node != nullptr) link->node->arrive(*link, peer, bytes);
    });
    return link;
  }
  Link *accept(Connection &owner, Request &request, std::span<const uint8_t> data,
               int &err) override {
    if (world_.chance(world_.faults)) {
      err = ENOMEM;
      return nullptr;
    }
    request.answered = true;
    Link *link = make(owner), *from = request.from;
    link->other = from;
    from->other = link;
    if (!from->open) {  // the requester gave up meanwhile
      link->inbox.clear();
      tell_closed(*from, false);
    }
    const std::vector<uint8_t> bytes = said(data, 8);
    const auto connected = [from, bytes] {
      if (from->owner != nullptr) from->node->core().on_connected(*from->owner, bytes);
      return true;
    };
    if (world_.slow_news != 0) {
      world_.after(1 + world_.some(world_.slow_news), connected);
    } else {
      deliver_to(*from, connected);
    }
    world_.after(1 + world_.some(20), [link] {
      if (link->owner != nullptr) link->node->core().on_connected(*link->owner, {});
    });
    return link;
  }
  void reject(Request &request, std::span<const uint8_t> data) override {
    if (std::exchange(request.answered, true)) return;
    Link *from = request.from;
    const std::vector<uint8_t> bytes(data.begin(), data.end());
    world_.after(1 + world_.some(20), [from, bytes] {
      if (from->owner != nullptr && std::exchange(from->open, false))
        from->node->core().on_refused(*from->owner, FI_ECONNREFUSED, bytes);
    });
  }
  void close(Link &link, bool idle) override {
    link.owner = nullptr;
    std::multiset<Token *> pending;
    pending.swap(link.pending);
    for (Token *token : pending)
      world_.after(1 + world_.some(10), [this, alive = alive_, token] {
        if (*alive) core_->on_sent(*token, FI_ECANCELED);
      });
    if (std::exchange(link.open, false)) tell_closed(link, !idle);
  }
  ssize_t send(Link &link, const iovec *iov, size_t count, uint64_t flags, Token *token) override {
    if (const ssize_t rc = admit(link); rc != 0) return rc;
    EXPECT_LE(count, core_->settings().iov_limit);
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < count; ++i) {
      const auto *at = static_cast<const uint8_t *>(iov[i].iov_base);
      bytes.insert(bytes.end(), at, at + iov[i].iov_len);
    }
    EXPECT_LE(bytes.size(), kHeaderSize + core_->settings().eager_limit);
    EXPECT_EQ((flags & FI_COMPLETION) != 0, token != nullptr);
    if (flags & FI_DELIVERY_COMPLETE) ++world_.acknowledged;
    const auto type = static_cast<PacketType>(bytes.at(1));
    const bool to_stock = link.other->node != nullptr && link.other->node->stock_;
    if (type == PacketType::kSegment) ++world_.segments;
    if (type == PacketType::kPart) ++world_.partings;
    EXPECT_FALSE(to_stock && (type == PacketType::kSegment || type == PacketType::kPart));
    if (to_stock) expect_understood(bytes);
    if (stock_ && type == PacketType::kSegment) reuse_ids(link, bytes);
    if (token != nullptr) {
      link.pending.insert(token);
      const auto sent = [&link, token] { give_back(link, *token); };
      if (world_.slow != nullptr && world_.slow == link.other->node) {
        world_.put_off.push_back(sent);
      } else {
        world_.after(1 + world_.some(10), sent);
      }
    }
    Link *to = link.other;
    deliver_to(*to, [to, bytes = std::move(bytes)] {
      return to->owner == nullptr || to->node->take(*to, bytes);
    });
    return 0;
  }
  ssize_t read(Link &link, const iovec *iov, size_t count, const RmaVector *from, size_t n,
               uint64_t, Token *token) override {
    EXPECT_EQ(n, 1u);
    if (const ssize_t rc = admit(link); rc != 0) return rc;
    link.pending.insert(token);
    const std::vector<iovec> into(iov, iov + count);
    Link *to = link.other;
    deliver_to(*to, [to, &link, into, vector = *from, token] {
      if (to->owner == nullptr) return true;
      std::vector<uint8_t> bytes;
      if (!to->node->peek(*to, vector, FI_REMOTE_READ, bytes)) {
        ADD_FAILURE() << "a read of what is not registered";
        return true;
      }
      to->node->deliver_to(link, [&link, into, bytes, token] {
        if (link.pending.count(token) == 0) return true;
        size_t at = 0;
        for (const iovec &v : into) {
          std::memcpy(v.iov_base, bytes.data() + at, v.iov_len);
          at += v.iov_len;
        }
        give_back(link, *token);
        return true;
      });
      return true;
    });
    return 0;
  }
  ssize_t write(Link &link, const iovec *iov, size_t count, const RmaVector *to_vector, size_t n,
                uint64_t, uint64_t, Token *token) override {
    EXPECT_EQ(n, 1u);
    if (const ssize_t rc = admit(link); rc != 0) return rc;
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < count; ++i) {
      const auto *at = static_cast<const uint8_t *>(iov[i].iov_base);
      bytes.insert(bytes.end(), at, at + iov[i].iov_len);
    }
    link.pending.insert(token);
    world_.after(1 + world_.some(10), [&link, token] { give_back(link, *token); });
    Link *to = link.other;
    deliver_to(*to, [to, bytes, vector = *to_vector] {
      if (to->owner == nullptr) return true;
      EXPECT_TRUE(to->node->poke(*to, vector, bytes));
      return true;
    });
    return 0;
  }
  void release(Buffer &buffer) override {
    buffer.bytes.clear();
    if (Link *link = buffer.link; link != nullptr) {
      --link->in_use;
      delete &buffer;
      world_.after(0, [link] {
        if (link->owner != nullptr) link->node->core().on_reposted(*link->owner, 1);
      });
      return;
    }
    free_.push_back(&buffer);
    // What waits for it may go on, but not from within the protocol.
    world_.after(0, [this, alive = alive_] {
      if (!*alive) return;
      for (size_t i = 0; i < world_.links.size(); ++i)
        if (world_.links[i]->node == this) pump(*world_.links[i]);
    });
  }
  bool buffers_low() const override { return core_->settings().credits || free_.size() < 6; }
  size_t buffers_left() const override { return core_->settings().credits ? kOwn : free_.size(); }
  bool hold(Link &link, bool held) override {
    if (!world_.holds) return false;
    link.held = held;
    if (held) return true;
    world_.after(0, [&link] {
      if (link.node != nullptr) pump(link);
    });
    return true;
  }
  Registration *expose(Link &link, const iovec &iov, uint64_t access, RmaVector &vector,
                       int &err) override {
    if (world_.chance(world_.faults)) {
      err = ENOMEM;
      return nullptr;
    }
    const uint64_t key = ++last_key_;
    regions_[key] = {iov, access, &link};
    vector = {0, iov.iov_len, key};
    return reinterpret_cast<Registration *>(key);
  }
  void conceal(Registration &registration) override {
    EXPECT_EQ(regions_.erase(reinterpret_cast<uint64_t>(&registration)), 1u);
  }
  ssize_t resolve(const RmaVector &vector, uint64_t, iovec *iov, size_t) override {
    if (vector.key == kWideKey && vector.address == 0 && vector.length == sizeof wide) {
      iov[0] = {wide, sizeof wide};
      return 1;
    }
    if (vector.key != kCounterKey || vector.address + vector.length > sizeof counter)
      return -FI_EACCES;
    iov[0] = {&counter, size_t(vector.length)};
    return 1;
  }
  uint64_t now_ns() override { return world_.now * 1000; }
  void set_deadline(uint64_t at) override {
    const uint64_t mine = ++deadline_;
    if (at == 0) return;
    const uint64_t ticks = at / 1000 + 1;
    world_.after(ticks > world_.now ? ticks - world_.now : 1, [this, alive = alive_, mine] {
      if (*alive && mine == deadline_) core_->on_deadline();
    });
  }

  // ---- Core::Upper ----
  void on_done(TxOp &op, int err) override {
    Sent &record = sent_[reinterpret_cast<uint64_t>(op.context) - 1];
    EXPECT_EQ(++record.ended, 1);
    record.err = err;
  }
  sdk::Receiver &receiver() override { return receiver_; }
  uint32_t index_of(const sdk::SockAddr &address) override {
    const size_t n = address.port() - 5000u;
    return knows(n) ? uint32_t(n) : kNoIndex;
  }
  void warn(const char *text) override {
    if (!allow_warnings) ADD_FAILURE() << text;
  }
  void on_remote_atomic(uint64_t, std::span<const RmaVector>) override {}
  bool allow_warnings = false;

  // ---- sdk::ReceiverSink ----
  void deliver(sdk::Unexpected &m, sdk::Receive &r) override {
    core_->deliver(static_cast<RxMessage &>(m), r);
  }
  void discard(sdk::Unexpected &m) override { core_->discard(static_cast<RxMessage &>(m)); }

 private:
  // Stock peers never finish a rendezvous of no bytes, and an atomic that they do not know ends
  // them.
  static void expect_understood(const std::vector<uint8_t> &bytes) {
    WireHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.type == uint8_t(PacketType::kRendezvous)) {
      EXPECT_NE(header.size, 0u);
    }
    if (header.type == uint8_t(PacketType::kAtomic)) {
      EXPECT_TRUE(sdk::stock_executes(header.atomic.operation, header.atomic.datatype));
    }
  }
  // They use the id of a message in segments again after the last one.
  static void reuse_ids(Link &link, std::vector<uint8_t> &bytes) {
    WireHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    const auto kind = SegmentKind(header.control_data & 3);
    const uint64_t id = header.message;
    if (kind == SegmentKind::kFirst) {
      uint64_t lowest = 0;
      while (std::ranges::any_of(link.segmented,
                                 [&](const auto &used) { return used.second == lowest; }))
        ++lowest;
      link.segmented[id] = lowest;
    }
    header.message = link.segmented.at(id);
    std::memcpy(bytes.data(), &header, sizeof header);
    if (kind == SegmentKind::kLast) link.segmented.erase(id);
  }

  struct Region {
    iovec iov;
    uint64_t access;
    const Link *link;  // whose peer alone may reach it
  };

  void go(TxOp &op, size_t to, uint64_t id) {
    introduce(to);
    const sdk::SockAddr address = address_of(to);
    const int rc = core_->start(op, uint32_t(to), &address);
    if (rc == 0) return;
    sent_[id].ended = 1;
    sent_[id].err = -rc;
    core_->give(op);
  }
  void note(uint64_t id, size_t receive, size_t length) {
    Sent &s = sent_.at(id);
    EXPECT_EQ(s.to, number_);
    EXPECT_EQ(++s.arrived, 1);
    received.emplace_back(receive, id);
    const std::vector<uint8_t> &bytes = *memory_[receive - 1];
    for (size_t i = 0; i < length; ++i) ASSERT_EQ(bytes[i], pattern(id, i)) << id << " at " << i;
  }
  // What the peer is told while connecting. A stock peer's has no mark at `at`, where it counts its
  // receives.
  std::vector<uint8_t> said(std::span<const uint8_t> data, size_t at) const {
    std::vector<uint8_t> bytes(data.begin(), data.end());
    const uint32_t count = 4096;
    if (stock_) std::memcpy(bytes.data() + at, &count, sizeof count);
    return bytes;
  }
  Link *make(Connection &owner) {
    world_.links.push_back(std::make_unique<Link>());
    Link *link = world_.links.back().get();
    link->node = this;
    link->owner = &owner;
    return link;
  }
  void arrive(Link &link, const sdk::SockAddr &peer, const std::vector<uint8_t> &bytes) {
    if (!link.open) return;
    const auto it = world_.listening.find(peer.port());
    if (it == world_.listening.end()) {
      if (std::exchange(link.open, false)) core_->on_refused(*link.owner, FI_ECONNREFUSED, {});
      return;
    }
    if (world_.chance(world_.crowd)) {
      if (std::exchange(link.open, false))
        core_->on_refused(*link.owner, FI_ECONNRESET, {}, /*hung_up=*/true);
      return;
    }
    Request request{it->second, &link, false};
    sdk::SockAddr from = address_of(number_);
    from.set_port(uint16_t(40000 + world_.some(1000)));
    it->second->core().on_request(request, from, peer, bytes);
    EXPECT_TRUE(request.answered);
  }
  ssize_t admit(Link &link) {
    EXPECT_NE(link.other, nullptr);
    if (!link.open) return -FI_ENOTCONN;
    if (world_.mute == this || world_.chance(world_.eagain) || link.pending.size() > 8)
      return -FI_EAGAIN;
    return 0;
  }
  static void give_back(Link &link, Token &token) {
    const auto it = link.pending.find(&token);
    if (it == link.pending.end() || link.node == nullptr) return;
    link.pending.erase(it);
    link.node->core().on_sent(token, 0);
  }
  // In the order in which it was sent.
  void deliver_to(Link &to, std::function<bool()> what) {
    to.last_arrival = std::max(to.last_arrival, world_.now + world_.some(30)) + 1;
    world_.after(to.last_arrival - world_.now, [&to, what = std::move(what)] {
      to.inbox.push_back(what);
      pump(to);
    });
  }
  static void pump(Link &link) {
    if (link.busy) return;
    link.busy = true;
    while (!link.inbox.empty() && link.inbox.front()()) link.inbox.pop_front();
    link.busy = false;
  }
  void tell_closed(Link &link, bool reset) {
    Link *other = link.other;
    if (other == nullptr) return;
    const auto closed = [other] {
      if (other->owner != nullptr && std::exchange(other->open, false))
        other->node->core().on_closed(*other->owner, FI_ECONNRESET);
      return true;
    };
    if (reset && world_.chance(50)) {  // overtakes what was sent
      world_.after(1, [other, closed] {
        if (!other->busy) other->inbox.clear();
        closed();
      });
    } else {
      deliver_to(*other, closed);
    }
  }
  bool take(Link &link, const std::vector<uint8_t> &bytes) {
    if (core_->settings().credits) {
      EXPECT_LE(++link.in_use, core_->settings().receive_count) << "more than was granted";
      auto *own = new Buffer{bytes, &link};
      if (!core_->on_packet(*link.owner, own->bytes, *own)) release(*own);
      return true;
    }
    if (free_.empty() || link.held) return false;
    Buffer *buffer = free_.back();
    free_.pop_back();
    buffer->bytes = bytes;
    if (!core_->on_packet(*link.owner, buffer->bytes, *buffer)) release(*buffer);
    return true;
  }
  bool peek(const Link &by, const RmaVector &v, uint64_t access, std::vector<uint8_t> &out) {
    const auto it = regions_.find(v.key);
    if (it == regions_.end() || it->second.link != &by || !(it->second.access & access) ||
        v.address + v.length > it->second.iov.iov_len)
      return false;
    const auto *at = static_cast<const uint8_t *>(it->second.iov.iov_base) + v.address;
    out.assign(at, at + v.length);
    return true;
  }
  bool poke(const Link &by, const RmaVector &v, const std::vector<uint8_t> &bytes) {
    const auto it = regions_.find(v.key);
    if (it == regions_.end() || it->second.link != &by || !(it->second.access & FI_REMOTE_WRITE) ||
        v.address + v.length > it->second.iov.iov_len)
      return false;
    std::memcpy(static_cast<uint8_t *>(it->second.iov.iov_base) + v.address, bytes.data(),
                bytes.size());
    return true;
  }

  World &world_;
  const size_t number_;
  const bool stock_;
  std::vector<Sent> &sent_;
  sdk::TestDomain domain_;
  sdk::Cq *cq_ = nullptr;
  sdk::Receiver receiver_;
  std::unique_ptr<Core> core_;
  std::vector<Buffer> buffers_;
  std::vector<Buffer *> free_;
  std::map<uint64_t, Region> regions_;
  uint64_t last_key_ = 100, deadline_ = 0;
  bool all_known_ = true;
  std::set<size_t> unknown_;
  std::vector<std::unique_ptr<std::vector<uint8_t>>> memory_;

 public:
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

namespace {

struct Script {
  size_t peers = 2;
  bool write = false;
  bool failures = false;
  bool credits = false;
  size_t max_connections = 0;
  bool stock = false;  // every other one is no weft peer
  size_t max_controls = 1 << 16, max_segments = 512, max_strangers = SIZE_MAX;
  uint64_t owed_limit = 1 << 20;
  size_t inject_limit = 128;
  uint64_t connect_timeout_ns = 60'000'000;
  bool names = false;  // address vectors change, and nobody hears of some deaths
};

class Play {
 public:
  Play(unsigned seed, const Script &script) : world(seed), script_(script) {
    settings_.eager_limit = 512;
    settings_.sar_limit = 2048;
    settings_.rendezvous_write = script.write;
    settings_.tx_size = 64;
    settings_.unexpected_limit = 20000;
    settings_.connect_timeout_ns = script.connect_timeout_ns;
    settings_.credits = script.credits;
    settings_.receive_count = script.credits ? 8 : 12;
    settings_.max_connections = script.max_connections;
    settings_.owed_limit = script.owed_limit;
    settings_.inject_limit = script.inject_limit;
    settings_.max_controls = script.max_controls;
    settings_.max_segments = script.max_segments;
    settings_.max_strangers = script.max_strangers;
    sent.reserve(1 << 14);
    for (size_t i = 0; i < script.peers; ++i) start(i);
  }
  ~Play() {
    for (size_t i = 0; i < nodes.size(); ++i) stop(i);
  }
  void start(size_t i) {
    if (nodes.size() <= i) nodes.resize(i + 1);
    nodes[i] = std::make_unique<Node>(world, i, ++processes_, settings_, sent,
                                      script_.stock && i % 2 == 1);
    nodes[i]->allow_warnings = script_.failures;
  }
  void stop(size_t i) {
    if (nodes[i] == nullptr) return;
    *nodes[i]->alive_ = false;
    for (Sent &s : sent) s.gone = s.gone || (s.from == i && s.ended == 0);
    broken += nodes[i]->broken;
    world.silent = script_.names && world.chance(50);
    nodes[i].reset();
    world.silent = false;
  }
  // At last everybody hears of those who died in silence.
  void tell_of_the_dead() {
    for (size_t i = 0; i < world.links.size(); ++i) {
      Link &link = *world.links[i];
      if (link.owner == nullptr || link.other == nullptr || link.other->open) continue;
      if (std::exchange(link.open, false)) link.node->core().on_closed(*link.owner, FI_ECONNRESET);
    }
  }
  const Settings &settings() const { return settings_; }
  void act() {
    const size_t who = world.some(nodes.size());
    if (nodes[who] == nullptr) {
      if (world.chance(30)) start(who);
      return;
    }
    Node &node = *nodes[who];
    static constexpr size_t kSizes[] = {0, 1, 64, 65, 448, 512, 513, 1024, 2048, 2049, 5000};
    const unsigned what = unsigned(world.some(100));
    if (what < 45) {
      node.send(world.some(nodes.size()), kSizes[world.some(std::size(kSizes))], world.chance(70),
                unsigned(world.some(5)));
    } else if (what < 85) {
      node.post(world.chance(10) ? 300 : 5000, world.chance(70));
    } else if (what < 90) {
      results_.push_back(0);
      node.add(world.some(nodes.size()), &results_.back(), Node::kCounterKey);
    } else if (what < 92 && script_.failures) {
      stop(who);
    } else if (what < 96 && script_.names) {
      const size_t whom = world.some(nodes.size());
      node.knows(whom) ? node.forget(whom) : node.introduce(whom);
    }
  }
  void turn() {
    for (auto &node : nodes) {
      if (node == nullptr) continue;
      node->core().poll();
      node->reap();
      node->expect_named();
    }
  }
  // Until nothing happens any more.
  void settle() {
    world.eagain = 0;
    for (int i = 0; i < 3; ++i) {
      turn();
      while (world.step()) turn();
    }
  }

  World world;
  std::vector<Sent> sent;
  std::vector<std::unique_ptr<Node>> nodes;
  size_t broken = 0;

 private:
  const Script script_;
  Settings settings_;
  uint32_t processes_ = 100;
  std::deque<uint64_t> results_;
};

class Seeds : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Some, Seeds, ::testing::Range(0, 60));

void play(Play &run, int actions) {
  for (int i = 0; i < actions; ++i) {
    run.act();
    for (uint64_t n = run.world.some(6); n-- > 0 && run.world.step();) run.turn();
    run.turn();
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Those who have not been asked for keep nobody waiting: everything gets a receive in the end.
void receive_all(Play &run) {
  run.settle();
  const auto waits = [&run] {
    return std::ranges::any_of(run.nodes, [](const auto &node) {
      return node != nullptr && (node->saved() != 0 || node->core().in_flight() != 0);
    });
  };
  for (size_t n = 0; n < 400 && (n < 40 || waits()); ++n) {
    for (auto &node : run.nodes) {
      if (node == nullptr) continue;
      for (int k = 0; k < 5; ++k) {
        node->post(5000, true);
        node->post(5000, false);
      }
    }
    run.settle();
  }
}

Script script_of(int seed) {
  return {.peers = size_t(2 + seed % 7), .write = seed % 2 != 0, .credits = seed % 3 == 0};
}

void expect_nothing_left(Play &run) {
  for (size_t n = 0; n < run.nodes.size(); ++n) {
    if (run.nodes[n] == nullptr) continue;
    EXPECT_EQ(run.nodes[n]->core().in_flight(), 0u) << n;
    EXPECT_FALSE(run.nodes[n]->core().has_queued()) << n;
    EXPECT_EQ(run.nodes[n]->core().unexpected_bytes(), 0u) << n;
  }
  for (size_t id = 0; id < run.sent.size(); ++id)
    EXPECT_TRUE(run.sent[id].ended == 1 || run.sent[id].gone) << id;
}

void expect_everything_arrived_in_order(Play &run) {
  expect_nothing_left(run);
  uint64_t adds = 0, added = 0;
  for (size_t id = 0; id < run.sent.size(); ++id) {
    EXPECT_EQ(run.sent[id].err, 0) << id;
    if (run.sent[id].message) {
      EXPECT_EQ(run.sent[id].arrived, 1) << id;
    } else {
      ++adds;
    }
  }
  for (auto &node : run.nodes) {
    added += node->counter;
    EXPECT_EQ(node->broken, 0u);
    // Receives take in the order in which they were posted what was sent in order.
    std::sort(node->received.begin(), node->received.end());
    std::map<std::pair<size_t, bool>, uint64_t> last;
    for (const auto &[receive, id] : node->received) {
      uint64_t &before = last[{run.sent[id].from, run.sent[id].tagged}];
      EXPECT_LE(before, id + 1) << "message " << id << " overtook another";
      before = id + 1;
    }
  }
  EXPECT_EQ(added, adds);
}

TEST_P(Seeds, EverythingArrivesOnceAndInOrder) {
  Play run(unsigned(GetParam()), script_of(GetParam()));
  play(run, 500);
  receive_all(run);
  expect_everything_arrived_in_order(run);
  EXPECT_NE(run.world.segments, 0u);
  EXPECT_EQ(run.world.partings, 0u);
}

// Peers that hang up in place of an answer, because many come at once, cost time and nothing else.
TEST_P(Seeds, NobodyIsRefusedBecauseManyCome) {
  Script script = script_of(GetParam());
  script.connect_timeout_ns = 30'000'000'000;
  script.max_connections = size_t(GetParam() % 3);
  Play run(unsigned(GetParam()), script);
  run.world.crowd = 60;
  play(run, 500);
  receive_all(run);
  expect_everything_arrived_in_order(run);
}

TEST(Core, WhoAlwaysHangsUpIsGivenUpWhenTheTimeIsOver) {
  Play run(1, Script{});
  run.nodes[0]->allow_warnings = true;
  run.world.crowd = 100;
  run.nodes[0]->send(1, 10, true, 0);
  run.settle();
  EXPECT_EQ(run.sent[0].ended, 1);
  EXPECT_EQ(run.sent[0].err, FI_ETIMEDOUT);
  EXPECT_GE(run.nodes[0]->now_ns(), 60'000'000u);
  EXPECT_LE(run.nodes[0]->now_ns(), 200'000'000u);
}

TEST_P(Seeds, ThoseWhoAreNotWeftGetNoSegments) {
  Script script = script_of(GetParam());
  script.stock = true;
  script.max_connections = size_t(GetParam() % 3);
  Play run(unsigned(GetParam()), script);
  play(run, 500);
  receive_all(run);
  expect_everything_arrived_in_order(run);
}

class ManySeeds : public Seeds {};
INSTANTIATE_TEST_SUITE_P(Some, ManySeeds, ::testing::Range(0, 200));

// Whatever the peer is sending at the moment in which an idle connection is closed arrives.
TEST_P(ManySeeds, ClosingIdleConnectionsLosesNothing) {
  Script script = script_of(GetParam());
  script.peers = size_t(3 + GetParam() % 5);
  script.max_connections = size_t(1 + GetParam() % 3);
  Play run(unsigned(GetParam()), script);
  play(run, 300);
  receive_all(run);
  expect_everything_arrived_in_order(run);
  if (script.peers > script.max_connections + 1) {
    EXPECT_NE(run.world.partings, 0u);
  }
}

TEST_P(Seeds, WithoutResourcesOperationsFailOnce) {
  Play run(unsigned(GetParam()), script_of(GetParam()));
  run.world.faults = 3;
  for (auto &node : run.nodes) node->allow_warnings = true;
  play(run, 400);
  run.world.faults = 0;
  receive_all(run);
  expect_nothing_left(run);
}

TEST_P(Seeds, PeersThatDieTakeOnlyTheirOwnAlong) {
  Script script = script_of(GetParam());
  script.failures = true;
  Play run(unsigned(GetParam()), script);
  play(run, 600);
  receive_all(run);
  expect_nothing_left(run);
  // Afterwards those who live, and those who are started again, reach each other.
  for (size_t n = 0; n < run.nodes.size(); ++n)
    if (run.nodes[n] == nullptr) run.start(n);
  run.settle();
  const size_t first = run.sent.size();
  for (size_t n = 0; n < run.nodes.size(); ++n) {
    run.nodes[n]->post(5000, true);
    run.nodes[n]->send((n + 1) % run.nodes.size(), 600, true, 0);
  }
  run.settle();
  for (size_t id = first; id < run.sent.size(); ++id) {
    EXPECT_EQ(run.sent[id].ended, 1);
    EXPECT_EQ(run.sent[id].err, 0);
    EXPECT_EQ(run.sent[id].arrived, 1);
  }
}

// Names in the address vector come and go, with peers whose death nobody hears of.
TEST_P(ManySeeds, AMessageIsOfNobodyElse) {
  Script script = script_of(GetParam());
  script.failures = script.names = true;
  Play run(unsigned(GetParam()), script);
  play(run, 600);
  run.tell_of_the_dead();
  receive_all(run);
  expect_nothing_left(run);
}

// A link that gives way to another takes along what came by it, also if nobody had said yet that it
// was there.
TEST(Core, AConnectionThatNobodySawBeginLeavesNothingToTheNext) {
  Play run(1, {.failures = true});
  const auto pass = [&run](uint64_t ticks) {
    for (const uint64_t end = run.world.now + ticks; run.world.next() <= end;)
      run.world.step(), run.turn();
  };
  run.world.slow_news = UINT64_C(1) << 40;
  run.nodes[0]->send(1, 10, true, 0);
  pass(1000);
  // The first segment of a message, and no more.
  WireHeader h = header_of(PacketType::kSegment, 0);
  h.op = uint8_t(PacketOp::kTagged);
  h.message = UINT64_C(1) << 32;  // as the first operation of every endpoint
  h.size = 1500;
  h.segment_size = 512;
  h.control_data = uint64_t(SegmentKind::kFirst);
  std::vector<uint8_t> bytes(sizeof h + 512);
  std::memcpy(bytes.data(), &h, sizeof h);
  run.nodes[1]->say(bytes);
  pass(1000);
  ASSERT_EQ(run.nodes[0]->saved(), 1u);
  run.world.silent = true;
  run.stop(1);
  run.start(1);
  run.world.slow_news = 0;
  for (auto &node : run.nodes) node->allow_warnings = false;
  run.nodes[1]->send(0, 1500, true, 0);
  pass(10'000);
  EXPECT_EQ(run.sent[1].ended, 1);
  EXPECT_EQ(run.sent[1].err, 0);
  EXPECT_EQ(run.nodes[0]->saved(), 2u) << "what was begun, and will fail, and the other one";
}

TEST_P(Seeds, IdleConnectionsAreClosedUnderALimit) {
  Script script = script_of(GetParam());
  script.peers = 6;
  script.max_connections = 2;
  Play run(unsigned(GetParam()), script);
  for (int round = 0; round < 12; ++round) {
    Node &node = *run.nodes[0];
    const size_t to = 1 + size_t(round) % 5;
    run.nodes[to]->post(5000, true);
    node.send(to, 100, true, 0);
    run.settle();
    EXPECT_LE(node.core().connections(), 2u);
    EXPECT_EQ(run.sent.back().err, 0);
    EXPECT_EQ(run.sent.back().arrived, 1);
  }
  expect_nothing_left(run);
}

TEST_P(Seeds, BothConnectAtOnceAndOneConnectionStays) {
  Play run(unsigned(GetParam()), Script{});
  for (size_t n = 0; n < 2; ++n) {
    run.nodes[n]->post(5000, true);
    run.nodes[n]->send(1 - n, 100, true, 0);
  }
  run.settle();
  for (const Sent &s : run.sent) {
    EXPECT_EQ(s.err, 0);
    EXPECT_EQ(s.arrived, 1);
  }
  for (size_t n = 0; n < 2; ++n) {
    EXPECT_EQ(run.nodes[n]->core().connections(), 1u);
    EXPECT_EQ(run.nodes[n]->core().objects(), 1u);
  }
}

TEST(Core, AnEndpointReachesItself) {
  Play run(1, Script{});
  run.nodes[0]->post(5000, true);
  run.nodes[0]->send(0, 3000, true, 0);
  run.nodes[0]->post(5000, false);
  run.nodes[0]->send(0, 10, false, 1);
  run.settle();
  for (const Sent &s : run.sent) {
    EXPECT_EQ(s.err, 0);
    EXPECT_EQ(s.arrived, 1);
  }
}

TEST(Core, NobodyAtTheAddressIsConnectionRefused) {
  Play run(1, Script{});
  run.stop(1);
  run.nodes[0]->send(1, 10, true, 0);
  run.settle();
  EXPECT_EQ(run.sent[0].ended, 1);
  EXPECT_EQ(run.sent[0].err, FI_ECONNREFUSED);
  EXPECT_EQ(run.nodes[0]->core().objects(), 0u) << "a peer that is gone costs nothing";
}

TEST(Core, ASenderThatIsStartedAgainReplacesItsConnection) {
  Play run(1, {.failures = true});
  run.nodes[1]->post(5000, true);
  run.nodes[0]->send(1, 10, true, 0);
  run.settle();
  run.stop(0);
  run.start(0);  // the other end has not heard of it yet
  run.nodes[1]->post(5000, true);
  run.nodes[0]->send(1, 10, true, 0);
  run.settle();
  EXPECT_EQ(run.sent[1].err, 0);
  EXPECT_EQ(run.sent[1].arrived, 1);
  EXPECT_EQ(run.nodes[1]->core().connections(), 1u);
}

TEST(Core, WhatAPeerMakesUsOweHimIsBounded) {
  for (const uint64_t limit : {UINT64_C(400), UINT64_C(1) << 20}) {
    Play run(1, {.failures = true, .owed_limit = limit});
    run.world.eagain = 0;
    run.nodes[0]->send(1, 10, true, 0);
    run.nodes[1]->post(5000, true);
    run.settle();
    std::deque<uint64_t> results(60);
    for (uint64_t &result : results) run.nodes[0]->add(1, &result, Node::kCounterKey);
    // The answers do not get out while the requests come in.
    run.world.mute = run.nodes[1].get();
    run.settle();
    run.world.mute = nullptr;
    run.settle();
    size_t failed = 0;
    for (const Sent &s : run.sent) {
      EXPECT_EQ(s.ended, 1);
      failed += s.err != 0;
    }
    // Beyond 50 results of 8 bytes the connection ends.
    EXPECT_EQ(failed, limit == 400 ? 60u : 0u);
    expect_nothing_left(run);
  }
}

// Also what the carrier has and does not get rid of.
TEST(Core, WhatAPeerDoesNotTakeCountsAtTheCarrierToo) {
  for (const uint64_t limit : {UINT64_C(32), UINT64_C(1) << 20}) {
    Play run(1, {.failures = true, .owed_limit = limit, .inject_limit = 64});
    run.world.eagain = 0;
    run.nodes[0]->send(1, 10, true, 0);
    run.nodes[1]->post(5000, true);
    run.settle();
    run.world.slow = run.nodes[0].get();
    std::deque<uint64_t> results(8);
    for (uint64_t &result : results) run.nodes[0]->add(1, &result, Node::kCounterKey);
    run.settle();
    size_t failed = 0;
    for (const Sent &s : run.sent) failed += s.err != 0;
    EXPECT_EQ(failed != 0, limit == 32);
    run.world.slow = nullptr;
    for (const auto &sent : run.world.put_off) sent();
    run.settle();
    expect_nothing_left(run);
  }
}

// A message of many parts leaves no memory to the next one, which counts for less.
TEST(Core, WhatAMessageWasInIsGivenBack) {
  Play run(1, {.failures = true});
  run.nodes[0]->send(1, 10, true, 0);
  run.nodes[1]->post(5000, true);
  run.settle();
  constexpr size_t kSegments = 40;
  const auto say = [&run](WireHeader h, size_t payload) {
    std::vector<uint8_t> bytes(sizeof h + payload);
    std::memcpy(bytes.data(), &h, sizeof h);
    run.nodes[0]->say(bytes);
  };
  for (size_t i = 0; i < kSegments; ++i) {
    WireHeader h = header_of(PacketType::kSegment, 0);
    h.op = uint8_t(PacketOp::kTagged);
    h.size = kSegments;
    h.segment_size = 1;
    h.segment_number = uint32_t(i);
    h.control_data = uint64_t(i == 0               ? SegmentKind::kFirst
                              : i == kSegments - 1 ? SegmentKind::kLast
                                                   : SegmentKind::kMiddle);
    say(h, 1);
  }
  run.settle();
  ASSERT_EQ(run.nodes[1]->saved(), 1u);
  ASSERT_GE(run.nodes[1]->memory_of_saved(), kSegments);
  run.nodes[1]->discard_saved();
  WireHeader h = header_of(PacketType::kEager, 0);
  h.op = uint8_t(PacketOp::kTagged);
  h.size = 1;
  say(h, 1);
  run.settle();
  ASSERT_EQ(run.nodes[1]->saved(), 1u);
  EXPECT_LT(run.nodes[1]->memory_of_saved(), kSegments / 2);
}

// Whether the connection is there already, or the operation waits for it and the peer turns out to
// be stock.
TEST(Core, AtomicsThatStockLacksFailHere) {
  for (const bool stock : {true, false}) {
    Play run(1, {.stock = stock});
    run.nodes[0]->add_wide(1, Node::kWideKey);
    run.settle();
    run.nodes[0]->add_wide(1, Node::kWideKey);
    run.settle();
    for (const Sent &s : run.sent) {
      EXPECT_EQ(s.ended, 1);
      EXPECT_EQ(s.err, stock ? FI_EOPNOTSUPP : 0);
    }
    EXPECT_EQ(run.nodes[1]->wide[0], stock ? 0 : 2);
    run.nodes[1]->post(5000, true);
    run.nodes[0]->send(1, 10, true, 0);  // the connection lives on
    run.settle();
    EXPECT_EQ(run.sent.back().arrived, 1);
  }
}

// Delivery is told, and a message of no bytes is one.
TEST(Core, AMessageOfNoBytesIsDeliveredToStock) {
  for (const bool write : {false, true}) {
    Play run(1, {.write = write, .stock = true});
    for (const size_t length : {0, 1, 600}) {
      run.nodes[1]->post(5000, true);
      run.nodes[0]->send(1, length, true, 4);
      run.settle();
      EXPECT_EQ(run.sent.back().ended, 1) << length;
      EXPECT_EQ(run.sent.back().err, 0) << length;
      EXPECT_EQ(run.sent.back().arrived, 1) << length;
    }
    EXPECT_GE(run.world.acknowledged, 1u) << "the carrier is asked for it";
  }
}

// Stock's ids recur after the last segment, also while nobody has received the message yet.
TEST(Core, IdsOfSegmentsRecur) {
  Play run(1, {.stock = true});
  for (int i = 0; i < 3; ++i) {
    run.nodes[1]->send(0, 1500, true, 0);
    run.settle();
  }
  EXPECT_GE(run.world.segments, 6u);
  receive_all(run);
  expect_everything_arrived_in_order(run);
}

// Nobody waits as long as there is room for copies, whoever sends how many.
TEST(Core, WhatNobodyWantsIsCopiedBeforeAnybodyHasToWait) {
  Play run(1, Script{});
  run.world.eagain = 0;
  for (int i = 0; i < 30; ++i) run.nodes[0]->send(1, 10, true, 0);
  run.settle();
  EXPECT_EQ(run.nodes[1]->saved(), 30u);
  receive_all(run);
  expect_everything_arrived_in_order(run);
}

// One that takes no answers, and one that takes no segments, are nobody else's problem.
TEST(Core, AnswersToOnePeerLeaveRoomForThoseToOthers) {
  Play run(1, {.peers = 3, .failures = true, .max_controls = 50});
  run.world.eagain = 0;
  for (const size_t n : {0, 2}) {
    run.nodes[n]->send(1, 10, true, 0);
    run.nodes[1]->post(5000, true);
  }
  run.settle();
  std::deque<uint64_t> results(80);
  for (size_t i = 0; i < results.size(); ++i)
    run.nodes[i % 2 * 2]->add(1, &results[i], Node::kCounterKey);
  run.world.mute = run.nodes[1].get();
  run.settle();
  run.world.mute = nullptr;
  run.settle();
  for (const Sent &s : run.sent) EXPECT_EQ(s.err, 0);
  EXPECT_EQ(run.nodes[1]->counter, 80u);
  expect_nothing_left(run);
}

TEST(Core, SegmentsToOnePeerLeaveRoomForThoseToOthers) {
  Play run(1, {.peers = 3, .max_segments = 4});
  run.world.eagain = 0;
  run.world.slow = run.nodes[1].get();
  run.nodes[0]->send(1, 2048, true, 0);
  run.nodes[0]->send(1, 2048, true, 0);
  run.nodes[0]->send(2, 2048, true, 0);
  for (const size_t n : {1, 1, 2}) run.nodes[n]->post(5000, true);
  run.settle();
  EXPECT_EQ(run.sent[2].ended, 1);
  EXPECT_EQ(run.sent[2].arrived, 1);
  EXPECT_EQ(run.sent[1].ended, 0);
  run.world.slow = nullptr;
  for (const auto &sent : run.world.put_off) sent();
  run.settle();
  expect_everything_arrived_in_order(run);
}

// Peers that nobody inserted share a number of connections, and all are served.
TEST_P(Seeds, StrangersTakeTurns) {
  Script script{.peers = size_t(4 + GetParam() % 4), .max_strangers = size_t(1 + GetParam() % 3)};
  script.connect_timeout_ns = 30'000'000'000;
  Play run(unsigned(GetParam()), script);
  run.nodes[0]->forget_everybody();
  for (int round = 0; round < 5; ++round) {
    for (size_t n = 1; n < script.peers; ++n) {
      run.nodes[0]->post(5000, true);
      run.nodes[n]->send(0, 100, true, 0);
    }
    run.settle();
    EXPECT_LE(run.nodes[0]->core().strangers(), script.max_strangers);
  }
  expect_everything_arrived_in_order(run);
}

TEST(Core, StrangersWhoSayNothingMakeRoom) {
  Play run(1, {.max_strangers = 2, .connect_timeout_ns = 30'000'000'000});
  run.nodes[0]->forget_everybody();
  for (uint16_t n = 0; n < 10; ++n) {
    run.nodes[0]->knock(uint16_t(6000 + n), n);
    run.settle();
    EXPECT_LE(run.nodes[0]->core().strangers(), 2u);
  }
  run.nodes[0]->post(5000, true);
  run.nodes[1]->send(0, 100, true, 0);
  run.settle();
  expect_everything_arrived_in_order(run);
  EXPECT_LE(run.nodes[0]->core().strangers(), 2u);
}

// Whose an address is, says who listens there.
TEST(Core, AFalseClaimToAnAddressChangesNothing) {
  for (const size_t target : {0, 1}) {  // whose address is above, and below, the other's
    for (const bool stock : {false, true}) {
      Play run(1, {.failures = true, .stock = stock});
      const auto talk = [&run] {
        for (const size_t n : {0, 1}) {
          run.nodes[1 - n]->post(5000, true);
          run.nodes[n]->send(1 - n, 600, true, 0);
        }
        run.settle();
      };
      talk();
      for (uint32_t process = 7; process < 12; ++process) {
        run.nodes[target]->knock(address_of(1 - target).port(), process);
        talk();
      }
      expect_everything_arrived_in_order(run);
      for (const size_t n : {0, 1}) {
        EXPECT_EQ(run.nodes[n]->core().connections(), 1u);
        EXPECT_EQ(run.nodes[n]->core().objects(), 1u);
      }
    }
  }
}

TEST(Core, APeerThatDiedUnheardIsReplacedWhenItComesBack) {
  for (const size_t victim : {0, 1}) {
    for (const bool stock : {false, true}) {
      Play run(1, {.failures = true, .stock = stock, .connect_timeout_ns = 1'000'000'000});
      run.nodes[1 - victim]->post(5000, true);
      run.nodes[victim]->send(1 - victim, 10, true, 0);
      run.settle();
      run.world.silent = true;
      run.stop(victim);
      run.start(victim);
      run.world.silent = false;
      run.nodes[1 - victim]->post(5000, true);
      run.nodes[victim]->send(1 - victim, 10, true, 0);
      run.settle();
      run.nodes[victim]->post(5000, true);
      run.nodes[1 - victim]->send(victim, 10, true, 0);
      run.settle();
      expect_everything_arrived_in_order(run);
      for (const size_t n : {0, 1}) {
        EXPECT_EQ(run.nodes[n]->core().connections(), 1u);
        EXPECT_EQ(run.nodes[n]->core().objects(), 1u);
      }
    }
  }
}

TEST(Core, APeerThatIsOnlyInsertedCostsNothing) {
  Play run(1, Script{});
  run.nodes[1]->post(5000, true);
  run.nodes[0]->send(1, 10, true, 0);
  run.settle();
  Core &core = run.nodes[0]->core();
  const size_t before = sdk::allocations();
  for (uint32_t i = 2; i < 2000; ++i) core.introduce(i, address_of(i));
  EXPECT_EQ(sdk::allocations(), before);
  for (uint32_t i = 2; i < 2000; ++i) core.forget(i);
  EXPECT_EQ(sdk::allocations(), before);
  EXPECT_EQ(core.objects(), 1u);
}

// ---- those who send more than is received ----

// What may be kept beyond the limit for copies: of each peer one packet, with which it is told to
// wait.
uint64_t most_kept(const Play &run) {
  return run.settings().unexpected_limit +
         run.nodes.size() * (sizeof(RxMessage) + run.settings().eager_limit);
}

// Whoever is received from goes on, whatever others send, and how many they are; nothing grows
// beyond its bound; in the end everything has arrived, in order.
void crowd_with_hasty_peers(uint64_t seed, sdk::Scenario &scenario) {
  const size_t honest = 1 + seed % 3, hasty = 1 + seed / 3 % 15;
  const bool strangers = seed % 2 != 0;
  Script script = script_of(int(seed % 1000));
  script.peers = 1 + honest + hasty;
  scenario.add("%zu honest peers, %zu hasty ones%s%s%s", honest, hasty,
               strangers ? ", not in the address vector" : "", script.write ? ", write" : "",
               script.credits ? ", credits" : "");
  Play run(unsigned(seed), script);
  Node &target = *run.nodes[0];
  if (strangers)
    for (size_t n = 1 + honest; n < script.peers; ++n) target.forget(n);
  static constexpr size_t kSizes[] = {0, 1, 100, 448, 512, 513, 2048, 2049, 5000};
  const auto length = [&] { return kSizes[run.world.some(std::size(kSizes))]; };
  std::vector<size_t> wanted;
  for (int i = 0; i < 1000; ++i) {
    const size_t n = 1 + run.world.some(script.peers - 1);
    const size_t id = run.sent.size();
    if (n > honest) {
      run.nodes[n]->send(0, length(), true, 0);
    } else if (run.world.chance(20)) {
      if (run.nodes[n]->core().in_flight() == run.settings().tx_size) continue;
      const bool late = run.world.chance(50);
      if (!late) target.post(5000, true, id);
      run.nodes[n]->send(0, length(), true, 0);
      for (uint64_t k = late ? run.world.some(200) : 0; k-- > 0 && run.world.step();) run.turn();
      if (late) target.post(5000, true, id);
      wanted.push_back(id);
    }
    for (uint64_t k = run.world.some(6); k-- > 0 && run.world.step();) run.turn();
    run.turn();
    ASSERT_LE(target.core().unexpected_bytes(), most_kept(run));
    ASSERT_TRUE(script.credits || target.buffers_left() != 0) << "nobody is read";
  }
  run.settle();
  for (const size_t id : wanted) {
    EXPECT_EQ(run.sent[id].arrived, 1) << id << " of " << run.sent[id].from << " has starved";
    EXPECT_EQ(run.sent[id].ended, 1);
  }
  EXPECT_LE(target.core().unexpected_bytes(), most_kept(run));
  receive_all(run);
  expect_everything_arrived_in_order(run);
}

TEST(Crowd, HastyPeersHoldUpNobody) {
  sdk::run_seeds("Crowd.HastyPeersHoldUpNobody", {.usual = 100, .sanitized = 20},
                 crowd_with_hasty_peers);
}

// Where the carrier cannot hold anybody the limits are the same, and all wait.
TEST_P(Seeds, WithoutHoldingTheLimitsAreTheSame) {
  Script script = script_of(GetParam());
  script.credits = false;
  Play run(unsigned(GetParam()), script);
  run.world.holds = false;
  for (int i = 0; i < 600; ++i) {
    run.nodes[1 + run.world.some(script.peers - 1)]->send(0, run.world.some(512), true, 0);
    for (uint64_t k = run.world.some(6); k-- > 0 && run.world.step();) run.turn();
    run.turn();
    ASSERT_LE(run.nodes[0]->core().unexpected_bytes(), run.settings().unexpected_limit);
  }
  receive_all(run);
  expect_everything_arrived_in_order(run);
}

// Who comes again and again is who it was, whether its end is heard of, and whoever connects.
TEST(Core, WhoComesAgainHasNoMoreToSend) {
  for (const bool silent : {false, true}) {
    for (const bool calls : {false, true}) {
      SCOPED_TRACE(testing::Message() << (silent ? "silent " : "") << (calls ? "called" : ""));
      Play run(1, {.failures = true, .connect_timeout_ns = 1'000'000'000});
      Node &target = *run.nodes[0];
      for (int round = 0; round < 30; ++round) {
        if (calls) target.send(1, 10, true, 0);
        for (int i = 0; i < 40; ++i) {
          if (!calls || i > 0) run.nodes[1]->send(0, 500, true, 0);
          for (int k = 0; k < 3 && run.world.step(); ++k) run.turn();
        }
        run.settle();
        ASSERT_LE(target.core().unexpected_bytes(), most_kept(run)) << round;
        run.world.silent = silent;
        run.stop(1);
        run.world.silent = false;
        run.settle();
        run.start(1);
      }
    }
  }
}

// Those who are not in the address vector leave the others their part, also with what they
// announced before they died.
TEST(Core, WhatTheDeadAnnouncedCounts) {
  Play run(1, {.failures = true});
  Node &target = *run.nodes[0];
  target.forget(1);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 20; ++i) run.nodes[1]->send(0, 5000, true, 0);
    run.settle();
    run.stop(1);
    run.settle();
    run.start(1);
  }
  EXPECT_NE(target.saved(), 0u);
  EXPECT_LE(target.core().unexpected_bytes(),
            run.settings().unexpected_limit / 2 + sizeof(RxMessage) + 512);
}

TEST(Core, WhatNobodyWantsIsBounded) {
  Play run(1, Script{});
  for (int i = 0; i < 60; ++i) {
    run.nodes[0]->send(1, 500, true, 0);
    run.settle();
    EXPECT_LE(run.nodes[1]->core().unexpected_bytes(), 20000u);
  }
  EXPECT_LT(run.sent.back().arrived, 1);
  receive_all(run);
  for (const Sent &s : run.sent) EXPECT_EQ(s.arrived, 1);
}

}  // namespace
}  // namespace weft::rxm
