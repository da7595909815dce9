// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/unit/stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

struct DoorCounters : CounterSet {
  Counter opened{*this, "doors_opened", "doors that were opened"};
  Counter slammed{*this, "doors_slammed", "doors that were slammed"};
};
struct HouseCounters : CounterSet {
  Counter guests{*this, "guests", "guests that came"};
  DoorCounters door{*this};
  Counter crumbs{*this, "crumb_bytes", "bytes that guests left"};
};

template <class Source>
std::vector<std::pair<std::string, uint64_t>> all_of(const Source &source) {
  std::vector<weft_counter> read(source.read(nullptr, 0));
  EXPECT_EQ(source.read(read.data(), read.size()), read.size());
  std::vector<std::pair<std::string, uint64_t>> all;
  for (const weft_counter &one : read) all.emplace_back(one.name, one.value);
  return all;
}

TEST(CountersOfAnObject, AreThoseThatAreDeclaredInTheirOrder) {
  Stats<HouseCounters> stats;
  EXPECT_THAT(all_of(stats), ElementsAre(Pair("guests", 0), Pair("doors_opened", 0),
                                         Pair("doors_slammed", 0), Pair("crumb_bytes", 0)));
  EXPECT_STREQ(stats.describe(0), "guests that came");
  EXPECT_STREQ(stats.describe(2), "doors that were slammed");
  EXPECT_STREQ(stats.describe(3), "bytes that guests left");
  EXPECT_EQ(stats.describe(4), nullptr);
  stats->guests.add();
  stats->door.slammed.add(4);
  stats->crumbs.add_alone(7);
  stats->crumbs.add_alone();
  EXPECT_EQ(stats->crumbs.value(), 8u);
  EXPECT_THAT(all_of(stats), ElementsAre(Pair("guests", 1), Pair("doors_opened", 0),
                                         Pair("doors_slammed", 4), Pair("crumb_bytes", 8)));
}

TEST(CountersOfAnObject, AreWrittenOnlyWhereThereIsRoom) {
  Stats<HouseCounters> stats;
  weft_counter room[3] = {{"before", 1}, {"before", 2}, {"before", 3}};
  EXPECT_EQ(stats.read(room, 2), 4u);
  EXPECT_STREQ(room[1].name, "doors_opened");
  EXPECT_STREQ(room[2].name, "before");
}

TEST(CountersOfAnObject, AreTheSumOfItsPartsAlsoAfterThem) {
  Stats<HouseCounters> stats;
  stats->guests.add(1);
  {
    HouseCounters first, third;
    const Stats<HouseCounters>::Part one(stats, first);
    {
      HouseCounters second;
      const Stats<HouseCounters>::Part two(stats, second);
      const Stats<HouseCounters>::Part three(stats, third);
      first.guests.add_alone(10);
      second.guests.add(100);
      second.crumbs.add(3);
      third.door.opened.add(9);
      EXPECT_THAT(all_of(stats), ElementsAre(Pair("guests", 111), Pair("doors_opened", 9),
                                             Pair("doors_slammed", 0), Pair("crumb_bytes", 3)));
    }
    first.guests.add(1000);
    EXPECT_THAT(all_of(stats), ElementsAre(Pair("guests", 1111), Pair("doors_opened", 9),
                                           Pair("doors_slammed", 0), Pair("crumb_bytes", 3)));
  }
  EXPECT_THAT(all_of(stats), ElementsAre(Pair("guests", 1111), Pair("doors_opened", 9),
                                         Pair("doors_slammed", 0), Pair("crumb_bytes", 3)));
}

