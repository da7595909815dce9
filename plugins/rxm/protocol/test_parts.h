// SPDX-License-Identifier: BSD-2-Clause
// What tests of single parts stand on: a carrier that notes what it is given, an endpoint that
// notes what it is told, and peers with connections. None of them has a Core.
//
// Example (statements):
//    PartsWorld world;
//    Sender sender(world.carrier, world.settings);
//    Connection &c = world.connected(1);
//    const uint64_t word = 7;
//    const iovec iov{const_cast<uint64_t *>(&word), sizeof word};
//    EXPECT_EQ(sender.send(c, &iov, 1, FI_INJECT, nullptr), 0);
//    EXPECT_EQ(world.carrier.packets.size(), 1u);
//
// Not for what several parts do together: test_node.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_TEST_PARTS_H
#define WEFT_PLUGINS_RXM_PROTOCOL_TEST_PARTS_H

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/ip/sock_addr.h>

#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plugin-api/sdk/testing/test_instance.h"
#include "plugins/rxm/protocol/counters.h"
#include "plugins/rxm/protocol/peers.h"
#include "plugins/rxm/protocol/settings.h"
#include "plugins/rxm/protocol/upper.h"

namespace weft::rxm {

struct Registration {
  bool in_use = false;
};

class NotingCarrier final : public Carrier {
 public:
  struct Packet {
    std::vector<uint8_t> bytes;
    uint64_t flags;
    Token *token;
    uint32_t data;
    WireHeader header() const {
      WireHeader h{};
      std::memcpy(&h, bytes.data(), std::min(bytes.size(), sizeof h));
      return h;
    }
    PacketType type() const { return static_cast<PacketType>(header().type); }
  };
  struct Access {
    bool write;
    size_t length;
    RmaVector at;
    uint64_t flags;
    Token *token;
  };

  ssize_t fails = 0;       // what each call returns instead of 0
  size_t room = SIZE_MAX;  // calls until there is none
  std::vector<Packet> packets;
  std::vector<Access> accesses;
  size_t left = 32;  // free buffers
  bool low = false;
  int may_expose = INT32_MAX;  // registrations that do not fail
  size_t exposed = 0;          // registrations in use
  uint64_t now = 1;
  std::vector<uint64_t> deadlines;

  ssize_t send(Link &, const iovec *iov, void *const *, size_t count, uint32_t data, uint64_t flags,
               Token *token) override {
    if (const ssize_t rc = take_room(); rc != 0) return rc;
    Packet &p = packets.emplace_back(Packet{{}, flags, token, data});
    for (size_t i = 0; i < count; ++i) {
      const auto *at = static_cast<const uint8_t *>(iov[i].iov_base);
      p.bytes.insert(p.bytes.end(), at, at + iov[i].iov_len);
    }
    return 0;
  }
  ssize_t read(Link &, const iovec *iov, void *const *, size_t count, const RmaVector *from, size_t,
               uint64_t flags, Token *token) override {
    return access(false, iov, count, *from, flags, token);
  }
  ssize_t write(Link &, const iovec *iov, void *const *, size_t count, const RmaVector *to, size_t,
                uint64_t, uint64_t flags, Token *token) override {
    return access(true, iov, count, *to, flags, token);
  }
  // A packet has come in this buffer.
  Buffer &fill() {
    auto &buffer = reinterpret_cast<Buffer &>(names_.emplace_back());
    filled_.insert(&buffer);
    return buffer;
  }
  size_t filled() const { return filled_.size(); }
  void release(Buffer &buffer) override { EXPECT_EQ(filled_.erase(&buffer), 1u); }
  Link &open() { return reinterpret_cast<Link &>(names_.emplace_back()); }
  bool buffers_low() const override { return low; }
  size_t buffers_left() const override { return left; }
  bool hold(Link &, bool) override { return true; }
  Registration *expose(Link &, const iovec &iov, uint64_t, RmaVector &vector, int &err) override {
    if (may_expose-- <= 0) {
      err = FI_ENOMEM;
      return nullptr;
    }
    vector = {reinterpret_cast<uint64_t>(iov.iov_base), iov.iov_len, ++exposed};
    return &registrations_.emplace_back(Registration{true});
  }
  void conceal(Registration &registration) override {
    EXPECT_TRUE(registration.in_use);
    registration.in_use = false;
    --exposed;
  }
  ssize_t resolve(const RmaVector &vector, uint64_t, iovec *iov, size_t) override {
    if (vector.key != kKey) return -FI_EACCES;
    iov[0] = {reinterpret_cast<void *>(vector.address), size_t(vector.length)};
    return 1;
  }
  Link *connect(Connection &, const sdk::Address &, std::span<const uint8_t>, int &) override {
    return nullptr;
  }
  Link *accept(Connection &, Request &, std::span<const uint8_t>, int &) override {
    return nullptr;
  }
  void reject(Request &, std::span<const uint8_t>) override {}
  void close(Link &, bool) override {}
  uint64_t now_ns() override { return now; }
  void set_deadline(uint64_t at_ns) override { deadlines.push_back(at_ns); }

