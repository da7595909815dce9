// SPDX-License-Identifier: BSD-2-Clause
// The protocol among simulated endpoints, thousands of seeds (plugin-api/sdk/test_seeds.h). A seed
// that fails says what it simulates, and how to run it alone: SEED=n.
#include <gtest/gtest.h>

#include <cstdlib>

#include "plugin-api/sdk/test_allocations.h"
#include "plugin-api/sdk/test_seeds.h"
#include "plugins/rxd/protocol/simulation.h"
#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kSecond = 1000 * kMillisecond;

Settings patient() {
  Settings settings;
  settings.stock_peers = false;
  settings.checksum = Checksum::kOn;
  settings.peer_timeout_ns = 300 * kSecond;
  return settings;
}

TEST(Network, OneMessage) {
  World world(1);
  world.eagain = 0;
  Node &a = world.add(0, patient()), &b = world.add(1, patient());
  b.post(100, true);
  a.send(1, 100, {});
  EXPECT_TRUE(
      world.run_until([&] { return world.all_ended() && b.received.size() == 1; }, kSecond));
  world.check(true);
}

// An application may stop to make progress once it has what it waits for: what others wait for
// has left by then.
TEST(Network, WhoHasGotItMayGoAway) {
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
TEST(Network, ManyUnexpected) {
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

// One peer fills all the room for what nobody wants; another, whose messages are wanted, goes on.
TEST(Network, WhoFillsTheRoomStopsNobodyElse) {
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

// Loss costs what is lost, not seconds of silence: long messages, and a storm of short ones both
// ways.
TEST(Network, LossIsNoStall) {
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

// Both ask so much of each other that each could wait for the other's answers.
TEST(Network, ManyAnswers) {
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

TEST(Network, ToItself) {
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

// More come than there may be, in bad weather: who has to go may have something on its way just
// then, and the word of it may be lost. Whatever ends well has arrived, once, and all ends.
TEST(Network, VisitorsInBadWeather) {
  constexpr size_t kLimit = 6, kVisitors = 60;
  for (uint64_t seed = 0; seed < 15; ++seed) {
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
    // What is cut off in the middle takes a receive with it.
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

// A process that has ended: the network says that nobody has its port. Who was talking with it
// knows at once, and does not wait when it closes.
TEST(Network, WhoseProcessHasEndedIsGoneAtOnce) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
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
    EXPECT_LE(world.now - begin, kMillisecond) << "round trips, and no time-out";
    EXPECT_LE(world.datagrams - before, 4U);
    EXPECT_EQ(a.core().peers(), 0U);
    // A process that is yet to begin is waited for, unless we go.
    a.send(1, 100, {.transmit = true});
    world.run(3 * kSecond);
    EXPECT_EQ(world.all_ended(), seed % 2 != 0);
    a.core().part();
    a.settle();
    ASSERT_TRUE(world.run_until([&] { return world.all_ended() && a.core().parted(); }, kSecond));
  }
}

// Anybody can say that a peer's port is not there. Only who saw our question is believed, and only
// while the peer says nothing.
TEST(Network, ForgedWordsOfTheNetwork) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.weather = {.loss = unsigned(world.some(200)), .jitter = world.some(100'000)};
    Node &a = world.add(0, patient()), &b = world.add(1, patient());
    // What an earlier question looked like, and all else that was sent to the peer.
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
                                    .name = address_of(0)},
                                   std::span<uint8_t, stock::kMaxHeader>(bytes)));
      } else if (world.chance(300) && !seen.empty()) {
        // Blind to what is on its way now: a copy of the present question comes from the path.
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

// Who does not read what was reported to it is no reason to give it up, and gives nobody up: what
// it sends arrives, and all the rest when it reads.
TEST(Network, WhoDoesNotReadHisCompletions) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    // More than can be kept, or not.
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
    // Those of b have ended, as far as only acknowledgements are missing; of a not all.
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

constexpr sdk::Seeds kSeeds{.usual = 10'000, .sanitized = 600};

std::string text_of(const Weather &w) {
  char text[200];
  std::snprintf(text, sizeof text,
                "of 1000 datagrams %u are lost, %u doubled, %u damaged; delay %.1f us, jitter %.1f",
                w.loss, w.doubled, w.damaged, double(w.delay) / 1e3, double(w.jitter) / 1e3);
  return text;
}

// Endpoints of two hosts all begin with all of the other at once. When all has calmed down both
// ends of each connection must mean the same one, and nothing may have failed on the way there.
void all_begin(uint64_t seed, sdk::Scenario &scenario) {
  constexpr size_t kEach = 2;
  World world(seed);
  world.weather = {.loss = 50 + unsigned(world.some(251)),
                   .doubled = unsigned(world.some(100)),
                   .delay = 1000 + world.some(100'000),
                   .jitter = world.some(200'000)};
  scenario.add("%s", text_of(world.weather).c_str());
  for (size_t i = 0; i < 2 * kEach; ++i) world.add(i, patient()).introduces = world.chance(500);
  const auto exchange = [&](uint64_t spread) {
    for (size_t i = 0; i < kEach; ++i)
      for (size_t j = kEach; j < 2 * kEach; ++j)
        for (const auto &[from, to] : {std::pair{i, j}, std::pair{j, i}}) {
          world.node(to)->post(100, true);
          world.after(world.some(spread), [&world, from = from, to = to] {
            world.node(from)->send(to, 100, {.delivery = true});
          });
        }
    world.run(spread);
    return world.run_until([&] { return world.all_ended(); }, 60 * kSecond);
  };
  EXPECT_TRUE(exchange(1 + world.some(2 * kMillisecond))) << "somebody waits for ever";
  // What is late comes, and all speak once more.
  world.run(3 * kSecond);
  EXPECT_TRUE(exchange(kMillisecond)) << "somebody waits for ever, the second time";
  for (size_t i = 0; i < kEach; ++i)
    for (size_t j = kEach; j < 2 * kEach; ++j) {
      const Core::Pair a = world.node(i)->core().pair_with(uint32_t(j));
      const Core::Pair b = world.node(j)->core().pair_with(uint32_t(i));
      EXPECT_NE(a.cookie, 0U);
      EXPECT_EQ(a, (Core::Pair{b.theirs, b.ours, b.cookie}));
    }
  world.check(true);
}

TEST(Network, BothBeginAtOnce) {
  sdk::run_seeds("Network.BothBeginAtOnce", {.usual = 5000, .sanitized = 300, .first = 1'000'000},
                 all_begin);
}

// What a seed is: how many endpoints, what weather, what happens.
void run_seed(uint64_t seed, sdk::Scenario &scenario) {
  World world(seed);
  const uint64_t kind = seed % 10;
  size_t nodes = 2;
  if (kind == 8) nodes = 3 + world.some(4);
  if (seed % 500 == 8) nodes = 20 + world.some(81);
  Settings settings = patient();
  world.weather.delay = 1000 + world.some(200'000);
  world.eagain = unsigned(world.some(100));
  if (world.chance(200)) world.low = unsigned(world.some(500));
  if (world.chance(100)) world.full = unsigned(world.some(400));
  if (world.chance(300)) world.datagram = world.chance(500) ? 65000 : 9000;
  if (world.chance(100)) world.window = 8192;
  if (world.chance(150)) settings.unexpected_limit = 40'000;
  if (kind == 9) settings.auth_key = "a key of both";
  bool all_well = true;
  switch (kind) {
    case 0:
      break;
    case 1:
      world.weather.loss = unsigned(world.some(301));
      break;
    case 2:
      world.weather.doubled = unsigned(world.some(300));
      world.weather.jitter = world.some(1'000'000);
      break;
    case 3:
      world.weather.damaged = unsigned(world.some(200));
      world.weather.loss = unsigned(world.some(50));
      break;
    case 4:
      world.ways[{0, 1}] = {.loss = unsigned(world.some(200)), .delay = 1000};
      world.ways[{1, 0}] = {
          .loss = unsigned(world.some(200)), .delay = 2'000'000, .jitter = 500'000};
      if (world.chance(300)) world.ways[{0, 1}].path_mtu = 1472 + world.some(20000);
      scenario.add("0 to 1: %s; datagrams of more than %zu bytes are lost",
                   text_of(world.ways[{0, 1}]).c_str(), world.ways[{0, 1}].path_mtu);
      scenario.add("1 to 0: %s", text_of(world.ways[{1, 0}]).c_str());
      break;
    case 5:  // a partition that heals
      scenario.add("0 and 1 are parted for a while, one way or both");
      world.after(world.some(3 * kMillisecond), [&world] {
        world.cut.insert({0, 1});
        if (world.chance(500)) world.cut.insert({1, 0});
        world.after(world.some(3 * kSecond), [&world] { world.cut.clear(); });
      });
      break;
    default:
      world.weather = {.loss = unsigned(world.some(150)),
                       .doubled = unsigned(world.some(100)),
                       .damaged = unsigned(world.some(50)),
                       .delay = 1000 + world.some(100'000),
                       .jitter = world.some(200'000)};
      break;
  }
  if (kind == 7) settings.peer_timeout_ns = 2 * kSecond;
  // Packets that come after their connection has ended.
  const bool late = kind >= 5 && kind <= 6 && world.chance(400);
  if (late) {
    world.weather.doubled = 300;
    world.weather.jitter = world.some(2 * kSecond);
  }
  // An end that gives up while the other does not.
  const bool impatient = kind == 5 && world.chance(400);
  if (impatient) {
    settings.peer_timeout_ns = 300 * kMillisecond + world.some(kSecond);
    all_well = false;
  }
  if (kind == 6) settings.peer_timeout_ns = 20 * kSecond;
  for (size_t i = 0; i < nodes; ++i) world.add(i, settings).introduces = world.chance(500);
  scenario.add("%zu endpoints; %s", nodes, text_of(world.weather).c_str());
  scenario.add(
      "%u of 1000 sends find no room, buffers are low %u of 1000 times, nobody has read "
      "what was reported %u of 1000 times",
      world.eagain, world.low, world.full);
  scenario.add("datagrams of %zu bytes, a socket of %zu, %llu bytes for what is unexpected%s",
               world.datagram, world.window, (unsigned long long)settings.unexpected_limit,
               settings.auth_key.empty() ? "" : ", a key");
  scenario.add("peers are given up after %.1f s", double(settings.peer_timeout_ns) / 1e9);
  const size_t largest = kind == 8 || late ? 5000 : (world.chance(150) ? 400'000 : 20'000);
  const size_t count = nodes > 10 ? 2 * nodes : 5 + world.some(25);
  const bool truncates = world.chance(100);
  scenario.add("%zu operations of up to %zu bytes%s", count, largest,
               truncates ? ", some longer than their receives" : "");
  // Receives and operations at random times.
  std::vector<size_t> expected(nodes * 2);
  for (size_t i = 0; i < count; ++i) {
    const size_t from = world.some(nodes), to = world.chance(50) ? from : world.some(nodes);
    const uint64_t spread = late || impatient ? 4 * kSecond : 5 * kMillisecond;
    const uint64_t when = world.some(world.chance(300) ? 1000 : spread);
    const uint64_t what = world.some(10);
    const size_t length =
        world.chance(600) ? world.some(200) : world.some(world.chance(500) ? 3000 : largest);
    const Node::Form form{.tagged = world.chance(700),
                          .delivery = world.chance(200),
                          .transmit = world.chance(300),
                          .fence = world.chance(50),
                          .inject = world.chance(200),
                          .more = world.chance(200)};
    const size_t at = world.some(1000);
    if (what < 7 && nodes <= 100) ++expected[2 * to + (form.tagged ? 1 : 0)];
    world.after(when, [&world, from, to, what, length, form, at] {
      Node *n = world.node(from);
      if (n == nullptr) return;
      if (what < 7) {
        n->send(to, length, form);
      } else if (what == 7) {
        n->write(to, length, at, form.tagged);
      } else if (what == 8) {
        n->read(to, length, at);
      } else {
        n->add(to);
      }
    });
  }
  for (size_t to = 0; to < nodes; ++to)
    for (size_t tagged = 0; tagged < 2; ++tagged)
      for (size_t i = 0; i < expected[2 * to + tagged]; ++i) {
        const size_t room =
            truncates && world.chance(300) ? world.some(largest) : std::max(largest, size_t{3000});
        world.after(world.some(10 * kMillisecond), [&world, to, tagged, room] {
          if (Node *n = world.node(to)) n->post(room, tagged != 0);
        });
      }
  if (impatient) {
    // Receives that end in the middle of a message are missing for others.
    for (size_t n = 0; n < nodes; ++n)
      for (int i = 0; i < 30; ++i)
        world.after(3 * kSecond, [&world, n, i] { world.node(n)->post(400'000, i % 2 == 0); });
  }
  if (kind == 6 || kind == 7) {
    all_well = false;
    if (world.chance(500)) {
      world.told = 800;
      scenario.add("the network tells of datagrams to nobody");
    }
    const size_t who = world.some(2);
    const uint64_t when = world.some(late ? 3 * kSecond : 6 * kMillisecond);
    scenario.add("%zu is killed after %.3f ms", who, double(when) / 1e6);
    world.after(when, [&world, &scenario, who, kind, settings] {
      world.kill(who);
      if (kind == 7) return;
      const uint64_t away = world.some(kSecond);
      scenario.add("and begins again %.3f ms later", double(away) / 1e6);
      world.after(away, [&world, who, settings] {
        Node &n = world.add(who, settings);
        for (int i = 0; i < 40; ++i) {
          n.post(400'000, true);
          n.post(400'000, false);
        }
        // It goes on: others reach it, and it others.
        for (size_t i = 0; i < 5; ++i) n.send(1 - who, world.some(10'000), {});
        if (Node *other = world.node(1 - who))
          for (size_t i = 0; i < 5; ++i) other->send(who, world.some(10'000), {});
      });
    });
    // The other one must not run out of receives.
    for (int i = 0; i < 20; ++i)
      world.after(20 * kMillisecond, [&world, who] {
        if (Node *n = world.node(1 - who)) {
          n->post(400'000, true);
          n->post(400'000, false);
        }
      });
  }
  world.run(late || impatient ? 4 * kSecond : 12 * kMillisecond);
  const auto over = [&] {
    if (!world.all_ended()) return false;
    if (!all_well) return true;
    for (const Operation &o : world.operations)
      if (o.kind == TxOp::Kind::kMessage && o.arrived == 0) return false;
    return true;
  };
  if (!world.run_until(over, 200 * kSecond)) {
    ADD_FAILURE() << "somebody waits for ever";
    for (size_t n = 0; n < nodes; ++n)
      if (Node *at = world.node(n))
        ADD_FAILURE() << "node " << n << ": " << at->posted() << " receives posted, " << at->broken
                      << " broken, " << at->receiver().unexpected() << " messages wait";
  }
  for (size_t id = 0; id < world.operations.size(); ++id) {
    const Operation &o = world.operations[id];
    if (o.ended != 0 || o.gone) continue;
    ADD_FAILURE() << "operation " << id << ", " << o.length << " bytes, kind " << int(o.kind)
                  << ", from " << o.from << " to " << o.to << ", has not ended";
  }
  if (kind == 6) {
    // What was started when both lived again must have arrived.
    world.run_until([] { return false; }, 3 * kSecond);
  }
  world.check(all_well);
}

TEST(Network, Seeds) {
  sdk::run_seeds("Network.Seeds", kSeeds, run_seed);
}

}  // namespace
}  // namespace weft::rxd
