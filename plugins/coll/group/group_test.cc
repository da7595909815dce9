// SPDX-License-Identifier: BSD-2-Clause
// Groups in simulated time: joining, many operations and groups at once, members that die, leave,
// come late or disagree.
#include "plugins/coll/group/group.h"

#include <gtest/gtest.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "plugin-api/sdk/testing/test_seeds.h"
#include "plugins/coll/group/test_network.h"
#include "plugins/coll/schedule/test_reference.h"

namespace weft::coll {
namespace {

using sdk::kMicrosecond, sdk::kMillisecond, sdk::kSecond;

std::vector<uint32_t> first(uint32_t count) {
  std::vector<uint32_t> members(count);
  std::iota(members.begin(), members.end(), 0);
  return members;
}

// An operation of all members of a group, with their buffers.
class Everybodys {
 public:
  Everybodys(const Task &task, uint32_t members, uint64_t token, int op = FI_SUM)
      : task_(task), token_(token), op_(op) {
    task_.size = members;
    operands_.resize(members);
    results_.resize(members);
  }
  Task of(uint32_t rank) const {
    Task task = task_;
    task.rank = rank;
    return task;
  }
  int start(TestEndpoint &endpoint, Group &group, uint32_t rank) {
    const Reference reference(task_, op_, FI_UINT64);
    operands_[rank] = reference.operand(rank);
    results_[rank] = reference.result_before(rank);
    return endpoint.start(group, {.task = task_,
                                  .op = op_,
                                  .datatype = FI_UINT64,
                                  .operand = operands_[rank].data(),
                                  .result = results_[rank].data(),
                                  .token = token_});
  }
  bool has_ended(TestEndpoint &endpoint) const { return endpoint.finished.contains(token_); }
  Failure failure(TestEndpoint &endpoint) const { return endpoint.finished.at(token_)[0].failure; }
  bool is_right(uint32_t rank) const {
    return results_[rank] == Reference(task_, op_, FI_UINT64).result_after(rank);
  }

