// SPDX-License-Identifier: BSD-2-Clause
// The protocol among simulated endpoints, thousands of seeds. A seed that fails says how to run it
// alone: SEED=n. WEFT_SEEDS says how many there are.
#include <gtest/gtest.h>

#include <cstdlib>

#include "plugin-api/sdk/test_allocations.h"
#include "plugins/rxd/protocol/simulation.h"
#include "plugins/rxd/protocol/weft.h"
#include "plugins/rxd/wire/stock.h"

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

// A stock process at an address of the world, as far as short messages with node 0 need one.
class StockPeer {
 public:
  static constexpr uint32_t kIndex = 5;

  StockPeer(World &world, size_t at) : world_(world), at_(at) {
    world.spy = [this](size_t from, size_t to, std::vector<uint8_t> &bytes) {
      if (to != at_ || from != 0) return true;
      if (!world_.chance(world_.weather.loss))
        world_.after(world_.weather.delay, [this, copy = bytes] { hear(copy); });
      return false;
    };
  }
  ~StockPeer() { world_.spy = nullptr; }
  StockPeer(const StockPeer &) = delete;

  // Says who it is, and then a message, both until it has an answer.
  void begin() {
    if (their_ == 0) {
      say({.type = stock::Type::kRts, .index = kIndex, .name = address_of(at_)}, {});
    } else if (acknowledged == 0) {
      if (id_ == SIZE_MAX) {
        id_ = world_.operations.size();
        world_.operations.push_back({.from = at_,
                                     .life = world_.lives[at_],
                                     .target_life = world_.lives[0],
                                     .length = 100,
                                     .ended = 1,
                                     .bytes = std::vector<uint8_t>(100)});
        for (size_t i = 0; i < 100; ++i) world_.operations[id_].bytes[i] = pattern(id_, i);
      }
      say({.type = stock::Type::kTagged,
           .peer = their_,
           .sequence = 0,
           .is_inline = true,
           .has_data = true,
           .data = id_,
           .size = 100,
           .packets = 1},
          world_.operations[id_].bytes);
    } else {
      return;
    }
    world_.after(5 * kMillisecond, [this] { begin(); });
  }

  size_t received = 0;  // messages
  uint64_t acknowledged = 0;

 private:
  void say(const stock::Packet &packet, const std::vector<uint8_t> &payload) {
    std::vector<uint8_t> bytes(stock::kMaxHeader);
    bytes.resize(stock::encode(packet, std::span<uint8_t, stock::kMaxHeader>(bytes)));
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    if (world_.chance(world_.weather.loss)) return;
    world_.after(world_.weather.delay, [this, bytes] { world_.arrive(0, bytes); });
  }
  void hear(const std::vector<uint8_t> &bytes) {
    if (bytes.at(0) != stock::kVersion) {
      EXPECT_EQ(bytes.at(1), uint8_t(stock::Type::kRts)) << "stock takes it for its own";
      return;
    }
    const stock::Parsed parsed = stock::parse(bytes);
    ASSERT_EQ(parsed.reject, stock::Reject::kNone);
    const stock::Packet &p = parsed.packet;
    if (p.type == stock::Type::kRts) {
      their_ = uint32_t(p.index);
      return say({.type = stock::Type::kCts, .peer = their_, .index = kIndex, .rts_index = p.index},
                 {});
    }
    if (p.type == stock::Type::kCts) {
      their_ = uint32_t(p.index);
      return;
    }
    EXPECT_EQ(p.peer, kIndex) << "stock crashes if it knows no such peer";
    if (p.type == stock::Type::kAck) {
      acknowledged = p.sequence;
      return;
    }
    if (p.sequence == received) ++received;
    say({.type = stock::Type::kAck, .peer = their_, .sequence = received, .window = 128}, {});
  }

  World &world_;
  const size_t at_;
  uint32_t their_ = 0;
  size_t id_ = SIZE_MAX;
};

Settings patient_with_stock() {
  Settings settings = patient();
  settings.stock_peers = true;
  return settings;
}

