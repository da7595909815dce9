// SPDX-License-Identifier: BSD-2-Clause
// Which algorithms there are, by which names, and what their buffers hold.
#include "plugins/coll/schedule/schedule.h"

#include <algorithm>
#include <iterator>

#include "plugins/coll/schedule/parts.h"

namespace weft::coll {
namespace {

constexpr Row kRows[] = {
    {FI_BARRIER, Algorithm::kDissemination, need_barrier, fill_barrier},
    {FI_BARRIER, Algorithm::kLeaders, need_barrier_leaders, fill_barrier_leaders},
    {FI_BROADCAST, Algorithm::kLeaders, need_broadcast_leaders, fill_broadcast_leaders},
    {FI_BROADCAST, Algorithm::kBinomial, need_broadcast_binomial, fill_broadcast_binomial},
    {FI_BROADCAST, Algorithm::kLinear, need_broadcast_linear, fill_broadcast_linear},
    {FI_BROADCAST, Algorithm::kRecursiveDoubling, need_broadcast_doubling, fill_broadcast_doubling},
    {FI_BROADCAST, Algorithm::kPipeline, need_broadcast_pipeline, fill_broadcast_pipeline},
    {FI_BROADCAST, Algorithm::kScatterAllgather, need_broadcast_long, fill_broadcast_long},
    {FI_ALLREDUCE, Algorithm::kLeaders, need_allreduce_leaders, fill_allreduce_leaders},
    {FI_ALLREDUCE, Algorithm::kRecursiveDoubling, need_allreduce_doubling, fill_allreduce_doubling},
    {FI_ALLREDUCE, Algorithm::kRabenseifner, need_allreduce_rabenseifner,
     fill_allreduce_rabenseifner},
    {FI_ALLREDUCE, Algorithm::kRing, need_allreduce_ring, fill_allreduce_ring},
    {FI_ALLGATHER, Algorithm::kBruck, need_allgather_bruck, fill_allgather_bruck},
    {FI_ALLGATHER, Algorithm::kRecursiveDoubling, need_allgather_doubling, fill_allgather_doubling},
    {FI_ALLGATHER, Algorithm::kRing, need_allgather_ring, fill_allgather_ring},
    {FI_ALLTOALL, Algorithm::kBruck, need_alltoall_bruck, fill_alltoall_bruck},
    {FI_ALLTOALL, Algorithm::kPairwise, need_alltoall_pairwise, fill_alltoall_pairwise},
    {FI_REDUCE_SCATTER, Algorithm::kRecursiveHalving, need_reduce_scatter_halving,
     fill_reduce_scatter_halving},
    {FI_REDUCE_SCATTER, Algorithm::kPairwise, need_reduce_scatter_pairwise,
     fill_reduce_scatter_pairwise},
    {FI_REDUCE, Algorithm::kBinomial, need_reduce_binomial, fill_reduce_binomial},
    {FI_REDUCE, Algorithm::kRabenseifner, need_reduce_rabenseifner, fill_reduce_rabenseifner},
    {FI_SCATTER, Algorithm::kBinomial, need_scatter, fill_scatter},
    {FI_GATHER, Algorithm::kBinomial, need_gather, fill_gather},
};

struct AlgorithmName {
  Algorithm algorithm;
  std::string_view name;
};
constexpr AlgorithmName kAlgorithmNames[] = {
    {Algorithm::kDissemination, "dissemination"},
    {Algorithm::kLeaders, "leaders"},
    {Algorithm::kLinear, "linear"},
    {Algorithm::kBinomial, "binomial"},
    {Algorithm::kPipeline, "pipeline"},
    {Algorithm::kScatterAllgather, "scatter_allgather"},
    {Algorithm::kRecursiveDoubling, "recursive_doubling"},
    {Algorithm::kRecursiveHalving, "recursive_halving"},
    {Algorithm::kRabenseifner, "rabenseifner"},
    {Algorithm::kRing, "ring"},
    {Algorithm::kBruck, "bruck"},
    {Algorithm::kPairwise, "pairwise"},
};

struct CollectiveName {
  fi_collective_op coll;
  std::string_view name;
};
constexpr CollectiveName kCollectiveNames[] = {
    {FI_BARRIER, "barrier"},     {FI_BROADCAST, "broadcast"}, {FI_ALLTOALL, "alltoall"},
    {FI_ALLREDUCE, "allreduce"}, {FI_ALLGATHER, "allgather"}, {FI_REDUCE_SCATTER, "reduce_scatter"},
    {FI_REDUCE, "reduce"},       {FI_SCATTER, "scatter"},     {FI_GATHER, "gather"},
};

// All buffers together are far below what 64 bits count.
constexpr uint64_t kMostBytes = uint64_t{1} << 60;

bool is_sound(const Task &task) {
  if (task.size == 0 || task.size > Schedule::kMaxMembers || task.rank >= task.size) return false;
  if (task.has_root() && task.root >= task.size) return false;
  return task.unit != 0 && task.count <= kMostBytes / task.unit / (4 * uint64_t{task.size});
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  return std::ranges::find(kAlgorithmNames, algorithm, &AlgorithmName::algorithm)->name;
}

std::string_view name_of(fi_collective_op coll) {
  const auto found = std::ranges::find(kCollectiveNames, coll, &CollectiveName::coll);
  return found != std::end(kCollectiveNames) ? found->name : "unknown";
}

std::optional<Algorithm> algorithm_named(std::string_view name) {
  const auto found = std::ranges::find(kAlgorithmNames, name, &AlgorithmName::name);
  if (found == std::end(kAlgorithmNames)) return std::nullopt;
  return found->algorithm;
}

std::optional<fi_collective_op> collective_named(std::string_view name) {
  const auto found = std::ranges::find(kCollectiveNames, name, &CollectiveName::name);
  if (found == std::end(kCollectiveNames)) return std::nullopt;
  return found->coll;
}

// Without leaders each member sends and receives log2(members) messages, and all share the CPUs. A
// leader sends or receives half as many as there are members, on its own CPU. So leaders are faster
// on fewer than 2 log2(members) CPUs.
Placement placement_on(uint64_t cpus, uint32_t members) {
  const bool are_few = cpus < 32 && (uint64_t{1} << cpus) < uint64_t{members} * members;
  return cpus < members && are_few ? Placement::kCrowd : Placement::kHost;
}

uint64_t operand_bytes(const Task &task) {
  switch (task.coll) {
    case FI_BARRIER:
    case FI_BROADCAST:
      return 0;
    case FI_ALLTOALL:
    case FI_REDUCE_SCATTER:
      return task.bytes() * task.size;
    case FI_SCATTER:
      return task.rank == task.root ? task.bytes() * task.size : 0;
    default:
      return task.bytes();
  }
}

uint64_t result_bytes(const Task &task) {
  switch (task.coll) {
    case FI_BARRIER:
      return 0;
    case FI_ALLTOALL:
    case FI_ALLGATHER:
      return task.bytes() * task.size;
    case FI_GATHER:
      return task.rank == task.root ? task.bytes() * task.size : 0;
    case FI_REDUCE:
      return task.rank == task.root ? task.bytes() : 0;
    default:
      return task.bytes();
  }
}

void Row::apply(Schedule &schedule, const Task &task) const {
  const Need needed = need(task);
  schedule.task_ = task;
  schedule.rounds_ = needed.rounds;
  schedule.scratch_ = needed.scratch;
  schedule.fill_ = fill;
}

std::optional<Schedule> Schedule::of(const Task &task) {
  const auto row = std::ranges::find_if(kRows, [&](const Row &one) {
    return one.coll == task.coll && one.algorithm == task.algorithm;
  });
  if (row == std::end(kRows) || !is_sound(task)) return std::nullopt;
  Schedule schedule;
  row->apply(schedule, task);
  return schedule;
}

}  // namespace weft::coll
