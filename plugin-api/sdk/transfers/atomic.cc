// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/transfers/atomic.h>

#include <rdma/fi_errno.h>
#include <weft/sdk/transfers/reduce.h>

#include <algorithm>
#include <array>
#include <bit>
#include <complex>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weft::sdk {
namespace {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;

// In the order of enum fi_datatype.
using Types = std::tuple<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t,
                         float, double, std::complex<float>, std::complex<double>, long double,
                         std::complex<long double>, Int128, Uint128>;
constexpr int kTypes = std::tuple_size_v<Types>;
static_assert(FI_FLOAT == 8 && FI_LONG_DOUBLE == 12 && FI_UINT128 == kTypes - 1);
static_assert(sizeof(std::complex<long double>) <= kMaxDatatypeSize);

constexpr int kOps = FI_DIFF + 1;

template <class T>
constexpr bool kComplex = false;
template <class T>
constexpr bool kComplex<std::complex<T>> = true;
template <class T>
constexpr bool kInteger = !kComplex<T> && !std::is_floating_point_v<T>;

constexpr bool is_compare(int op) {
  return op >= FI_CSWAP && op <= FI_MSWAP;
}
constexpr bool is_bitwise(int op) {
  return op == FI_BOR || op == FI_BAND || op == FI_BXOR || op == FI_MSWAP;
}
constexpr bool needs_order(int op) {
  return op == FI_MIN || op == FI_MAX || (op >= FI_CSWAP_LE && op <= FI_CSWAP_GT);
}

template <int Op, class T>
constexpr bool kDefined = (kInteger<T> || !is_bitwise(Op)) && (!kComplex<T> || !needs_order(Op));

// The unsigned integer of the same size, in which nothing overflows; and for arithmetic one that
// does not become a signed int first.
template <size_t Size>
using Word = std::conditional_t<
    Size == 1, uint8_t,
    std::conditional_t<
        Size == 2, uint16_t,
        std::conditional_t<Size == 4, uint32_t, std::conditional_t<Size == 8, uint64_t, Uint128>>>>;
template <class T>
using Modular = Word<std::max(sizeof(T), sizeof(unsigned))>;

// Puts the target's new value into `value`; false: it stays as it is, and nothing is to be written.
template <int Op, class T>
bool apply(T &value, const T &operand, [[maybe_unused]] const T &compare) {
  const T zero{};
  if constexpr (Op == FI_MIN) {
    if (!(operand < value)) return false;
    value = operand;
  } else if constexpr (Op == FI_MAX) {
    if (!(operand > value)) return false;
    value = operand;
  } else if constexpr (Op == FI_SUM || Op == FI_DIFF || Op == FI_PROD) {
    const auto compute = [](auto a, auto b) {
      if constexpr (Op == FI_SUM) return a + b;
      if constexpr (Op == FI_DIFF) return a - b;
      if constexpr (Op == FI_PROD) return a * b;
    };
    if constexpr (kInteger<T>) {
      using M = Modular<T>;
      value = T(compute(M(value), M(operand)));
    } else {
      value = compute(value, operand);
    }
  } else if constexpr (Op == FI_LOR) {
    value = T(value != zero || operand != zero ? 1 : 0);
  } else if constexpr (Op == FI_LAND) {
    value = T(value != zero && operand != zero ? 1 : 0);
  } else if constexpr (Op == FI_LXOR) {
    value = T((value != zero) != (operand != zero) ? 1 : 0);
  } else if constexpr (Op == FI_BOR) {
    value = T(value | operand);
  } else if constexpr (Op == FI_BAND) {
    value = T(value & operand);
  } else if constexpr (Op == FI_BXOR) {
    value = T(value ^ operand);
  } else if constexpr (Op == FI_ATOMIC_READ) {
    return false;
  } else if constexpr (Op == FI_ATOMIC_WRITE) {
    value = operand;
  } else if constexpr (Op == FI_MSWAP) {
    value = T((operand & compare) | (value & ~compare));
  } else {
    bool holds;
    if constexpr (Op == FI_CSWAP) holds = compare == value;
    if constexpr (Op == FI_CSWAP_NE) holds = compare != value;
    if constexpr (Op == FI_CSWAP_LE) holds = compare <= value;
    if constexpr (Op == FI_CSWAP_LT) holds = compare < value;
    if constexpr (Op == FI_CSWAP_GE) holds = compare >= value;
    if constexpr (Op == FI_CSWAP_GT) holds = compare > value;
    if (!holds) return false;
    value = operand;
  }
  return true;
}

template <class T>
T load(const char *from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// A long double is shorter than its size: the bytes behind it may be old memory, which a peer must
// not read.
constexpr size_t kLongDoubleBytes =
    std::numeric_limits<long double>::digits == 64 ? 10 : sizeof(long double);

template <class T>
void store(char *to, const T &value) {
  if constexpr (std::is_same_v<T, long double>) {
    std::memcpy(to, &value, kLongDoubleBytes);
  } else if constexpr (std::is_same_v<T, std::complex<long double>>) {
    store(to, value.real());
    store(to + sizeof(long double), value.imag());
  } else {
    std::memcpy(to, &value, sizeof value);
  }
}

// One aligned element of at most 8 bytes: returns the old value. The memory is used as a word here,
// whatever its type in the application.
template <int Op, class T>
T update(char *target, const T &operand, const T &compare, bool old_wanted) {
  using W = Word<sizeof(T)>;
  typedef W __attribute__((may_alias)) Shared;
  Shared *const word = reinterpret_cast<Shared *>(target);
  static_assert(__atomic_always_lock_free(sizeof(W), nullptr));
  if constexpr (Op == FI_ATOMIC_WRITE) {
    if (old_wanted)
      return std::bit_cast<T>(
          W(__atomic_exchange_n(word, std::bit_cast<W>(operand), __ATOMIC_ACQ_REL)));
    __atomic_store_n(word, std::bit_cast<W>(operand), __ATOMIC_RELEASE);
    return T{};
  } else if constexpr (kInteger<T> && Op == FI_SUM) {
    return T(__atomic_fetch_add(word, W(operand), __ATOMIC_ACQ_REL));
  } else if constexpr (kInteger<T> && Op == FI_DIFF) {
    return T(__atomic_fetch_sub(word, W(operand), __ATOMIC_ACQ_REL));
  } else {
    W seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    for (;;) {
      const T old = std::bit_cast<T>(seen);
      T value = old;
      if (!apply<Op>(value, operand, compare) ||
          __atomic_compare_exchange_n(word, &seen, std::bit_cast<W>(value), true, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE))
        return old;
    }
  }
}

using Kernel = void (*)(char *target, const char *operand, const char *compare, char *result,
                        size_t count);

template <int Op, class T>
void kernel(char *target, const char *operand, const char *compare, char *result, size_t count) {
  constexpr bool kSingle = sizeof(T) <= sizeof(uint64_t);
  const bool aligned = kSingle && reinterpret_cast<uintptr_t>(target) % sizeof(T) == 0;
  for (size_t at = 0; count != 0; --count, at += sizeof(T)) {
    T value{}, argument{}, other{};
    if constexpr (Op != FI_ATOMIC_READ) argument = load<T>(operand + at);
    if constexpr (is_compare(Op)) other = load<T>(compare + at);
    if constexpr (kSingle) {
      if (aligned) {
        value = update<Op, T>(target + at, argument, other, result != nullptr);
        if (result != nullptr) store(result + at, value);
        continue;
      }
    }
    if (result != nullptr) std::memcpy(result + at, target + at, sizeof(T));
    value = load<T>(target + at);
    if (apply<Op>(value, argument, other)) store(target + at, value);
  }
}

template <int Op, class T>
constexpr Kernel kernel_or_none() {
  if constexpr (kDefined<Op, T>) return kernel<Op, T>;
  return nullptr;
}

using Row = std::array<Kernel, kTypes>;

template <int Op, size_t... Type>
constexpr Row row(std::index_sequence<Type...>) {
  return {kernel_or_none<Op, std::tuple_element_t<Type, Types>>()...};
}

template <size_t... Op>
constexpr std::array<Row, kOps> rows(std::index_sequence<Op...>) {
  return {row<int(Op)>(std::make_index_sequence<kTypes>())...};
}

constexpr std::array<Row, kOps> kKernels = rows(std::make_index_sequence<kOps>());

using Reduction = void (*)(char *target, const char *left, const char *right, size_t count);

template <int Op, class T>
void reduction(char *target, const char *left, const char *right, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    T value = load<T>(left + i * sizeof(T));
    apply<Op>(value, load<T>(right + i * sizeof(T)), T{});
    store(target + i * sizeof(T), value);
  }
}

template <int Op, class T>
constexpr Reduction reduction_or_none() {
  if constexpr (kDefined<Op, T>) return reduction<Op, T>;
  return nullptr;
}

using Reductions = std::array<Reduction, kTypes>;

template <int Op, size_t... Type>
constexpr Reductions reductions(std::index_sequence<Type...>) {
  return {reduction_or_none<Op, std::tuple_element_t<Type, Types>>()...};
}

constexpr int kReductionOps = FI_BXOR + 1;
static_assert(FI_MIN == 0 && FI_BXOR == 9 && FI_ATOMIC_READ == kReductionOps);

template <size_t... Op>
constexpr std::array<Reductions, kReductionOps> all_reductions(std::index_sequence<Op...>) {
  return {reductions<int(Op)>(std::make_index_sequence<kTypes>())...};
}

constexpr std::array<Reductions, kReductionOps> kReductions =
    all_reductions(std::make_index_sequence<kReductionOps>());

Reduction find_reduction(int op, int datatype) {
  if (op < 0 || op >= kReductionOps || datatype < 0 || datatype >= kTypes) return nullptr;
  return kReductions[size_t(op)][size_t(datatype)];
}

template <size_t... Type>
constexpr std::array<uint8_t, kTypes> sizes(std::index_sequence<Type...>) {
  return {uint8_t(sizeof(std::tuple_element_t<Type, Types>))...};
}

constexpr std::array<uint8_t, kTypes> kSizes = sizes(std::make_index_sequence<kTypes>());

Kernel find(AtomicKind kind, int op, int datatype) {
  if (op < 0 || op >= kOps || datatype < 0 || datatype >= kTypes) return nullptr;
  if (is_compare(op) != (kind == AtomicKind::kCompare)) return nullptr;
  if (op == FI_ATOMIC_READ && kind == AtomicKind::kWrite) return nullptr;
  return kKernels[size_t(op)][size_t(datatype)];
}

template <class Ioc>
size_t count_all(const Ioc *ioc, size_t n) {
  size_t total = 0;
  for (size_t i = 0; i < n; ++i)
    if (__builtin_add_overflow(total, ioc[i].count, &total)) return SIZE_MAX;
  return total;
}

// Calls use(address, bytes, offset) for each piece of the vector, `room` bytes in all.
template <class Use>
size_t for_each_piece(const fi_ioc *ioc, size_t n, size_t size, size_t room, Use use) {
  size_t done = 0;
  for (size_t i = 0; i < n && done < room; ++i) {
    size_t bytes;
    if (__builtin_mul_overflow(ioc[i].count, size, &bytes)) bytes = SIZE_MAX;
    bytes = std::min(bytes, room - done);
    if (bytes == 0) continue;
    use(ioc[i].addr, bytes, done);
    done += bytes;
  }
  return done;
}

}  // namespace

