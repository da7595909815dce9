// SPDX-License-Identifier: BSD-2-Clause
// Atomics of the simulated applications of core_test and core_fuzz.
//
// Example:
//    // `result` must live until Upper::on_done().
//    inline int fetch_and_add(Core &core, uint32_t index, const sdk::Address &address,
//                             uint64_t &result) {
//      TxOp *op = core.take();
//      if (op == nullptr) return -FI_EAGAIN;
//      prepare_fetch_add(core, *op, &result, /*key=*/7);
//      const int rc = core.start(*op, index, &address);
//      if (rc != 0) core.give(*op);
//      return rc;
//    }
//
// Not for other operations: the applications prepare those themselves.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_TEST_ATOMIC_H
#define WEFT_PLUGINS_RXM_PROTOCOL_TEST_ATOMIC_H

#include <rdma/fi_atomic.h>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

// An atomic that adds 1 to the counter `key` and fetches its old value into `result`.
inline void prepare_fetch_add(Core &core, TxOp &op, void *result, uint64_t key) {
  uint64_t one = 1;
  const fi_ioc operand{&one, 1};
  fi_ioc out{result, 1};
  const fi_rma_ioc target{0, 1, key};
  core.prepare_atomic(op,
                      {.kind = sdk::AtomicKind::kFetch,
                       .datatype = FI_UINT64,
                       .op = FI_SUM,
                       .operands = &operand,
                       .operand_count = 1,
                       .results = &out,
                       .result_count = 1,
                       .rma = &target,
                       .rma_count = 1,
                       .elements = 1},
                      sizeof one);
}

}  // namespace weft::rxm

#endif
