// SPDX-License-Identifier: BSD-2-Clause
// What the algorithms are made of: steps of a round, parts of an array, and how groups that are no
// power of two become one.
//
// Example:
//    // Neighbours exchange their operands.
//    inline void exchange(const Task &task, Round &round) {
//      Steps steps(task, round);
//      const uint32_t peer = task.rank ^ 1;
//      if (peer >= task.size) return;
//      steps.send(peer, 0, {Place::kOperand, 0, task.bytes()});
//      steps.receive(peer, 0, {Place::kScratch, 0, task.bytes()});
//    }
//
// Transfers and steps of no bytes are left out: both ends know that there is nothing. Not for
// executors.
#ifndef WEFT_PLUGINS_COLL_SCHEDULE_PARTS_H
#define WEFT_PLUGINS_COLL_SCHEDULE_PARTS_H

#include <algorithm>
#include <bit>
#include <cstdint>

#include "plugins/coll/schedule/schedule.h"

namespace weft::coll {

class Steps {
 public:
  Steps(const Task &task, Round &round) : task_(task), round_(round) {}

  void send(uint32_t peer, uint32_t label, const Slice &slice) {
    if (slice.bytes != 0) round_.transfers.push_back({true, peer, label, slice});
  }
  void receive(uint32_t peer, uint32_t label, const Slice &slice) {
    if (slice.bytes != 0) round_.transfers.push_back({false, peer, label, slice});
  }
  // A message without bytes.
  void signal(uint32_t to, uint32_t from, uint32_t label) {
    round_.transfers.push_back({false, from, label, {}});
    round_.transfers.push_back({true, to, label, {}});
  }
  void copy(const Slice &into, const Slice &from) {
    if (into.bytes != 0) round_.steps.push_back({false, into, from, {}});
  }
  void copy_before(const Slice &into, const Slice &from) {
    if (into.bytes != 0) round_.before.push_back({false, into, from, {}});
  }
  // `own` becomes the result; the operands of `other` are those of a lower rank, or of a higher.
  void reduce(const Slice &own, const Slice &other, bool other_is_lower) {
    reduce_into(own, own, other, other_is_lower);
  }
  // into = own and other, as above.
  void reduce_into(const Slice &into, const Slice &own, const Slice &other, bool other_is_lower) {
    if (into.bytes == 0) return;
    round_.steps.push_back(
        {true, into, other_is_lower ? other : own, other_is_lower ? own : other});
  }
  // The part [from, to) of an array of blocks of task.bytes() each.
  Slice blocks(Place place, uint64_t from, uint64_t to) const {
    return {place, from * task_.bytes(), (to - from) * task_.bytes()};
  }
  Slice block(Place place, uint64_t index) const { return blocks(place, index, index + 1); }

 private:
  const Task &task_;
  Round &round_;
};

// Elements cut into `parts` of nearly the same size: the bytes in front of a part.
struct Cut {
  uint64_t count, parts;
  uint32_t unit;
  uint64_t before(uint64_t part) const {
    return (part * (count / parts) + std::min(part, count % parts)) * unit;
  }
  Slice slice(Place place, uint64_t from, uint64_t to, uint64_t offset = 0) const {
    return {place, offset + before(from), before(to) - before(from)};
  }
};

inline uint32_t log2_up(uint32_t n) {
  return uint32_t(std::bit_width(n - 1));
}

// Of the first 2 * `rest` ranks the odd ones give their part to the one below and wait. What is
// left is a power of two, and has numbers of its own.
struct Fold {
  uint32_t power, rest, steps;

