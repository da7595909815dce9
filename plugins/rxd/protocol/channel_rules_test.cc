// SPDX-License-Identifier: BSD-2-Clause
// The rules of a channel, one by one and without a network: which packets are lost, when they are
// retransmitted, what the window and the pace permit, what is acknowledged and when.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "plugin-api/sdk/testing/test_time.h"
#include "plugins/rxd/protocol/channel.h"

namespace weft::rxd {
namespace {

using sdk::kMicrosecond, sdk::kMillisecond, sdk::kSecond;
constexpr uint32_t kDatagram = 1472;

struct Sender {
  SentPool pool{SIZE_MAX, 1};
  Channel channel{pool, kDatagram, kWindow};
  std::array<int, 5000> packets{};  // how often each was acknowledged
  uint64_t now = kSecond;

  uint64_t send(size_t size = kDatagram) {
    EXPECT_EQ(channel.gate(size, now), Channel::Gate::kOpen);
    const uint64_t number = channel.next_number();
    return channel.sent(size, now, &packets[number]);
  }
  // `early`: numbers that arrived although `next` did not.
  bool acknowledge(uint64_t next, std::initializer_list<uint64_t> early = {}, uint64_t echo = 0) {
    wire::Acknowledgement ack;
    ack.next = static_cast<uint32_t>(next);
    ack.echo = echo == 0 ? 0 : Channel::clock(echo);
    ack.limit = static_cast<uint32_t>(next + kWindow);
    for (const uint64_t number : early) {
      const uint64_t bit = number - next - 1;
      while (ack.words <= bit / 64) ack.bitmap[ack.words++] = 0;
      ack.bitmap[bit / 64] |= uint64_t{1} << (bit % 64);
    }
    return channel.on_acknowledgement(ack, now,
                                      [](void *packet) { ++*static_cast<int *>(packet); });
  }
  std::vector<uint64_t> repeat_lost() {
    std::vector<uint64_t> out;
    for (Channel::Lost lost; channel.next_lost(lost, now);) {
      out.push_back(lost.number);
      asked += lost.ask;
      channel.sent_again(lost.number, now);
    }
    return out;
  }
  int asked = 0;
  // Makes one round trip of that length.
  void know(uint64_t trip) {
    send();
    now += trip;
    EXPECT_TRUE(acknowledge(channel.next_number(), {}, now - trip));
  }
};
using Numbers = std::vector<uint64_t>;

TEST(ChannelRules, TheEchoMeasuresTheRoundTrip) {
  Sender s;
  s.know(100 * kMicrosecond);
  EXPECT_EQ(s.channel.round_trip().smoothed(), 100 * kMicrosecond);
  EXPECT_EQ(s.channel.round_trip().least(), 100 * kMicrosecond);
  s.know(50 * kMicrosecond);
  EXPECT_EQ(s.channel.round_trip().least(), 50 * kMicrosecond);
  // Without an echo, or with an echo of the future, the round trip does not change.
  s.send();
  s.now += kMillisecond;
  EXPECT_TRUE(s.acknowledge(3, {}, s.now + kSecond));
  EXPECT_EQ(s.channel.round_trip().least(), 50 * kMicrosecond);
  EXPECT_LT(s.channel.round_trip().smoothed(), 100 * kMicrosecond);
}

// What an end did not read for a while is no queue of the network: the window stays.
TEST(ChannelRules, WaitsForAnEndThatDidNotLookAreNoDelay) {
  constexpr uint64_t kWait = 6 * kMillisecond;
  const auto window_after = [](uint64_t here, uint64_t there) {
    Sender s;
    s.know(100 * kMicrosecond);
    const uint64_t before = s.channel.window();
    for (int round = 0; round < 10; ++round) {
      s.send();
      s.now += kWait;
      wire::Acknowledgement ack;
      ack.next = static_cast<uint32_t>(s.channel.next_number());
      ack.echo = Channel::clock(s.now - kWait);
      ack.limit = kWindow;
      ack.unread = static_cast<uint32_t>(there / wire::kUnreadUnit);
      EXPECT_TRUE(s.channel.on_acknowledgement(ack, Moment(s.now, here), [](void *) {}));
    }
    EXPECT_GE(s.channel.round_trip().smoothed(), kWait / 2) << "timeouts are as long as ever";
    return static_cast<double>(s.channel.window()) / static_cast<double>(before);
  };
  EXPECT_LT(window_after(0, 0), 0.5);
  EXPECT_GE(window_after(kWait, 0), 1);
  EXPECT_GE(window_after(0, kWait), 1);
  EXPECT_GE(window_after(kWait / 2, kWait / 2), 1);
  EXPECT_LT(window_after(kWait / 4, kWait / 4), 0.5);
}

// A round trip of a peer that did not run, or lies, must not make the timeout as long.
TEST(ChannelRules, TheTimeoutIsBoundedWhateverTheRoundTrip) {
  Sender s;
  s.know(50 * kSecond);
  s.send();
  EXPECT_LE(s.channel.deadline(), s.now + 2 * kSecond);
  s.now = s.channel.deadline();
  EXPECT_TRUE(s.channel.on_deadline(s.now));
}

TEST(ChannelRules, APacketIsLostWhenThreeLaterOnesHaveArrived) {
  Sender s;
  s.know(100 * kMicrosecond);
  for (int i = 0; i < 6; ++i) s.send();  // 1 to 6
  s.now += 90 * kMicrosecond;
  ASSERT_TRUE(s.acknowledge(1, {2, 3}, s.now - 90 * kMicrosecond));
  EXPECT_TRUE(s.repeat_lost().empty());
  ASSERT_TRUE(s.acknowledge(1, {2, 3, 4}, s.now - 90 * kMicrosecond));
  EXPECT_EQ(s.repeat_lost(), Numbers{1});
  EXPECT_EQ(s.asked, 0);
  // The retransmission left after 5 and 6, so their arrival does not show that it was lost.
  ASSERT_TRUE(s.acknowledge(1, {2, 3, 4, 5, 6}, s.now - 90 * kMicrosecond));
  EXPECT_TRUE(s.repeat_lost().empty());
  for (int i = 0; i < 3; ++i) s.send();  // 7 to 9, after the retransmission
  s.now += 10 * kMicrosecond;
  ASSERT_TRUE(s.acknowledge(1, {2, 3, 4, 5, 6, 7, 8, 9}, s.now - 10 * kMicrosecond));
  EXPECT_EQ(s.repeat_lost(), Numbers{1});
  s.now += 100 * kMicrosecond;
  ASSERT_TRUE(s.acknowledge(10, {}, s.now - 100 * kMicrosecond));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(s.packets[i], 1);
  EXPECT_EQ(s.channel.deadline(), 0u);
}

TEST(ChannelRules, APacketIsLostWhenALaterOneHasArrivedAndItsTimeIsOver) {
  Sender s;
  s.know(800 * kMicrosecond);
  s.send();  // 1
  s.send();  // 2
  const uint64_t sent = s.now;
  s.now += 600 * kMicrosecond;
  ASSERT_TRUE(s.acknowledge(1, {2}, s.now - 600 * kMicrosecond));
  EXPECT_TRUE(s.repeat_lost().empty());
  const uint64_t trip = s.channel.round_trip().smoothed();
  EXPECT_EQ(s.channel.deadline(), sent + trip + trip / 8);
  s.now = s.channel.deadline();
  EXPECT_FALSE(s.channel.on_deadline(s.now));  // not a timeout
  EXPECT_EQ(s.repeat_lost(), Numbers{1});
  EXPECT_EQ(s.asked, 0);
}

TEST(ChannelRules, ReorderingRaisesTheThresholdForLoss) {
  Sender s;
  s.know(100 * kMicrosecond);
  for (int i = 0; i < 5; ++i) s.send();  // 1 to 5
  s.now += 90 * kMicrosecond;
  ASSERT_TRUE(s.acknowledge(1, {2, 3, 4}, s.now - 90 * kMicrosecond));
  EXPECT_EQ(s.repeat_lost(), Numbers{1});
  // The first transmission has arrived: the packet that the peer echoes had left before the second.
  s.now += 5 * kMicrosecond;
  ASSERT_TRUE(s.acknowledge(5, {}, s.now - 50 * kMicrosecond));
  for (int i = 0; i < 5; ++i) s.send();  // 6 to 10
  s.now += 90 * kMicrosecond;
  ASSERT_TRUE(s.acknowledge(6, {7, 8, 9}, s.now - 90 * kMicrosecond));
  EXPECT_TRUE(s.repeat_lost().empty());
}

TEST(ChannelRules, TimeoutsDoubleUpTo200Milliseconds) {
  Sender s;
  s.send();
  EXPECT_EQ(s.channel.deadline(), s.now + 10 * kMillisecond);  // nothing is known of the path
  s.now += 100 * kMicrosecond;
  ASSERT_TRUE(s.acknowledge(1, {}, s.now - 100 * kMicrosecond));
  EXPECT_EQ(s.channel.deadline(), 0u);  // idle: no timer
  for (int i = 0; i < 4; ++i) s.send();
  const uint64_t sent = s.now;
  uint64_t expected = kMillisecond, last = s.now;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(s.channel.deadline(), last + std::min(expected, 200 * kMillisecond));
    EXPECT_FALSE(s.channel.on_deadline(s.channel.deadline() - 1));
    s.now = last = s.channel.deadline();
    EXPECT_TRUE(s.channel.on_deadline(s.now));
    EXPECT_EQ(s.channel.timeouts(), static_cast<uint32_t>(i + 1));
    // The two oldest packets, which ask for an acknowledgement.
    EXPECT_EQ(s.repeat_lost().size(), 2u);
    EXPECT_EQ(s.asked, 2 * (i + 1));
    expected *= 2;
  }
  EXPECT_EQ(s.channel.silent_since(), sent);
  s.channel.heard(s.now);
  EXPECT_EQ(s.channel.silent_since(), s.now);
}

TEST(ChannelRules, ATimeoutRetransmitsTheTwoOldestWhateverTheWindow) {
  Sender s;
  s.know(100 * kMicrosecond);
  while (s.channel.gate(kDatagram, s.now) == Channel::Gate::kOpen) s.send();
  const uint64_t n = s.channel.outstanding();
  ASSERT_GT(n, 10u);
  s.now = s.channel.deadline();
  if (!s.channel.on_deadline(s.now)) {  // that deadline was the pace's
    s.now = s.channel.deadline();
    ASSERT_TRUE(s.channel.on_deadline(s.now));
  }
  EXPECT_EQ(s.repeat_lost(), (Numbers{1, 2}));
  // Only these two arrive: the rest is lost, and the window collapses.
  s.now += 100 * kMicrosecond;
  ASSERT_TRUE(s.acknowledge(3, {}, s.now - 100 * kMicrosecond));
  EXPECT_EQ(s.channel.window(), 2 * kDatagram);
  EXPECT_EQ(s.repeat_lost(), (Numbers{3, 4}));
  EXPECT_EQ(s.channel.outstanding(), n - 2);
}

// The peer keeps a limited number of early packets, so it may have dropped all but the lowest
// number.
TEST(ChannelRules, LostPacketsWithLowNumbersGoFirst) {
  Sender s;
  s.know(100 * kMicrosecond);
  for (int i = 0; i < 9; ++i) s.send();  // 1 to 9
  s.now += 100 * kMicrosecond;
  ASSERT_TRUE(s.acknowledge(1, {2, 4, 6, 8}, s.now - 100 * kMicrosecond));
  ASSERT_EQ(s.repeat_lost(), (Numbers{1, 3, 5}));  // their last transmissions follow 7 and 9
  s.now += 60 * kMicrosecond;
  for (int i = 0; i < 4; ++i) s.send();  // 10 to 13
  s.now += 100 * kMicrosecond;
  // 7 and 9 are lost, because later packets arrived; 1, 3 and 5 are still in flight.
  ASSERT_TRUE(s.acknowledge(1, {2, 4, 6, 8, 10}, s.now - 100 * kMicrosecond));
  s.now = s.channel.deadline();
  while (!s.channel.on_deadline(s.now)) s.now = s.channel.deadline();
  Channel::Lost lost;
  ASSERT_TRUE(s.channel.next_lost(lost, s.now));
  EXPECT_EQ(lost.number, 1u);
  EXPECT_TRUE(lost.ask);
  const Numbers again = s.repeat_lost();
  EXPECT_TRUE(std::is_sorted(again.begin(), again.end()));
  EXPECT_EQ(s.asked, 2);
  EXPECT_GE(again.size(), 2u);
  EXPECT_EQ(again[1], 3u);
}

TEST(ChannelRules, ImpossibleAcknowledgementsChangeNothing) {
  Sender s;
  for (int i = 0; i < 5; ++i) s.send();
  EXPECT_FALSE(s.acknowledge(6));
  EXPECT_FALSE(s.acknowledge(2, {5}));
  EXPECT_FALSE(s.acknowledge(2, {3, 900}));
  EXPECT_FALSE(s.acknowledge(UINT32_MAX));
  EXPECT_FALSE(s.acknowledge(uint64_t{1} << 31));
  EXPECT_EQ(s.channel.outstanding(), 5u);
  EXPECT_EQ(s.channel.in_flight(), 5 * kDatagram);
  EXPECT_TRUE(s.acknowledge(2, {4}));
  EXPECT_EQ(s.channel.outstanding(), 2u);
  // Old acknowledgements are valid, and their bitmap counts.
  EXPECT_TRUE(s.acknowledge(0));
  EXPECT_TRUE(s.acknowledge(0, {3}));
  EXPECT_EQ(s.channel.outstanding(), 1u);
  EXPECT_EQ(s.packets[3], 1);
  EXPECT_TRUE(s.acknowledge(5));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(s.packets[i], 1);
}

TEST(ChannelRules, LimitAndWindowHoldPacketsBack) {
  Sender s;
  SentPool pool(SIZE_MAX, 1);
  Channel small(pool, kDatagram, 1);
  for (int i = 0; i < 4; ++i) {  // four packets are always permitted
    ASSERT_EQ(small.gate(100, kSecond), Channel::Gate::kOpen);
    small.sent(100, kSecond, &s);
  }
  EXPECT_EQ(small.gate(100, kSecond), Channel::Gate::kWindow);
  small.raise_limit(5);
  EXPECT_EQ(small.gate(100, kSecond), Channel::Gate::kOpen);
  small.raise_limit(4);  // a limit is never reduced
  EXPECT_EQ(small.gate(100, kSecond), Channel::Gate::kOpen);
  size_t handed = 0;
  small.abandon([&](void *packet) { handed += packet == &s; });
  EXPECT_EQ(handed, 4u);
  EXPECT_EQ(small.outstanding(), 0u);
  EXPECT_EQ(small.deadline(), 0u);
  EXPECT_EQ(pool.in_use(), 0u);

  // Bytes: 64 KiB at first; at least one packet whatever its size.
  while (s.channel.gate(kDatagram, s.now) == Channel::Gate::kOpen) s.send();
  EXPECT_LE(s.channel.in_flight(), 64u << 10);
  EXPECT_GT(s.channel.in_flight(), (64u << 10) - kDatagram);
  Channel one(pool, kDatagram, kWindow);
  EXPECT_EQ(one.gate(1 << 20, s.now), Channel::Gate::kOpen);
}

TEST(ChannelRules, OnThisHostOnlyTheLimitHoldsPacketsBack) {
  Sender s;
  s.channel.set_direct();
  // The reader does not run most of the time.
  for (int round = 0; round < 20; ++round) {
    uint64_t n = 0;
    for (; s.channel.gate(10000, s.now) == Channel::Gate::kOpen; ++n) s.send(10000);
    EXPECT_EQ(n, kWindow);  // only the limit counts
    s.now += 9 * kMillisecond;
    const uint64_t end = s.channel.next_number();
    if (end + kWindow > s.packets.size()) break;
    ASSERT_TRUE(s.acknowledge(end, {}, s.now - 9 * kMillisecond));
  }
  // If half of the packets are lost, there is a path after all, or the socket is too small.
  const uint64_t end = s.channel.next_number(), settled = s.channel.settled();
  wire::Acknowledgement ack;
  ack.next = static_cast<uint32_t>(settled);
  ack.words = wire::kMaxWords;
  for (uint64_t &word : ack.bitmap) word = 0x5555555555555555;
  ASSERT_EQ(end - settled, kWindow);
  const uint64_t window = s.channel.window();
  ASSERT_TRUE(s.channel.on_acknowledgement(ack, s.now, [](void *) {}));
  EXPECT_LT(s.channel.window(), window);
}

TEST(ChannelRules, ThePaceBeginsAfterABurst) {
  Sender s;
  s.know(kMillisecond);
  // Rounds that use up the window make it grow.
  for (int round = 0; round < 4; ++round) {
    for (int step = 0; step < 4; ++step) {
      while (s.channel.gate(kDatagram, s.now) == Channel::Gate::kOpen) s.send();
      s.now += kMillisecond / 4;
    }
    ASSERT_TRUE(s.acknowledge(s.channel.next_number(), {}, s.now - kMillisecond));
  }
  ASSERT_GT(s.channel.window(), 128u << 10);
  const uint64_t before = s.channel.next_number();
  while (s.channel.gate(kDatagram, s.now) == Channel::Gate::kOpen) s.send();
  const uint64_t burst = (s.channel.next_number() - before) * kDatagram;
  EXPECT_GE(burst, 64u << 10);
  EXPECT_LE(burst, (64u << 10) + 2 * kDatagram);
  EXPECT_EQ(s.channel.gate(kDatagram, s.now), Channel::Gate::kPace);
  const uint64_t at = s.channel.deadline();
  ASSERT_GT(at, s.now);
  ASSERT_LT(at, s.now + 100 * kMicrosecond);
  EXPECT_EQ(s.channel.gate(kDatagram, at), Channel::Gate::kOpen);
}

// Numbers reuse the same 1024 places again and again, with gaps at any of them.
TEST(ChannelRules, PlacesAreUsedAgain) {
  Sender s;
  std::mt19937_64 random(7);
  std::vector<uint64_t> open;
  while (s.channel.next_number() < 4500) {
    const uint64_t n = 1 + random() % 40;
    for (uint64_t i = 0; i < n; ++i) {
      if (s.channel.gate(1, s.now) == Channel::Gate::kOpen) s.send(1);
    }
    wire::Acknowledgement ack;
    const uint64_t settled = s.channel.settled(), end = s.channel.next_number();
    const uint64_t next = settled + random() % (end - settled + 1);
    ack.next = static_cast<uint32_t>(next);
    ack.limit = ack.next + kWindow;
    for (uint64_t number = next + 1; number < end; ++number) {
      const uint64_t bit = number - next - 1;
      while (ack.words <= bit / 64) ack.bitmap[ack.words++] = 0;
      if (random() % 2 != 0) ack.bitmap[bit / 64] |= uint64_t{1} << (bit % 64);
    }
    s.now += 10 * kMicrosecond;
    ASSERT_TRUE(s.channel.on_acknowledgement(ack, s.now,
                                             [](void *packet) { ++*static_cast<int *>(packet); }));
    ASSERT_EQ(s.channel.settled(), next);
    s.repeat_lost();
  }
  ASSERT_TRUE(s.acknowledge(s.channel.next_number()));
  for (uint64_t i = 0; i < s.channel.next_number(); ++i) ASSERT_EQ(s.packets[i], 1) << i;
  EXPECT_EQ(s.pool.in_use(), 0u);
}

struct Receiver {
  SentPool pool{SIZE_MAX, 1};
  Channel channel{pool, kDatagram};
  uint64_t now = kSecond;
  Receiver() { channel.set_share(kWindow); }
  Channel::Arrival come(uint64_t number, uint16_t flags = 0, uint64_t unread = 0) {
    const wire::Header header{
        .flags = flags, .sequence = static_cast<uint32_t>(number), .time = Channel::clock(now)};
    const uint64_t n = channel.number_of(header.sequence);
    const auto arrival = channel.look(n);
    if (arrival == Channel::Arrival::kDuplicate) channel.duplicate(header, {now, unread});
    if (arrival == Channel::Arrival::kInOrder || arrival == Channel::Arrival::kEarly) {
      channel.accept(n, header, {now, unread});
    }
    return arrival;
  }
  wire::Acknowledgement acknowledge() {
    wire::Acknowledgement ack;
    channel.fill(ack, now);
    channel.acknowledged();
    return ack;
  }
};
using Arrival = Channel::Arrival;
using Owed = Channel::Owed;

TEST(ChannelRules, WhenAnAcknowledgementIsOwed) {
  Receiver r;
  EXPECT_EQ(r.channel.owed(), Owed::kNothing);
  EXPECT_EQ(r.acknowledge().echo, 0u);
  EXPECT_EQ(r.come(0), Arrival::kInOrder);
  EXPECT_EQ(r.channel.owed(), Owed::kSome);
  r.acknowledge();
  EXPECT_EQ(r.channel.owed(), Owed::kNothing);
  EXPECT_EQ(r.come(0), Arrival::kDuplicate);
  EXPECT_EQ(r.channel.owed(), Owed::kSoon);
  r.acknowledge();
  EXPECT_EQ(r.come(1, wire::kFlagAsk), Arrival::kInOrder);
  EXPECT_EQ(r.channel.owed(), Owed::kAsked);
  r.acknowledge();
  EXPECT_EQ(r.come(3), Arrival::kEarly);
  EXPECT_EQ(r.channel.owed(), Owed::kSoon);
  r.acknowledge();
  EXPECT_EQ(r.come(3), Arrival::kDuplicate);
  EXPECT_EQ(r.come(2), Arrival::kInOrder);  // closes the gap
  EXPECT_EQ(r.channel.owed(), Owed::kSoon);
  EXPECT_EQ(r.channel.next(), 4u);
  r.acknowledge();
  for (uint64_t i = 4; i < 19; ++i) r.come(i);
  EXPECT_EQ(r.channel.owed(), Owed::kSome);
  r.come(19);  // the 16th
  EXPECT_EQ(r.channel.owed(), Owed::kNow);
}

TEST(ChannelRules, AnAcknowledgementTellsHowLongItsPacketMayHaveWaited) {
  Receiver r;
  EXPECT_EQ(r.acknowledge().unread, 0u);
  r.come(0, 0, 100 * kMicrosecond);
  EXPECT_EQ(r.acknowledge().unread, 6u);
  r.come(1, 0, kSecond + 100 * kMillisecond);
  EXPECT_EQ(r.acknowledge().unread, 65535u);
  r.come(2);
  EXPECT_EQ(r.acknowledge().unread, 0u);
}

TEST(ChannelRules, AnAcknowledgementHasABitmapAndAnEcho) {
  Receiver r;
  for (const uint64_t n : {0, 1, 3, 4, 70, 200}) r.come(n);
  r.now += 30 * kMicrosecond;
  auto ack = r.acknowledge();
  EXPECT_EQ(ack.next, 2u);
  EXPECT_EQ(ack.echo, Channel::clock(r.now));  // its time, and how long it waited
  EXPECT_EQ(ack.limit, 2 + kWindow);
  ASSERT_EQ(ack.words, 4u);
  EXPECT_EQ(ack.bitmap[0], 3u);                        // 3 and 4
  EXPECT_EQ(ack.bitmap[1], uint64_t{1} << (67 - 64));  // 70
  EXPECT_EQ(ack.bitmap[2], 0u);
  EXPECT_EQ(ack.bitmap[3], uint64_t{1} << (197 - 192));  // 200
  // A late copy does not replace a newer time.
  const uint32_t echo = ack.echo;
  r.now -= 20 * kMicrosecond;
  const uint64_t late = r.now;
  r.come(0);
  r.now = late;
  EXPECT_GE(static_cast<int32_t>(r.acknowledge().echo - echo), -20);
  r.come(2);
  ack = r.acknowledge();
  EXPECT_EQ(ack.next, 5u);
  EXPECT_EQ(ack.words, 4u);
}

TEST(ChannelRules, NothingAboveTheLimitIsTaken) {
  Receiver r;
  EXPECT_EQ(r.channel.limit(), kWindow);
  EXPECT_EQ(r.come(kWindow), Arrival::kOutside);
  EXPECT_EQ(r.come(kWindow - 1), Arrival::kEarly);
  auto ack = r.acknowledge();
  EXPECT_EQ(ack.words, 16u);
  EXPECT_EQ(ack.bitmap[15], uint64_t{1} << 62);
  for (uint64_t n = 0; n < kWindow - 1; ++n) EXPECT_EQ(r.come(n), Arrival::kInOrder);
  EXPECT_EQ(r.channel.next(), kWindow);
  EXPECT_EQ(r.come(kWindow), Arrival::kOutside);  // the limit was not raised yet
  EXPECT_EQ(r.acknowledge().words, 0u);
  EXPECT_EQ(r.come(kWindow), Arrival::kInOrder);
  // A smaller share does not reduce the limit.
  r.channel.set_share(1);
  EXPECT_EQ(r.come(kWindow + 100), Arrival::kEarly);
  Receiver least;
  SentPool pool(SIZE_MAX, 1);
  Channel channel(pool, kDatagram);
  channel.set_share(0);
  EXPECT_EQ(channel.limit(), 4u);
}

// 32 bits of a number are enough.
TEST(ChannelRules, SequencesAreExtendedTo64Bits) {
  EXPECT_EQ(wire::extend(5, 3), 5u);
  EXPECT_EQ(wire::extend(UINT32_MAX, 3), UINT32_MAX);  // never below 0
  EXPECT_EQ(wire::extend(2, UINT32_MAX), (uint64_t{1} << 32) + 2);
  EXPECT_EQ(wire::extend(UINT32_MAX - 1, (uint64_t{7} << 32) + 5),
            (uint64_t{6} << 32) + UINT32_MAX - 1);
}

// The memory budgets of an idle connection, and of one with packets in flight.
TEST(ChannelRules, MemoryStaysWithinItsBudget) {
  EXPECT_LE(sizeof(Channel), 820u);
  EXPECT_LE(sizeof(SentChunk), 1024u + 256);
}

}  // namespace
}  // namespace weft::rxd
