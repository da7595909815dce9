// SPDX-License-Identifier: BSD-2-Clause
// Costs of the protocol, and limits for strangers. A wire without losses and without allocations
// joins the endpoints; networks with faults are in network_test.cc.
#include "plugins/rxd/protocol/core.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <rdma/fi_errno.h>

#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "plugin-api/sdk/test_allocations.h"
#include "plugins/rxd/protocol/weft.h"
#include "plugins/rxd/wire/stock.h"

namespace weft::rxd {

struct Path {
  sdk::SockAddr to;
};
struct Buffer {
  std::array<uint8_t, 2048> bytes;
  size_t size = 0;
  uint32_t to = 0;
};

namespace {

constexpr uint64_t kMillisecond = 1'000'000;

sdk::SockAddr address_of(uint32_t n) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(uint16_t(1 + n % 60000));
  in.sin_addr.s_addr = htonl(0x0a000001 + n / 60000);
  return sdk::SockAddr(in);
}

uint32_t number_of(const sdk::SockAddr &address) {
  const auto *in = reinterpret_cast<const sockaddr_in *>(address.c());
  return (ntohl(in->sin_addr.s_addr) - 0x0a000001) * 60000 + address.port() - 1;
}

class End;

// Datagrams in a ring, in order.
struct Wire {
  explicit Wire(size_t room) : ring(room) {}
  std::vector<Buffer> ring;
  size_t head = 0, tail = 0;
  std::vector<End *> ends;
  std::vector<uint32_t> awake;  // endpoints with new events
  uint64_t now = 1'000'000'000;
  uint64_t last_to_stranger = 0;  // bytes of the last datagram to an unknown address
  uint64_t strangers = 0;
  uint32_t chance = 1;
  bool step();
  void run() {
    do {
      while (step()) {
      }
    } while (idle());
  }
  bool idle();
  // Moves the time on, and calls what becomes due.
  void pass(uint64_t ns);
};

class End final : public Carrier, public Core::Upper, public sdk::ReceiverSink {
 public:
  End(Wire &wire, uint32_t number, const Settings &settings)
      : wire_(wire), number_(number), receiver_(*this, {.size = 4096}) {
    if (wire.ends.size() <= number) wire.ends.resize(number + 1);
    wire.ends[number] = this;
    core_ = std::make_unique<Core>(*this, *this, settings);
    core_->set_own_address(address_of(number));
  }
  ~End() {
    wire_.ends[number_] = nullptr;
    std::erase(wire_.awake, number_);
    core_->shut_down(FI_ECANCELED);
    receiver_.visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
      receiver_.forget(m);
      core_->discard(static_cast<Incoming &>(m));
    });
    EXPECT_EQ(core_->inbox().in_use(), 0U);
    core_.reset();
    EXPECT_EQ(paths_, 0);
  }
  Core &core() { return *core_; }
  void wake() {
    if (!std::exchange(awake_, true)) wire_.awake.push_back(number_);
  }
  void progress() {
    awake_ = false;
    core_->on_idle();
    core_->poll();
  }

  int send(uint32_t to, const void *data, size_t length, bool tagged = true) {
    TxOp *op = core_->take();
    if (op == nullptr) return -FI_EAGAIN;
    wake();
    op->tagged = tagged;
    op->tag = 7;
    op->length = length;
    op->iov[0] = {const_cast<void *>(data), length};
    op->count = 1;
    const sdk::SockAddr address = address_of(to);
    const int rc = core_->start(*op, to, &address);
    if (rc != 0) core_->give(*op);
    return rc;
  }
  void post(void *data, size_t length) {
    const iovec iov{data, length};
    wake();
    ASSERT_EQ(receiver_.post({.tagged = true, .iov = &iov, .count = 1, .tag = 7}), 0);
  }
  size_t posted() const { return receiver_.posted(); }

  size_t done = 0, failed = 0;
  int err = 0;
  size_t warnings = 0;
  uint64_t deadline = 0;
  bool low = false;
  uint32_t named = UINT32_MAX;  // addresses below are in the address vector

  Path *open(const sdk::SockAddr &peer, int &) override {
    ++paths_;
    return new Path{peer};
  }
  void close(Path &path) override {
    --paths_;
    delete &path;
  }
  bool is_local(const sdk::SockAddr &) override { return true; }
  bool names_sources() const override { return false; }
  void name_sources(bool) override {}
  int send(Path &to, const iovec *iov, size_t count, bool) override {
    if (wire_.tail - wire_.head == wire_.ring.size()) return -FI_EAGAIN;
    Buffer &b = wire_.ring[wire_.tail++ % wire_.ring.size()];
    b.size = 0;
    for (size_t i = 0; i < count; ++i) {
      if (b.size + iov[i].iov_len > b.bytes.size()) {
        ADD_FAILURE() << "a datagram that is too long";
        return -FI_EMSGSIZE;
      }
      std::memcpy(b.bytes.data() + b.size, iov[i].iov_base, iov[i].iov_len);
      b.size += iov[i].iov_len;
    }
    b.to = number_of(to.to);
    return 0;
  }
  void flush() override {}
  size_t max_datagram() const override { return 1472; }
  size_t receive_window() const override { return 1 << 20; }
  void release(Buffer &) override { ADD_FAILURE() << "nothing comes too early here"; }
  bool buffers_low() const override { return low; }
  ssize_t resolve(const RmaVector &, uint64_t, iovec *, size_t) override { return -FI_EACCES; }
  uint64_t now_ns() override { return wire_.now; }
  void set_deadline(uint64_t at) override { deadline = at; }
  void random(std::span<uint8_t> out) override {
    for (uint8_t &byte : out)
      byte = uint8_t((wire_.chance = wire_.chance * 1664525 + 1013904223) >> 24);
  }
  void on_done(TxOp &, int e) override {
    ++done;
    if (e != 0) ++failed;
    if (e != 0) err = e;
  }
  sdk::Receiver &receiver() override { return receiver_; }
  uint32_t index_of(const sdk::SockAddr &address) override {
    const uint32_t number = number_of(address);
    return number < named ? number : kNoIndex;
  }
  void on_remote_write(uint32_t, uint64_t, bool, uint64_t, std::span<const RmaVector>) override {}
  void on_remote_read(uint64_t, std::span<const RmaVector>) override {}
  void on_remote_atomic(uint64_t, uint64_t, std::span<const RmaVector>) override {}
  void warn(const char *) override { ++warnings; }
  void deliver(sdk::Unexpected &m, sdk::Receive &r) override {
    core_->deliver(static_cast<Incoming &>(m), r);
  }
  void discard(sdk::Unexpected &m) override { core_->discard(static_cast<Incoming &>(m)); }

 private:
  Wire &wire_;
  const uint32_t number_;
  bool awake_ = false;
  sdk::Receiver receiver_;
  std::unique_ptr<Core> core_;
  int paths_ = 0;
};

