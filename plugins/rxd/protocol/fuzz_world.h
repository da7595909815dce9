// SPDX-License-Identifier: BSD-2-Clause
// Endpoints of rxd for a stateful fuzz target: a core, a carrier whose memory lies between red
// zones, and an application that checks every byte and every completion.
//
// Example (statements):
//    World world;
//    Node &a = world.add(1, {}), &b = world.add(2, {});
//    b.post({.from = 1, .length = 100});
//    a.start({.to = 2, .length = 100});
//    world.run_for(1'000'000);  // ns: datagrams travel, deadlines pass
//    a.check_rest();            // aborts if an operation has not ended
//
// A `Stranger` has no core: it gets the datagrams to its address, and may send anything. The memory
// of a sent datagram is read at the flush, and received datagrams are freed when they are released.
// Not for losses and restarts (simulation.h).
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_FUZZ_WORLD_H
#define WEFT_PLUGINS_RXD_PROTOCOL_FUZZ_WORLD_H

#include <arpa/inet.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/ip/sock_addr.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "plugin-api/sdk/testing/test_buffered.h"
#include "plugin-api/sdk/testing/test_time.h"
#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/protocol/test_carrier.h"
#include "plugins/rxd/wire/stock.h"
#include "tests/fuzz/notices.h"
#include "tests/fuzz/tally.h"
#include "tests/fuzz/world.h"

namespace weft::rxd::fuzz {

using weft::fuzz::Memory;

inline sdk::Address address_of(uint16_t n) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(n);
  in.sin_addr.s_addr = htonl(0x0a000001);
  return sdk::SockAddr(in);
}

inline uint8_t pattern(uint64_t id, size_t i) {
  return uint8_t(id * 131 + i * 7 + (i >> 8) * 3 + 1);
}

weft::fuzz::Tally &thief_tally();
weft::fuzz::Tally &relay_tally();

class Node;

class Stranger {
 public:
  virtual ~Stranger() = default;
  virtual void hear(uint16_t from, std::vector<uint8_t> bytes) = 0;
};

// The remote CQ data of messages of a thief, and of those to a relay. The lowest bits of the latter
// are the number of the honest endpoint that sent it.
inline constexpr uint64_t kStolen = uint64_t{0x57017e4d} << 32;
inline constexpr uint64_t kRelayed = uint64_t{0x4e1a7ed1} << 32;
inline constexpr uint64_t kActorsTag = uint64_t{1} << 40;  // no letter has it

// What is true of the target and the honest endpoint that may die, in the presence of actors
// (fuzz_actors.h). What the one starts toward the other succeeds if both live on and have met.
struct Promise {
  unsigned life = 0;
  bool given = true;
};
struct Pair {
  bool acted = false, keyed = false;
  bool apart = false;  // until a message of the present two arrives
  unsigned life = 0;   // counts what parted them
  // Messages of the thief: all, and those that are older than the present connection.
  uint32_t stolen = 0, old_stolen = 0;

  Promise now() const { return {life, !apart}; }
  bool keeps(const Promise &p) const { return p.given && p.life == life; }
  void part() {
    apart = true;
    ++life;
  }
  void meet() {
    if (std::exchange(apart, false)) old_stolen = stolen;
  }
};

// A message that an honest endpoint sent to another.
struct Letter {
  uint16_t from = 0, to = 0;
  size_t length = 0;
  int arrived = 0, told = 0;
  bool failed = false;  // it may not have been sent
  Promise promise;
};

// Whether the application has FI_BUFFERED_RECV, and its options.
struct Buffered {
  bool on = false;
  size_t limit = 0, min = 0;
};

class World : public sdk::TestTime {
 public:
  static constexpr uint16_t kMortal = 2;  // may die and start again
  static constexpr uint16_t kStock = 3;   // plays a stock endpoint: its RTS have no mark
  static constexpr uint16_t kRelay = 20;

