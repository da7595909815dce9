// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/schedule/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace weft::coll {
namespace {

Algorithm chosen(const Choice &choice, fi_collective_op coll, uint64_t bytes, uint32_t members,
                 Placement placement = Placement::kHosts) {
  Task task{.coll = coll, .size = members, .count = bytes, .placement = placement};
  choice.choose(task);
  EXPECT_TRUE(Schedule::of(task)) << name_of(coll) << " " << bytes << " " << members;
  return task.algorithm;
}

std::string refusal(const std::string &item) {
  const auto choice = Choice::with({&item, 1});
  return choice ? "" : choice.error().text;
}

TEST(CollChoice, ThereIsAnAlgorithmForEverySizeAndGroup) {
  const Choice choice;
  for (int coll = FI_BARRIER; coll <= FI_GATHER; ++coll)
    for (uint64_t bytes = 0; bytes < 1u << 30; bytes = 2 * bytes + 1)
      for (const uint32_t members : {1u, 2u, 3u, 8u, 9u, 64u, 65u, 300u, 65536u})
        for (const Placement placement : {Placement::kHosts, Placement::kHost, Placement::kCrowd})
          chosen(choice, static_cast<fi_collective_op>(coll), bytes, members, placement);
  EXPECT_EQ(chosen(choice, FI_ALLREDUCE, 1 << 20, 2), Algorithm::kRecursiveDoubling);
  for (const Placement placement : {Placement::kHosts, Placement::kHost}) {
    EXPECT_EQ(chosen(choice, FI_ALLREDUCE, 32 << 10, 32, placement), Algorithm::kRecursiveDoubling);
    EXPECT_EQ(chosen(choice, FI_ALLREDUCE, (32 << 10) + 1, 32, placement),
              Algorithm::kRabenseifner);
  }
  EXPECT_EQ(chosen(choice, FI_BROADCAST, 64 << 10, 64, Placement::kCrowd),
            Algorithm::kRecursiveDoubling);
  EXPECT_EQ(chosen(choice, FI_BROADCAST, 1024, 8, Placement::kHost), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(chosen(choice, FI_BROADCAST, 1024, 8, Placement::kHosts), Algorithm::kBinomial);
  EXPECT_EQ(chosen(choice, FI_BROADCAST, 1 << 30, 64, Placement::kCrowd), Algorithm::kLeaders);
  EXPECT_EQ(chosen(choice, FI_ALLREDUCE, 1 << 20, 8, Placement::kCrowd), Algorithm::kLeaders);
  EXPECT_EQ(chosen(choice, FI_ALLREDUCE, 2 << 20, 8, Placement::kCrowd), Algorithm::kRabenseifner);
  EXPECT_EQ(chosen(choice, FI_ALLREDUCE, 1 << 20, 17, Placement::kCrowd), Algorithm::kRabenseifner);
  EXPECT_EQ(chosen(choice, FI_ALLREDUCE, 4096, 33), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(chosen(choice, FI_ALLREDUCE, 4097, 33), Algorithm::kRabenseifner);
  EXPECT_EQ(chosen(choice, FI_ALLREDUCE, 8 << 20, 8), Algorithm::kRing);
  EXPECT_EQ(chosen(choice, FI_ALLREDUCE, 8 << 20, 65), Algorithm::kRabenseifner);
}

TEST(CollChoice, ACrowdHasFewCpus) {
  const std::pair<uint32_t, uint64_t> most[] = {{2, 1},  {3, 2},   {4, 3},     {8, 5},
                                                {16, 7}, {64, 11}, {65536, 31}};
  for (const auto &[members, cpus] : most) {
    EXPECT_EQ(placement_on(cpus, members), Placement::kCrowd) << members;
    EXPECT_EQ(placement_on(cpus + 1, members), Placement::kHost) << members;
  }
  EXPECT_EQ(placement_on(UINT64_MAX, 65536), Placement::kHost);
}

TEST(CollChoice, WhatAUserAsksForComesFirst) {
  const std::string items[] = {"allreduce:1K:4=ring", "allreduce::8=rabenseifner",
                               "alltoall=bruck"};
  const auto choice = Choice::with(items);
  ASSERT_TRUE(choice) << choice.error().text;
  EXPECT_EQ(chosen(*choice, FI_ALLREDUCE, 1024, 4), Algorithm::kRing);
  EXPECT_EQ(chosen(*choice, FI_ALLREDUCE, 1025, 4), Algorithm::kRabenseifner);
  EXPECT_EQ(chosen(*choice, FI_ALLREDUCE, 8, 8), Algorithm::kRabenseifner);
  EXPECT_EQ(chosen(*choice, FI_ALLREDUCE, 8, 9), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(chosen(*choice, FI_ALLTOALL, 1 << 20, 2), Algorithm::kBruck);
  EXPECT_NE(choice->hash(), Choice().hash());
}

TEST(CollChoice, ItsLinesAreWhatAUserWrites) {
  const std::string items[] = {"allreduce:2M:4=ring",        "reduce=binomial",
                               "gather::3=binomial",         "barrier:::host=leaders",
                               "broadcast:1K::host=leaders", "broadcast::9:crowd=pipeline"};
  const auto choice = Choice::with(items);
  ASSERT_TRUE(choice);
  const std::vector<std::string> lines = choice->lines();
  EXPECT_EQ(lines[0], "allreduce:2097152:4=ring");
  EXPECT_EQ(lines[1], "reduce=binomial");
  EXPECT_EQ(lines[2], "gather::3=binomial");
  EXPECT_EQ(lines[3], "barrier:::host=leaders");
  EXPECT_EQ(lines[4], "broadcast:1024::host=leaders");
  EXPECT_EQ(lines[5], "broadcast::9:crowd=pipeline");
  EXPECT_EQ(chosen(*choice, FI_BROADCAST, 1024, 99, Placement::kHost), Algorithm::kLeaders);
  EXPECT_EQ(chosen(*choice, FI_BROADCAST, 1024, 99, Placement::kCrowd), Algorithm::kLeaders);
  EXPECT_EQ(chosen(*choice, FI_BROADCAST, 1024, 99), Algorithm::kBinomial);
  EXPECT_EQ(chosen(*choice, FI_BROADCAST, 1025, 9, Placement::kCrowd), Algorithm::kPipeline);
  EXPECT_EQ(chosen(*choice, FI_BROADCAST, 1025, 9, Placement::kHost), Algorithm::kBinomial);
  const auto again = Choice::with(lines);
  ASSERT_TRUE(again);
  std::vector<std::string> repeated = again->lines();
  repeated.resize(lines.size());
  EXPECT_EQ(repeated, lines);
  EXPECT_EQ(Choice().hash(), Choice().hash());
}

TEST(CollChoice, RefusalsNameWhatIsWrongAndWhatThereIs) {
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal("allredoce=ring"), HasSubstr("no collective \"allredoce\""));
  EXPECT_THAT(refusal("allreduce=bruck"),
              HasSubstr("it has leaders, recursive_doubling, rabenseifner, ring"));
  EXPECT_THAT(refusal("allreduce"), HasSubstr("no algorithm \"\""));
  EXPECT_THAT(refusal("allreduce:x=ring"), HasSubstr("are numbers"));
  EXPECT_THAT(refusal("allreduce:1:2:3=ring"),
              HasSubstr("there is \"host\", \"crowd\" or nothing"));
  EXPECT_THAT(refusal("allreduce:1:2K=ring"), HasSubstr("are numbers"));
  EXPECT_THAT(refusal("allreduce:99999999999999999999=ring"), HasSubstr("are numbers"));
  EXPECT_THAT(refusal("allreduce:18014398509481984K=ring"), HasSubstr("are numbers"));
  EXPECT_THAT(refusal(""), HasSubstr("COLLECTIVE[:BYTES[:MEMBERS[:WHERE]]]=ALGORITHM"));
}

}  // namespace
}  // namespace weft::coll
