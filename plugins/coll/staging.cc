// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/staging.h"

#include <rdma/fi_errno.h>

#include <new>

namespace weft::coll {

int Staging::Buffer::open(const sdk::Hmem &hmem, const void *memory, uint64_t size) {
  if (memory == nullptr || size == 0) return 0;
  place = hmem.find(memory, size);
  if (!place) return 0;
  if (place.bytes < size) return -FI_EFAULT;
  bytes.reset(new (std::nothrow) uint8_t[size]);
  if (bytes == nullptr) return -FI_ENOMEM;
  at = const_cast<void *>(memory);
  length = size;
  return 1;
}

int Staging::Buffer::fill() {
  return sdk::hmem_copy(bytes.get(), nullptr, at, &place, length) ? 0 : -FI_EIO;
}

// The data of a broadcast is the result, which the root has already.
int Staging::make(const sdk::Hmem &hmem, const Task &task, Call &call,
                  std::unique_ptr<Staging> &staging) {
  auto made = std::make_unique<Staging>();
  const bool is_broadcast = task.coll == FI_BROADCAST;
  const int result = made->result_.open(hmem, call.result, result_bytes(task));
  if (result < 0) return result;
  const int operand =
      is_broadcast ? 0 : made->operand_.open(hmem, call.operand, operand_bytes(task));
  if (operand < 0) return operand;
  if (result == 0 && operand == 0) return 0;
  const bool fills_result = result != 0 && is_broadcast && task.rank == task.root;
  if (int rc = operand != 0 ? made->operand_.fill() : 0; rc != 0) return rc;
  if (int rc = fills_result ? made->result_.fill() : 0; rc != 0) return rc;
  if (operand != 0) call.operand = made->operand_.bytes.get();
  if (result != 0) call.result = made->result_.bytes.get();
  if (is_broadcast) call.operand = call.result;
  staging = std::move(made);
  return 0;
}

bool Staging::finish() const {
  return result_.bytes == nullptr ||
         sdk::hmem_copy(result_.at, &result_.place, result_.bytes.get(), nullptr, result_.length);
}

}  // namespace weft::coll
