// SPDX-License-Identifier: BSD-2-Clause
// PeerLink in simulated networks: endpoints that connect at once, reject, restart at the same
// address and lose connections in every state, and impostors.
#include <gtest/gtest.h>
#include <weft/sdk/peer/link.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>

#include "plugin-api/sdk/test_rounds.h"

namespace weft::sdk {
namespace {

using State = PeerLink::State;
using Next = PeerLink::Next;
using Refusal = PeerLink::Refusal;

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  uint64_t below(uint64_t n) { return bits_() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 bits_;
};

// A connection: the packets of each side that the other has not read.
struct Wire {
  enum Kind : uint8_t { kRequest, kAccept, kReject, kData, kEnd };
  struct Packet {
    Kind kind;
    uint32_t process = 0;
    int value = 0;
    uint64_t at = 0;  // arrives
  };
  int ends[2];                      // nodes: [0] asked for it
  std::deque<Packet> to[2];         // towards ends[i]
  bool closed[2] = {false, false};  // by ends[i]
  bool impostor = false;            // ends[0] is another process of its host
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
    follow(from, to, peer.link.want(now_, timeout_));
    flush(from, to);
  }

  // One event, a random one or, with be_far(), the next. False: none is left.
  bool step() {
    if (trip_ns_ != 0) return step_in_time();
    std::vector<std::pair<WirePtr, int>> packets;
    for (const WirePtr &wire : wires_)
      for (int side : {0, 1})
        if (!wire->to[side].empty()) packets.push_back({wire, side});
    const size_t pick = random_.below(packets.size() + (near_ && !packets.empty() ? 0 : 1));
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

  // The network loses a connection with all its packets.
  void cut_one() {
    if (wires_.empty()) return;
    const WirePtr wire = wires_[random_.below(wires_.size())];
    for (int side : {0, 1}) {
      wire->to[side].clear();
      if (!wire->closed[side]) put(*wire, side, {Wire::kEnd});
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

  // Another process on the host of `as` claims to be `as`.
  WirePtr claim(int as, int to) {
    auto wire = std::make_shared<Wire>();
    wire->ends[0] = as;
    wire->ends[1] = to;
    wire->impostor = true;
    put(*wire, 1, {Wire::kRequest, 1 + uint32_t(random_.below(50))});
    wires_.push_back(wire);
    return wire;
  }
  // Packets arrive before any retry.
  void be_near() { near_ = true; }
  // Each packet takes this time.
  void be_far(uint64_t trip_ns) {
    trip_ns_ = trip_ns;
    timeout_ = 30'000'000'000;
  }
  WirePtr stream(int from, int to) { return nodes_[size_t(from)].peers[to].stream; }

  void run_until_quiet() {
    for (int i = 0; i < 100000; ++i)
      if (!step()) return;
    FAIL() << "the network never comes to rest";
  }

  // After a time without faults: every value was delivered or given up, and each pair of nodes has
  // one stream or none.
  void check() {
    for (size_t a = 0; a < nodes_.size(); ++a) {
      for (auto &[b, peer] : nodes_[a].peers) {
        EXPECT_TRUE(peer.pending.empty()) << a << " to " << b;
        EXPECT_TRUE(peer.attempt == nullptr) << a << " to " << b;
        EXPECT_EQ(peer.link.is_up(), peer.stream != nullptr);
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
  struct Peer {
    PeerLink link;
    WirePtr attempt, stream, probe;
    std::deque<int> pending;
  };
  struct Node {
    uint32_t process;
    std::map<int, Peer> peers;
    std::vector<WirePtr> extra;  // second ends of connections to itself
  };

  // A request follows the two packets of TCP's own handshake.
  void put(Wire &wire, int side, Wire::Packet packet) {
    packet.at = now_ + trip_ns_ * (packet.kind == Wire::kRequest ? 3 : 1);
    wire.to[side].push_back(packet);
  }
  bool step_in_time() {
    WirePtr first;
    int side = 0;
    for (const WirePtr &wire : wires_) {
      for (int s : {0, 1}) {
        if (wire->to[s].empty()) continue;
        if (first != nullptr && first->to[side].front().at <= wire->to[s].front().at) continue;
        first = wire;
        side = s;
      }
    }
    if (first == nullptr || first->to[side].front().at > next_retry()) return tick();
    now_ = std::max(now_, first->to[side].front().at);
    deliver(first, side);
    return true;
  }

  WirePtr request(int from, int to) {
    auto wire = std::make_shared<Wire>();
    wire->ends[0] = from;
    wire->ends[1] = to;
    put(*wire, 1, {Wire::kRequest, nodes_[size_t(from)].process});
    wires_.push_back(wire);
    return wire;
  }
  void follow(int me, int other, Next next) {
    Peer &peer = nodes_[size_t(me)].peers[other];
    switch (next) {
      case Next::kNothing:
      case Next::kWait:
        return;
      case Next::kConnect:
        peer.attempt = request(me, other);
        return;
      case Next::kProbe:
        peer.probe = request(me, other);
        return;
      case Next::kFail:
        return give_up(peer);
      case Next::kResume:
        peer.attempt = std::exchange(peer.probe, nullptr);
        return;
      case Next::kReplace:
        close_stream(peer, me);
        peer.stream = std::exchange(peer.probe, nullptr);
        return flush(me, other);
    }
  }
  void lose(int me, int other) {
    Peer &peer = nodes_[size_t(me)].peers[other];
    follow(me, other, peer.link.on_lost(now_, !peer.pending.empty(), timeout_));
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
      put(*peer.stream, there, {Wire::kData, 0, peer.pending.front()});
      peer.pending.pop_front();
      ++settled_;
    }
  }
  void close(const WirePtr &wire, int side) {
    wire->closed[side] = true;
    wire->to[side].clear();
    if (!wire->closed[1 - side]) put(*wire, 1 - side, {Wire::kEnd});
  }

  void deliver(const WirePtr &wire, int side) {
    const Wire::Packet packet = wire->to[side].front();
    wire->to[side].pop_front();
    if (wire->closed[side]) return;
    if (wire->impostor && side == 0) return;  // it never answers
    switch (packet.kind) {
      case Wire::kRequest:
        return on_request(wire, side, packet.process);
      case Wire::kAccept:
        return on_accept(wire, side, packet.process);
      case Wire::kReject:
      case Wire::kEnd:
        return on_end(wire, side, packet.kind == Wire::kReject);
      case Wire::kData:
        return;
    }
  }
  void on_request(const WirePtr &wire, int side, uint32_t process) {
    const int me = wire->ends[side], other = wire->ends[1 - side];
    Node &node = nodes_[size_t(me)];
    Peer &peer = node.peers[other];
    // The end of the old stream may be known here, or still on its way.
    if (peer.stream != nullptr && peer.link.process() != process &&
        peer.stream->closed[peer.stream->ends[0] == me ? 1 : 0] && random_.one_in(2)) {
      close_stream(peer, me);
      lose(me, other);
    }
    const auto d = peer.link.on_request(other <=> me, process, now_);
    if (d.to_probe) peer.probe = std::exchange(peer.attempt, nullptr);
    put(*wire, 1 - side, {d.accept ? Wire::kAccept : Wire::kReject, node.process});
    if (d.second) {
      node.extra.push_back(wire);
    } else if (d.accept) {
      peer.stream = wire;
      flush(me, other);
    } else {
      close(wire, side);
      follow(me, other, d.next);
    }
  }
  void on_accept(const WirePtr &wire, int side, uint32_t process) {
    const int me = wire->ends[side], other = wire->ends[1 - side];
    Peer &peer = nodes_[size_t(me)].peers[other];
    ASSERT_TRUE(wire == peer.attempt || wire == peer.probe);
    if (wire == peer.attempt) peer.stream = std::exchange(peer.attempt, nullptr);
    follow(me, other, peer.link.on_accepted(now_, process));
    flush(me, other);
  }
  void on_end(const WirePtr &wire, int side, bool rejected) {
    const int me = wire->ends[side], other = wire->ends[1 - side];
    Node &node = nodes_[size_t(me)];
    Peer &peer = node.peers[other];
    wire->closed[side] = true;
    if (wire == peer.probe) {
      peer.probe = nullptr;
      peer.link.on_probe_ended();
    } else if (wire == peer.attempt && side == 0) {
      peer.attempt = nullptr;
      follow(me, other,
             peer.link.on_refused(now_, rejected ? Refusal::kRejected : Refusal::kHungUp,
                                  !peer.pending.empty()));
    } else if (wire == peer.stream && (me != other || side == 0)) {
      peer.stream = nullptr;
      lose(me, other);
    } else {
      std::erase(node.extra, wire);
    }
    if (!wire->closed[1 - side]) put(*wire, 1 - side, {Wire::kEnd});
  }
  void close_stream(Peer &peer, int me) {
    if (peer.stream != nullptr) close(peer.stream, peer.stream->ends[0] == me ? 0 : 1);
    peer.stream = nullptr;
  }
  uint64_t next_retry() const {
    uint64_t at = UINT64_MAX;
    for (const Node &node : nodes_)
      for (const auto &[to, peer] : node.peers)
        if (peer.link.state() == State::kBackoff) at = std::min(at, peer.link.wake_at());
    return at;
  }
  // Time goes on to the next retry. False: there is none.
  bool tick() {
    const uint64_t at = next_retry();
    if (at == UINT64_MAX) return false;
    now_ = std::max(now_, at);
    for (size_t from = 0; from < nodes_.size(); ++from)
      for (auto &[to, peer] : nodes_[from].peers)
        if (peer.link.state() == State::kBackoff && peer.link.wake_at() <= now_)
          follow(int(from), to, peer.link.on_time(now_, !peer.pending.empty()));
    return true;
  }

  Random random_;
  uint32_t next_process_ = 100;
  int next_value_ = 0, settled_ = 0, failed_ = 0;
  uint64_t now_ = 0;
  bool near_ = false;
  uint64_t trip_ns_ = 0, timeout_ = 2'000'000'000;
  std::vector<Node> nodes_;
  std::vector<WirePtr> wires_;
};

TEST(PeerLinkNetwork, BothConnectAtOnceInEveryInterleaving) {
  for (uint64_t seed = 0; seed < sdk::rounds(2000); ++seed) {
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
  for (uint64_t seed = 0; seed < sdk::rounds(100); ++seed) {
    Network network(1, seed);
    network.send(0, 0);
    network.run_until_quiet();
    network.check();
    EXPECT_EQ(network.failed(), 0);
    EXPECT_EQ(network.wires(), 1u);
  }
}

TEST(PeerLinkNetwork, AllPeersSendToAll) {
  for (uint64_t seed = 0; seed < sdk::rounds(200); ++seed) {
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

TEST(PeerLinkNetwork, AFalseClaimTakesNoPlace) {
  for (uint64_t seed = 0; seed < sdk::rounds(2000); ++seed) {
    Network network(2, seed);
    network.send(int(seed % 2), int(1 - seed % 2));
    network.run_until_quiet();
    const WirePtr before = network.stream(0, 1);
    ASSERT_TRUE(before != nullptr);
    for (int i = 0; i < 5; ++i) {
      network.claim(i % 2, 1 - i % 2);
      for (uint64_t k = seed % 7; k != 0; --k) network.step();
    }
    network.send(0, 1);
    network.send(1, 0);
    network.run_until_quiet();
    ASSERT_EQ(network.stream(0, 1), before) << "seed " << seed;
    network.check();
    EXPECT_EQ(network.failed(), 0);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(PeerLinkNetwork, ThePeerItselfGetsThePlaceThatAnImpostorTook) {
  for (uint64_t seed = 0; seed < sdk::rounds(2000); ++seed) {
    for (int as : {0, 1}) {
      Network network(2, seed);
      const WirePtr impostor = network.claim(as, 1 - as);
      network.run_until_quiet();
      ASSERT_EQ(network.stream(1 - as, as), impostor) << "there was no process to probe";
      network.be_near();
      network.send(as, 1 - as);
      network.run_until_quiet();
      network.check();
      EXPECT_NE(network.stream(1 - as, as), impostor);
      EXPECT_EQ(network.failed(), 0);
      if (HasFailure()) FAIL() << "seed " << seed << " as " << as;
    }
  }
}

// The retries of the two sides must not collide for ever.
TEST(PeerLinkNetwork, ThePeerItselfGetsItsPlaceHoweverFarItIs) {
  for (const uint64_t ms : {1, 10, 49, 51, 75, 100, 150, 300}) {
    for (int as : {0, 1}) {
      Network network(2, ms);
      const WirePtr impostor = network.claim(as, 1 - as);
      network.run_until_quiet();
      ASSERT_EQ(network.stream(1 - as, as), impostor) << "there was no process to probe";
      network.be_far(ms * 1'000'000);
      network.send(as, 1 - as);
      network.run_until_quiet();
      network.check();
      EXPECT_EQ(network.failed(), 0);
      if (HasFailure()) FAIL() << ms << " ms, as " << as;
    }
  }
}

TEST(PeerLinkNetwork, LossAndRestartsInEveryState) {
  for (uint64_t seed = 0; seed < sdk::rounds(3000); ++seed) {
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
    // The faults end; all that is sent from now on arrives.
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
}  // namespace weft::sdk
