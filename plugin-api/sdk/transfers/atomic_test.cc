// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/transfers/atomic.h"

#include <gtest/gtest.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <climits>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "plugin-api/sdk/testing/test_atomic.h"
#include "plugin-api/sdk/testing/test_rounds.h"

namespace weft::sdk {
namespace {

using namespace atomic_test;

TEST(Atomic, SizesOfDatatypes) {
  for (const Type &type : kTypes) EXPECT_EQ(datatype_size(type.code), type.size) << type.name;
  for (const int code : {INT_MIN, -1, FI_FLOAT8_E5M2 + 1, 255, int(FI_VOID), 257, INT_MAX})
    EXPECT_EQ(datatype_size(code), 0u) << code;
  EXPECT_EQ(std::size(kTypes), size_t(FI_FLOAT8_E5M2) + 1) << "a datatype is missing here";
}

TEST(Atomic, ValidityFollowsTheTablesOfTheManPage) {
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

TEST(Atomic, CountsOfValidCombinations) {
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

TEST(Atomic, EachOperationOfEachDatatypeAgreesWithTheReference) {
  Values values(20240611);
  for_all([&](AtomicKind kind, const Op &op, const Type &type) {
    if (!expected_valid(kind, op, type)) return;
    const bool finite = op.code == FI_PROD && type.what == kComplex;
    for (unsigned round = 0; round < rounds(200); ++round) {
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

TEST(Atomic, InvalidCombinationsWriteNothing) {
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

TEST(Atomic, MinMaxAndSwapsRespectTheSign) {
  EXPECT_EQ(after<int8_t>(FI_MIN, FI_INT8, 1, -1), -1);
  EXPECT_EQ(after<uint8_t>(FI_MIN, FI_UINT8, 1, 255), 1);
  EXPECT_EQ(after<int64_t>(FI_MAX, FI_INT64, 1, -1), 1);
  EXPECT_EQ(after<uint64_t>(FI_MAX, FI_UINT64, 1, UINT64_MAX), UINT64_MAX);
  EXPECT_TRUE(swaps<int32_t>(FI_CSWAP_LT, FI_INT32, 0, -1));
  EXPECT_FALSE(swaps<uint32_t>(FI_CSWAP_LT, FI_UINT32, 0, UINT32_MAX));
}

TEST(Atomic, CompareIsTheLeftSideOfTheComparison) {
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
    EXPECT_EQ(after<T>(op, datatype, 1, nan), 1) << "a NaN operand is not taken";
    EXPECT_TRUE(std::isnan(after<T>(op, datatype, nan, 1))) << "a NaN target stays";
  }
  for (const int op : {FI_SUM, FI_DIFF, FI_PROD})
    EXPECT_TRUE(std::isnan(after<T>(op, datatype, nan, 1)));
  EXPECT_EQ(after<T>(FI_LAND, datatype, nan, nan), 1) << "a NaN is not zero";
  EXPECT_EQ(after<T>(FI_LOR, datatype, nan, 0), 1);
  EXPECT_EQ(after<T>(FI_LXOR, datatype, nan, 0), 1);
  EXPECT_EQ(after<T>(FI_LOR, datatype, T(-0.0), T(-0.0)), 0) << "minus zero is zero";
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

TEST(Atomic, ReadAndWriteKeepAllBits) {
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
    GTEST_SKIP() << "a long double has no padding here";
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
          EXPECT_EQ(result[i], 0x5c) << "the padding of the old value is the target's";
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
  // The host writes pairs of equal halves. No read and no swap sees halves of two writes.
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

TEST(AtomicPieces, AnyPartitionGivesTheSameResult) {
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
      const uint64_t most = values.below(2) ? 3 : bytes + 1;  // many pieces or few
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

TEST(AtomicPieces, AnIncompleteElementAtTheEndIsIgnored) {
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

}  // namespace
}  // namespace weft::sdk
