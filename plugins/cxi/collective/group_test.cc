// SPDX-License-Identifier: BSD-2-Clause
// Groups of many members in simulated time: packets take as long as the seed says, so they come in
// any order.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "plugin-api/sdk/testing/test_seeds.h"
#include "plugin-api/sdk/testing/test_time.h"
#include "plugins/cxi/collective/groups.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>

namespace weft::cxi {
namespace {

using sdk::kMicrosecond, sdk::kMillisecond, sdk::kSecond;

struct Ended {
  uint64_t token;
  Failure failure;
  Partial result;
};

// An endpoint of the simulation.
struct Endpoint_ {
  std::unique_ptr<Groups> groups;
  bool alive = true;
  std::map<uint64_t, std::vector<Failure>> joins;  // by group
  std::map<uint64_t, std::vector<Ended>> ended;
};

class Simulation {
 public:
  Simulation(uint64_t seed, size_t endpoints, const GroupLimits &limits = {})
      : limits_(limits), random_(seed), endpoints_(endpoints) {
    for (size_t i = 0; i < endpoints; ++i) restart(i);
  }
  void restart(size_t i) {
    endpoints_[i].groups = std::make_unique<Groups>(++incarnations_, limits_);
    endpoints_[i].alive = true;
  }
  Groups &operator[](size_t i) { return *endpoints_[i].groups; }
  Endpoint_ &at(size_t i) { return endpoints_[i]; }
  size_t size() const { return endpoints_.size(); }
  uint64_t now() const { return time_.now; }
  std::mt19937_64 &random() { return random_; }
  void set_longest(uint64_t ns) { longest_ = ns; }

  GroupPlace place(uint32_t rank, uint32_t root = 0) const {
    GroupPlace place;
    place.peers.resize(endpoints_.size());
    std::iota(place.peers.begin(), place.peers.end(), 0);
    place.rank = rank;
    place.root = root;
    place.membership = Groups::membership_of(place.peers, root, false);
    return place;
  }
  uint64_t join(size_t i, uint32_t root = 0) {
    const uint64_t id = (*endpoints_[i].groups).join(now(), place(uint32_t(i), root)).id();
    look(i);
    return id;
  }
  std::vector<uint64_t> join_all(uint32_t root = 0) {
    std::vector<uint64_t> ids(size());
    for (size_t i = 0; i < size(); ++i) ids[i] = join(i, root);
    EXPECT_TRUE(run_until([&] { return joined(ids); }));
    return ids;
  }
  bool joined(const std::vector<uint64_t> &ids) {
    for (size_t i = 0; i < size(); ++i)
      if (endpoints_[i].joins[ids[i]] != std::vector{Failure::kNone}) return false;
    return true;
  }
  int start(size_t i, uint64_t group, const Partial &operand, uint64_t token = 0) {
    Group *const own = endpoints_[i].groups->find(group);
    const int rc = own != nullptr ? own->start(now(), operand, token) : -FI_EINVAL;
    look(i);
    return rc;
  }
  void leave(size_t i, uint64_t group) {
    endpoints_[i].groups->leave(group);
    look(i);
  }
  void kill(size_t i) { endpoints_[i].alive = false; }

  // Sends what the endpoint has to say.
  void look(size_t i) {
    GroupOutput output;
    endpoints_[i].groups->take_output(output);
    for (const GroupOutput::Sent &sent : output.packets) {
      ++packets;
      time_.after(random_() % longest_, [this, i, sent] { arrive(i, sent); });
    }
    for (const GroupOutput::Ended &one : output.ended) {
      if (one.is_join)
        endpoints_[i].joins[one.group].push_back(one.result.failure);
      else
        endpoints_[i].ended[one.group].push_back({one.token, one.result.failure, one.result});
    }
    if (const uint64_t at = endpoints_[i].groups->deadline(); at != 0)
      time_.after(at > now() ? at - now() : 0, [this, i] {
        if (!endpoints_[i].alive || endpoints_[i].groups->deadline() > now() ||
            endpoints_[i].groups->deadline() == 0)
          return;
        endpoints_[i].groups->on_time(now());
        look(i);
      });
  }
  template <class F>
  bool run_until(F done, uint64_t longest = 30 * kSecond) {
    return time_.run_until(done, longest);
  }
  // The number of ended operations of a member.
  size_t count(size_t i, uint64_t group) { return endpoints_[i].ended[group].size(); }

