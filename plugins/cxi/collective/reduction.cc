// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/collective/reduction.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_cxi_ext.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "plugins/cxi/collective/repsum.h"

namespace weft::cxi {
namespace {

constexpr int kRoundings[4] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
constexpr uint8_t kFlushes = 4;

bool is_sum(Opcode opcode) {
  return opcode >= Opcode::kSum && opcode <= Opcode::kSumLast;
}
bool has_doubles(Opcode opcode) {
  return opcode >= Opcode::kMin && opcode <= Opcode::kRepsum;
}

// The sum as this thread makes sums.
Opcode sum_of_this_thread() {
  uint8_t number = 0;
  const int mode = std::fegetround();
  while (number != 3 && kRoundings[number] != mode) ++number;
#if defined(__x86_64__)
  if (_MM_GET_FLUSH_ZERO_MODE() == _MM_FLUSH_ZERO_ON) number |= kFlushes;
#endif
  return Opcode(uint8_t(Opcode::kSum) + number);
}

bool is_signalling(double value) {
  return std::isnan(value) && (std::bit_cast<uint64_t>(value) >> 51 & 1) == 0;
}

// x + y under the rounding of `opcode`. The volatile ones keep the compiler from adding elsewhere.
double rounded_sum(Opcode opcode, double x, double y) {
  const unsigned number = unsigned(opcode) - unsigned(Opcode::kSum);
  const auto flushed = [&](double v) {
    return number & kFlushes && std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.0, v) : v;
  };
  const int own = std::fegetround();
  std::fesetround(kRoundings[number & 3]);
  const volatile double a = flushed(x), b = flushed(y);
  const volatile double sum = a + b;
  std::fesetround(own);
  return flushed(sum);
}

// Whether x comes before y: numbers before NaNs, -0 before 0.
bool is_less(double x, double y) {
  if (std::isnan(x) || std::isnan(y)) return !std::isnan(x) && std::isnan(y);
  return x < y || (x == y && std::signbit(x) && !std::signbit(y));
}
bool is_more(double x, double y) {
  if (std::isnan(x) || std::isnan(y)) return !std::isnan(x) && std::isnan(y);
  return is_less(y, x);
}

// Of FI_CXI_MINMAXLOC: the better value, and of equal ones the lower index.
template <class Better, class V>
void take_better(Better better, V &value, uint64_t &index, const V &other, uint64_t other_index) {
  const bool worse = better(value, other), wins = better(other, value);
  if (!wins && (worse || other_index >= index)) return;
  value = other;
  index = other_index;
}

Repsum sum_of(const Partial &partial) {
  Repsum sum;
  for (int i = 0; i < Repsum::kPlaces; ++i) sum.pieces[i] = partial.words[i].integer;
  sum.top = partial.top;
  sum.specials = partial.specials;
  return sum;
}

void keep_sum(Partial &partial, const Repsum &sum) {
  for (int i = 0; i < Repsum::kPlaces; ++i) partial.words[i].integer = sum.pieces[i];
  partial.top = sum.top;
  partial.specials = sum.specials;
}

// One word with the same of another operand.
Failure add_word(Opcode opcode, Partial::Word &own, const Partial::Word &other) {
  switch (opcode) {
    case Opcode::kAnd:
      own.bits &= other.bits;
      break;
    case Opcode::kOr:
      own.bits |= other.bits;
      break;
    case Opcode::kXor:
      own.bits ^= other.bits;
      break;
    case Opcode::kMinInt:
      own.integer = std::min(own.integer, other.integer);
      break;
    case Opcode::kMaxInt:
      own.integer = std::max(own.integer, other.integer);
      break;
    case Opcode::kSumInt: {
      const bool overflows = __builtin_add_overflow(own.integer, other.integer, &own.integer);
      return overflows ? Failure::kIntOverflow : Failure::kNone;
    }
    case Opcode::kMin:
      if (is_less(other.real, own.real)) own.real = other.real;
      break;
    case Opcode::kMax:
      if (is_more(other.real, own.real)) own.real = other.real;
      break;
    default: {
      const double x = own.real, y = other.real;
      own.real = rounded_sum(opcode, x, y);
      if (std::isinf(own.real) && !std::isinf(x) && !std::isinf(y)) return Failure::kFloatOverflow;
      if (std::isnan(own.real) && !std::isnan(x) && !std::isnan(y)) return Failure::kFloatInvalid;
    }
  }
  return Failure::kNone;
}

}  // namespace

bool is_known(Opcode opcode) {
  switch (opcode) {
    case Opcode::kBarrier:
    case Opcode::kAnd:
    case Opcode::kOr:
    case Opcode::kXor:
    case Opcode::kMinInt:
    case Opcode::kMaxInt:
    case Opcode::kMinMaxLocInt:
    case Opcode::kSumInt:
    case Opcode::kMin:
    case Opcode::kMax:
    case Opcode::kMinMaxLoc:
    case Opcode::kRepsum:
      return true;
    default:
      return is_sum(opcode);
  }
}

