// SPDX-License-Identifier: BSD-2-Clause
// Reduce: a binomial tree for little data, Rabenseifner's halving and a gather for more.
#include "plugins/coll/schedule/parts.h"
#include "plugins/coll/schedule/rabenseifner.h"

namespace weft::coll {
namespace {

// The root has the partial results in its result, others in the scratch memory, in front of what
// comes.
struct Partials {
  Slice own, other;

  explicit Partials(const Task &task) {
    const bool is_root = task.rank == task.root;
    own = {is_root ? Place::kResult : Place::kScratch, 0, task.bytes()};
    other = {Place::kScratch, is_root ? 0 : task.bytes(), task.bytes()};
  }
};

}  // namespace

Need need_reduce_binomial(const Task &task) {
  return {.rounds = 1 + log2_up(task.size), .scratch = 2 * task.bytes()};
}

void fill_reduce_binomial(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Partials partials(task);
  const Relative order{task.size, task.root};
  const uint32_t own = order.of(task.rank);
  const Slice operand{Place::kOperand, 0, task.bytes()};
  if (index == 0) {
    if (own % 2 == 0) steps.copy(partials.own, operand);
    return;
  }
  const uint32_t distance = 1u << (index - 1);
  if (own & (distance - 1)) return;
  if (own & distance) {
    steps.send(order.rank(own - distance), index, own % 2 == 0 ? partials.own : operand);
  } else if (distance < task.size - own) {
    steps.receive(order.rank(own + distance), index, partials.other);
    steps.reduce(partials.own, partials.other, false);
  }
}

Need need_reduce_rabenseifner(const Task &task) {
  return {.rounds = 2 + 2 * Fold(task.size).steps, .scratch = 2 * task.bytes()};
}

void fill_reduce_rabenseifner(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Partials partials(task);
  const Relative order{task.size, task.root};
  const Fold fold(task.size);
  const uint32_t own = order.of(task.rank);
  if (index == 0) return steps.copy(partials.own, {Place::kOperand, 0, task.bytes()});
  if (index == 1) {
    if (fold.waits(own)) {
      steps.send(order.rank(own - 1), index, partials.own);
    } else if (fold.is_folded(own)) {
      steps.receive(order.rank(own + 1), index, partials.other);
      steps.reduce(partials.own, partials.other, false);
    }
    return;
  }
  if (fold.waits(own)) return;
  const uint32_t number = fold.inner(own);
  const Rabenseifner halves(task, fold, number, order, partials.own.place, partials.other.at);
  if (index < 2 + fold.steps) return halves.reduce(index - 2, index, steps);
  // The halves come back, to the member with the lower number.
  const uint32_t step = 2 + 2 * fold.steps - 1 - index;
  if (number >> (step + 1) != 0) return;
  if (number >> step & 1)
    steps.send(halves.peer(step), index, halves.kept(step));
  else
    steps.receive(halves.peer(step), index, halves.lost(step));
}

}  // namespace weft::coll
