// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/hook-fault/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::fault {
namespace {

using ::testing::HasSubstr;

Rules parsed(std::string_view text) {
  Result<Rules> rules = parse_rules(text);
  EXPECT_TRUE(rules) << (rules ? "" : rules.error().text);
  return rules ? *std::move(rules) : Rules{};
}
std::string error(std::string_view text) {
  const Result<Rules> rules = parse_rules(text);
  return rules ? "" : rules.error().text;
}

TEST(Rules, Empty) {
  EXPECT_TRUE(parsed("").rules.empty());
  EXPECT_TRUE(parsed(" ; ;").rules.empty());
  EXPECT_EQ(parsed("").seed, 1u);
}

TEST(Rules, AllParts) {
  const Rules rules = parsed(
      "send,tsend:size>1000:size<=1M:p=0.25:drop; recv:nth=3:error=EIO ;"
      "seed=42;message:every=4:count=2:peer=7:truncate=1K;"
      "post:fail=FI_ECONNRESET;cq_read:overrun;inject:delay=5");
  EXPECT_EQ(rules.seed, 42u);
  ASSERT_EQ(rules.rules.size(), 6u);
  const Rule &drop = rules.rules[0];
  EXPECT_EQ(drop.operations, 1u << kSend | 1u << kTsend);
  EXPECT_EQ(drop.least, 1001u);
  EXPECT_EQ(drop.most, 1u << 20);
  EXPECT_EQ(drop.probability, 0.25);
  EXPECT_EQ(drop.action, Action::kDrop);
  const Rule &receive = rules.rules[1];
  EXPECT_EQ(receive.nth, 3u);
  EXPECT_EQ(receive.action, Action::kError);
  EXPECT_EQ(receive.number, uint64_t{FI_EIO});
  EXPECT_EQ(receive.text, "recv:nth=3:error=EIO");
  const Rule &cut = rules.rules[2];
  EXPECT_EQ(cut.every, 4u);
  EXPECT_EQ(cut.times, 2u);
  EXPECT_EQ(cut.peer, 7u);
  EXPECT_EQ(cut.number, 1024u);
  EXPECT_TRUE(cut.is_for(kTinject));
  EXPECT_FALSE(cut.is_for(kRecv));
  EXPECT_TRUE(rules.rules[3].is_for(kAtomic));
  EXPECT_FALSE(rules.rules[3].is_for(kCqRead));
  EXPECT_EQ(rules.rules[3].number, uint64_t{FI_ECONNRESET});
  EXPECT_EQ(rules.rules[4].action, Action::kOverrun);
  EXPECT_EQ(rules.rules[5].number, 5u);
}

TEST(Rules, ErrorsNameTheColumn) {
  EXPECT_THAT(error("sned:drop"), HasSubstr("column 1: unknown operation \"sned\""));
  EXPECT_THAT(error("send:drop; recv:dorp"), HasSubstr("column 17: unknown action \"dorp\""));
  EXPECT_THAT(error("send:sice>3:drop"), HasSubstr("column 6: unknown condition"));
  EXPECT_THAT(error("send:p=2:drop"), HasSubstr("column 8: \"2\" is no probability"));
  EXPECT_THAT(error("send:p=nan:drop"), HasSubstr("is no probability"));
  EXPECT_THAT(error("send:p>0.5:drop"), HasSubstr("takes an ="));
  EXPECT_THAT(error("send:nth=0:drop"), HasSubstr("counts from 1"));
  EXPECT_THAT(error("send:nth=-1:drop"), HasSubstr("no whole number"));
  EXPECT_THAT(error("send:nth=1:nth=2:drop"), HasSubstr("given twice"));
  EXPECT_THAT(error("send:size>9:size<9:drop"), HasSubstr("no size is like that"));
  EXPECT_THAT(error("send:size>99999999999999G:drop"), HasSubstr("that fits"));
  EXPECT_THAT(error("send"), HasSubstr("is no rule"));
  EXPECT_THAT(error("seed=1;seed=2"), HasSubstr("column 8: the seed is given twice"));
  EXPECT_THAT(error("seed="), HasSubstr("no whole number"));
}

TEST(Rules, RulesWithoutAnEffectAreRefused) {
  EXPECT_THAT(error("recv:drop"), HasSubstr("drop is for send, tsend, inject and tinject only"));
  EXPECT_THAT(error("write:corrupt"), HasSubstr("only"));
  EXPECT_THAT(error("inject:error=EIO"), HasSubstr("error is for what has a completion"));
  EXPECT_THAT(error("send:overrun"), HasSubstr("overrun is for cq_read only"));
  EXPECT_THAT(error("cq_read:kill"), HasSubstr("not cq_read"));
  EXPECT_THAT(error("cq_read:size=3:eagain"), HasSubstr("cq_read has no size"));
  EXPECT_THAT(error("cq_read:peer=3:eagain"), HasSubstr("cq_read has no peer"));
  EXPECT_THAT(error("send:drop=3"), HasSubstr("takes no value"));
  EXPECT_THAT(error("send:delay"), HasSubstr("needs a value: delay=10"));
  EXPECT_THAT(error("send:delay=0"), HasSubstr("1 to 1000000"));
  EXPECT_THAT(error("send:fail"), HasSubstr("needs a value: fail=EIO"));
  EXPECT_THAT(error("send:fail=EIEIO"), HasSubstr("column 11: unknown errno \"EIEIO\""));
}

TEST(Rules, NotTooMany) {
  std::string text;
  for (size_t i = 0; i < kMaxRules; ++i) text += "send:drop;";
  EXPECT_EQ(parsed(text).rules.size(), kMaxRules);
  EXPECT_THAT(error(text + "send:drop"), HasSubstr("more than 64 rules"));
}

TEST(Chance, DependsOnAllArgumentsAndNothingElse) {
  const double one = chance(42, 1, kSend, 7, 0);
  EXPECT_EQ(chance(42, 1, kSend, 7, 0), one);
  EXPECT_NE(chance(43, 1, kSend, 7, 0), one);
  EXPECT_NE(chance(42, 2, kSend, 7, 0), one);
  EXPECT_NE(chance(42, 1, kTsend, 7, 0), one);
  EXPECT_NE(chance(42, 1, kSend, 8, 0), one);
  EXPECT_NE(chance(42, 1, kSend, 7, 1), one);
}

TEST(Chance, IsEven) {
  for (const double wanted : {0.01, 0.5, 0.99}) {
    int hits = 0;
    for (uint64_t call = 0; call < 100000; ++call) hits += chance(7, 3, kSend, call, 2) < wanted;
    EXPECT_NEAR(hits / 100000.0, wanted, 0.01);
  }
}

}  // namespace
}  // namespace weft::fault
