// SPDX-License-Identifier: BSD-2-Clause
// Scatter and gather, in binomial trees. Blocks are in the order of the ranks from the root on, of
// which each part of the tree has some that follow each other.
#include "plugins/coll/schedule/parts.h"
#include "plugins/coll/schedule/tree.h"

namespace weft::coll {
namespace {

// Whether a member has blocks of others, which are not where the application has them.
bool keeps_blocks(const Task &task, const Tree &tree) {
  return tree.is_root() ? task.root != 0 : tree.members() > 1;
}

Need need_tree(const Task &task) {
  const Tree tree(task);
  return {.rounds = 2,
          .scratch = keeps_blocks(task, tree) ? uint64_t{tree.members()} * task.bytes() : 0};
}

}  // namespace

Need need_scatter(const Task &task) {
  return need_tree(task);
}

void fill_scatter(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Tree tree(task);
  const Slice result{Place::kResult, 0, task.bytes()};
  const uint32_t behind = task.size - task.root;
  const bool keeps = keeps_blocks(task, tree);
  if (index == 1) {
    const Place place = keeps ? Place::kScratch : Place::kOperand;
    tree.for_children([&](const Tree::Child &child) {
      const uint32_t from = child.relative - tree.relative();
      steps.send(child.rank, 0, steps.blocks(place, from, from + child.members));
    });
  } else if (!tree.is_root()) {
    steps.receive(tree.parent(), 0,
                  keeps ? steps.blocks(Place::kScratch, 0, tree.members()) : result);
    if (keeps) steps.copy(result, steps.block(Place::kScratch, 0));
  } else {
    steps.copy(result, steps.block(Place::kOperand, task.root));
    if (!keeps) return;
    steps.copy(steps.blocks(Place::kScratch, 0, behind),
               steps.blocks(Place::kOperand, task.root, task.size));
    steps.copy(steps.blocks(Place::kScratch, behind, task.size),
               steps.blocks(Place::kOperand, 0, task.root));
  }
}

Need need_gather(const Task &task) {
  return need_tree(task);
}

void fill_gather(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Tree tree(task);
  const Slice operand{Place::kOperand, 0, task.bytes()};
  const uint32_t behind = task.size - task.root;
  const bool keeps = keeps_blocks(task, tree);
  if (index == 1) {
    if (!tree.is_root())
      steps.send(tree.parent(), 0,
                 keeps ? steps.blocks(Place::kScratch, 0, tree.members()) : operand);
    return;
  }
  const Place place = keeps ? Place::kScratch : Place::kResult;
  tree.for_children([&](const Tree::Child &child) {
    const uint32_t from = child.relative - tree.relative();
    steps.receive(child.rank, 0, steps.blocks(place, from, from + child.members));
  });
  if (!tree.is_root()) {
    if (keeps) steps.copy(steps.block(Place::kScratch, 0), operand);
    return;
  }
  if (keeps) {
    steps.copy(steps.blocks(Place::kResult, task.root + 1, task.size),
               steps.blocks(Place::kScratch, 1, behind));
    steps.copy(steps.blocks(Place::kResult, 0, task.root),
               steps.blocks(Place::kScratch, behind, task.size));
  }
  steps.copy(steps.block(Place::kResult, task.root), operand);
}

}  // namespace weft::coll
