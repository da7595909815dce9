// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/group/operation.h"

#include <rdma/fi_errno.h>
#include <weft/sdk/transfers/reduce.h>

#include <cstring>

namespace weft::coll {
namespace {

bool overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes) {
  const auto left = reinterpret_cast<uintptr_t>(a), right = reinterpret_cast<uintptr_t>(b);
  return a_bytes != 0 && b_bytes != 0 && left < right + b_bytes && right < left + a_bytes;
}

// The schedule knows of it, or there is no operand.
bool may_share(const Task &task) {
  return task.in_place || task.coll == FI_BROADCAST || task.coll == FI_BARRIER;
}

}  // namespace

int Operation::prepare(const Call &wanted, const Task &task) {
  schedule = Schedule::of(task);
  if (!schedule) return -FI_EINVAL;
  const uint64_t operand = operand_bytes(task), result = result_bytes(task);
  if ((operand != 0 && wanted.operand == nullptr) || (result != 0 && wanted.result == nullptr))
    return -FI_EINVAL;
  call = wanted;
  call.task = task;
  if (!may_share(task) && overlap(call.operand, operand, call.result, result)) {
    const auto *const from = static_cast<const uint8_t *>(call.operand);
    kept.assign(from, from + operand);
    call.operand = kept.data();
  }
  if (scratch.size() < schedule->scratch()) scratch.resize(schedule->scratch());
  next = 0;
  under_way = 0;
  failure = Failure::kNone;
  round.clear();
  return 0;
}

uint8_t *Operation::bytes_of(const Slice &slice) {
  switch (slice.place) {
    case Place::kOperand:  // no schedule writes there
      return static_cast<uint8_t *>(const_cast<void *>(call.operand)) + slice.at;
    case Place::kResult:
      return static_cast<uint8_t *>(call.result) + slice.at;
    default:
      return scratch.data() + slice.at;
  }
}

void Operation::run(const std::vector<LocalStep> &steps) {
  for (const LocalStep &step : steps) {
    uint8_t *const into = bytes_of(step.into), *const left = bytes_of(step.left);
    if (step.reduces)
      sdk::reduce_execute(call.op, call.datatype, into, left, bytes_of(step.right),
                          step.into.bytes / call.task.unit);
    else if (into != left)
      std::memmove(into, left, step.into.bytes);
  }
}

}  // namespace weft::coll
