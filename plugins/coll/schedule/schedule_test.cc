// SPDX-License-Identifier: BSD-2-Clause
// All algorithms against a plain reference: groups of 1 to 40 members, sizes around edges, and
// members that run in any order.
#include "plugins/coll/schedule/schedule.h"

#include <gtest/gtest.h>
#include <weft/sdk/transfers/atomic.h>
#include <weft/sdk/transfers/reduce.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "plugin-api/sdk/testing/test_rounds.h"
#include "plugins/coll/schedule/test_reference.h"

namespace weft::coll {
namespace {

using Key = std::tuple<uint32_t, uint32_t, uint32_t>;  // from, to, label
using Network = std::map<Key, std::vector<uint8_t>>;

// One member: an executor that does as much as it can when it is called.
class Member {
 public:
  Member(const Task &task, Network &network, const Reference &reference)
      : schedule_(*Schedule::of(task)),
        network_(network),
        reference_(reference),
        operand_(reference.operand(task.rank)),
        result_(task.in_place ? operand_ : reference.result_before(task.rank)),
        scratch_(schedule_.scratch()) {
    EXPECT_EQ(operand_.size(), operand_bytes(task));
    EXPECT_EQ(result_.size(), result_bytes(task));
    enter();
  }
  bool done() const { return at_ == schedule_.rounds(); }
  bool advance() {
    bool moved = false;
    while (!done() && take()) {
      for (const LocalStep &step : round_.steps) run(step);
      ++at_;
      enter();
      moved = true;
    }
    return moved;
  }
  const std::vector<uint8_t> &result() const { return result_; }

 private:
  void enter() {
    round_.clear();
    if (done()) return;
    schedule_.round(at_, round_);
    const uint32_t rank = schedule_.task().rank;
    for (const LocalStep &step : round_.before) run(step);
    for (const Transfer &one : round_.transfers) {
      EXPECT_NE(one.peer, rank);
      EXPECT_LT(one.peer, schedule_.task().size);
      if (!one.sends) continue;
      const uint8_t *const from = bytes(one.slice);
      const bool is_new =
          network_.try_emplace({rank, one.peer, one.label}, from, from + one.slice.bytes).second;
      EXPECT_TRUE(is_new && labels_.insert({one.peer, one.label}).second)
          << "a label is used twice";
    }
  }
  bool take() {
    const uint32_t rank = schedule_.task().rank;
    for (Transfer &one : round_.transfers) {
      if (one.sends) continue;
      const auto found = network_.find({one.peer, rank, one.label});
      if (found == network_.end()) return false;
      EXPECT_EQ(found->second.size(), one.slice.bytes);
      std::ranges::copy(found->second, bytes(one.slice));
      network_.erase(found);
      one.sends = true;  // is done
    }
    return true;
  }
  void run(const LocalStep &step) {
    uint8_t *const into = bytes(step.into), *const left = bytes(step.left);
    if (!step.reduces)
      std::memmove(into, left, step.into.bytes);
    else
      sdk::reduce_execute(reference_.op(), reference_.datatype(), into, left, bytes(step.right),
                          step.into.bytes / schedule_.task().unit);
  }
  uint8_t *bytes(const Slice &slice) {
    std::vector<uint8_t> &all = slice.place == Place::kOperand  ? operand_
                                : slice.place == Place::kResult ? result_
                                                                : scratch_;
    EXPECT_LE(slice.at + slice.bytes, all.size());
    return all.data() + slice.at;
  }

