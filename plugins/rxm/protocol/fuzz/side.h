// SPDX-License-Identifier: BSD-2-Clause
// Side: an endpoint of core_fuzz.cc, with its application (side.cc) and its carrier (carrier.cc).
// It records the owner of every buffer, and how often each operation and receive ended.
//
// Example (statements):
//    World world;
//    Side endpoint(world, kEndpoint, Settings{.process = 1}, {});
//    Side honest(world, kHonest, Settings{.process = 2}, {});
//    world.endpoint = honest.peer = &endpoint;
//    world.honest = endpoint.peer = &honest;
//    endpoint.insert(kHonest, /*who=*/0);
//    honest.insert(kEndpoint, /*who=*/0);
//    endpoint.send(/*to=*/0, 64, /*how=*/0);
//    while (world.step()) {
//      for (Side *side : {&endpoint, &honest}) {
//        side->core().poll();
//        side->reap();  // checks each completion
//      }
//    }
//
// Not for the attacker: attacker.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_FUZZ_SIDE_H
#define WEFT_PLUGINS_RXM_PROTOCOL_FUZZ_SIDE_H

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/addresses/av.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "plugins/rxm/protocol/fuzz/world.h"
#include "plugins/rxm/protocol/test_atomic.h"
#include "tests/fuzz/notices.h"
#include "tests/fuzz/world.h"

