// SPDX-License-Identifier: BSD-2-Clause
// Allreduce: by way of two leaders, or by recursive doubling for little data, Rabenseifner's
// halving and doubling for more, a ring for much.
//
// The operand is not copied: the first reduction has it on one side, and what came from another
// member, which is received into the result, on the other.
#include "plugins/coll/schedule/parts.h"
#include "plugins/coll/schedule/rabenseifner.h"

namespace weft::coll {
namespace {

// Where this member has its data before its first reduction, and where that of others goes then.
struct First {
  Place own, other;
  explicit First(const Task &task)
      : own(task.in_place ? Place::kResult : Place::kOperand),
        other(task.in_place ? Place::kScratch : Place::kResult) {}
};

// Round 0, and the last one, which are the same for all groups that are folded.
void begin_folded(const Task &task, const Fold &fold, Steps &steps) {
  const First first(task);
  const Slice own{first.own, 0, task.bytes()}, other{first.other, 0, task.bytes()};
  if (task.size == 1) return steps.copy({Place::kResult, 0, task.bytes()}, own);
  if (fold.waits(task.rank)) {
    steps.send(task.rank - 1, 0, own);
  } else if (fold.is_folded(task.rank)) {
    steps.receive(task.rank + 1, 0, other);
    steps.reduce_into({Place::kResult, 0, task.bytes()}, own, other, false);
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

Need need_allreduce_leaders(const Task &task) {
  const Halves halves(task);
  const bool leads = task.rank == halves.leader;
  return {.rounds = 3, .scratch = leads ? (halves.followers() + 1) * task.bytes() : 0};
}

// A leader reduces what its half has, then the leaders what both have, then each tells its half.
void fill_allreduce_leaders(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Halves halves(task);
  const Slice own{First(task).own, 0, task.bytes()}, all{Place::kResult, 0, task.bytes()};
  if (task.rank != halves.leader) {
    if (index != 0) return;
    steps.receive(halves.leader, 2, all);
    return steps.send(halves.leader, 0, own);
  }
  if (index == 0) {
    if (task.size == 1) return steps.copy(all, own);
    return halves.for_followers([&](uint32_t rank, uint32_t i) {
      const Slice other = steps.block(Place::kScratch, i);
      steps.receive(rank, 0, other);
      steps.reduce_into(all, i == 0 ? own : all, other, false);
    });
  }
  if (index == 2)
    return halves.for_followers([&](uint32_t rank, uint32_t) { steps.send(rank, 2, all); });
  if (task.size == 1) return;
  const Slice mine = halves.followers() != 0 ? all : own;
  const Slice other = steps.block(Place::kScratch, halves.followers());
  steps.receive(halves.other_leader(), 1, other);
  steps.send(halves.other_leader(), 1, mine);
  steps.reduce_into(all, mine, other, halves.leader == 1);
}

Need need_allreduce_doubling(const Task &task) {
  return {.rounds = 2 + Fold(task.size).steps, .scratch = task.bytes()};
}

void fill_allreduce_doubling(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Fold fold(task.size);
  if (index == 0) return begin_folded(task, fold, steps);
  if (index == 1 + fold.steps) return end_folded(task, fold, index, steps);
  if (fold.waits(task.rank)) return;
  const First first(task);
  const bool is_first = index == 1 && !fold.is_folded(task.rank);
  const Slice all{Place::kResult, 0, task.bytes()};
  const Slice own{is_first ? first.own : Place::kResult, 0, task.bytes()};
  const Slice other{is_first ? first.other : Place::kScratch, 0, task.bytes()};
  const uint32_t peer = fold.outer(fold.inner(task.rank) ^ 1u << (index - 1));
  steps.receive(peer, index, other);
  steps.send(peer, index, own);
  steps.reduce_into(all, own, other, peer < task.rank);
}

Need need_allreduce_rabenseifner(const Task &task) {
  return {.rounds = 2 + 2 * Fold(task.size).steps, .scratch = task.bytes()};
}

void fill_allreduce_rabenseifner(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Fold fold(task.size);
  if (index == 0) return begin_folded(task, fold, steps);
  if (index == 1 + 2 * fold.steps) return end_folded(task, fold, index, steps);
  if (fold.waits(task.rank)) return;
  const Rabenseifner halves(task, fold, fold.inner(task.rank), {task.size, 0}, Place::kResult, 0);
  if (index == 1 && !fold.is_folded(task.rank)) {
    const First first(task);
    const Slice kept = halves.kept(0);
    return halves.reduce_from(first.own, {first.other, kept.at, kept.bytes}, 0, index, steps);
  }
  if (index < 1 + fold.steps) return halves.reduce(index - 1, index, steps);
  const uint32_t step = 1 + 2 * fold.steps - 1 - index;
  const uint32_t peer = halves.peer(step);
  steps.receive(peer, index, halves.lost(step));
  steps.send(peer, index, halves.kept(step));
}

Need need_allreduce_ring(const Task &task) {
  const Cut cut{task.count, task.size, task.unit};
  return {.rounds = 1 + 2 * (task.size - 1), .scratch = task.in_place ? cut.before(1) : 0};
}

// A part goes around the ring, from the member behind its own, and each adds its operand. Then the
// results go around.
void fill_allreduce_ring(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const First first(task);
  if (index == 0) {
    if (task.size == 1) steps.copy({Place::kResult, 0, task.bytes()}, {first.own, 0, task.bytes()});
    return;
  }
  const uint64_t size = task.size, around = uint64_t{task.rank} + 2 * size;
  const uint32_t left = wrap(around - 1, task.size), right = wrap(around + 1, task.size);
  const Cut cut{task.count, size, task.unit};
  const auto part = [&](Place place, uint64_t number) {
    const uint32_t own = wrap(number, task.size);
    return cut.slice(place, own, own + 1);
  };
  if (index >= size) {
    const uint64_t step = index - size;
    steps.receive(left, index, part(Place::kResult, around - step - 1));
    return steps.send(right, index, part(Place::kResult, around - step));
  }
  const uint64_t step = index - 1, taken = around - 1 - step - 1;
  const Slice result = part(Place::kResult, taken);
  const Slice other = task.in_place ? Slice{Place::kScratch, 0, result.bytes} : result;
  steps.receive(left, index, other);
  steps.send(right, index, part(index == 1 ? first.own : Place::kResult, around - 1 - step));
  steps.reduce_into(result, part(first.own, taken), other, true);
}

}  // namespace weft::coll