bool Wire::step() {
  if (head == tail) return false;
  Buffer copy = ring[head++ % ring.size()];
  if (copy.to >= ends.size() || ends[copy.to] == nullptr) {
    last_to_stranger = copy.size;
    ++strangers;
    return true;
  }
  now += 1000;
  ends[copy.to]->wake();
  EXPECT_FALSE(ends[copy.to]->core().on_datagram({copy.bytes.data(), copy.size}, copy, nullptr));
  return true;
}

bool Wire::idle() {
  while (!awake.empty()) {
    End *end = ends[awake.back()];
    awake.pop_back();
    end->progress();
  }
  return head != tail;
}

void Wire::pass(uint64_t ns) {
  const uint64_t until = now + ns;
  for (;;) {
    run();
    uint64_t first = UINT64_MAX;
    for (const End *end : ends)
      if (end != nullptr && end->deadline != 0) first = std::min(first, end->deadline);
    if (first > until) break;
    // Deadlines within the next 250 us are called together.
    now = std::max(now, first + kMillisecond / 4);
    for (End *end : ends) {
      if (end == nullptr || end->deadline == 0 || end->deadline > now) continue;
      end->deadline = 0;
      end->wake();
      end->core().on_deadline();
    }
  }
  now = std::max(now, until);
}

Settings quick() {
  Settings settings;
  settings.stock_peers = true;
  return settings;
}

