// SPDX-License-Identifier: BSD-2-Clause
// What peers get that are not in the address vector, or that have not proven their address: limits
// for their number, for the memory that they cause, and for the answers to them.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstring>
#include <memory>
#include <vector>

#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/protocol/test_wire.h"
#include "plugins/rxd/wire/stock.h"

namespace weft::rxd::lossless {
namespace {

TEST(Strangers, AnRtsCausesNoStateAndNoLargerAnswer) {
  Wire wire(64);
  End a(wire, 0, quick());
  const auto rts = [&](uint32_t from, bool marked) {
    uint8_t bytes[stock::kMaxHeader];
    const size_t size = stock::encode(
        {.type = stock::Type::kRts, .marked = marked, .index = 5, .name = address_of(from)}, bytes);
    Buffer buffer;
    EXPECT_FALSE(a.core().on_datagram({bytes, size}, buffer, nullptr));
    return size;
  };
  size_t size = rts(77, true);
  wire.run();
  EXPECT_EQ(wire.strangers, 1U);
  EXPECT_LE(wire.last_to_stranger, size);
  EXPECT_EQ(a.core().peers(), 0U);
  const size_t before = mallinfo2().uordblks;
  for (uint32_t i = 0; i < 5000; ++i) {
    rts(100 + i, true);
    while (wire.step()) {
    }
  }
  EXPECT_EQ(a.core().peers(), 0U);
  EXPECT_LE(mallinfo2().uordblks, before + 4096);
  // More than handshake_rate within a second are not answered.
  wire.strangers = 0;
  const uint64_t limited = a.core().counters().limited.value();
  for (uint32_t i = 0; i < 20'000; ++i) {
    rts(100 + i, true);
    while (wire.step()) {
    }
  }
  EXPECT_LE(wire.strangers, quick().handshake_rate);
  EXPECT_EQ(a.core().counters().limited.value() - limited, 20'000 - wire.strangers);
  // RTS packets in stock's format make max_stock_peers objects, and no more.
  wire.pass(2000 * kMillisecond);
  for (uint32_t i = 0; i < 5000; ++i) {
    rts(100 + i, false);
    while (wire.step()) {
    }
  }
  EXPECT_LE(a.core().peers(), quick().max_stock_peers + 1);
}

// A process of a peer's host may say that it is a context of the peer. Its messages have the peer's
// name if the peer says how many contexts it has.
TEST(Strangers, APlaceCountsIfTheEndpointHasIt) {
  constexpr uint32_t kOwner = 2;
  constexpr uint8_t kPlace = 3;
  enum Owner { kTalks, kIsNew, kIsAbsent };
  for (const Owner owner : {kTalks, kIsNew, kIsAbsent})
    for (const uint8_t last : {uint8_t(kPlace - 1), kPlace}) {
      SCOPED_TRACE(testing::Message() << owner << ", last " << int(last));
      Wire wire(64);
      End hub(wire, 0, quick());
      hub.named = kOwner + 1;
      Settings settings = quick();
      settings.last_place = last;
      std::unique_ptr<End> first;
      if (owner != kIsAbsent) first = std::make_unique<End>(wire, kOwner, settings);
      char text[8] = "word";
      if (owner == kTalks) {
        ASSERT_EQ(first->send(0, text, sizeof text), 0);
        wire.pass(kMillisecond);
      }
      settings = quick();
      settings.place = kPlace;
      End context(wire, kOwner + kPlace, settings);
      ASSERT_EQ(context.send(0, text, sizeof text), 0);
      wire.pass(5000 * kMillisecond);
      EXPECT_EQ(context.done - context.failed, 1U);
      size_t named = 0, all = 0;
      hub.receiver().visit_unexpected(kOwner, [&](sdk::Unexpected &) { ++named; });
      hub.receiver().visit_unexpected(sdk::Matcher::kAnySource, [&](sdk::Unexpected &) { ++all; });
      const size_t others = owner == kTalks ? 1 : 0;
      EXPECT_EQ(all, others + 1);
      EXPECT_EQ(named, others + (owner != kIsAbsent && last == kPlace ? 1 : 0));
    }
}

// Also if this side has been connecting to the endpoint for some time, whose first context is not
// open.
TEST(Strangers, APlaceIsAskedForWhileTheEndpointIsCalled) {
  constexpr uint32_t kOwner = 2;
  constexpr uint8_t kPlace = 3;
  Wire wire(64);
  End hub(wire, 0, quick());
  hub.named = kOwner + 1;
  Settings settings = quick();
  settings.last_place = kPlace;
  End first(wire, kOwner, settings);
  first.core().only_tell(true);
  char text[8] = "word";
  ASSERT_EQ(hub.send(kOwner, text, sizeof text), 0);
  wire.pass(100 * kMillisecond);
  settings = quick();
  settings.place = kPlace;
  End context(wire, kOwner + kPlace, settings);
  ASSERT_EQ(context.send(0, text, sizeof text), 0);
  wire.pass(20 * kMillisecond);
  size_t named = 0;
  hub.receiver().visit_unexpected(kOwner, [&](sdk::Unexpected &) { ++named; });
  EXPECT_EQ(named, 1U);
}

// A hub that is asked for a name by the context kPlace of the endpoint kOwner.
struct Claim {
  static constexpr uint32_t kOwner = 2;
  static constexpr uint8_t kPlace = 3;

  Claim() : hub(wire, 0, quick()), context(wire, kOwner + kPlace, of_place(kPlace)) {}
  static Settings of_place(uint8_t place) {
    Settings settings = quick();
    settings.place = place;
    settings.last_place = kPlace;
    return settings;
  }
  std::unique_ptr<End> open_owner() { return std::make_unique<End>(wire, kOwner, of_place(0)); }
  void say(End &from) { ASSERT_EQ(from.send(0, text, sizeof text), 0); }
  // Messages at the hub that have the endpoint's name.
  size_t named() {
    size_t count = 0;
    hub.receiver().visit_unexpected(kOwner, [&](sdk::Unexpected &) { ++count; });
    return count;
  }
  // The index of the hub's question to the owner; 0: it is none.
  static uint64_t question(const Datagram &d) {
    const stock::Parsed parsed = stock::parse({d.bytes.data(), d.size}, FI_SOCKADDR_IP);
    return d.to == kOwner && parsed.reject == stock::Reject::kNone && parsed.packet.marked
               ? parsed.packet.index
               : 0;
  }

  char text[8] = "word";
  Wire wire{64};
  End hub, context;
};

// Messages of the endpoint end a doubt, but they answer no question.
TEST(Strangers, AQuestionAboutPlacesIsRepeatedWhileTheEndpointTalks) {
  Claim claim;
  claim.hub.named = Claim::kOwner + 1;
  const auto owner = claim.open_owner();
  claim.say(*owner);
  claim.wire.pass(kMillisecond);
  int questions = 0;
  claim.wire.loses = [&](const Datagram &d) { return Claim::question(d) != 0 && ++questions <= 5; };
  claim.say(claim.context);
  for (size_t said = 1; said <= 100; ++said) {
    claim.say(*owner);
    claim.wire.pass(kMillisecond / 2);
    ASSERT_LE(claim.named(), said + 2);
  }
  claim.wire.pass(100 * kMillisecond);  // the context asks again
  EXPECT_EQ(claim.named(), 102U);
  EXPECT_EQ(questions, 6) << "the answer ends it";
}

// The context is a peer without a name when the endpoint gets into the address vector, so it asks
// no more.
TEST(Strangers, AQuestionAboutPlacesOutlivesTheConnection) {
  Claim claim;
  claim.hub.named = 0;
  auto owner = claim.open_owner();
  claim.say(*owner);
  claim.say(claim.context);
  claim.wire.pass(kMillisecond);
  EXPECT_EQ(claim.named(), 0U);
  claim.hub.named = Claim::kOwner + 1;
  claim.hub.core().introduce(Claim::kOwner, address_of(Claim::kOwner));
  EXPECT_EQ(claim.named(), 1U);
  int questions = 0;
  claim.wire.loses = [&](const Datagram &d) { return Claim::question(d) != 0 && ++questions == 1; };
  const sdk::Address address = address_of(Claim::kOwner + Claim::kPlace);
  claim.hub.core().introduce_context(claim.hub.index_of_context(address, Claim::kPlace), address,
                                     Claim::kPlace);
  claim.wire.step();
  EXPECT_EQ(questions, 1);
  owner.reset();  // says so
  owner = claim.open_owner();
  claim.wire.pass(100 * kMillisecond);
  EXPECT_EQ(claim.named(), 2U);
}

// It has no contexts, and is not asked any more.
TEST(Strangers, AStockEndpointAnswersAQuestionAboutPlaces) {
  Claim claim;
  claim.hub.named = Claim::kOwner + 1;
  uint64_t asked = 0;
  int questions = 0;
  claim.wire.loses = [&](const Datagram &d) {
    if (Claim::question(d) == 0) return false;
    asked = Claim::question(d);
    ++questions;
    return true;
  };
  claim.say(claim.context);
  claim.wire.pass(kMillisecond);
  ASSERT_NE(asked, 0U);
  uint8_t bytes[stock::kMaxHeader];
  const size_t size = stock::encode(
      {.type = stock::Type::kCts, .peer = uint32_t(asked), .index = 7, .rts_index = asked}, bytes);
  Buffer buffer;
  EXPECT_FALSE(claim.hub.core().on_datagram({bytes, size}, buffer, nullptr));
  const int before = questions;
  claim.wire.pass(500 * kMillisecond);
  EXPECT_EQ(questions, before);
  EXPECT_EQ(claim.named(), 0U);
  EXPECT_EQ(claim.hub.receiver().unexpected(), 1U) << "the context need not wait";
}

// Answers to peers that prove their address do not count for handshake_rate, up to ten times the
// rate. Without this limit, peers that connect again and again would remove it for forged
// addresses.
TEST(Strangers, ProvenPeersAreAnsweredBeyondTheRate) {
  constexpr uint32_t kRate = 20, kVisitors = 15 * kRate;
  Wire wire(1 << 14);
  Settings settings = quick();
  settings.handshake_rate = kRate;
  settings.peer_timeout_ns = 60'000 * kMillisecond;
  End hub(wire, 0, settings);
  Settings patient = quick();
  patient.peer_timeout_ns = 60'000 * kMillisecond;
  char text[64] = "a visitor";
  std::vector<std::unique_ptr<End>> visitors;
  for (uint32_t i = 0; i < kVisitors; ++i) {
    visitors.push_back(std::make_unique<End>(wire, 1 + i, patient));
    ASSERT_EQ(visitors[i]->send(0, text, sizeof text, false), 0);
    wire.pass(kMillisecond / 10);
  }
  EXPECT_GT(hub.core().peers(), 5 * kRate);
  EXPECT_LE(hub.core().peers(), 10 * kRate);
  wire.pass(5000 * kMillisecond);
  EXPECT_EQ(hub.core().peers(), kVisitors);
  for (const auto &visitor : visitors) EXPECT_EQ(visitor->failed, 0U);
}

// Ten times as many visitors as max_unnamed_peers, with real handshakes. Memory stays bounded; the
// transfer at the same time, and a peer with something outstanding, are not affected.
TEST(Strangers, IdlePeersMakeRoomForNewOnes) {
  constexpr uint32_t kLimit = 200, kVisitors = 10 * kLimit;
  Wire wire(1 << 14);
  Settings settings = quick();
  settings.max_unnamed_peers = kLimit;
  settings.peer_timeout_ns = 60'000 * kMillisecond;
  End hub(wire, 0, settings), partner(wire, 1, quick()), patient(wire, 2, quick());
  hub.named = 2;
  std::vector<uint8_t> out(300'000, 7), in(300'000);
  char text[64] = "a visitor", room[64];
  // A peer that is not in the address vector, and whose message waits for a receive.
  ASSERT_EQ(patient.send(0, text, sizeof text, false), 0);
  wire.pass(kMillisecond);
  std::vector<std::unique_ptr<End>> visitors;
  const auto visit = [&](uint32_t i) {
    hub.post(room, sizeof room);
    ASSERT_EQ(visitors[i]->send(0, text, sizeof text), 0);
    wire.pass(kMillisecond / 10);
    ASSERT_EQ(hub.posted(), 0U) << "visitor " << i;
    ASSERT_LE(hub.core().unnamed_peers(), kLimit);
  };
  for (uint32_t i = 0; i < kVisitors; ++i) {
    if (i % 50 == 0) {
      partner.post(in.data(), in.size());
      ASSERT_EQ(hub.send(1, out.data(), out.size()), 0);
    }
    visitors.push_back(std::make_unique<End>(wire, 3 + i, quick()));
    visit(i);
  }
  wire.pass(10 * kMillisecond);
  EXPECT_EQ(hub.core().peers(), size_t{kLimit} + 1);
  EXPECT_EQ(hub.core().counters().refused.value(), 0U);
  EXPECT_GE(hub.core().counters().dismissed.value(), kVisitors - kLimit);
  EXPECT_EQ(hub.failed + partner.failed, 0U);
  EXPECT_EQ(hub.core().counters().timeouts.value(), 0U);
  EXPECT_EQ(partner.posted(), 0U);
  EXPECT_EQ(in, out);
  // Removed peers were told and connect again; the peer with an outstanding message was not
  // removed.
  for (uint32_t i = 0; i < 10; ++i) visit(i);
  for (uint32_t i = 0; i < kVisitors; ++i) ASSERT_EQ(visitors[i]->failed, 0U);
  EXPECT_EQ(hub.receiver().unexpected(), 1U);
  EXPECT_EQ(patient.core().counters().timeouts.value(), 0U);
}

// While no peer can be removed, newcomers are refused without state; they are admitted afterwards.
TEST(Strangers, NewPeersWaitWhileNoneIsIdle) {
  constexpr uint32_t kLimit = 20, kVisitors = 3 * kLimit;
  Wire wire(1 << 12);
  Settings settings = quick();
  settings.max_unnamed_peers = kLimit;
  End hub(wire, 0, settings);
  hub.named = 1;
  char text[64] = "a visitor", room[64];
  std::vector<std::unique_ptr<End>> visitors;
  for (uint32_t i = 0; i < kVisitors; ++i) {
    visitors.push_back(std::make_unique<End>(wire, 1 + i, quick()));
    ASSERT_EQ(visitors[i]->send(0, text, sizeof text), 0);
    wire.pass(kMillisecond);
  }
  wire.pass(1000 * kMillisecond);
  EXPECT_EQ(hub.core().peers(), size_t{kLimit});
  EXPECT_EQ(hub.receiver().unexpected(), size_t{kLimit});
  EXPECT_GT(hub.core().counters().refused.value(), 0U);
  EXPECT_EQ(hub.warnings, 1U);
  for (uint32_t i = 0; i < kVisitors; ++i) {
    hub.post(room, sizeof room);
    wire.pass(50 * kMillisecond);
    ASSERT_LE(hub.core().unnamed_peers(), kLimit);
  }
  wire.pass(2000 * kMillisecond);
  EXPECT_EQ(hub.posted(), 0U);
  for (const auto &visitor : visitors) EXPECT_EQ(visitor->failed, 0U);
}

// The sender gets a new token, and no state.
TEST(Strangers, AConnectWithAWrongTokenGetsANewToken) {
  Wire wire(64);
  End a(wire, 0, quick());
  const uint8_t token[wire::kTokenSize] = {1, 2, 3};
  uint8_t name[wire::kNameSize] = {};
  std::memcpy(name, address_of(9).data(), address_of(9).size());
  uint8_t bytes[wire::kConnectSize];
  wire::Writer writer(bytes);
  writer.connect({}, 3, wire::Token(token), name,
                 {.instance = 1, .connection = 1, .cookie = 1, .datagram = 1472});
  Buffer buffer;
  EXPECT_FALSE(a.core().on_datagram({bytes, writer.size()}, buffer, nullptr));
  wire.run();
  EXPECT_EQ(a.core().peers(), 0U);
  EXPECT_EQ(wire.strangers, 1U);
  EXPECT_EQ(wire.last_to_stranger, wire::kChallengeSize)
      << "an answer is smaller than its question";
  EXPECT_EQ(a.core().counters().rejected.value(), 1U);
}

}  // namespace
}  // namespace weft::rxd::lossless