  World() : TestTime(1'000'000'000) {}
  ~World();
  Node &add(uint16_t number, const Settings &settings, const Buffered &buffered = {});
  void add(uint16_t number, Stranger &stranger) { strangers[number] = &stranger; }
  Node *node(uint16_t number) {
    const auto it = nodes.find(number);
    return it != nodes.end() ? it->second.get() : nullptr;
  }
  // `from` is the true source, whatever the datagram says.
  void carry(uint16_t from, uint16_t to, std::vector<uint8_t> bytes);
  static bool honest(uint16_t number) { return number <= kStock; }
  // Whether an operation between these two has to succeed, if it was promised.
  bool promises(uint16_t a, uint16_t b, const Promise &p) const {
    return (a != kMortal && b != kMortal) || pair.keeps(p);
  }
  void kill(uint16_t number) { nodes.erase(number); }

  Pair pair;
  uint32_t chance = 1;  // the random numbers of a new node begin with it
  unsigned losses = 0;  // so many of the next datagrams between honest endpoints are lost
  std::vector<Letter> letters;
  std::map<uint16_t, std::unique_ptr<Node>> nodes;
  std::map<uint16_t, Stranger *> strangers;
  weft::fuzz::Domain domain;

 private:
  bool goes_on(uint16_t from, uint16_t to, std::span<const uint8_t> bytes);

  // The index that kStock sent to its peer, and the index that the peer sent to kStock; 0: none
  // yet.
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

  Node(World &world, uint16_t number, const Settings &settings, const Buffered &buffered)
      : world_(world),
        number_(number),
        settings_(settings),
        buffered_(buffered),
        receiver_(*this, {.size = 64, .directed = true, .source = true, .buffered = buffered.on}) {
    if (buffered.on)
      FUZZ_CHECK(sdk::set_buffered(receiver_, buffered.limit, buffered.min) == 0, "an option");
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
    uint64_t mark = 0;  // remote CQ data of a message that is no letter; 0: none
  };
  void start(const Start &s);
  struct Post {
    uint16_t from = 0;  // 0: any sender
    size_t length = 0;
    uint64_t tag = 0, ignore = 0;
    bool tagged = true, multi = false, split = false;
  };
  void post(const Post &p);
  // FI_PEEK, with FI_CLAIM or FI_DISCARD, at untagged messages, which only strangers send.
  void look(uint64_t flags);
  void claim(size_t length);  // receives a claimed message, or with 0 discards it
  void cancel(size_t which);  // cancels a receive that is for strangers
  // Under FI_BUFFERED_RECV: claims or discards a message that the application was told of. False:
  // there is none, or it has to wait.
  bool settle_told(size_t which, size_t length, bool discard);
  size_t told() const { return notices_.size(); }
  bool is_buffered() const { return buffered_.on; }
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
  // Inserts the peer into the address vector, or removes it.
  void name(uint16_t peer, bool known) {
    const uint32_t index = av_->find(address_of(peer));
    if (known == (index != kNoIndex)) return;
    fi_addr_t at = index;
    if (known) {
      FUZZ_CHECK(fi_av_insert(av_->c(), address_of(peer).data(), 1, &at, 0, nullptr) == 1,
                 "an address was not inserted");
    } else {
      fi_av_remove(av_->c(), &at, 1, 0);
      ++removed_;  // such a peer was no stranger when it connected
    }
    settle();
  }
  // Reads all completions.
  void reap();
  bool reads = true, full = false, low = false;
  size_t most_blocks = 400;  // of memory, which is not used again
  bool is_thief = false;     // sends no letters, and none is for it

  // ---- the network ----
  void arrive(uint16_t from, std::vector<uint8_t> bytes) {
    inbox_.emplace_back(from, std::move(bytes));
    wake();
  }
  void wake() {
    if (std::exchange(woken_, true)) return;
    // While the network takes nothing, poll less often, so that such an input does not take
    // seconds.
    world_.after(full ? 100'000 : 2000, [this, alive = std::weak_ptr<int>(alive_)] {
      if (!alive.expired()) progress();
    });
  }
  void progress();
  size_t left() const { return receiver_.left(); }
  // At the end no operation of the application may be outstanding.
  void check_rest();

