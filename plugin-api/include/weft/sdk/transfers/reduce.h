// SPDX-License-Identifier: BSD-2-Clause
// Reductions of collective operations (fi_collective.3): FI_MIN to FI_BXOR, which may be put
// together from parts in any way. FI_DIFF may not.
//
// Example:
//    // Adds a member's operand to a sum.
//    inline void add(double *sum, const double *operand, size_t count) {
//      reduce_execute(FI_SUM, FI_DOUBLE, sum, sum, operand, count);
//    }
//
// The rules of each operation are those of atomic.h. Not for memory that others use at the same
// time: nothing here is atomic, so it is fast.
#ifndef WEFT_SDK_TRANSFERS_REDUCE_H
#define WEFT_SDK_TRANSFERS_REDUCE_H

#include <rdma/fi_atomic.h>

#include <cstddef>

namespace weft::sdk {

// Any two numbers.
bool reduce_valid(int op, int datatype);

// target[i] = left[i] op right[i], where `left` is the target of an atomic operation and `right`
// its operand. `target` may be `left` or `right`; none of the three need be aligned. A combination
// that reduce_valid() refuses touches nothing.
void reduce_execute(int op, int datatype, void *target, const void *left, const void *right,
                    size_t count);

}  // namespace weft::sdk

#endif