size_t datatype_size(int datatype) {
  if (datatype >= 0 && datatype < kTypes) return kSizes[size_t(datatype)];
  switch (datatype) {
    case FI_FLOAT16:
    case FI_BFLOAT16:
      return 2;
    case FI_FLOAT8_E4M3:
    case FI_FLOAT8_E5M2:
      return 1;
    default:
      return 0;
  }
}

bool atomic_valid(AtomicKind kind, int op, int datatype) {
  return find(kind, op, datatype) != nullptr;
}

void atomic_execute(AtomicKind kind, int op, int datatype, void *target, const void *operand,
                    const void *compare, void *result, size_t count) {
  const Kernel run = find(kind, op, datatype);
  if (run == nullptr) return;
  run(static_cast<char *>(target), static_cast<const char *>(operand),
      static_cast<const char *>(compare),
      kind == AtomicKind::kWrite ? nullptr : static_cast<char *>(result), count);
}

bool reduce_valid(int op, int datatype) {
  return find_reduction(op, datatype) != nullptr;
}

void reduce_execute(int op, int datatype, void *target, const void *left, const void *right,
                    size_t count) {
  const Reduction run = find_reduction(op, datatype);
  if (run == nullptr) return;
  run(static_cast<char *>(target), static_cast<const char *>(left),
      static_cast<const char *>(right), count);
}

