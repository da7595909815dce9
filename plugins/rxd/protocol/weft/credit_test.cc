// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/credit.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace weft::rxd {
namespace {

constexpr uint64_t kKi = 1024;

TEST(Credit, CountsMessagesAndTheirFirstBytes) {
  Credit credit(4, 2);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(credit.has_message());
    EXPECT_EQ(credit.bytes(), 2 * kKi - 100 * uint64_t(i));
    credit.begin(100);
  }
  EXPECT_FALSE(credit.has_message());
  credit.raise(3, 1);  // an old one
  EXPECT_FALSE(credit.has_message());
  EXPECT_EQ(credit.bytes(), 2 * kKi - 400);
  credit.raise(5, 3);
  EXPECT_TRUE(credit.has_message());
  EXPECT_EQ(credit.bytes(), 3 * kKi - 400);
}

TEST(Credit, IsRaisedBeyond32Bits) {
  Credit credit(1, UINT32_MAX);
  credit.raise(1, 4);
  EXPECT_EQ(credit.bytes(), ((uint64_t{1} << 32) + 4) * kKi);
}

// What a message costs, from its begin to its end: the first 64 KiB that were sent, whatever was
// counted meanwhile.
TEST(Credit, AMessageCostsWhatWasSentOfItsPrefix) {
  const struct {
    uint64_t length, first, sent;  // bytes: of the message, of its first packet, in all
    uint32_t kib;                  // credit
    uint64_t announced, cost;      // counted at its begin, and for good
  } rows[] = {
      {1'000'000, 1400, 1'000'000, 256, kPrefix, kPrefix},
      {1'000'000, 1400, 1'000'000, 64, kPrefix, kPrefix},
      {1'000'000, 1400, 1'000'000, 63, 1400, kPrefix},  // no credit for all of the prefix
      {1'000'000, 0, 1'000'000, 0, 0, kPrefix},
      {1'000'000, 1400, 1400, 256, kPrefix, 1400},  // the peer ended it early
      {1'000'000, 1400, 1400, 63, 1400, 1400},
      {3000, 1400, 3000, 64, 3000, 3000},
      {3000, 1400, 3000, 2, 1400, 3000},
      {3000, 1400, 2000, 64, 3000, 2000},
  };
  for (const auto &row : rows) {
    Credit credit(1, row.kib);
    uint64_t charged = credit.announce(row.length, row.first);
    EXPECT_EQ(charged, row.announced);
    for (uint64_t sent = row.first; sent < row.sent;) {
      sent = std::min(row.sent, sent + 1400);
      charged = credit.charge(charged, sent);
    }
    credit.end(charged, row.sent);
    credit.raise(1, 1024);
    EXPECT_EQ(credit.bytes(), kKi * kKi - row.cost) << row.length << " " << row.kib;
  }
}

