// SPDX-License-Identifier: BSD-2-Clause
// Node: one simulated peer of core_test. It is the application above a Core (test_node.cc) and the
// carrier beneath it (test_carrier.cc).
//
// Example (statements):
//    World world(/*seed=*/1);
//    std::vector<Sent> sent;  // by all nodes
//    Node a(world, 0, /*process=*/100, Settings{}, sent, /*stock=*/false);
//    Node b(world, 1, /*process=*/101, Settings{}, sent, /*stock=*/false);
//    b.post(64, /*tagged=*/true);
//    a.send(/*to=*/1, 64, /*tagged=*/true);
//    while (world.step()) {
//      for (Node *node : {&a, &b}) {
//        node->core().poll();
//        node->reap();
//      }
//    }
//    EXPECT_EQ(sent[0].arrived, 1);
//
// Not for scenarios with several peers: test_play.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_TEST_NODE_H
#define WEFT_PLUGINS_RXM_PROTOCOL_TEST_NODE_H

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "plugin-api/sdk/testing/test_instance.h"
#include "plugins/rxm/protocol/test_world.h"

namespace weft::rxm {

// One process of a peer. A restarted peer is a new Node.
class Node final : public Carrier, public Core::Upper, public sdk::ReceiverSink {
 public:
  Node(World &world, size_t number, uint32_t process, const Settings &base, std::vector<Sent> &sent,
       bool stock);
  ~Node();

  // ---- the application ----
  enum Kind : unsigned {
    kPlain,
    kInjected,
    kFenced,
    kThreeVectors,
    kUntilDelivered,
    kUntilMatched,
    kKinds
  };
  void send(size_t to, size_t length, bool tagged, unsigned kind = kPlain);
  void add(size_t to, uint64_t *result, uint64_t key);
  // An atomic that stock peers do not execute; it must not reach them.
  void add_wide(size_t to, uint64_t key);
  // `only`: this tagged message.
  void post(size_t length, bool tagged, std::optional<uint64_t> only = {});
  // The address vector.
  void forget_everybody() { all_known_ = false; }
  bool knows(size_t n) const { return all_known_ && !unknown_.contains(n); }
  void forget(size_t n) {
    if (unknown_.insert(n).second) core_->forget(uint32_t(n));
  }
  void introduce(size_t n) {
    if (unknown_.erase(n) != 0) core_->introduce(uint32_t(n), world_.address_of(n));
  }
  size_t saved() const { return receiver_.unexpected(); }
  // Sends raw bytes to the peer of the first open link. `data`: of a bare message.
  void say(const std::vector<uint8_t> &bytes, std::optional<uint32_t> data = {});
  void discard_saved();
  size_t memory_of_saved();  // allocated entries of RxMessage::parts
  // Every saved message has the source of the connection that it is counted on.
  void expect_named();
  // A connection request that claims to be from `port`. The requester sends nothing else.
  void knock(uint16_t port, uint32_t process);
  // Reads completions, and notes which message arrived in which receive.
  void reap();

  Core &core() { return *core_; }
  uint64_t violations = 0;                            // of its peers, that the test expects
  size_t broken = 0;                                  // receives that failed after they had matched
  std::vector<std::pair<size_t, uint64_t>> received;  // receive, message
  uint64_t counter = 0;                               // target of atomics
  alignas(16) uint8_t wide[16] = {};                  // target of wide atomics
  static constexpr uint64_t kCounterKey = 7, kWideKey = 8;

  // ---- Carrier ----
  Link *connect(Connection &owner, const sdk::Address &peer, std::span<const uint8_t> data,
                int &err) override;
  Link *accept(Connection &owner, Request &request, std::span<const uint8_t> data,
               int &err) override;
  void reject(Request &request, std::span<const uint8_t> data) override;
  void close(Link &link, bool idle) override;
  ssize_t send(Link &link, const iovec *iov, void *const *, size_t count, uint32_t data,
               uint64_t flags, Token *token) override;
  ssize_t read(Link &link, const iovec *iov, void *const *, size_t count, const RmaVector *from,
               size_t n, uint64_t, Token *token) override;
  ssize_t write(Link &link, const iovec *iov, void *const *, size_t count,
                const RmaVector *to_vector, size_t n, uint64_t, uint64_t, Token *token) override;
  void release(Buffer &buffer) override;
  bool buffers_low() const override { return core_->settings().credits || free_.size() < 6; }
  size_t buffers_left() const override { return core_->settings().credits ? kOwn : free_.size(); }
  bool hold(Link &link, bool held) override;
  Registration *expose(Link &link, const iovec &iov, uint64_t access, RmaVector &vector,
                       int &err) override;
  void conceal(Registration &registration) override {
    EXPECT_EQ(regions_.erase(reinterpret_cast<uint64_t>(&registration)), 1u);
  }
  ssize_t resolve(const RmaVector &vector, uint64_t, iovec *iov, size_t) override;
  uint64_t now_ns() override { return world_.now * 1000; }
  void set_deadline(uint64_t at) override;

  // ---- Core::Upper ----
  void on_done(TxOp &op, int err) override;
  sdk::Receiver &receiver() override { return receiver_; }
  uint32_t index_of(const sdk::Address &address) override;
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
  // A stock peer never completes a rendezvous of 0 bytes, and cannot survive an unknown atomic.
  static void expect_understood(const std::vector<uint8_t> &bytes);
  // Stock peers reuse the id of a segmented message after the last segment.
  static void reuse_ids(Link &link, std::vector<uint8_t> &bytes);

  struct Region {
    iovec iov;
    uint64_t access;
    const Link *link;  // only its peer may access the region
  };

  void go(TxOp &op, size_t to, uint64_t id);
  // Checks a message that has arrived. Returns which one it is.
  uint64_t note(const fi_cq_tagged_entry &entry);
  // The private data for the peer. That of a stock peer has a plain count of receives at `at`, and
  // no mark of weft.
  std::vector<uint8_t> said(std::span<const uint8_t> data, size_t at) const;
  Link *make(Connection &owner);
  void arrive(Link &link, const sdk::Address &peer, const std::vector<uint8_t> &bytes);
  ssize_t admit(Link &link);
  // `mark`: what the carrier is to tell of it.
  void note_packet(Link &link, std::vector<uint8_t> &bytes, uint64_t mark);
  static void give_back(Link &link, Token &token);
  // Packets of a link arrive in the order in which they were sent.
  void deliver_to(Link &to, std::function<bool()> what);
  static void pump(Link &link);
  void tell_closed(Link &link, bool reset);
  bool take(Link &link, const std::vector<uint8_t> &bytes, std::optional<uint32_t> data);
  bool peek(const Link &by, const RmaVector &v, uint64_t access, std::vector<uint8_t> &out);
  bool poke(const Link &by, const RmaVector &v, const std::vector<uint8_t> &bytes);

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

}  // namespace weft::rxm

#endif