TEST(Core, AllocatesNothingAfterTheFirstExchanges) {
  Wire wire(4096);
  End a(wire, 0, quick()), b(wire, 1, quick());
  std::vector<uint8_t> out(300'000), in(300'000);
  const auto exchange = [&](size_t length, size_t count, bool early) {
    for (size_t i = 0; i < count && early; ++i) b.post(in.data(), length);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(a.send(1, out.data(), length), 0);
    wire.pass(kMillisecond);
    for (size_t i = 0; i < count && !early; ++i) b.post(in.data(), length);
    wire.pass(kMillisecond);
    EXPECT_EQ(b.posted(), 0U);
    EXPECT_EQ(b.receiver().unexpected(), 0U);
    EXPECT_EQ(a.core().in_flight(), 0U);
  };
  for (int warm = 0; warm < 3; ++warm) {
    exchange(0, 20, true);
    exchange(64, 200, true);
    exchange(64, 20, false);
    exchange(2000, 20, true);
    exchange(300'000, 8, true);
  }
  const size_t before = sdk::allocations();
  exchange(0, 20, true);
  exchange(64, 200, true);
  exchange(64, 20, false);
  exchange(2000, 20, true);
  exchange(300'000, 8, true);
  EXPECT_EQ(sdk::allocations(), before);
  EXPECT_EQ(a.failed + b.failed, 0U);
}

TEST(Core, TenThousandPeersStayWithinTheBudget) {
  constexpr uint32_t kPeers = 10'000;
  Wire wire(1 << 16);
  std::vector<std::unique_ptr<End>> ends;
  ends.push_back(std::make_unique<End>(wire, 0, quick()));
  for (uint32_t i = 1; i <= kPeers; ++i) ends.push_back(std::make_unique<End>(wire, i, quick()));
  End &hub = *ends[0];
  char text[64] = "one of many", in[64];
  // The first peer allocates what all peers share.
  for (int i = 0; i < 8; ++i) {
    ends[1]->post(in, sizeof in);
    ASSERT_EQ(hub.send(1, text, sizeof text), 0);
    wire.pass(kMillisecond);
  }
  const size_t before = mallinfo2().uordblks;
  for (uint32_t i = 2; i <= kPeers; ++i) {
    ends[i]->post(in, sizeof in);
    ASSERT_EQ(hub.send(i, text, sizeof text), 0);
    while (wire.step()) {
    }
    wire.run();
  }
  wire.pass(kMillisecond);
  EXPECT_EQ(hub.done, size_t{kPeers} + 7);
  EXPECT_EQ(hub.failed, 0U);
  EXPECT_EQ(hub.core().peers(), size_t{kPeers});
  const size_t used = mallinfo2().uordblks - before;
  // Each connection has both ends in this process, and each small end has pools of its own.
  std::printf("%zu bytes for each connection and both of its ends; %zu and %zu in objects\n",
              used / (kPeers - 1), sizeof(Peer), sizeof(WeftConversation));
  EXPECT_LE(sizeof(Peer) + sizeof(WeftConversation) + 128, 2048U);
  // Idle peers cost no time: there is no near deadline, and no packet is sent.
  wire.pass(100 * kMillisecond);
  const size_t sent = hub.core().statistics().packets_sent;
  wire.pass(20'000 * kMillisecond);
  EXPECT_EQ(hub.core().statistics().packets_sent, sent);
  EXPECT_EQ(hub.deadline, 0U);
  // All at once.
  for (uint32_t i = 1; i <= kPeers; ++i) {
    hub.post(in, sizeof in);
    if (i % 1000 == 0) wire.pass(kMillisecond);
    ASSERT_EQ(ends[i]->send(0, text, sizeof text), 0);
  }
  wire.pass(100 * kMillisecond);
  EXPECT_EQ(hub.posted(), 0U);
}

TEST(Core, AnRtsCausesNoStateAndNoLargerAnswer) {
  Wire wire(64);
  End a(wire, 0, quick());
  const auto rts = [&](uint32_t from, bool marked) {
    uint8_t bytes[stock::kMaxHeader];
    const size_t size = stock::encode(
        {.type = stock::Type::kRts, .marked = marked, .index = 5, .name = address_of(from)}, bytes);
    Buffer buffer;
    EXPECT_FALSE(a.core().on_datagram({bytes, size}, buffer, nullptr));
    return size;
  };
  size_t size = rts(77, true);
  wire.run();
  EXPECT_EQ(wire.strangers, 1U);
  EXPECT_LE(wire.last_to_stranger, size);
  EXPECT_EQ(a.core().peers(), 0U);
  const size_t before = mallinfo2().uordblks;
  for (uint32_t i = 0; i < 5000; ++i) {
    rts(100 + i, true);
    while (wire.step()) {
    }
  }
  EXPECT_EQ(a.core().peers(), 0U);
  EXPECT_LE(mallinfo2().uordblks, before + 4096);
  // More than handshake_rate within a second are not answered.
  wire.strangers = 0;
  for (uint32_t i = 0; i < 20'000; ++i) {
    rts(100 + i, true);
    while (wire.step()) {
    }
  }
  EXPECT_LE(wire.strangers, quick().handshake_rate);
  // RTS packets in stock's format make max_stock_peers objects, and no more.
  wire.pass(2000 * kMillisecond);
  for (uint32_t i = 0; i < 5000; ++i) {
    rts(100 + i, false);
    while (wire.step()) {
    }
  }
  EXPECT_LE(a.core().peers(), quick().max_stock_peers + 1);
}

// Answers to peers that prove their address do not count for handshake_rate, up to ten times the
// rate. Without this limit, peers that connect again and again would remove it for forged
// addresses.
TEST(Core, ProvenPeersAreAnsweredBeyondTheRate) {
  constexpr uint32_t kRate = 20, kVisitors = 15 * kRate;
  Wire wire(1 << 14);
  Settings settings = quick();
  settings.handshake_rate = kRate;
  settings.peer_timeout_ns = 60'000 * kMillisecond;
  End hub(wire, 0, settings);
  Settings patient = quick();
  patient.peer_timeout_ns = 60'000 * kMillisecond;
  char text[64] = "a visitor";
  std::vector<std::unique_ptr<End>> visitors;
  for (uint32_t i = 0; i < kVisitors; ++i) {
    visitors.push_back(std::make_unique<End>(wire, 1 + i, patient));
    ASSERT_EQ(visitors[i]->send(0, text, sizeof text, false), 0);
    wire.pass(kMillisecond / 10);
  }
  EXPECT_GT(hub.core().peers(), 5 * kRate);
  EXPECT_LE(hub.core().peers(), 10 * kRate);
  wire.pass(5000 * kMillisecond);
  EXPECT_EQ(hub.core().peers(), kVisitors);
  for (const auto &visitor : visitors) EXPECT_EQ(visitor->failed, 0U);
}

// Ten times as many visitors as max_unnamed_peers, with real handshakes. Memory stays bounded; the
// transfer at the same time, and a peer with something outstanding, are not affected.
TEST(Core, IdlePeersMakeRoomForNewOnes) {
  constexpr uint32_t kLimit = 200, kVisitors = 10 * kLimit;
  Wire wire(1 << 14);
  Settings settings = quick();
  settings.max_unnamed_peers = kLimit;
  settings.peer_timeout_ns = 60'000 * kMillisecond;
  End hub(wire, 0, settings), partner(wire, 1, quick()), patient(wire, 2, quick());
  hub.named = 2;
  std::vector<uint8_t> out(300'000, 7), in(300'000);
  char text[64] = "a visitor", room[64];
  // A peer that is not in the address vector, and whose message waits for a receive.
  ASSERT_EQ(patient.send(0, text, sizeof text, false), 0);
  wire.pass(kMillisecond);
  std::vector<std::unique_ptr<End>> visitors;
  const auto visit = [&](uint32_t i) {
    hub.post(room, sizeof room);
    ASSERT_EQ(visitors[i]->send(0, text, sizeof text), 0);
    wire.pass(kMillisecond / 10);
    ASSERT_EQ(hub.posted(), 0U) << "visitor " << i;
    ASSERT_LE(hub.core().unnamed_peers(), kLimit);
  };
  for (uint32_t i = 0; i < kVisitors; ++i) {
    if (i % 50 == 0) {
      partner.post(in.data(), in.size());
      ASSERT_EQ(hub.send(1, out.data(), out.size()), 0);
    }
    visitors.push_back(std::make_unique<End>(wire, 3 + i, quick()));
    visit(i);
  }
  wire.pass(10 * kMillisecond);
  EXPECT_EQ(hub.core().peers(), size_t{kLimit} + 1);
  EXPECT_EQ(hub.core().statistics().refused, 0U);
  EXPECT_EQ(hub.failed + partner.failed, 0U);
  EXPECT_EQ(hub.core().statistics().timeouts, 0U);
  EXPECT_EQ(partner.posted(), 0U);
  EXPECT_EQ(in, out);
  // Removed peers were told and connect again; the peer with an outstanding message was not
  // removed.
  for (uint32_t i = 0; i < 10; ++i) visit(i);
  for (uint32_t i = 0; i < kVisitors; ++i) ASSERT_EQ(visitors[i]->failed, 0U);
  EXPECT_EQ(hub.receiver().unexpected(), 1U);
  EXPECT_EQ(patient.core().statistics().timeouts, 0U);
}

// While no peer can be removed, newcomers are refused without state; they are admitted afterwards.
TEST(Core, NewPeersWaitWhileNoneIsIdle) {
  constexpr uint32_t kLimit = 20, kVisitors = 3 * kLimit;
  Wire wire(1 << 12);
  Settings settings = quick();
  settings.max_unnamed_peers = kLimit;
  End hub(wire, 0, settings);
  hub.named = 1;
  char text[64] = "a visitor", room[64];
  std::vector<std::unique_ptr<End>> visitors;
  for (uint32_t i = 0; i < kVisitors; ++i) {
    visitors.push_back(std::make_unique<End>(wire, 1 + i, quick()));
    ASSERT_EQ(visitors[i]->send(0, text, sizeof text), 0);
    wire.pass(kMillisecond);
  }
  wire.pass(1000 * kMillisecond);
  EXPECT_EQ(hub.core().peers(), size_t{kLimit});
  EXPECT_EQ(hub.receiver().unexpected(), size_t{kLimit});
  EXPECT_GT(hub.core().statistics().refused, 0U);
  EXPECT_EQ(hub.warnings, 1U);
  for (uint32_t i = 0; i < kVisitors; ++i) {
    hub.post(room, sizeof room);
    wire.pass(50 * kMillisecond);
    ASSERT_LE(hub.core().unnamed_peers(), kLimit);
  }
  wire.pass(2000 * kMillisecond);
  EXPECT_EQ(hub.posted(), 0U);
  for (const auto &visitor : visitors) EXPECT_EQ(visitor->failed, 0U);
}

// The sender gets a new token, and no state.
TEST(Core, AConnectWithAWrongTokenGetsANewToken) {
  Wire wire(64);
  End a(wire, 0, quick());
  const uint8_t token[wire::kTokenSize] = {1, 2, 3};
  uint8_t name[wire::kNameSize] = {};
  std::memcpy(name, address_of(9).c(), address_of(9).size());
  uint8_t bytes[wire::kConnectSize];
  wire::Writer writer(bytes);
  writer.connect({}, 3, wire::Token(token), name,
                 {.instance = 1, .connection = 1, .cookie = 1, .datagram = 1472});
  Buffer buffer;
  EXPECT_FALSE(a.core().on_datagram({bytes, writer.size()}, buffer, nullptr));
  wire.run();
  EXPECT_EQ(a.core().peers(), 0U);
  EXPECT_EQ(wire.strangers, 1U);
  EXPECT_EQ(wire.last_to_stranger, wire::kChallengeSize) << "less than was asked";
  EXPECT_EQ(a.core().statistics().rejected, 1U);
}

TEST(Core, AnOperationFailsWhenThePeerDoesNotAnswer) {
  Wire wire(64);
  End a(wire, 0, quick());
  char text[8] = "nobody";
  ASSERT_EQ(a.send(4, text, sizeof text), 0);
  wire.pass(11'000 * kMillisecond);
  EXPECT_EQ(a.failed, 1U);
  EXPECT_EQ(a.err, FI_ETIMEDOUT);
  EXPECT_EQ(a.core().peers(), 0U);
  Settings locked = quick();
  locked.auth_key = "one";
  End b(wire, 1, locked), c(wire, 2, quick());
  ASSERT_EQ(b.send(2, text, sizeof text), 0);
  ASSERT_EQ(c.send(1, text, sizeof text), 0);
  wire.pass(11'000 * kMillisecond);
  EXPECT_EQ(b.err, FI_EACCES);
  EXPECT_EQ(c.failed, 1U);
}

TEST(Core, ClosesWhenEverythingHasArrived) {
  Wire wire(4096);
  End a(wire, 0, quick()), b(wire, 1, quick());
  std::vector<uint8_t> out(100'000), in(100'000);
  b.post(in.data(), in.size());
  ASSERT_EQ(a.send(1, out.data(), out.size()), 0);
  a.core().part();
  EXPECT_FALSE(a.core().parted());
  wire.pass(100 * kMillisecond);
  EXPECT_TRUE(a.core().parted());
  EXPECT_EQ(a.failed, 0U);
  EXPECT_EQ(b.posted(), 0U);
  char text[8] = "more";
  EXPECT_EQ(a.send(1, text, sizeof text), -FI_EOPBADSTATE);
}

}  // namespace
}  // namespace weft::rxd