  static constexpr uint64_t kKey = 7;  // of all memory

 private:
  ssize_t take_room() {
    if (fails != 0) return fails;
    if (room == 0) return -FI_EAGAIN;
    --room;
    return 0;
  }
  ssize_t access(bool write, const iovec *iov, size_t count, const RmaVector &at, uint64_t flags,
                 Token *token) {
    if (const ssize_t rc = take_room(); rc != 0) return rc;
    size_t length = 0;
    for (size_t i = 0; i < count; ++i) length += iov[i].iov_len;
    accesses.push_back({write, length, at, flags, token});
    return 0;
  }

  std::deque<Registration> registrations_;
  std::deque<uint64_t> names_;  // a link or a buffer is nothing more
  std::set<const Buffer *> filled_;
};

// The endpoint. What is saved stays so until a receive takes it, or a test asks.
class NotingUpper final : public Upper, private sdk::ReceiverSink {
 public:
  NotingUpper() {
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.size = 64;
    cq_ = *sdk::Cq::open(domain_.context, &attr, nullptr);
    receiver_.cq = cq_;
  }
  ~NotingUpper() { fi_close(cq_->base()); }
  struct Done {
    const TxOp *op;
    int err;
  };
  std::vector<Done> done;
  std::vector<std::string> warnings;
  std::vector<const TxOp *> waiting;
  std::vector<std::pair<RxMessage *, sdk::Receive *>> wanted;  // by receives that were posted later
  bool persists = true;
  size_t atomics = 0;

  // A receive of `length` bytes for any message without a tag.
  void post(void *to, size_t length) {
    const iovec iov{to, length};
    EXPECT_EQ(receiver_.post({.iov = &iov, .count = 1, .context = to}), 0);
  }
  // The oldest message that is saved; null: none is.
  RxMessage *first_saved() {
    RxMessage *first = nullptr;
    receiver_.visit_unexpected(sdk::Matcher::kAnySource, [&](sdk::Unexpected &m) {
      if (first == nullptr) first = &static_cast<RxMessage &>(m);
    });
    return first;
  }
  // Before the messages go.
  void forget_saved() {
    receiver_.visit_unexpected(sdk::Matcher::kAnySource,
                               [this](sdk::Unexpected &m) { receiver_.forget(m); });
  }
  // What has completed: FI_E..., or 0. -1: nothing.
  int completion() {
    fi_cq_tagged_entry entry{};
    if (cq_->read(&entry, 1) == 1) return 0;
    fi_cq_err_entry err{};
    return cq_->readerr(&err, 0) == 1 ? err.err : -1;
  }

  void on_done(TxOp &op, int err) override { done.push_back({&op, err}); }
  sdk::Receiver &receiver() override { return receiver_; }
  uint32_t index_of(const sdk::Address &) override { return kNoIndex; }
  void warn(const char *text) override { warnings.emplace_back(text); }
  void on_remote_atomic(uint64_t, std::span<const RmaVector>) override { ++atomics; }
  void on_wait(const TxOp &op) override { waiting.push_back(&op); }
  bool persist(std::span<const RmaVector>) override { return persists; }

 private:
  void deliver(sdk::Unexpected &m, sdk::Receive &r) override {
    wanted.emplace_back(&static_cast<RxMessage &>(m), &r);
  }
  void discard(sdk::Unexpected &) override {}

  sdk::TestDomain domain_;
  sdk::Cq *cq_ = nullptr;
  sdk::Receiver receiver_{*this, {.size = 16}};
};

struct PartsWorld {
  PartsWorld() {
    settings.iov_limit = 4;
    settings.eager_limit = 512;
    settings.sar_limit = 2048;
  }
  // A peer that is in the address vector, if it has an index.
  Peer &peer(uint16_t port, uint32_t index = kNoIndex) {
    Peer &p = peers.get(sdk::SockAddr::loopback(AF_INET, port));
    if (index != kNoIndex && p.is_stranger()) peers.set_index(p, index);
    return p;
  }
  // One more connection of it.
  Connection &connected(uint16_t port, uint32_t index = kNoIndex) {
    Connection &c = peers.connect(peer(port, index));
    c.set_link(&carrier.open());
    c.set_state(State::kConnected);
    peers.opened(c);
    return c;
  }
  // One by which the operations of its peer leave.
  Connection &way(uint16_t port, uint8_t level = kLevel) {
    Connection &c = connected(port, port);
    c.set_level(level);
    c.peer().main_ = c.peer().way_ = &c;
    return c;
  }
  static void close_way(Peer &p) { p.way_ = nullptr; }
  static sdk::PeerLink &link(Peer &p) { return p.link_; }

  NotingCarrier carrier;
  NotingUpper upper;
  Settings settings;
  Counters counters;
  Peers peers;
};

}  // namespace weft::rxm

#endif
