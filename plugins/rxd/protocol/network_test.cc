// SPDX-License-Identifier: BSD-2-Clause
// The protocol among simulated endpoints: chosen situations. Random runs are in
// network_seeds_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "plugin-api/sdk/testing/test_rounds.h"
#include "plugin-api/sdk/testing/test_time.h"
#include "plugins/rxd/protocol/simulation.h"

namespace weft::rxd {
namespace {

using sdk::kMillisecond, sdk::kSecond;

TEST(Network, OneMessageArrives) {
  World world(1);
  world.eagain = 0;
  Node &a = world.add(0, patient()), &b = world.add(1, patient());
  b.post(100, true);
  a.send(1, 100, {});
  EXPECT_TRUE(
      world.run_until([&] { return world.all_ended() && b.received.size() == 1; }, kSecond));
  world.check(true);
}

// An application may stop to make progress after the completion that it waited for. The packets
// that its peer waits for must have left by then.
TEST(Network, AReceiverMayStopProgressAfterItsCompletion) {
  for (const size_t length : {100, 3000, 200'000}) {
    World world(3);
    world.eagain = 0;
    Node &a = world.add(0, patient()), &b = world.add(1, patient());
    for (const bool delivery : {false, true}) {
      const size_t before = b.received.size();
      b.stops_after = before + 1;
      b.post(length, true);
      a.send(1, length, {.delivery = delivery, .transmit = !delivery});
      EXPECT_TRUE(world.run_until([&] { return world.all_ended(); }, 5 * kSecond)) << length;
      EXPECT_EQ(b.received.size(), before + 1);
    }
    b.stops_after = SIZE_MAX;
    world.check(true);
  }
}

// The message that the application waits for is behind many that it does not want yet.
TEST(Network, AMessageBehindManyUnexpectedOnesArrives) {
  World world(4);
  Settings settings = patient();
  settings.tx_size = 4096;
  Node &a = world.add(0, settings), &b = world.add(1, settings);
  for (int i = 0; i < 900; ++i) a.send(1, 100, {.tagged = false, .delivery = i % 3 == 0});
  for (int i = 0; i < 50; ++i) a.send(1, 20'000, {.tagged = false});
  a.send(1, 10, {.tagged = true});
  b.post(10, true);
  EXPECT_TRUE(world.run_until([&] { return b.received.size() == 1; }, 5 * kSecond));
  for (int i = 0; i < 950; ++i) b.post(20'000, false);
  EXPECT_TRUE(
      world.run_until([&] { return world.all_ended() && b.received.size() == 951; }, 5 * kSecond));
  world.check(true);
}

// What was under way when its message was discarded counts at both ends, so the sender does not run
// out of credit.
TEST(Network, DiscardedMessagesCostNoCredit) {
  World world(8);
  world.weather.jitter = 200'000;
  world.eagain = 0;
  Node &a = world.add(0, patient()), &b = world.add(1, patient());
  constexpr size_t kMessages = 20;
  for (size_t i = 0; i < kMessages; ++i) {
    a.send(1, 300'000, {});
    EXPECT_TRUE(world.run_until([&] { return b.discard_unexpected() == 1; }, kSecond)) << i;
  }
  world.run(world.now + 10 * kMillisecond);
  for (int i = 0; i < 40; ++i) {
    b.post(1000, true);
    a.send(1, 1000, {});
  }
  EXPECT_TRUE(world.run_until([&] { return b.received.size() == 40; }, kSecond));
  EXPECT_EQ(a.core().counters().announced.value(), kMessages) << "the short ones came unasked";
}

// One peer fills all the room for unexpected messages. Another peer, whose messages have receives,
// must go on.
TEST(Network, APeerWithManyUnexpectedMessagesDoesNotStopOthers) {
  World world(7);
  Settings settings = patient();
  settings.unexpected_limit = 40'000;
  Node &hub = world.add(0, settings), &hog = world.add(1, settings), &good = world.add(2, settings);
  for (int i = 0; i < 300; ++i) hog.send(0, 1000, {.tagged = false});
  world.run(100 * kMillisecond);
  EXPECT_GE(hub.core().inbox().bytes(), settings.unexpected_limit);
  for (int i = 0; i < 500; ++i) {
    hub.post(1000, true);
    good.send(0, 1000, {.delivery = true});
  }
  const auto good_ones_ended = [&] {
    return std::ranges::all_of(world.operations,
                               [](const Operation &o) { return o.from != 2 || o.ended != 0; });
  };
  EXPECT_TRUE(world.run_until(good_ones_ended, 10 * kSecond));
  EXPECT_FALSE(world.all_ended());
  for (int i = 0; i < 300; ++i) hub.post(1000, false);
  EXPECT_TRUE(world.run_until([&] { return hub.received.size() == 800; }, 10 * kSecond));
  world.check(true);
}

// Loss must not cause seconds of silence: with long messages, and with many short ones both ways.
TEST(Network, LossCausesNoLongSilence) {
  const auto time_of = [](unsigned loss, bool storm) {
    World world(6);
    world.eagain = 0;
    world.weather.loss = loss;
    world.window = 4 << 20;
    Settings settings = patient();
    settings.tx_size = 8192;
    Node &a = world.add(0, settings), &b = world.add(1, settings);
    const uint64_t begin = world.now;
    for (int i = 0; i < (storm ? 2000 : 5); ++i)
      for (Node *n : {&a, &b}) {
        n->post(storm ? 100 : 1'000'000, true);
        n->send(1 - n->number(), storm ? 100 : 1'000'000, {.transmit = true});
      }
    EXPECT_TRUE(world.run_until([&] { return world.all_ended(); }, 60 * kSecond));
    world.check(true);
    return world.now - begin;
  };
  for (const bool storm : {false, true}) {
    const uint64_t fair = time_of(0, storm);
    const uint64_t one = time_of(10, storm), five = time_of(50, storm);
    std::printf("%s: %.1f ms, with 1 %% loss %.1f, with 5 %% %.1f\n", storm ? "storm" : "long",
                double(fair) / 1e6, double(one) / 1e6, double(five) / 1e6);
    EXPECT_LE(one, 3 * fair + 50 * kMillisecond);
    EXPECT_LE(five, 10 * fair + 300 * kMillisecond);
  }
}

// A receiver need not wait for its timeout when a sender closes with a message that it has not
// taken.
TEST(Network, ASenderThatClosesSaysThatTheRestWillNotCome) {
  World world(6);
  world.eagain = 0;
  Node &a = world.add(0, patient()), &b = world.add(1, patient());
  a.send(1, 1'000'000, {});
  world.run(kSecond);
  a.core().part();
  world.run(kSecond);
  EXPECT_FALSE(a.core().parted());
  b.post(1'000'000, true);
  a.core().shut_down(FI_ECANCELED);
  EXPECT_TRUE(world.run_until([&] { return b.broken == 1; }, kSecond / 2));
}

// Both start so many accesses that each could wait for the other's answers for ever.
TEST(Network, ManyAccessesInBothDirectionsEnd) {
  World world(5);
  world.weather.loss = 50;
  world.window = 8192;
  Settings settings = patient();
  settings.tx_size = 4096;
  Node &a = world.add(0, settings), &b = world.add(1, settings);
  for (int i = 0; i < 900; ++i)
    for (Node *n : {&a, &b}) {
      const size_t to = 1 - n->number();
      if (i % 3 == 0) n->add(to);
      if (i % 3 == 1) n->write(to, 300, 4, false);
      if (i % 3 == 2) n->read(to, 300, 4);
      n->send(to, 50, {.delivery = true});
      n->post(50, true);
    }
  EXPECT_TRUE(world.run_until([&] { return world.all_ended(); }, 30 * kSecond));
  world.check(true);
}

TEST(Network, AnEndpointReachesItself) {
  World world(2);
  Node &a = world.add(0, patient());
  for (size_t length : {0, 10, 5000, 300000}) a.send(0, length, {});
  a.read(0, 70000, 5);
  a.write(0, 70000, 5, true);
  a.add(0);
  world.run(5 * kMillisecond);
  for (int i = 0; i < 4; ++i) a.post(300000, true);
  EXPECT_TRUE(
      world.run_until([&] { return world.all_ended() && a.received.size() == 4; }, 10 * kSecond));
  world.check(true);
}

// More peers connect than max_unnamed_peers, on a bad network. A removed peer may just have packets
// in flight, and its close may be lost. Every operation must end, and successful ones have arrived
// exactly once.
TEST(Network, MorePeersThanTheLimitOnABadNetwork) {
  constexpr size_t kLimit = 6, kVisitors = 60;
  for (uint64_t seed = 0; seed < sdk::rounds(15); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.weather = {
        .loss = unsigned(world.some(200)), .doubled = 50, .jitter = world.some(300'000)};
    Settings settings = patient();
    settings.max_unnamed_peers = kLimit;
    Node &hub = world.add(0, settings);
    hub.introduces = false;
    for (size_t i = 1; i <= kVisitors; ++i) world.add(i, patient());
    for (size_t i = 1; i <= kVisitors; ++i)
      for (int n = 0; n < 3; ++n) {
        const bool tagged = n != 0;
        const size_t length = world.some(5000);
        const Node::Form form{.tagged = tagged, .delivery = world.chance(500)};
        world.after(world.some(2 * kSecond),
                    [&world, i, length, form] { world.node(i)->send(0, length, form); });
        world.after(world.some(2 * kSecond), [&hub, tagged] { hub.post(5000, tagged); });
      }
    // A message that is cut off uses up a receive, so post more.
    world.after(2 * kSecond, [&hub] {
      for (int i = 0; i < 100; ++i) hub.post(5000, i % 2 == 0);
    });
    world.run(2 * kSecond + kMillisecond);
    EXPECT_TRUE(world.run_until([&] { return world.all_ended(); }, 100 * kSecond));
    world.check(false);
    EXPECT_LE(hub.core().unnamed_peers(), kLimit);
    size_t well = 0;
    for (const Operation &o : world.operations) well += o.err == 0 ? 1 : 0;
    EXPECT_GT(well, world.operations.size() * 3 / 4);
    if (HasFailure()) return;
  }
}

// A peer's process has ended, and the network reports that no process has its port. The endpoint
// must learn it at once, and not wait for the peer at its close.
TEST(Network, APeerWhoseProcessHasEndedIsGoneAtOnce) {
  for (uint64_t seed = 0; seed < sdk::rounds(50); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.eagain = 0;
    world.told = 1000;
    Node &a = world.add(0, patient()), &b = world.add(1, patient());
    b.post(100, true);
    a.send(1, 100, {.delivery = true});
    ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, kSecond));
    world.kill(1);
    const uint64_t begin = world.now, before = world.datagrams;
    if (seed % 2 == 0) {
      a.send(1, 100, {.transmit = true});
      ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 400 * kSecond));
      EXPECT_EQ(world.operations.back().err, FI_ECONNRESET);
    } else {
      a.core().part();
      a.settle();
      ASSERT_TRUE(world.run_until([&] { return a.core().parted(); }, kSecond));
    }
    EXPECT_LE(world.now - begin, kMillisecond) << "it takes round trips, and no timeout";
    EXPECT_LE(world.datagrams - before, 4U);
    EXPECT_EQ(a.core().peers(), 0U);
    // Nobody is there for a new operation either, which the second question tells.
    const uint64_t later = world.now;
    a.send(1, 100, {.transmit = true});
    ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 400 * kSecond));
    if (seed % 2 == 0) {
      EXPECT_EQ(world.operations.back().err, FI_ECONNREFUSED);
    }
    EXPECT_LE(world.now - later, 10 * kMillisecond);
    EXPECT_EQ(a.core().peers(), 0U);
    a.core().part();
    a.settle();
    ASSERT_TRUE(world.run_until([&] { return a.core().parted(); }, kSecond));
  }
}

// Of many operations of every kind toward a peer that is gone none waits for a timeout: those under
// way fail with the connection, the others with the next handshake.
TEST(Network, AllOperationsTowardADeadPeerFailSoon) {
  for (uint64_t seed = 0; seed < sdk::rounds(20); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.told = 1000;
    Node &a = world.add(0, patient()), &b = world.add(1, patient());
    b.post(100, true);
    a.send(1, 100, {.delivery = true});
    ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, kSecond));
    world.kill(1);
    for (const size_t length : {8, 4000, 200'000, 2'000'000}) {
      a.send(1, length, {.delivery = true});
      a.send(1, length, {.transmit = true});
      a.write(1, length, 7, false);
      a.read(1, length, 7);
    }
    EXPECT_TRUE(world.run_until([&] { return world.all_ended(); }, kSecond));
    if (HasFailure()) return;
  }
}

// A report may be late. The peer that starts after the first one is met.
TEST(Network, APeerThatStartsAfterTheFirstRefusalIsMet) {
  for (uint64_t seed = 0; seed < sdk::rounds(20); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.eagain = 0;
    world.told = 1000;
    Node &a = world.add(0, patient());
    world.add(1, patient());
    world.kill(1);
    a.send(1, 100, {.delivery = true});
    world.after(world.some(kMillisecond), [&] { world.add(1, patient()).post(100, true); });
    ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, kSecond));
    EXPECT_EQ(world.operations.back().err, 0);
  }
}

