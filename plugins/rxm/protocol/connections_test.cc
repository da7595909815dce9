// SPDX-License-Identifier: BSD-2-Clause
// Connections among simulated peers: how they begin, replace each other, and end.
#include <gtest/gtest.h>

#include <cstring>

#include "plugin-api/sdk/testing/test_allocations.h"
#include "plugins/rxm/protocol/test_play.h"

namespace weft::rxm {
namespace {

void pass(Play &run, uint64_t ticks) {
  for (const uint64_t end = run.world.now + ticks; run.world.next() <= end;)
    run.world.step(), run.turn();
}

// Peers that hang up without an answer, because many connect at once, cost only time.
TEST_P(Seeds, HangUpsOfACrowdedPeerCostOnlyTime) {
  Script script = script_of(GetParam());
  script.connect_timeout_ns = 30'000'000'000;
  script.max_connections = size_t(GetParam() % 3);
  Play run(unsigned(GetParam()), script);
  run.world.crowd = 60;
  play(run, 500);
  receive_all(run);
  expect_everything_arrived_in_order(run);
}

TEST(Core, APeerThatAlwaysHangsUpTimesOut) {
  Play run(1, Script{});
  run.nodes[0]->allow_warnings = true;
  run.world.crowd = 100;
  run.nodes[0]->send(1, 10, true);
  run.settle();
  EXPECT_EQ(run.sent[0].ended, 1);
  EXPECT_EQ(run.sent[0].err, FI_ETIMEDOUT);
  // It ends when the next try would come too late; pauses double up to half a second.
  EXPECT_GE(run.nodes[0]->now_ns(), 30'000'000u);
  EXPECT_LE(run.nodes[0]->now_ns(), 60'000'000u);
}

// Messages that the peer is sending while an idle connection is closed arrive.
TEST_P(ManySeeds, ClosingIdleConnectionsLosesNothing) {
  Script script = script_of(GetParam());
  script.peers = size_t(3 + GetParam() % 5);
  script.max_connections = size_t(1 + GetParam() % 3);
  Play run(unsigned(GetParam()), script);
  play(run, 300);
  receive_all(run);
  expect_everything_arrived_in_order(run);
  if (script.peers > script.max_connections + 1) {
    EXPECT_NE(run.world.partings, 0u);
  }
}

// Messages that arrived by a link end with it when another link replaces it, even if the carrier
// had not yet reported the link as connected.
TEST(Core, MessagesOfAnUnreportedLinkEndWithIt) {
  Play run(1, {.failures = true});
  run.world.slow_news = UINT64_C(1) << 40;
  run.nodes[0]->send(1, 10, true);
  pass(run, 1000);
  // Send only the first segment of a message.
  WireHeader h = header_of(PacketType::kSegment, 0);
  h.op = uint8_t(PacketOp::kTagged);
  h.message = UINT64_C(1) << 32;  // the id of the first operation of every endpoint
  h.size = 1500;
  h.segment_size = 512;
  h.control_data = uint64_t(SegmentKind::kFirst);
  std::vector<uint8_t> bytes(sizeof h + 512);
  std::memcpy(bytes.data(), &h, sizeof h);
  run.nodes[1]->say(bytes);
  pass(run, 1000);
  ASSERT_EQ(run.nodes[0]->saved(), 1u);
  run.world.silent = true;
  run.stop(1);
  run.start(1);
  run.world.slow_news = 0;
  for (auto &node : run.nodes) node->allow_warnings = false;
  run.nodes[1]->send(0, 1500, true);
  pass(run, 10'000);
  EXPECT_EQ(run.sent[1].ended, 1);
  EXPECT_EQ(run.sent[1].err, 0);
  EXPECT_EQ(run.nodes[0]->saved(), 2u)
      << "the message that was begun and will fail, and the whole one";
}

// The tags that such a link brought are forgotten with it, also if the peer hung up.
TEST(Core, TagsOfAnUnreportedLinkAreForgotten) {
  Play run(1, Script{});
  run.world.without_data = 100;
  run.world.eagain = 0;
  run.world.slow_news = UINT64_C(1) << 40;
  run.nodes[0]->send(1, 10, true);
  pass(run, 1000);
  run.nodes[1]->send(0, 10, true);
  pass(run, 1000);
  ASSERT_EQ(run.nodes[0]->saved(), 1u);
  ASSERT_NE(tag_of(1) >> kIdBits, tag_of(2) >> kIdBits) << "the next message takes its place";
  run.world.slow_news = 0;
  for (const auto &link : run.world.links)
    if (link->node == run.nodes[0].get() && link->owner != nullptr)
      run.nodes[0]->core().on_refused(*link->owner, FI_ECONNRESET, {}, /*passes=*/true);
  pass(run, 10'000);
  for (int i = 0; i < 20; ++i) run.nodes[1]->send(0, 10, true);
  run.settle();
  receive_all(run);
  expect_everything_arrived_in_order(run);  // with the tags that were sent
  EXPECT_NE(run.world.bare, 0u);
}

// Before the news that the peer has accepted, nothing is known of its level. What it asks is
// answered all the same, once the news have come.
TEST(Core, WhatAPeerAsksBeforeTheNewsOfItsConnectionIsAnswered) {
  for (const size_t length : {0, 10, 1500})
    for (const auto kind : {Node::kUntilDelivered, Node::kUntilMatched})
      for (const bool expected : {false, true}) {
        SCOPED_TRACE(testing::Message() << length << " bytes, kind " << kind << ", " << expected);
        Play run(1, Script{});
        run.world.slow_news = 1 << 20;
        run.nodes[0]->send(1, 10, true);
        pass(run, 1000);
        if (expected) run.nodes[0]->post(5000, true);
        run.nodes[1]->send(0, length, true, kind);
        pass(run, 1000);
        ASSERT_EQ(run.nodes[0]->core().connections(), 0u);
        ASSERT_EQ(run.nodes[0]->saved(), expected ? 0u : 1u);
        EXPECT_EQ(run.sent.back().ended, 0);
        run.settle();
        EXPECT_EQ(run.sent.back().ended, expected || kind == Node::kUntilDelivered ? 1 : 0);
        receive_all(run);
        EXPECT_EQ(run.sent.back().ended, 1);
        EXPECT_EQ(run.sent.back().err, 0);
        expect_nothing_left(run);
      }
}

// Of a stock peer the same flags mean nothing: it gets no answer that it does not know.
TEST(Core, AStockPeerAsksForNothingBeforeTheNewsOfItsConnection) {
  for (const uint32_t flag : {kFlagTellDelivered, kFlagTellMatched}) {
    Play run(1, Script{.stock = true});
    run.world.slow_news = 1 << 20;
    run.nodes[0]->send(1, 10, true);
    pass(run, 1000);
    WireHeader h = header_of(PacketType::kEager, 0);
    h.op = uint8_t(PacketOp::kMessage);
    h.message = UINT64_C(1) << 32;
    h.flags = flag;
    std::vector<uint8_t> bytes(sizeof h);
    std::memcpy(bytes.data(), &h, sizeof h);
    run.nodes[1]->say(bytes);
    pass(run, 1000);
    ASSERT_EQ(run.nodes[0]->core().connections(), 0u);
    ASSERT_EQ(run.nodes[0]->saved(), 1u);
    run.settle();
    EXPECT_EQ(run.nodes[0]->core().connections(), 1u);
    run.nodes[0]->discard_saved();
    run.settle();
    EXPECT_EQ(run.nodes[1]->core().counters().violations.value(), 0u);
  }
}

// What is asked by such a link is not answered by the next one.
TEST(Core, WhatIsAskedByAnUnreportedLinkEndsWithIt) {
  for (const auto kind : {Node::kUntilDelivered, Node::kUntilMatched}) {
    Play run(1, Script{.failures = true});
    run.world.eagain = 0;
    run.world.slow_news = UINT64_C(1) << 40;
    run.nodes[0]->send(1, 10, true);
    pass(run, 1000);
    run.nodes[1]->send(0, 10, true, kind);
    pass(run, 1000);
    ASSERT_EQ(run.nodes[0]->saved(), 1u);
    run.world.slow_news = 0;
    for (const auto &link : run.world.links)
      if (link->node == run.nodes[0].get() && link->owner != nullptr)
        run.nodes[0]->core().on_refused(*link->owner, FI_ECONNRESET, {}, /*passes=*/true);
    run.settle();
    EXPECT_EQ(run.sent[1].ended, 1);
    EXPECT_NE(run.sent[1].err, 0);
    receive_all(run);
    EXPECT_EQ(run.sent[0].err, 0);
    EXPECT_EQ(run.nodes[1]->core().counters().violations.value(), 0u);
  }
}

TEST_P(Seeds, IdleConnectionsAreClosedUnderALimit) {
  Script script = script_of(GetParam());
  script.peers = 6;
  script.max_connections = 2;
  Play run(unsigned(GetParam()), script);
  for (int round = 0; round < 12; ++round) {
    Node &node = *run.nodes[0];
    const size_t to = 1 + size_t(round) % 5;
    run.nodes[to]->post(5000, true);
    node.send(to, 100, true);
    run.settle();
    EXPECT_LE(node.core().connections(), 2u);
    EXPECT_EQ(run.sent.back().err, 0);
    EXPECT_EQ(run.sent.back().arrived, 1);
  }
  expect_nothing_left(run);
}

TEST_P(Seeds, BothConnectAtOnceAndOneConnectionStays) {
  Play run(unsigned(GetParam()), Script{});
  for (size_t n = 0; n < 2; ++n) {
    run.nodes[n]->post(5000, true);
    run.nodes[n]->send(1 - n, 100, true);
  }
  run.settle();
  for (const Sent &s : run.sent) {
    EXPECT_EQ(s.err, 0);
    EXPECT_EQ(s.arrived, 1);
  }
  for (size_t n = 0; n < 2; ++n) {
    EXPECT_EQ(run.nodes[n]->core().connections(), 1u);
    EXPECT_EQ(run.nodes[n]->core().objects(), 1u);
  }
}

TEST(Core, AnEndpointReachesItself) {
  Play run(1, Script{});
  run.nodes[0]->post(5000, true);
  run.nodes[0]->send(0, 3000, true);
  run.nodes[0]->post(5000, false);
  run.nodes[0]->send(0, 10, false, Node::kInjected);
  run.settle();
  for (const Sent &s : run.sent) {
    EXPECT_EQ(s.err, 0);
    EXPECT_EQ(s.arrived, 1);
  }
}

TEST(Core, AnAddressWithoutAProcessRefusesTheConnection) {
  Play run(1, Script{});
  run.stop(1);
  run.nodes[0]->send(1, 10, true);
  run.settle();
  EXPECT_EQ(run.sent[0].ended, 1);
  EXPECT_EQ(run.sent[0].err, FI_ECONNREFUSED);
  EXPECT_EQ(run.nodes[0]->core().objects(), 0u) << "a peer that is gone costs nothing";
}

TEST(Core, ARestartedSenderReplacesItsConnection) {
  Play run(1, {.failures = true});
  run.nodes[1]->post(5000, true);
  run.nodes[0]->send(1, 10, true);
  run.settle();
  run.stop(0);
  run.start(0);  // the other end does not know of it yet
  run.nodes[1]->post(5000, true);
  run.nodes[0]->send(1, 10, true);
  run.settle();
  EXPECT_EQ(run.sent[1].err, 0);
  EXPECT_EQ(run.sent[1].arrived, 1);
  EXPECT_EQ(run.nodes[1]->core().connections(), 1u);
}

// Strangers share a limited number of connections, and all get their turn.
TEST_P(Seeds, StrangersTakeTurns) {
  Script script{.peers = size_t(4 + GetParam() % 4), .max_strangers = size_t(1 + GetParam() % 3)};
  script.connect_timeout_ns = 30'000'000'000;
  Play run(unsigned(GetParam()), script);
  run.nodes[0]->forget_everybody();
  for (int round = 0; round < 5; ++round) {
    for (size_t n = 1; n < script.peers; ++n) {
      run.nodes[0]->post(5000, true);
      run.nodes[n]->send(0, 100, true);
    }
    run.settle();
    EXPECT_LE(run.nodes[0]->core().strangers(), script.max_strangers);
  }
  expect_everything_arrived_in_order(run);
}

TEST(Core, SilentStrangersMakeRoom) {
  Play run(1, {.max_strangers = 2, .connect_timeout_ns = 30'000'000'000});
  run.nodes[0]->forget_everybody();
  for (uint16_t n = 0; n < 10; ++n) {
    run.nodes[0]->knock(uint16_t(6000 + n), n);
    run.settle();
    EXPECT_LE(run.nodes[0]->core().strangers(), 2u);
  }
  run.nodes[0]->post(5000, true);
  run.nodes[1]->send(0, 100, true);
  run.settle();
  expect_everything_arrived_in_order(run);
  EXPECT_LE(run.nodes[0]->core().strangers(), 2u);
}

// They cannot be asked to part.
TEST(Core, IdleStockStrangersMakeRoom) {
  Play run(1,
           {.peers = 6, .stock = true, .max_strangers = 1, .connect_timeout_ns = 30'000'000'000});
  run.nodes[0]->forget_everybody();
  for (const size_t n : {1, 3, 5, 1}) {
    run.nodes[0]->post(5000, true);
    run.nodes[n]->send(0, 100, true);
    run.settle();
  }
  expect_everything_arrived_in_order(run);
}

// Credits are no messages, and a message that never ends is none.
TEST(Core, WhatIsNoWholeMessageKeepsNoPlace) {
  for (const PacketType type : {PacketType::kCredit, PacketType::kSegment}) {
    SCOPED_TRACE(int(type));
    Play run(1, {.peers = 4,
                 .stock = type == PacketType::kCredit,
                 .max_strangers = 1,
                 .connect_timeout_ns = 30'000'000'000});
    run.nodes[0]->forget_everybody();
    run.world.mute = run.nodes[1].get();  // its message does not leave
    run.nodes[1]->send(0, 100, true);
    run.settle();
    WireHeader header = header_of(type, 0);
    header.op = uint8_t(PacketOp::kMessage);
    std::vector<uint8_t> packet(sizeof header);
    if (type == PacketType::kSegment) {
      header.segment_size = 1;
      header.control_data = uint64_t(SegmentKind::kFirst);
      header.size = 2;
      packet.push_back(0);
    }
    std::memcpy(packet.data(), &header, sizeof header);
    run.nodes[1]->say(packet);
    run.nodes[0]->post(5000, true);
    run.nodes[2]->send(0, 100, true);
    for (int i = 0; i < 50 && run.sent[1].arrived == 0; ++i) {
      pass(run, 600'000);
      if (type == PacketType::kCredit && run.nodes[1]->core().connections() != 0)
        run.nodes[1]->say(packet);
    }
    EXPECT_EQ(run.sent[1].arrived, 1);
    run.world.mute = nullptr;
    run.settle();
  }
}

// The process that listens at an address is its owner.
TEST(Core, AFalseClaimToAnAddressChangesNothing) {
  for (const size_t target : {0, 1}) {  // the peer with the lower, and with the higher address
    for (const bool stock : {false, true}) {
      Play run(1, {.failures = true, .stock = stock});
      const auto talk = [&run] {
        for (const size_t n : {0, 1}) {
          run.nodes[1 - n]->post(5000, true);
          run.nodes[n]->send(1 - n, 600, true);
        }
        run.settle();
      };
      talk();
      for (uint32_t process = 7; process < 12; ++process) {
        run.nodes[target]->knock(address_of(1 - target).port(), process);
        talk();
      }
      expect_everything_arrived_in_order(run);
      for (const size_t n : {0, 1}) {
        EXPECT_EQ(run.nodes[n]->core().connections(), 1u);
        EXPECT_EQ(run.nodes[n]->core().objects(), 1u);
      }
    }
  }
}

TEST(Core, ARestartedPeerIsReachedAlthoughItsDeathWasNotReported) {
  for (const size_t victim : {0, 1}) {
    for (const bool stock : {false, true}) {
      Play run(1, {.failures = true, .stock = stock, .connect_timeout_ns = 1'000'000'000});
      run.nodes[1 - victim]->post(5000, true);
      run.nodes[victim]->send(1 - victim, 10, true);
      run.settle();
      run.world.silent = true;
      run.stop(victim);
      run.start(victim);
      run.world.silent = false;
      run.nodes[1 - victim]->post(5000, true);
      run.nodes[victim]->send(1 - victim, 10, true);
      run.settle();
      run.nodes[victim]->post(5000, true);
      run.nodes[1 - victim]->send(victim, 10, true);
      run.settle();
      expect_everything_arrived_in_order(run);
      for (const size_t n : {0, 1}) {
        EXPECT_EQ(run.nodes[n]->core().connections(), 1u);
        EXPECT_EQ(run.nodes[n]->core().objects(), 1u);
      }
    }
  }
}

// One side loses the connection, and the network loses the news. That side asks for another, or the
// other one finds out when it sends.
TEST_P(Seeds, AnEndThatOnlyOneSideKnowsOfIsFoundOut) {
  Script script = script_of(GetParam());
  script.peers = 2;
  script.failures = true;
  script.connect_timeout_ns = 30'000'000'000;
  const size_t loser = size_t(GetParam() % 2);
  Play run(unsigned(GetParam()), script);
  const auto exchange = [&run](size_t from, size_t to) {
    run.nodes[to]->post(5000, true);
    run.nodes[from]->send(to, 10, true);
    run.settle();
  };
  exchange(0, 1);
  exchange(1, 0);
  run.world.silent = true;
  for (const auto &link : run.world.links)
    if (link->node == run.nodes[loser].get() && link->owner != nullptr)
      run.nodes[loser]->core().on_closed(*link->owner, FI_ECONNRESET);
  run.world.silent = false;
  exchange(loser, 1 - loser);
  exchange(1 - loser, loser);
  expect_everything_arrived_in_order(run);
  for (const size_t n : {0, 1}) EXPECT_EQ(run.nodes[n]->core().connections(), 1u);
}

TEST(Core, APeerThatIsOnlyInsertedCostsNothing) {
  Play run(1, Script{});
  run.nodes[1]->post(5000, true);
  run.nodes[0]->send(1, 10, true);
  run.settle();
  Core &core = run.nodes[0]->core();
  const size_t before = sdk::allocations();
  for (uint32_t i = 2; i < 2000; ++i) core.introduce(i, address_of(i));
  EXPECT_EQ(sdk::allocations(), before);
  for (uint32_t i = 2; i < 2000; ++i) core.forget(i);
  EXPECT_EQ(sdk::allocations(), before);
  EXPECT_EQ(core.objects(), 1u);
}

}  // namespace
}  // namespace weft::rxm