  // ---- Carrier ----
  Path *open(const sdk::Address &peer, int &err) override {
    if (peer.port() == 4242) {  // an address without a route
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
  bool is_local(const sdk::Address &) override { return true; }
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
  // The application computes at some times.
  bool progress_is_near() override { return world_.now / 100'000 % 3 != 0; }
  void set_deadline(uint64_t at) override {
    const uint64_t number = ++deadline_;
    if (at == 0) return;
    world_.after(at > world_.now ? at - world_.now : 0,
                 [this, number, alive = std::weak_ptr<int>(alive_)] {
                   if (alive.expired() || number != deadline_) return;
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
  uint32_t index_of(const sdk::Address &address) override { return av_->find(address); }
  uint32_t index_of_context(const sdk::Address &address, unsigned place) override {
    return av_->find_context(address, place);
  }
  void on_remote_write(uint32_t, uint64_t, bool, uint64_t,
                       std::span<const RmaVector> where) override {
    for (const RmaVector &v : where)
      FUZZ_CHECK(v.length == 0 || v.key == kWritable || v.key == kCounter,
                 "a write is reported in read-only memory");
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
  int read_first(sdk::Unexpected &message, void *to, size_t n) override {
    return core_->read_first(static_cast<Incoming &>(message), to, n);
  }
  // ---- AvUser ----
  void on_av_removed(uint32_t index) override { core_->forget(index); }
  void on_av_inserted(uint32_t index, const sdk::Address &address) override {
    core_->introduce(index, address);
  }
  Path *path_to(uint16_t number) const {
    const auto it = open_.find(number);
    return it != open_.end() ? it->second : nullptr;
  }
  // After each call into the core the batch must be empty.
  void settle() {
    FUZZ_CHECK(batch_.empty(), "a call ended without a flush");
    FUZZ_CHECK(core_->inbox().bytes() < settings_.unexpected_limit + (16 << 20),
               "peers made us keep too much");
    FUZZ_CHECK(core_->unnamed_peers() <= settings_.max_unnamed_peers + removed_,
               "strangers have more places than their share");
  }

 private:
  struct Operation {
    Start start;
    uint8_t *memory = nullptr, *results = nullptr;
    uint64_t letter = UINT64_MAX;
    Promise promise;
  };
  struct Receive {
    Post post;
    uint8_t *memory = nullptr;
    size_t at = 0;                 // bytes used of a multi-receive buffer
    uint64_t letter = UINT64_MAX;  // that it claims
  };
  static void *context_of(uint64_t id) { return reinterpret_cast<void *>(id); }
  static uint64_t id_of(void *context) { return reinterpret_cast<uintptr_t>(context); }
  void check_region(uint64_t key) {
    if (key != kReadable) return;
    const auto memory = regions_.at(key);
    for (size_t i = 0; i < memory.size(); ++i)
      FUZZ_CHECK(memory[i] == pattern(number_, i), "memory that may only be read was written");
  }
  bool is_promised(const Operation &o) const {
    return !is_thief && World::honest(o.start.to) &&
           world_.promises(number_, o.start.to, o.promise);
  }
  // The number of a peer by its index; 0: it has none.
  uint16_t number_of(fi_addr_t from) const {
    const auto address = av_->address(uint32_t(from));
    return from < UINT32_MAX && address ? address->port() : uint16_t{0};
  }
  // The honest endpoint that a message is from, by its source; 0: it is another's.
  uint16_t sender_of(uint64_t flags, uint64_t data, fi_addr_t from) const;
  // The letter that has come from `from`. Null: it was not promised.
  Letter *letter_of(uint64_t data, uint16_t from);
  void received(const fi_cq_tagged_entry &e, fi_addr_t from);
  void noticed(const fi_cq_tagged_entry &e, fi_addr_t from);
  void arrived(const Receive &r, uint16_t from, uint64_t data, const uint8_t *at, size_t n);
  void end_receive(uint64_t id);

  World &world_;
  const uint16_t number_;
  const Settings settings_;
  const Buffered buffered_;
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
  weft::fuzz::Notices notices_;
  uint64_t ids_ = 0;
  std::deque<std::pair<uint16_t, std::vector<uint8_t>>> inbox_;
  std::map<uint16_t, Path *> open_;
  std::map<Buffer *, std::unique_ptr<Buffer>> buffers_;
  std::vector<std::pair<uint16_t, std::vector<iovec>>> batch_;
  uint64_t deadline_ = 0;
  uint32_t chance_ = world_.chance;
  size_t paths_ = 0, removed_ = 0;
  int idle_ = 0;
  bool woken_ = false;
  bool named_ = true;        // the core wants to know sources
  uint64_t refused_at_ = 0;  // when the network last took no datagram
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace weft::rxd::fuzz

#endif
