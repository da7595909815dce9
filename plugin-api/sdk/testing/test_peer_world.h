// SPDX-License-Identifier: BSD-2-Clause
// World: hosts, processes that listen at ports, and the connections between them, in simulated
// time. For tests of who the peer is. The packets of a connection arrive in order, and in any order
// among those of other connections. Each connection and each message tells who really began or sent
// it.
//
// Example:
//    // A process that counts who calls at a port.
//    struct Counter final : peer_model::Agent {
//      using Agent::Agent;
//      void on_incoming(const peer_model::WirePtr &) override { ++calls; }
//      int calls = 0;
//    };
//    inline int calls_at_port_80(peer_model::World &world) {
//      Counter &server = world.add<Counter>(/*host=*/1, world.new_process());
//      Counter &client = world.add<Counter>(/*host=*/2, world.new_process());
//      world.listen(peer_model::address_of(1, 80), server);
//      world.connect(client, peer_model::address_of(1, 80));
//      world.run_for(peer_model::kSec);
//      return server.calls;
//    }
//
// Not for what a process does with its packets: that is test_peer_endpoint.h for an endpoint, and
// test_peer_actors.h for who means harm.
#pragma once

#include <gtest/gtest.h>
#include <weft/sdk/addresses/address.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace weft::sdk::peer_model {

inline constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSec = 1'000'000'000;

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed * 2654435761U + 1) {}
  uint64_t below(uint64_t n) { return bits_() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  template <class T>
  void shuffle(std::vector<T> &list) {
    std::ranges::shuffle(list, bits_);
  }

 private:
  std::minstd_rand bits_;
};

// 10.0.0.HOST:PORT
inline Address address_of(unsigned host, unsigned port) {
  const unsigned char bytes[6] = {uint8_t(port >> 8), uint8_t(port), 10, 0, 0, uint8_t(host)};
  return Address::ipv4(bytes);
}

// What a connection request says of its sender.
struct Hello {
  uint16_t port = 0;
  uint64_t process = 0;
  uint8_t place = 0;
};

// code(key, role, nonces, called address): who lacks the key can only copy one.
struct Proof {
  uint32_t key = 0;
  char role = 0;
  uint64_t active = 0, passive = 0;
  Address called;
  bool operator==(const Proof &) const = default;
};

struct Message {
  uint32_t author = 0;  // the process that really sent it
  int value = 0;
};

struct Packet {
  enum Kind : uint8_t {
    kConnected,
    kNonce,
    kPassiveProof,
    kActiveProof,
    kRequest,
    kAccept,
    kReject,
    kData,
    kPart,  // of a message that is not whole yet
    kEnd,
    kReset,  // nobody listens
  };
  Kind kind = kEnd;
  Hello hello = {};
  Proof proof = {};
  Message message = {};
  uint64_t nonce_of_sender = 0;
  uint8_t last = 0;    // kAccept, kReject: the last context of the endpoint
  bool again = false;  // kReject: the requester may ask again
};

class Agent;

struct Wire {
  Address called;                         // by ends[0]
  Agent *ends[2] = {nullptr, nullptr};    // [1]: who listened when the call arrived
  std::deque<Packet> unread[2];           // arrived at ends[i]
  bool open[2] = {true, true};            // not closed by ends[i]
  uint64_t last_at[2] = {0, 0};           // arrival of the last packet towards ends[i]
  uint64_t known_at[2] = {0, 0};          // ends[i] knows that the other accepts; 0: it does not
  bool heard[2] = {false, false};         // ends[i] has read a message
  int peer[2] = {-1, -1};                 // what ends[i] makes of it
  bool proven[2] = {false, false};        // to ends[i]
  uint64_t nonce[2] = {0, 0};             // of ends[i]
  uint64_t other_nonce[2] = {0, 0};       // what ends[i] was told
  uint64_t useful_at = 0, mid_since = 0;  // of a stranger's, at ends[1]
  uint64_t epoch = 0;                     // packets of earlier ones are lost
  uint8_t deed = 0;                       // why it was begun, or taken (test_peer_actors.h)
  bool in_path = false;                   // a relay passes all to the address that was called
};
using WirePtr = std::shared_ptr<Wire>;

// A part of a process: an endpoint, or somebody that means harm.
class World;
class Agent {
 public:
  Agent(World &world, unsigned host, uint32_t process)
      : world_(world), host_(host), process_(process) {}
  virtual ~Agent() = default;
  virtual void on_incoming(const WirePtr &) {}
  virtual void on_arrival(const WirePtr &, int) {}
  virtual bool honest() const { return false; }

  unsigned host() const { return host_; }
  uint32_t process() const { return process_; }  // the real one
  bool alive() const { return alive_; }

 protected:
  World &world_;

 private:
  friend class World;
  unsigned host_;
  uint32_t process_;
  bool alive_ = true;
};

class World {
 public:
  // `fixed`: packets of two hosts arrive in the order in which they were sent, also those of
  // different connections.
  World(uint64_t seed, bool fixed, uint64_t longest_trip)
      : random(seed), fixed_(fixed), longest_(longest_trip) {}

  Random random;
  uint64_t now = kSec;
  int next_value = 0;  // of a message

  uint32_t new_process() { return next_process_++; }
  bool fixed() const { return fixed_; }
  uint64_t longest_trip() const { return longest_; }
  uint64_t cuts() const { return cuts_; }

  template <class T, class... Args>
  T &add(unsigned host, uint32_t process, Args &&...args) {
    auto made = std::make_unique<T>(*this, host, process, std::forward<Args>(args)...);
    T &agent = *made;
    agents_.push_back(std::move(made));
    return agent;
  }

