// SPDX-License-Identifier: BSD-2-Clause
// Both dialects among simulated endpoints: finding out a peer's dialect, a process of the other
// kind that takes over an address, and strangers that use stock's dialect, which has no secrets.
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "plugin-api/sdk/testing/test_rounds.h"
#include "plugin-api/sdk/testing/test_time.h"
#include "plugins/rxd/protocol/simulation.h"
#include "plugins/rxd/wire/stock.h"

namespace weft::rxd {
namespace {

using sdk::kMillisecond, sdk::kSecond;

std::vector<uint8_t> bytes_of(const stock::Packet &packet) {
  std::vector<uint8_t> bytes(stock::kMaxHeader);
  bytes.resize(stock::encode(packet, std::span<uint8_t, stock::kMaxHeader>(bytes)));
  return bytes;
}

// A stock process at an address of the world; it can exchange short messages with node 0.
class StockPeer {
 public:
  static constexpr uint32_t kIndex = 5;

  // `from`: the address that its datagrams come from.
  StockPeer(World &world, size_t at) : StockPeer(world, at, at) {}
  StockPeer(World &world, size_t at, size_t from) : world_(world), at_(at), from_(from) {
    world.spy = [this](size_t from, size_t to, std::vector<uint8_t> &bytes) {
      if (to != at_ || from != 0) return true;
      if (!world_.chance(world_.weather.loss))
        after(world_.weather.delay, [this, copy = bytes] { hear(copy); });
      return false;
    };
  }
  ~StockPeer() { world_.spy = nullptr; }
  StockPeer(const StockPeer &) = delete;

  // Sends an RTS, then a message, and repeats both until they are answered.
  void begin() {
    if (their_ == 0) {
      say({.type = stock::Type::kRts, .index = kIndex, .name = world_.address_of(at_)}, {});
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
    after(5 * kMillisecond, [this] { begin(); });
  }

  size_t received = 0;  // messages
  uint64_t acknowledged = 0;

 private:
  void say(const stock::Packet &packet, const std::vector<uint8_t> &payload) {
    std::vector<uint8_t> bytes = bytes_of(packet);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    if (world_.chance(world_.weather.loss)) return;
    after(world_.weather.delay, [this, bytes] { world_.arrive(from_, 0, bytes); });
  }
  // Calls `what` later, unless the process has ended by then.
  void after(uint64_t ns, std::function<void()> what) {
    world_.after(ns, [alive = std::weak_ptr<bool>(alive_), what = std::move(what)] {
      if (!alive.expired()) what();
    });
  }
  void hear(const std::vector<uint8_t> &bytes) {
    if (bytes.at(0) != stock::kVersion) {
      EXPECT_EQ(bytes.at(1), uint8_t(stock::Type::kRts))
          << "stock would take the packet for its own";
      return;
    }
    const stock::Parsed parsed = stock::parse(bytes, world_.format);
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
    EXPECT_EQ(p.peer, kIndex) << "stock crashes on an index that it does not know";
    if (p.type == stock::Type::kAck) {
      acknowledged = p.sequence;
      return;
    }
    if (p.sequence == received) ++received;
    say({.type = stock::Type::kAck, .peer = their_, .sequence = received, .window = 128}, {});
  }

  World &world_;
  const size_t at_, from_;
  uint32_t their_ = 0;
  size_t id_ = SIZE_MAX;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>();
};

Settings patient_with_stock() {
  Settings settings;
  settings.checksum = Checksum::kOn;
  settings.peer_timeout_ns = 300 * kSecond;
  return settings;
}

// Node 0, and a stock process at the address of 1.
struct WithStock {
  // `from`: the address that its datagrams come from.
  explicit WithStock(uint64_t seed, size_t from = 1)
      : world(seed), a(begin(world)), stock(world, 1, from) {}
  static Node &begin(World &world) {
    world.weather.loss = unsigned(world.some(100));
    Node &a = world.add(0, patient_with_stock());
    world.add(1, patient_with_stock());  // so that the address has a place in the world
    world.kill(1);
    return a;
  }

