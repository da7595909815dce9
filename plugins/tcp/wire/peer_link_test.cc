// SPDX-License-Identifier: BSD-2-Clause
// Every cell of the decision table, then whole simulated networks: endpoints that connect at once,
// reject, restart at the same address and lose connections in every state.
#include "peer_link.h"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "testing.h"

namespace weft::tcp {
namespace {

using namespace testing;
using State = PeerLink::State;
using Next = PeerLink::Next;
using Refusal = PeerLink::Refusal;
using Order = std::strong_ordering;

constexpr Order kOrders[] = {Order::less, Order::equal, Order::greater};

PeerLink in_state(State state, uint32_t process = 7) {
  PeerLink link;
  if (state == State::kIdle) return link;
  EXPECT_EQ(link.want(0, 0), Next::kConnect);
  if (state == State::kUp) link.on_accepted(process);
  if (state == State::kBackoff) {
    EXPECT_EQ(link.on_refused(0, Refusal::kRejected, true), Next::kWait);
  }
  EXPECT_EQ(link.state(), state);
  return link;
}

TEST(PeerLink, IdleAcceptsWhoeverComes) {
  for (State state : {State::kIdle, State::kBackoff}) {
    for (Order order : kOrders) {
      PeerLink link = in_state(state);
      const auto d = link.on_request(order, 9);
      EXPECT_TRUE(d.accept);
      EXPECT_FALSE(d.drop_attempt || d.close_stream || d.second);
      EXPECT_EQ(link.state(), State::kUp);
      EXPECT_EQ(link.process(), 9u);
    }
  }
}

TEST(PeerLink, CrossingRequestsAreDecidedByAddress) {
  {
    PeerLink link = in_state(State::kAttempt);
    const auto d = link.on_request(Order::less, 9);
    EXPECT_FALSE(d.accept || d.drop_attempt || d.close_stream || d.second);
    EXPECT_EQ(link.state(), State::kAttempt);
  }
  {
    PeerLink link = in_state(State::kAttempt);
    const auto d = link.on_request(Order::greater, 9);
    EXPECT_TRUE(d.accept && d.drop_attempt);
    EXPECT_FALSE(d.close_stream || d.second);
    EXPECT_EQ(link.state(), State::kUp);
  }
  {
    PeerLink link = in_state(State::kAttempt);
    const auto d = link.on_request(Order::equal, 9);
    EXPECT_TRUE(d.accept && d.second);
    EXPECT_FALSE(d.drop_attempt || d.close_stream);
    EXPECT_EQ(link.state(), State::kAttempt);
    link.on_accepted(9);
    EXPECT_EQ(link.state(), State::kUp);
  }
}

TEST(PeerLink, SecondRequestsOfOneProcessAreRejectedThoseOfANewOneWin) {
  for (Order order : kOrders) {
    PeerLink link = in_state(State::kUp, 7);
    auto d = link.on_request(order, 7);
    EXPECT_FALSE(d.accept || d.drop_attempt || d.close_stream || d.second);
    EXPECT_EQ(link.state(), State::kUp);
    d = link.on_request(order, 8);
    EXPECT_TRUE(d.accept && d.close_stream);
    EXPECT_FALSE(d.drop_attempt || d.second);
    EXPECT_EQ(link.process(), 8u);
    EXPECT_FALSE(link.on_request(order, 8).accept);
  }
}

TEST(PeerLink, ARejectIsTriedAgainLaterAndLater) {
  PeerLink link;
  EXPECT_EQ(link.want(1000, 1'000'000'000), Next::kConnect);
  EXPECT_EQ(link.want(1000, 1'000'000'000), Next::kNothing);
  uint64_t now = 1000, last = 0;
  int attempts = 1;
  for (;;) {
    const Next next = link.on_refused(now, Refusal::kRejected, true);
    if (next == Next::kFail) break;
    ASSERT_EQ(next, Next::kWait);
    EXPECT_EQ(link.want(now, 1'000'000'000), Next::kWait);
    const uint64_t pause = link.retry_at() - now;
    EXPECT_GE(pause, last);
    EXPECT_LE(pause, 100'000'000u);
    last = pause;
    now = link.retry_at();
    ASSERT_EQ(link.on_retry(true), Next::kConnect);
    ++attempts;
    ASSERT_LT(attempts, 100);
  }
  EXPECT_GT(attempts, 5);
  EXPECT_LT(now, 1'000'001'000u);
  EXPECT_EQ(link.state(), State::kIdle);
  // The next operation begins anew.
  EXPECT_EQ(link.want(now, 1'000'000'000), Next::kConnect);
}

TEST(PeerLink, WhatCannotBeReachedFailsAtOnceAndAHangUpSoon) {
  PeerLink link = in_state(State::kAttempt);
  EXPECT_EQ(link.on_refused(0, Refusal::kUnreachable, true), Next::kFail);
  EXPECT_EQ(link.state(), State::kIdle);

  EXPECT_EQ(link.want(0, 0), Next::kConnect);
  int hang_ups = 1;
  while (link.on_refused(0, Refusal::kHungUp, true) == Next::kWait) {
    ++hang_ups;
    ASSERT_LT(hang_ups, 10);
    EXPECT_EQ(link.on_retry(true), Next::kConnect);
  }
  EXPECT_EQ(hang_ups, 4);
}

TEST(PeerLink, NothingIsTriedForNobody) {
  PeerLink link = in_state(State::kAttempt);
  EXPECT_EQ(link.on_refused(0, Refusal::kRejected, false), Next::kNothing);
  EXPECT_EQ(link.state(), State::kIdle);
  link = in_state(State::kBackoff);
  EXPECT_EQ(link.on_retry(false), Next::kNothing);
  EXPECT_EQ(link.state(), State::kIdle);
  // Late news of an attempt that lost is no news.
  link = in_state(State::kUp);
  EXPECT_EQ(link.on_refused(0, Refusal::kRejected, true), Next::kNothing);
  EXPECT_EQ(link.on_retry(true), Next::kNothing);
  EXPECT_EQ(link.state(), State::kUp);
  link.on_lost();
  EXPECT_EQ(link.state(), State::kIdle);
}

// ---- a simulated network ----

// A connection: what each side has sent and the other has not seen. Either can be cut at any time.
struct Wire {
  enum Kind : uint8_t { kRequest, kAccept, kReject, kData, kEnd };
  struct Packet {
    Kind kind;
    uint32_t process = 0;
    int value = 0;
  };
  int ends[2];                      // nodes: [0] asked for it
  std::deque<Packet> to[2];         // towards ends[i]
  bool closed[2] = {false, false};  // ends[i] has let go of it
};
using WirePtr = std::shared_ptr<Wire>;

class Network {
 public:
  Network(size_t nodes, uint64_t seed) : random_(seed) {
    for (size_t i = 0; i < nodes; ++i) nodes_.push_back({next_process_++, {}, {}});
  }

  void send(int from, int to) {
    Peer &peer = nodes_[size_t(from)].peers[to];
    const int value = next_value_++;
    peer.pending.push_back(value);
    begin(from, to, peer.link.want(now_, kTimeout));
    flush(from, to);
  }

  // One thing happens, at random. False: nothing is left to happen.
  bool step() {
    std::vector<std::pair<WirePtr, int>> packets;
    for (const WirePtr &wire : wires_)
      for (int side : {0, 1})
        if (!wire->to[side].empty()) packets.push_back({wire, side});
    const size_t pick = random_.below(packets.size() + 1);
    if (pick < packets.size()) {
      deliver(packets[pick].first, packets[pick].second);
    } else if (!tick() && packets.empty()) {
      return false;
    }
    std::erase_if(wires_, [](const WirePtr &w) {
      return w->closed[0] && w->closed[1] && w->to[0].empty() && w->to[1].empty();
    });
    return true;
  }

  // The network loses a connection, with all that is on it.
  void cut_one() {
    if (wires_.empty()) return;
    const WirePtr wire = wires_[random_.below(wires_.size())];
    for (int side : {0, 1}) {
      wire->to[side].clear();
      if (!wire->closed[side]) wire->to[side].push_back({Wire::kEnd});
    }
  }

  // The process behind a node dies, and another one listens at its address.
  void restart(int node) {
    for (const WirePtr &wire : wires_)
      for (int side : {0, 1})
        if (wire->ends[side] == node && !wire->closed[side]) close(wire, side);
    for (auto &[to, peer] : nodes_[size_t(node)].peers) settled_ += int(peer.pending.size());
    nodes_[size_t(node)] = {next_process_++, {}, {}};
  }

  void run_until_quiet() {
    for (int i = 0; i < 100000; ++i)
      if (!step()) return;
    FAIL() << "the network never comes to rest";
  }

  // After a time without faults: every value was delivered or given up, and two nodes share one
  // stream or none.
  void check() {
    for (size_t a = 0; a < nodes_.size(); ++a) {
      for (auto &[b, peer] : nodes_[a].peers) {
        EXPECT_TRUE(peer.pending.empty()) << a << " to " << b;
        EXPECT_TRUE(peer.attempt == nullptr) << a << " to " << b;
        EXPECT_EQ(peer.link.state() == State::kUp, peer.stream != nullptr);
        if (peer.stream == nullptr || size_t(b) == a) continue;
        const auto back = nodes_[size_t(b)].peers.find(int(a));
        ASSERT_TRUE(back != nodes_[size_t(b)].peers.end());
        EXPECT_EQ(back->second.stream, peer.stream) << a << " to " << b;
        EXPECT_EQ(peer.link.process(), nodes_[size_t(b)].process);
      }
    }
    EXPECT_EQ(settled_, next_value_);
  }

  int failed() const { return failed_; }
  bool connected(int a, int b) { return nodes_[size_t(a)].peers[b].stream != nullptr; }
  size_t wires() const { return wires_.size(); }

 private:
  static constexpr uint64_t kTimeout = 2'000'000'000;
  struct Peer {
    PeerLink link;
    WirePtr attempt, stream;
    std::deque<int> pending;
  };
  struct Node {
    uint32_t process;
    std::map<int, Peer> peers;
    std::vector<WirePtr> extra;  // second ends of connections to itself
  };

  void begin(int from, int to, Next next) {
    Peer &peer = nodes_[size_t(from)].peers[to];
    if (next == Next::kFail) give_up(peer);
    if (next != Next::kConnect) return;
    auto wire = std::make_shared<Wire>();
    wire->ends[0] = from;
    wire->ends[1] = to;
    wire->to[1].push_back({Wire::kRequest, nodes_[size_t(from)].process});
    wires_.push_back(wire);
    peer.attempt = wire;
  }
  void give_up(Peer &peer) {
    failed_ += int(peer.pending.size());
    settled_ += int(peer.pending.size());
    peer.pending.clear();
  }
  void flush(int from, int to) {
    Peer &peer = nodes_[size_t(from)].peers[to];
    if (peer.stream == nullptr) return;
    const int there = peer.stream->ends[0] == from ? 1 : 0;
    while (!peer.pending.empty()) {
      peer.stream->to[there].push_back({Wire::kData, 0, peer.pending.front()});
      peer.pending.pop_front();
      ++settled_;
    }
  }
  void close(const WirePtr &wire, int side) {
    wire->closed[side] = true;
    wire->to[side].clear();
    if (!wire->closed[1 - side]) wire->to[1 - side].push_back({Wire::kEnd});
  }

  void deliver(const WirePtr &wire, int side) {
    const Wire::Packet packet = wire->to[side].front();
    wire->to[side].pop_front();
    if (wire->closed[side]) return;
    const int me = wire->ends[side], other = wire->ends[1 - side];
    Node &node = nodes_[size_t(me)];
    Peer &peer = node.peers[other];
    const bool wanted = !peer.pending.empty();
    switch (packet.kind) {
      case Wire::kRequest: {
        const auto d = peer.link.on_request(other <=> me, packet.process);
        if (!d.accept) {
          wire->to[1 - side].push_back({Wire::kReject});
          close(wire, side);
          return;
        }
        if (d.drop_attempt) close_attempt(peer, me);
        if (d.close_stream) close_stream(peer, me);
        wire->to[1 - side].push_back({Wire::kAccept, node.process});
        if (d.second) {
          node.extra.push_back(wire);
        } else {
          peer.stream = wire;
          flush(me, other);
        }
        return;
      }
      case Wire::kAccept:
        ASSERT_EQ(peer.attempt, wire);
        peer.attempt = nullptr;
        peer.stream = wire;
        peer.link.on_accepted(packet.process);
        flush(me, other);
        return;
      case Wire::kReject:
      case Wire::kEnd:
        wire->closed[side] = true;
        if (wire == peer.attempt && side == 0) {
          peer.attempt = nullptr;
          begin(me, other,
                peer.link.on_refused(
                    now_, packet.kind == Wire::kReject ? Refusal::kRejected : Refusal::kHungUp,
                    wanted));
        } else if (wire == peer.stream && (me != other || side == 0)) {
          peer.stream = nullptr;
          peer.link.on_lost();
        } else {
          std::erase(node.extra, wire);
        }
        if (!wire->closed[1 - side]) wire->to[1 - side].push_back({Wire::kEnd});
        return;
      case Wire::kData:
        return;
    }
  }
  void close_attempt(Peer &peer, int me) {
    if (peer.attempt != nullptr) close(peer.attempt, peer.attempt->ends[0] == me ? 0 : 1);
    peer.attempt = nullptr;
  }
  void close_stream(Peer &peer, int me) {
    if (peer.stream != nullptr) close(peer.stream, peer.stream->ends[0] == me ? 0 : 1);
    peer.stream = nullptr;
  }
  // Time goes to the next retry. False: nobody waits.
  bool tick() {
    uint64_t at = UINT64_MAX;
    for (Node &node : nodes_)
      for (auto &[to, peer] : node.peers)
        if (peer.link.state() == State::kBackoff) at = std::min(at, peer.link.retry_at());
    if (at == UINT64_MAX) return false;
    now_ = std::max(now_, at);
    for (size_t from = 0; from < nodes_.size(); ++from)
      for (auto &[to, peer] : nodes_[from].peers)
        if (peer.link.state() == State::kBackoff && peer.link.retry_at() <= now_)
          begin(int(from), to, peer.link.on_retry(!peer.pending.empty()));
    return true;
  }

  Random random_;
  uint32_t next_process_ = 100;
  int next_value_ = 0, settled_ = 0, failed_ = 0;
  uint64_t now_ = 0;
  std::vector<Node> nodes_;
  std::vector<WirePtr> wires_;
};

TEST(PeerLinkNetwork, BothConnectAtOnceInEveryInterleaving) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Network network(2, seed);
    network.send(0, 1);
    network.send(1, 0);
    network.run_until_quiet();
    network.check();
    EXPECT_EQ(network.failed(), 0);
    EXPECT_TRUE(network.connected(0, 1) && network.connected(1, 0));
    EXPECT_EQ(network.wires(), 1u);
    if (HasFailure()) return;
  }
}

TEST(PeerLinkNetwork, ToItself) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Network network(1, seed);
    network.send(0, 0);
    network.run_until_quiet();
    network.check();
    EXPECT_EQ(network.failed(), 0);
    EXPECT_EQ(network.wires(), 1u);
  }
}

TEST(PeerLinkNetwork, EverybodyToEverybody) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const size_t n = 2 + seed % 5;
    Network network(n, seed);
    for (size_t a = 0; a < n; ++a)
      for (size_t b = 0; b < n; ++b) network.send(int(a), int(b));
    network.run_until_quiet();
    network.check();
    EXPECT_EQ(network.failed(), 0);
    if (HasFailure()) return;
  }
}

TEST(PeerLinkNetwork, LossAndRestartsInEveryState) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    const size_t n = 2 + seed % 3;
    Network network(n, seed);
    Random random(seed ^ 0x5eed);
    for (int i = 0; i < 60; ++i) {
      switch (random.below(8)) {
        case 0:
          network.cut_one();
          break;
        case 1:
          if (random.one_in(3)) network.restart(int(random.below(n)));
          break;
        case 2:
        case 3:
          network.send(int(random.below(n)), int(random.below(n)));
          break;
        default:
          network.step();
      }
    }
    // The faults end; what is sent from now on arrives.
    network.run_until_quiet();
    const int before = network.failed();
    for (size_t a = 0; a < n; ++a)
      for (size_t b = 0; b < n; ++b) network.send(int(a), int(b));
    network.run_until_quiet();
    network.check();
    EXPECT_EQ(network.failed(), before);
    for (size_t a = 0; a < n; ++a)
      for (size_t b = 0; b < n; ++b) EXPECT_TRUE(network.connected(int(a), int(b)));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace weft::tcp
