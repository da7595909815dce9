// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/atomic.h"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <climits>
#include <cmath>
#include <complex>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace weft::sdk {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr AtomicKind kKinds[] = {AtomicKind::kWrite, AtomicKind::kFetch, AtomicKind::kCompare};

// ---- the tables of the man page, by hand ----

enum Class { kSigned, kUnsigned, kReal, kComplex, kNone };
struct Type {
  int code;
  Class what;
  const char *name;
  size_t size;
};
const Type kTypes[] = {
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
const Op kOps[] = {
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

bool expected_valid(AtomicKind kind, const Op &op, const Type &type) {
  if (type.what == kNone) return false;
  const char call = kind == AtomicKind::kWrite ? 'w' : kind == AtomicKind::kFetch ? 'f' : 'c';
  const char value = type.what == kReal ? 'r' : type.what == kComplex ? 'c' : 'i';
  return std::strchr(op.calls, call) != nullptr && std::strchr(op.values, value) != nullptr;
}

void for_all(const std::function<void(AtomicKind, const Op &, const Type &)> &test) {
  for (const Type &type : kTypes)
    for (const Op &op : kOps)
      for (const AtomicKind kind : kKinds) {
        SCOPED_TRACE(std::string(op.name) + " of " + type.name + ", kind " +
                     std::to_string(int(kind)));
        test(kind, op, type);
        if (testing::Test::HasFatalFailure()) return;
      }
}

// ---- a reference that shares no code and no type with what it judges ----
// Integers are strings of bytes, the lowest first, with arithmetic as on paper. Reals are long
// doubles, in which the values that the tests use are exact.

Bytes lowest_first(Bytes b) {
  if (std::endian::native == std::endian::big) std::reverse(b.begin(), b.end());
  return b;
}
bool is_zero(const Bytes &b) {
  return std::all_of(b.begin(), b.end(), [](uint8_t v) { return v == 0; });
}
Bytes add(const Bytes &a, const Bytes &b) {
  Bytes sum(a.size());
  unsigned carry = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    carry += unsigned(a[i]) + b[i];
    sum[i] = uint8_t(carry & 0xff);
    carry >>= 8;
  }
  return sum;
}
Bytes negative(const Bytes &a) {
  Bytes flipped(a.size()), one(a.size(), 0);
  for (size_t i = 0; i < a.size(); ++i) flipped[i] = uint8_t(255 - a[i]);
  one[0] = 1;
  return add(flipped, one);
}
Bytes multiply(const Bytes &a, const Bytes &b) {
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
int compare_integers(const Bytes &a, const Bytes &b, bool is_signed) {
  const bool minus_a = is_signed && a.back() >= 128, minus_b = is_signed && b.back() >= 128;
  if (minus_a != minus_b) return minus_a ? -1 : 1;
  for (size_t i = a.size(); i-- > 0;)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

using Parts = std::vector<long double>;  // one, or real and imaginary

size_t part_size(const Type &type) {
  return type.what == kComplex ? type.size / 2 : type.size;
}
size_t value_bytes(const Type &type) {  // of a part; the rest is padding
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
Parts parts_of(const Bytes &b, const Type &type) {
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
// Over what was there, whose padding stays.
Bytes over(Bytes before, const Parts &parts, const Type &type) {
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
Bytes moved_over(Bytes before, const Bytes &from, const Type &type) {
  for (size_t at = 0; at < before.size(); at += part_size(type))
    std::copy_n(&from[at], value_bytes(type), &before[at]);
  return before;
}

Bytes reference_integer(int op, Bytes a, Bytes b, Bytes c, bool is_signed) {
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

Bytes reference_real(int op, const Bytes &before, const Bytes &operand, const Bytes &compare,
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

Bytes reference(int op, const Type &type, const Bytes &before, const Bytes &operand,
                const Bytes &compare) {
  if (type.what == kSigned || type.what == kUnsigned)
    return reference_integer(op, before, operand, compare, type.what == kSigned);
  return reference_real(op, before, operand, compare, type);
}

// The same bytes, or a NaN in both: the processor chooses its sign and payload.
testing::AssertionResult same(const Bytes &got, const Bytes &expected, const Type &type) {
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
  // products are exact in each type; for parts of a product no infinities and NaNs, about whose
  // complex product there is a test of its own.
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

Bytes joined(const std::vector<Bytes> &elements) {
  Bytes out;
  for (const Bytes &e : elements) out.insert(out.end(), e.begin(), e.end());
  return out;
}

// ---- tests ----

TEST(Atomic, SizesOfDatatypes) {
  for (const Type &type : kTypes) EXPECT_EQ(datatype_size(type.code), type.size) << type.name;
  for (const int code : {INT_MIN, -1, FI_FLOAT8_E5M2 + 1, 255, int(FI_VOID), 257, INT_MAX})
    EXPECT_EQ(datatype_size(code), 0u) << code;
  EXPECT_EQ(std::size(kTypes), size_t(FI_FLOAT8_E5M2) + 1) << "a datatype is missing here";
}

TEST(Atomic, ValidityIsTheTablesOfTheManPage) {
  for_all([](AtomicKind kind, const Op &op, const Type &type) {
    EXPECT_EQ(atomic_valid(kind, op.code, type.code), expected_valid(kind, op, type));
  });
  EXPECT_EQ(std::size(kOps), size_t(FI_DIFF) + 1) << "an operation is missing here";
  for (const AtomicKind kind : kKinds)
    for (const int odd : {INT_MIN, -1, 20, 21, 255, 256, 257, INT_MAX}) {
      for (const Type &type : kTypes) EXPECT_FALSE(atomic_valid(kind, odd, type.code)) << odd;
      for (const Op &op : kOps) EXPECT_FALSE(atomic_valid(kind, op.code, odd)) << odd;
    }
}

TEST(Atomic, ValidityInNumbers) {
  // 10 integers with all, 3 reals without the 3 bitwise and MSWAP, 3 complex without order either.
  size_t writes = 0, fetches = 0, compares = 0;
  for (int op = -2; op < 300; ++op)
    for (int type = -2; type < 300; ++type) {
      writes += atomic_valid(AtomicKind::kWrite, op, type);
      fetches += atomic_valid(AtomicKind::kFetch, op, type);
      compares += atomic_valid(AtomicKind::kCompare, op, type);
    }
  EXPECT_EQ(writes, 10u * 12 + 3 * 9 + 3 * 7);
  EXPECT_EQ(fetches, 10u * 13 + 3 * 10 + 3 * 8);
  EXPECT_EQ(compares, 10u * 7 + 3 * 6 + 3 * 2);
}

// What fi_query_atomic of stock 1.17 and 2.6 answers over rxm and rxd: operations from left to
// right, by write, fetch and compare; datatypes beyond these have none.
TEST(Atomic, WhatStockExecutes) {
  const char *const integer[] = {"xxxxxxxxxx.x........", "xxxxxxxxxxxx........",
                                 "............xxxxxxx."};
  const char *const real[] = {"xxxxxx..x..x........", "xxxxxx..x.xx........",
                              "............xxxxxx.."};
  const char *const complex[] = {"..xxxx..x..x........", "..xxxx..x.xx........",
                                 "............xx......"};
  for (int datatype = 0; datatype < 20; ++datatype) {
    const char *const *rows = datatype <= FI_UINT64          ? integer
                              : datatype <= FI_DOUBLE        ? real
                              : datatype == FI_FLOAT_COMPLEX ? complex
                                                             : nullptr;
    for (size_t kind = 0; kind < 3; ++kind) {
      for (int op = 0; op < 20; ++op) {
        EXPECT_EQ(stock_executes(op, datatype) && atomic_valid(kKinds[kind], op, datatype),
                  rows != nullptr && rows[kind][op] == 'x')
            << kind << ' ' << op << ' ' << datatype;
      }
    }
  }
}

TEST(Atomic, AccessThatTheTargetMustGrant) {
  EXPECT_EQ(atomic_access(AtomicKind::kWrite, FI_SUM), FI_REMOTE_WRITE);
  EXPECT_EQ(atomic_access(AtomicKind::kWrite, FI_ATOMIC_WRITE), FI_REMOTE_WRITE);
  EXPECT_EQ(atomic_access(AtomicKind::kFetch, FI_SUM), FI_REMOTE_READ | FI_REMOTE_WRITE);
  EXPECT_EQ(atomic_access(AtomicKind::kFetch, FI_ATOMIC_READ), FI_REMOTE_READ);
  EXPECT_EQ(atomic_access(AtomicKind::kCompare, FI_CSWAP), FI_REMOTE_READ | FI_REMOTE_WRITE);
}

TEST(Atomic, EachOperationOfEachDatatypeIsWhatTheReferenceSays) {
  Values values(20240611);
  for_all([&](AtomicKind kind, const Op &op, const Type &type) {
    if (!expected_valid(kind, op, type)) return;
    const bool finite = op.code == FI_PROD && type.what == kComplex;
    for (int round = 0; round < 200; ++round) {
      const size_t count = values.below(6);
      std::vector<Bytes> targets, operands, compares, expected;
      for (size_t i = 0; i < count; ++i) {
        targets.push_back(values.any(type, finite));
        operands.push_back(values.below(4) == 0 ? targets[i] : values.any(type, finite));
        compares.push_back(values.below(2) == 0 ? targets[i] : values.any(type, finite));
        expected.push_back(reference(op.code, type, targets[i], operands[i], compares[i]));
      }
      const auto place = [&] { return values.below(2) == 0 ? 0 : values.below(16); };
      const Bytes nothing(count * type.size, 0x77);
      Buffer target(joined(targets), place()), operand(joined(operands), place()),
          compare(joined(compares), place()), result(nothing, place());
      atomic_execute(kind, op.code, type.code, target.at(),
                     op.code == FI_ATOMIC_READ ? nullptr : operand.at(),
                     kind == AtomicKind::kCompare ? compare.at() : nullptr,
                     kind == AtomicKind::kWrite ? nullptr : result.at(), count);
      for (size_t i = 0; i < count; ++i)
        ASSERT_TRUE(same(target.part(i * type.size, type.size), expected[i], type))
            << "target " << testing::PrintToString(targets[i]) << " operand "
            << testing::PrintToString(operands[i]) << " compare "
            << testing::PrintToString(compares[i]);
      ASSERT_EQ(result.content(), kind == AtomicKind::kWrite ? nothing : joined(targets));
      ASSERT_EQ(operand.content(), joined(operands));
      ASSERT_EQ(compare.content(), joined(compares));
      ASSERT_TRUE(target.guarded() && result.guarded());
    }
  });
}

TEST(Atomic, WhatIsNotValidTouchesNothing) {
  const auto untouched = [](AtomicKind kind, int op, int datatype) {
    uint8_t target[64], result[64];
    const uint8_t operand[64] = {1, 2, 3}, compare[64] = {};
    std::memset(target, 0x11, sizeof target);
    std::memset(result, 0x22, sizeof result);
    atomic_execute(kind, op, datatype, target, operand, compare, result, 2);
    const iovec piece{target, sizeof target};
    atomic_execute_v(kind, op, datatype, &piece, 1, operand, compare, result);
    return std::all_of(target, target + 64, [](uint8_t b) { return b == 0x11; }) &&
           std::all_of(result, result + 64, [](uint8_t b) { return b == 0x22; });
  };
  for_all([&](AtomicKind kind, const Op &op, const Type &type) {
    if (!expected_valid(kind, op, type)) {
      EXPECT_TRUE(untouched(kind, op.code, type.code));
    }
  });
  for (const AtomicKind kind : kKinds)
    for (const int odd : {INT_MIN, -1, 20, 256, INT_MAX}) {
      EXPECT_TRUE(untouched(kind, odd, FI_INT64));
      EXPECT_TRUE(untouched(kind, FI_SUM, odd));
      EXPECT_TRUE(untouched(kind, odd, odd));
    }
}

template <class T>
T after(int op, int datatype, T target, T operand) {
  atomic_execute(AtomicKind::kWrite, op, datatype, &target, &operand, nullptr, nullptr, 1);
  return target;
}
template <class T>
bool swaps(int op, int datatype, T target, T compare) {
  const T operand(42), before = target;
  T old(7);
  atomic_execute(AtomicKind::kCompare, op, datatype, &target, &operand, &compare, &old, 1);
  uint8_t got[sizeof(T)], expected[sizeof(T)];
  std::memcpy(got, &old, sizeof old);
  std::memcpy(expected, &before, sizeof before);
  EXPECT_TRUE(std::equal(got, got + std::min<size_t>(sizeof(T), 10), expected));
  return target == operand;
}

TEST(Atomic, IntegersWrap) {
  EXPECT_EQ(after<int8_t>(FI_SUM, FI_INT8, 127, 1), -128);
  EXPECT_EQ(after<int16_t>(FI_PROD, FI_INT16, -32768, -1), -32768);
  EXPECT_EQ(after<uint16_t>(FI_PROD, FI_UINT16, 65535, 65535), 1)
      << "65535 * 65535 as int overflows";
  EXPECT_EQ(after<int32_t>(FI_SUM, FI_INT32, INT_MAX, 1), INT_MIN);
  EXPECT_EQ(after<int32_t>(FI_PROD, FI_INT32, INT_MIN, -1), INT_MIN);
  EXPECT_EQ(after<int64_t>(FI_SUM, FI_INT64, INT64_MAX, INT64_MAX), -2);
  EXPECT_EQ(after<int64_t>(FI_DIFF, FI_INT64, INT64_MIN, 1), INT64_MAX);
  EXPECT_EQ(after<uint64_t>(FI_DIFF, FI_UINT64, 0, 1), UINT64_MAX);
}

TEST(Atomic, SignsMatter) {
  EXPECT_EQ(after<int8_t>(FI_MIN, FI_INT8, 1, -1), -1);
  EXPECT_EQ(after<uint8_t>(FI_MIN, FI_UINT8, 1, 255), 1);
  EXPECT_EQ(after<int64_t>(FI_MAX, FI_INT64, 1, -1), 1);
  EXPECT_EQ(after<uint64_t>(FI_MAX, FI_UINT64, 1, UINT64_MAX), UINT64_MAX);
  EXPECT_TRUE(swaps<int32_t>(FI_CSWAP_LT, FI_INT32, 0, -1));
  EXPECT_FALSE(swaps<uint32_t>(FI_CSWAP_LT, FI_UINT32, 0, UINT32_MAX));
}

TEST(Atomic, CompareStandsLeftOfTheTarget) {
  // target 5 with compare 4, 5, 6
  const auto three = [](int op) {
    std::string out;
    for (const int64_t compare : {4, 5, 6})
      out += swaps<int64_t>(op, FI_INT64, 5, compare) ? 'y' : 'n';
    return out;
  };
  EXPECT_EQ(three(FI_CSWAP), "nyn");
  EXPECT_EQ(three(FI_CSWAP_NE), "yny");
  EXPECT_EQ(three(FI_CSWAP_LE), "yyn");
  EXPECT_EQ(three(FI_CSWAP_LT), "ynn");
  EXPECT_EQ(three(FI_CSWAP_GE), "nyy");
  EXPECT_EQ(three(FI_CSWAP_GT), "nny");
}

TEST(Atomic, MaskedSwapTakesTheMaskFromCompare) {
  uint32_t target = 0x12345678, old = 0;
  const uint32_t operand = 0xaabbccdd, mask = 0x00ff00f0;
  atomic_execute(AtomicKind::kCompare, FI_MSWAP, FI_UINT32, &target, &operand, &mask, &old, 1);
  EXPECT_EQ(target, 0x12bb56d8u);
  EXPECT_EQ(old, 0x12345678u);
}

template <class T>
void check_nan(int datatype) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for (const int op : {FI_MIN, FI_MAX}) {
    EXPECT_EQ(after<T>(op, datatype, 1, nan), 1) << "an operand that is none is not taken";
    EXPECT_TRUE(std::isnan(after<T>(op, datatype, nan, 1))) << "a target that is none stays";
  }
  for (const int op : {FI_SUM, FI_DIFF, FI_PROD})
    EXPECT_TRUE(std::isnan(after<T>(op, datatype, nan, 1)));
  EXPECT_EQ(after<T>(FI_LAND, datatype, nan, nan), 1) << "it is not zero";
  EXPECT_EQ(after<T>(FI_LOR, datatype, nan, 0), 1);
  EXPECT_EQ(after<T>(FI_LXOR, datatype, nan, 0), 1);
  EXPECT_EQ(after<T>(FI_LOR, datatype, T(-0.0), T(-0.0)), 0) << "but minus zero is";
  EXPECT_FALSE(swaps<T>(FI_CSWAP, datatype, nan, nan));
  EXPECT_TRUE(swaps<T>(FI_CSWAP_NE, datatype, nan, nan));
  for (const int op : {FI_CSWAP_LE, FI_CSWAP_LT, FI_CSWAP_GE, FI_CSWAP_GT})
    EXPECT_FALSE(swaps<T>(op, datatype, nan, 1) || swaps<T>(op, datatype, 1, nan));
  EXPECT_TRUE(swaps<T>(FI_CSWAP, datatype, T(0.0), T(-0.0))) << "by value, not by bits";
  EXPECT_TRUE(std::signbit(after<T>(FI_MIN, datatype, T(-0.0), T(0.0)))) << "neither is less";
}

TEST(Atomic, NotANumber) {
  check_nan<float>(FI_FLOAT);
  check_nan<double>(FI_DOUBLE);
  check_nan<long double>(FI_LONG_DOUBLE);
}

TEST(Atomic, AnyBitsAreMovedAsTheyAre) {
  // Signalling NaNs too, which arithmetic would make quiet.
  const uint32_t bits = 0x7f800001;
  uint32_t target = bits, old = 0;
  const uint32_t operand = 0xff812345;
  atomic_execute(AtomicKind::kFetch, FI_ATOMIC_WRITE, FI_FLOAT, &target, &operand, nullptr, &old,
                 1);
  EXPECT_EQ(old, bits);
  EXPECT_EQ(target, operand);
  atomic_execute(AtomicKind::kFetch, FI_ATOMIC_READ, FI_FLOAT, &target, nullptr, nullptr, &old, 1);
  EXPECT_EQ(old, operand);
}

template <class T>
void check_complex(int datatype) {
  using C = std::complex<T>;
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  EXPECT_EQ(after<C>(FI_PROD, datatype, {1, 2}, {3, 4}), C(-5, 10));
  EXPECT_EQ(after<C>(FI_SUM, datatype, {1, 2}, {3, 5}), C(4, 7));
  EXPECT_EQ(after<C>(FI_DIFF, datatype, {1, 2}, {3, 5}), C(-2, -3));
  // (∞ + NaN i) is infinite, and so is its product with what is not zero.
  const C product = after<C>(FI_PROD, datatype, {inf, nan}, {1, 1});
  EXPECT_TRUE(std::isinf(product.real()) || std::isinf(product.imag())) << product;
  EXPECT_EQ(after<C>(FI_LAND, datatype, {0, 1}, {1, 0}), C(1, 0)) << "true with either part";
  EXPECT_EQ(after<C>(FI_LXOR, datatype, {0, 1}, {1, 0}), C(0, 0));
  EXPECT_FALSE(swaps<C>(FI_CSWAP, datatype, {1, 2}, {1, 3}));
  EXPECT_FALSE(swaps<C>(FI_CSWAP, datatype, {1, 2}, {3, 2}));
  EXPECT_TRUE(swaps<C>(FI_CSWAP, datatype, {1, 2}, {1, 2}));
  EXPECT_TRUE(swaps<C>(FI_CSWAP_NE, datatype, {1, 2}, {1, 3}));
  EXPECT_TRUE(swaps<C>(FI_CSWAP_NE, datatype, {nan, 2}, {nan, 2}));
}

TEST(Atomic, ComplexNumbers) {
  check_complex<float>(FI_FLOAT_COMPLEX);
  check_complex<double>(FI_DOUBLE_COMPLEX);
  check_complex<long double>(FI_LONG_DOUBLE_COMPLEX);
}

TEST(Atomic, PaddingOfALongDoubleIsNotWritten) {
  if (std::numeric_limits<long double>::digits != 64 || sizeof(long double) != 16)
    GTEST_SKIP() << "it has none here";
  for (const Type &type : kTypes) {
    if (part_size(type) != 16 || type.what == kSigned || type.what == kUnsigned) continue;
    for (const int op : {FI_SUM, FI_PROD, FI_LOR, FI_ATOMIC_WRITE, FI_CSWAP_NE}) {
      Bytes target = over(Bytes(type.size, 0x5c), Parts(type.size / 16, 3), type);
      const Bytes operand = over(Bytes(type.size, 0xee), Parts(type.size / 16, 4), type);
      const bool compares = op == FI_CSWAP_NE;
      Bytes result(type.size);
      atomic_execute(compares ? AtomicKind::kCompare : AtomicKind::kFetch, op, type.code,
                     target.data(), operand.data(), operand.data(), result.data(), 1);
      for (size_t i = 0; i < type.size; ++i)
        if (i % 16 >= 10) {
          EXPECT_EQ(target[i], 0x5c) << type.name << " byte " << i << " operation " << op;
          EXPECT_EQ(result[i], 0x5c) << "nor invented in the old value";
        }
    }
  }
}

TEST(Atomic, TheTargetMayBeItsOwnOperand) {
  for (const size_t misaligned : {0, 1}) {
    alignas(8) char memory[32] = {};
    const int64_t start[3] = {1, -7, INT64_MAX};
    std::memcpy(memory + misaligned, start, sizeof start);
    atomic_execute(AtomicKind::kWrite, FI_SUM, FI_INT64, memory + misaligned, memory + misaligned,
                   nullptr, nullptr, 3);
    int64_t end[3];
    std::memcpy(end, memory + misaligned, sizeof end);
    EXPECT_EQ(end[0], 2);
    EXPECT_EQ(end[1], -14);
    EXPECT_EQ(end[2], -2);
  }
}

// ---- with the host's own atomics ----

// Four threads at once without a lock, half of them the host's own: no update is lost.
template <class T>
void check_shared(int datatype) {
  constexpr int kThreads = 4, kRounds = 100'000;
  std::barrier start(kThreads);
  alignas(sizeof(T)) T word{};
  using W = std::conditional_t<sizeof(T) == 4, uint32_t,
                               std::conditional_t<sizeof(T) == 8, uint64_t, uint16_t>>;
  const auto by_engine = [&] {
    const T one(1);
    T old;
    start.arrive_and_wait();
    for (int i = 0; i < kRounds; ++i)
      if (i % 2 == 0)
        atomic_execute(AtomicKind::kFetch, FI_SUM, datatype, &word, &one, nullptr, &old, 1);
      else
        atomic_execute(AtomicKind::kWrite, FI_SUM, datatype, &word, &one, nullptr, nullptr, 1);
  };
  typedef W __attribute__((may_alias)) Shared;
  Shared *const bits = reinterpret_cast<Shared *>(&word);
  const auto by_host = [&] {
    start.arrive_and_wait();
    for (int i = 0; i < kRounds; ++i) {
      W seen = __atomic_load_n(bits, __ATOMIC_RELAXED), next;
      do {
        next = std::bit_cast<W>(T(std::bit_cast<T>(seen) + 1));
      } while (!__atomic_compare_exchange_n(bits, &seen, next, true, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED));
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads / 2; ++i) {
    threads.emplace_back(by_engine);
    threads.emplace_back(by_host);
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(std::bit_cast<T>(W(__atomic_load_n(bits, __ATOMIC_RELAXED))), T(kThreads * kRounds));
}

TEST(AtomicShared, NoUpdateIsLost) {
  check_shared<uint16_t>(FI_UINT16);
  check_shared<uint32_t>(FI_UINT32);
  check_shared<uint64_t>(FI_UINT64);
  check_shared<float>(FI_FLOAT);
  check_shared<double>(FI_DOUBLE);
}

TEST(AtomicShared, AnAlignedFloatComplexIsOneWord) {
  // The host writes pairs of equal halves; neither a read nor a swap ever sees a half of each.
  alignas(8) std::complex<float> word(0, 0);
  typedef uint64_t __attribute__((may_alias)) Shared;
  Shared *const bits = reinterpret_cast<Shared *>(&word);
  std::atomic<bool> stop{false};
  std::thread host([&] {
    for (float f = 1; !stop; f += f < 1000 ? 1.0f : -999.0f)
      __atomic_store_n(bits, std::bit_cast<uint64_t>(std::complex<float>(f, f)), __ATOMIC_RELAXED);
  });
  for (int i = 0; i < 50'000; ++i) {
    std::complex<float> old, compare(-1, -1);
    const std::complex<float> next(7, 7);
    atomic_execute(AtomicKind::kFetch, FI_ATOMIC_READ, FI_FLOAT_COMPLEX, &word, nullptr, nullptr,
                   &old, 1);
    ASSERT_EQ(old.real(), old.imag());
    atomic_execute(AtomicKind::kCompare, FI_CSWAP_NE, FI_FLOAT_COMPLEX, &word, &next, &compare,
                   &old, 1);
    ASSERT_EQ(old.real(), old.imag());
  }
  stop = true;
  host.join();
}

// ---- targets in pieces ----

TEST(AtomicPieces, AnyPartitionDoesTheSame) {
  Values values(77);
  for_all([&](AtomicKind kind, const Op &op, const Type &type) {
    if (!expected_valid(kind, op, type)) return;
    const bool finite = op.code == FI_PROD && type.what == kComplex;
    for (int round = 0; round < 20; ++round) {
      const size_t count = 1 + values.below(5), bytes = count * type.size;
      std::vector<Bytes> elements;
      Bytes operand, compare;
      for (size_t i = 0; i < count; ++i) {
        elements.push_back(values.any(type, finite));
        const Bytes o = values.any(type, finite),
                    c = values.below(2) ? elements[i] : values.any(type, finite);
        operand.insert(operand.end(), o.begin(), o.end());
        compare.insert(compare.end(), c.begin(), c.end());
      }
      Bytes whole = joined(elements), result(bytes), result_v(bytes);
      std::vector<Bytes> pieces;
      std::vector<iovec> iov;
      const uint64_t most = values.below(2) ? 3 : bytes + 1;  // some of many pieces, some of few
      for (size_t at = 0; at < bytes;) {
        const size_t n = std::min<size_t>(values.below(most + 1), bytes - at);
        pieces.emplace_back(whole.begin() + ptrdiff_t(at), whole.begin() + ptrdiff_t(at + n));
        at += n;
      }
      iov.reserve(pieces.size());
      for (Bytes &piece : pieces) iov.push_back({piece.data(), piece.size()});
      atomic_execute(kind, op.code, type.code, whole.data(), operand.data(), compare.data(),
                     result.data(), count);
      atomic_execute_v(kind, op.code, type.code, iov.data(), iov.size(), operand.data(),
                       compare.data(), result_v.data());
      ASSERT_EQ(joined(pieces), whole);
      ASSERT_EQ(result_v, result);
    }
  });
}

TEST(AtomicPieces, HalfAnElementAtTheEndIsNone) {
  uint8_t memory[11];
  std::memset(memory, 0, sizeof memory);
  const iovec iov[] = {{memory, 5}, {memory + 5, 0}, {memory + 5, 6}};
  const uint32_t ones[3] = {1, 1, 1};
  uint32_t old[3] = {9, 9, 9};
  atomic_execute_v(AtomicKind::kFetch, FI_SUM, FI_UINT32, iov, 3, ones, nullptr, old);
  const Bytes expected =
      joined({lowest_first({1, 0, 0, 0}), lowest_first({1, 0, 0, 0}), {0, 0, 0}});
  EXPECT_EQ(Bytes(memory, memory + 11), expected);
  EXPECT_EQ(old[0], 0u);
  EXPECT_EQ(old[1], 0u);
  EXPECT_EQ(old[2], 9u);
  atomic_execute_v(AtomicKind::kFetch, FI_ATOMIC_READ, FI_UINT32, iov, 3, nullptr, nullptr, old);
  EXPECT_EQ(old[1], 1u);
  EXPECT_EQ(old[2], 9u);
}

// ---- asking ----

TEST(AtomicQuery, CountIsWhatFitsInOneOperation) {
  const AtomicLimits limits{.write = 1000, .fetch = 500, .compare = 33};
  size_t count = 0;
  EXPECT_EQ(atomic_query_count(AtomicKind::kWrite, FI_INT64, FI_SUM, limits, &count), 0);
  EXPECT_EQ(count, 125u);
  EXPECT_EQ(atomic_query_count(AtomicKind::kFetch, FI_INT64, FI_SUM, limits, &count), 0);
  EXPECT_EQ(count, 62u);
  EXPECT_EQ(atomic_query_count(AtomicKind::kCompare, FI_INT128, FI_CSWAP, limits, &count), 0);
  EXPECT_EQ(count, 2u);
  count = 99;
  EXPECT_EQ(atomic_query_count(AtomicKind::kCompare, FI_INT64, FI_SUM, limits, &count),
            -FI_EOPNOTSUPP);
  EXPECT_EQ(atomic_query_count(AtomicKind::kWrite, -5, 1 << 20, limits, &count), -FI_EOPNOTSUPP);
  EXPECT_EQ(atomic_query_count(AtomicKind::kWrite, FI_FLOAT16, FI_SUM, limits, &count),
            -FI_EOPNOTSUPP);
  EXPECT_EQ(atomic_query_count(AtomicKind::kWrite, FI_INT64, FI_SUM, {.write = 7}, &count),
            -FI_EOPNOTSUPP)
      << "not even one fits";
  EXPECT_EQ(count, 99u);
  EXPECT_EQ(atomic_query_count(AtomicKind::kWrite, FI_INT64, FI_SUM, limits, nullptr), -FI_EINVAL);
}

TEST(AtomicQuery, AnswersAsTheValidCallsDo) {
  const AtomicLimits limits{.write = 4096, .fetch = 2048, .compare = 1024};
  for_all([&](AtomicKind kind, const Op &op, const Type &type) {
    const uint64_t flags = kind == AtomicKind::kWrite   ? 0
                           : kind == AtomicKind::kFetch ? FI_FETCH_ATOMIC
                                                        : FI_COMPARE_ATOMIC;
    size_t count = 0;
    fi_atomic_attr attr{};
    const bool valid = expected_valid(kind, op, type);
    EXPECT_EQ(atomic_query_count(kind, type.code, op.code, limits, &count),
              valid ? 0 : -FI_EOPNOTSUPP);
    EXPECT_EQ(atomic_query(type.code, op.code, limits, &attr, flags), valid ? 0 : -FI_EOPNOTSUPP);
    EXPECT_EQ(attr.count, count);
    EXPECT_EQ(attr.size, valid ? type.size : 0);
    EXPECT_EQ(atomic_query(type.code, op.code, limits, &attr, flags | FI_TAGGED), -FI_EOPNOTSUPP);
  });
}

TEST(AtomicQuery, WhatIsWrongIsRefused) {
  const AtomicLimits limits{.write = 64, .fetch = 64, .compare = 64};
  fi_atomic_attr attr{};
  EXPECT_EQ(atomic_query(FI_INT64, FI_SUM, limits, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(atomic_query(FI_INT64, FI_SUM, limits, &attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC),
            -FI_EINVAL);
  EXPECT_EQ(atomic_query(FI_INT64, FI_SUM, limits, &attr, FI_PEEK), -FI_EBADFLAGS);
  EXPECT_EQ(attr.count, 0u);
}

// ---- vectors ----

TEST(Ioc, CountsAndSeesOverflow) {
  const fi_ioc ioc[] = {
      {nullptr, 3}, {nullptr, 0}, {nullptr, 4}, {nullptr, SIZE_MAX - 7}, {nullptr, 1}};
  EXPECT_EQ(ioc_count(ioc, 0), 0u);
  EXPECT_EQ(ioc_count(ioc, 3), 7u);
  EXPECT_EQ(ioc_count(ioc, 4), SIZE_MAX);
  EXPECT_EQ(ioc_count(ioc, 5), SIZE_MAX) << "not around to 0";
  const fi_rma_ioc rma[] = {{0, 5, 1}, {0, SIZE_MAX, 1}};
  EXPECT_EQ(ioc_count(rma, 1), 5u);
  EXPECT_EQ(ioc_count(rma, 2), SIZE_MAX);
}

TEST(Ioc, GathersAndScattersWithinTheRoom) {
  uint16_t a[2] = {1, 2}, b[3] = {3, 4, 5};
  const fi_ioc ioc[] = {{a, 2}, {nullptr, 0}, {b, 3}};
  uint16_t out[6];
  for (size_t room = 0; room <= 12; ++room) {
    std::memset(out, 0xff, sizeof out);
    EXPECT_EQ(ioc_gather(out, room, ioc, 3, 2), std::min<size_t>(room, 10));
    const uint16_t all[] = {1, 2, 3, 4, 5, 0xffff};
    Bytes expected(12, 0xff);
    std::memcpy(expected.data(), all, std::min<size_t>(room, 10));
    EXPECT_EQ(std::memcmp(out, expected.data(), 12), 0) << room;
  }
  const uint16_t in[6] = {11, 12, 13, 14, 15, 16};
  EXPECT_EQ(ioc_scatter(ioc, 3, 2, in, 6), 6u);
  EXPECT_EQ(a[0], 11);
  EXPECT_EQ(a[1], 12);
  EXPECT_EQ(b[0], 13);
  EXPECT_EQ(b[1], 4) << "there was no more";
  EXPECT_EQ(ioc_scatter(ioc, 3, 2, in, sizeof in), 10u) << "there is no more place";
  EXPECT_EQ(b[2], 15);
  const fi_ioc endless[] = {{b, SIZE_MAX}};
  EXPECT_EQ(ioc_gather(out, 6, endless, 1, 2), 6u) << "the number of bytes overflows";
  EXPECT_EQ(out[2], 15);
}

}  // namespace
}  // namespace weft::sdk
