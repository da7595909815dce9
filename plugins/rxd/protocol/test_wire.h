// SPDX-License-Identifier: BSD-2-Clause
// Cores on a wire that loses only what a test wants, and that allocates nothing: for tests of costs
// and of limits, many peers, strangers, simulated time.
//
// Example (statements):
//    Wire wire(/*room=*/64);  // datagrams
//    End a(wire, 0, quick()), b(wire, 1, quick());
//    char out[8] = "hello", in[8];
//    b.post(in, sizeof in);
//    a.send(1, out, sizeof out);
//    wire.pass(kMillisecond);
//    bool arrived = b.posted() == 0 && a.done == 1;
//
// Not for networks with faults (simulation.h).
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_TEST_WIRE_H
#define WEFT_PLUGINS_RXD_PROTOCOL_TEST_WIRE_H

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/ip/sock_addr.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/protocol/test_carrier.h"

namespace weft::rxd::lossless {

inline sdk::Address address_of(uint32_t n) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(uint16_t(1 + n % 60000));
  in.sin_addr.s_addr = htonl(0x0a000001 + n / 60000);
  return sdk::SockAddr(in);
}

inline uint32_t number_of(const sdk::Address &address) {
  const auto *in = static_cast<const sockaddr_in *>(address.data());
  return (ntohl(in->sin_addr.s_addr) - 0x0a000001) * 60000 + address.port() - 1;
}

class End;

struct Datagram {
  std::array<uint8_t, 2048> bytes;
  size_t size = 0;
  uint32_t to = 0;
};

// Datagrams in a ring, in order.
struct Wire {
  explicit Wire(size_t room) : ring(room) {}
  std::vector<Datagram> ring;
  size_t head = 0, tail = 0;
  std::vector<End *> ends;
  std::vector<uint32_t> awake;  // endpoints with new events
  uint64_t now = 1'000'000'000;
  uint64_t last_to_stranger = 0;  // bytes of the last datagram to an unknown address
  uint64_t strangers = 0;
  uint32_t chance = 1;
  std::function<bool(const Datagram &)> loses;  // called with each datagram; true: it is lost
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
    core_->begin_pass();
    core_->on_idle();
    core_->poll();
  }

  // `delivery`, `transmit`: TxOp.
  struct Until {
    bool delivery = false, transmit = false;
  };
  int send(uint32_t to, const void *data, size_t length, bool tagged = true) {
    return send(to, data, length, tagged, {});
  }
  int send(uint32_t to, const void *data, size_t length, bool tagged, Until until) {
    TxOp *op = core_->take();
    if (op == nullptr) return -FI_EAGAIN;
    wake();
    op->tagged = tagged;
    op->tag = 7;
    op->delivery = until.delivery;
    op->transmit = until.transmit;
    op->length = length;
    op->iov[0] = {const_cast<void *>(data), length};
    op->count = 1;
    const sdk::Address address = address_of(to);
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
  bool keeps = false;           // a test gives the core datagrams that come too early
  size_t released = 0;          // of these
  bool delays = false;          // flush_later() allows it
  size_t delayed = 0;           // calls of it
  uint32_t named = UINT32_MAX;  // addresses below are in the address vector

  Path *open(const sdk::Address &peer, int &) override {
    ++paths_;
    return new Path{peer};
  }
  void close(Path &path) override {
    --paths_;
    delete &path;
  }
  bool is_local(const sdk::Address &) override { return true; }
  bool names_sources() const override { return false; }
  void name_sources(bool) override {}
  int send(Path &to, const iovec *iov, size_t count, bool) override {
    if (wire_.tail - wire_.head == wire_.ring.size()) return -FI_EAGAIN;
    Datagram &d = wire_.ring[wire_.tail++ % wire_.ring.size()];
    d.size = 0;
    for (size_t i = 0; i < count; ++i) {
      if (d.size + iov[i].iov_len > d.bytes.size()) {
        ADD_FAILURE() << "a datagram that is too long";
        return -FI_EMSGSIZE;
      }
      std::memcpy(d.bytes.data() + d.size, iov[i].iov_base, iov[i].iov_len);
      d.size += iov[i].iov_len;
    }
    d.to = number_of(to.to);
    return 0;
  }
  void flush() override {}
  size_t max_datagram() const override { return 1472; }
  size_t receive_window() const override { return 1 << 20; }
  void release(Buffer &) override {
    ++released;
    EXPECT_TRUE(keeps) << "a datagram was kept, and none comes too early";
  }
  bool buffers_low() const override { return low; }
  ssize_t resolve(const RmaVector &, uint64_t, iovec *, size_t) override { return -FI_EACCES; }
  uint64_t now_ns() override { return wire_.now; }
  bool flush_later() override {
    delayed += delays;
    return delays;
  }
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
  uint32_t index_of(const sdk::Address &address) override {
    const uint32_t number = number_of(address);
    return number < named ? number : kNoIndex;
  }
  uint32_t index_of_context(const sdk::Address &address, unsigned place) override {
    const uint32_t first = number_of(address) - place;
    return first < named ? sdk::Av::kContext + first * sdk::Av::kContexts + place : kNoIndex;
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

inline bool Wire::step() {
  if (head == tail) return false;
  Datagram copy = ring[head++ % ring.size()];
  if (loses && loses(copy)) return true;
  Buffer buffer;  // nothing comes too early, so the core keeps none
  if (copy.to >= ends.size() || ends[copy.to] == nullptr) {
    last_to_stranger = copy.size;
    ++strangers;
    return true;
  }
  now += 1000;
  ends[copy.to]->wake();
  EXPECT_FALSE(ends[copy.to]->core().on_datagram({copy.bytes.data(), copy.size}, buffer, nullptr));
  return true;
}

inline bool Wire::idle() {
  while (!awake.empty()) {
    End *end = ends[awake.back()];
    awake.pop_back();
    end->progress();
  }
  return head != tail;
}

inline void Wire::pass(uint64_t ns) {
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

inline Settings quick() {
  Settings settings;
  settings.stock_peers = true;
  return settings;
}

}  // namespace weft::rxd::lossless

#endif
