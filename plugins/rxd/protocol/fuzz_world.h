// SPDX-License-Identifier: BSD-2-Clause
// Endpoints of rxd for a fuzz target with state: a core, its carrier with real memory between red
// zones, and an application that holds every byte and every completion against what it knows.
//
//   World world;
//   Node &a = world.add(1, settings), &b = world.add(2, settings);
//   b.post({.from = 1, .length = 100});
//   a.start({.to = 2, .length = 100});
//   world.run_for(1'000'000);              // ns: datagrams travel, deadlines pass
//   world.check_rest();                // all has ended, of honest ones well
//
// Who is a `Stranger` has no core: what is sent to its address is handed to it, and it says what
// it likes. Memory that a datagram is made of is read at the flush, and what was received is spoilt
// when it is given back. Not for losses and restarts: those are simulation.h's.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_FUZZ_WORLD_H
#define WEFT_PLUGINS_RXD_PROTOCOL_FUZZ_WORLD_H

#include <arpa/inet.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/av.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "plugin-api/sdk/test_time.h"
#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/wire/stock.h"
#include "tests/fuzz/world.h"

namespace weft::rxd {

struct Path {
  sdk::SockAddr to;
};
struct Buffer {
  std::vector<uint8_t> bytes;
};

namespace fuzz {

using weft::fuzz::Memory;

inline sdk::SockAddr address_of(uint16_t n) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(n);
  in.sin_addr.s_addr = htonl(0x0a000001);
  return sdk::SockAddr(in);
}

inline uint8_t pattern(uint64_t id, size_t i) {
  return uint8_t(id * 131 + i * 7 + (i >> 8) * 3 + 1);
}

class Node;

class Stranger {
 public:
  virtual ~Stranger() = default;
  virtual void hear(std::vector<uint8_t> bytes) = 0;
};

// A message that an honest endpoint sent to another.
struct Letter {
  uint16_t from = 0, to = 0;
  size_t length = 0;
  int arrived = 0;
  bool failed = false;  // it may not have got out
};

class World : public sdk::TestTime {
 public:
  static constexpr uint16_t kStock = 3;  // takes part as if it were stock: its RTS have no mark