  World world;
  Node &a;
  StockPeer stock;
};

// A stock process takes over the address of a weft peer; either side finds out first.
TEST(Dialects, AStockProcessTakesOverAWeftAddress) {
  for (uint64_t seed = 0; seed < sdk::rounds(100); ++seed) {
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
      // Messages in flight to the old process fail; the next one reaches the new process.
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

TEST(Dialects, AWeftProcessTakesOverAStockAddress) {
  for (uint64_t seed = 0; seed < sdk::rounds(100); ++seed) {
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

// Forged packets in stock's dialect must have no effect, not even while the peer is silent.
TEST(Dialects, ForgedStockPacketsHaveNoEffect) {
  World world(9);
  world.weather.loss = 50;
  Node &a = world.add(0, patient_with_stock());
  Node &b = world.add(1, patient_with_stock());
  const auto forge = [&](const stock::Packet &packet) { a.arrive(1, bytes_of(packet)); };
  const auto forge_all = [&] {
    forge({.type = stock::Type::kRts, .index = 7, .name = world.address_of(1)});
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

// Conversation numbers are small and consecutive, so only the source address tells a stock peer
// from a stranger.
TEST(Dialects, PacketsOfStrangersWithTheRightNumberHaveNoEffect) {
  for (uint64_t seed = 0; seed < sdk::rounds(50); ++seed) {
    SCOPED_TRACE(seed);
    WithStock with(seed);
    auto &[world, a, stock] = with;
    const auto lie = [&] {
      for (const stock::Type type : {stock::Type::kTagged, stock::Type::kAck, stock::Type::kAnswer,
                                     stock::Type::kData, stock::Type::kRts, stock::Type::kCts}) {
        stock::Packet p{.type = type, .peer = 1, .sequence = world.some(8)};
        p.is_inline = true;
        p.size = p.packets = 0;
        p.id = p.index = uint32_t(1 + world.some(3));
        p.rts_index = 1 + world.some(3);
        p.name = world.address_of(1);
        p.window = uint16_t(world.some(2) * 128);
        p.packets = 1;
        world.arrive(50, 0, bytes_of(p));  // from an unknown port
      }
    };
    if (seed % 2 == 0) {  // the peer begins, and we never ask
      a.post(100, true);
      stock.begin();
      ASSERT_TRUE(world.run_until([&] { return a.received.size() == 1; }, 5 * kSecond));
      for (uint32_t i = 1; i < 4; ++i)
        world.arrive(50, 0,
                     bytes_of({.type = stock::Type::kCts, .peer = 1, .index = 7, .rts_index = i}));
    } else {
      a.send(1, 100, {.transmit = true});
    }
    ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, kSecond));
    const size_t sent = stock.received;
    for (size_t i = 0; i < 300; ++i) world.after(world.some(200 * kMillisecond), lie);
    for (size_t i = 0; i < 20; ++i)
      world.after(world.some(200 * kMillisecond), [&] { a.send(1, 100, {.transmit = true}); });
    world.run(200 * kMillisecond);
    ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 10 * kSecond));
    for (const Operation &o : world.operations) EXPECT_EQ(o.err, 0);
    EXPECT_EQ(stock.received, sent + 20);
    if (seed % 2 == 0) continue;
    a.post(100, true);
    stock.begin();
    ASSERT_TRUE(world.run_until([&] { return a.received.size() == 1; }, 5 * kSecond));
    if (HasFailure()) return;
  }
}

// Reading the source of datagrams costs time, so it is off among weft peers.
TEST(Dialects, SourcesAreReadOnlyWhileAPeerMayBeStock) {
  for (uint64_t seed = 0; seed < sdk::rounds(50); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.weather.loss = unsigned(world.some(100));
    Settings settings = patient_with_stock();
    settings.peer_timeout_ns = 3 * kSecond;
    Node &a = world.add(0, settings);
    EXPECT_FALSE(a.names());
    Node &b = world.add(1, patient_with_stock());
    a.post(100, true);
    b.post(100, true);
    a.send(1, 100, {.delivery = true});
    EXPECT_TRUE(a.names()) << "the peer may be a stock endpoint";
    EXPECT_FALSE(b.names());
    ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 5 * kSecond));
    b.send(0, 100, {.delivery = true});
    ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 5 * kSecond));
    EXPECT_FALSE(a.names());
    EXPECT_FALSE(b.names());
    // A peer without a process.
    world.add(2, patient_with_stock());
    world.kill(2);
    a.send(2, 100, {.transmit = true});
    EXPECT_TRUE(a.names());
    ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 60 * kSecond));
    EXPECT_NE(world.operations.back().err, 0);
    EXPECT_FALSE(a.names());
    // A stock process takes over the weft peer's address, and then a weft process again.
    world.kill(1);
    {
      StockPeer stock(world, 1);
      a.post(100, true);
      stock.begin();
      ASSERT_TRUE(world.run_until([&] { return a.received.size() == 2; }, 5 * kSecond));
      EXPECT_TRUE(a.names());
    }
    Node &c = world.add(1, patient_with_stock());
    a.post(100, true);
    c.send(0, 100, {.delivery = true});
    ASSERT_TRUE(world.run_until([&] { return a.received.size() == 3; }, 5 * kSecond));
    ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 5 * kSecond));
    world.run(kSecond);
    EXPECT_FALSE(a.names());
    EXPECT_FALSE(c.names());
    if (HasFailure()) return;
  }
}