TEST(CountersOfAnObject, NeitherLoseNorMissACountWhilePartsComeAndGo) {
  Stats<HouseCounters> stats;
  constexpr uint64_t kRounds = 300, kEach = 50;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (uint64_t i = 0; i < kRounds; ++i) {
        HouseCounters mine;
        const Stats<HouseCounters>::Part part(stats, mine);
        for (uint64_t j = 0; j < kEach; ++j) mine.guests.add_alone();
        stats->door.opened.add();
      }
    });
  }
  uint64_t before = 0;
  while (before < 3 * kRounds * kEach) {
    weft_counter counter{};
    stats.read(&counter, 1);
    ASSERT_GE(counter.value, before) << "a counter never falls";
    before = counter.value;
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_THAT(all_of(stats)[0], Pair("guests", 3 * kRounds * kEach));
  EXPECT_THAT(all_of(stats)[1], Pair("doors_opened", 3 * kRounds));
}

TEST(CountersOfAnObject, CostAnEndpointOnlyTheirValues) {
  EXPECT_EQ(sizeof(Counter), sizeof(uint64_t));
  EXPECT_EQ(sizeof(DoorCounters), 3 * sizeof(uint64_t));
}

TEST(CounterList, HasNamesThatTheRunTimeMade) {
  CounterList list;
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(list.declare("rule " + std::to_string(i), "how often"), size_t(i));
  list[42].add(2);
  list[99].add();
  const auto all = all_of(list);
  EXPECT_THAT(all[42], Pair("rule 42", 2));
  EXPECT_THAT(all[99], Pair("rule 99", 1));
  EXPECT_STREQ(list.describe(0), "how often");
  EXPECT_EQ(list.describe(100), nullptr);
}

// ---- over the C boundary ----

class House final : public Object<House, fid_fabric> {
 public:
  House() : Object(nullptr, FI_CLASS_FABRIC, nullptr) {}
  Stats<HouseCounters> &stats() { return stats_; }

 private:
  Stats<HouseCounters> stats_;
};

TEST(CounterOps, AreGivenForTheirNameOnly) {
  House house;
  void *ops = nullptr;
  EXPECT_EQ(open_counters<House>("weft_counters_2", 0, &ops), -FI_ENOSYS);
  EXPECT_EQ(open_counters<House>(WEFT_HOOK_COUNTERS_OPS "dice", 0, &ops), -FI_ENOSYS);
  EXPECT_EQ(open_counters<House>(nullptr, 0, &ops), -FI_EINVAL);
  EXPECT_EQ(open_counters<House>(WEFT_COUNTERS_OPS, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(open_counters<House>(WEFT_COUNTERS_OPS, 1, &ops), -FI_EBADFLAGS);
  EXPECT_EQ(ops, nullptr);
  ASSERT_EQ(open_counters<House>(WEFT_COUNTERS_OPS, 0, &ops), 0);
  const auto *counters = static_cast<weft_counters_ops *>(ops);
  EXPECT_EQ(counters->size, sizeof *counters);
  house.stats()->guests.add(3);
  EXPECT_EQ(counters->read(house.base(), nullptr, 7), 4u) << "no room: only the number of them";
  weft_counter counter{};
  EXPECT_EQ(counters->read(house.base(), &counter, 1), 4u);
  EXPECT_STREQ(counter.name, "guests");
  EXPECT_EQ(counter.value, 3u);
  EXPECT_STREQ(counters->describe(house.base(), 0), "guests that came");
  EXPECT_EQ(counters->describe(house.base(), SIZE_MAX), nullptr);
}

struct DiceHook {
  static constexpr UnitInfo info{.name = "dice", .summary = "loses messages"};
};

TEST(CounterOps, OfAHookHaveItsName) {
  EXPECT_TRUE(is_counters_of<DiceHook>("weft_counters_1:dice"));
  for (const char *other : {"weft_counters_1", "weft_counters_1:", "weft_counters_1:dic",
                            "weft_counters_1:dices", "dice", ""})
    EXPECT_FALSE(is_counters_of<DiceHook>(other)) << other;
  EXPECT_FALSE(is_counters_of<DiceHook>(nullptr));
}

}  // namespace
}  // namespace weft::sdk
