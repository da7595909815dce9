// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/memory/lazy_array.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>

namespace weft::sdk {
namespace {

bool has_memory(const void *at) {
  const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  EXPECT_EQ(mincore(reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(at) & ~(page - 1)), page,
                    &resident),
            0);
  return resident & 1;
}

TEST(LazyArray, TakesMemoryWhereItIsUsed) {
  constexpr size_t kCount = 1 << 20;
  const LazyArray<uint64_t> array = make_lazy_array<uint64_t>(kCount);
  ASSERT_NE(array, nullptr);
  EXPECT_FALSE(has_memory(&array[kCount / 2]));
  array[kCount / 2] = 7;
  EXPECT_TRUE(has_memory(&array[kCount / 2]));
  EXPECT_FALSE(has_memory(&array[kCount / 4]));
  EXPECT_EQ(array[kCount / 2], 7u);
}

TEST(LazyArray, HasAnyNumberOfElements) {
  for (size_t count = 1; count < 200000; count = count * 3 + 1) {
    const LazyArray<uint32_t> array = make_lazy_array<uint32_t>(count);
    ASSERT_NE(array, nullptr) << count;
    array[0] = 1;
    array[count - 1] = uint32_t(count);
    EXPECT_EQ(array[count - 1], count);
  }
}

TEST(LazyArray, SaysThatThereIsNoMemory) {
  EXPECT_EQ(make_lazy_array<uint64_t>(SIZE_MAX / 2), nullptr);
  EXPECT_EQ(make_lazy_array<uint64_t>(SIZE_MAX / 64), nullptr);
}

}  // namespace
}  // namespace weft::sdk
