// SPDX-License-Identifier: BSD-2-Clause
// Partial: what a reduction is made of: one member's operand, the operands of some, or of all.
//
// Example (statements):
//    const double mine[2] = {1, 2}, theirs[2] = {3, 4};
//    const auto opcode = reduction_of(FI_SUM, FI_DOUBLE);
//    Partial sum = Partial::of(*opcode, mine, sizeof mine);
//    sum.add(Partial::of(*opcode, theirs, sizeof theirs));
//    double total[2];
//    sum.write(total);
//
// Operations and their numbers are those of the NIC (fi_cxi.7, COLLECTIVES). Members that ask for
// different ones, or for different sizes, get Failure::kMismatch; a failure stays with the result,
// as the gravest of all does.
//
// - Of FI_MIN, FI_MAX and FI_CXI_MINMAXLOC over doubles a NaN is no operand (the NUM variants), -0
//   is less than 0, and of equal values the one of the lowest index counts.
// - FI_SUM over doubles rounds as the thread does that asks for it, and flushes subnormal numbers
//   to zero where that does (x86). So the order of operands matters: a tree adds in its own.
//
// Not for who takes part: group.h.
#ifndef WEFT_PLUGINS_CXI_COLLECTIVE_REDUCTION_H
#define WEFT_PLUGINS_CXI_COLLECTIVE_REDUCTION_H

#include <rdma/fi_atomic.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace weft::cxi {

enum class Opcode : uint8_t {
  kBarrier = 0x00,
  kAnd = 0x01,
  kOr = 0x02,
  kXor = 0x03,
  kMinInt = 0x10,
  kMaxInt = 0x11,
  kMinMaxLocInt = 0x12,
  kSumInt = 0x14,
  kMin = 0x24,
  kMax = 0x25,
  kMinMaxLoc = 0x26,
  // Of doubles: to the nearest, up, down, to zero; and so with subnormal numbers flushed.
  kSum = 0x28,
  kSumLast = 0x2f,
  kRepsum = 0x30,
};
bool is_known(Opcode opcode);

// The gravest is the greatest.
enum class Failure : uint8_t {
  kNone = 0,
  kFloatOverflow,  // a double became infinite
  kFloatInvalid,   // a signalling NaN, or infinity minus infinity
  kIntOverflow,
  kOther,
  kMismatch,  // members disagree on the operation
  kGone,      // a member is gone
  kTimeout,   // FI_CXI_COLL_LIMIT_USEC
  kCanceled,  // by the member itself
  // Of joining, where a fabric manager gives addresses.
  kManagerFailed,  // no answer came
  kManagerLate,
  kManagerRefused,
  kAddressInUse,
  kAddressInvalid,
  kTreeRootInvalid,
  kLast = kTreeRootInvalid,
};

inline constexpr size_t kMaxOperand = 32;  // bytes

// The operation as an application names it. None: there is no such reduction. A sum of doubles has
// the rounding of this thread.
std::optional<Opcode> reduction_of(int op, int datatype);
// The bytes of one element, and how many there may be.
size_t element_size(Opcode opcode, int datatype);
size_t max_elements(Opcode opcode, int datatype);

struct Partial {
  union Word {
    uint64_t bits;
    int64_t integer;
    double real;
  };
  Opcode opcode = Opcode::kBarrier;
  uint8_t bytes = 0;  // of words, that mean something
  Failure failure = Failure::kNone;
  uint8_t top = 0, specials = 0;  // of a Repsum, whose pieces the words are
  Word words[4] = {};

  static Partial of(Opcode opcode, const void *operand, size_t bytes);
  void add(const Partial &other);
  void write(void *result);  // may find a failure
};

}  // namespace weft::cxi

#endif
