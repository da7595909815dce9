// SPDX-License-Identifier: BSD-2-Clause
// Alltoall: Bruck's algorithm for little data in few messages, else pairs.
#include "plugins/coll/schedule/parts.h"

namespace weft::coll {
namespace {

// Runs of blocks whose number has a bit: see(first, one behind the last).
template <class F>
void for_runs(uint32_t size, uint32_t bit, F see) {
  for (uint64_t from = bit; from < size; from += 2 * uint64_t{bit})
    see(uint32_t(from), uint32_t(std::min<uint64_t>(from + bit, size)));
}

uint32_t blocks_with(uint32_t size, uint32_t bit) {
  uint32_t count = 0;
  for_runs(size, bit, [&](uint32_t from, uint32_t to) { count += to - from; });
  return count;
}

// Behind the blocks: those to send, and those that come.
uint64_t sent_at(const Task &task) {
  return task.size;
}
uint64_t taken_at(const Task &task) {
  return uint64_t{task.size} + task.size / 2 + 1;
}

void pack(const Task &task, uint32_t bit, Steps &steps) {
  uint64_t at = sent_at(task);
  for_runs(task.size, bit, [&](uint32_t from, uint32_t to) {
    steps.copy(steps.blocks(Place::kScratch, at, at + to - from),
               steps.blocks(Place::kScratch, from, to));
    at += to - from;
  });
}

void unpack(const Task &task, uint32_t bit, Steps &steps) {
  uint64_t at = taken_at(task);
  for_runs(task.size, bit, [&](uint32_t from, uint32_t to) {
    steps.copy(steps.blocks(Place::kScratch, from, to),
               steps.blocks(Place::kScratch, at, at + to - from));
    at += to - from;
  });
}

}  // namespace

Need need_alltoall_bruck(const Task &task) {
  return {.rounds = 1 + log2_up(task.size),
          .scratch = (taken_at(task) + task.size / 2 + 1) * task.bytes()};
}

// A block that is for the member i ranks further goes there in hops: one for each bit of i.
void fill_alltoall_bruck(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  const uint32_t size = task.size, rank = task.rank;
  if (index == 0) {
    steps.copy(steps.blocks(Place::kScratch, 0, size - rank),
               steps.blocks(Place::kOperand, rank, size));
    steps.copy(steps.blocks(Place::kScratch, size - rank, size),
               steps.blocks(Place::kOperand, 0, rank));
  } else {
    const uint32_t bit = 1u << (index - 1), count = blocks_with(size, bit);
    steps.receive(wrap(uint64_t{rank} + size - bit, size), index,
                  steps.blocks(Place::kScratch, taken_at(task), taken_at(task) + count));
    steps.send(wrap(uint64_t{rank} + bit, size), index,
               steps.blocks(Place::kScratch, sent_at(task), sent_at(task) + count));
    unpack(task, bit, steps);
  }
  if (index < log2_up(size)) return pack(task, 1u << index, steps);
  for (uint32_t i = 0; i < size; ++i)
    steps.copy(steps.block(Place::kResult, wrap(uint64_t{rank} + size - i, size)),
               steps.block(Place::kScratch, i));
}

Need need_alltoall_pairwise(const Task &task) {
  const uint32_t pairs = pairs_of(task);
  return {.rounds = std::max(1u, (task.size - 1 + pairs - 1) / pairs)};
}

void fill_alltoall_pairwise(const Task &task, uint32_t index, Round &round) {
  Steps steps(task, round);
  if (index == 0)
    steps.copy_before(steps.block(Place::kResult, task.rank),
                      steps.block(Place::kOperand, task.rank));
  const uint64_t around = uint64_t{task.rank} + task.size;
  const uint32_t pairs = pairs_of(task);
  const uint32_t first = 1 + index * pairs, last = std::min(first + pairs, task.size);
  for (uint32_t distance = first; distance < last; ++distance) {
    const uint32_t from = wrap(around - distance, task.size);
    const uint32_t to = wrap(around + distance, task.size);
    steps.receive(from, 0, steps.block(Place::kResult, from));
    steps.send(to, 0, steps.block(Place::kOperand, to));
  }
}

}  // namespace weft::coll