// The address of a weft peer belongs to a stock process now, whoever of both finds out first.
TEST(Network, AStockProcessAfterAWeftOne) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.weather.loss = unsigned(world.some(200));
    Node &a = world.add(0, patient_with_stock());
    Node &b = world.add(1, patient_with_stock());
    for (int i = 0; i < 5; ++i) {
      a.post(100, true);
      b.post(100, true);
      a.send(1, 100, {.delivery = true});
      b.send(0, 100, {.delivery = true});
    }
    ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 10 * kSecond));
    world.check(true);
    world.kill(1);
    StockPeer stock(world, 1);
    const size_t before = a.received.size();
    if (seed % 2 == 0) {
      a.post(100, true);
      stock.begin();
      ASSERT_TRUE(world.run_until([&] { return a.received.size() == before + 1; }, 5 * kSecond));
    } else {
      // What was on its way to the old one has failed; the next reaches the new one.
      a.send(1, 100, {.transmit = true});
      ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 5 * kSecond));
      EXPECT_EQ(world.operations.back().err, FI_ECONNRESET);
    }
    const size_t received = stock.received;
    a.send(1, 100, {.transmit = true});
    ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 5 * kSecond));
    EXPECT_EQ(world.operations.back().err, 0);
    EXPECT_EQ(stock.received, received + 1);
  }
}

TEST(Network, AWeftProcessAfterAStockOne) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.weather.loss = unsigned(world.some(200));
    Node &a = world.add(0, patient_with_stock());
    world.add(1, patient_with_stock());  // so that the address has a place in the world
    world.kill(1);
    {
      StockPeer stock(world, 1);
      for (int i = 0; i < 3; ++i) a.send(1, 100, {.transmit = true});
      ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 10 * kSecond));
      EXPECT_EQ(stock.received, 3U);
      world.run(100 * kMillisecond);
    }
    Node &b = world.add(1, patient_with_stock());
    if (seed % 2 == 0) {
      a.post(100, true);
      b.send(0, 100, {.delivery = true});
      ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 5 * kSecond));
      EXPECT_EQ(world.operations.back().err, 0);
    } else {
      a.send(1, 100, {.transmit = true});
      ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 5 * kSecond));
      EXPECT_EQ(world.operations.back().err, FI_ECONNRESET);
    }
    b.post(100, true);
    a.send(1, 100, {.delivery = true});
    ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 5 * kSecond));
    EXPECT_EQ(world.operations.back().err, 0);
    EXPECT_EQ(b.received.size(), 1U);
  }
}

