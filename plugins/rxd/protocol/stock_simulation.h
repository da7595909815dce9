// SPDX-License-Identifier: BSD-2-Clause
// Endpoints of rxd that take each other for stock endpoints, in simulated time. The network removes
// the mark from every RTS; loses, duplicates and reorders datagrams; and gives datagrams to unknown
// addresses to the test.
//
// Example (statements):
//    Net net(/*seed=*/7);
//    net.loss = 7;  // percent
//    Node a(net, 1), b(net, 2);
//    const Bytes sent = pattern_of(1, 5000);
//    Bytes received(5000);
//    b.post(received, /*tagged=*/true);
//    a.send(2, sent, /*tagged=*/true, /*tag=*/1);
//    net.run([&] { return a.all_ended(); });
//
// Not for weft's own dialect: that is simulation.h.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_STOCK_SIMULATION_H
#define WEFT_PLUGINS_RXD_PROTOCOL_STOCK_SIMULATION_H

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/ip/sock_addr.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_instance.h"
#include "plugin-api/sdk/testing/test_time.h"
#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/protocol/test_carrier.h"
#include "plugins/rxd/wire/stock.h"

namespace weft::rxd::stock_world {

using Bytes = std::vector<uint8_t>;
inline constexpr uint64_t kUs = 1000, kMs = 1'000'000, kS = 1'000'000'000;
inline constexpr uint64_t kKey = 0xc0de0001;

inline sdk::Address address_of(size_t n) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(uint16_t(5000 + n));
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return sdk::SockAddr(in);
}

inline uint8_t pattern(uint64_t id, size_t i) {
  return uint8_t(id * 131 + i * 7 + (i >> 8));
}

inline Bytes pattern_of(uint64_t id, size_t n) {
  Bytes out(n);
  for (size_t i = 0; i < n; ++i) out[i] = pattern(id, i);
  return out;
}

class Node;

struct Net : sdk::TestTime {
  explicit Net(unsigned seed) : TestTime(kS), random(seed) {}
  bool chance(unsigned percent) { return random() % 100 < percent; }
  void carry(const sdk::Address &from, const sdk::Address &to, Bytes bytes);
  // Runs until `done`. False: the time is over.
  bool run(const std::function<bool()> &done, uint64_t limit = 60 * kS) {
    return run_until(done, limit);
  }

  std::mt19937_64 random;
  std::map<uint16_t, Node *> nodes;
  std::map<uint16_t, uint64_t> busy;  // until when the path to a port is busy
  std::deque<Bytes> strange;          // datagrams to unknown addresses, for the test
  // The indexes that nodes have sent to each other, by both ports.
  std::map<std::pair<uint16_t, uint16_t>, uint64_t> indices;
  unsigned loss = 0, twice = 0, late = 0, eagain = 0;  // percent
  bool cut = false;
};

struct Done {
  int times = 0, err = 0;
};
struct Got {
  uint64_t tag = 0, data = 0, flags = 0;
  size_t context = 0, length = 0;
  int err = 0;
};

// Lets `a` connect with `b`. Stock answers an RTS at any time; weft does not while it asks the same
// peer itself. So two weft endpoints that ask each other at once without marks would wait for ever.
inline void meet(Net &net, Node &a, size_t b);

