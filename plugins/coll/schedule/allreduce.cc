// SPDX-License-Identifier: BSD-2-Clause
// Allreduce: recursive doubling for little data, Rabenseifner's halving and doubling for more, a
// ring for much.
#include "plugins/coll/schedule/parts.h"
#include "plugins/coll/schedule/rabenseifner.h"

namespace weft::coll {
namespace {

// Rounds 0 and 1, and the last one, which are the same for all groups that are folded.
void begin_folded(const Task &task, const Fold &fold, uint32_t index, Steps &steps) {
  const Slice all{Place::kResult, 0, task.bytes()}, other{Place::kScratch, 0, task.bytes()};
  if (index == 0) return steps.copy(all, {Place::kOperand, 0, task.bytes()});
  if (fold.waits(task.rank)) {
    steps.send(task.rank - 1, index, all);
  } else if (fold.is_folded(task.rank)) {
    steps.receive(task.rank + 1, index, other);
    steps.reduce(all, other, false);
  }
}

void end_folded(const Task &task, const Fold &fold, uint32_t index, Steps &steps) {
  const Slice all{Place::kResult, 0, task.bytes()};
  if (fold.waits(task.rank))
    steps.receive(task.rank - 1, index, all);
  else if (fold.is_folded(task.rank))
    steps.send(task.rank + 1, index, all);
}

}  // namespace

Need need_allreduce_doubling(const Task &task) {
  return {.rounds = 3 + Fold(task.size).steps, .scratch = task.bytes()};
}

void fill_allreduce_doubling(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Fold fold(task.size);
  if (index < 2) return begin_folded(task, fold, index, steps);
  if (index == 2 + fold.steps) return end_folded(task, fold, index, steps);
  if (fold.waits(task.rank)) return;
  const Slice all{Place::kResult, 0, task.bytes()}, other{Place::kScratch, 0, task.bytes()};
  const uint32_t peer = fold.outer(fold.inner(task.rank) ^ 1u << (index - 2));
  steps.receive(peer, index, other);
  steps.send(peer, index, all);
  steps.reduce(all, other, peer < task.rank);
}

Need need_allreduce_rabenseifner(const Task &task) {
  return {.rounds = 3 + 2 * Fold(task.size).steps, .scratch = task.bytes()};
}

void fill_allreduce_rabenseifner(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Fold fold(task.size);
  if (index < 2) return begin_folded(task, fold, index, steps);
  if (index == 2 + 2 * fold.steps) return end_folded(task, fold, index, steps);
  if (fold.waits(task.rank)) return;
  const Rabenseifner halves(task, fold, fold.inner(task.rank), {task.size, 0}, Place::kResult, 0);
  if (index < 2 + fold.steps) return halves.reduce(index - 2, index, steps);
  const uint32_t step = 2 + 2 * fold.steps - 1 - index;
  const uint32_t peer = halves.peer(step);
  steps.receive(peer, index, halves.lost(step));
  steps.send(peer, index, halves.kept(step));
}

Need need_allreduce_ring(const Task &task) {
  const Cut cut{task.count, task.size, task.unit};
  return {.rounds = 1 + 2 * (task.size - 1), .scratch = cut.before(1)};
}

// A part goes around the ring, from the member behind its own, and each adds its operand. Then the
// results go around.
void fill_allreduce_ring(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  if (index == 0)
    return steps.copy({Place::kResult, 0, task.bytes()}, {Place::kOperand, 0, task.bytes()});
  const uint64_t size = task.size, around = uint64_t{task.rank} + 2 * size;
  const uint32_t left = wrap(around - 1, task.size), right = wrap(around + 1, task.size);
  const Cut cut{task.count, size, task.unit};
  const auto part = [&](uint64_t number) {
    const uint32_t own = wrap(number, task.size);
    return cut.slice(Place::kResult, own, own + 1);
  };
  const bool reduces = index < size;
  const uint64_t step = reduces ? index - 1 : index - size;
  const uint64_t first = reduces ? around - 1 : around;
  const Slice taken = part(first - step - 1);
  const Slice other{Place::kScratch, 0, taken.bytes};
  steps.receive(left, index, reduces ? other : taken);
  steps.send(right, index, part(first - step));
  if (reduces) steps.reduce(taken, other, true);
}

}  // namespace weft::coll
