// SPDX-License-Identifier: BSD-2-Clause
// TestNetwork: endpoints with groups in simulated time. Messages take as long as the seed says;
// between two endpoints they keep their order.
//
// Example:
//    inline size_t joined_of(uint64_t seed) {
//      TestNetwork network(seed, 5);
//      const std::vector<uint32_t> members = {4, 0, 2};
//      network.join(members);
//      network.run(sdk::kSecond);
//      return network[4].joins.size();
//    }
//
// An endpoint that has died is silent: what is sent to it fails, but for small messages, which
// nobody asks about. Not thread-safe.
#ifndef WEFT_PLUGINS_COLL_GROUP_TEST_NETWORK_H
#define WEFT_PLUGINS_COLL_GROUP_TEST_NETWORK_H

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plugin-api/sdk/testing/test_time.h"
#include "plugins/coll/group/groups.h"
#include "tests/fuzz/check.h"

namespace weft::coll {

class TestNetwork;

class TestEndpoint final : public Carrier {
 public:
  TestEndpoint(TestNetwork &network, uint32_t number, const GroupLimits &limits)
      : groups(limits, choice, *this), network_(network), number_(number) {}

  bool post(Flight &flight) override;
  void cancel(Flight &flight) override;
  void tell(Group &group, uint32_t rank, const Packet &packet) override;
  void ended(Group &group, const Ended &one) override { ended_.push_back({group.number(), one}); }
  bool is_at(uint64_t peer, const std::string &address) const override {
    return address == address_of(peer);
  }
  static std::string address_of(uint64_t endpoint) {
    return "endpoint " + std::to_string(endpoint);
  }

  int start(Group &group, const Call &call);
  void leave(Group &group);
  void settle();  // what has ended, and when it looks at the time

  Choice choice;
  Groups groups;
  bool alive = true;
  std::map<uint32_t, Ended> joins;                  // by the numbers of groups
  std::map<uint64_t, std::vector<Ended>> finished;  // by token
  size_t in_flight = 0;
  size_t telling = 0;                               // packets under way
  size_t posted() const { return posted_.size(); }  // receives, at the least

 private:
  friend class TestNetwork;
  using Key = std::pair<uint64_t, uint64_t>;  // peer, tag
  struct Noted {
    uint32_t number;
    Ended one;
  };
  void arrive(const Key &key, std::vector<uint8_t> bytes);
  void match(const Key &key);
  void finish(Flight &flight, Failure failure, size_t length);

  TestNetwork &network_;
  const uint32_t number_;
  std::map<Key, std::deque<Flight *>> posted_;
  std::map<Key, std::deque<std::vector<uint8_t>>> unexpected_;
  std::deque<Noted> ended_;
  std::vector<uint32_t> leaving_;
  bool looks_ = false, deaf_ = false;
  std::function<void(uint32_t to, uint64_t &tag, std::vector<uint8_t> &bytes)> tamper_;
};

class TestNetwork {
 public:
  TestNetwork(uint64_t seed, size_t endpoints, const GroupLimits &limits = {})
      : random_(seed), time_(sdk::kSecond), limits_(limits) {
    for (size_t i = 0; i < endpoints; ++i)
      endpoints_.push_back(std::make_unique<TestEndpoint>(*this, uint32_t(i), limits));
  }
  TestEndpoint &operator[](size_t i) { return *endpoints_[i]; }
  size_t size() const { return endpoints_.size(); }
  sdk::TestTime &time() { return time_; }
  std::mt19937_64 &random() { return random_; }
  uint64_t up_to(uint64_t most) { return random_() % (most + 1); }
  const GroupLimits &limits() const { return limits_; }
  void set_longest(uint64_t ns) { longest_ = ns; }
  void kill(uint32_t i) { endpoints_[i]->alive = false; }
  // From now on it does not read: what is sent to it stays under way.
  void deafen(uint32_t i) { endpoints_[i]->deaf_ = true; }
  // An endpoint that lies: what it sends to another goes through this.
  using Tamper = std::function<void(uint32_t to, uint64_t &tag, std::vector<uint8_t> &bytes)>;
  void tamper(uint32_t i, Tamper with) { endpoints_[i]->tamper_ = std::move(with); }

  static GroupPlace place(const std::vector<uint32_t> &members, uint32_t rank) {
    Groups::Membership membership;
    for (const uint32_t one : members) membership.add(&one, sizeof one);
    return {
        .peers = {members.begin(), members.end()}, .rank = rank, .membership = membership.value()};
  }
  // A message that no group sends.
  void send(uint32_t from, uint32_t to, uint64_t tag, std::vector<uint8_t> bytes) {
    time_.after(delay(from, to), [this, from, to, tag, bytes = std::move(bytes)]() mutable {
      endpoints_[to]->arrive({from, tag}, std::move(bytes));
    });
  }
  // All of them join now. The groups, by rank.
  std::vector<Group *> join(const std::vector<uint32_t> &members) {
    std::vector<Group *> groups;
    for (uint32_t rank = 0; rank < members.size(); ++rank) groups.push_back(join(members, rank));
    return groups;
  }
  // `one_host`: whether the member takes all for members of one.
  Group *join(const std::vector<uint32_t> &members, uint32_t rank, bool one_host = false,
              Cpus cpus = {}) {
    TestEndpoint &one = *endpoints_[members[rank]];
    GroupPlace where = place(members, rank);
    where.one_host = one_host;
    where.cpus = cpus;
    Group *const group = one.groups.join(time_.now, std::move(where));
    one.settle();
    return group;
  }
  void run(uint64_t ns) { time_.run_for(ns); }
  template <class F>
  bool run_until(F over, uint64_t most) {
    return time_.run_until(over, most);
  }