  size_t packets = 0;

 private:
  void arrive(size_t from, const GroupOutput::Sent &sent) {
    // Over the wire, as bytes.
    const auto packet = GroupPacket::parse(sent.packet.bytes());
    ASSERT_TRUE(packet);
    Endpoint_ &to = endpoints_[sent.peer];
    const bool reached = to.alive;
    if (reached) {
      to.groups->on_packet(now(), from, *packet);
      look(sent.peer);
    }
    time_.after(random_() % longest_, [this, from, reached, own = sent.packet] {
      if (!endpoints_[from].alive) return;
      if (reached)
        endpoints_[from].groups->on_reached(own);
      else
        endpoints_[from].groups->on_lost(now(), own);
      look(from);
    });
  }

  const GroupLimits limits_;
  std::mt19937_64 random_;
  sdk::TestTime time_{1000 * kSecond};
  std::vector<Endpoint_> endpoints_;
  uint64_t longest_ = 50 * kMicrosecond;
  uint32_t incarnations_ = 0;
};

Partial number(int64_t value) {
  return Partial::of(Opcode::kSumInt, &value, sizeof value);
}
int64_t value_of(Partial result) {
  int64_t value = 0;
  result.write(&value);
  return value;
}

TEST(Group, OneMemberIsEnough) {
  Simulation simulation(1, 1);
  const auto ids = simulation.join_all();
  EXPECT_EQ(simulation.start(0, ids[0], number(7), 3), 0);
  ASSERT_EQ(simulation.count(0, ids[0]), 1u);
  EXPECT_EQ(value_of(simulation.at(0).ended[ids[0]][0].result), 7);
  EXPECT_EQ(simulation.at(0).ended[ids[0]][0].token, 3u);
}

TEST(Group, AThousandMembers) {
  Simulation simulation(2, 1000);
  const auto ids = simulation.join_all(17);
  const size_t joins = simulation.packets;
  EXPECT_LT(joins, 2500u) << "a packet up and one down for each member";
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(simulation.start(i, ids[i], number(int64_t(i))), 0);
  ASSERT_TRUE(simulation.run_until([&] {
    for (size_t i = 0; i < 1000; ++i)
      if (simulation.count(i, ids[i]) != 1) return false;
    return true;
  }));
  EXPECT_EQ(simulation.packets - joins, 2 * 999u);
  for (size_t i = 0; i < 1000; ++i)
    ASSERT_EQ(value_of(simulation.at(i).ended[ids[i]][0].result), 999 * 1000 / 2);
}

TEST(Group, EightAtATime) {
  Simulation simulation(3, 3);
  const auto ids = simulation.join_all();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(simulation.start(1, ids[1], number(i), uint64_t(i)), 0);
  EXPECT_EQ(simulation.start(1, ids[1], number(8)), -FI_EAGAIN);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(simulation.start(0, ids[0], number(i)), 0);
    EXPECT_EQ(simulation.start(2, ids[2], number(i)), 0);
  }
  ASSERT_TRUE(simulation.run_until([&] { return simulation.count(1, ids[1]) == 8; }));
  for (const Ended &one : simulation.at(1).ended[ids[1]])
    EXPECT_EQ(value_of(one.result), int64_t(3 * one.token));
  EXPECT_EQ(simulation.start(1, ids[1], number(8)), 0);
}

TEST(Group, MembersThatDisagreeAreTold) {
  Simulation simulation(4, 4);
  const auto ids = simulation.join_all();
  for (size_t i = 0; i < 4; ++i) {
    Partial operand = number(1);
    if (i == 3) operand.opcode = Opcode::kMaxInt;
    EXPECT_EQ(simulation.start(i, ids[i], operand), 0);
  }
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(simulation.run_until([&] { return simulation.count(i, ids[i]) == 1; }));
    EXPECT_EQ(simulation.at(i).ended[ids[i]][0].failure, Failure::kMismatch);
  }
}