std::optional<Opcode> reduction_of(int op, int datatype) {
  const bool is_unsigned = datatype == FI_UINT8 || datatype == FI_UINT16 || datatype == FI_UINT32 ||
                           datatype == FI_UINT64;
  const auto either = [&](Opcode of_integers, Opcode of_doubles) -> std::optional<Opcode> {
    if (datatype == FI_INT64) return of_integers;
    if (datatype == FI_DOUBLE) return of_doubles;
    return std::nullopt;
  };
  switch (op) {
    case FI_BAND:
      return is_unsigned ? std::optional(Opcode::kAnd) : std::nullopt;
    case FI_BOR:
      return is_unsigned ? std::optional(Opcode::kOr) : std::nullopt;
    case FI_BXOR:
      return is_unsigned ? std::optional(Opcode::kXor) : std::nullopt;
    case FI_MIN:
      return either(Opcode::kMinInt, Opcode::kMin);
    case FI_MAX:
      return either(Opcode::kMaxInt, Opcode::kMax);
    case FI_SUM:
      return either(Opcode::kSumInt, sum_of_this_thread());
    case FI_CXI_MINMAXLOC:
      return either(Opcode::kMinMaxLocInt, Opcode::kMinMaxLoc);
    case FI_CXI_REPSUM:
      return datatype == FI_DOUBLE ? std::optional(Opcode::kRepsum) : std::nullopt;
    default:
      return std::nullopt;
  }
}

size_t element_size(Opcode opcode, int datatype) {
  if (opcode == Opcode::kMinMaxLoc || opcode == Opcode::kMinMaxLocInt)
    return sizeof(cxip_coll_fltminmax);
  switch (datatype) {
    case FI_UINT8:
      return 1;
    case FI_UINT16:
      return 2;
    case FI_UINT32:
      return 4;
    default:
      return 8;
  }
}

size_t max_elements(Opcode opcode, int datatype) {
  return opcode == Opcode::kRepsum ? 1 : kMaxOperand / element_size(opcode, datatype);
}

Partial Partial::of(Opcode opcode, const void *operand, size_t bytes) {
  Partial partial{.opcode = opcode, .bytes = uint8_t(bytes)};
  if (bytes != 0) std::memcpy(partial.words, operand, bytes);
  if (!has_doubles(opcode)) return partial;
  const bool has_indices = opcode == Opcode::kMinMaxLoc;
  for (size_t i = 0; i < bytes / sizeof(double); i += has_indices ? 2 : 1) {
    if (!is_signalling(partial.words[i].real)) continue;
    partial.failure = Failure::kFloatInvalid;
    partial.words[i].real = std::numeric_limits<double>::quiet_NaN();
  }
  if (opcode == Opcode::kRepsum) keep_sum(partial, Repsum::of(partial.words[0].real));
  return partial;
}

void Partial::add(const Partial &other) {
  failure = std::max(failure, other.failure);
  if (other.opcode != opcode || other.bytes != bytes) {
    failure = std::max(failure, Failure::kMismatch);
    return;
  }
  switch (opcode) {
    case Opcode::kBarrier:
      return;
    case Opcode::kRepsum: {
      Repsum sum = sum_of(*this);
      if (!sum.add(sum_of(other))) failure = std::max(failure, Failure::kOther);
      return keep_sum(*this, sum);
    }
    case Opcode::kMinMaxLocInt:
      take_better(std::less<>(), words[0].integer, words[1].bits, other.words[0].integer,
                  other.words[1].bits);
      return take_better(std::greater<>(), words[2].integer, words[3].bits, other.words[2].integer,
                         other.words[3].bits);
    case Opcode::kMinMaxLoc:
      take_better(is_less, words[0].real, words[1].bits, other.words[0].real, other.words[1].bits);
      return take_better(is_more, words[2].real, words[3].bits, other.words[2].real,
                         other.words[3].bits);
    default:
      // What is behind the last byte is zero on both sides, or of no interest.
      for (size_t i = 0; i < (size_t{bytes} + 7) / 8; ++i)
        failure = std::max(failure, add_word(opcode, words[i], other.words[i]));
  }
}

void Partial::write(void *result) {
  if (opcode == Opcode::kRepsum) {
    const Repsum sum = sum_of(*this);
    const double value = sum.value();
    if (sum.is_invalid()) failure = std::max(failure, Failure::kFloatInvalid);
    if (std::isinf(value) && sum.specials == 0)
      failure = std::max(failure, Failure::kFloatOverflow);
    std::memcpy(result, &value, sizeof value);
  } else if (bytes != 0) {
    std::memcpy(result, words, bytes);
  }
}

}  // namespace weft::cxi