 private:
  friend class TestEndpoint;
  // When something that leaves now is there.
  uint64_t delay(uint32_t from, uint32_t to) {
    uint64_t &last = last_[uint64_t{from} << 32 | to];
    last = std::max(last, time_.now + 1 + up_to(longest_));
    return last - time_.now;
  }

  std::mt19937_64 random_;
  sdk::TestTime time_;
  const GroupLimits limits_;
  uint64_t longest_ = 20 * sdk::kMicrosecond;
  std::vector<std::unique_ptr<TestEndpoint>> endpoints_;
  std::unordered_map<uint64_t, uint64_t> last_;  // by both ends
};

inline bool TestEndpoint::post(Flight &flight) {
  const Key key{flight.peer, flight.tag};
  if (flight.sends) {
    const auto to = uint32_t(flight.peer);
    if (network_[to].deaf_) {
      in_flight += flight.length > 64;
      return flight.length <= 64;
    }
    std::vector<uint8_t> bytes(flight.bytes, flight.bytes + flight.length);
    uint64_t tag = flight.tag;
    if (tamper_) tamper_(to, tag, bytes);
    const uint64_t delay = network_.delay(number_, to);
    network_.time_.after(delay, [this, to, tag, bytes = std::move(bytes)]() mutable {
      network_[to].arrive({number_, tag}, std::move(bytes));
    });
    if (flight.length <= 64) return true;  // injected
    ++in_flight;
    network_.time_.after(delay + network_.up_to(network_.longest_), [this, &flight, to] {
      finish(flight, network_[to].alive ? Failure::kNone : Failure::kGone, flight.length);
    });
    return false;
  }
  ++in_flight;
  posted_[key].push_back(&flight);
  if (unexpected_.contains(key)) network_.time_.after(0, [this, key] { match(key); });
  return false;
}

inline void TestEndpoint::arrive(const Key &key, std::vector<uint8_t> bytes) {
  if (!alive) return;
  if (key.second == kPacketTag) {
    if (const auto packet = Packet::parse(bytes))
      groups.on_packet(network_.time_.now, *packet, address_of(key.first));
    return settle();
  }
  unexpected_[key].push_back(std::move(bytes));
  match(key);
}

inline void TestEndpoint::match(const Key &key) {
  const auto waiting = unexpected_.find(key);
  const auto posted = posted_.find(key);
  if (waiting == unexpected_.end() || posted == posted_.end()) return;
  const std::vector<uint8_t> bytes = std::move(waiting->second.front());
  waiting->second.pop_front();
  if (waiting->second.empty()) unexpected_.erase(waiting);
  Flight &flight = *posted->second.front();
  posted->second.pop_front();
  if (posted->second.empty()) posted_.erase(posted);
  if (const size_t fits = std::min(bytes.size(), flight.length); fits != 0)
    std::memcpy(flight.bytes, bytes.data(), fits);
  finish(flight, Failure::kNone, bytes.size());
}

inline void TestEndpoint::finish(Flight &flight, Failure failure, size_t length) {
  --in_flight;
  if (!alive) return;
  flight.operation->group->on_done(network_.time_.now, flight, failure, length);
  settle();
}

inline void TestEndpoint::cancel(Flight &flight) {
  const auto found = posted_.find({flight.peer, flight.tag});
  FUZZ_CHECK(found != posted_.end() && std::erase(found->second, &flight) == 1,
             "a receive is cancelled that is not posted");
  if (found->second.empty()) posted_.erase(found);
  network_.time_.after(0, [this, &flight] { finish(flight, Failure::kCanceled, 0); });
}

inline void TestEndpoint::tell(Group &group, uint32_t rank, const Packet &packet) {
  const auto to = uint32_t(group.place().peers[rank]);
  ++telling;
  network_.time_.after(network_.delay(number_, to),
                       [this, to, rank, packet, number = group.number()] {
                         TestEndpoint &other = network_[to];
                         if (other.deaf_) return;
                         const Packet::Bytes bytes = packet.bytes();
                         if (other.alive)
                           other.arrive({number_, kPacketTag}, {bytes.begin(), bytes.end()});
                         --telling;
                         if (!alive) return;
                         groups.on_told(number, rank, packet.type, other.alive);
                         settle();
                       });
}

inline int TestEndpoint::start(Group &group, const Call &call) {
  const int rc = group.start(network_.time_.now, call);
  settle();
  return rc;
}

inline void TestEndpoint::leave(Group &group) {
  const uint32_t number = group.number();
  if (!groups.leave(network_.time_.now, group)) leaving_.push_back(number);
  settle();
}

inline void TestEndpoint::settle() {
  while (!ended_.empty()) {
    const Noted noted = ended_.front();
    ended_.pop_front();
    if (noted.one.is_join) {
      joins[noted.number] = noted.one;
      groups.on_joined(network_.time_.now, noted.number);
    } else {
      finished[noted.one.token].push_back(noted.one);
    }
    Group *const group = groups.find(noted.number);
    if (group != nullptr && group->is_idle() && std::erase(leaving_, noted.number) != 0)
      groups.on_idle(network_.time_.now, *group);
  }
  const uint64_t at = groups.deadline();
  if (looks_ || at == 0) return;
  looks_ = true;
  network_.time_.after(at > network_.time_.now ? at - network_.time_.now : 0, [this] {
    looks_ = false;
    if (!alive) return;
    groups.on_time(network_.time_.now);
    settle();
  });
}

}  // namespace weft::coll

#endif
