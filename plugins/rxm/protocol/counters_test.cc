// SPDX-License-Identifier: BSD-2-Clause
// What the counters of rxm say of simulated peers. Those of competing claims to an address are
// tested in rivals_test.cc, where each event has its place.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "plugins/rxm/protocol/test_play.h"

namespace weft::rxm {
namespace {

const Counters &counters_of(const Play &run, size_t node) {
  return run.nodes[node]->core().counters();
}

TEST(Counters, OfMessagesOfEachForm) {
  Play run(1, Script{});
  run.world.eagain = 0;
  for (const size_t length : {10, 100, 1500, 5000, 6000}) run.nodes[0]->send(1, length, true);
  run.settle();
  const Counters &sender = counters_of(run, 0), &receiver = counters_of(run, 1);
  EXPECT_EQ(sender.made.value(), 1u);
  EXPECT_EQ(sender.queued.value(), 5u) << "all of them began before the connection";
  EXPECT_EQ(sender.segmented.value(), 1u);
  EXPECT_EQ(sender.rendezvous.value(), 2u);
  EXPECT_EQ(receiver.made.value(), 1u);
  EXPECT_EQ(receiver.rendezvous_taken.value(), 2u);
  EXPECT_EQ(receiver.saved.value(), 5u);
  EXPECT_EQ(receiver.saved_bytes.value(), 10u + 100 + 1500) << "no bytes of the announced ones";
  receive_all(run);
  run.nodes[1]->post(5000, true);
  run.nodes[0]->send(1, 10, true);
  run.settle();
  EXPECT_EQ(receiver.saved.value(), 5u) << "this one had a receive";
  EXPECT_EQ(sender.queued.value(), 5u) << "it left at once";
  for (size_t n : {0, 1}) {
    const Counters &counters = counters_of(run, n);
    for (const sdk::Counter *none :
         {&counters.lost, &counters.parted, &counters.retries, &counters.timeouts,
          &counters.failures, &counters.refused, &counters.put_off, &counters.violations,
          &counters.tx_full, &counters.waited_for_credits, &counters.failed, &counters.held})
      EXPECT_EQ(none->value(), 0u) << "nothing went wrong";
  }
}

TEST(Counters, OfAFullQueueAndOfCredits) {
  Play run(1, {.credits = true});
  run.world.eagain = 0;
  run.nodes[0]->send(1, 10, true);
  run.nodes[1]->post(5000, true);
  run.settle();
  const Counters &sender = counters_of(run, 0);
  EXPECT_EQ(sender.waited_for_credits.value(), 0u);
  for (size_t i = 0; i < run.settings().tx_size; ++i) {
    run.nodes[0]->send(1, 10, true);
    run.nodes[1]->post(5000, true);
  }
  EXPECT_EQ(sender.tx_full.value(), 0u);
  EXPECT_EQ(run.nodes[0]->core().take(), nullptr);
  EXPECT_EQ(sender.tx_full.value(), 1u);
  run.settle();
  EXPECT_GT(sender.waited_for_credits.value(), 0u);
  EXPECT_GE(sender.queued.value(), sender.waited_for_credits.value());
  expect_everything_arrived_in_order(run);
}

TEST(Counters, OfMemoryForUnexpectedMessages) {
  Play run(1, Script{});
  for (int i = 0; i < 60; ++i) run.nodes[0]->send(1, 500, true);
  run.settle();
  const Counters &receiver = counters_of(run, 1);
  EXPECT_GT(receiver.copied.value(), 0u);
  EXPECT_LT(receiver.copied.value(), receiver.saved.value()) << "the first ones stay in buffers";
  EXPECT_EQ(receiver.saved_bytes.value(), 500 * receiver.saved.value());
  EXPECT_EQ(receiver.held.value(), 1u) << "it is not read until there is room";
  receive_all(run);
  expect_everything_arrived_in_order(run);
}

TEST(Counters, OfAPeerThatDies) {
  Play run(1, {.failures = true});
  run.nodes[0]->send(1, 10, true);
  run.nodes[1]->post(5000, true);
  run.settle();
  run.world.slow = run.nodes[1].get();  // the peer does not answer
  run.nodes[0]->send(1, 5000, true);
  run.settle();
  EXPECT_EQ(counters_of(run, 0).lost.value(), 0u);
  run.stop(1);
  run.settle();
  EXPECT_EQ(counters_of(run, 0).lost.value(), 1u);
  for (const auto &sent : run.world.put_off) sent();
  run.world.slow = nullptr;
  run.settle();
  EXPECT_EQ(counters_of(run, 0).failed.value(), 1u);
  run.nodes[0]->send(1, 10, true);  // nobody is there
  run.settle();
  EXPECT_EQ(counters_of(run, 0).failures.value(), 1u);
  EXPECT_EQ(counters_of(run, 0).failed.value(), 2u);
}

TEST(Counters, OfAPeerThatHangsUp) {
  Play run(1, Script{});
  run.nodes[0]->allow_warnings = true;
  run.world.crowd = 100;
  run.nodes[0]->send(1, 10, true);
  run.settle();
  const Counters &counters = counters_of(run, 0);
  EXPECT_EQ(counters.timeouts.value(), 1u);
  EXPECT_GT(counters.retries.value(), 2u);
  EXPECT_EQ(counters.failures.value(), 0u) << "none of them was final";
  EXPECT_EQ(counters.failed.value(), 1u);
  EXPECT_EQ(counters.made.value(), 0u);
}

TEST(Counters, OfIdleConnections) {
  Play run(1, {.peers = 3, .max_connections = 1});
  for (const size_t to : {1, 2}) {
    run.nodes[to]->post(5000, true);
    run.nodes[0]->send(to, 10, true);
    run.settle();
  }
  EXPECT_EQ(counters_of(run, 0).made.value(), 2u);
  EXPECT_EQ(counters_of(run, 0).parted.value(), 1u);
  EXPECT_EQ(counters_of(run, 1).parted.value(), 1u);
  EXPECT_EQ(counters_of(run, 0).lost.value() + counters_of(run, 1).lost.value(), 0u);
}

TEST(Counters, OfAPeerThatBreaksTheProtocol) {
  Play run(1, {.failures = true});
  run.nodes[0]->send(1, 10, true);
  run.nodes[1]->post(5000, true);
  run.settle();
  run.nodes[0]->say(std::vector<uint8_t>(sizeof(WireHeader), 0xff));
  run.settle();
  run.nodes[1]->violations = 1;
  EXPECT_EQ(counters_of(run, 1).violations.value(), 1u);
  EXPECT_EQ(counters_of(run, 1).lost.value(), 1u);
  EXPECT_EQ(counters_of(run, 0).violations.value(), 0u);
  EXPECT_EQ(counters_of(run, 0).lost.value(), 1u);
}

// What the application itself ends is not a loss.
TEST(Counters, OfTheEndOfAnEndpoint) {
  Play run(1, Script{});
  run.nodes[0]->send(1, 10, true);
  run.nodes[1]->post(5000, true);
  run.settle();
  run.nodes[0]->core().shut_down(FI_ECANCELED);
  EXPECT_EQ(counters_of(run, 0).lost.value(), 0u);
  EXPECT_EQ(counters_of(run, 0).made.value(), 1u);
}

}  // namespace
}  // namespace weft::rxm
