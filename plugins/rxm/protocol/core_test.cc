// SPDX-License-Identifier: BSD-2-Clause
// The protocol among simulated peers (test_play.h). In simulated time, a seed decides how long
// connections and packets take, which calls return -FI_EAGAIN, and which peers die and come back.
// In every run each operation ends once, each message arrives at most once and unchanged, and no
// memory is left over. Tests of connections are in connections_test.cc, of limits in
// limits_test.cc.
#include <gtest/gtest.h>

#include "plugins/rxm/protocol/test_play.h"

namespace weft::rxm {
namespace {

TEST_P(Seeds, EverythingArrivesOnceAndInOrder) {
  const Script script = script_of(GetParam());
  Play run(unsigned(GetParam()), script);
  play(run, 500);
  receive_all(run);
  expect_everything_arrived_in_order(run);
  EXPECT_NE(run.world.segments, 0u);
  EXPECT_EQ(run.world.partings, 0u);
  uint64_t counted = 0;
  for (const auto &node : run.nodes) counted += node->core().counters().bare.value();
  EXPECT_EQ(counted, run.world.bare);
  if (script.bare != Bare::kSome) {
    EXPECT_EQ(run.world.bare != 0, script.bare == Bare::kAll);
  }
}

TEST_P(Seeds, StockPeersGetNoSegments) {
  Script script = script_of(GetParam());
  script.stock = true;
  script.max_connections = size_t(GetParam() % 3);
  Play run(unsigned(GetParam()), script);
  play(run, 500);
  receive_all(run);
  expect_everything_arrived_in_order(run);
}

TEST_P(Seeds, WithoutResourcesOperationsFailOnce) {
  Play run(unsigned(GetParam()), script_of(GetParam()));
  run.world.faults = 3;
  for (auto &node : run.nodes) node->allow_warnings = true;
  play(run, 400);
  run.world.faults = 0;
  receive_all(run);
  expect_nothing_left(run);
}

TEST_P(Seeds, ADeadPeerFailsOnlyItsOwnOperations) {
  Script script = script_of(GetParam());
  script.failures = true;
  Play run(unsigned(GetParam()), script);
  play(run, 600);
  receive_all(run);
  expect_nothing_left(run);
  // Afterwards all peers, also restarted ones, reach each other.
  for (size_t n = 0; n < run.nodes.size(); ++n)
    if (run.nodes[n] == nullptr) run.start(n);
  run.settle();
  const size_t first = run.sent.size();
  for (size_t n = 0; n < run.nodes.size(); ++n) {
    run.nodes[n]->post(5000, true);
    run.nodes[n]->send((n + 1) % run.nodes.size(), 600, true);
  }
  run.settle();
  for (size_t id = first; id < run.sent.size(); ++id) {
    EXPECT_EQ(run.sent[id].ended, 1);
    EXPECT_EQ(run.sent[id].err, 0);
    EXPECT_EQ(run.sent[id].arrived, 1);
  }
}

// Peers are inserted and removed, and some die without a report.
TEST_P(ManySeeds, SavedMessagesKeepTheirSenders) {
  Script script = script_of(GetParam());
  script.failures = script.names = true;
  Play run(unsigned(GetParam()), script);
  play(run, 600);
  run.tell_of_the_dead();
  receive_all(run);
  expect_nothing_left(run);
}

// Both when the connection exists already, and when the operation waits for a connection to a peer
// that turns out to be stock.
TEST(Core, AtomicsThatStockLacksFailAtTheSender) {
  for (const bool stock : {true, false}) {
    Play run(1, {.stock = stock});
    run.nodes[0]->add_wide(1, Node::kWideKey);
    run.settle();
    run.nodes[0]->add_wide(1, Node::kWideKey);
    run.settle();
    for (const Sent &s : run.sent) {
      EXPECT_EQ(s.ended, 1);
      EXPECT_EQ(s.err, stock ? FI_EOPNOTSUPP : 0);
    }
    EXPECT_EQ(run.nodes[1]->wide[0], stock ? 0 : 2);
    run.nodes[1]->post(5000, true);
    run.nodes[0]->send(1, 10, true);  // the connection still works
    run.settle();
    EXPECT_EQ(run.sent.back().arrived, 1);
  }
}

// Delivery of a message of 0 bytes is reported too.
TEST(Core, DeliveryOfAnEmptyMessageToStockIsReported) {
  for (const bool write : {false, true}) {
    Play run(1, {.write = write, .stock = true});
    for (const size_t length : {0, 1, 600}) {
      run.nodes[1]->post(5000, true);
      run.nodes[0]->send(1, length, true, Node::kUntilDelivered);
      run.settle();
      EXPECT_EQ(run.sent.back().ended, 1) << length;
      EXPECT_EQ(run.sent.back().err, 0) << length;
      EXPECT_EQ(run.sent.back().arrived, 1) << length;
    }
    EXPECT_GE(run.world.acknowledged, 1u) << "the carrier is asked for it";
  }
}

// A message counts as delivered when the peer has it, with or without a receive, and as matched
// when it has met one. Stock peers tell only of a rendezvous, and so do weft peers of lower levels.
TEST(Core, MessagesEndWhenThePeerHasToldOfThem) {
  for (const bool write : {false, true})
    for (const Script &script :
         {Script{.write = write}, Script{.write = write, .bare = Bare::kNobody},
          Script{.write = write, .stock = true}})
      for (const size_t length : {0, 1, 64, 512, 513, 2048, 2049})
        for (const auto kind : {Node::kUntilDelivered, Node::kUntilMatched}) {
          SCOPED_TRACE(testing::Message() << length << " bytes, kind " << kind << ", write "
                                          << write << ", stock " << script.stock);
          Play run(1, script);
          run.nodes[0]->send(1, length, true, kind);
          run.settle();
          const bool tells = script.bare == Bare::kAll && !script.stock;
          const bool early = (tells && kind == Node::kUntilDelivered && length <= 2048) ||
                             (script.stock && length == 0);
          EXPECT_EQ(run.sent.back().ended, early ? 1 : 0);
          run.nodes[1]->post(5000, true);
          run.settle();
          EXPECT_EQ(run.sent.back().ended, 1);
          EXPECT_EQ(run.sent.back().err, 0);
          EXPECT_EQ(run.sent.back().arrived, 1);
          expect_nothing_left(run);
        }
}

// Where the application replies at once, what the peer is to be told may wait for the reply. That
// is expected after two replies in a row, until one does not come.
TEST(Core, WhatIsToldMayWaitForAReply) {
  Play run(1, {});
  const auto exchange = [&run](bool replies) {
    run.nodes[1]->post(5000, true);
    run.nodes[0]->send(1, 64, true, Node::kUntilDelivered);
    while (run.sent.back().arrived == 0 && run.world.step()) run.nodes[1]->reap();
    if (replies) {
      run.nodes[1]->send(0, 64, true);
      run.nodes[0]->post(5000, true);
    }
    run.settle();
    EXPECT_EQ(run.sent.back().arrived, 1);
  };
  run.settle();
  exchange(true);  // before the connection is made, nothing is sent at once
  run.world.later = 0;
  exchange(false);
  exchange(true);
  exchange(true);
  EXPECT_EQ(run.world.later, 0u);
  exchange(true);
  EXPECT_EQ(run.world.later, 1u);
  exchange(false);
  EXPECT_EQ(run.world.later, 2u);
  exchange(true);
  EXPECT_EQ(run.world.later, 2u);
  expect_nothing_left(run);
}

// A message that is whole stays when its connection ends, and its sender gets an error.
TEST(Core, AMessageThatWaitsForItsMatchOutlivesItsSender) {
  for (const size_t length : {1, 513}) {
    Play run(1, {.failures = true});
    run.nodes[0]->send(1, length, true, Node::kUntilMatched);
    run.settle();
    EXPECT_EQ(run.sent.back().ended, 0);
    run.stop(0);
    run.settle();
    run.nodes[1]->post(5000, true);
    run.settle();
    EXPECT_EQ(run.sent.back().arrived, 1);
    EXPECT_EQ(run.nodes[1]->broken, 0u);
  }
}

// A message that the sender writes ends with the last write, so the carrier has to tell if that is
// lost. It ends with the peer's word if it waits for that, and the peer gives it.
TEST(Core, TheLastWriteOfAMessageIsMarked) {
  for (const bool stock : {false, true})
    for (const auto kind : {Node::kPlain, Node::kUntilDelivered, Node::kUntilMatched}) {
      SCOPED_TRACE(testing::Message() << "kind " << kind << ", stock " << stock);
      Play run(1, {.write = true, .stock = stock});
      run.nodes[1]->post(5000, true);
      run.nodes[0]->send(1, 5000, true, kind);
      run.settle();
      EXPECT_EQ(run.sent.back().ended, 1);
      EXPECT_EQ(run.world.marked_writes, stock || kind == Node::kPlain ? 1u : 0u);
    }
}

TEST_P(Seeds, AMessageThatIsWrittenHasArrivedWhenItIsDelivered) {
  for (const auto kind : {Node::kUntilDelivered, Node::kUntilMatched}) {
    Play run(unsigned(GetParam()), {.write = true});
    run.nodes[1]->post(5000, true);
    run.nodes[0]->send(1, 5000, true, kind);
    run.turn();
    while (run.sent.back().ended == 0 && run.world.step()) run.turn();
    EXPECT_EQ(run.sent.back().ended, 1);
    EXPECT_EQ(run.sent.back().arrived, 1);
  }
}

// The peer's word counts, also if the carrier loses the link before it has told that it has sent.
TEST(Core, WhatThePeerHasToldOfDoesNotFailWithItsLink) {
  for (const size_t length : {1, 513}) {
    Play run(1, {.failures = true});
    run.world.slow = run.nodes[1].get();
    run.nodes[0]->send(1, length, true, Node::kUntilDelivered);
    run.settle();
    EXPECT_EQ(run.nodes[1]->saved(), 1u);
    EXPECT_EQ(run.sent.back().ended, 0) << "the carrier still has it";
    run.world.slow = nullptr;
    run.stop(1);
    run.settle();
    EXPECT_EQ(run.sent.back().ended, 1);
    EXPECT_EQ(run.sent.back().err, 0);
  }
}

// Stock peers reuse an id after the last segment, even while the message is unexpected.
TEST(Core, StockPeersReuseTheIdsOfSegmentedMessages) {
  Play run(1, {.stock = true});
  for (int i = 0; i < 3; ++i) {
    run.nodes[1]->send(0, 1500, true);
    run.settle();
  }
  EXPECT_GE(run.world.segments, 6u);
  receive_all(run);
  expect_everything_arrived_in_order(run);
}

}  // namespace
}  // namespace weft::rxm
