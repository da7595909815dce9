// SPDX-License-Identifier: BSD-2-Clause
// Atomic operations in software (fi_atomic.3): what a target does with a request, and what an
// initiator may ask for. Every operation of every datatype that the compiler can compute.
//
// Example:
//    #include <weft/sdk/memory/mr.h>
//    bool fetch(MrTable &regions, uint64_t key, uint64_t address, int op, int datatype,
//               const void *in, void *out, size_t count) {
//      if (!atomic_valid(AtomicKind::kFetch, op, datatype)) return false;  // any two numbers
//      iovec iov[4];
//      const MrTable::Access a = regions.resolve(key, address, count * datatype_size(datatype),
//                                                atomic_access(AtomicKind::kFetch, op), iov, 4);
//      if (a.mr == nullptr) return false;
//      atomic_execute_v(AtomicKind::kFetch, op, datatype, iov, a.count, in, nullptr, out);
//      return true;
//    }
//
// Which operation goes with which datatype follows from the formulas of fi_atomic.3, read as C: an
// operation is offered where its expression has a meaning. Integers have all. Floating point has no
// bitwise operation and no masked swap. Complex numbers have no order, so they have no minimum, no
// maximum, and of the compares only equal and not equal. float16, bfloat16 and the float8 forms
// have a size and no operation.
//
//   sum, difference, product   integers wrap; the complex product is C's (infinities survive)
//   minimum, maximum           a NaN is neither less nor greater: whichever side it is on, the
//                              target keeps its value
//   logical                    a value that is not zero is true, so a NaN is; the outcome is 1 or 0
//   compares                   `compare` stands left of the target; a NaN is only not equal; -0.0
//                              equals 0.0
//   long double                the bytes of padding are moved with old values, and are never
//                              written at the target
//
// All operations of one domain are atomic to each other, because the domain's progress executes
// them with the engine's lock held. Elements of at most 8 bytes that are naturally aligned are also
// read and written with one atomic instruction of the processor, so all threads and processes of
// the host may use the same words at the same time by atomics of their own. Larger or unaligned
// elements are atomic within the domain only. Not for device memory, and not for the matching of
// requests with answers.
#ifndef WEFT_SDK_TRANSFERS_ATOMIC_H
#define WEFT_SDK_TRANSFERS_ATOMIC_H

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_rma.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace weft::sdk {

class Hmem;

// fi_atomic, fi_fetch_atomic and fi_compare_atomic, each with its variants.
enum class AtomicKind { kWrite, kFetch, kCompare };

inline constexpr size_t kMaxDatatypeSize = 32;  // FI_LONG_DOUBLE_COMPLEX

// Operations and datatypes are plain numbers here, because they come from peers and from programs
// in C: any value is allowed.

size_t datatype_size(int datatype);  // bytes; 0: there is no such datatype, or it has no values

bool atomic_valid(AtomicKind kind, int op, int datatype);

// Whether stock libfabric (1.17 and 2.6 alike) executes it as a target. Any other operation ends
// stock's process, so it must not be sent to a stock peer.
constexpr bool stock_executes(int op, int datatype) {
  return datatype <= FI_FLOAT_COMPLEX && op <= FI_MSWAP;
}

// What the target's region must grant.
constexpr uint64_t atomic_access(AtomicKind kind, int op) {
  if (op == FI_ATOMIC_READ) return FI_REMOTE_READ;
  return kind == AtomicKind::kWrite ? FI_REMOTE_WRITE : FI_REMOTE_READ | FI_REMOTE_WRITE;
}

// Applies `op` to `count` elements that follow each other at `target`, each with its own operand.
// `operand` is not read by FI_ATOMIC_READ, `compare` only by kCompare, `result` gets the old
// values, except of kWrite. None of the four need be aligned; `target` may be the same memory as
// `operand` or `compare`, and `result` may overlap nothing. A combination that atomic_valid()
// refuses touches nothing. Allocates nothing, cannot fail.
void atomic_execute(AtomicKind kind, int op, int datatype, void *target, const void *operand,
                    const void *compare, void *result, size_t count);

// The same where the target is in several pieces, as MrTable::resolve() gives it. An element may
// lie across the border of two.
void atomic_execute_v(AtomicKind kind, int op, int datatype, const iovec *target, size_t pieces,
                      const void *operand, const void *compare, void *result);
// The same where the memory may be a device's: of `bytes`, which are copied to the host and back.
// Null: it is the host's. False: the device has failed.
bool hmem_atomic(const Hmem *hmem, AtomicKind kind, int op, int datatype, const iovec *target,
                 size_t count, uint64_t bytes, const void *operand, const void *compare,
                 void *result);

// The most bytes of target memory that one operation of each kind may touch.
struct AtomicLimits {
  size_t write = 0, fetch = 0, compare = 0;
};

// fi_atomicvalid and its siblings: 0 and the most elements of one operation, -FI_EOPNOTSUPP, or
// -FI_EINVAL without a count to write to.
int atomic_query_count(AtomicKind kind, int datatype, int op, const AtomicLimits &limits,
                       size_t *count);

// fi_query_atomic. FI_TAGGED asks for atomics to tagged receive buffers: -FI_EOPNOTSUPP.
int atomic_query(int datatype, int op, const AtomicLimits &limits, struct fi_atomic_attr *attr,
                 uint64_t flags);

// Elements in a vector; SIZE_MAX, which is over every limit, if their number overflows.
size_t ioc_count(const struct fi_ioc *ioc, size_t n);
size_t ioc_count(const struct fi_rma_ioc *ioc, size_t n);

// Copy operands from a vector to one buffer, and results from one buffer to a vector: at most
// `room` bytes, and at most the vector's. Both return the bytes copied. `size`: bytes of one
// element.
size_t ioc_gather(void *out, size_t room, const struct fi_ioc *ioc, size_t n, size_t size);
size_t ioc_scatter(const struct fi_ioc *ioc, size_t n, size_t size, const void *in, size_t room);

}  // namespace weft::sdk

#endif
