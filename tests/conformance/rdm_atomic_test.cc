// SPDX-License-Identifier: BSD-2-Clause
// Atomics (fi_atomic.3): every datatype and operation that fi_query_atomic says is valid does what
// the page's formula says, in every form of call; the others are refused.
#include <algorithm>
#include <complex>
#include <cstring>
#include <random>
#include <type_traits>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr uint64_t kAtomicKey = 9;
constexpr size_t kCount = 4;

enum class Kind { kBase, kFetch, kCompare };

template <class T>
constexpr bool is_complex = false;
template <class T>
constexpr bool is_complex<std::complex<T>> = true;

// What the man page says about one element; false: the operation has no meaning for the type.
template <class T>
bool apply(enum fi_op op, T &target, T operand, T compare) {
  if constexpr (!is_complex<T>) {
    switch (op) {
      case FI_MIN:
        target = std::min(target, operand);
        return true;
      case FI_MAX:
        target = std::max(target, operand);
        return true;
      case FI_CSWAP_LE:
        if (compare <= target) target = operand;
        return true;
      case FI_CSWAP_LT:
        if (compare < target) target = operand;
        return true;
      case FI_CSWAP_GE:
        if (compare >= target) target = operand;
        return true;
      case FI_CSWAP_GT:
        if (compare > target) target = operand;
        return true;
      default:
        break;
    }
  }
  if constexpr (!is_complex<T> && T(1) / T(2) == T(0)) {  // whole numbers
    switch (op) {
      case FI_BOR:
        target = T(target | operand);
        return true;
      case FI_BAND:
        target = T(target & operand);
        return true;
      case FI_BXOR:
        target = T(target ^ operand);
        return true;
      case FI_MSWAP:
        target = T((operand & compare) | (target & T(~compare)));
        return true;
      default:
        break;
    }
  }
  switch (op) {
    case FI_SUM:
      target = T(target + operand);
      return true;
    case FI_PROD:
      target = T(target * operand);
      return true;
    case FI_LOR:
      target = T(target != T(0) || operand != T(0));
      return true;
    case FI_LAND:
      target = T(target != T(0) && operand != T(0));
      return true;
    case FI_LXOR:
      target = T((target != T(0)) != (operand != T(0)));
      return true;
    case FI_ATOMIC_READ:
      return true;
    case FI_ATOMIC_WRITE:
      target = operand;
      return true;
    case FI_CSWAP:
      if (compare == target) target = operand;
      return true;
    case FI_CSWAP_NE:
      if (compare != target) target = operand;
      return true;
    default:
      return false;
  }
}

Options with_atomics() {
  Options options;
  options.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
  return options;
}

uint64_t query_flags(Kind kind) {
  return kind == Kind::kFetch ? FI_FETCH_ATOMIC : kind == Kind::kCompare ? FI_COMPARE_ATOMIC : 0;
}

int valid(fid_ep *ep, Kind kind, enum fi_datatype type, enum fi_op op, size_t *count) {
  switch (kind) {
    case Kind::kBase:
      return fi_atomicvalid(ep, type, op, count);
    case Kind::kFetch:
      return fi_fetch_atomicvalid(ep, type, op, count);
    case Kind::kCompare:
      return fi_compare_atomicvalid(ep, type, op, count);
  }
  return -FI_EINVAL;
}

ssize_t start(Net &net, Kind kind, enum fi_datatype type, enum fi_op op, const void *operand,
              const void *compare, void *result, size_t count, uint64_t at, uint64_t key,
              void *context) {
  fid_ep *ep = net[0].ep;
  const fi_addr_t to = net.at(0, 1);
  switch (kind) {
    case Kind::kBase:
      return fi_atomic(ep, operand, count, nullptr, to, at, key, type, op, context);
    case Kind::kFetch:
      return fi_fetch_atomic(ep, op == FI_ATOMIC_READ ? nullptr : operand, count, nullptr, result,
                             nullptr, to, at, key, type, op, context);
    case Kind::kCompare:
      return fi_compare_atomic(ep, operand, count, nullptr, compare, nullptr, result, nullptr, to,
                               at, key, type, op, context);
  }
  return -FI_EINVAL;
}

// Values that reach both branches of every operation; small enough that no product overflows.
template <class T>
T value(std::mt19937 &random) {
  const int small = int(random() % 7);
  if constexpr (is_complex<T>)
    return T(typename T::value_type(small), typename T::value_type(random() % 3));
  else
    return T(std::is_signed_v<T> && random() % 2 ? -small : small);
}