  explicit Fold(uint32_t size)
      : power(std::bit_floor(size)),
        rest(size - power),
        steps(uint32_t(std::bit_width(power)) - 1) {}
  bool is_folded(uint32_t rank) const { return rank < 2 * rest; }
  bool waits(uint32_t rank) const { return is_folded(rank) && rank % 2 == 1; }
  uint32_t inner(uint32_t rank) const { return is_folded(rank) ? rank / 2 : rank - rest; }
  // The rank of a number, and the first rank whose part it has. outer(power) is the size.
  uint32_t outer(uint32_t number) const { return number < rest ? 2 * number : number + rest; }
};

// Vector halving, distance doubling (Rabenseifner): which parts of the array a member of a power
// of two still has after `steps` halvings.
struct Halving {
  uint32_t power, number;
  uint32_t from(uint32_t steps) const {
    uint32_t low = 0;
    for (uint32_t k = 0; k < steps; ++k)
      if (number >> k & 1) low += power >> (k + 1);
    return low;
  }
  uint32_t to(uint32_t steps) const { return from(steps) + (power >> steps); }
  // The other half of what it had before this halving.
  uint32_t lost_from(uint32_t steps) const {
    return number >> (steps - 1) & 1 ? from(steps - 1) : to(steps);
  }
  uint32_t lost_to(uint32_t steps) const { return lost_from(steps) + (power >> steps); }
};

// Two halves of a group, of the even and of the odd ranks. The first member of each leads it.
struct Halves {
  uint32_t size, leader;
  Halves(uint32_t size, uint32_t rank) : size(size), leader(size > 1 ? rank % 2 : 0) {}
  explicit Halves(const Task &task) : Halves(task.size, task.rank) {}
  uint32_t other_leader() const { return 1 - leader; }
  uint32_t followers() const { return size > 1 ? (size - leader - 1) / 2 : 0; }
  template <class F>
  void for_followers(F see) const {  // see(rank, 0...)
    for (uint32_t i = 0; i < followers(); ++i) see(leader + 2 * (i + 1), i);
  }
};

// Ranks counted from the root.
struct Relative {
  uint32_t size, root;
  uint32_t of(uint32_t rank) const { return (rank + size - root) % size; }
  uint32_t rank(uint32_t relative) const { return uint32_t((uint64_t(relative) + root) % size); }
};

inline uint32_t wrap(uint64_t rank, uint32_t size) {
  return uint32_t(rank % size);
}

// How many blocks a member sends at once (pairwise): long ones one after the other, so that they
// are received while they are in a cache (alltoall of 256 KiB, 8 processes: 2 at once take 1.1
// times as long).
inline uint32_t pairs_of(const Task &task) {
  constexpr uint64_t kMost = 8, kLong = 128 * 1024, kBytes = 512 * 1024;
  if (task.bytes() > kLong) return 1;
  return uint32_t(std::min(kBytes / std::max<uint64_t>(task.bytes(), 1), kMost));
}

// ---- the algorithms, by collective ----

struct Need {
  uint32_t rounds = 0;
  uint64_t scratch = 0;
};

struct Row {
  fi_collective_op coll;
  Algorithm algorithm;
  Need (*need)(const Task &task);
  void (*fill)(const Task &task, uint32_t index, Round &round);

  void apply(Schedule &schedule, const Task &task) const;
};

Need need_barrier(const Task &task);
void fill_barrier(const Task &task, uint32_t index, Round &round);
Need need_barrier_leaders(const Task &task);
void fill_barrier_leaders(const Task &task, uint32_t index, Round &round);
Need need_broadcast_leaders(const Task &task);
void fill_broadcast_leaders(const Task &task, uint32_t index, Round &round);
Need need_broadcast_linear(const Task &task);
void fill_broadcast_linear(const Task &task, uint32_t index, Round &round);
Need need_broadcast_doubling(const Task &task);
void fill_broadcast_doubling(const Task &task, uint32_t index, Round &round);
Need need_broadcast_pipeline(const Task &task);
void fill_broadcast_pipeline(const Task &task, uint32_t index, Round &round);
Need need_broadcast_binomial(const Task &task);
void fill_broadcast_binomial(const Task &task, uint32_t index, Round &round);
Need need_broadcast_long(const Task &task);
void fill_broadcast_long(const Task &task, uint32_t index, Round &round);
Need need_allreduce_leaders(const Task &task);
void fill_allreduce_leaders(const Task &task, uint32_t index, Round &round);
Need need_allreduce_doubling(const Task &task);
void fill_allreduce_doubling(const Task &task, uint32_t index, Round &round);
Need need_allreduce_rabenseifner(const Task &task);
void fill_allreduce_rabenseifner(const Task &task, uint32_t index, Round &round);
Need need_allreduce_ring(const Task &task);
void fill_allreduce_ring(const Task &task, uint32_t index, Round &round);
Need need_allgather_bruck(const Task &task);
void fill_allgather_bruck(const Task &task, uint32_t index, Round &round);
Need need_allgather_doubling(const Task &task);
void fill_allgather_doubling(const Task &task, uint32_t index, Round &round);
Need need_allgather_ring(const Task &task);
void fill_allgather_ring(const Task &task, uint32_t index, Round &round);
Need need_alltoall_bruck(const Task &task);
void fill_alltoall_bruck(const Task &task, uint32_t index, Round &round);
Need need_alltoall_pairwise(const Task &task);
void fill_alltoall_pairwise(const Task &task, uint32_t index, Round &round);
Need need_reduce_scatter_halving(const Task &task);
void fill_reduce_scatter_halving(const Task &task, uint32_t index, Round &round);
Need need_reduce_scatter_pairwise(const Task &task);
void fill_reduce_scatter_pairwise(const Task &task, uint32_t index, Round &round);
Need need_reduce_binomial(const Task &task);
void fill_reduce_binomial(const Task &task, uint32_t index, Round &round);
Need need_reduce_rabenseifner(const Task &task);
void fill_reduce_rabenseifner(const Task &task, uint32_t index, Round &round);
Need need_scatter(const Task &task);
void fill_scatter(const Task &task, uint32_t index, Round &round);
Need need_gather(const Task &task);
void fill_gather(const Task &task, uint32_t index, Round &round);

}  // namespace weft::coll

#endif
