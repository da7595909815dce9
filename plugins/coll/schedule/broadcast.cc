// SPDX-License-Identifier: BSD-2-Clause
// Barrier by dissemination; broadcast by a binomial tree, or of long data by a scatter and an
// allgather in a ring.
#include "plugins/coll/schedule/parts.h"
#include "plugins/coll/schedule/tree.h"

namespace weft::coll {

// In each round a member hears, by way of others, of twice as many.
Need need_barrier(const Task &task) {
  return {.rounds = log2_up(task.size)};
}

void fill_barrier(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const uint32_t distance = 1u << index;
  steps.signal(wrap(uint64_t{task.rank} + distance, task.size),
               wrap(uint64_t{task.rank} + task.size - distance, task.size), index);
}

Need need_broadcast_binomial(const Task &) {
  return {.rounds = 2};
}

void fill_broadcast_binomial(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Tree tree(task);
  const Slice data{Place::kResult, 0, task.bytes()};
  if (index == 0) {
    if (!tree.is_root()) steps.receive(tree.parent(), 0, data);
  } else {
    tree.for_children([&](const Tree::Child &child) { steps.send(child.rank, 0, data); });
  }
}

Need need_broadcast_long(const Task &task) {
  return {.rounds = 2 + task.size - 1};
}

void fill_broadcast_long(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Tree tree(task);
  const Cut cut{task.count, task.size, task.unit};
  const uint32_t own = tree.relative();
  if (index == 0) {
    if (!tree.is_root())
      steps.receive(tree.parent(), 0, cut.slice(Place::kResult, own, own + tree.members()));
    return;
  }
  if (index == 1) {
    tree.for_children([&](const Tree::Child &child) {
      steps.send(child.rank, 0,
                 cut.slice(Place::kResult, child.relative, child.relative + child.members));
    });
    return;
  }
  const Relative relative{task.size, task.root};
  const uint32_t step = index - 2;
  const uint32_t sent = wrap(uint64_t{own} + task.size - step, task.size);
  const uint32_t taken = wrap(uint64_t{sent} + task.size - 1, task.size);
  steps.receive(relative.rank(wrap(uint64_t{own} + task.size - 1, task.size)), index,
                cut.slice(Place::kResult, taken, taken + 1));
  steps.send(relative.rank(wrap(uint64_t{own} + 1, task.size)), index,
             cut.slice(Place::kResult, sent, sent + 1));
}

}  // namespace weft::coll
