// SPDX-License-Identifier: BSD-2-Clause
// Reduce-scatter: recursive halving, or pairs for much data.
#include "plugins/coll/schedule/parts.h"

namespace weft::coll {

Need need_reduce_scatter_halving(const Task &task) {
  return {.rounds = 3 + Fold(task.size).steps, .scratch = 2 * task.bytes() * task.size};
}

// Two members share what both have, the halves being far from each other first: so what a member
// has in the end is its own block, and that of the member that it took the part of.
void fill_reduce_scatter_halving(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Fold fold(task.size);
  const uint32_t rank = task.rank, size = task.size;
  const Slice all = steps.blocks(Place::kScratch, 0, size);
  const Slice result{Place::kResult, 0, task.bytes()};
  if (index == 0) return steps.copy(all, steps.blocks(Place::kOperand, 0, size));
  if (index == 1) {
    const Slice other = steps.blocks(Place::kScratch, size, 2 * uint64_t{size});
    if (fold.waits(rank)) {
      steps.send(rank - 1, index, all);
    } else if (fold.is_folded(rank)) {
      steps.receive(rank + 1, index, other);
      steps.reduce(all, other, false);
    }
    return;
  }
  if (index == 2 + fold.steps) {
    if (fold.waits(rank)) return steps.receive(rank - 1, index, result);
    if (fold.is_folded(rank)) steps.send(rank + 1, index, steps.block(Place::kScratch, rank + 1));
    return steps.copy(result, steps.block(Place::kScratch, rank));
  }
  if (fold.waits(rank)) return;
  const uint32_t half = fold.power >> (index - 1), number = fold.inner(rank);
  const uint32_t kept = number & ~(half - 1), lost = kept ^ half;
  const uint32_t peer = fold.outer(number ^ half);
  const Slice own = steps.blocks(Place::kScratch, fold.outer(kept), fold.outer(kept + half));
  const Slice other{Place::kScratch, all.bytes, own.bytes};
  steps.receive(peer, index, other);
  steps.send(peer, index, steps.blocks(Place::kScratch, fold.outer(lost), fold.outer(lost + half)));
  steps.reduce(own, other, peer < rank);
}

Need need_reduce_scatter_pairwise(const Task &task) {
  const uint32_t pairs = pairs_of(task);
  return {.rounds = 1 + (task.size - 1 + pairs - 1) / pairs, .scratch = pairs * task.bytes()};
}

void fill_reduce_scatter_pairwise(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Slice result{Place::kResult, 0, task.bytes()};
  if (index == 0) return steps.copy(result, steps.block(Place::kOperand, task.rank));
  const uint64_t around = uint64_t{task.rank} + task.size;
  const uint32_t pairs = pairs_of(task);
  const uint32_t first = 1 + (index - 1) * pairs, last = std::min(first + pairs, task.size);
  for (uint32_t distance = first; distance < last; ++distance) {
    const Slice other = steps.block(Place::kScratch, distance - first);
    const uint32_t to = wrap(around + distance, task.size);
    steps.receive(wrap(around - distance, task.size), 0, other);
    steps.send(to, 0, steps.block(Place::kOperand, to));
    steps.reduce(result, other, false);
  }
}

}  // namespace weft::coll
