// SPDX-License-Identifier: BSD-2-Clause
// Which atomic operations of libfabric the NIC has, and what it calls them.
//
// Example:
//    inline bool has_sum(int datatype) {
//      return amo_of(sdk::AtomicKind::kWrite, FI_SUM, datatype).has_value();
//    }
//
// An atomic write is a swap that depends on nothing, and an atomic read a sum with nothing; both
// move the bytes of the datatype's size. Not for what they compute: soft/amo.h.
#ifndef WEFT_PLUGINS_CXI_AMO_H
#define WEFT_PLUGINS_CXI_AMO_H

#include <weft/sdk/transfers/atomic.h>

#include <optional>

#include "plugins/cxi/nic/words.h"

namespace weft::cxi {

struct Amo {
  AmoOp op = AmoOp::kSum;
  Cswap cswap = Cswap::kEq;
  AmoType type = AmoType::kUint64;
  size_t size = 0;              // bytes
  bool is_write = false;        // the operand is also what the target is compared with
  bool has_no_operand = false;  // it is zero
};

std::optional<Amo> amo_of(sdk::AtomicKind kind, int op, int datatype);

}  // namespace weft::cxi

#endif