// A host with several addresses may answer from another address than the one that reaches it. Only
// the peer can answer our question, so the answer identifies it.
TEST(Dialects, AStockPeerAnswersFromAnotherAddress) {
  for (uint64_t seed = 0; seed < sdk::rounds(50); ++seed) {
    SCOPED_TRACE(seed);
    WithStock with(seed, 60);
    auto &[world, a, stock] = with;
    const auto exchange = [&] {
      a.post(100, true);
      stock.begin();
      ASSERT_TRUE(world.run_until([&] { return a.received.size() == 1; }, 5 * kSecond));
    };
    if (seed % 2 == 0) exchange();
    for (int i = 0; i < 5; ++i) a.send(1, 100, {.transmit = true});
    ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 5 * kSecond));
    for (const Operation &o : world.operations) EXPECT_EQ(o.err, 0);
    EXPECT_EQ(stock.received, 5U);
    if (seed % 2 != 0) exchange();
    if (HasFailure()) return;
  }
}

// A stranger sends an RTS with the name of another peer before that peer does. Neither its dialect
// nor its index may count until the process at that address has confirmed them.
void say_the_name_of_1(World &world) {
  world.arrive(50, 0,
               bytes_of({.type = stock::Type::kRts, .index = 7, .name = world.address_of(1)}));
  world.run(world.some(300 * kMillisecond));
}
void expect_sent(World &world, Node &a) {
  a.send(1, 100, {.transmit = true});
  ASSERT_TRUE(world.run_until([&] { return world.all_ended(); }, 5 * kSecond));
  EXPECT_EQ(world.operations.back().err, 0);
}

TEST(Dialects, AStrangerSendsAnRtsWithTheNameOfAWeftPeer) {
  for (uint64_t seed = 0; seed < sdk::rounds(50); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.weather.loss = unsigned(world.some(100));
    Node &a = world.add(0, patient_with_stock());
    Node &b = world.add(1, patient_with_stock());
    say_the_name_of_1(world);
    b.post(100, true);
    expect_sent(world, a);
    ASSERT_TRUE(world.run_until([&] { return b.received.size() == 1; }, 5 * kSecond));
    if (HasFailure()) return;
  }
}

// A stock peer crashes on a packet with an index that it does not know.
TEST(Dialects, AStrangerSendsAnRtsWithTheNameOfAStockPeer) {
  for (uint64_t seed = 0; seed < sdk::rounds(50); ++seed) {
    SCOPED_TRACE(seed);
    WithStock with(seed);
    auto &[world, a, stock] = with;
    say_the_name_of_1(world);
    expect_sent(world, a);
    EXPECT_EQ(stock.received, 1U);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace weft::rxd