  // False: somebody else has the port.
  bool listen(const Address &at, Agent &agent) {
    if (!listeners_.emplace(at, &agent).second) return false;
    if (agent.honest()) {
      homes_[at].insert(agent.process());
    } else {
      stolen_.insert(at);
    }
    return true;
  }
  void unlisten(const Address &at, const Agent &agent) {
    const auto found = listeners_.find(at);
    if (found != listeners_.end() && found->second == &agent) listeners_.erase(found);
  }
  Agent *listener(const Address &at) const {
    const auto found = listeners_.find(at);
    return found != listeners_.end() ? found->second : nullptr;
  }
  // An honest process has listened there, this one.
  bool is_home(const Address &at, uint32_t process) const {
    const auto found = homes_.find(at);
    return found != homes_.end() && found->second.contains(process);
  }
  // Somebody that means harm has listened there.
  bool was_stolen(const Address &at) const { return stolen_.contains(at); }

  // The process, or the part of it, is gone.
  void kill(Agent &agent) {
    std::erase_if(listeners_, [&](const auto &l) { return l.second == &agent; });
    for (const WirePtr &wire : std::vector(wires_))
      for (int side : {0, 1})
        if (wire->ends[side] == &agent && wire->open[side]) close(wire, side);
    agent.alive_ = false;
  }

  WirePtr connect(Agent &caller, const Address &to) {
    auto wire = std::make_shared<Wire>();
    wire->called = to;
    wire->ends[0] = &caller;
    wires_.push_back(wire);
    after(trip(caller.host(), host_of(to)), [this, wire] { on_call(wire); });
    return wire;
  }
  void send(const WirePtr &wire, int from, const Packet &packet) {
    if (wire->ends[1] == nullptr) return;
    const int to = 1 - from;
    uint64_t &last = wire->last_at[to];
    last = std::max(last, now + trip(wire->ends[from]->host(), wire->ends[to]->host()));
    at(last, [this, wire, to, packet, epoch = wire->epoch] {
      if (epoch == wire->epoch) arrive(wire, to, packet);
    });
  }
  void close(const WirePtr &wire, int side) {
    if (!wire->open[side]) return;
    wire->open[side] = false;
    wire->unread[side].clear();
    send(wire, side, {.kind = Packet::kEnd});
  }
  // The network loses a connection with all that is under way.
  void cut_one() {
    if (wires_.empty()) return;
    const WirePtr wire = wires_[random.below(wires_.size())];
    if (wire->ends[1] == nullptr) return;
    ++wire->epoch;
    ++cuts_;
    for (int side : {0, 1}) {
      wire->unread[side].clear();
      send(wire, side, {.kind = Packet::kEnd});
    }
  }

  void at(uint64_t when, std::function<void()> what) {
    events_.push({std::max(when, now), next_event_++, std::move(what)});
  }
  void after(uint64_t ns, std::function<void()> what) { at(now + ns, std::move(what)); }
  void run_for(uint64_t ns) {
    const uint64_t end = now + ns;
    while (!events_.empty() && events_.top().at <= end) {
      auto &top = const_cast<Event &>(events_.top());
      now = top.at;
      const std::function<void()> what = std::move(top.what);
      events_.pop();
      what();
      ASSERT_LT(++steps_, 200'000U) << "the world comes to no rest";
    }
    now = end;
    std::erase_if(wires_, [](const WirePtr &w) { return !w->open[0] && !w->open[1]; });
  }
  // Connections that neither end has closed.
  size_t wires() const {
    return size_t(std::ranges::count_if(wires_, [](const WirePtr &w) {
      return w->open[0] && w->open[1] && w->ends[1] != nullptr;
    }));
  }
  const std::vector<WirePtr> &all_wires() const { return wires_; }

  static unsigned host_of(const Address &at) { return at.host().back(); }

 private:
  struct Event {
    uint64_t at, number;
    std::function<void()> what;
    bool operator<(const Event &other) const {
      return at != other.at ? at > other.at : number > other.number;
    }
  };

  uint64_t trip(unsigned from, unsigned to) {
    if (!fixed_) return kUs + random.below(longest_);
    uint64_t &ns = trips_[{from, to}];
    if (ns == 0) ns = kUs + random.below(longest_);
    return ns;
  }
  void on_call(const WirePtr &wire) {
    if (!wire->open[0]) {
      wire->open[1] = false;
      return;
    }
    Agent *const listens = listener(wire->called);
    if (listens == nullptr) {
      wire->open[1] = false;
      return after(trip(host_of(wire->called), wire->ends[0]->host()),
                   [this, wire] { arrive(wire, 0, {.kind = Packet::kReset}); });
    }
    wire->ends[1] = listens;
    send(wire, 1, {.kind = Packet::kConnected});
    listens->on_incoming(wire);
  }
  void arrive(const WirePtr &wire, int to, const Packet &packet) {
    if (!wire->open[to] || !wire->ends[to]->alive()) return;
    wire->unread[to].push_back(packet);
    wire->ends[to]->on_arrival(wire, to);
  }

  const bool fixed_;
  const uint64_t longest_;
  uint32_t next_process_ = 100;
  uint64_t next_event_ = 0, steps_ = 0, cuts_ = 0;
  std::map<std::pair<unsigned, unsigned>, uint64_t> trips_;
  std::priority_queue<Event> events_;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::map<Address, Agent *> listeners_;
  std::map<Address, std::set<uint32_t>> homes_;
  std::set<Address> stolen_;
  std::vector<WirePtr> wires_;
};

}  // namespace weft::sdk::peer_model