class Node final : public Carrier, public Core::Upper, public sdk::ReceiverSink {
 public:
  Node(Net &net, size_t number, Settings settings = {})
      : memory(64 << 10), net_(net), number_(number), receiver_(*this, {.size = 4096}) {
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.size = 4096;
    cq_ = *sdk::Cq::open(domain_.context, &attr, nullptr);
    receiver_.cq = cq_;
    core_ = std::make_unique<Core>(*this, *this, settings);
    core_->set_own_address(address_of(number));
    net.nodes[address_of(number).port()] = this;
  }
  ~Node() {
    *alive_ = false;
    const uint16_t port = address_of(number_).port();
    net_.nodes.erase(port);
    std::erase_if(net_.indices, [port](const auto &said) { return said.first.first == port; });
    core_->shut_down(FI_ECANCELED);
    receiver_.visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
      receiver_.forget(m);
      core_->discard(static_cast<Incoming &>(m));
    });
    EXPECT_EQ(core_->in_flight(), 0u);
    EXPECT_EQ(core_->inbox().in_use(), 0u);
    EXPECT_EQ(core_->inbox().bytes(), 0u);
    core_.reset();
    EXPECT_EQ(paths_, 0u);
    fi_close(cq_->base());
  }

  Core &core() { return *core_; }
  size_t number() const { return number_; }

  // ---- the application ----
  TxOp &make(size_t &id) {
    id = done.size();
    done.emplace_back();
    TxOp *op = core_->take();
    EXPECT_NE(op, nullptr);
    op->context = reinterpret_cast<void *>(id + 1);
    return *op;
  }
  size_t go(TxOp &op, size_t id, size_t to) {
    const sdk::Address address = address_of(to);
    const int rc = core_->start(op, uint32_t(to), &address);
    EXPECT_EQ(rc, 0);
    return id;
  }
  size_t send(size_t to, const Bytes &bytes, bool tagged, uint64_t tag, bool has_data = false,
              bool more = false) {
    size_t id;
    TxOp &op = make(id);
    op.kind = TxOp::Kind::kMessage;
    op.tagged = tagged;
    op.tag = tag;
    op.has_data = has_data;
    op.data = tag + 1000;
    op.more = more;
    set(op, bytes);
    return go(op, id, to);
  }
  size_t access(TxOp::Kind kind, size_t to, Bytes &bytes, uint64_t address, uint64_t key = kKey,
                bool has_data = false, size_t vectors = 1) {
    size_t id;
    TxOp &op = make(id);
    op.kind = kind;
    op.has_data = has_data;
    op.data = 77;
    const size_t part = bytes.size() / vectors;
    for (size_t i = 0; i < vectors; ++i)
      op.vectors[i] = {address + i * part, i + 1 == vectors ? bytes.size() - i * part : part, key};
    op.vector_count = uint8_t(vectors);
    set(op, bytes);
    return go(op, id, to);
  }
  size_t atomic(size_t to, sdk::AtomicKind kind, uint8_t operation, std::vector<uint64_t> &values,
                std::vector<uint64_t> &results, uint64_t address, uint64_t key = kKey,
                size_t vectors = 1) {
    size_t id;
    TxOp &op = make(id);
    op.kind = TxOp::Kind::kAtomic;
    op.atomic = kind;
    op.datatype = FI_UINT64;
    op.op = operation;
    const size_t n = results.empty() ? values.size() * 8 : results.size() * 8;
    for (size_t i = 0; i < vectors; ++i)
      op.vectors[i] = {address + i * (n / vectors), n / vectors, key};
    op.vector_count = uint8_t(vectors);
    op.length = values.size() * 8;
    op.iov[0] = {values.data(), op.length};
    op.count = op.length != 0 ? 1 : 0;
    op.results[0] = {results.data(), results.size()};
    op.result_count = results.empty() ? 0 : 1;
    core_->own_data(op);
    return go(op, id, to);
  }
  void post(Bytes &into, bool tagged, uint64_t tag = 0, uint64_t ignore = ~UINT64_C(0)) {
    const iovec iov{into.data(), into.size()};
    ASSERT_EQ(receiver_.post({.tagged = tagged,
                              .iov = &iov,
                              .count = 1,
                              .tag = tag,
                              .ignore = ignore,
                              .context = reinterpret_cast<void *>(++posts_)}),
              0);
  }
  void reap() {
    fi_cq_tagged_entry e{};
    for (;;) {
      const ssize_t n = cq_->read(&e, 1);
      if (n == 1) {
        got.push_back({e.tag, e.data, e.flags, size_t(e.op_context), e.len, 0});
      } else if (n == -FI_EAVAIL) {
        fi_cq_err_entry err{};
        ASSERT_EQ(cq_->readerr(&err, 0), 1);
        got.push_back({err.tag, err.data, err.flags, size_t(err.op_context), err.len, err.err});
      } else {
        return;
      }
    }
  }
  bool ended(size_t id) const { return done[id].times != 0; }
  bool all_ended() const {
    return std::all_of(done.begin(), done.end(), [](const Done &d) { return d.times != 0; });
  }

  std::vector<Done> done;
  std::vector<Got> got;
  Bytes memory;  // the region
  bool region = true;
  size_t writes = 0, write_data = 0, reads = 0, atomics = 0, warnings = 0;

  void take(const Bytes &bytes) {
    Buffer buffer;
    core_->on_datagram(bytes, buffer, nullptr);
    look_later();
  }

  // ---- Carrier ----
  Path *open(const sdk::Address &peer, int &) override {
    ++paths_;
    return new Path{peer};
  }
  void close(Path &path) override {
    flush();
    --paths_;
    delete &path;
  }
  bool is_local(const sdk::Address &) override { return true; }
  bool names_sources() const override { return false; }
  void name_sources(bool) override {}
  int send(Path &to, const iovec *iov, size_t count, bool more) override {
    if (net_.chance(net_.eagain)) {
      net_.after(50 * kUs, [this, alive = alive_] {
        if (*alive) core_->poll();
      });
      return -FI_EAGAIN;
    }
    held_.push_back({to.to, {iov, iov + count}});
    if (!more) flush();
    return 0;
  }
  void flush() override {
    for (const Held &held : held_) {
      Bytes bytes;
      for (const iovec &piece : held.iov) {
        const auto *at = static_cast<const uint8_t *>(piece.iov_base);
        bytes.insert(bytes.end(), at, at + piece.iov_len);
      }
      EXPECT_LE(bytes.size(), stock::kDatagram);
      EXPECT_EQ(bytes.at(0), stock::kVersion) << "that is not for stock peers";
      net_.carry(address_of(number_), held.to, std::move(bytes));
    }
    held_.clear();
  }
  size_t max_datagram() const override { return 65000; }
  size_t receive_window() const override { return 212992; }
  void release(Buffer &) override {}
  bool buffers_low() const override { return false; }
  ssize_t resolve(const RmaVector &v, uint64_t, iovec *iov, size_t room) override {
    if (!region || v.key != kKey || v.address > memory.size() ||
        v.length > memory.size() - v.address || room == 0)
      return -FI_EACCES;
    iov[0] = {memory.data() + v.address, size_t(v.length)};
    return 1;
  }
  uint64_t now_ns() override { return net_.now; }
  void set_deadline(uint64_t at) override {
    const uint64_t mine = ++deadline_;
    if (at == 0) return;
    net_.after(at > net_.now ? at - net_.now : 0, [this, alive = alive_, mine] {
      if (!*alive || mine != deadline_) return;
      core_->on_deadline();
      core_->poll();
    });
  }
  void random(std::span<uint8_t> out) override {
    for (uint8_t &byte : out) byte = uint8_t(net_.random());
  }

  // ---- Core::Upper ----
  void on_done(TxOp &op, int err) override {
    Done &d = done.at(reinterpret_cast<size_t>(op.context) - 1);
    ++d.times;
    d.err = err;
    EXPECT_EQ(d.times, 1) << "an operation ended twice";
  }
  sdk::Receiver &receiver() override { return receiver_; }
  uint32_t index_of(const sdk::Address &address) override {
    return uint32_t(address.port() - 5000);
  }
  void on_remote_write(uint32_t, uint64_t, bool has_data, uint64_t data,
                       std::span<const RmaVector>) override {
    ++writes;
    if (has_data) write_data = data;
  }
  void on_remote_read(uint64_t, std::span<const RmaVector>) override { ++reads; }
  void on_remote_atomic(uint64_t, uint64_t, std::span<const RmaVector>) override { ++atomics; }
  void warn(const char *text) override {
    ++warnings;
    EXPECT_NE(std::string(text).find("rxd"), std::string::npos);
  }

  // ---- ReceiverSink ----
  void deliver(sdk::Unexpected &message, sdk::Receive &receive) override {
    core_->deliver(static_cast<Incoming &>(message), receive);
  }
  void discard(sdk::Unexpected &message) override {
    core_->discard(static_cast<Incoming &>(message));
  }

 private:
  struct Held {
    sdk::Address to;
    std::vector<iovec> iov;
  };
  void set(TxOp &op, const Bytes &bytes) {
    const size_t half = bytes.size() / 3;
    auto *at = const_cast<uint8_t *>(bytes.data());
    op.iov[0] = {at, half};
    op.iov[1] = {at + half, bytes.size() - half};
    op.count = 2;
    op.length = bytes.size();
  }
  void look_later() {
    if (looks_) return;
    looks_ = true;
    net_.after(5 * kUs, [this, alive = alive_] {
      if (!*alive) return;
      looks_ = false;
      core_->on_idle();
      core_->poll();
    });
  }

  Net &net_;
  const size_t number_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  sdk::TestDomain domain_;
  sdk::Cq *cq_ = nullptr;
  sdk::Receiver receiver_;
  std::unique_ptr<Core> core_;
  std::vector<Held> held_;
  size_t paths_ = 0, posts_ = 0;
  uint64_t deadline_ = 0;
  bool looks_ = false;
};