void atomic_execute_v(AtomicKind kind, int op, int datatype, const iovec *target, size_t pieces,
                      const void *operand, const void *compare, void *result) {
  const Kernel run = find(kind, op, datatype);
  if (run == nullptr) return;
  const size_t size = kSizes[size_t(datatype)];
  const char *in = static_cast<const char *>(operand);
  const char *other = static_cast<const char *>(compare);
  char *out = kind == AtomicKind::kWrite ? nullptr : static_cast<char *>(result);
  const auto execute = [&](char *at, size_t count) {
    run(at, in, other, out, count);
    const size_t bytes = count * size;
    if (in != nullptr) in += bytes;
    if (other != nullptr) other += bytes;
    if (out != nullptr) out += bytes;
  };

  size_t skip = 0;  // bytes of the next piece that belong to the element before
  for (size_t i = 0; i < pieces; ++i) {
    const size_t start = std::min(skip, target[i].iov_len);
    skip -= start;
    char *const at = static_cast<char *>(target[i].iov_base) + start;
    const size_t whole = (target[i].iov_len - start) / size;
    if (whole != 0) execute(at, whole);
    const size_t head = target[i].iov_len - start - whole * size;
    if (head == 0) continue;

    // The element begins here and ends in a later piece, not necessarily the next.
    char element[kMaxDatatypeSize];
    iovec parts[kMaxDatatypeSize];  // each has a byte at least
    size_t count = 0, bytes = 0;
    const auto take = [&](char *from, size_t length) {
      if (length == 0) return;
      parts[count++] = {from, length};
      std::memcpy(element + bytes, from, length);
      bytes += length;
    };
    take(at + whole * size, head);
    for (size_t k = i + 1; k < pieces && bytes < size; ++k)
      take(static_cast<char *>(target[k].iov_base), std::min(target[k].iov_len, size - bytes));
    if (bytes < size) return;  // an incomplete element at the end
    execute(element, 1);
    bytes = 0;
    for (size_t k = 0; k < count; ++k) {
      std::memcpy(parts[k].iov_base, element + bytes, parts[k].iov_len);
      bytes += parts[k].iov_len;
    }
    skip = size - head;
  }
}

