// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/wire/bare.h"

#include <gtest/gtest.h>

#include <random>

namespace weft::rxm {
namespace {

TEST(Bare, ATagIsKnownOnceItsUpperPartWasHeard) {
  BareTags tags;
  EXPECT_EQ(tags.data_of(0), std::nullopt);
  tags.learn(0);
  ASSERT_NE(tags.data_of(0), std::nullopt);
  EXPECT_NE(*tags.data_of(0), kBareUntagged);
  EXPECT_EQ(tags.tag_of(*tags.data_of(0x1fffffff)), 0x1fffffffu);
  EXPECT_EQ(tags.data_of(0x20000000), std::nullopt) << "another upper part";
}

TEST(Bare, TheLargestTagsAlwaysHaveAHeader) {
  BareTags tags;
  constexpr uint64_t kLargest = (UINT64_C(1) << 61) - (UINT64_C(1) << 29) - 1;
  for (const uint64_t tag : {kLargest + 1, UINT64_MAX}) {
    tags.learn(tag);
    EXPECT_EQ(tags.data_of(tag), std::nullopt);
  }
  tags.learn(kLargest);
  EXPECT_EQ(tags.tag_of(*tags.data_of(kLargest)), kLargest);
}

TEST(Bare, RemoteDataThatNamesNoTagIsRefused) {
  const BareTags nothing;
  for (uint32_t place = 0; place < 4; ++place)
    EXPECT_EQ(nothing.tag_of(UINT32_C(1) << 31 | place << 29 | 5), std::nullopt) << place;
  BareTags tags;
  for (uint64_t upper = 0; upper < 4; ++upper) tags.learn(upper << 29);
  EXPECT_EQ(tags.tag_of(kBareUntagged), std::nullopt);
  EXPECT_EQ(tags.tag_of(0x7fffffff), std::nullopt) << "not marked as tagged";
}

// The wire format.
TEST(Bare, UpperPartsGoToThePlacesInTurn) {
  BareTags tags;
  const auto data_of = [&](uint64_t upper) { return tags.data_of(upper << 29 | 77); };
  const auto in_place = [](uint32_t place) { return UINT32_C(1) << 31 | place << 29 | 77; };
  for (const uint64_t upper : {7, 8, 7, 9, 10}) tags.learn(upper << 29);
  EXPECT_EQ(data_of(7), in_place(0));
  EXPECT_EQ(data_of(8), in_place(1));
  EXPECT_EQ(data_of(10), in_place(3));
  tags.learn(UINT64_C(0xfffffffe) << 29);
  EXPECT_EQ(data_of(0xfffffffe), in_place(0));
  EXPECT_EQ(data_of(7), std::nullopt);
}

TEST(Bare, BothEndsAgreeOnAnySequenceOfTags) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 100; ++round) {
    BareTags sender, receiver;
    size_t bare = 0;
    const uint64_t spread = 1 + random() % 8;  // upper parts in use; 4 are remembered
    for (int i = 0; i < 1000; ++i) {
      const uint64_t tag = (random() % spread) * UINT64_C(0x100003) << 29 ^ random() % 1000;
      const auto data = sender.data_of(tag);
      if (data) {
        EXPECT_EQ(receiver.tag_of(*data), tag);
        ++bare;
      } else {
        sender.learn(tag);
        receiver.learn(tag);
      }
    }
    EXPECT_GE(bare, spread <= 4 ? 1000 - spread : 1);
  }
}

}  // namespace
}  // namespace weft::rxm