inline void Net::carry(const sdk::Address &from, const sdk::Address &to, Bytes bytes) {
  const stock::Packet sent = stock::parse(bytes, FI_SOCKADDR_IP).packet;
  if (sent.type == stock::Type::kRts) {
    std::fill_n(&bytes.at(8), 8, uint8_t(0));
    // A stock endpoint answers a second RTS and goes on. A weft endpoint would take it for a
    // restart, so the network answers in its place.
    const auto said = indices.find({to.port(), from.port()});
    if (sent.index > UINT32_MAX && said != indices.end()) {
      Bytes answer(stock::kMaxHeader);
      answer.resize(stock::encode({.type = stock::Type::kCts,
                                   .peer = uint32_t(sent.index),
                                   .index = said->second,
                                   .rts_index = sent.index},
                                  std::span<uint8_t, stock::kMaxHeader>(answer)));
      return carry(to, from, std::move(answer));
    }
  }
  if (sent.index != 0) indices[{from.port(), to.port()}] = uint32_t(sent.index);
  if (cut || chance(loss)) return;
  const int copies = chance(twice) ? 2 : 1;
  // Each datagram takes a microsecond of the path; some are delayed more, and overtaken.
  uint64_t &last = busy[to.port()];
  last = std::max(now + 20 * kUs, last + kUs);
  const uint64_t delay = last - now + (chance(late) ? 300 * kUs : 0);
  for (int i = 0; i < copies; ++i) {
    after(i == 0 ? delay : delay + random() % kMs, [this, to, bytes] {
      const auto it = nodes.find(to.port());
      if (it != nodes.end()) return it->second->take(bytes);
      strange.push_back(bytes);
    });
  }
}

inline void meet(Net &net, Node &a, size_t b) {
  Bytes none;
  const size_t id = a.access(TxOp::Kind::kWrite, b, none, 0);
  ASSERT_TRUE(net.run([&] { return a.ended(id); }));
  a.done.clear();
}

}  // namespace weft::rxd::stock_world

#endif
