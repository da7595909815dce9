// SPDX-License-Identifier: BSD-2-Clause
// Barrier by way of two leaders, or by dissemination. Broadcast by two leaders, by a binomial tree,
// by recursive doubling, or by the root alone; of long data along a chain in pieces, or by a
// scatter and an allgather in a ring.
#include "plugins/coll/schedule/parts.h"
#include "plugins/coll/schedule/tree.h"

namespace weft::coll {

// A leader hears of its half, then the leaders of each other, then each tells its half.
Need need_barrier_leaders(const Task &) {
  return {.rounds = 3};
}

void fill_barrier_leaders(const Task &task, uint32_t index, Round &round) {
  const Halves halves(task);
  const auto add = [&](bool sends, uint32_t peer, uint32_t label) {
    round.transfers.push_back({.sends = sends, .peer = peer, .label = label, .slice = {}});
  };
  if (task.rank != halves.leader) {
    if (index != 0) return;
    add(false, halves.leader, 2);
    return add(true, halves.leader, 0);
  }
  if (index == 1) {
    if (task.size > 1) Steps(task, round).signal(halves.other_leader(), halves.other_leader(), 1);
    return;
  }
  halves.for_followers([&](uint32_t rank, uint32_t) { add(index == 2, rank, index); });
}

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

Need need_broadcast_leaders(const Task &) {
  return {.rounds = 2};
}

// The root tells the other leader, then each tells its half. Ranks are counted from the root.
void fill_broadcast_leaders(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Relative order{task.size, task.root};
  const uint32_t own = order.of(task.rank);
  const Halves halves(task.size, own);
  const Slice data{Place::kResult, 0, task.bytes()};
  if (index == 0) {
    if (own != 0) steps.receive(order.rank(own == 1 ? 0 : halves.leader), 0, data);
    return;
  }
  if (own != halves.leader) return;
  if (own == 0 && task.size > 1) steps.send(order.rank(1), 0, data);
  halves.for_followers([&](uint32_t rank, uint32_t) { steps.send(order.rank(rank), 0, data); });
}

Need need_broadcast_linear(const Task &) {
  return {.rounds = 1};
}

// The root tells each.
void fill_broadcast_linear(const Task &task, uint32_t, Round &round) {
  Steps steps(task, round);
  const Relative order{task.size, task.root};
  const Slice data{Place::kResult, 0, task.bytes()};
  if (task.rank != task.root) return steps.receive(task.root, 0, data);
  for (uint32_t i = 1; i < task.size; ++i) steps.send(order.rank(i), 0, data);
}

Need need_broadcast_doubling(const Task &) {
  return {.rounds = 2};
}

// The root tells the next member, these two the next two, and so on. Where members are on two CPUs
// by their ranks, one message goes from one CPU to the other: all others are between ranks that are
// an even number apart.
void fill_broadcast_doubling(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Relative order{task.size, task.root};
  const uint32_t own = order.of(task.rank);
  const Slice data{Place::kResult, 0, task.bytes()};
  if (index == 0) {
    if (own != 0) steps.receive(order.rank(own - std::bit_floor(own)), 0, data);
  } else {
    for (uint32_t i = std::bit_ceil(own + 1); i < task.size - own; i *= 2)
      steps.send(order.rank(own + i), 0, data);
  }
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

namespace {

// Pieces that stay in a cache while they are received and sent on, but are not too many.
constexpr uint64_t kPiece = 128 * 1024, kMaxPieces = 256;

Cut pieces_of(const Task &task) {
  const uint64_t wanted = std::clamp<uint64_t>(task.bytes() / kPiece, 1, kMaxPieces);
  return {task.count, wanted, task.unit};
}

}  // namespace

Need need_broadcast_pipeline(const Task &task) {
  return {.rounds = uint32_t(pieces_of(task).parts) + 1};
}

// In each round a member receives a piece, and sends the one before.
void fill_broadcast_pipeline(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const Cut cut = pieces_of(task);
  const Relative order{task.size, task.root};
  const uint32_t own = order.of(task.rank);
  if (own != 0 && index < cut.parts)
    steps.receive(order.rank(own - 1), index, cut.slice(Place::kResult, index, index + 1));
  if (own + 1 != task.size && index != 0)
    steps.send(order.rank(own + 1), index - 1, cut.slice(Place::kResult, index - 1, index));
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