template <class T>
void check(Net &net, Kind kind, enum fi_datatype type, enum fi_op op) {
  SCOPED_TRACE(std::string(fi_tostr(&type, FI_TYPE_ATOMIC_TYPE)) + " kind " +
               std::to_string(int(kind)));
  SCOPED_TRACE(fi_tostr(&op, FI_TYPE_ATOMIC_OP));
  std::mt19937 random(unsigned(type) * 100 + unsigned(op));
  std::vector<T> window(kCount), operand(kCount), compare(kCount), result(kCount);
  Handle<fid_mr> region;
  must(fi_mr_reg(net[1].domain, window.data(), kCount * sizeof(T), FI_REMOTE_READ | FI_REMOTE_WRITE,
                 0, kAtomicKey, 0, region.out(), nullptr));
  net[1].enable(region);
  const uint64_t at = net[1].base_of(window.data()), key = fi_mr_key(region);

  fi_atomic_attr attr{};
  const int asked = fi_query_atomic(net[0].domain, type, op, &attr, query_flags(kind));
  size_t count = 0;
  EXPECT_EQ(valid(net[0].ep, kind, type, op, &count) == 0, asked == 0) << "the two queries differ";
  T dummy{};
  const bool meaningful = apply(op, dummy, dummy, dummy);
  const bool compares = op >= FI_CSWAP && op <= FI_MSWAP;
  const bool of_kind = compares
                           ? kind == Kind::kCompare
                           : kind == Kind::kFetch || (kind == Kind::kBase && op != FI_ATOMIC_READ);
  if (asked != 0) {
    EXPECT_LT(asked, 0);
    const ssize_t rc = net.attempt([&] {
      return start(net, kind, type, op, operand.data(), compare.data(), result.data(), 1, at, key,
                   nullptr);
    });
    EXPECT_LT(rc, 0) << "what is not valid is refused";
    return;
  }
  ASSERT_TRUE(meaningful && of_kind) << "offered, but without a meaning";
  EXPECT_EQ(attr.size, sizeof(T));
  EXPECT_GE(attr.count, 1u);
  EXPECT_EQ(attr.count, count);
  covers(std::string(fi_tostr(&op, FI_TYPE_ATOMIC_OP)));
  for (int round = 0; round < 6; ++round) {
    const size_t n = std::min(count, size_t(round) % kCount + 1);
    for (size_t i = 0; i < kCount; ++i) {
      window[i] = value<T>(random);
      operand[i] = value<T>(random);
      compare[i] = random() % 2 ? window[i] : value<T>(random);
      result[i] = T(77);
    }
    const std::vector<T> before = window;
    std::vector<T> expected = window;
    for (size_t i = 0; i < n; ++i) apply(op, expected[i], operand[i], compare[i]);
    net.post([&] {
      return start(net, kind, type, op, operand.data(), compare.data(), result.data(), n, at, key,
                   &window);
    });
    const Completion done = net.wait(net[0].tx_cq);
    ASSERT_EQ(done.err, 0) << fi_strerror(done.err);
    EXPECT_EQ(done.context, &window);
    EXPECT_TRUE(done.flags & FI_ATOMIC);
    EXPECT_TRUE(net.until([&] { return window == expected; })) << "round " << round;
    for (size_t i = 0; i < kCount && kind != Kind::kBase; ++i)
      EXPECT_TRUE(result[i] == (i < n ? before[i] : T(77))) << "the value before, element " << i;
  }
}

template <class T>
void check_all(Net &net, enum fi_datatype type) {
  for (int op = FI_MIN; op <= FI_MSWAP; ++op)
    for (Kind kind : {Kind::kBase, Kind::kFetch, Kind::kCompare})
      check<T>(net, kind, type, static_cast<enum fi_op>(op));
}

#define ATOMIC_TYPE_TEST(name, type, datatype) \
  TEST(RdmAtomic, name) {                      \
    RDM_NEEDS(FI_ATOMIC);                      \
    Net net(2, with_atomics());                \
    check_all<type>(net, datatype);            \
  }