  World() : TestTime(1'000'000'000) {}
  ~World();
  Node &add(uint16_t number, const Settings &settings);
  void add(uint16_t number, Stranger &stranger) { strangers[number] = &stranger; }
  Node *node(uint16_t number) {
    const auto it = nodes.find(number);
    return it != nodes.end() ? it->second.get() : nullptr;
  }
  // `from` is where it comes from, whatever it says.
  void carry(uint16_t from, uint16_t to, std::vector<uint8_t> bytes);
  static bool honest(uint16_t number) { return number <= kStock; }

  unsigned losses = 0;  // datagrams among the honest that are lost next
  std::vector<Letter> letters;
  std::map<uint16_t, std::unique_ptr<Node>> nodes;
  std::map<uint16_t, Stranger *> strangers;
  weft::fuzz::Domain domain;

 private:
  bool goes_on(uint16_t from, uint16_t to, std::span<const uint8_t> bytes);

  // What kStock calls the endpoint that it talks with, and that endpoint it; 0: not said yet.
  uint32_t stock_number_ = 0, number_there_ = 0;
};

// One endpoint with its application.
class Node final : public Carrier,
                   public Core::Upper,
                   public sdk::ReceiverSink,
                   public sdk::AvUser {
 public:
  static constexpr uint64_t kWritable = 7, kReadable = 8, kCounter = 9;
  static constexpr size_t kRegion = 1 << 14;

  Node(World &world, uint16_t number, const Settings &settings)
      : world_(world),
        number_(number),
        settings_(settings),
        receiver_(*this, {.size = 64, .directed = true, .source = true}) {
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.size = 16;
    cq_ = *sdk::Cq::open(world.domain.context, &attr, nullptr);
    receiver_.cq = cq_;
    fi_av_attr named{};
    av_ = *sdk::Av::open(world.domain.context, FI_SOCKADDR_IN, &named, nullptr);
    receiver_.av = av_;
    for (uint64_t key : {kWritable, kReadable, kCounter}) open_region(key);
    core_ = std::make_unique<Core>(*this, *this, settings);
    core_->set_own_address(address_of(number));
    av_->add_user(*this, true);
  }
  ~Node();

  Core &core() { return *core_; }
  size_t operations() const { return operations_.size(); }  // outstanding

  // ---- the application ----
  struct Start {
    TxOp::Kind kind = TxOp::Kind::kMessage;
    uint16_t to = 0;
    size_t length = 0, at = 0;
    uint64_t key = kReadable, tag = 0;
    bool tagged = true, delivery = false, transmit = false, fence = false, inject = false,
         more = false, fetches = true;
  };
  void start(const Start &s);
  struct Post {
    uint16_t from = 0;  // 0: anybody
    size_t length = 0;
    uint64_t tag = 0, ignore = 0;
    bool tagged = true, multi = false, split = false;
  };
  void post(const Post &p);
  // FI_PEEK, with FI_CLAIM or FI_DISCARD, at untagged messages: all of strangers.
  void look(uint64_t flags);
  void claim(size_t length);  // receives, or discards, a message that was claimed
  void cancel(size_t which);  // of the receives that are for strangers
  void open_region(uint64_t key) {
    if (regions_.contains(key)) return;
    const size_t size = key == kCounter ? 64 : kRegion;
    uint8_t *at = memory_.lend(size, 0);
    if (key == kReadable)
      for (size_t i = 0; i < size; ++i) at[i] = pattern(number_, i);
    regions_[key] = {at, size};
  }
  void close_region(uint64_t key) {
    const auto it = regions_.find(key);
    if (it == regions_.end()) return;
    check_region(key);
    memory_.take_back(it->second.data());
    regions_.erase(it);
  }
  // In the address vector or not.
  void name(uint16_t peer, bool known) {
    const uint32_t index = av_->find(address_of(peer));
    if (known == (index != kNoIndex)) return;
    fi_addr_t at = index;
    if (known) {
      FUZZ_CHECK(fi_av_insert(av_->c(), address_of(peer).c(), 1, &at, 0, nullptr) == 1,
                 "an address was not inserted");
    } else {
      fi_av_remove(av_->c(), &at, 1, 0);
    }
    settle();
  }
  // Reads completions as long as there are.
  void reap();
  bool reads = true, full = false, low = false;

  // ---- the network ----
  void arrive(uint16_t from, std::vector<uint8_t> bytes) {
    inbox_.emplace_back(from, std::move(bytes));
    wake();
  }
  void wake() {
    if (std::exchange(woken_, true)) return;
    // Who waits for the network looks less often, so that such an input does not take seconds.
    world_.after(full ? 100'000 : 2000, [this] { progress(); });
  }
  void progress();
  size_t left() const { return receiver_.left(); }
  // Nothing of what an application has started may be left, once all is over.
  void check_rest();

  // ---- Carrier ----
  Path *open(const sdk::SockAddr &peer, int &err) override {
    if (peer.port() == 4242) {  // somebody to whom there is no way
      err = FI_EINVAL;
      return nullptr;
    }
    ++paths_;
    return open_[peer.port()] = new Path{peer};
  }
  void close(Path &path) override {
    --paths_;
    if (path_to(path.to.port()) == &path) open_.erase(path.to.port());
    delete &path;
  }
  bool is_local(const sdk::SockAddr &) override { return true; }
  bool names_sources() const override { return true; }
  void name_sources(bool wanted) override { named_ = wanted; }
  int send(Path &to, const iovec *iov, size_t count, bool more) override {
    if (full) {
      refused_at_ = world_.now;
      return -FI_EAGAIN;
    }
    batch_.push_back({to.to.port(), {iov, iov + count}});
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
      FUZZ_CHECK(bytes.size() <= max_datagram(), "a datagram is too long");
      world_.carry(number_, to, std::move(bytes));
    }
    batch_.clear();
  }
  size_t max_datagram() const override { return 9000; }
  size_t receive_window() const override { return 1 << 18; }
  void release(Buffer &buffer) override {
    FUZZ_CHECK(buffers_.erase(&buffer) == 1, "a datagram was given back twice");
  }
  bool buffers_low() const override { return low; }
  ssize_t resolve(const RmaVector &v, uint64_t access, iovec *iov, size_t room) override {
    const auto it = regions_.find(v.key);
    if (it == regions_.end() || room == 0) return -FI_EACCES;
    if (v.key == kReadable && (access & FI_REMOTE_WRITE) != 0) return -FI_EACCES;
    const auto memory = it->second;
    if (v.address > memory.size() || v.length > memory.size() - v.address) return -FI_EACCES;
    if (room > 1 && v.length > 1) {
      iov[0] = {memory.data() + v.address, v.length / 2};
      iov[1] = {memory.data() + v.address + v.length / 2, v.length - v.length / 2};
      return 2;
    }
    iov[0] = {memory.data() + v.address, v.length};
    return 1;
  }
  uint64_t now_ns() override { return world_.now; }
  // At times the application is about to compute.
  bool progress_is_near() override { return world_.now / 100'000 % 3 != 0; }
  void set_deadline(uint64_t at) override {
    const uint64_t number = ++deadline_;
    if (at == 0) return;
    world_.after(at > world_.now ? at - world_.now : 0, [this, number] {
      if (number != deadline_) return;
      core_->on_deadline();
      settle();
    });
  }
  void random(std::span<uint8_t> out) override {
    for (uint8_t &byte : out) byte = uint8_t((chance_ = chance_ * 1664525 + 1013904223) >> 24);
  }
  // ---- Core::Upper ----
  void on_done(TxOp &op, int err) override;
  sdk::Receiver &receiver() override { return receiver_; }
  uint32_t index_of(const sdk::SockAddr &address) override { return av_->find(address); }
  void on_remote_write(uint32_t, uint64_t, bool, uint64_t,
                       std::span<const RmaVector> where) override {
    for (const RmaVector &v : where)
      FUZZ_CHECK(v.length == 0 || v.key == kWritable || v.key == kCounter,
                 "a write is reported where nobody may write");
  }
  void on_remote_read(uint64_t, std::span<const RmaVector>) override {}
  void on_remote_atomic(uint64_t, uint64_t, std::span<const RmaVector>) override {}
  void warn(const char *text) override {
    if (std::getenv("TRACE") != nullptr) std::fprintf(stderr, "node %d: %s\n", number_, text);
  }
  // ---- ReceiverSink ----
  void deliver(sdk::Unexpected &message, sdk::Receive &receive) override {
    core_->deliver(static_cast<Incoming &>(message), receive);
  }
  void discard(sdk::Unexpected &message) override {
    core_->discard(static_cast<Incoming &>(message));
  }
  // ---- AvUser ----
  void on_av_removed(uint32_t index) override { core_->forget(index); }
  void on_av_inserted(uint32_t index, const sdk::SockAddr &address) override {
    core_->introduce(index, address);
  }
  Path *path_to(uint16_t number) const {
    const auto it = open_.find(number);
    return it != open_.end() ? it->second : nullptr;
  }
  // A call of the core is over: nothing may be left in the batch.
  void settle() {
    FUZZ_CHECK(batch_.empty(), "a call ended without a flush");
    FUZZ_CHECK(core_->inbox().bytes() < settings_.unexpected_limit + (16 << 20),
               "peers made us keep too much");
  }

 private:
  struct Operation {
    Start start;
    uint8_t *memory = nullptr, *results = nullptr;
    uint64_t letter = UINT64_MAX;
  };
  struct Receive {
    Post post;
    uint8_t *memory = nullptr;
    size_t at = 0;  // of a multi-receive buffer: bytes given out
  };
  static void *context_of(uint64_t id) { return reinterpret_cast<void *>(id); }
  static uint64_t id_of(void *context) { return reinterpret_cast<uintptr_t>(context); }
  void check_region(uint64_t key) {
    if (key != kReadable) return;
    const auto memory = regions_.at(key);
    for (size_t i = 0; i < memory.size(); ++i)
      FUZZ_CHECK(memory[i] == pattern(number_, i), "memory that may only be read was written");
  }
  void received(const fi_cq_tagged_entry &e, fi_addr_t from);
  void end_receive(uint64_t id);

  World &world_;
  const uint16_t number_;
  const Settings settings_;
  Memory memory_;
  sdk::Receiver receiver_;
  sdk::Cq *cq_ = nullptr;
  std::unique_ptr<Core> core_;
  std::map<uint64_t, std::span<uint8_t>> regions_;  // by key
  sdk::Av *av_ = nullptr;
  std::map<uint64_t, Operation> operations_;
  std::map<uint64_t, Receive> receives_;
  std::map<uint64_t, uint64_t> looks_;  // flags, by context
  std::deque<uint64_t> claims_;         // contexts of messages that were claimed
  uint64_t ids_ = 0;
  std::deque<std::pair<uint16_t, std::vector<uint8_t>>> inbox_;
  std::map<uint16_t, Path *> open_;
  std::map<Buffer *, std::unique_ptr<Buffer>> buffers_;
  std::vector<std::pair<uint16_t, std::vector<iovec>>> batch_;
  uint64_t deadline_ = 0;
  uint32_t chance_ = 1;
  size_t paths_ = 0;
  int idle_ = 0;
  bool woken_ = false;
  bool named_ = true;        // the core wants to know sources
  uint64_t refused_at_ = 0;  // by the network
};

inline Node::~Node() {
  core_->shut_down(FI_ECANCELED);
  receiver_.visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
    receiver_.forget(m);
    core_->discard(static_cast<Incoming &>(m));
  });
  reap();
  FUZZ_CHECK(core_->inbox().in_use() == 0, "messages are left over");
  FUZZ_CHECK(core_->inbox().bytes() == 0, "bytes of messages are left over");
  FUZZ_CHECK(core_->in_flight() == 0, "operations are left over");
  FUZZ_CHECK(core_->notes() == 0, "notes about packets or answers are left over");
  FUZZ_CHECK(operations_.empty(), "operations have not ended");
  FUZZ_CHECK(buffers_.empty(), "datagrams are left over");
  FUZZ_CHECK(receives_.size() == receiver_.posted(), "receives are lost");
  core_.reset();
  FUZZ_CHECK(paths_ == 0, "paths are left over");
  for (auto &[id, receive] : receives_) memory_.take_back(receive.memory);
  while (!regions_.empty()) close_region(regions_.begin()->first);
  FUZZ_CHECK(memory_.lent() == 0, "memory is left over");
  av_->remove_user(*this);
  fi_close(av_->base());
  fi_close(cq_->base());
}

inline void Node::start(const Start &s) {
  if (memory_.blocks() > 400) return;
  TxOp *op = core_->take();
  if (op == nullptr) return;
  const uint64_t id = ++ids_;
  Operation made{.start = s, .memory = memory_.lend(s.length, uint8_t(id))};
  op->kind = s.kind;
  op->context = context_of(id);
  op->length = s.length;
  op->tagged = s.tagged;
  op->tag = s.tag;
  op->delivery = s.delivery;
  op->transmit = s.transmit;
  op->fence = s.fence;
  op->more = s.more;
  const size_t half = s.length / 3;
  op->iov[0] = {made.memory, half};
  op->iov[1] = {made.memory + half, s.length - half};
  op->count = 2;
  switch (s.kind) {
    case TxOp::Kind::kMessage:
      if (!World::honest(s.to)) break;
      made.letter = world_.letters.size();
      op->has_data = true;
      op->data = op->tag = made.letter;
      op->tagged = true;
      for (size_t i = 0; i < s.length; ++i) made.memory[i] = pattern(made.letter, i);
      break;
    case TxOp::Kind::kRead:
    case TxOp::Kind::kWrite:
      op->vectors[0] = {s.at, half, s.key};
      op->vectors[1] = {s.at + half, s.length - half, s.key};
      op->vector_count = 2;
      break;
    case TxOp::Kind::kAtomic:
      op->atomic = s.fetches ? sdk::AtomicKind::kFetch : sdk::AtomicKind::kWrite;
      op->datatype = FI_UINT64;
      op->op = FI_SUM;
      op->length = 8;
      std::memset(op->bytes, 1, 8);
      op->iov[0] = {op->bytes, 8};
      op->count = 1;
      op->vectors[0] = {s.at, 8, s.key};
      op->vector_count = 1;
      if (s.fetches) {
        made.results = memory_.lend(8, 0);
        op->results[0] = {made.results, 1};
        op->result_count = 1;
      }
      break;
  }
  if (s.inject && s.kind != TxOp::Kind::kRead && s.length <= 4096) core_->own_data(*op);
  if (made.letter != UINT64_MAX)
    world_.letters.push_back({.from = number_, .to = s.to, .length = s.length});
  // The end may come before start() returns.
  operations_.emplace(id, made);
  const sdk::SockAddr address = address_of(s.to);
  name(s.to, true);
  const int rc = core_->start(*op, av_->find(address), &address);
  settle();
  wake();
  idle_ = 0;
  if (rc == 0) return;
  FUZZ_CHECK(!World::honest(s.to), "an operation to an honest peer could not be started");
  core_->give(*op);
  operations_.erase(id);
  memory_.take_back(made.memory);
  if (made.results != nullptr) memory_.take_back(made.results);
}

inline void Node::on_done(TxOp &op, int err) {
  const auto it = operations_.find(id_of(op.context));
  FUZZ_CHECK(it != operations_.end(), "an operation ended that was not under way");
  const Operation &o = it->second;
  if (World::honest(o.start.to)) {
    // Whom the network took nothing from for long gives up.
    const bool excused = err == FI_ETIMEDOUT && world_.now - refused_at_ < 500'000'000;
    FUZZ_CHECK(err == 0 || err == FI_ECANCELED || excused || o.start.key == kWritable,
               "an operation between honest peers failed");
    if (excused && o.letter != UINT64_MAX) world_.letters[o.letter].failed = true;
    if (o.start.kind == TxOp::Kind::kRead && o.start.key == kReadable && err == 0)
      for (size_t i = 0; i < o.start.length; ++i)
        FUZZ_CHECK(o.memory[i] == pattern(o.start.to, o.start.at + i),
                   "a read brought other bytes");
    if (o.letter != UINT64_MAX && o.start.delivery && err == 0)
      FUZZ_CHECK(op.length == o.start.length, "a message has another length");
  }
  memory_.take_back(o.memory);
  if (o.results != nullptr) memory_.take_back(o.results);
  operations_.erase(it);
}

inline void Node::post(const Post &p) {
  if (memory_.blocks() > 400) return;
  if (p.from != 0) name(p.from, true);
  const fi_addr_t from = p.from == 0 ? FI_ADDR_UNSPEC : fi_addr_t(av_->find(address_of(p.from)));
  const uint64_t id = ++ids_;
  Receive made{.post = p, .memory = memory_.lend(p.length, 0x5c)};
  const size_t half = p.split ? p.length / 2 : p.length;
  const iovec iov[] = {{made.memory, half}, {made.memory + half, p.length - half}};
  receives_.emplace(id, made);
  const ssize_t rc = receiver_.post({.tagged = p.tagged,
                                     .iov = iov,
                                     .count = size_t(p.split ? 2 : 1),
                                     .src = from,
                                     .tag = p.tag,
                                     .ignore = p.ignore,
                                     .flags = p.multi ? uint64_t(FI_MULTI_RECV) : 0,
                                     .context = context_of(id)});
  if (rc != 0) end_receive(id);
  settle();
  wake();
  if (reads) reap();
}

inline void Node::look(uint64_t flags) {
  const uint64_t id = ++ids_;
  const ssize_t rc = receiver_.post({.flags = FI_PEEK | flags, .context = context_of(id)});
  if (rc == 0) looks_[id] = flags;
  settle();
  if (reads) reap();
}

inline void Node::claim(size_t length) {
  if (claims_.empty()) return;
  const uint64_t id = claims_.front();
  if (length == 0) {
    const ssize_t rc = receiver_.post({.flags = FI_CLAIM | FI_DISCARD, .context = context_of(id)});
    if (rc == -FI_EAGAIN) return;  // there is no room to say so
    FUZZ_CHECK(rc == 0, "a message that was claimed is not there");
    looks_[id] = FI_DISCARD;
  } else {
    Receive made{.post = {.length = length}, .memory = memory_.lend(length, 0x5c)};
    const iovec iov{made.memory, length};
    receives_.emplace(id, made);
    const ssize_t rc =
        receiver_.post({.iov = &iov, .count = 1, .flags = FI_CLAIM, .context = context_of(id)});
    if (rc != 0) return end_receive(id);
  }
  claims_.pop_front();
  settle();
  if (reads) reap();
}

inline void Node::cancel(size_t which) {
  std::vector<uint64_t> all;
  for (const auto &[id, r] : receives_)
    if (r.post.from == 0 || !World::honest(r.post.from)) all.push_back(id);
  if (all.empty()) return;
  receiver_.cancel(context_of(all[which % all.size()]));
  settle();
  if (reads) reap();
}

inline void Node::end_receive(uint64_t id) {
  const auto it = receives_.find(id);
  memory_.take_back(it->second.memory);
  receives_.erase(it);
}

inline void Node::received(const fi_cq_tagged_entry &e, fi_addr_t) {
  const uint64_t id = id_of(e.op_context);
  if (const auto look = looks_.find(id); look != looks_.end()) {
    if ((look->second & FI_CLAIM) != 0) claims_.push_back(id);
    looks_.erase(look);
    return;
  }
  const auto it = receives_.find(id);
  FUZZ_CHECK(it != receives_.end(), "a receive was reported that was not posted");
  Receive &r = it->second;
  FUZZ_CHECK(e.len <= r.post.length - r.at, "more was received than there is room");
  const uint8_t *at = r.memory + r.at;
  if (e.buf != nullptr && r.post.multi) at = static_cast<const uint8_t *>(e.buf);
  FUZZ_CHECK(e.len == 0 || (at >= r.memory && at + e.len <= r.memory + r.post.length),
             "a message lies outside of its buffer");
  if (World::honest(r.post.from) && r.post.from != 0) {
    FUZZ_CHECK(e.data < world_.letters.size(), "a message that nobody sent");
    Letter &letter = world_.letters[e.data];
    FUZZ_CHECK(++letter.arrived == 1, "a message came twice");
    FUZZ_CHECK(letter.from == r.post.from && letter.to == number_, "a message of somebody else");
    FUZZ_CHECK(e.len == std::min(letter.length, r.post.length), "a message of another length");
    for (size_t i = 0; i < e.len; ++i)
      FUZZ_CHECK(at[i] == pattern(e.data, i), "a message of other bytes");
  }
  if (!r.post.multi || (e.flags & FI_MULTI_RECV) != 0) end_receive(id);
}

inline void Node::reap() {
  fi_cq_tagged_entry e{};
  fi_addr_t from = 0;
  for (;;) {
    const ssize_t n = cq_->readfrom(&e, 1, &from);
    if (n == 1) {
      received(e, from);
      continue;
    }
    if (n != -FI_EAVAIL) return;
    fi_cq_err_entry err{};
    FUZZ_CHECK(cq_->readerr(&err, 0) == 1, "an error that is not there");
    const uint64_t id = id_of(err.op_context);
    if (looks_.erase(id) != 0) continue;
    const auto it = receives_.find(id);
    FUZZ_CHECK(it != receives_.end(), "a receive failed that was not posted");
    FUZZ_CHECK(!World::honest(it->second.post.from) || it->second.post.from == 0 ||
                   err.err == FI_ECANCELED || err.err == FI_ETRUNC,
               "a receive from an honest peer failed");
    if (!it->second.post.multi || (err.flags & FI_MULTI_RECV) != 0) end_receive(id);
  }
}

inline void Node::progress() {
  woken_ = false;
  core_->set_full(cq_->full());
  const bool came = !inbox_.empty();
  const bool named = named_;  // all of this was read at once
  while (!inbox_.empty()) {
    auto buffer = std::make_unique<Buffer>();
    const uint16_t from = inbox_.front().first;
    buffer->bytes = std::move(inbox_.front().second);
    inbox_.pop_front();
    Buffer *b = buffer.get();
    buffers_[b] = std::move(buffer);
    if (!core_->on_datagram(b->bytes, *b, named ? path_to(from) : nullptr)) buffers_.erase(b);
    settle();
  }
  if (!came) core_->on_idle();
  core_->poll();
  settle();
  if (reads) reap();
  idle_ = came || cq_->full() || full ? 0 : idle_ + 1;
  if (idle_ < 5) wake();
}

inline void Node::check_rest() {
  FUZZ_CHECK(operations_.empty(), "an operation never ends");
}

inline World::~World() {
  nodes.clear();
}

inline Node &World::add(uint16_t number, const Settings &settings) {
  return *(nodes[number] = std::make_unique<Node>(*this, number, settings));
}

// Stock takes no RTS for a new beginning: it answers, and goes on; nor does it ask again whom it
// talks with, as the endpoint does that stands for it here. True: that was it.
inline bool World::goes_on(uint16_t from, uint16_t to, std::span<const uint8_t> bytes) {
  const stock::Parsed parsed = stock::parse(bytes);
  if (parsed.reject != stock::Reject::kNone) return false;
  const stock::Packet &p = parsed.packet;
  uint32_t &own = from == kStock ? stock_number_ : number_there_;
  const uint32_t others = from == kStock ? number_there_ : stock_number_;
  if (p.type == stock::Type::kRts || p.type == stock::Type::kCts) own = uint32_t(p.index);
  if (p.type != stock::Type::kRts || others == 0) return false;
  std::vector<uint8_t> answer(stock::kMaxHeader);
  answer.resize(stock::encode(
      {.type = stock::Type::kCts, .peer = uint32_t(p.index), .index = others, .rts_index = p.index},
      std::span<uint8_t, stock::kMaxHeader>(answer)));
  carry(to, from, std::move(answer));
  return true;
}

inline void World::carry(uint16_t from, uint16_t to, std::vector<uint8_t> bytes) {
  if (std::getenv("TRACE") != nullptr)
    std::fprintf(stderr, "%.3f ms: %d to %d: %zu bytes, %02x %02x %02x %02x\n", double(now) / 1e6,
                 from, to, bytes.size(), bytes[0], bytes.size() > 1 ? bytes[1] : 0,
                 bytes.size() > 2 ? bytes[2] : 0, bytes.size() > 3 ? bytes[3] : 0);
  // Nobody who hears it takes it for the word of a weft endpoint.
  if ((from == kStock || to == kStock) && bytes.size() >= 16 && bytes[0] == stock::kVersion &&
      bytes[1] == uint8_t(stock::Type::kRts))
    std::fill_n(bytes.begin() + 8, 8, uint8_t{0});
  if (const auto stranger = strangers.find(to); stranger != strangers.end())
    return stranger->second->hear(std::move(bytes));
  if ((from == kStock || to == kStock) && goes_on(from, to, bytes)) return;
  if (honest(from) && honest(to) && losses != 0) {
    --losses;
    return;
  }
  after(honest(from) ? 10'000 : 1000, [this, from, to, bytes = std::move(bytes)]() mutable {
    if (Node *n = node(to)) n->arrive(from, std::move(bytes));
  });
}

}  // namespace fuzz
}  // namespace weft::rxd

#endif
