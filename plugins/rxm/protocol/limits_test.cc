// SPDX-License-Identifier: BSD-2-Clause
// Limits on the memory that one peer can occupy, and their effect on the other peers, in
// simulation.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "plugin-api/sdk/testing/test_seeds.h"
#include "plugins/rxm/protocol/test_play.h"

namespace weft::rxm {
namespace {

TEST(Core, AnswersOwedToAPeerAreBounded) {
  for (const uint64_t limit : {UINT64_C(400), UINT64_C(1) << 20}) {
    Play run(1, {.failures = true, .owed_limit = limit});
    run.world.eagain = 0;
    run.nodes[0]->send(1, 10, true);
    run.nodes[1]->post(5000, true);
    run.settle();
    std::deque<uint64_t> results(60);
    for (uint64_t &result : results) run.nodes[0]->add(1, &result, Node::kCounterKey);
    // The answers cannot be sent while the requests arrive.
    run.world.mute = run.nodes[1].get();
    run.settle();
    run.world.mute = nullptr;
    run.settle();
    size_t failed = 0;
    for (const Sent &s : run.sent) {
      EXPECT_EQ(s.ended, 1);
      failed += s.err != 0;
    }
    // With more than 50 results of 8 bytes the connection ends.
    EXPECT_EQ(failed, limit == 400 ? 60u : 0u);
    run.nodes[1]->violations = limit == 400;
    expect_nothing_left(run);
  }
}

// Answers that the carrier has but cannot deliver count too.
TEST(Core, AnswersAtTheCarrierCountAsOwed) {
  for (const uint64_t limit : {UINT64_C(32), UINT64_C(1) << 20}) {
    Play run(1, {.failures = true, .owed_limit = limit, .inject_limit = 64});
    run.world.eagain = 0;
    run.nodes[0]->send(1, 10, true);
    run.nodes[1]->post(5000, true);
    run.settle();
    run.world.slow = run.nodes[0].get();
    std::deque<uint64_t> results(8);
    for (uint64_t &result : results) run.nodes[0]->add(1, &result, Node::kCounterKey);
    run.settle();
    size_t failed = 0;
    for (const Sent &s : run.sent) failed += s.err != 0;
    EXPECT_EQ(failed != 0, limit == 32);
    run.nodes[1]->violations = limit == 32;
    run.world.slow = nullptr;
    for (const auto &sent : run.world.put_off) sent();
    run.settle();
    expect_nothing_left(run);
  }
}

// The memory for the parts of a message is not kept for the next message, which is charged less.
TEST(Core, MemoryForThePartsOfAMessageIsGivenBack) {
  Play run(1, {.failures = true});
  run.nodes[0]->send(1, 10, true);
  run.nodes[1]->post(5000, true);
  run.settle();
  constexpr size_t kSegments = 40;
  const auto say = [&run](WireHeader h, size_t payload) {
    std::vector<uint8_t> bytes(sizeof h + payload);
    std::memcpy(bytes.data(), &h, sizeof h);
    run.nodes[0]->say(bytes);
  };
  for (size_t i = 0; i < kSegments; ++i) {
    WireHeader h = header_of(PacketType::kSegment, 0);
    h.op = uint8_t(PacketOp::kTagged);
    h.size = kSegments;
    h.segment_size = 1;
    h.segment_number = uint32_t(i);
    h.control_data = uint64_t(i == 0               ? SegmentKind::kFirst
                              : i == kSegments - 1 ? SegmentKind::kLast
                                                   : SegmentKind::kMiddle);
    say(h, 1);
  }
  run.settle();
  ASSERT_EQ(run.nodes[1]->saved(), 1u);
  ASSERT_GE(run.nodes[1]->memory_of_saved(), kSegments);
  run.nodes[1]->discard_saved();
  WireHeader h = header_of(PacketType::kEager, 0);
  h.op = uint8_t(PacketOp::kTagged);
  h.size = 1;
  say(h, 1);
  run.settle();
  ASSERT_EQ(run.nodes[1]->saved(), 1u);
  EXPECT_LT(run.nodes[1]->memory_of_saved(), kSegments / 2);
}

// No peer waits while there is room for copies, however many messages it sends.
TEST(Core, UnexpectedMessagesAreCopiedBeforeAnyPeerWaits) {
  Play run(1, Script{});
  run.world.eagain = 0;
  for (int i = 0; i < 30; ++i) run.nodes[0]->send(1, 10, true);
  run.settle();
  EXPECT_EQ(run.nodes[1]->saved(), 30u);
  receive_all(run);
  expect_everything_arrived_in_order(run);
}

// A peer that takes no answers, or no segments, does not disturb the others.
TEST(Core, AnswersToOnePeerLeaveRoomForThoseToOthers) {
  Play run(1, {.peers = 3, .failures = true, .max_controls = 50});
  run.world.eagain = 0;
  for (const size_t n : {0, 2}) {
    run.nodes[n]->send(1, 10, true);
    run.nodes[1]->post(5000, true);
  }
  run.settle();
  std::deque<uint64_t> results(80);
  for (size_t i = 0; i < results.size(); ++i)
    run.nodes[i % 2 * 2]->add(1, &results[i], Node::kCounterKey);
  run.world.mute = run.nodes[1].get();
  run.settle();
  run.world.mute = nullptr;
  run.settle();
  for (const Sent &s : run.sent) EXPECT_EQ(s.err, 0);
  EXPECT_EQ(run.nodes[1]->counter, 80u);
  expect_nothing_left(run);
}

TEST(Core, SegmentsToOnePeerLeaveRoomForThoseToOthers) {
  Play run(1, {.peers = 3, .max_segments = 4});
  run.world.eagain = 0;
  run.world.slow = run.nodes[1].get();
  run.nodes[0]->send(1, 2048, true);
  run.nodes[0]->send(1, 2048, true);
  run.nodes[0]->send(2, 2048, true);
  for (const size_t n : {1, 1, 2}) run.nodes[n]->post(5000, true);
  run.settle();
  EXPECT_EQ(run.sent[2].ended, 1);
  EXPECT_EQ(run.sent[2].arrived, 1);
  EXPECT_EQ(run.sent[1].ended, 0);
  run.world.slow = nullptr;
  for (const auto &sent : run.world.put_off) sent();
  run.settle();
  expect_everything_arrived_in_order(run);
}

// The most bytes that may be kept: the limit, and one packet per peer, the one after which the peer
// is held.
uint64_t most_kept(const Play &run) {
  return run.settings().unexpected_limit +
         run.nodes.size() * (sizeof(RxMessage) + run.settings().eager_limit);
}

// A peer whose messages are received goes on, whatever the others send. No memory grows past its
// limit. In the end all messages have arrived, in order.
void crowd_with_hasty_peers(uint64_t seed, sdk::Scenario &scenario) {
  const size_t honest = 1 + seed % 3, hasty = 1 + seed / 3 % 15;
  const bool strangers = seed % 2 != 0;
  Script script = script_of(int(seed % 1000));
  script.peers = 1 + honest + hasty;
  scenario.add("%zu honest peers, %zu hasty ones%s%s%s", honest, hasty,
               strangers ? ", not in the address vector" : "", script.write ? ", write" : "",
               script.credits ? ", credits" : "");
  Play run(unsigned(seed), script);
  Node &target = *run.nodes[0];
  if (strangers)
    for (size_t n = 1 + honest; n < script.peers; ++n) target.forget(n);
  static constexpr size_t kSizes[] = {0, 1, 100, 448, 512, 513, 2048, 2049, 5000};
  const auto length = [&] { return kSizes[run.world.some(std::size(kSizes))]; };
  std::vector<size_t> wanted;
  for (int i = 0; i < 1000; ++i) {
    const size_t n = 1 + run.world.some(script.peers - 1);
    const size_t id = run.sent.size();
    if (n > honest) {
      run.nodes[n]->send(0, length(), true);
    } else if (run.world.chance(20)) {
      if (run.nodes[n]->core().in_flight() == run.settings().tx_size) continue;
      const bool late = run.world.chance(50);
      if (!late) target.post(5000, true, id);
      run.nodes[n]->send(0, length(), true);
      for (uint64_t k = late ? run.world.some(200) : 0; k-- > 0 && run.world.step();) run.turn();
      if (late) target.post(5000, true, id);
      wanted.push_back(id);
    }
    for (uint64_t k = run.world.some(6); k-- > 0 && run.world.step();) run.turn();
    run.turn();
    ASSERT_LE(target.core().unexpected_bytes(), most_kept(run));
    ASSERT_TRUE(script.credits || target.buffers_left() != 0) << "no buffer is left to receive";
  }
  run.settle();
  for (const size_t id : wanted) {
    EXPECT_EQ(run.sent[id].arrived, 1) << id << " of " << run.sent[id].from << " has starved";
    EXPECT_EQ(run.sent[id].ended, 1);
  }
  EXPECT_LE(target.core().unexpected_bytes(), most_kept(run));
  receive_all(run);
  expect_everything_arrived_in_order(run);
}

TEST(Crowd, HastyPeersDoNotStarveTheOthers) {
  sdk::run_seeds("Crowd.HastyPeersDoNotStarveTheOthers", {.usual = 100, .sanitized = 20},
                 crowd_with_hasty_peers);
}

// If the carrier cannot hold single links, the limits are the same, and all peers wait.
TEST_P(Seeds, LimitsAreKeptIfTheCarrierCannotHoldLinks) {
  Script script = script_of(GetParam());
  script.credits = false;
  Play run(unsigned(GetParam()), script);
  run.world.holds = false;
  for (int i = 0; i < 600; ++i) {
    run.nodes[1 + run.world.some(script.peers - 1)]->send(0, run.world.some(512), true);
    for (uint64_t k = run.world.some(6); k-- > 0 && run.world.step();) run.turn();
    run.turn();
    ASSERT_LE(run.nodes[0]->core().unexpected_bytes(), run.settings().unexpected_limit);
  }
  receive_all(run);
  expect_everything_arrived_in_order(run);
}

// A peer that restarts again and again gets no additional share, whether or not its end is
// reported, and whichever side connects.
TEST(Core, ARestartedPeerGetsNoAdditionalShare) {
  for (const bool silent : {false, true}) {
    for (const bool calls : {false, true}) {
      SCOPED_TRACE(testing::Message() << (silent ? "silent " : "") << (calls ? "called" : ""));
      Play run(1, {.failures = true, .connect_timeout_ns = 1'000'000'000});
      Node &target = *run.nodes[0];
      for (int round = 0; round < 30; ++round) {
        if (calls) target.send(1, 10, true);
        for (int i = 0; i < 40; ++i) {
          if (!calls || i > 0) run.nodes[1]->send(0, 500, true);
          for (int k = 0; k < 3 && run.world.step(); ++k) run.turn();
        }
        run.settle();
        ASSERT_LE(target.core().unexpected_bytes(), most_kept(run)) << round;
        run.world.silent = silent;
        run.stop(1);
        run.world.silent = false;
        run.settle();
        run.start(1);
      }
    }
  }
}

// A bare message that cannot be one ends its connection, and nothing else.
TEST(Core, ABareMessageThatCannotBeOneEndsItsConnection) {
  constexpr uint32_t kTagged = UINT32_C(1) << 31, kSecondPlace = UINT32_C(1) << 29;
  const auto expect = [](const char *what, bool is_right, Bare bare, uint32_t data, size_t length) {
    SCOPED_TRACE(what);
    Play run(1, {.peers = 3, .failures = true, .bare = bare});
    run.world.eagain = 0;
    // One upper part of a tag becomes known.
    for (const size_t n : {0, 2}) {
      run.nodes[n]->send(1, 10, true);
      run.nodes[1]->post(5000, true);
      run.settle();
    }
    run.nodes[0]->say(std::vector<uint8_t>(length), data);
    run.settle();
    run.nodes[1]->violations = is_right ? 0 : 1;
    EXPECT_EQ(run.nodes[1]->core().counters().violations.value(), run.nodes[1]->violations);
    EXPECT_EQ(run.nodes[1]->core().counters().lost.value(), run.nodes[1]->violations);
    EXPECT_EQ(run.nodes[1]->saved(), is_right ? 1u : 0u);
    run.nodes[1]->discard_saved();
    for (const size_t n : {0, 2}) {
      run.nodes[n]->send(1, 10, true);
      run.nodes[1]->post(5000, true);
    }
    run.settle();
    EXPECT_EQ(run.nodes[1]->core().connections(), 2u);
    expect_everything_arrived_in_order(run);
  };
  expect("of a known tag", true, Bare::kAll, kTagged | 5, 512);
  expect("without a tag", true, Bare::kAll, kBareUntagged, 512);
  expect("without bytes", true, Bare::kAll, kBareUntagged, 0);
  expect("too long", false, Bare::kAll, kTagged | 5, 513);
  expect("too long, without a tag", false, Bare::kAll, kBareUntagged, kHeaderSize + 512);
  expect("of a place that is not known", false, Bare::kAll, kTagged | kSecondPlace | 5, 10);
  expect("with a part of a tag, but not tagged", false, Bare::kAll, 5, 10);
  expect("not asked for", false, Bare::kNobody, kTagged | 5, 10);
  expect("not asked for, without a tag", false, Bare::kNobody, kBareUntagged, 0);
}

// Announcements of strangers that died still count against the share of strangers.
TEST(Core, AnnouncementsOfDeadStrangersCount) {
  Play run(1, {.failures = true});
  Node &target = *run.nodes[0];
  target.forget(1);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 20; ++i) run.nodes[1]->send(0, 5000, true);
    run.settle();
    run.stop(1);
    run.settle();
    run.start(1);
  }
  EXPECT_NE(target.saved(), 0u);
  EXPECT_LE(target.core().unexpected_bytes(),
            run.settings().unexpected_limit / 2 + sizeof(RxMessage) + 512);
}

TEST(Core, UnexpectedMessagesAreBounded) {
  Play run(1, Script{});
  for (int i = 0; i < 60; ++i) {
    run.nodes[0]->send(1, 500, true);
    run.settle();
    EXPECT_LE(run.nodes[1]->core().unexpected_bytes(), 20000u);
  }
  EXPECT_LT(run.sent.back().arrived, 1);
  receive_all(run);
  for (const Sent &s : run.sent) EXPECT_EQ(s.arrived, 1);
}

}  // namespace
}  // namespace weft::rxm