ATOMIC_TYPE_TEST(Int8, int8_t, FI_INT8)
ATOMIC_TYPE_TEST(Uint8, uint8_t, FI_UINT8)
ATOMIC_TYPE_TEST(Int16, int16_t, FI_INT16)
ATOMIC_TYPE_TEST(Uint16, uint16_t, FI_UINT16)
ATOMIC_TYPE_TEST(Int32, int32_t, FI_INT32)
ATOMIC_TYPE_TEST(Uint32, uint32_t, FI_UINT32)
ATOMIC_TYPE_TEST(Int64, int64_t, FI_INT64)
ATOMIC_TYPE_TEST(Uint64, uint64_t, FI_UINT64)
ATOMIC_TYPE_TEST(Float, float, FI_FLOAT)
ATOMIC_TYPE_TEST(Double, double, FI_DOUBLE)
ATOMIC_TYPE_TEST(FloatComplex, std::complex<float>, FI_FLOAT_COMPLEX)
ATOMIC_TYPE_TEST(DoubleComplex, std::complex<double>, FI_DOUBLE_COMPLEX)
ATOMIC_TYPE_TEST(LongDouble, long double, FI_LONG_DOUBLE)
ATOMIC_TYPE_TEST(LongDoubleComplex, std::complex<long double>, FI_LONG_DOUBLE_COMPLEX)
ATOMIC_TYPE_TEST(Int128, __int128, FI_INT128)
ATOMIC_TYPE_TEST(Uint128, unsigned __int128, FI_UINT128)

// ---- the other forms ----

#define NEEDS_ELEMENTS(ep, elements)                                                           \
  do {                                                                                         \
    size_t count = 0;                                                                          \
    must(fi_atomicvalid(ep, FI_UINT64, FI_SUM, &count));                                       \
    if (count < (elements)) GTEST_SKIP() << "an atomic operation has " << count << " element"; \
  } while (0)

struct Window {
  Window() : net(2, with_atomics()), words(64) {
    region =
        net[1].expose(words.data(), words.size() * 8, FI_REMOTE_READ | FI_REMOTE_WRITE, kAtomicKey);
  }
  uint64_t at(size_t word = 0) { return net[1].base_of(words.data()) + 8 * word; }
  uint64_t key() { return fi_mr_key(region); }
  bool becomes(const std::vector<uint64_t> &expected) {
    return net.until([&] { return std::equal(expected.begin(), expected.end(), words.begin()); });
  }
  Net net;
  std::vector<uint64_t> words;
  fid_mr *region;
};

TEST(RdmAtomic, VectorsGatherAndScatter) {
  RDM_NEEDS(FI_ATOMIC);
  Window w;
  NEEDS_ELEMENTS(w.net[0].ep, 3);
  uint64_t a[2] = {1, 2}, b[1] = {3}, r1[1] = {}, r2[2] = {}, c[3] = {1, 7, 3};
  const fi_ioc operands[] = {{a, 2}, {b, 1}}, compares[] = {{c, 3}};
  fi_ioc results[] = {{r1, 1}, {r2, 2}};
  Node &node = w.net[0];
  w.net.post([&] {
    return fi_atomicv(node.ep, operands, nullptr, 2, w.net.at(0, 1), w.at(), w.key(), FI_UINT64,
                      FI_SUM, nullptr);
  });
  EXPECT_EQ(w.net.wait(node.tx_cq).err, 0);
  EXPECT_TRUE(w.becomes({1, 2, 3, 0}));
  w.net.post([&] {
    return fi_fetch_atomicv(node.ep, operands, nullptr, 2, results, nullptr, 2, w.net.at(0, 1),
                            w.at(), w.key(), FI_UINT64, FI_SUM, nullptr);
  });
  EXPECT_EQ(w.net.wait(node.tx_cq).err, 0);
  EXPECT_TRUE(w.becomes({2, 4, 6, 0}));
  EXPECT_EQ(r1[0], 1u);
  EXPECT_EQ(r2[0], 2u);
  EXPECT_EQ(r2[1], 3u);
  for (size_t i = 0; i < 3; ++i) w.words[i] = i + 1;
  w.net.post([&] {
    return fi_compare_atomicv(node.ep, operands, nullptr, 2, compares, nullptr, 1, results, nullptr,
                              2, w.net.at(0, 1), w.at(), w.key(), FI_UINT64, FI_CSWAP_NE, nullptr);
  });
  EXPECT_EQ(w.net.wait(node.tx_cq).err, 0);
  EXPECT_EQ(r1[0], 1u);
  EXPECT_EQ(r2[0], 2u);
  EXPECT_EQ(r2[1], 3u);
  EXPECT_TRUE(w.becomes({1, 2, 3, 0}));
}