// Which messages and KiB a peer has been granted.
TEST(Grants, GrantByWhatWasConsumedAndByRoom) {
  constexpr Grants::Room kEmpty{0, 1 << 20}, kHalf{1 << 19, 1 << 20};
  const struct {
    uint32_t consumed;  // messages with a receive
    uint64_t each;      // bytes
    uint32_t waiting;   // messages without
    uint64_t held;      // bytes of each
    Grants::Room room;
    uint32_t messages, kib;
    bool raised;  // the peer is to be told at once
  } rows[] = {
      {0, 0, 0, 0, kEmpty, 64, 64, false},
      {31, 1000, 0, 0, kEmpty, 31 + 64, 30 + 64, false},
      {32, 1000, 0, 0, kEmpty, 32 + 1024, 31 + 64, false},
      {33, 0, 0, 0, kEmpty, 33 + 1024, 64, true},
      {40, 1000, 0, 0, kEmpty, 40 + 1024, 39 + 4096, true},
      {40, 1000, 0, 0, kHalf, 40 + 64, 39 + 64, true},
      {0, 0, 10, 2000, kEmpty, 10 + 64, 19 + 64, false},
      {0, 0, 10, 2000, kHalf, 64, 64, false},
      {0, 0, 64, 0, kEmpty, 64 + 64, 64, true},
      {0, 0, 64, 0, kHalf, 64, 64, false},
      {1, 65536, 0, 0, kEmpty, 65, 64 + 4096, true},
      {10, 0, 49, 0, kHalf, 10 + 64, 64, false},  // little more, and some is left
      {10, 0, 50, 0, kHalf, 10 + 64, 64, true},
  };
  for (const auto &row : rows) {
    Grants grants;
    for (uint32_t i = 0; i < row.consumed + row.waiting; ++i) EXPECT_TRUE(grants.begin());
    for (uint32_t i = 0; i < row.consumed; ++i) grants.consume(row.each);
    for (uint32_t i = 0; i < row.waiting; ++i) grants.hold(row.held);
    EXPECT_EQ(grants.raise(row.room), row.raised) << row.consumed << " " << row.waiting;
    EXPECT_EQ(grants.tells(), row.raised);
    wire::Acknowledgement ack;
    grants.fill(ack, row.room);
    EXPECT_EQ(ack.messages, row.messages) << row.consumed << " " << row.waiting;
    EXPECT_EQ(ack.credit, row.kib) << row.consumed << " " << row.waiting;
    grants.told();
    EXPECT_FALSE(grants.tells());
    EXPECT_FALSE(grants.raise(row.room));  // it knows
  }
}

TEST(Grants, BoundWhatAPeerMaySend) {
  Grants grants;
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(grants.begin());
  EXPECT_FALSE(grants.begin());
  grants.hold((4 << 20) + 1000);
  EXPECT_TRUE(grants.may_hold(1000));
  EXPECT_FALSE(grants.may_hold(999));
  grants.release(1);
  EXPECT_TRUE(grants.may_hold(999));
}

// Both sides of a connection count the same, in any order of arrivals, receives and
// acknowledgements: a peer that keeps to its credit is never refused, and goes on while its
// messages are consumed.
TEST(Grants, APeerThatKeepsToItsCreditIsNeverRefused) {
  constexpr uint64_t kLimit = 200'000;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const auto some = [&random](uint32_t n) { return uint64_t(random() % n); };
    Credit credit(kFirstMessages, kFirstCredit);
    Grants grants;
    std::deque<uint64_t> waiting;  // bytes of unexpected messages
    uint64_t used = 0;
    const uint32_t eager = 1 + uint32_t(some(100));  // receives that are posted in time, in percent
    const auto tell = [&] {
      wire::Acknowledgement ack;
      grants.fill(ack, {used, kLimit});
      grants.told();
      if (some(4) != 0) credit.raise(ack.messages, ack.credit);  // or it is lost
    };
    for (int step = 0; step < 3000; ++step) {
      const uint64_t n = some(3) == 0 ? some(65536) : some(500);
      if (credit.has_message() && n <= credit.bytes()) {
        credit.begin(n);
        ASSERT_TRUE(grants.begin()) << seed;
        if (some(100) < eager) {
          grants.consume(n);
        } else {
          grants.hold(n);
          waiting.push_back(n);
          used += n;
          ASSERT_TRUE(grants.may_hold(kLimit)) << seed;
        }
      }
      if (!waiting.empty() && some(100) < eager) {
        used -= waiting.front();
        grants.release(waiting.front());
        waiting.pop_front();
        grants.raise({used, kLimit});
      }
      if (grants.tells() || some(20) == 0) tell();
    }
    for (; !waiting.empty(); waiting.pop_front()) grants.release(waiting.front());
    wire::Acknowledgement ack;
    grants.fill(ack, {0, kLimit});
    credit.raise(ack.messages, ack.credit);
    EXPECT_GE(credit.bytes(), uint64_t{kFirstCredit - 1} * kKi) << seed;
    for (uint32_t i = 0; i < kFirstMessages; ++i) {
      EXPECT_TRUE(credit.has_message()) << seed;
      credit.begin(0);
    }
  }
}

}  // namespace
}  // namespace weft::rxd
