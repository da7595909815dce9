// SPDX-License-Identifier: BSD-2-Clause
// OperationTable: the application's operations that are in flight. Each has an id while it is; a
// peer that answers names it by that.
//
// Example:
//    // The operation that an answer is for; null: it has ended.
//    inline TxOp *answered(const OperationTable &operations, uint64_t id) {
//      TxOp *const op = operations.find(id);
//      return op != nullptr && op->answer ? op : nullptr;
//    }
//
// An id comes from the wire: it leads to an operation or to nothing. Not for what an operation
// does.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_OPERATION_TABLE_H
#define WEFT_PLUGINS_RXM_PROTOCOL_OPERATION_TABLE_H

#include <weft/sdk/memory/pool.h>
#include <weft/sdk/transfers/cancel.h>

#include <vector>

#include "plugins/rxm/protocol/operations.h"

namespace weft::rxm {

class OperationTable {
 public:
  explicit OperationTable(size_t most) : pool_(most) {}

  // With everything as before the first use; null: `most` are in flight.
  TxOp *take() {
    TxOp *const op = pool_.take();
    if (op == nullptr) return nullptr;
    if (op->slot == kNoIndex) {
      op->slot = uint32_t(all_.size());
      all_.push_back(op);
    }
    ++op->generation;
    op->fence = op->sent = op->answer = op->writing = op->inject = op->counted = op->queued = false;
    op->report = true;
    op->is_canceled = false;
    op->until = Tell::kNothing;
    op->exposed = op->enlisted = 0;
    op->tokens = 0;
    op->err = 0;
    op->offset = 0;
    op->flags = 0;
    op->vector_count = 0;
    op->result_count = 0;
    return op;
  }
  void give(TxOp &op) {
    op.bounce.reset();
    op.context = nullptr;  // fi_cancel does not find it any more
    pool_.give(&op);
  }
  static uint64_t id_of(const TxOp &op) { return uint64_t(op.generation) << 32 | op.slot; }
  // Null: it is none, or of an operation that has ended and whose place another one has.
  TxOp *find(uint64_t id) const {
    const auto slot = uint32_t(id);
    TxOp *const op = slot < all_.size() ? all_[slot] : nullptr;
    return op != nullptr && id_of(*op) == id ? op : nullptr;
  }
  // Marks the operation with this context, if it has begun.
  bool cancel(const void *context) { return sdk::mark_canceled(pool_, context, &TxOp::cq_flags); }
  size_t in_use() const { return pool_.in_use(); }
  // Also those that are not in use.
  const std::vector<TxOp *> &all() const { return all_; }

 private:
  sdk::Pool<TxOp> pool_;
  std::vector<TxOp *> all_;  // by TxOp::slot
};

}  // namespace weft::rxm

#endif