// Who only takes its time is waited for.
TEST(Group, ALateMemberIsWaitedFor) {
  Simulation simulation(5, 7);
  std::vector<uint64_t> ids(7);
  for (size_t i = 0; i < 7; ++i)
    if (i != 4) ids[i] = simulation.join(i);
  EXPECT_FALSE(simulation.run_until([&] { return simulation.joined(ids); }, 20 * kSecond));
  ids[4] = simulation.join(4);
  EXPECT_TRUE(simulation.run_until([&] { return simulation.joined(ids); }));
  for (size_t i = 0; i < 7; ++i)
    if (i != 1) {
      EXPECT_EQ(simulation.start(i, ids[i], number(1)), 0);
    }
  EXPECT_FALSE(
      simulation.run_until([&] { return simulation.count(0, ids[0]) != 0; }, 20 * kSecond));
  EXPECT_LT(simulation.packets, 7 * 100u) << "and asked seldom";
  EXPECT_EQ(simulation.start(1, ids[1], number(1)), 0);
  EXPECT_TRUE(simulation.run_until([&] { return simulation.count(0, ids[0]) != 0; }));
  EXPECT_EQ(value_of(simulation.at(0).ended[ids[0]][0].result), 7);
}

// But for the limit, where the user has set one.
TEST(Group, ALimitEndsWaiting) {
  Simulation simulation(6, 3, {.limit = 100 * kMillisecond});
  std::vector<uint64_t> ids(3);
  ids[0] = simulation.join(0);
  EXPECT_TRUE(simulation.run_until([&] { return !simulation.at(0).joins[ids[0]].empty(); },
                                   101 * kMillisecond));
  EXPECT_EQ(simulation.at(0).joins[ids[0]][0], Failure::kTimeout);
  simulation.leave(0, ids[0]);
  ids = simulation.join_all();
  EXPECT_EQ(simulation.start(0, ids[0], number(1)), 0);
  EXPECT_EQ(simulation.start(2, ids[2], number(1)), 0);
  for (const size_t i : {size_t{0}, size_t{2}}) {
    EXPECT_TRUE(
        simulation.run_until([&] { return simulation.count(i, ids[i]) == 1; }, 110 * kMillisecond));
    EXPECT_EQ(simulation.at(i).ended[ids[i]][0].failure, Failure::kTimeout);
  }
  EXPECT_TRUE(
      simulation.run_until([&] { return simulation.start(1, ids[1], number(1)) == -FI_ENOTCONN; }));
}

TEST(Group, WhoEndsWhileOthersJoinIsMissed) {
  Simulation simulation(7, 5);
  simulation.kill(1);
  std::vector<uint64_t> ids(5);
  const uint64_t begin = simulation.now();
  for (const size_t i : {0, 2, 3, 4}) ids[i] = simulation.join(i);
  for (const size_t i : {0, 2, 3, 4}) {
    EXPECT_TRUE(simulation.run_until([&] { return !simulation.at(i).joins[ids[i]].empty(); }));
    EXPECT_EQ(simulation.at(i).joins[ids[i]], std::vector{Failure::kGone}) << i;
  }
  EXPECT_GE(simulation.now() - begin, 5 * kSecond) << "it might have been about to start";
  EXPECT_LT(simulation.now() - begin, 8 * kSecond);
}