// The peer answers a read with bytes behind its end.
TEST(Network, AnAnswerDoesNotLeaveItsRead) {
  constexpr size_t kLength = 100;
  for (const uint64_t offset : {uint64_t{1}, uint64_t{kLength}, uint64_t{kLength + 1}}) {
    SCOPED_TRACE(offset);
    World world(1);
    world.eagain = 0;
    Settings settings = patient();
    settings.checksum = Checksum::kOff;
    Node &a = world.add(0, settings);
    world.add(1, settings);
    bool changed = false;
    world.spy = [&](size_t from, size_t, std::vector<uint8_t> &bytes) {
      const auto packet = wire::parse(bytes);
      const auto *data = packet ? std::get_if<wire::Data>(&packet->content) : nullptr;
      if (from != 1 || data == nullptr) return true;
      wire::FrameReader reader(*packet);
      if (!reader.next() || reader.kind() != wire::FrameKind::kData) return true;
      constexpr size_t kOffsetAt = 8;  // in the frame
      std::memcpy(&bytes[size_t(data->frames.data() - bytes.data()) + kOffsetAt], &offset,
                  sizeof offset);
      changed = true;
      return true;
    };
    a.read(1, kLength, 0);
    ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 10 * kSecond));
    EXPECT_TRUE(changed);
    EXPECT_NE(world.operations.back().err, 0);
  }
}