  const Schedule schedule_;
  Network &network_;
  const Reference &reference_;
  std::vector<uint8_t> operand_, result_, scratch_;
  Round round_;
  uint32_t at_ = 0;
  std::set<std::pair<uint32_t, uint32_t>> labels_;
};

void run_all(const Task &task, int op, int datatype, std::mt19937_64 &random) {
  const Reference reference(task, op, datatype);
  Network network;
  std::deque<Member> members;
  for (uint32_t rank = 0; rank < task.size; ++rank) {
    Task own = task;
    own.rank = rank;
    own.in_place = task.coll == FI_ALLREDUCE && random() % 3 == 0;
    members.emplace_back(own, network, reference);
  }
  std::vector<uint32_t> order(task.size);
  for (uint32_t i = 0; i < task.size; ++i) order[i] = i;
  for (bool moved = true; moved;) {
    moved = false;
    std::ranges::shuffle(order, random);
    for (const uint32_t rank : order) moved |= members[rank].advance();
  }
  for (uint32_t rank = 0; rank < task.size; ++rank) {
    ASSERT_TRUE(members[rank].done()) << "rank " << rank;
    ASSERT_TRUE(members[rank].result() == reference.result_after(rank)) << "rank " << rank;
  }
  EXPECT_TRUE(network.empty()) << "messages that nobody takes";
}

struct Case {
  fi_collective_op coll;
  Algorithm algorithm;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (int coll = FI_BARRIER; coll <= FI_GATHER; ++coll)
    for (int algorithm = 0; algorithm <= int(Algorithm::kPairwise); ++algorithm) {
      const Case one{static_cast<fi_collective_op>(coll), Algorithm(algorithm)};
      if (Schedule::of({.coll = one.coll, .algorithm = one.algorithm})) cases.push_back(one);
    }
  return cases;
}

class CollSchedule : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Algorithms, CollSchedule, ::testing::ValuesIn(all_cases()),
                         [](const auto &one) {
                           return std::string(name_of(one.param.coll)) + "_" +
                                  std::string(name_of(one.param.algorithm));
                         });

TEST_P(CollSchedule, DoesWhatTheReferenceDoes) {
  std::mt19937_64 random(1);
  for (uint32_t size = 1; size <= 40; ++size) {
    const std::vector<uint64_t> counts =
        size <= 9 ? std::vector<uint64_t>{0, 1, 2, size - 1, size, size + 1, 3 * size + 2, 257}
                  : std::vector<uint64_t>{0, 1, size - 1, size + 1};
    for (const uint64_t count : counts) {
      Task task{.coll = GetParam().coll,
                .algorithm = GetParam().algorithm,
                .size = size,
                .count = count,
                .unit = 8};
      const uint32_t roots = task.has_root() ? size : 1;
      const uint32_t stride = size <= 9 ? 1 : 7;
      for (task.root = 0; task.root < roots; task.root += stride) {
        SCOPED_TRACE("members " + std::to_string(size) + " count " + std::to_string(count) +
                     " root " + std::to_string(task.root));
        run_all(task, FI_SUM, FI_UINT64, random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(CollSchedule, LargeGroups) {
  std::mt19937_64 random(2);
  const bool is_long = GetParam().algorithm == Algorithm::kRing ||
                       GetParam().algorithm == Algorithm::kPairwise ||
                       GetParam().algorithm == Algorithm::kLeaders ||
                       GetParam().algorithm == Algorithm::kScatterAllgather;
  const uint32_t largest = sdk::kSanitizer == sdk::Sanitizer::kNone ? 1025 : 513;
  for (const uint32_t size : {127u, 200u, is_long ? 255u : largest}) {
    Task task{.coll = GetParam().coll,
              .algorithm = GetParam().algorithm,
              .size = size,
              .root = GetParam().coll == FI_BROADCAST ? size - 1 : 0,
              .count = 1,
              .unit = 4};
    SCOPED_TRACE(size);
    run_all(task, FI_MAX, FI_INT32, random);
    if (HasFatalFailure()) return;
  }
}

// Data of many pieces, the last one longer or shorter than the others.
TEST(CollSchedulePieces, ABroadcastAlongAChain) {
  std::mt19937_64 random(3);
  for (const uint64_t count : {50'000u, 131'072u, 200'001u})
    for (const uint32_t size : {2u, 3u, 8u})
      run_all({.coll = FI_BROADCAST,
               .algorithm = Algorithm::kPipeline,
               .size = size,
               .root = size / 2,
               .count = count,
               .unit = 8},
              FI_SUM, FI_UINT64, random);
}

// The results of all members are equal, whatever the operation makes of the order of its operands.
TEST(CollScheduleTypes, AllMembersHaveEqualResults) {
  for (const Algorithm algorithm : {Algorithm::kLeaders, Algorithm::kRecursiveDoubling,
                                    Algorithm::kRabenseifner, Algorithm::kRing})
    for (const int datatype : {FI_FLOAT, FI_DOUBLE})
      for (const int op : {FI_SUM, FI_PROD, FI_MIN, FI_MAX})
        for (uint32_t size = 1; size <= 19; ++size) {
          Task task{.coll = FI_ALLREDUCE, .algorithm = algorithm, .size = size, .count = 23};
          task.unit = uint32_t(sdk::datatype_size(datatype));
          const Reference reference(task, op, datatype, Reference::kAnyNumbers);
          Network network;
          std::deque<Member> members;
          for (task.rank = 0; task.rank < size; ++task.rank)
            members.emplace_back(task, network, reference);
          for (bool moved = true; moved;) {
            moved = false;
            for (Member &one : members) moved |= one.advance();
          }
          for (Member &one : members) {
            ASSERT_TRUE(one.done());
            ASSERT_EQ(one.result(), members[0].result()) << size << " " << op << " " << datatype;
          }
        }
}

TEST(CollScheduleTypes, EachOperationOfEachDatatype) {
  std::mt19937_64 random(4);
  size_t tried = 0;
  for (int op = FI_MIN; op <= FI_BXOR; ++op)
    for (int datatype = 0; datatype <= FI_UINT128; ++datatype) {
      EXPECT_EQ(sdk::reduce_valid(op, datatype),
                sdk::atomic_valid(sdk::AtomicKind::kWrite, op, datatype));
      if (!sdk::reduce_valid(op, datatype)) continue;
      ++tried;
      SCOPED_TRACE(std::to_string(op) + " " + std::to_string(datatype));
      for (const Case &one : all_cases()) {
        if (one.coll != FI_ALLREDUCE && one.coll != FI_REDUCE && one.coll != FI_REDUCE_SCATTER)
          continue;
        const Task task{.coll = one.coll,
                        .algorithm = one.algorithm,
                        .size = 7,
                        .root = one.coll == FI_REDUCE ? 3u : 0u,
                        .count = 9,
                        .unit = uint32_t(sdk::datatype_size(datatype))};
        run_all(task, op, datatype, random);
      }
    }
  EXPECT_GT(tried, 100u);
  EXPECT_FALSE(sdk::reduce_valid(FI_DIFF, FI_INT32));
  EXPECT_FALSE(sdk::reduce_valid(-1, FI_INT32));
  EXPECT_FALSE(sdk::reduce_valid(FI_SUM, 9999));
}

TEST(CollScheduleTasks, WhatMakesNoSenseHasNone) {
  const Task good{.coll = FI_ALLREDUCE, .algorithm = Algorithm::kRing, .size = 4, .count = 8};
  EXPECT_TRUE(Schedule::of(good));
  const auto refused = [&](auto change) {
    Task task = good;
    change(task);
    return !Schedule::of(task).has_value();
  };
  EXPECT_TRUE(refused([](Task &task) { task.algorithm = Algorithm::kBruck; }));
  EXPECT_TRUE(refused([](Task &task) { task.coll = static_cast<fi_collective_op>(9); }));
  EXPECT_TRUE(refused([](Task &task) { task.size = 0; }));
  EXPECT_TRUE(refused([](Task &task) { task.size = Schedule::kMaxMembers + 1; }));
  EXPECT_TRUE(refused([](Task &task) { task.rank = 4; }));
  EXPECT_TRUE(refused([](Task &task) { task.unit = 0; }));
  EXPECT_TRUE(refused([](Task &task) { task.count = UINT64_MAX; }));
  EXPECT_TRUE(refused([](Task &task) { task.count = UINT64_MAX / 4; }));
  EXPECT_TRUE(refused([](Task &task) {
    task.coll = FI_REDUCE;
    task.algorithm = Algorithm::kBinomial;
    task.root = 4;
  }));
}

}  // namespace
}  // namespace weft::coll
