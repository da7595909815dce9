// SPDX-License-Identifier: BSD-2-Clause
// What the counters of rxd say of simulated networks.
#include <gtest/gtest.h>

#include "plugin-api/sdk/testing/test_time.h"
#include "plugins/rxd/protocol/simulation.h"

namespace weft::rxd {
namespace {

using sdk::kMillisecond, sdk::kSecond;

// Two endpoints, of which the first sends messages to the second.
struct Two {
  explicit Two(uint64_t seed, const Settings &settings = patient())
      : world(seed), a(&world.add(0, settings)), b(&world.add(1, settings)) {
    world.eagain = 0;
  }
  // Sends `count` messages to receives that are posted.
  void exchange(size_t count, size_t length) {
    const size_t before = b->received.size();
    for (size_t i = 0; i < count; ++i) {
      b->post(length, true);
      ASSERT_TRUE(a->send(1, length, {}));
    }
    EXPECT_TRUE(world.run_until(
        [&] { return world.all_ended() && b->received.size() == before + count; }, 60 * kSecond));
  }
  const Counters &sender() const { return a->core().counters(); }
  const Counters &receiver() const { return b->core().counters(); }

  World world;
  Node *a, *b;
};

TEST(Counters, OfAGoodNetworkTellOfNoTrouble) {
  Two two(1);
  two.exchange(20, 1000);
  two.world.run(kSecond);
  for (const Counters *counters : {&two.sender(), &two.receiver()}) {
    EXPECT_EQ(counters->connected.value(), 1u);
    EXPECT_GT(counters->packets_sent.value(), 0u);
    EXPECT_GT(counters->packets_received.value(), 0u);
    for (const sdk::Counter *none :
         {&counters->repeated,       &counters->duplicates,   &counters->dropped,
          &counters->rejected,       &counters->strangers,    &counters->timeouts,
          &counters->collapses,      &counters->cut_for_loss, &counters->ended,
          &counters->closed_by_peer, &counters->timed_out,    &counters->violations,
          &counters->dismissed,      &counters->unanswered,   &counters->refused,
          &counters->limited,        &counters->doubts,       &counters->saved,
          &counters->tx_full,        &counters->failed,       &counters->stock_peers,
          &counters->provider_full})
      EXPECT_EQ(none->value(), 0u);
  }
  EXPECT_EQ(two.sender().packets_sent.value(), two.receiver().packets_received.value());
}

TEST(Counters, OfABadNetwork) {
  Two two(2);
  two.exchange(1, 10);  // the handshake, before it gets bad
  two.world.weather = {.loss = 100, .doubled = 100, .damaged = 50, .jitter = 300'000};
  two.exchange(400, 4000);
  EXPECT_GT(two.sender().repeated.value(), 0u);
  EXPECT_GT(two.receiver().duplicates.value(), 0u);
  EXPECT_GT(two.receiver().early.value(), 0u);
  EXPECT_GT(two.receiver().rejected.value(), 0u) << "the checksum finds damage";
  EXPECT_GT(two.sender().cut_for_loss.value(), 0u);
  EXPECT_EQ(two.sender().ended.value(), 0u);
  EXPECT_EQ(two.sender().failed.value(), 0u);
}

// A path with a short queue, which delays before it loses.
TEST(Counters, OfDelay) {
  Two two(3);
  uint64_t busy_until = 0;
  two.exchange(1, 10);
  // 100 MB/s, shared by what is under way.
  two.world.spy = [&](size_t from, size_t, std::vector<uint8_t> &bytes) {
    if (from != 0) return true;
    busy_until = std::max(busy_until, two.world.now) + bytes.size() * 10;
    two.world.weather.delay = 20'000 + busy_until - two.world.now;
    return true;
  };
  two.exchange(40, 1 << 20);
  EXPECT_GT(two.sender().cut_for_delay.value(), 0u);
}

TEST(Counters, OfAPathThatIsCut) {
  Settings settings = patient();
  settings.peer_timeout_ns = 2 * kSecond;
  Two two(4, settings);
  two.exchange(1, 10);
  two.world.cut = {{0, 1}, {1, 0}};
  two.a->send(1, 10, {.transmit = true});
  EXPECT_TRUE(two.world.run_until([&] { return two.world.all_ended(); }, 10 * kSecond));
  EXPECT_GT(two.sender().timeouts.value(), 2u);
  EXPECT_GE(two.sender().repeated.value(), 2u);
  EXPECT_EQ(two.sender().doubts.value(), 1u);
  EXPECT_EQ(two.sender().timed_out.value(), 1u);
  EXPECT_EQ(two.sender().ended.value(), 1u);
  EXPECT_EQ(two.sender().failed.value(), 1u);
  EXPECT_EQ(two.sender().unanswered.value(), 0u);
  two.a->send(1, 10, {});  // now the handshake has no answer either
  EXPECT_TRUE(two.world.run_until([&] { return two.world.all_ended(); }, 10 * kSecond));
  EXPECT_EQ(two.sender().unanswered.value(), 1u);
  EXPECT_EQ(two.sender().failed.value(), 2u);
}

// Half of what is in flight is lost at once.
TEST(Counters, OfACollapse) {
  Two two(5);
  two.exchange(1, 10);
  two.exchange(20, 100'000);
  two.b->post(1 << 20, true);
  two.a->send(1, 1 << 20, {});
  two.world.run(kMillisecond / 10);
  two.world.cut = {{0, 1}, {1, 0}};
  two.world.run(300 * kMillisecond);
  two.world.cut = {};
  EXPECT_TRUE(two.world.run_until([&] { return two.world.all_ended(); }, 10 * kSecond));
  EXPECT_GT(two.sender().timeouts.value(), 0u);
  EXPECT_GT(two.sender().collapses.value(), 0u);
}

TEST(Counters, OfMessages) {
  Two two(6);
  for (const size_t length : {10, 100, 200'000}) two.a->send(1, length, {});
  two.world.run(kSecond);
  EXPECT_EQ(two.sender().announced.value(), 1u);
  EXPECT_EQ(two.receiver().saved.value(), 3u);
  EXPECT_GE(two.receiver().saved_bytes.value(), 110u);
  EXPECT_LT(two.receiver().saved_bytes.value(), 200'000u) << "the rest is fetched by its receive";
  const uint64_t bytes = two.receiver().saved_bytes.value();
  for (int i = 0; i < 3; ++i) two.b->post(200'000, true);
  EXPECT_TRUE(two.world.run_until(
      [&] { return two.world.all_ended() && two.b->received.size() == 3; }, kSecond));
  EXPECT_EQ(two.receiver().saved_bytes.value(), bytes);
  two.world.check(true);
}

TEST(Counters, OfWaitingForTheReceiver) {
  Settings settings = patient();
  settings.tx_size = 400;
  Two two(7, settings);
  two.world.window = 1 << 16;
  for (size_t i = 0; i < settings.tx_size; ++i) two.a->send(1, 100, {.delivery = true});
  EXPECT_EQ(two.sender().tx_full.value(), 0u);
  EXPECT_EQ(two.a->core().take(), nullptr);
  EXPECT_EQ(two.sender().tx_full.value(), 1u);
  two.world.run(kSecond);
  EXPECT_GT(two.sender().waited_for_credit.value(), 0u);
  for (size_t i = 0; i < settings.tx_size; ++i) two.b->post(100, true);
  EXPECT_TRUE(two.world.run_until([&] { return two.world.all_ended(); }, 60 * kSecond));
  EXPECT_EQ(two.sender().provider_full.value(), 0u);
  two.world.eagain = 500;
  two.exchange(50, 1000);
  EXPECT_GT(two.sender().provider_full.value(), 0u);
}

TEST(Counters, OfThePeersEnd) {
  Two two(8);
  two.exchange(1, 10);
  two.b->core().part();
  EXPECT_TRUE(two.world.run_until([&] { return two.b->core().parted(); }, kSecond));
  EXPECT_EQ(two.sender().closed_by_peer.value(), 1u);
  EXPECT_EQ(two.sender().ended.value(), 1u);
  EXPECT_EQ(two.sender().failed.value(), 0u);
  // Without a word: the next process at that address does not know the connection.
  two.world.kill(1);
  two.b = &two.world.add(1, patient());
  two.exchange(1, 10);
  two.world.kill(1);
  two.b = &two.world.add(1, patient());
  two.a->send(1, 10, {});
  two.b->post(10, true);
  two.world.run(5 * kSecond);
  EXPECT_EQ(two.sender().ended.value(), 2u);
  EXPECT_EQ(two.sender().connected.value(), 2u) << "nothing waits for another one";
  EXPECT_GT(two.receiver().strangers.value(), 0u) << "packets of the old connection";
}

TEST(Counters, OfPacketsOutOfPlace) {
  Two two(9);
  two.exchange(1, 10);
  // Four datagrams of the past come once more; the last of them with another length.
  std::vector<std::vector<uint8_t>> heard;
  two.world.spy = [&](size_t from, size_t, std::vector<uint8_t> &bytes) {
    if (from == 0) heard.push_back(bytes);
    return true;
  };
  two.exchange(4, 1000);
  two.world.spy = nullptr;
  ASSERT_GE(heard.size(), 4u);
  const uint64_t duplicates = two.receiver().duplicates.value();
  for (size_t i = 0; i < 3; ++i) two.b->arrive(0, heard[i]);
  two.b->arrive(0, std::vector<uint8_t>(heard[3].begin(), heard[3].end() - 1));
  two.b->arrive(0, {1, 2, 3});
  two.world.run(kSecond);
  EXPECT_EQ(two.receiver().rejected.value(), 2u);
  EXPECT_GE(two.receiver().duplicates.value(), duplicates + 1);
}

}  // namespace
}  // namespace weft::rxd