TEST(Group, AMemberMayStartAnewWhileOthersJoin) {
  Simulation simulation(8, 6);
  std::vector<uint64_t> ids(6);
  for (const size_t i : {0, 2, 3, 4, 5}) ids[i] = simulation.join(i);
  simulation.run_until([] { return false; }, 100 * kMillisecond);
  simulation.kill(3);  // it has asked its parent, 1
  simulation.kill(1);  // and that one has heard it
  simulation.run_until([] { return false; }, 100 * kMillisecond);
  simulation.restart(1);
  simulation.restart(3);
  ids[3] = simulation.join(3);
  ids[1] = simulation.join(1);
  EXPECT_TRUE(simulation.run_until([&] { return simulation.joined(ids); }));
}

TEST(Group, ALeaverIsMissedAtOnce) {
  Simulation simulation(9, 7);
  const auto ids = simulation.join_all();
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(simulation.start(i, ids[i], number(1)), 0);
  for (size_t i = 0; i < 7; ++i)
    EXPECT_TRUE(simulation.run_until([&] { return simulation.count(i, ids[i]) == 1; }));
  simulation.leave(3, ids[3]);
  for (size_t i = 0; i < 7; ++i) {
    if (i == 3) continue;
    const int rc = simulation.start(i, ids[i], number(1));
    ASSERT_TRUE(rc == 0 || rc == -FI_ENOTCONN);
    if (rc == 0) {
      EXPECT_TRUE(
          simulation.run_until([&] { return simulation.count(i, ids[i]) == 2; }, kMillisecond));
      EXPECT_EQ(simulation.at(i).ended[ids[i]][1].failure, Failure::kGone);
    }
    EXPECT_EQ(simulation.at(i).ended[ids[i]][0].failure, Failure::kNone);
  }
}

TEST(Group, StrangersAreIgnored) {
  std::mt19937_64 random(10);
  Simulation simulation(10, 4);
  const auto ids = simulation.join_all();
  simulation.start(1, ids[1], number(1));
  for (int i = 0; i < 100'000; ++i) {
    GroupPacket packet;
    packet.type = GroupPacketType(1 + random() % 6);
    packet.from_rank = uint32_t(random() % 6);
    packet.to_rank = uint32_t(random() % 5);
    packet.from = random() % 2 != 0 ? ids[random() % 4] : random();
    packet.to = random() % 2 != 0 ? ids[random() % 4] : random() % 2;
    packet.membership = random() % 2 != 0 ? simulation.place(0).membership : random();
    packet.sequence = random() % 20;
    packet.partial = number(1);
    // A stranger, and a member that lies.
    simulation[random() % 4].on_packet(simulation.now(), random() % 2 != 0 ? 99 : 2, packet);
    GroupOutput ignored;
    for (size_t k = 0; k < 4; ++k) simulation[k].take_output(ignored);
  }
}

// Several groups over the same members, with up to eight operations each under way. Some members
// leave as soon as they are done, while others still wait for their results; and in every fourth
// seed a member dies.
class RandomGroups {
 public:
  RandomGroups(uint64_t seed, sdk::Scenario &scenario)
      : random_(seed),
        members_(1 + random_() % (seed % 25 == 0 ? 1000 : 40)),
        operations_(members_ > 100 ? 5 : random_() % 40),
        dies_(seed % 4 == 3 && members_ > 1),
        leaves_(random_() % 2 != 0),
        victim_(random_() % members_),
        simulation_(seed, members_) {
    simulation_.set_longest(random_() % 3 == 0 ? 100 * kMillisecond : 50 * kMicrosecond);
    const size_t groups = members_ > 100 ? 1 : 1 + random_() % 3;
    progress_.assign(groups, std::vector<Progress>(members_));
    dies_after_ = 1 + random_() % (operations_ * members_ + 1);
    scenario.add("%zu members, %zu groups, %zu operations, %zu dies: %d, leave: %d", members_,
                 groups, operations_, victim_, int(dies_), int(leaves_));
  }
  void run() {
    join();
    for (int round = 0; round < 200'000 && !all_done(); ++round) {
      for (int k = 0; k < 20; ++k) step();
      pass(random_() % (20 * kMicrosecond));
      if (round % 100 == 99) pass(50 * kMillisecond);
    }
    ASSERT_TRUE(all_done());
    pass(20 * kSecond);
    for (size_t g = 0; g < progress_.size(); ++g)
      for (size_t i = 0; i < members_; ++i)
        if (simulation_.at(i).alive) check(g, i);
  }