namespace weft::rxm {

class Side final : public Carrier,
                   public Core::Upper,
                   public sdk::ReceiverSink,
                   public sdk::AvUser {
 public:
  // FI_BUFFERED_RECV: messages come into memory of the receiver, which tells of them.
  struct Buffered {
    bool on = false;
    size_t limit = 0, min = 0;
  };
  Side(World &world, uint16_t port, const Settings &settings, const Buffered &buffered);
  ~Side();

  // ---- the application ----
  struct Sent {
    fi_addr_t to;
    uint8_t *bytes = nullptr;    // null: the application has its memory back
    uint64_t *result = nullptr;  // of a fetching atomic
    size_t length = 0;
    enum class Kind { kMessage, kRead, kWrite, kAtomic } kind = Kind::kMessage;
    bool tagged = false, has_data = false;
    uint64_t id = 0;
    int ended = 0, err = 0, told = 0, arrived = 0;
  };
  struct Posted {
    uint8_t *bytes = nullptr;
    size_t length = 0, at = 0;
    fi_addr_t source = FI_ADDR_UNSPEC;
    uint8_t who = 0;    // name of `source` when the receive was posted
    size_t number = 0;  // position in `received`
    bool multi = false, look = false, claims = false, claimed = false;
    bool whole = false;  // claims a message that was whole, of which `source` and `who` were told
    int ended = 0;
  };

  void insert(uint16_t port, uint8_t who);
  void remove(fi_addr_t index);
  size_t names() const { return names_.size(); }
  uint8_t name(fi_addr_t index) const { return index < names_.size() ? names_[index] : kNobody; }

  // `how`: 1 tagged, 2 injected, 4 fenced, 8 in two vectors, 16 with FI_DELIVERY_COMPLETE,
  // 32 with FI_MATCH_COMPLETE.
  void send(fi_addr_t to, size_t length, uint8_t how);
  void access(fi_addr_t to, bool write, size_t length);
  void add(fi_addr_t to);
  void post(fi_addr_t source, bool tagged, size_t length, bool multi, bool pieces);
  // FI_PEEK, with or without FI_CLAIM or FI_DISCARD, from one source other than the honest peer.
  void look(fi_addr_t source, bool tagged, uint64_t flags);
  void take_claimed(bool tagged, size_t length, bool drop);
  // Claims or discards a message that the application was told of. False: there is none, or it has
  // to wait.
  bool settle_told(size_t which, size_t length, bool drop, bool pieces);
  // Claims or discards what is not a message.
  void settle_nothing(uint8_t how);
  size_t told() const { return notices_.size(); }
  bool is_buffered() const { return buffered_.on; }
  void cancel(size_t which);
  // Reads completions and checks them.
  void reap();
  void end_receives();
  void expect_ended();
  // Checks operations between the endpoint and the honest peer.
  void expect_arrived(fi_addr_t to);
  bool all_arrived(fi_addr_t to) const;
  void pass_time(uint64_t ns);
  uint64_t deadline() const { return deadline_; }
  bool idle() const {
    return core_->in_flight() == 0 && receiver_.unexpected() == 0 && notices_.empty();
  }
  size_t unexpected() const { return receiver_.unexpected(); }
  void expect_named();
  bool full() const { return memory.blocks() > kManyBlocks; }
  Core &core() { return *core_; }

  static constexpr uint8_t kNobody = 0xff;
  static constexpr size_t kManyBlocks = 600;
  fuzz::Memory memory;
  std::deque<Sent> sent;
  std::vector<std::unique_ptr<Posted>> received;
  uint8_t *region = nullptr;
  uint64_t counter = 0;
  Side *peer = nullptr;  // the other one of endpoint and honest peer; null: dead
  size_t removed = 0;
  bool restarted = false;  // the honest peer was restarted
  // The first of the operations that must arrive: those that start after a message of `peer` that
  // must arrive.
  size_t promised = 0;
  uint64_t base = 0;  // numbers of messages start above it

  // A peer reads or writes memory that is registered here. False: not allowed.
  bool peek(const Link &by, const RmaVector &v, std::vector<uint8_t> &out);
  bool poke(const Link &by, const RmaVector &v, const uint8_t *bytes);
  std::vector<uint64_t> keys() const;

  // ---- events of the network ----
  void arrive(Link &from, const sdk::Address &source, const std::vector<uint8_t> &bytes);
  // Handles an arriving item. False: it has to wait.
  bool take(Link &link, Item &item);
  void come_back(const World::Return &r);

  // ---- Carrier ----
  Link *connect(Connection &owner, const sdk::Address &to, std::span<const uint8_t> data,
                int &err) override;
  Link *accept(Connection &owner, Request &request, std::span<const uint8_t> data,
               int &err) override;
  void reject(Request &request, std::span<const uint8_t> data) override;
  void close(Link &link, bool idle) override;
  ssize_t send(Link &link, const iovec *iov, void *const *, size_t count, uint32_t data,
               uint64_t flags, Token *token) override;
  ssize_t read(Link &link, const iovec *iov, void *const *, size_t count, const RmaVector *from,
               size_t n, uint64_t, Token *token) override;
  ssize_t write(Link &link, const iovec *iov, void *const *, size_t count, const RmaVector *to,
                size_t n, uint64_t, uint64_t, Token *token) override;
  void release(Buffer &buffer) override;
  bool buffers_low() const override { return !shares_ || buffers_ > kSharedBuffers * 3 / 4; }
  size_t buffers_left() const override { return shares_ ? kSharedBuffers - buffers_ : kOwn; }
  bool hold(Link &link, bool held) override;
  Registration *expose(Link &link, const iovec &iov, uint64_t access, RmaVector &vector,
                       int &) override;
  void conceal(Registration &registration) override;
  ssize_t resolve(const RmaVector &v, uint64_t, iovec *iov, size_t room) override;
  uint64_t now_ns() override { return world_.now; }
  void set_deadline(uint64_t at) override { deadline_ = at; }

  // ---- Core::Upper ----
  void on_done(TxOp &op, int err) override;
  sdk::Receiver &receiver() override { return receiver_; }
  uint32_t index_of(const sdk::Address &address) override { return av_->find(address); }
  uint32_t index_of_context(const sdk::Address &address, unsigned place) override {
    return av_->find_context(address, place);
  }
  void warn(const char *text) override { FUZZ_CHECK(port_ != kHonest || world_.acted, text); }
  void on_remote_atomic(uint64_t, std::span<const RmaVector>) override {}

  // ---- sdk::ReceiverSink, sdk::AvUser ----
  void deliver(sdk::Unexpected &m, sdk::Receive &r) override {
    core_->deliver(static_cast<RxMessage &>(m), r);
  }
  void discard(sdk::Unexpected &m) override { core_->discard(static_cast<RxMessage &>(m)); }
  int read_first(sdk::Unexpected &m, void *to, size_t n) override {
    return core_->read_first(static_cast<RxMessage &>(m), to, n);
  }
  void on_av_removed(uint32_t index) override { core_->forget(index); }
  void on_av_inserted(uint32_t index, const sdk::Address &address) override {
    core_->introduce(index, address);
  }

 private:
  struct Region {
    iovec iov;
    uint64_t access;
    Link *link;  // only its peer may access the region
  };

  uint8_t *reach(const Link &by, const RmaVector &v, uint64_t access);
  void give_back(uint8_t *bytes);
  void take_back(Posted &p) {
    if (p.bytes != nullptr) give_back(std::exchange(p.bytes, nullptr));
  }
  TxOp *begin(fi_addr_t to) {
    return memory.blocks() > kManyBlocks || name(to) == kNobody ? nullptr : core_->take();
  }
  void go(TxOp &op, const Sent &s, fi_addr_t to);
  ssize_t admit(Link &link);
  // The application's memory, or that of a notice, which is the receiver's.
  bool may_be_read_into(const iovec &v) const {
    return memory.holds(v.iov_base, v.iov_len) || (buffered_.on && !memory.owns(v.iov_base));
  }
  static std::vector<uint8_t> gather(const iovec *iov, size_t count);
  void note_end(Link &link);
  void end(Posted &p);
  void succeeded(const fi_cq_tagged_entry &e, fi_addr_t source);
  void failed(const fi_cq_err_entry &e);
  Posted &record(std::unique_ptr<Posted> p) {
    contexts_.insert(p.get());
    return *received.emplace_back(std::move(p));
  }
  void noticed(const fi_cq_tagged_entry &e, fi_addr_t source);
  // Looks at the mark of a message. True: it is the thief's, or came by way of the relay.
  bool is_actors(fi_addr_t source, uint64_t flags, uint64_t data);
  // A message of the present honest peer has come: it is connected.
  void meet() {
    if (world_.late) return;
    if (promised == SIZE_MAX) old_stolen_ = world_.stolen;
    promised = std::min(promised, sent.size());
  }
  Sent *honest_message(fi_addr_t source, uint64_t flags, uint64_t data, uint64_t tag);
  void check(Posted &p, const fi_cq_tagged_entry &e, fi_addr_t source, size_t n, bool cut = false);
  void check_mark(const uint8_t *at, size_t n, uint8_t who) const;

  World &world_;
  const uint16_t port_;
  const Buffered buffered_;
  fuzz::Domain domain_;
  sdk::Cq *cq_ = nullptr;
  sdk::Av *av_ = nullptr;
  sdk::Receiver receiver_;
  std::optional<Core> core_;
  bool shares_ = true, writes_ = false;
  std::vector<uint8_t> names_;  // by fi_addr_t: 0 honest peer, 1.. attacker
  std::map<uint64_t, Region> regions_;
  uint64_t last_key_ = 100, deadline_ = 0;
  size_t buffers_ = 0;
  uint64_t replaced_ = 0;
  uint32_t old_stolen_ = 0;  // messages of the thief before that
  fuzz::Notices notices_;
  size_t notes_ = 0;
  std::set<const void *> contexts_;  // of receives
  // Untagged and tagged: receive and number of each message of the honest peer.
  std::vector<std::pair<size_t, uint64_t>> order_[2];
};

}  // namespace weft::rxm

#endif
