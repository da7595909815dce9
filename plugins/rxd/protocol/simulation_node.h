// SPDX-License-Identifier: BSD-2-Clause
// A node of simulation.h: an endpoint with its carrier, and with an application that checks every
// byte and every completion. A process that ends and starts again is two nodes at one address.
//
// Example (statements):
//    #include "plugins/rxd/protocol/simulation.h"
//    World world(/*seed=*/7);
//    Node &a = world.add(0, patient()), &b = world.add(1, patient());
//    a.write(b.number(), 5000, /*at=*/100, /*has_data=*/true);
//    a.read(b.number(), 5000, /*at=*/100);
//    world.run(1'000'000'000);
//    bool written = b.remote_data == 1;  // the application of `b` has checked the bytes
//
// Do not include it alone: simulation.h has the functions of the world.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_SIMULATION_NODE_H
#define WEFT_PLUGINS_RXD_PROTOCOL_SIMULATION_NODE_H

#include <gtest/gtest.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugin-api/sdk/testing/test_instance.h"
#include "plugins/rxd/protocol/device_copies.h"
#include "plugins/rxd/protocol/simulation_world.h"

namespace weft::rxd {

inline sdk::TestDomain &test_domain() {
  static sdk::TestDomain domain;
  return domain;
}

// One life of an endpoint, with its application.
class Node final : public Carrier, public Core::Upper, public sdk::ReceiverSink {
 public:
  static constexpr uint64_t kKey = 77, kReadOnly = 78, kCounter = 79;
  static constexpr size_t kRegion = 1 << 20;

  Node(World &world, size_t number, uint32_t life, const Settings &settings)
      : world_(world), number_(number), life_(life), receiver_(*this, {.size = 1 << 16}) {
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.size = 64;
    cq_ = *sdk::Cq::open(test_domain().context, &attr, nullptr);
    receiver_.cq = cq_;
    core_ = std::make_unique<Core>(*this, *this, settings);
    core_->set_own_address(world_.address_of(number));
  }
  ~Node() {
    *alive_ = false;
    core_->shut_down(FI_ECANCELED);
    discard_unexpected();
    EXPECT_EQ(core_->inbox().bytes(), 0U);
    EXPECT_EQ(core_->inbox().in_use(), 0U);
    EXPECT_EQ(core_->in_flight(), 0U);
    EXPECT_EQ(core_->notes(), 0U);
    if (core_->copies() != nullptr) {
      EXPECT_EQ(core_->copies()->in_use(), 0U);
    }
    EXPECT_TRUE(buffers_.empty()) << "datagrams that were not given back";
    core_.reset();
    EXPECT_EQ(paths_, 0U);
    fi_close(cq_->base());
  }

  Core &core() { return *core_; }
  bool names() const { return named_; }  // the core wants to know sources
  size_t number() const { return number_; }
  uint32_t life() const { return life_; }
  size_t warnings = 0;
  size_t broken = 0;                                  // receives that failed in the middle
  std::vector<std::pair<size_t, uint64_t>> received;  // receive, operation
  uint64_t counter = 0;                               // what atomics change
  size_t remote_data = 0;
  std::string last_warning;
  bool introduces = true;         // peers are in the address vector
  size_t stops_after = SIZE_MAX;  // after so many receives it makes no progress any more
  bool reads = true;              // the application reads its completions