 private:
  Task task_;
  const uint64_t token_;
  const int op_;
  std::vector<std::vector<uint8_t>> operands_, results_;
};

void join_all(TestNetwork &network, const std::vector<uint32_t> &members,
              std::vector<Group *> &groups) {
  groups = network.join(members);
  ASSERT_TRUE(network.run_until(
      [&] {
        return std::ranges::all_of(
            groups, [](Group *one) { return one->state() == Group::State::kJoined; });
      },
      kSecond));
}

// A random operation.
Task any_task(std::mt19937_64 &random, uint32_t members) {
  Task task{.coll = static_cast<fi_collective_op>(random() % (FI_GATHER + 1)), .unit = 8};
  if (task.coll != FI_BARRIER) task.count = random() % 4 == 0 ? random() % 3000 : random() % 20;
  if (task.has_root()) task.root = uint32_t(random() % members);
  return task;
}

TEST(CollGroup, FourThousandMembers) {
  constexpr uint32_t kMembers = sdk::kSanitizer == sdk::Sanitizer::kNone ? 4096 : 500;
  TestNetwork network(1, kMembers);
  std::vector<Group *> groups;
  join_all(network, first(kMembers), groups);
  uint64_t token = 0;
  for (const Task &task :
       {Task{.coll = FI_BARRIER}, Task{.coll = FI_BROADCAST, .root = 77},
        Task{.coll = FI_ALLREDUCE}, Task{.coll = FI_ALLREDUCE, .count = 600, .unit = 8}}) {
    Task own = task;
    own.unit = 8;
    if (own.coll != FI_BARRIER && own.count == 0) own.count = 3;
    Everybodys operation(own, kMembers, ++token);
    for (uint32_t rank = 0; rank < kMembers; ++rank)
      ASSERT_EQ(operation.start(network[rank], *groups[rank], rank), 0);
    ASSERT_TRUE(network.run_until(
        [&] {
          return operation.has_ended(network[0]) && operation.has_ended(network[kMembers - 1]) &&
                 operation.has_ended(network[77]);
        },
        kSecond));
    network.run(10 * kMillisecond);
    const Reference reference({.coll = own.coll,
                               .size = kMembers,
                               .root = own.root,
                               .count = own.count,
                               .unit = own.unit},
                              FI_SUM, FI_UINT64);
    for (uint32_t rank = 0; rank < kMembers; ++rank) {
      ASSERT_TRUE(operation.has_ended(network[rank])) << rank;
      ASSERT_EQ(operation.failure(network[rank]), Failure::kNone);
    }
    for (const uint32_t rank : {0u, 3u, 77u, kMembers - 1}) EXPECT_TRUE(operation.is_right(rank));
  }
}

Placement placement_of_four(const std::array<bool, 4> &one_host, const std::array<Cpus, 4> &cpus) {
  TestNetwork network(9, 4);
  std::vector<Group *> groups;
  for (uint32_t rank = 0; rank < 4; ++rank)
    groups.push_back(network.join(first(4), rank, one_host[rank], cpus[rank]));
  network.run(kSecond);
  for (Group *const one : groups) EXPECT_EQ(one->placement(), groups[0]->placement());
  return groups[0]->placement();
}

TEST(CollGroup, MembersAgreeOnWhereTheyAre) {
  using enum Placement;
  const std::array all{true, true, true, true};
  const Cpus none, one{1, 5}, three{3, 0}, four{4, 0};
  EXPECT_EQ(placement_of_four(all, {four, four, four, four}), kHost);
  EXPECT_EQ(placement_of_four(all, {three, three, three, three}), kCrowd);
  EXPECT_EQ(placement_of_four(all, {four, four, three, four}), kHost);
  EXPECT_EQ(placement_of_four(all, {three, three, three, one}), kHost);
  EXPECT_EQ(placement_of_four(all, {Cpus{1, 0}, Cpus{1, 64}, Cpus{1, 128}, Cpus{1, 192}}), kHost)
      << "each is bound to one of its own";
  EXPECT_EQ(placement_of_four(all, {one, one, Cpus{1, 6}, Cpus{1, 6}}), kCrowd);
  EXPECT_EQ(placement_of_four(all, {three, none, three, three}), kHost) << "one does not know";
  EXPECT_EQ(placement_of_four({true, true, false, true}, {three, three, three, three}), kHosts);
}

// Where they are decides on the algorithm, and one of them could not find out.
TEST(CollGroup, MembersDisagreeOnWhereTheyAre) {
  for (uint32_t ignorant = 0; ignorant <= 4; ++ignorant) {
    TestNetwork network(3 + ignorant, 4);
    std::vector<Group *> groups;
    for (uint32_t rank = 0; rank < 4; ++rank)
      groups.push_back(network.join(first(4), rank, rank != ignorant, {1, 0}));
    network.run(kSecond);
    Everybodys broadcast({.coll = FI_BROADCAST, .root = 1, .count = 8192, .unit = 8}, 4, 1);
    for (uint32_t rank = 0; rank < 4; ++rank)
      ASSERT_EQ(broadcast.start(network[rank], *groups[rank], rank), 0);
    network.run(kSecond);
    for (uint32_t rank = 0; rank < 4; ++rank) {
      ASSERT_TRUE(broadcast.has_ended(network[rank])) << ignorant << ' ' << rank;
      EXPECT_TRUE(broadcast.is_right(rank));
    }
  }
}

TEST(CollGroup, NobodyPassesABarrierBeforeAll) {
  TestNetwork network(2, 13);
  std::vector<Group *> groups;
  join_all(network, first(13), groups);
  for (uint32_t late = 0; late < 13; ++late) {
    Everybodys barrier({.coll = FI_BARRIER}, 13, 100 + late);
    for (uint32_t rank = 0; rank < 13; ++rank)
      if (rank != late) barrier.start(network[rank], *groups[rank], rank);
    network.run(5 * kSecond);  // with questions in between
    for (uint32_t rank = 0; rank < 13; ++rank) ASSERT_FALSE(barrier.has_ended(network[rank]));
    barrier.start(network[late], *groups[late], late);
    network.run(kMillisecond);
    for (uint32_t rank = 0; rank < 13; ++rank)
      ASSERT_EQ(barrier.failure(network[rank]), Failure::kNone);
  }
}

// Each member starts its operations in the group's order, but whenever it likes.
void run_many(uint64_t seed, sdk::Scenario &scenario) {
  std::mt19937_64 random(seed);
  const uint32_t endpoints = uint32_t(1 + random() % 24);
  TestNetwork network(seed, endpoints);
  scenario.add("%u endpoints", endpoints);
  std::deque<Everybodys> operations;
  struct Planned {
    uint64_t at;
    uint32_t endpoint, rank;
    Group *group;
    Everybodys *operation;
  };
  std::vector<Planned> plan;
  for (int g = 0; g < 4; ++g) {
    std::vector<uint32_t> members = first(endpoints);
    std::ranges::shuffle(members, random);
    members.resize(1 + random() % endpoints);
    std::vector<Group *> groups;
    join_all(network, members, groups);
    if (testing::Test::HasFatalFailure()) return;
    std::vector<uint64_t> times(members.size(), 0);
    for (int i = 0; i < 12; ++i) {
      const auto size = uint32_t(members.size());
      operations.emplace_back(any_task(random, size), size, operations.size() + 1);
      for (uint32_t rank = 0; rank < size; ++rank)
        plan.push_back({times[rank] += random() % (50 * kMicrosecond), members[rank], rank,
                        groups[rank], &operations.back()});
    }
  }
  for (const Planned &one : plan)
    network.time().after(one.at, [&network, one] {
      EXPECT_EQ(one.operation->start(network[one.endpoint], *one.group, one.rank), 0);
    });
  network.run(100 * kMillisecond);
  for (const Planned &one : plan) {
    ASSERT_TRUE(one.operation->has_ended(network[one.endpoint]));
    ASSERT_EQ(one.operation->failure(network[one.endpoint]), Failure::kNone);
    ASSERT_TRUE(one.operation->is_right(one.rank)) << name_of(one.operation->of(0).coll);
  }
  for (uint32_t i = 0; i < endpoints; ++i) EXPECT_EQ(network[i].in_flight, 0u);
}

TEST(CollGroup, ManyOperationsAndGroupsAtOnce) {
  sdk::run_seeds("CollGroup.ManyOperationsAndGroupsAtOnce", {.usual = 400, .sanitized = 40},
                 run_many);
}

// Members die at any time, joining ones too. All others end what they have started, in bounded
// time: a failure at each that waits, and the right result where there is none.
void run_deaths(uint64_t seed, sdk::Scenario &scenario) {
  std::mt19937_64 random(seed);
  const uint32_t members = uint32_t(2 + random() % 30);
  TestNetwork network(seed, members);
  const uint32_t deaths = uint32_t(1 + random() % std::min(3u, members - 1));
  const bool early = random() % 4 == 0;
  scenario.add("%u members, %u deaths%s", members, deaths, early ? ", while they join" : "");
  std::vector<Group *> groups;
  if (early)
    groups = network.join(first(members));
  else
    join_all(network, first(members), groups);
  std::vector<uint32_t> dead = first(members);
  std::ranges::shuffle(dead, random);
  dead.resize(deaths);
  for (const uint32_t one : dead)
    network.time().after(random() % (100 * kMicrosecond), [&network, one] { network.kill(one); });
  std::deque<Everybodys> operations;
  std::vector<std::vector<size_t>> started(members);
  for (size_t i = 0; !early && i < 8; ++i) {
    operations.emplace_back(any_task(random, members), members, i + 1);
    for (uint32_t rank = 0; rank < members; ++rank)
      network.time().after(i * 20 * kMicrosecond + random() % (20 * kMicrosecond), [&, rank, i] {
        if (network[rank].alive && operations[i].start(network[rank], *groups[rank], rank) == 0)
          started[rank].push_back(i);
      });
  }
  network.run(3 * network.limits().probe);
  for (uint32_t rank = 0; rank < members; ++rank) {
    if (!network[rank].alive) continue;
    if (early) {
      ASSERT_TRUE(network[rank].joins.contains(groups[rank]->number())) << rank;
    }
    for (const size_t i : started[rank]) {
      ASSERT_TRUE(operations[i].has_ended(network[rank])) << "rank " << rank << " operation " << i;
      const Failure failure = operations[i].failure(network[rank]);
      ASSERT_TRUE(failure == Failure::kNone || failure == Failure::kGone);
      if (failure == Failure::kNone) {
        ASSERT_TRUE(operations[i].is_right(rank));
      }
    }
  }
  // A barrier, in which all miss the dead: it fails at all, at once or soon.
  Everybodys last({.coll = FI_BARRIER}, members, 1000);
  for (uint32_t rank = 0; rank < members; ++rank) {
    if (!network[rank].alive || groups[rank]->state() == Group::State::kFailed) continue;
    EXPECT_EQ(last.start(network[rank], *groups[rank], rank), 0);
  }
  network.run(3 * network.limits().probe);
  for (uint32_t rank = 0; rank < members; ++rank) {
    if (!network[rank].alive) continue;
    EXPECT_EQ(groups[rank]->state(), Group::State::kFailed) << rank;
    EXPECT_EQ(network[rank].in_flight, 0u);
    EXPECT_EQ(last.start(network[rank], *groups[rank], rank), -FI_ENOTCONN);
  }
}

TEST(CollGroup, AMemberThatDiesEndsAllOperations) {
  sdk::run_seeds("CollGroup.AMemberThatDiesEndsAllOperations", {.usual = 1000, .sanitized = 100},
                 run_deaths);
}

TEST(CollGroup, ThousandsHearOfADeathWithinTwoQuestions) {
  constexpr uint32_t kMembers = 2048;
  TestNetwork network(3, kMembers);
  std::vector<Group *> groups;
  join_all(network, first(kMembers), groups);
  network.kill(1234);
  Everybodys barrier({.coll = FI_BARRIER}, kMembers, 1);
  for (uint32_t rank = 0; rank < kMembers; ++rank)
    if (rank != 1234) barrier.start(network[rank], *groups[rank], rank);
  network.run(network.limits().probe + 20 * kMillisecond);
  for (uint32_t rank = 0; rank < kMembers; ++rank) {
    if (rank == 1234) continue;
    ASSERT_TRUE(barrier.has_ended(network[rank])) << rank;
    ASSERT_EQ(barrier.failure(network[rank]), Failure::kGone);
    ASSERT_EQ(network[rank].finished[1][0].culprit, 1234u);
  }
}

TEST(CollGroup, AMemberThatLeavesIsMissed) {
  TestNetwork network(4, 6);
  std::vector<Group *> groups;
  join_all(network, first(6), groups);
  network[2].leave(*groups[2]);
  Everybodys barrier({.coll = FI_BARRIER}, 6, 1);
  for (const uint32_t rank : {0u, 1u, 3u, 4u, 5u})
    EXPECT_EQ(barrier.start(network[rank], *groups[rank], rank), 0);
  network.run(2 * network.limits().probe);
  for (const uint32_t rank : {0u, 1u, 3u, 4u, 5u})
    EXPECT_EQ(barrier.failure(network[rank]), Failure::kGone);
}

TEST(CollGroup, LeavingCancelsWhatIsUnderWay) {
  TestNetwork network(5, 3);
  std::vector<Group *> groups;
  join_all(network, first(3), groups);
  Everybodys sum({.coll = FI_ALLREDUCE, .count = 500, .unit = 8}, 3, 1);
  for (const uint32_t rank : {0u, 1u}) sum.start(network[rank], *groups[rank], rank);
  const uint32_t number = groups[1]->number();
  network[1].leave(*groups[1]);
  network.run(kMillisecond);  // nobody has to ask
  EXPECT_EQ(sum.failure(network[1]), Failure::kCanceled);
  EXPECT_EQ(sum.failure(network[0]), Failure::kGone);
  EXPECT_EQ(network[1].groups.find(number), nullptr);
  EXPECT_EQ(sum.start(network[2], *groups[2], 2), -FI_ENOTCONN);
}

TEST(CollGroup, WhoComesTooLateEndsItForAll) {
  GroupLimits limits;
  limits.deadline = 2 * kSecond;
  TestNetwork network(6, 5, limits);
  std::vector<Group *> groups;
  join_all(network, first(5), groups);
  Everybodys barrier({.coll = FI_BARRIER}, 5, 1);
  for (const uint32_t rank : {0u, 1u, 2u, 4u}) barrier.start(network[rank], *groups[rank], rank);
  network.run(limits.deadline - limits.probe);
  for (const uint32_t rank : {0u, 1u, 2u, 4u}) EXPECT_FALSE(barrier.has_ended(network[rank]));
  network.run(2 * limits.probe);
  for (const uint32_t rank : {0u, 1u, 2u, 4u})
    EXPECT_EQ(barrier.failure(network[rank]), Failure::kTimeout);
  EXPECT_EQ(barrier.start(network[3], *groups[3], 3), -FI_ENOTCONN);
}

TEST(CollGroup, MembersThatDisagreeAreTold) {
  for (const uint64_t count : {2u, 5u, 4000u}) {
    TestNetwork network(7, 4);
    std::vector<Group *> groups;
    join_all(network, first(4), groups);
    Everybodys right({.coll = FI_ALLREDUCE, .count = 4, .unit = 8}, 4, 1);
    Everybodys wrong({.coll = FI_ALLREDUCE, .count = count, .unit = 8}, 4, 1);
    for (uint32_t rank = 0; rank < 4; ++rank)
      (rank == 3 ? wrong : right).start(network[rank], *groups[rank], rank);
    network.run(3 * network.limits().probe);
    if (count == 4000) continue;  // another algorithm: they wait for each other, until the deadline
    for (uint32_t rank = 0; rank < 4; ++rank)
      EXPECT_EQ(right.failure(network[rank]), Failure::kMismatch) << rank << " " << count;
  }
}

TEST(CollGroup, MembersWithAnotherTableOfAlgorithmsCannotJoin) {
  TestNetwork network(8, 3);
  const std::string item = "allreduce=ring";
  network[1].choice = *Choice::with({&item, 1});
  const std::vector<Group *> groups = network.join(first(3));
  network.run(kMillisecond);
  for (uint32_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(network[rank].joins.at(groups[rank]->number()).failure, Failure::kMismatch);
}

TEST(CollGroup, JoinsOfTheSameMembersFollowEachOther) {
  TestNetwork network(9, 7);
  const std::vector<uint32_t> members = {6, 2, 4, 0, 1};
  std::vector<std::vector<Group *>> groups(5, std::vector<Group *>(members.size()));
  for (uint32_t rank = 0; rank < members.size(); ++rank)
    network.time().after(rank * 37 * kMicrosecond, [&, rank] {
      for (auto &group : groups) group[rank] = network.join(members, rank);
    });
  network.run(10 * kMillisecond);
  for (size_t g = 0; g < groups.size(); ++g) {
    Everybodys sum({.coll = FI_ALLREDUCE, .count = g + 1, .unit = 8}, uint32_t(members.size()),
                   g + 1);
    for (uint32_t rank = 0; rank < members.size(); ++rank) {
      ASSERT_EQ(groups[g][rank]->state(), Group::State::kJoined);
      ASSERT_EQ(sum.start(network[members[rank]], *groups[g][rank], rank), 0);
    }
    network.run(kMillisecond);
    for (uint32_t rank = 0; rank < members.size(); ++rank) EXPECT_TRUE(sum.is_right(rank));
  }
}

TEST(CollGroup, OperandAndResultMayBeTheSame) {
  TestNetwork network(10, 5);
  std::vector<Group *> groups;
  join_all(network, first(5), groups);
  for (const fi_collective_op coll : {FI_ALLREDUCE, FI_ALLTOALL, FI_REDUCE}) {
    const Task task{.coll = coll, .size = 5, .count = 3, .unit = 8};
    const Reference reference(task, FI_SUM, FI_UINT64);
    std::vector<std::vector<uint8_t>> data;
    for (uint32_t rank = 0; rank < 5; ++rank) data.push_back(reference.operand(rank));
    for (uint32_t rank = 0; rank < 5; ++rank)
      ASSERT_EQ(network[rank].start(*groups[rank], {.task = task,
                                                    .op = FI_SUM,
                                                    .datatype = FI_UINT64,
                                                    .operand = data[rank].data(),
                                                    .result = data[rank].data()}),
                0);
    network.run(kMillisecond);
    EXPECT_EQ(data[0], reference.result_after(0)) << name_of(coll);
  }
}

TEST(CollGroup, WhatMakesNoSenseIsRefused) {
  TestNetwork network(11, 2);
  std::vector<Group *> groups = network.join(first(2));
  const Call barrier{.task = {.coll = FI_BARRIER}};
  EXPECT_EQ(groups[0]->start(0, barrier), -FI_EAGAIN) << "it has not joined yet";
  network.run(kMillisecond);
  uint64_t value = 1;
  const Call good{.task = {.coll = FI_ALLREDUCE, .count = 1, .unit = 8},
                  .op = FI_SUM,
                  .datatype = FI_UINT64,
                  .operand = &value,
                  .result = &value};
  const auto refused = [&](auto change) {
    Call call = good;
    change(call);
    return groups[0]->start(network.time().now, call) == -FI_EINVAL;
  };
  EXPECT_TRUE(refused([](Call &call) { call.operand = nullptr; }));
  EXPECT_TRUE(refused([](Call &call) { call.result = nullptr; }));
  EXPECT_TRUE(refused([](Call &call) { call.task.count = UINT64_MAX; }));
  EXPECT_TRUE(refused([](Call &call) { call.task = {.coll = FI_REDUCE, .root = 2}; }));
  EXPECT_TRUE(groups[0]->is_idle());
  for (size_t i = 0; i < Group::kWindow; ++i) ASSERT_EQ(network[0].start(*groups[0], barrier), 0);
  EXPECT_EQ(network[0].start(*groups[0], barrier), -FI_EAGAIN) << "too many at once";
  for (size_t i = 0; i < Group::kWindow; ++i) ASSERT_EQ(network[1].start(*groups[1], barrier), 0);
  network.run(kSecond);
  EXPECT_EQ(network[0].finished[0].size(), Group::kWindow);
}

TEST(CollGroup, TagsHaveRoomForTheLargestGroup) {
  for (int coll = FI_BARRIER; coll <= FI_GATHER; ++coll) {
    for (int algorithm = 0; algorithm <= int(Algorithm::kPairwise); ++algorithm) {
      const auto schedule = Schedule::of({.coll = static_cast<fi_collective_op>(coll),
                                          .algorithm = Algorithm(algorithm),
                                          .size = Schedule::kMaxMembers,
                                          .count = Schedule::kMaxMembers});
      if (!schedule) continue;
      for (uint32_t back = 1; back <= std::min(schedule->rounds(), 3u); ++back) {
        Round round;
        schedule->round(schedule->rounds() - back, round);
        for (const Transfer &one : round.transfers) ASSERT_LT(one.label, kLabels);
      }
    }
  }
}

// Members whose oldest operation waits would use the tags of its messages again.
TEST(CollGroup, OperationsWaitForTheOldest) {
  TestNetwork network(18, 3);
  std::vector<Group *> groups;
  join_all(network, first(3), groups);
  Everybodys oldest({.coll = FI_BARRIER}, 3, 1);
  EXPECT_EQ(oldest.start(network[0], *groups[0], 0), 0);
  // The root of a broadcast waits for nobody.
  Everybodys broadcast({.coll = FI_BROADCAST, .root = 0, .count = 1, .unit = 8}, 3, 2);
  for (uint64_t i = 1; i < Group::kWindow; ++i) {
    ASSERT_EQ(broadcast.start(network[0], *groups[0], 0), 0) << i;
    network.run(kMicrosecond);
  }
  EXPECT_EQ(network[0].finished[2].size(), Group::kWindow - 1);
  EXPECT_EQ(broadcast.start(network[0], *groups[0], 0), -FI_EAGAIN);
  for (const uint32_t rank : {1u, 2u})
    EXPECT_EQ(oldest.start(network[rank], *groups[rank], rank), 0);
  network.run(kMillisecond);
  EXPECT_EQ(oldest.failure(network[0]), Failure::kNone);
  EXPECT_EQ(broadcast.start(network[0], *groups[0], 0), 0);
}

// Of the group of all four, member 2 tells member 0 a number of member 3 that is another group's
// there. What 0 sends 3 is not taken for a message of that one.
TEST(CollGroup, ALiarTouchesNoGroupOfOthers) {
  TestNetwork network(16, 4);
  const std::vector<uint32_t> two = {0, 3};
  std::vector<Group *> honest, all;
  join_all(network, two, honest);
  constexpr size_t kHello = 28, kNumberAt = 16;
  network.tamper(2, [](uint32_t to, uint64_t &, std::vector<uint8_t> &bytes) {
    if (to == 0 && bytes.size() == 2 * kHello) bytes[kHello + kNumberAt] = 1;
  });
  ASSERT_EQ(honest[1]->number(), 1u);
  join_all(network, first(4), all);
  Everybodys reduce({.coll = FI_REDUCE, .root = 3, .count = 1, .unit = 8}, 4, 1);
  ASSERT_EQ(reduce.start(network[0], *all[0], 0), 0);
  network.run(kMillisecond);
  Everybodys sum({.coll = FI_ALLREDUCE, .count = 1, .unit = 8}, 2, 2);
  for (uint32_t rank = 0; rank < 2; ++rank)
    ASSERT_EQ(sum.start(network[two[rank]], *honest[rank], rank), 0);
  network.run(kMillisecond);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(sum.has_ended(network[two[rank]]));
    EXPECT_EQ(sum.failure(network[two[rank]]), Failure::kNone);
    EXPECT_TRUE(sum.is_right(rank)) << "a sum of other data";
  }
}

// A packet of a member, as `from_rank` says.
Packet packet_of(const Group &group, PacketType type, uint32_t from_rank, uint32_t to) {
  return {.type = type,
          .why = Failure::kGone,
          .from_rank = from_rank,
          .culprit = from_rank,
          .from = group.number(),
          .to = to,
          .membership = group.place().membership};
}

void expect_sum(TestNetwork &network, const std::vector<Group *> &groups) {
  const auto size = uint32_t(groups.size());
  Everybodys sum({.coll = FI_ALLREDUCE, .count = 4, .unit = 8}, size, 1);
  for (uint32_t rank = 0; rank < size; ++rank)
    ASSERT_EQ(sum.start(network[rank], *groups[rank], rank), 0) << rank;
  network.run(kMillisecond);
  for (uint32_t rank = 0; rank < size; ++rank) {
    ASSERT_TRUE(sum.has_ended(network[rank])) << rank;
    EXPECT_TRUE(sum.is_right(rank)) << rank;
  }
}

// Whatever comes as a packet of a group does no harm, if it is not of the member that it names: of
// others, and of members in the name of another.
TEST(CollGroup, PacketsOfOthersAreDropped) {
  TestNetwork network(12, 3);
  std::vector<Group *> groups;
  join_all(network, first(3), groups);
  std::mt19937_64 &random = network.random();
  for (int i = 0; i < 20000; ++i) {
    const uint32_t from_rank = uint32_t(random() % 5), source = uint32_t(random() % 5);
    const Packet packet{.type = PacketType(1 + random() % 3),
                        .why = Failure(random() % 5),
                        .from_rank = from_rank,
                        .culprit = uint32_t(random() % 5),
                        .from = uint32_t(random() % 4),
                        .to = uint32_t(random() % 4),
                        .membership = groups[0]->place().membership + random() % 2};
    const bool is_members =
        from_rank == source && from_rank < 3 && packet.membership == groups[0]->place().membership;
    if (is_members && packet.type != PacketType::kProbe) continue;
    network[0].groups.on_packet(network.time().now, packet, TestEndpoint::address_of(source));
  }
  EXPECT_FALSE(Packet::parse({}));
  expect_sum(network, groups);
}

// It asks groups that have failed or were left, and does not read the answers.
TEST(CollGroup, AMemberThatDoesNotReadIsNotAnsweredTwice) {
  for (const bool is_left : {false, true}) {
    TestNetwork network(17, 3);
    std::vector<Group *> groups;
    join_all(network, first(3), groups);
    const Packet probe = packet_of(*groups[2], PacketType::kProbe, 2, groups[0]->number());
    network.deafen(2);
    if (is_left)
      network[0].leave(*groups[0]);
    else
      network[1].leave(*groups[1]);
    Everybodys barrier({.coll = FI_BARRIER}, 3, 1);
    if (!is_left) barrier.start(network[0], *groups[0], 0);
    network.run(2 * network.limits().probe);
    for (int i = 0; i < 1000; ++i) {
      network[0].groups.on_packet(network.time().now, probe, TestEndpoint::address_of(2));
      network.run(kMillisecond);
    }
    EXPECT_GE(network[0].telling, 1u);
    EXPECT_LE(network[0].telling, 3u) << "one of a kind";
  }
}

TEST(CollGroup, AMemberMaySpeakForItself) {
  for (const PacketType type : {PacketType::kGone, PacketType::kAbort}) {
    TestNetwork network(13, 3);
    std::vector<Group *> groups;
    join_all(network, first(3), groups);
    const Packet packet = packet_of(*groups[2], type, 2, groups[0]->number());
    EXPECT_FALSE(network[0].groups.on_packet(0, packet, TestEndpoint::address_of(1)));
    EXPECT_EQ(groups[0]->state(), Group::State::kJoined);
    EXPECT_TRUE(network[0].groups.on_packet(0, packet, TestEndpoint::address_of(2)));
    EXPECT_EQ(groups[0]->state(), Group::State::kFailed);
  }
}

// What comes before the group is known here counts if it was a member's.
TEST(CollGroup, EarlyPacketsOfOthersAreDropped) {
  for (const uint32_t source : {1u, 2u, 7u}) {
    TestNetwork network(14, 3);
    const Group other(1, TestNetwork::place(first(3), 2), {}, network[2].choice, network[2]);
    const Packet packet = packet_of(other, PacketType::kAbort, 2, 0);
    network[0].groups.on_packet(network.time().now, packet, TestEndpoint::address_of(source));
    const std::vector<Group *> groups = network.join(first(3));
    EXPECT_EQ(groups[0]->state() == Group::State::kFailed, source == 2);
    network.run(kMillisecond);
    if (source != 2) expect_sum(network, groups);
  }
}

TEST(CollGroup, EarlyPacketsOfOneDoNotPushOutThoseOfAnother) {
  TestNetwork network(15, 3);
  Groups &groups = network[0].groups;
  const Group other(1, TestNetwork::place(first(3), 2), {}, network[2].choice, network[2]);
  Packet packet = packet_of(other, PacketType::kAbort, 2, 0);
  groups.on_packet(network.time().now, packet, TestEndpoint::address_of(2));
  for (size_t i = 0; i < 2 * Groups::kMaxEarly; ++i) {
    ++packet.membership;
    groups.on_packet(network.time().now, packet, TestEndpoint::address_of(1));
  }
  EXPECT_EQ(groups.early(), 1 + Groups::kMaxEarlyOfOne);
  EXPECT_EQ(network.join(first(3), 0)->state(), Group::State::kFailed);
  for (uint64_t i = 0; i < 2 * Groups::kMaxEarly; ++i)
    groups.on_packet(network.time().now, packet, TestEndpoint::address_of(3 + i));
  EXPECT_EQ(groups.early(), Groups::kMaxEarly);
}

}  // namespace
}  // namespace weft::coll
