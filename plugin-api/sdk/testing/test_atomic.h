// SPDX-License-Identifier: BSD-2-Clause
// The tables of fi_atomic.3 by hand, a reference implementation, and values to try. For the tests
// of weft/sdk/transfers/atomic.h only.
//
// Example (statements):
//    for_all([](AtomicKind kind, const Op &op, const Type &type) {
//      EXPECT_EQ(atomic_valid(kind, op.code, type.code), expected_valid(kind, op, type));
//    });
#pragma once

#include <gtest/gtest.h>
#include <rdma/fi_domain.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "weft/sdk/transfers/atomic.h"

namespace weft::sdk::atomic_test {

using Bytes = std::vector<uint8_t>;

inline constexpr AtomicKind kKinds[] = {AtomicKind::kWrite, AtomicKind::kFetch,
                                        AtomicKind::kCompare};

// ---- the tables of the man page, by hand ----

enum Class { kSigned, kUnsigned, kReal, kComplex, kNone };
struct Type {
  int code;
  Class what;
  const char *name;
  size_t size;
};
inline const Type kTypes[] = {
    {FI_INT8, kSigned, "int8", 1},
    {FI_UINT8, kUnsigned, "uint8", 1},
    {FI_INT16, kSigned, "int16", 2},
    {FI_UINT16, kUnsigned, "uint16", 2},
    {FI_INT32, kSigned, "int32", 4},
    {FI_UINT32, kUnsigned, "uint32", 4},
    {FI_INT64, kSigned, "int64", 8},
    {FI_UINT64, kUnsigned, "uint64", 8},
    {FI_INT128, kSigned, "int128", 16},
    {FI_UINT128, kUnsigned, "uint128", 16},
    {FI_FLOAT, kReal, "float", 4},
    {FI_DOUBLE, kReal, "double", 8},
    {FI_LONG_DOUBLE, kReal, "long double", sizeof(long double)},
    {FI_FLOAT_COMPLEX, kComplex, "float complex", 8},
    {FI_DOUBLE_COMPLEX, kComplex, "double complex", 16},
    {FI_LONG_DOUBLE_COMPLEX, kComplex, "long double complex", 2 * sizeof(long double)},
    {FI_FLOAT16, kNone, "float16", 2},
    {FI_BFLOAT16, kNone, "bfloat16", 2},
    {FI_FLOAT8_E4M3, kNone, "float8_e4m3", 1},
    {FI_FLOAT8_E5M2, kNone, "float8_e5m2", 1},
};

// Which calls take the operation (w: fi_atomic, f: fi_fetch_atomic, c: fi_compare_atomic), and for
// which values it means something (i: integers, r: reals, c: complex numbers).
struct Op {
  int code;
  const char *name, *calls, *values;
};
inline const Op kOps[] = {
    {FI_MIN, "min", "wf", "ir"},          {FI_MAX, "max", "wf", "ir"},
    {FI_SUM, "sum", "wf", "irc"},         {FI_PROD, "prod", "wf", "irc"},
    {FI_LOR, "lor", "wf", "irc"},         {FI_LAND, "land", "wf", "irc"},
    {FI_BOR, "bor", "wf", "i"},           {FI_BAND, "band", "wf", "i"},
    {FI_LXOR, "lxor", "wf", "irc"},       {FI_BXOR, "bxor", "wf", "i"},
    {FI_ATOMIC_READ, "read", "f", "irc"}, {FI_ATOMIC_WRITE, "write", "wf", "irc"},
    {FI_CSWAP, "cswap", "c", "irc"},      {FI_CSWAP_NE, "cswap_ne", "c", "irc"},
    {FI_CSWAP_LE, "cswap_le", "c", "ir"}, {FI_CSWAP_LT, "cswap_lt", "c", "ir"},
    {FI_CSWAP_GE, "cswap_ge", "c", "ir"}, {FI_CSWAP_GT, "cswap_gt", "c", "ir"},
    {FI_MSWAP, "mswap", "c", "i"},        {FI_DIFF, "diff", "wf", "irc"},
};

inline bool expected_valid(AtomicKind kind, const Op &op, const Type &type) {
  if (type.what == kNone) return false;
  const char call = kind == AtomicKind::kWrite ? 'w' : kind == AtomicKind::kFetch ? 'f' : 'c';
  const char value = type.what == kReal ? 'r' : type.what == kComplex ? 'c' : 'i';
  return std::strchr(op.calls, call) != nullptr && std::strchr(op.values, value) != nullptr;
}

inline void for_all(const std::function<void(AtomicKind, const Op &, const Type &)> &test) {
  for (const Type &type : kTypes)
    for (const Op &op : kOps)
      for (const AtomicKind kind : kKinds) {
        SCOPED_TRACE(std::string(op.name) + " of " + type.name + ", kind " +
                     std::to_string(int(kind)));
        test(kind, op, type);
        if (testing::Test::HasFatalFailure()) return;
      }
}

// ---- a reference that shares no code and no type with the code under test ----
// Integers are strings of bytes, the lowest first, with arithmetic as on paper. Reals are long
// doubles, in which the values that the tests use are exact.

inline Bytes lowest_first(Bytes b) {
  if (std::endian::native == std::endian::big) std::reverse(b.begin(), b.end());
  return b;
}
inline bool is_zero(const Bytes &b) {
  return std::all_of(b.begin(), b.end(), [](uint8_t v) { return v == 0; });
}
inline Bytes add(const Bytes &a, const Bytes &b) {
  Bytes sum(a.size());
  unsigned carry = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    carry += unsigned(a[i]) + b[i];
    sum[i] = uint8_t(carry & 0xff);
    carry >>= 8;
  }
  return sum;
}
inline Bytes negative(const Bytes &a) {
  Bytes flipped(a.size()), one(a.size(), 0);
  for (size_t i = 0; i < a.size(); ++i) flipped[i] = uint8_t(255 - a[i]);
  one[0] = 1;
  return add(flipped, one);
}
inline Bytes multiply(const Bytes &a, const Bytes &b) {
  Bytes product(a.size(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    unsigned carry = 0;
    for (size_t k = 0; i + k < a.size(); ++k) {
      carry += product[i + k] + unsigned(a[i]) * b[k];
      product[i + k] = uint8_t(carry & 0xff);
      carry >>= 8;
    }
  }
  return product;
}
// -1, 0, 1 as a is less, equal or greater.
inline int compare_integers(const Bytes &a, const Bytes &b, bool is_signed) {
  const bool minus_a = is_signed && a.back() >= 128, minus_b = is_signed && b.back() >= 128;
  if (minus_a != minus_b) return minus_a ? -1 : 1;
  for (size_t i = a.size(); i-- > 0;)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

using Parts = std::vector<long double>;  // one, or real and imaginary

inline size_t part_size(const Type &type) {
  return type.what == kComplex ? type.size / 2 : type.size;
}
inline size_t value_bytes(const Type &type) {  // of a part; the rest is padding
  return part_size(type) == sizeof(long double) && std::numeric_limits<long double>::digits == 64
             ? 10
             : part_size(type);
}
template <class T>
T as(const uint8_t *from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline Parts parts_of(const Bytes &b, const Type &type) {
  Parts parts;
  for (size_t at = 0; at < b.size(); at += part_size(type)) {
    if (part_size(type) == 4)
      parts.push_back(as<float>(&b[at]));
    else if (part_size(type) == 8)
      parts.push_back(as<double>(&b[at]));
    else
      parts.push_back(as<long double>(&b[at]));
  }
  return parts;
}
// `before` with the parts written over it. The padding stays.
inline Bytes over(Bytes before, const Parts &parts, const Type &type) {
  for (size_t i = 0; i < parts.size(); ++i) {
    uint8_t *const at = &before[i * part_size(type)];
    const float f = float(parts[i]);
    const double d = double(parts[i]);
    if (part_size(type) == 4)
      std::memcpy(at, &f, sizeof f);
    else if (part_size(type) == 8)
      std::memcpy(at, &d, sizeof d);
    else
      std::memcpy(at, &parts[i], value_bytes(type));
  }
  return before;
}
inline Bytes moved_over(Bytes before, const Bytes &from, const Type &type) {
  for (size_t at = 0; at < before.size(); at += part_size(type))
    std::copy_n(&from[at], value_bytes(type), &before[at]);
  return before;
}

inline Bytes reference_integer(int op, Bytes a, Bytes b, Bytes c, bool is_signed) {
  a = lowest_first(a), b = lowest_first(b), c = lowest_first(c);
  const auto bits = [&](auto f) {
    Bytes out(a.size());
    for (size_t i = 0; i < a.size(); ++i) out[i] = uint8_t(f(a[i], b[i], c[i]));
    return out;
  };
  const auto truth = [&](bool value) {
    Bytes out(a.size(), 0);
    out[0] = value;
    return out;
  };
  const int ba = compare_integers(b, a, is_signed), ca = compare_integers(c, a, is_signed);
  const bool ta = !is_zero(a), tb = !is_zero(b);
  switch (op) {
    case FI_MIN:
      return lowest_first(ba < 0 ? b : a);
    case FI_MAX:
      return lowest_first(ba > 0 ? b : a);
    case FI_SUM:
      return lowest_first(add(a, b));
    case FI_DIFF:
      return lowest_first(add(a, negative(b)));
    case FI_PROD:
      return lowest_first(multiply(a, b));
    case FI_LOR:
      return lowest_first(truth(ta || tb));
    case FI_LAND:
      return lowest_first(truth(ta && tb));
    case FI_LXOR:
      return lowest_first(truth((ta && !tb) || (!ta && tb)));
    case FI_BOR:
      return lowest_first(bits([](int x, int y, int) { return x | y; }));
    case FI_BAND:
      return lowest_first(bits([](int x, int y, int) { return x & y; }));
    case FI_BXOR:
      return lowest_first(bits([](int x, int y, int) { return x ^ y; }));
    case FI_MSWAP:
      return lowest_first(bits([](int x, int y, int m) { return (y & m) | (x & ~m); }));
    case FI_ATOMIC_WRITE:
      return lowest_first(b);
    case FI_CSWAP:
      return lowest_first(ca == 0 ? b : a);
    case FI_CSWAP_NE:
      return lowest_first(ca != 0 ? b : a);
    case FI_CSWAP_LE:
      return lowest_first(ca <= 0 ? b : a);
    case FI_CSWAP_LT:
      return lowest_first(ca < 0 ? b : a);
    case FI_CSWAP_GE:
      return lowest_first(ca >= 0 ? b : a);
    case FI_CSWAP_GT:
      return lowest_first(ca > 0 ? b : a);
    default:
      return lowest_first(a);
  }
}

inline Bytes reference_real(int op, const Bytes &before, const Bytes &operand, const Bytes &compare,
                            const Type &type) {
  const Parts a = parts_of(before, type), b = parts_of(operand, type), c = parts_of(compare, type);
  const auto moved_if = [&](bool yes) { return yes ? moved_over(before, operand, type) : before; };
  const auto nonzero = [](const Parts &p) {
    return std::any_of(p.begin(), p.end(), [](long double v) { return v != 0; });
  };
  const auto equal = [](const Parts &p, const Parts &q) {
    for (size_t i = 0; i < p.size(); ++i)
      if (!(p[i] == q[i])) return false;
    return true;
  };
  const auto truth = [&](bool value) {
    Parts out(a.size(), 0);
    out[0] = value;
    return over(before, out, type);
  };
  const auto each = [&](auto f) {
    Parts out(a.size());
    for (size_t i = 0; i < a.size(); ++i) out[i] = f(a[i], b[i]);
    return over(before, out, type);
  };
  switch (op) {
    case FI_MIN:
      return moved_if(b[0] < a[0]);
    case FI_MAX:
      return moved_if(b[0] > a[0]);
    case FI_SUM:
      return each([](long double x, long double y) { return x + y; });
    case FI_DIFF:
      return each([](long double x, long double y) { return x - y; });
    case FI_PROD:
      if (a.size() == 1) return over(before, {a[0] * b[0]}, type);
      return over(before, {a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]}, type);
    case FI_LOR:
      return truth(nonzero(a) || nonzero(b));
    case FI_LAND:
      return truth(nonzero(a) && nonzero(b));
    case FI_LXOR:
      return truth(nonzero(a) != nonzero(b));
    case FI_ATOMIC_WRITE:
      return moved_if(true);
    case FI_CSWAP:
      return moved_if(equal(c, a));
    case FI_CSWAP_NE:
      return moved_if(!equal(c, a));
    case FI_CSWAP_LE:
      return moved_if(c[0] <= a[0]);
    case FI_CSWAP_LT:
      return moved_if(c[0] < a[0]);
    case FI_CSWAP_GE:
      return moved_if(c[0] >= a[0]);
    case FI_CSWAP_GT:
      return moved_if(c[0] > a[0]);
    default:
      return before;
  }
}

inline Bytes reference(int op, const Type &type, const Bytes &before, const Bytes &operand,
                       const Bytes &compare) {
  if (type.what == kSigned || type.what == kUnsigned)
    return reference_integer(op, before, operand, compare, type.what == kSigned);
  return reference_real(op, before, operand, compare, type);
}

// The same bytes, or a NaN in both: the processor chooses its sign and payload.
inline testing::AssertionResult same(const Bytes &got, const Bytes &expected, const Type &type) {
  if (got == expected) return testing::AssertionSuccess();
  if (type.what == kReal || type.what == kComplex) {
    const Parts a = parts_of(got, type), b = parts_of(expected, type);
    Bytes mended = got;
    for (size_t i = 0; i < a.size(); ++i)
      if (std::isnan(a[i]) && std::isnan(b[i]))
        std::copy_n(&expected[i * part_size(type)], value_bytes(type),
                    &mended[i * part_size(type)]);
    if (mended == expected) return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << testing::PrintToString(got) << " is not " << testing::PrintToString(expected);
}

// ---- values ----

class Values {
 public:
  explicit Values(uint64_t seed) : random_(seed) {}
  uint64_t below(uint64_t n) { return random_() % n; }

  // Small, extreme and arbitrary values. Of reals: multiples of 1/4 below 1024, whose sums and
  // products are exact in each type. `finite` leaves out infinities and NaNs: their complex product
  // has a test of its own.
  Bytes any(const Type &type, bool finite) {
    Bytes out(type.size);
    for (uint8_t &b : out) b = uint8_t(random_());
    if (type.what == kSigned || type.what == kUnsigned) {
      const uint64_t choice = below(8);
      if (choice < 6) {
        std::fill(out.begin(), out.end(), choice == 1 || choice == 3 ? 0xff : 0);
        if (choice == 0) out[0] = uint8_t(below(3));
        if (choice == 1) out[0] = uint8_t(0xfd + below(3));           // -3, -2, -1
        if (choice == 2) out.back() = 0x80;                           // the least signed
        if (choice == 3) out.back() = 0x7f;                           // the greatest
        if (choice == 4) out[below(type.size)] = uint8_t(random_());  // one byte
      }
      return lowest_first(out);
    }
    Parts parts(type.size / part_size(type));
    for (long double &part : parts) {
      part = (long double)(int64_t(below(8192)) - 4096) / 4;
      const uint64_t choice = below(8);
      if (choice == 0) part = 0;
      if (choice == 1) part = -0.0L;
      if (choice == 2) part = 1;
      if (choice == 3 && !finite) part = std::numeric_limits<long double>::quiet_NaN();
      if (choice == 4 && !finite) part = std::numeric_limits<long double>::infinity();
      if (choice == 5 && !finite) part = -std::numeric_limits<long double>::infinity();
    }
    return over(out, parts, type);
  }

 private:
  std::mt19937_64 random_;
};

// A buffer at a chosen distance from alignment, with guard bytes around it.
class Buffer {
 public:
  Buffer(const Bytes &content, size_t misaligned)
      : memory_(kBefore + misaligned + content.size() + kAfter, kGuard),
        start_(kBefore + misaligned),
        size_(content.size()) {
    std::copy(content.begin(), content.end(), memory_.begin() + ptrdiff_t(start_));
  }
  void *at() { return memory_.data() + start_; }
  Bytes content() const { return part(0, size_); }
  Bytes part(size_t at, size_t size) const {
    const auto from = memory_.begin() + ptrdiff_t(start_ + at);
    return Bytes(from, from + ptrdiff_t(size));
  }
  bool guarded() const {
    const auto ok = [](uint8_t b) { return b == kGuard; };
    return std::all_of(memory_.begin(), memory_.begin() + ptrdiff_t(start_), ok) &&
           std::all_of(memory_.begin() + ptrdiff_t(start_ + size_), memory_.end(), ok);
  }

 private:
  static constexpr size_t kBefore = 32,
                          kAfter = 32;  // keeps vectors of bytes at 16, as malloc does
  static constexpr uint8_t kGuard = 0xa5;
  std::vector<uint8_t> memory_;
  size_t start_, size_;
};

inline Bytes joined(const std::vector<Bytes> &elements) {
  Bytes out;
  for (const Bytes &e : elements) out.insert(out.end(), e.begin(), e.end());
  return out;
}

}  // namespace weft::sdk::atomic_test