// Who only says that he is the peer, and stock, harms nobody: not even while the peer is silent.
TEST(Network, ForgedWordsOfStock) {
  World world(9);
  world.weather.loss = 50;
  Node &a = world.add(0, patient_with_stock());
  Node &b = world.add(1, patient_with_stock());
  const auto forge = [&](const stock::Packet &packet) {
    std::vector<uint8_t> bytes(stock::kMaxHeader);
    bytes.resize(stock::encode(packet, std::span<uint8_t, stock::kMaxHeader>(bytes)));
    a.arrive(bytes);
  };
  const auto forge_all = [&] {
    forge({.type = stock::Type::kRts, .index = 7, .name = address_of(1)});
    for (uint64_t i = 1; i < 20; ++i) {
      forge({.type = stock::Type::kCts, .peer = 1, .index = 7, .rts_index = i});
      forge({.type = stock::Type::kCts, .peer = 1, .index = 7, .rts_index = world.random()});
    }
  };
  b.post(20'000, true);
  a.send(1, 20'000, {.delivery = true});
  ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 5 * kSecond));
  for (int i = 0; i < 200; ++i) {
    a.post(20'000, true);
    b.post(20'000, true);
    a.send(1, 20'000, {.delivery = true});
    b.send(0, 20'000, {.delivery = true});
    world.after(world.some(kSecond), forge_all);
  }
  world.after(2 * kMillisecond, [&] { b.stops_after = b.received.size(); });
  world.after(3 * kSecond, [&] {
    b.stops_after = SIZE_MAX;
    b.wake();
  });
  world.run(3 * kSecond);
  EXPECT_FALSE(world.all_ended()) << "the peer was not silent";
  EXPECT_TRUE(world.run_until([&] { return world.all_ended(); }, 10 * kSecond));
  world.check(true);
}

// Who does not read what was reported to him is no reason to give him up, and gives nobody up: what
// he sends arrives, and all the rest when he reads.
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

uint64_t seeds() {
  if (const char *text = std::getenv("WEFT_SEEDS")) return std::strtoull(text, nullptr, 10);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 600;
#else
  return 10000;
#endif
}

// Endpoints of two hosts all begin with all of the other at once. When all has calmed down both
// ends of each connection must mean the same one, and nothing may have failed on the way there.
TEST(Network, BothBeginAtOnce) {
  constexpr size_t kEach = 2;
  const uint64_t count = std::max<uint64_t>(seeds() / 2, 1);
  uint64_t longest = 0;
  for (uint64_t seed = 0; seed < count; ++seed) {
    World world(seed + 1'000'000);
    world.weather = {.loss = 50 + unsigned(world.some(251)),
                     .doubled = unsigned(world.some(100)),
                     .delay = 1000 + world.some(100'000),
                     .jitter = world.some(200'000)};
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
    const uint64_t begin = world.now;
    EXPECT_TRUE(exchange(1 + world.some(2 * kMillisecond))) << "somebody waits for ever";
    longest = std::max(longest, world.now - begin);
    // What is late comes, and all speak once more.
    world.run(3 * kSecond);
    EXPECT_TRUE(exchange(kMillisecond));
    for (size_t i = 0; i < kEach; ++i)
      for (size_t j = kEach; j < 2 * kEach; ++j) {
        const Core::Pair a = world.node(i)->core().pair_with(uint32_t(j));
        const Core::Pair b = world.node(j)->core().pair_with(uint32_t(i));
        EXPECT_NE(a.cookie, 0U);
        EXPECT_EQ(a, (Core::Pair{b.theirs, b.ours, b.cookie}));
      }
    world.check(true);
    if (HasFailure()) {
      ADD_FAILURE() << "seed " << seed;
      return;
    }
  }
  std::printf("%llu seeds; the longest took %.1f ms\n", (unsigned long long)count,
              double(longest) / 1e6);
}

// What a seed is: how many endpoints, what weather, what happens.
void run_seed(uint64_t seed) {
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
      break;
    case 5:  // a partition that heals
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
  const size_t largest = kind == 8 || late ? 5000 : (world.chance(150) ? 400'000 : 20'000);
  const size_t count = nodes > 10 ? 2 * nodes : 5 + world.some(25);
  const bool truncates = world.chance(100);
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
    const size_t who = world.some(2);
    world.after(world.some(late ? 3 * kSecond : 6 * kMillisecond), [&world, who, kind, settings] {
      world.kill(who);
      if (kind == 7) return;
      world.after(world.some(kSecond), [&world, who, settings] {
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
  EXPECT_TRUE(world.run_until(over, 200 * kSecond)) << "somebody waits for ever";
  if (testing::Test::HasFailure()) {
    for (size_t id = 0; id < world.operations.size(); ++id) {
      const Operation &o = world.operations[id];
      if (o.ended == 0 && !o.gone)
        std::fprintf(stderr, "operation %zu, %zu bytes, kind %d, from %zu to %zu, has not ended\n",
                     id, o.length, int(o.kind), o.from, o.to);
    }
    for (size_t n = 0; n < nodes; ++n)
      if (Node *at = world.node(n))
        std::fprintf(stderr, "node %zu: %zu receives posted, %zu broken, %zu messages wait\n", n,
                     at->posted(), at->broken, at->receiver().unexpected());
  }
  if (kind == 6) {
    // What was started when both lived again must have arrived.
    world.run_until([] { return false; }, 3 * kSecond);
  }
  world.check(all_well);
}

TEST(Network, Seeds) {
  if (const char *text = std::getenv("SEED")) return run_seed(std::strtoull(text, nullptr, 10));
  for (uint64_t seed = 0; seed < seeds(); ++seed) {
    run_seed(seed);
    if (HasFailure()) {
      std::fprintf(stderr, "seed %llu fails: SEED=%llu %s --gtest_filter=Network.Seeds\n",
                   (unsigned long long)seed, (unsigned long long)seed,
                   testing::internal::GetArgvs().empty()
                       ? "rxd_protocol_network_test"
                       : testing::internal::GetArgvs()[0].c_str());
      return;
    }
  }
}

}  // namespace
}  // namespace weft::rxd