  // ---- the application ----
  // It wants none of the messages that wait. Returns how many there were.
  size_t discard_unexpected() {
    size_t count = 0;
    receiver_.visit_unexpected(sdk::Matcher::kAnySource, [&](sdk::Unexpected &m) {
      receiver_.forget(m);
      core_->discard(static_cast<Incoming &>(m));
      ++count;
    });
    return count;
  }
  struct Form {
    bool tagged = true, delivery = false, transmit = false, fence = false, inject = false,
         more = false;
  };
  bool send(size_t to, size_t length, const Form &form) {
    uint64_t id = 0;
    TxOp *op = begin(to, length, TxOp::Kind::kMessage, id);
    if (op == nullptr) return false;
    Operation &o = world_.operations[id];
    o.tagged = op->tagged = form.tagged;
    o.sure = form.delivery;
    op->has_data = true;
    op->data = op->tag = id;
    op->delivery = form.delivery;
    op->transmit = form.transmit;
    op->fence = form.fence;
    op->more = form.more;
    for (size_t i = 0; i < length; ++i) o.bytes[i] = pattern(id, i);
    const size_t half = length / 3;
    op->iov[0] = {o.bytes.data(), half};
    op->iov[1] = {o.bytes.data() + half, length - half};
    op->count = 2;
    const bool inject = form.inject && length <= 4096;
    if (inject) core_->own_data(*op);
    if (!inject) on_device(*op);
    const bool started = go(*op, to, id);
    if (inject) std::fill(o.bytes.begin(), o.bytes.end(), uint8_t(0xEE));
    return started;
  }
  bool write(size_t to, size_t length, size_t at, bool has_data, uint64_t key = kKey) {
    uint64_t id = 0;
    TxOp *op = begin(to, length, TxOp::Kind::kWrite, id);
    if (op == nullptr) return false;
    Operation &o = world_.operations[id];
    for (size_t i = 0; i < length; ++i) o.bytes[i] = pattern(3, at + i);
    op->has_data = has_data;
    op->data = id;
    op->iov[0] = {o.bytes.data(), length};
    op->count = 1;
    const size_t half = length / 2;
    op->vectors[0] = {at, half, key};
    op->vectors[1] = {at + half, length - half, key};
    op->vector_count = 2;
    on_device(*op);
    return go(*op, to, id);
  }
  bool read(size_t to, size_t length, size_t at, uint64_t key = kReadOnly) {
    uint64_t id = 0;
    TxOp *op = begin(to, length, TxOp::Kind::kRead, id);
    if (op == nullptr) return false;
    Operation &o = world_.operations[id];
    op->iov[0] = {o.bytes.data(), length};
    op->count = 1;
    op->vectors[0] = {at, length, key};
    op->vector_count = 1;
    o.value = at;
    return go(*op, to, id);
  }
  bool add(size_t to) {
    uint64_t id = 0;
    TxOp *op = begin(to, 8, TxOp::Kind::kAtomic, id);
    if (op == nullptr) return false;
    Operation &o = world_.operations[id];
    const uint64_t one = 1;
    std::memcpy(op->bytes, &one, 8);
    op->iov[0] = {op->bytes, 8};
    op->count = 1;
    op->atomic = sdk::AtomicKind::kFetch;
    op->datatype = FI_UINT64;
    op->op = FI_SUM;
    op->vectors[0] = {0, 8, kCounter};
    op->vector_count = 1;
    op->results[0] = {&o.value, 1};
    op->result_count = 1;
    return go(*op, to, id);
  }
  void post(size_t length, bool tagged) {
    memory_.push_back({std::make_unique_for_overwrite<uint8_t[]>(length), length});
    const iovec iov{memory_.back().bytes.get(), length};
    ASSERT_EQ(receiver_.post({.tagged = tagged,
                              .iov = &iov,
                              .count = 1,
                              .ignore = ~UINT64_C(0),
                              .context = reinterpret_cast<void *>(memory_.size())}),
              0);
    settle();
    if (reads) reap();
  }
  size_t posted() const { return receiver_.posted(); }
  size_t datagrams_kept() const { return buffers_.size(); }
  // Reads completions, and notes which message came in which receive.
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
          ASSERT_LT(err.data, world_.operations.size());
          EXPECT_EQ(err.len + err.olen, world_.operations[err.data].length);
          note(err.data, size_t(err.op_context), err.len);
        } else {
          ++broken;
        }
      } else {
        return;
      }
    }
  }

  // ---- the network ----
  void arrive(size_t from, const std::vector<uint8_t> &bytes) {
    inbox_.emplace_back(from, bytes);
    wake();
  }
  // The network reports that no process receives at `to`, and shows the begin of the datagram.
  void unreachable(size_t to, std::span<const uint8_t> datagram) {
    // Only its path knows an address that was damaged on its way here: it may be nobody's.
    const Path *path = path_to(to);
    if (path == nullptr && to >= world_.nodes.size()) return;
    core_->on_unreachable(path != nullptr ? path->to : world_.address_of(to),
                          datagram.first(std::min<size_t>(datagram.size(), 128)));
    settle();
  }
  void wake() {
    if (std::exchange(woken_, true)) return;
    later((cq_->full() ? 100'000 : 1000) + world_.some(5000), [this] { progress(); });
  }
  // One progress call, of a provider that reads everything.
  void progress() {
    woken_ = false;
    if (received.size() >= stops_after) return;
    const bool full = cq_->full() || world_.chance(world_.full);
    core_->set_full(full);
    if (std::exchange(overdue_, false)) core_->on_deadline();
    const bool came = !inbox_.empty();
    const bool named = named_;  // all these datagrams were read at once
    while (!inbox_.empty()) {
      auto buffer = std::make_unique<Buffer>();
      const size_t from = inbox_.front().first;
      buffer->bytes = std::move(inbox_.front().second);
      inbox_.pop_front();
      Buffer *b = buffer.get();
      buffers_[b] = std::move(buffer);
      if (!core_->on_datagram(b->bytes, *b, named ? path_to(from) : nullptr)) release(*b);
    }
    // on_idle() follows only a read that found nothing.
    if (!came) core_->on_idle();
    core_->poll();
    settle();
    if (reads) reap();
    // The application makes progress a few times more; the core must set a deadline for the rest.
    idle_ = came || full ? 0 : idle_ + 1;
    if (idle_ < 5) wake();
  }

  // ---- Carrier ----
  Path *open(const sdk::Address &peer, int &) override {
    ++paths_;
    return open_[world_.number_of(peer)] = new Path{peer};
  }
  void close(Path &path) override {
    --paths_;
    const size_t number = world_.number_of(path.to);
    if (path_to(number) == &path) open_.erase(number);
    delete &path;
  }
  bool is_local(const sdk::Address &) override { return false; }
  bool names_sources() const override { return true; }
  void name_sources(bool wanted) override { named_ = wanted; }
  int send(Path &to, const iovec *iov, size_t count, bool more) override {
    if (world_.chance(world_.eagain)) {
      if (!std::exchange(retries_, true))
        later(20'000, [this] {
          retries_ = false;
          core_->poll();
          settle();
        });
      return -FI_EAGAIN;
    }
    batch_.push_back({to.to, {iov, iov + count}});
    if (!more) flush();
    return 0;
  }
  void flush() override {
    for (const auto &[to, iov] : batch_) {
      std::vector<uint8_t> bytes;
      for (const iovec &v : iov) {
        const auto *at = static_cast<const uint8_t *>(v.iov_base);
        bytes.insert(bytes.end(), at, at + v.iov_len);
      }
      EXPECT_LE(bytes.size(), world_.datagram);
      world_.carry(number_, to, std::move(bytes));
    }
    batch_.clear();
  }
  size_t max_datagram() const override { return world_.datagram; }
  size_t receive_window() const override { return world_.window; }
  void release(Buffer &buffer) override {
    const auto it = buffers_.find(&buffer);
    ASSERT_TRUE(it != buffers_.end());
    std::fill(buffer.bytes.begin(), buffer.bytes.end(), uint8_t(0xDD));
    buffers_.erase(it);
  }
  bool buffers_low() const override { return world_.chance(world_.low); }
  ssize_t resolve(const RmaVector &v, uint64_t access, iovec *iov, size_t room) override {
    if (room < 1) return -FI_EACCES;
    uint8_t *base = nullptr;
    size_t size = kRegion;
    if (v.key == kKey && (access & FI_REMOTE_READ) == 0) {
      if (written_ == nullptr) written_ = std::make_unique_for_overwrite<uint8_t[]>(kRegion);
      base = written_.get();
    }
    if (v.key == kReadOnly && access == FI_REMOTE_READ) base = readable().data();
    if (v.key == kCounter) {
      base = reinterpret_cast<uint8_t *>(&counter);
      size = sizeof counter;
    }
    if (base == nullptr || v.address > size || v.length > size - v.address) return -FI_EACCES;
    iov[0] = {base + v.address, v.length};
    return 1;
  }
  uint64_t now_ns() override { return world_.now; }
  // The application computes at some times.
  bool progress_is_near() override { return world_.now / 100'000 % 3 != 0; }
  void set_deadline(uint64_t at) override {
    ++deadline_;
    if (at == 0) return;
    later(at > world_.now ? at - world_.now : 0, [this, number = deadline_] {
      if (number != deadline_) return;
      overdue_ = received.size() >= stops_after;
      if (overdue_) return;
      core_->on_deadline();
      settle();
    });
  }
  void random(std::span<uint8_t> out) override {
    for (uint8_t &byte : out) byte = uint8_t(world_.random());
  }

  // ---- Core::Upper ----
  void on_done(TxOp &op, int err) override {
    Operation &o = world_.operations[size_t(op.context) - 1];
    ++o.ended;
    o.err = err;
    EXPECT_EQ(o.ended, 1);
    if (o.kind == TxOp::Kind::kRead && err == 0)
      for (size_t i = 0; i < o.length; ++i)
        if (o.bytes[i] != pattern(5, o.value + i)) {
          ADD_FAILURE() << "byte " << i << " of a read of " << o.length;
          break;
        }
    // The memory belongs to the application again: overwrite it.
    if (o.kind == TxOp::Kind::kMessage && err == 0)
      std::fill(o.bytes.begin(), o.bytes.end(), uint8_t(0xEE));
  }
  sdk::Receiver &receiver() override { return receiver_; }
  uint32_t index_of(const sdk::Address &address) override {
    return introduces ? uint32_t(world_.number_of(address)) : kNoIndex;
  }
  void on_remote_write(uint32_t, uint64_t, bool has_data, uint64_t data,
                       std::span<const RmaVector> where) override {
    if (has_data) {
      ++remote_data;
      ++world_.operations[data].arrived;
    }
    for (const RmaVector &v : where)
      for (size_t i = v.address; i < v.address + v.length; ++i)
        if (written_[i] != pattern(3, i)) {
          ADD_FAILURE() << "byte " << i << " of a write";
          return;
        }
  }
  void on_remote_read(uint64_t, std::span<const RmaVector>) override {}
  void on_remote_atomic(uint64_t, uint64_t, std::span<const RmaVector>) override {}
  void warn(const char *text) override {
    ++warnings;
    last_warning = text;
    if (std::getenv("SEED") != nullptr)
      std::fprintf(stderr, "%llu us: node %zu: %s\n", (unsigned long long)(world_.now / 1000),
                   number_, text);
  }

  // ---- ReceiverSink ----
  void deliver(sdk::Unexpected &message, sdk::Receive &receive) override {
    core_->deliver(static_cast<Incoming &>(message), receive);
  }
  void discard(sdk::Unexpected &message) override {
    core_->discard(static_cast<Incoming &>(message));
  }

  Path *path_to(size_t number) const {
    const auto it = open_.find(number);
    return it != open_.end() ? it->second : nullptr;
  }
  // After each call into the core the batch must be empty.
  void settle() { EXPECT_TRUE(batch_.empty()) << "a call ended without a flush"; }
  void later(uint64_t delay, std::function<void()> run) {
    world_.after(delay, [alive = alive_, run = std::move(run)] {
      if (*alive) run();
    });
  }

 private:
  static std::vector<uint8_t> &readable() {
    static std::vector<uint8_t> bytes = [] {
      std::vector<uint8_t> made(kRegion);
      for (size_t i = 0; i < kRegion; ++i) made[i] = pattern(5, i);
      return made;
    }();
    return bytes;
  }
  TxOp *begin(size_t to, size_t length, TxOp::Kind kind, uint64_t &id) {
    TxOp *op = core_->take();
    if (op == nullptr) return nullptr;
    id = world_.operations.size();
    world_.operations.push_back({.from = number_,
                                 .to = to,
                                 .life = life_,
                                 .target_life = world_.lives[to],
                                 .kind = kind,
                                 .length = length,
                                 .bytes = std::vector<uint8_t>(length)});
    op->kind = kind;
    op->context = reinterpret_cast<void *>(id + 1);
    op->length = length;
    return op;
  }
  // As an endpoint does: with FI_HMEM all memory may be a device's.
  void on_device(TxOp &op) const {
    op.on_device = core_->copies() != nullptr && op.length > DeviceCopies::kShort;
    if (op.on_device) op.more = true;
  }
  bool go(TxOp &op, size_t to, uint64_t id) {
    const sdk::Address address = world_.address_of(to);
    const int rc = core_->start(op, uint32_t(to), &address);
    settle();
    wake();
    idle_ = 0;
    if (rc == 0) return true;
    core_->give(op);
    Operation &o = world_.operations[id];
    o.ended = 1;
    o.err = -rc;
    return false;
  }
  void note(uint64_t id, size_t receive, size_t length) {
    ASSERT_LT(id, world_.operations.size());
    Operation &o = world_.operations[id];
    ++o.arrived;
    EXPECT_EQ(o.arrived, 1) << "operation " << id;
    EXPECT_EQ(o.to, number_);
    const Memory &memory = memory_[receive - 1];
    ASSERT_EQ(length, std::min(o.length, memory.length));
    for (size_t i = 0; i < length; ++i)
      if (memory.bytes[i] != pattern(id, i)) {
        ADD_FAILURE() << "byte " << i << " of message " << id << " of " << o.length;
        break;
      }
    received.emplace_back(receive, id);
  }

  World &world_;
  const size_t number_;
  const uint32_t life_;
  sdk::Receiver receiver_;
  sdk::Cq *cq_ = nullptr;
  std::unique_ptr<Core> core_;
  // Most of it is never written, so it is not zeroed: a page costs more than a message.
  struct Memory {
    std::unique_ptr<uint8_t[]> bytes;
    size_t length;
  };
  std::vector<Memory> memory_;
  std::unique_ptr<uint8_t[]> written_;                         // by peers; null: not yet
  std::deque<std::pair<size_t, std::vector<uint8_t>>> inbox_;  // source and datagram
  std::map<size_t, Path *> open_;
  std::map<Buffer *, std::unique_ptr<Buffer>> buffers_;
  std::vector<std::pair<sdk::Address, std::vector<iovec>>> batch_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  uint64_t deadline_ = 0;
  size_t paths_ = 0;
  int idle_ = 0;  // progress calls in a row without a datagram
  bool woken_ = false, retries_ = false;
  bool named_ = true;
  bool overdue_ = false;  // a deadline has passed while the application made no progress
};

}  // namespace weft::rxd

#endif