// Anybody can forge a report that a peer's port is closed. It is believed only if it contains our
// question, and only while the peer is silent.
TEST(Network, ForgedReportsOfAClosedPortHaveNoEffect) {
  for (uint64_t seed = 0; seed < sdk::rounds(20); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.weather = {.loss = unsigned(world.some(200)), .jitter = world.some(100'000)};
    Node &a = world.add(0, patient()), &b = world.add(1, patient());
    // Datagrams that were sent to the peer, earlier questions among them.
    std::vector<std::vector<uint8_t>> seen;
    world.spy = [&](size_t from, size_t, std::vector<uint8_t> &bytes) {
      if (from == 0 && seen.size() < 200) seen.push_back(bytes);
      return true;
    };
    const auto forge = [&] {
      std::vector<uint8_t> bytes(world.some(130));
      for (uint8_t &byte : bytes) byte = uint8_t(world.random());
      if (world.chance(300)) {
        bytes.resize(stock::kMaxHeader);
        bytes.resize(stock::encode({.type = stock::Type::kRts,
                                    .marked = true,
                                    .index = world.random() << 32 | 1,
                                    .name = world.address_of(0)},
                                   std::span<uint8_t, stock::kMaxHeader>(bytes)));
      } else if (world.chance(300) && !seen.empty()) {
        // The attacker does not see present packets, so change the question of a copied RTS.
        bytes = seen[world.some(std::min<size_t>(seen.size(), 20))];
        if (bytes[0] == stock::kVersion) bytes[16 + 4] ^= 1;
      }
      a.unreachable(1, bytes);
    };
    for (int i = 0; i < 100; ++i) {
      a.post(3000, true);
      b.post(3000, true);
      world.after(world.some(kSecond), [&] { a.send(1, 3000, {.delivery = true}); });
      world.after(world.some(kSecond), [&] { b.send(0, 3000, {.delivery = true}); });
      for (int k = 0; k < 10; ++k) world.after(world.some(kSecond), forge);
    }
    world.run(kSecond);
    EXPECT_TRUE(world.run_until([&] { return world.all_ended(); }, 20 * kSecond));
    world.check(true);
    if (HasFailure()) return;
  }
}

// An application does not read its completions. Its endpoint must not be given up, and must not
// give up its peer: its own messages arrive, and all others after it has read.
TEST(Network, UnreadCompletionsDoNotEndTheConnection) {
  for (uint64_t seed = 0; seed < sdk::rounds(10); ++seed) {
    SCOPED_TRACE(seed);
    // More messages than can be kept, or fewer.
    const bool many = seed % 2 == 0;
    const int count = many ? 1500 : 150;
    World world(seed);
    world.weather.loss = unsigned(world.some(100));
    Settings settings = patient();
    settings.tx_size = 2000;
    settings.peer_timeout_ns = kSecond;
    Node &a = world.add(0, settings), &b = world.add(1, settings);
    b.reads = false;
    for (int i = 0; i < count; ++i) {
      b.post(3000, true);
      a.send(1, i % 10 == 0 ? 3000 : 900, {.delivery = i % 3 == 0});
    }
    for (int i = 0; i < 100; ++i) {
      a.post(3000, true);
      b.send(0, 3000, {.transmit = true});
      b.read(0, 3000, 7);
      b.write(0, 3000, 7, false);
    }
    const size_t all = world.operations.size();
    world.run(10 * kSecond);
    // Operations of b that need only acknowledgements have ended; not all of a's have.
    size_t ended[2] = {}, sent = 0;
    for (const Operation &o : world.operations) {
      if (o.ended == 0) continue;
      ++ended[o.from];
      if (o.from == 1 && o.kind == TxOp::Kind::kMessage) ++sent;
    }
    EXPECT_EQ(sent, 100U);
    if (!many) {
      EXPECT_EQ(ended[1], 300U);
    }
    EXPECT_LT(ended[0] + ended[1], all);
    EXPECT_LE(b.datagrams_kept(), 256U);
    EXPECT_EQ(a.datagrams_kept(), 0U);
    b.reads = true;
    b.wake();
    EXPECT_TRUE(world.run_until(
        [&] { return world.all_ended() && b.received.size() == size_t(count); }, 10 * kSecond));
    world.check(true);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace weft::rxd