int atomic_query_count(AtomicKind kind, int datatype, int op, const AtomicLimits &limits,
                       size_t *count) {
  if (count == nullptr) return -FI_EINVAL;
  if (!atomic_valid(kind, op, datatype)) return -FI_EOPNOTSUPP;
  const size_t bytes = kind == AtomicKind::kWrite   ? limits.write
                       : kind == AtomicKind::kFetch ? limits.fetch
                                                    : limits.compare;
  const size_t most = bytes / datatype_size(datatype);
  if (most == 0) return -FI_EOPNOTSUPP;
  *count = most;
  return 0;
}

int atomic_query(int datatype, int op, const AtomicLimits &limits, struct fi_atomic_attr *attr,
                 uint64_t flags) {
  if (attr == nullptr) return -FI_EINVAL;
  if (flags & ~uint64_t(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC | FI_TAGGED)) return -FI_EBADFLAGS;
  const bool fetch = flags & FI_FETCH_ATOMIC, compare = flags & FI_COMPARE_ATOMIC;
  if (fetch && compare) return -FI_EINVAL;
  if (flags & FI_TAGGED) return -FI_EOPNOTSUPP;
  const AtomicKind kind = compare ? AtomicKind::kCompare
                          : fetch ? AtomicKind::kFetch
                                  : AtomicKind::kWrite;
  size_t count;
  const int rc = atomic_query_count(kind, datatype, op, limits, &count);
  if (rc != 0) return rc;
  attr->count = count;
  attr->size = datatype_size(datatype);
  return 0;
}

size_t ioc_count(const struct fi_ioc *ioc, size_t n) {
  return count_all(ioc, n);
}

size_t ioc_count(const struct fi_rma_ioc *ioc, size_t n) {
  return count_all(ioc, n);
}

size_t ioc_gather(void *out, size_t room, const struct fi_ioc *ioc, size_t n, size_t size) {
  return for_each_piece(ioc, n, size, room, [&](const void *at, size_t bytes, size_t offset) {
    std::memcpy(static_cast<char *>(out) + offset, at, bytes);
  });
}

size_t ioc_scatter(const struct fi_ioc *ioc, size_t n, size_t size, const void *in, size_t room) {
  return for_each_piece(ioc, n, size, room, [&](void *at, size_t bytes, size_t offset) {
    std::memcpy(at, static_cast<const char *>(in) + offset, bytes);
  });
}

}  // namespace weft::sdk
