// SPDX-License-Identifier: BSD-2-Clause
// Allgather: Bruck's algorithm for little data, recursive doubling, a ring for much.
#include "plugins/coll/schedule/parts.h"

namespace weft::coll {

Need need_allgather_bruck(const Task &task) {
  return {.rounds = 1 + log2_up(task.size), .scratch = task.bytes() * task.size};
}

// Blocks are kept in the order of the ranks from the own one on.
void fill_allgather_bruck(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const uint32_t size = task.size, rank = task.rank;
  if (index == 0) {
    steps.copy(steps.block(Place::kScratch, 0), {Place::kOperand, 0, task.bytes()});
  } else {
    const uint32_t have = 1u << (index - 1), more = std::min(have, size - have);
    steps.receive(wrap(uint64_t{rank} + have, size), index,
                  steps.blocks(Place::kScratch, have, have + more));
    steps.send(wrap(uint64_t{rank} + size - have, size), index,
               steps.blocks(Place::kScratch, 0, more));
  }
  if (index == log2_up(size)) {
    steps.copy(steps.blocks(Place::kResult, rank, size),
               steps.blocks(Place::kScratch, 0, size - rank));
    steps.copy(steps.blocks(Place::kResult, 0, rank),
               steps.blocks(Place::kScratch, size - rank, size));
  }
}

Need need_allgather_doubling(const Task &task) {
  return {.rounds = 3 + Fold(task.size).steps};
}

void fill_allgather_doubling(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Fold fold(task.size);
  const uint32_t rank = task.rank;
  const Slice own = steps.block(Place::kResult, rank);
  if (index == 0) return steps.copy(own, {Place::kOperand, 0, task.bytes()});
  if (index == 1) {
    if (fold.waits(rank))
      steps.send(rank - 1, index, own);
    else if (fold.is_folded(rank))
      steps.receive(rank + 1, index, steps.block(Place::kResult, rank + 1));
    return;
  }
  if (index == 2 + fold.steps) {
    const Slice all = steps.blocks(Place::kResult, 0, task.size);
    if (fold.waits(rank))
      steps.receive(rank - 1, index, all);
    else if (fold.is_folded(rank))
      steps.send(rank + 1, index, all);
    return;
  }
  if (fold.waits(rank)) return;
  const uint32_t have = 1u << (index - 2);
  const uint32_t number = fold.inner(rank), from = number & ~(have - 1), others = from ^ have;
  const uint32_t peer = fold.outer(number ^ have);
  steps.receive(peer, index,
                steps.blocks(Place::kResult, fold.outer(others), fold.outer(others + have)));
  steps.send(peer, index, steps.blocks(Place::kResult, fold.outer(from), fold.outer(from + have)));
}

Need need_allgather_ring(const Task &task) {
  return {.rounds = task.size};
}

void fill_allgather_ring(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  if (index == 0)
    return steps.copy(steps.block(Place::kResult, task.rank), {Place::kOperand, 0, task.bytes()});
  const uint64_t around = uint64_t{task.rank} + task.size;
  const auto block = [&](uint64_t of) { return steps.block(Place::kResult, wrap(of, task.size)); };
  steps.receive(wrap(around - 1, task.size), index, block(around - index));
  steps.send(wrap(around + 1, task.size), index, block(around - index + 1));
}

}  // namespace weft::coll
