// SPDX-License-Identifier: BSD-2-Clause
// What is mapped when, where the driver maps all at once, windows, or only what is needed.
#include "plugins/cxi/libcxi/mappings.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <vector>

namespace weft::cxi {
namespace {

constexpr uint64_t kGib = uint64_t{1} << 30;

// A driver, as the library's functions see it.
struct Driver {
  bool has_ats = false, takes_windows = true;
  uint64_t shift = 0;  // of what the NIC sees
  bool same_place = false;
  size_t mapped = 0;
  std::vector<abi::Mapping> asked;
};
Driver driver;

int map_it(abi::Lni *, void *address, size_t length, uint32_t flags, abi::MapHints *hints,
           abi::Mapping **out) {
  if ((flags & abi::kTranslated) != 0 && !driver.has_ats) return -EOPNOTSUPP;
  if (hints != nullptr && !driver.takes_windows) return -EINVAL;
  const auto start = reinterpret_cast<uintptr_t>(address);
  const bool pinned = (flags & abi::kPin) != 0;
  *out = new abi::Mapping{.io_address = driver.same_place ? 4096 : start + driver.shift,
                          .address = start,
                          .length = length,
                          .lac = uint8_t(pinned ? 3 : 2)};
  driver.asked.push_back(**out);
  ++driver.mapped;
  return 0;
}
int unmap_it(abi::Mapping *mapping) {
  delete mapping;
  --driver.mapped;
  return 0;
}

class MappingsOf : public ::testing::Test {
 protected:
  void open(const Driver &as) {
    driver = as;
    mappings = std::make_unique<Mappings>(library, nullptr);
    all = *mappings->map(0, UINT64_MAX, Lni::kRead | Lni::kWrite);
  }
  void TearDown() override {
    mappings.reset();
    EXPECT_EQ(driver.mapped, 0u) << "all is unmapped";
  }
  uint64_t seen(const Memory &memory, uint64_t address, uint64_t length) {
    Mappings::Place place;
    EXPECT_EQ(mappings->find(memory, address, length, place), 0);
    lac = place.lac;
    return place.address;
  }

  const Library library{[] {
    LibraryFunctions functions{};
    functions.map = map_it;
    functions.unmap = unmap_it;
    return functions;
  }()};
  std::unique_ptr<Mappings> mappings;
  Memory all;
  uint8_t lac = 0;
};

TEST_F(MappingsOf, AllAtOnceIsOneMapping) {
  open({.has_ats = true, .shift = 0x1000});
  EXPECT_EQ(all.lac, 2);
  EXPECT_EQ(seen(all, 7 * kGib, 1), 7 * kGib + 0x1000);
  EXPECT_EQ(mappings->address_of(7 * kGib + 0x1000), 7 * kGib);
  EXPECT_EQ(mappings->lacs(), (std::vector<uint8_t>{2}));
  const Memory message = *mappings->map(kGib, 100, Lni::kRead | Lni::kRemote);
  mappings->unmap(message);
  EXPECT_EQ(driver.asked.size(), 1u) << "a message is mapped already";
}

TEST_F(MappingsOf, WindowsAreMappedWhenTheyAreNeeded) {
  open({.shift = uint64_t{1} << 50});
  EXPECT_EQ(driver.asked.size(), 0u);
  EXPECT_EQ(seen(all, 70 * kGib + 5, 100), 70 * kGib + 5 + driver.shift);
  EXPECT_EQ(lac, 2);
  ASSERT_EQ(driver.asked.size(), 1u);
  EXPECT_EQ(driver.asked[0].address, 64 * kGib);
  EXPECT_EQ(driver.asked[0].length, 64 * kGib);
  seen(all, 127 * kGib, kGib);
  EXPECT_EQ(driver.asked.size(), 1u) << "the same one";
  EXPECT_EQ(mappings->address_of(100 * kGib + driver.shift), 100 * kGib);
  seen(all, 127 * kGib, 2 * kGib);  // beyond its end
  ASSERT_EQ(driver.asked.size(), 2u);
  EXPECT_EQ(driver.asked[1].address, 127 * kGib);
  EXPECT_EQ(mappings->lacs().size(), 8u);
}

TEST_F(MappingsOf, WithoutWindowsPagesAreMapped) {
  open({.takes_windows = false});
  EXPECT_EQ(seen(all, 4096 + 10, 4096), 4096u + 10);
  ASSERT_EQ(driver.asked.size(), 1u);
  EXPECT_EQ(driver.asked[0].address, 4096u);
  EXPECT_EQ(driver.asked[0].length, 2u * 4096);
}

TEST_F(MappingsOf, TwoWindowsInOnePlaceAreRefused) {
  open({.same_place = true});
  seen(all, 0, 1);
  Mappings::Place place;
  EXPECT_EQ(mappings->find(all, 64 * kGib, 1, place), -FI_EBUSY);
}

TEST_F(MappingsOf, ARegionIsMappedForItself) {
  open({.has_ats = true});
  const Memory region = *mappings->map(kGib, 1000, Lni::kWrite);
  EXPECT_EQ(region.lac, 3);
  EXPECT_EQ(seen(region, kGib + 10, 990), kGib + 10);
  Mappings::Place place;
  EXPECT_EQ(mappings->find(region, kGib + 10, 991, place), -FI_EINVAL);
  mappings->unmap(region);
  mappings->unmap(region);
  EXPECT_EQ(mappings->find(region, kGib, 1, place), -FI_EINVAL);
  EXPECT_GT(place.address, UINT64_MAX >> 8) << "where nobody has memory";
  EXPECT_EQ(mappings->map(10, UINT64_MAX, Lni::kRead).error().code, FI_EINVAL);
}

TEST_F(MappingsOf, NothingIsEverywhere) {
  open({});
  EXPECT_EQ(seen({}, 123, 0), 123u);
  Mappings::Place place;
  EXPECT_EQ(mappings->find({}, 123, 1, place), -FI_EINVAL);
  EXPECT_TRUE(mappings->map(5, 0, Lni::kRead).has_value());
  EXPECT_EQ(driver.asked.size(), 0u);
}

}  // namespace
}  // namespace weft::cxi
