// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/handshake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace weft::rxd {
namespace {

using Step = Handshake::Step;

constexpr uint64_t kMs = 1'000'000, kBegin = 1'000'000'000'000, kPatience = 10'000 * kMs;
constexpr std::array<uint8_t, wire::kTokenSize> kToken{1, 2, 3};

// What leaves at each of the next times, and the pauses between them in ms.
struct Sent {
  std::vector<Step> steps;
  std::vector<uint64_t> pauses;
};
Sent run(Handshake &h, size_t steps, bool asks = false) {
  Sent sent;
  while (sent.steps.size() < steps && h.next_at() != 0) {
    const uint64_t now = h.next_at();
    sent.steps.push_back(h.on_time(now, kPatience, asks));
    sent.pauses.push_back(h.next_at() == 0 ? 0 : (h.next_at() - now) / kMs);
  }
  return sent;
}

TEST(Handshake, TheQuestionIsRepeatedAfterPausesThatGrow) {
  Handshake h;
  h.set_question(3);
  EXPECT_EQ(h.question(), 3U);
  EXPECT_EQ(h.next_at(), 0U);
  h.begin(7, kBegin);
  EXPECT_EQ(h.question(), 7U);
  EXPECT_EQ(h.next_at(), kBegin + kMs);
  const Sent r = run(h, 10);
  EXPECT_EQ(r.steps, std::vector<Step>(10, Step::kRts));
  EXPECT_EQ(r.pauses, (std::vector<uint64_t>{2, 4, 8, 16, 32, 64, 128, 200, 200, 200}));
  EXPECT_EQ(h.question(), 7U);
}

TEST(Handshake, AConnectIsRepeatedAndAtTimesTheQuestion) {
  Handshake h;
  h.begin(7, kBegin);
  EXPECT_FALSE(h.has_token());
  h.on_challenge(wire::Token(kToken));
  EXPECT_TRUE(h.has_token());
  EXPECT_TRUE(std::ranges::equal(h.token(), kToken));
  EXPECT_EQ(run(h, 8).steps,
            (std::vector<Step>{Step::kConnect, Step::kConnect, Step::kConnect, Step::kRts,
                               Step::kConnect, Step::kConnect, Step::kConnect, Step::kRts}));
  // A question that only a challenge answers.
  EXPECT_EQ(run(h, 3, /*asks=*/true).steps, std::vector<Step>(3, Step::kRts));
}

TEST(Handshake, NobodyIsThereAfterTheTimeAndAFewAttempts) {
  Handshake h;
  h.begin(7, kBegin);
  // We did not run for long.
  for (uint32_t i = 0; i < Handshake::kMinAttempts; ++i)
    ASSERT_EQ(h.on_time(kBegin + kPatience + i, kPatience, false), Step::kRts);
  EXPECT_EQ(h.on_time(kBegin + 2 * kPatience, kPatience, false), Step::kNobody);
  EXPECT_EQ(h.next_at(), 0U);
  h.begin(8, kBegin);
  const Sent r = run(h, 1000);
  EXPECT_EQ(r.steps.back(), Step::kNobody);
  EXPECT_EQ(h.next_at(), 0U);
  EXPECT_GE(r.steps.size(), kPatience / Handshake::kLongestPauseNs);
}

TEST(Handshake, TwoReportsEndItUnlessTheQuestionWasAnsweredBetween) {
  Handshake h;
  h.begin(7, kBegin);
  EXPECT_FALSE(h.on_undelivered());
  h.on_challenge(wire::Token(kToken));
  EXPECT_FALSE(h.on_undelivered());
  EXPECT_TRUE(h.on_undelivered());
}

TEST(Handshake, ANewOneKnowsNothingOfTheLast) {
  Handshake h;
  h.begin(7, kBegin);
  h.on_challenge(wire::Token(kToken));
  run(h, 6);
  h.on_undelivered();
  h.end();
  EXPECT_EQ(h.next_at(), 0U);
  h.begin(9, kBegin + kPatience);
  EXPECT_EQ(h.question(), 9U);
  EXPECT_FALSE(h.has_token());
  EXPECT_FALSE(h.on_undelivered());
  EXPECT_EQ(h.next_at(), kBegin + kPatience + kMs);
  EXPECT_EQ(run(h, 2).pauses, (std::vector<uint64_t>{2, 4}));
}

}  // namespace
}  // namespace weft::rxd
