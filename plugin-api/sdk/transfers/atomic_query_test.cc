// SPDX-License-Identifier: BSD-2-Clause
// fi_query_atomic and the valid calls, and the vectors of atomic operations.
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "plugin-api/sdk/testing/test_atomic.h"
#include "weft/sdk/transfers/atomic.h"

namespace weft::sdk {
namespace {

using namespace atomic_test;

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
      << "not one element fits";
  EXPECT_EQ(count, 99u);
  EXPECT_EQ(atomic_query_count(AtomicKind::kWrite, FI_INT64, FI_SUM, limits, nullptr), -FI_EINVAL);
}

TEST(AtomicQuery, AgreesWithTheValidCalls) {
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

TEST(AtomicQuery, RefusesInvalidArguments) {
  const AtomicLimits limits{.write = 64, .fetch = 64, .compare = 64};
  fi_atomic_attr attr{};
  EXPECT_EQ(atomic_query(FI_INT64, FI_SUM, limits, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(atomic_query(FI_INT64, FI_SUM, limits, &attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC),
            -FI_EINVAL);
  EXPECT_EQ(atomic_query(FI_INT64, FI_SUM, limits, &attr, FI_PEEK), -FI_EBADFLAGS);
  EXPECT_EQ(attr.count, 0u);
}

// ---- vectors ----

TEST(Ioc, CountsAndDetectsOverflow) {
  const fi_ioc ioc[] = {
      {nullptr, 3}, {nullptr, 0}, {nullptr, 4}, {nullptr, SIZE_MAX - 7}, {nullptr, 1}};
  EXPECT_EQ(ioc_count(ioc, 0), 0u);
  EXPECT_EQ(ioc_count(ioc, 3), 7u);
  EXPECT_EQ(ioc_count(ioc, 4), SIZE_MAX);
  EXPECT_EQ(ioc_count(ioc, 5), SIZE_MAX) << "it does not wrap around to 0";
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
  EXPECT_EQ(b[1], 4) << "the input ended before";
  EXPECT_EQ(ioc_scatter(ioc, 3, 2, in, sizeof in), 10u) << "the vector ends there";
  EXPECT_EQ(b[2], 15);
  const fi_ioc endless[] = {{b, SIZE_MAX}};
  EXPECT_EQ(ioc_gather(out, 6, endless, 1, 2), 6u) << "the number of bytes overflows";
  EXPECT_EQ(out[2], 15);
}

}  // namespace
}  // namespace weft::sdk