 private:
  struct Progress {
    uint64_t id = 0;
    size_t started = 0;
    bool refused = false, left = false;
  };

  void pass(uint64_t ns) {
    simulation_.run_until([] { return false; }, ns);
  }
  // Each member joins in the same order, at a time of its own.
  void join() {
    std::vector<uint32_t> roots;
    for (size_t g = 0; g < progress_.size(); ++g)
      roots.push_back(random_() % 2 != 0 ? 0 : uint32_t(random_() % members_));
    std::vector<size_t> order(members_);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (const size_t i : order) {
      for (size_t g = 0; g < progress_.size(); ++g)
        progress_[g][i].id = simulation_.join(i, roots[g]);
      if (random_() % 8 == 0) pass(random_() % (50 * kMillisecond));
    }
    for (const auto &group : progress_) {
      std::vector<uint64_t> ids;
      for (const Progress &one : group) ids.push_back(one.id);
      ASSERT_TRUE(simulation_.run_until([&] { return simulation_.joined(ids); }));
    }
  }
  // Starts an operation of some member, as far as the window allows.
  void step() {
    const size_t g = random_() % progress_.size(), i = random_() % members_;
    Progress &own = progress_[g][i];
    if (!simulation_.at(i).alive || own.refused || own.left) return;
    if (own.started == operations_) {
      if (!leaves_ || simulation_.count(i, own.id) != operations_) return;
      simulation_.leave(i, own.id);
      own.left = true;
      return;
    }
    const int rc =
        simulation_.start(i, own.id, number(int64_t(i + own.started + 1000 * g)), own.started);
    ASSERT_TRUE(rc == 0 || rc == -FI_EAGAIN || rc == -FI_ENOTCONN) << rc;
    own.refused = rc == -FI_ENOTCONN;
    if (rc != 0) return;
    ++own.started;
    if (++steps_ != dies_after_ || !dies_) return;
    simulation_.kill(victim_);
    dead_ = true;
  }
  bool done(size_t g, size_t i) {
    const Progress &own = progress_[g][i];
    return !simulation_.at(i).alive || own.refused ||
           (own.started == operations_ && simulation_.count(i, own.id) == operations_);
  }
  bool all_done() {
    for (size_t g = 0; g < progress_.size(); ++g)
      for (size_t i = 0; i < members_; ++i)
        if (!done(g, i)) return false;
    return true;
  }
  void check(size_t g, size_t i) {
    const Progress &own = progress_[g][i];
    ASSERT_EQ(simulation_.count(i, own.id), own.started) << "none hangs";
    ASSERT_TRUE(dead_ || !own.refused);
    for (const Ended &one : simulation_.at(i).ended[own.id]) {
      const auto n = int64_t(members_);
      if (one.failure == Failure::kNone) {
        ASSERT_EQ(value_of(one.result), n * (n - 1) / 2 + n * int64_t(one.token + 1000 * g));
      } else {
        ASSERT_TRUE(dead_);
        ASSERT_EQ(one.failure, Failure::kGone);
      }
    }
  }

  std::mt19937_64 random_;
  const size_t members_, operations_;
  const bool dies_, leaves_;
  const size_t victim_;
  Simulation simulation_;
  std::vector<std::vector<Progress>> progress_;
  size_t dies_after_ = 0, steps_ = 0;
  bool dead_ = false;
};

TEST(Group, Seeds) {
  sdk::run_seeds(
      "Group.Seeds", {.usual = 200, .sanitized = 20},
      [](uint64_t seed, sdk::Scenario &scenario) { RandomGroups(seed, scenario).run(); });
}

}  // namespace
}  // namespace weft::cxi