TEST(RdmAtomic, MessagesOfAtomics) {
  RDM_NEEDS(FI_ATOMIC);
  Window w;
  NEEDS_ELEMENTS(w.net[0].ep, 3);
  uint64_t one[2] = {5, 6}, old[2] = {9, 9}, same[2] = {5, 0};
  const fi_ioc operand{one, 2}, compare{same, 2};
  fi_ioc result{old, 2};
  const fi_rma_ioc remote{w.at(3), 2, w.key()};
  fi_msg_atomic message{};
  message.msg_iov = &operand;
  message.iov_count = 1;
  message.addr = w.net.at(0, 1);
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.datatype = FI_UINT64;
  message.op = FI_SUM;
  message.context = &w;
  fid_ep *ep = w.net[0].ep;
  w.net.post([&] { return fi_atomicmsg(ep, &message, FI_COMPLETION); });
  EXPECT_EQ(w.net.wait(w.net[0].tx_cq).context, &w);
  EXPECT_TRUE(w.becomes({0, 0, 0, 5, 6, 0}));
  w.net.post([&] { return fi_fetch_atomicmsg(ep, &message, &result, nullptr, 1, FI_COMPLETION); });
  EXPECT_EQ(w.net.wait(w.net[0].tx_cq).err, 0);
  EXPECT_EQ(old[0], 5u);
  EXPECT_EQ(old[1], 6u);
  EXPECT_TRUE(w.becomes({0, 0, 0, 10, 12, 0}));
  message.op = FI_CSWAP;
  same[0] = 10;
  w.net.post([&] {
    return fi_compare_atomicmsg(ep, &message, &compare, nullptr, 1, &result, nullptr, 1,
                                FI_COMPLETION);
  });
  EXPECT_EQ(w.net.wait(w.net[0].tx_cq).err, 0);
  EXPECT_TRUE(w.becomes({0, 0, 0, 5, 12, 0}));
  EXPECT_EQ(old[1], 12u);
}

TEST(RdmAtomic, InjectedAtomicsLeaveTheBufferAndNoCompletion) {
  RDM_NEEDS(FI_ATOMIC);
  Window w;
  for (uint64_t i = 1; i <= 100; ++i) {
    uint64_t operand = i;
    w.net.post([&] {
      return fi_inject_atomic(w.net[0].ep, &operand, 1, w.net.at(0, 1), w.at(), w.key(), FI_UINT64,
                              FI_SUM);
    });
    operand = 0;
  }
  EXPECT_TRUE(w.becomes({5050, 0}));
  w.net.settle();
  EXPECT_FALSE(poll(w.net[0].tx_cq).has_value());
}

// Many initiators change one word: no change is lost.
TEST(RdmAtomic, NothingIsLostAmongManyInitiators) {
  RDM_NEEDS(FI_ATOMIC);
  Net net(5, with_atomics());
  uint64_t word = 0;
  fid_mr *region = net[0].expose(&word, 8, FI_REMOTE_READ | FI_REMOTE_WRITE, kAtomicKey);
  const uint64_t at = net[0].base_of(&word), key = fi_mr_key(region);
  const uint64_t one = 1;
  std::vector<uint64_t> seen(400, ~uint64_t(0));
  for (size_t i = 0; i < seen.size(); ++i) {
    const size_t from = 1 + i % 4;
    net.post([&] {
      return fi_fetch_atomic(net[from].ep, &one, 1, nullptr, &seen[i], nullptr, net.at(from, 0), at,
                             key, FI_UINT64, FI_SUM, nullptr);
    });
  }
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(net.wait(net[1 + i % 4].tx_cq).err, 0);
  std::sort(seen.begin(), seen.end());
  for (size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], i);
  EXPECT_EQ(word, seen.size());
}

TEST(RdmAtomic, AWrongKeyFailsOnlyItsOperation) {
  RDM_NEEDS(FI_ATOMIC);
  Window w;
  w.net.exchange(0, 1);
  w.net.add(with_atomics());
  uint64_t one = 1, old = 0;
  w.net.post([&] {
    return fi_fetch_atomic(w.net[0].ep, &one, 1, nullptr, &old, nullptr, w.net.at(0, 1), w.at(),
                           w.key() + 999, FI_UINT64, FI_SUM, &old);
  });
  const Completion done = w.net.wait(w.net[0].tx_cq);
  EXPECT_NE(done.err, 0);
  EXPECT_EQ(done.context, &old);
  EXPECT_EQ(w.words[0], 0u);
  w.net.exchange(2, 1);
  w.net.exchange(0, 2);
}

}  // namespace
}  // namespace weft::conformance::rdm
