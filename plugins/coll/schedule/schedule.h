// SPDX-License-Identifier: BSD-2-Clause
// Schedule: what one member of a group does in a collective operation (fi_collective.3), as rounds
// of transfers and of local steps. A schedule is a pure function of its Task: it has no state, no
// memory of the application's and no network.
//
// Example:
//    // All that this member sends in an operation, in bytes.
//    inline uint64_t bytes_sent(const Task &task) {
//      const auto schedule = Schedule::of(task);
//      uint64_t bytes = 0;
//      Round round;
//      for (uint32_t i = 0; schedule && i < schedule->rounds(); ++i) {
//        round.clear();
//        schedule->round(i, round);
//        for (const Transfer &one : round.transfers) bytes += one.sends ? one.slice.bytes : 0;
//      }
//      return bytes;
//    }
//
// An executor does what comes before the transfers of a round, starts all of them, waits for them,
// then does the local steps in their order, and goes on to the next round. The rounds of members
// need not be in step: what matches is the label of a transfer, which is the same at both ends and
// occurs once between two members.
//
// The operands of a reduction are put together in an order that depends on the task alone, and each
// element's is the same for all members. So all members have equal results, bit for bit.
//
// Not for the choice of an algorithm (choice.h), nor for failures (group/group.h).
#ifndef WEFT_PLUGINS_COLL_SCHEDULE_SCHEDULE_H
#define WEFT_PLUGINS_COLL_SCHEDULE_SCHEDULE_H

#include <rdma/fi_collective.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace weft::coll {

enum class Algorithm : uint8_t {
  kDissemination,
  kLeaders,
  kLinear,
  kBinomial,
  kPipeline,
  kScatterAllgather,
  kRecursiveDoubling,
  kRecursiveHalving,
  kRabenseifner,
  kRing,
  kBruck,
  kPairwise,
};

std::string_view name_of(Algorithm algorithm);
std::string_view name_of(fi_collective_op coll);
std::optional<Algorithm> algorithm_named(std::string_view name);
std::optional<fi_collective_op> collective_named(std::string_view name);

// Where the members of a group are: on several hosts, on one, or on one that has so few CPUs for
// them that they take turns. For the choice of the algorithm.
enum class Placement : uint8_t { kHosts, kHost, kCrowd };
Placement placement_on(uint64_t cpus, uint32_t members);  // of members on one host

// `count` is what one member gives or gets: the elements of a broadcast, of an allreduce and of a
// reduce; else those of one slice, of which the other side has `size`, one for each member.
struct Task {
  fi_collective_op coll = FI_BARRIER;
  Algorithm algorithm = Algorithm::kDissemination;
  uint32_t rank = 0, size = 1, root = 0;
  uint64_t count = 0;
  uint32_t unit = 1;      // bytes of an element
  bool in_place = false;  // at this member the operand is the result's memory (allreduce)
  Placement placement = Placement::kHosts;

  uint64_t bytes() const { return count * unit; }
  bool has_root() const {
    return coll == FI_BROADCAST || coll == FI_REDUCE || coll == FI_SCATTER || coll == FI_GATHER;
  }
};

// Bytes of the buffers that the application gives at this member; 0: it gives none.
uint64_t operand_bytes(const Task &task);
uint64_t result_bytes(const Task &task);

// The data of a broadcast is the result at all members.
enum class Place : uint8_t { kOperand, kResult, kScratch };

struct Slice {
  Place place = Place::kScratch;
  uint64_t at = 0, bytes = 0;
};

struct Transfer {
  bool sends = false;
  uint32_t peer = 0, label = 0;
  Slice slice;
};

// into = left op right; a copy: into = left.
struct LocalStep {
  bool reduces = false;
  Slice into, left, right;
};

struct Round {
  std::vector<Transfer> transfers;
  std::vector<LocalStep> before;  // the transfers; they have nothing to do with them
  std::vector<LocalStep> steps;
  void clear() {
    transfers.clear();
    before.clear();
    steps.clear();
  }
};

class Schedule {
 public:
  static constexpr uint32_t kMaxMembers = 65536;

  // None: the collective has no such algorithm, or the task makes no sense.
  static std::optional<Schedule> of(const Task &task);

  const Task &task() const { return task_; }
  uint32_t rounds() const { return rounds_; }
  uint64_t scratch() const { return scratch_; }  // bytes
  void round(uint32_t index, Round &round) const { fill_(task_, index, round); }

 private:
  friend struct Row;
  using Fill = void (*)(const Task &task, uint32_t index, Round &round);
  Task task_;
  uint32_t rounds_ = 0;
  uint64_t scratch_ = 0;
  Fill fill_ = nullptr;
};

}  // namespace weft::coll

#endif
