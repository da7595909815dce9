// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/inbox.h"

#include <gtest/gtest.h>

#include "plugins/rxm/protocol/test_parts.h"

namespace weft::rxm {
namespace {

using Arrived = RxMessage::Form;

struct InboxTest : ::testing::Test {
  InboxTest() { c.set_level(kLevel); }
  ~InboxTest() override {
    EXPECT_EQ(shares.charged() != 0 || buffers() != 0, saved() != 0) << "charges left over";
    world.upper.forget_saved();
  }
  size_t saved() { return world.upper.receiver().unexpected(); }
  // Receive buffers that are kept.
  size_t buffers() const { return world.carrier.filled(); }
  sdk::Message of(uint64_t length) const { return {.source = c.peer().source(), .length = length}; }
  std::span<const uint8_t> bytes(size_t n) const { return {data, n}; }
  // The carrier gets the buffer back if it is not kept.
  void return_if(bool kept, Buffer &buffer) {
    if (!kept) world.carrier.release(buffer);
  }
  // A message of one packet that no receive is posted for.
  RxMessage &saved_whole(size_t length, Tell tell = Tell::kNothing, uint64_t id = 0) {
    RxMessage *const m = inbox.add(c, Arrived::kWhole, of(length));
    Buffer &buffer = world.carrier.fill();
    return_if(inbox.keep(c, *m, bytes(length), buffer), buffer);
    m->received = length;
    m->tell = tell;
    m->id = id;
    inbox.save(*m);
    word = inbox.saved_all(c, *m);
    return *m;
  }
  Inbox::Taken segment(uint64_t id, uint32_t number, size_t n, uint64_t whole, SegmentKind kind,
                       Tell asked = Tell::kNothing) {
    Packet p{};
    p.type = PacketType::kSegment;
    p.segment = kind;
    p.segment_number = number;
    p.message = id;
    p.size = whole;
    p.payload = bytes(n);
    Buffer &buffer = world.carrier.fill();
    const Inbox::Taken taken = inbox.take_segment(c, p, of(whole), asked, buffer);
    return_if(taken.kept, buffer);
    return taken;
  }
  // A receive is posted, and gets this message.
  Inbox::Word receive(RxMessage &m, void *to, size_t length) {
    world.upper.post(to, length);
    EXPECT_EQ(world.upper.wanted.back().first, &m);
    m.receive = world.upper.wanted.back().second;
    return inbox.deliver(m);
  }
  uint8_t data[600] = {1, 2, 3, 4, 5, 6, 7, 8};
  Inbox::Word word;
  PartsWorld world;
  Connection &c{world.connected(1, 1)};
  Shares shares{world.carrier, world.peers, world.settings, world.counters};
  Fetches fetches{world.carrier, world.settings};
  Inbox inbox{world.carrier, world.upper, world.settings, world.counters,
              world.peers,   shares,      fetches};
};

TEST_F(InboxTest, AnExpectedMessageGoesToItsReceive) {
  EXPECT_FALSE(inbox.take(of(8), bytes(8))) << "none is posted";
  uint8_t to[4] = {};
  for (const size_t length : {size_t{3}, size_t{0}, size_t{8}}) {
    world.upper.post(to, sizeof to);
    EXPECT_TRUE(inbox.take(of(length), bytes(length)));
    EXPECT_EQ(world.upper.completion(), length > sizeof to ? FI_ETRUNC : 0);
  }
  EXPECT_EQ(std::memcmp(to, data, sizeof to), 0);
  EXPECT_EQ(world.counters.saved.value(), 0u);
}

TEST_F(InboxTest, WhatIsSavedStaysInItsBufferUntilBuffersAreFew) {
  RxMessage &first = saved_whole(8);
  EXPECT_EQ(buffers(), 1u);
  EXPECT_EQ(shares.charged(), 0u);
  world.carrier.low = true;
  RxMessage &second = saved_whole(8);
  EXPECT_EQ(buffers(), 1u);
  EXPECT_EQ(shares.charged(), sizeof(RxMessage) + 8);
  EXPECT_EQ(world.counters.copied.value(), 1u);
  for (RxMessage *m : {&first, &second}) {
    uint8_t to[8] = {};
    EXPECT_EQ(receive(*m, to, sizeof to).to, nullptr);
    EXPECT_EQ(std::memcmp(to, data, sizeof to), 0);
    EXPECT_EQ(world.upper.completion(), 0);
  }
  EXPECT_EQ(buffers(), 0u);
  EXPECT_EQ(shares.charged(), 0u);
}

// Past its share a peer keeps buffers, and is not read any more.
TEST_F(InboxTest, WhoTakesTooMuchIsHeld) {
  world.settings.unexpected_limit = sizeof(RxMessage) + 100;
  world.carrier.left = 0;
  RxMessage &m = saved_whole(400);
  EXPECT_TRUE(c.is_held());
  EXPECT_EQ(buffers(), 0u) << "a held connection's packets are copied past the limit";
  RxMessage &empty = saved_whole(0);
  EXPECT_EQ(buffers(), 0u);
  c.set_state(State::kConnected);
  for (RxMessage *one : {&m, &empty}) {
    world.upper.receiver().forget(*one);
    inbox.discard(*one, true);
  }
}

TEST_F(InboxTest, APeerWithoutMessagesMayGo) {
  RxMessage &m = saved_whole(8);
  c.set_state(State::kEnded);
  Peer &p = c.peer();
  EXPECT_FALSE(world.peers.has_unused());
  shares.forget(c);
  world.peers.closed(c);
  world.peers.erase(c);
  world.upper.receiver().forget(m);
  inbox.discard(m, true);
  EXPECT_TRUE(world.peers.has_unused());
  world.peers.visit_unused([&](Peer &one) {
    EXPECT_EQ(&one, &p);
    return true;
  });
  EXPECT_FALSE(world.peers.has_unused());
}

// ---- whom to tell ----

TEST_F(InboxTest, TheSenderIsToldOfWhatItWaitsFor) {
  uint8_t to[8];
  RxMessage &delivered = saved_whole(8, Tell::kDelivered, 5);
  EXPECT_EQ(word.to, &c);
  EXPECT_EQ(word.id, 5u);
  EXPECT_EQ(receive(delivered, to, sizeof to).to, nullptr) << "it has been told";
  RxMessage &matched = saved_whole(8, Tell::kMatched, 6);
  EXPECT_EQ(word.to, nullptr);
  EXPECT_TRUE(c.arriving.has_matchless());
  const Inbox::Word later = receive(matched, to, sizeof to);
  EXPECT_EQ(later.to, &c);
  EXPECT_EQ(later.id, 6u);
  EXPECT_FALSE(later.always);
  EXPECT_TRUE(c.arriving.empty());
}

TEST_F(InboxTest, ADiscardedMessageIsToldOfToo) {
  RxMessage &matched = saved_whole(8, Tell::kMatched, 6);
  RxMessage *const large = inbox.add(c, Arrived::kRendezvous, of(100'000));
  large->id = 7;
  for (RxMessage *m : {&matched, large}) {
    if (m != large) world.upper.receiver().forget(*m);
    const uint64_t id = m->id;
    const bool is_large = m == large;
    const Inbox::Word told = inbox.discard(*m, true);
    EXPECT_EQ(told.to, &c);
    EXPECT_EQ(told.id, id);
    EXPECT_EQ(told.always, is_large) << "a stock peer waits for that, too";
  }
  RxMessage *const late = inbox.add(c, Arrived::kRendezvous, of(100'000));
  EXPECT_EQ(inbox.discard(*late, false).to, nullptr) << "the endpoint closes";
  EXPECT_TRUE(c.arriving.empty());
}

TEST_F(InboxTest, NobodyIsToldOnALinkThatCloses) {
  RxMessage &matched = saved_whole(8, Tell::kMatched, 6);
  inbox.untie(c);
  EXPECT_TRUE(c.arriving.empty());
  uint8_t to[8];
  EXPECT_EQ(receive(matched, to, sizeof to).to, nullptr);
}

// ---- segments ----

TEST_F(InboxTest, SegmentsMakeAMessage) {
  uint8_t to[1100] = {};
  world.upper.post(to, sizeof to);
  EXPECT_EQ(segment(1, 0, 600, 1100, SegmentKind::kFirst, Tell::kMatched).violation, nullptr);
  EXPECT_TRUE(c.arriving.has_unfinished());
  const Inbox::Taken last = segment(1, 1, 500, 1100, SegmentKind::kLast, Tell::kMatched);
  EXPECT_EQ(last.word.to, &c);
  EXPECT_EQ(last.word.id, 1u);
  EXPECT_EQ(world.upper.completion(), 0);
  EXPECT_EQ(std::memcmp(to, data, 600), 0);
  EXPECT_EQ(std::memcmp(to + 600, data, 500), 0);
  EXPECT_FALSE(c.arriving.has_unfinished());
}

TEST_F(InboxTest, AReceiveMayComeBetweenSegments) {
  for (const bool discarded : {false, true}) {
    EXPECT_TRUE(segment(1, 0, 600, 1800, SegmentKind::kFirst, Tell::kDelivered).kept);
    EXPECT_EQ(saved(), 1u);
    uint8_t to[1800] = {};
    if (discarded) {
      RxMessage &m = *world.upper.first_saved();
      world.upper.receiver().forget(m);
      EXPECT_EQ(inbox.discard(m, true).to, nullptr) << "more segments are coming";
    } else {
      world.upper.post(to, sizeof to);
      RxMessage &m = *world.upper.wanted.back().first;
      m.receive = world.upper.wanted.back().second;
      EXPECT_EQ(inbox.deliver(m).to, nullptr);
    }
    EXPECT_EQ(buffers(), 0u);
    EXPECT_FALSE(segment(1, 1, 600, 1800, SegmentKind::kMiddle).kept);
    EXPECT_EQ(world.upper.completion(), -1);
    EXPECT_EQ(segment(1, 2, 600, 1800, SegmentKind::kLast).word.to, &c);
    EXPECT_EQ(world.upper.completion(), discarded ? -1 : 0);
    EXPECT_EQ(std::memcmp(to + 1200, discarded ? to : data, 600), 0);
  }
}

TEST_F(InboxTest, SegmentsThatACorrectPeerDoesNotSend) {
  const struct {
    uint64_t id;
    uint32_t number;
    size_t n;
    uint64_t whole;
    SegmentKind kind;
  } rows[] = {
      {2, 1, 600, 1800, SegmentKind::kMiddle},  // without the first
      {1, 0, 600, 1800, SegmentKind::kFirst},   // twice
      {1, 2, 600, 1800, SegmentKind::kMiddle},  // one is missing
      {1, 1, 600, 1700, SegmentKind::kMiddle},  // of a message of another length
      {1, 1, 600, 1800, SegmentKind::kLast},    // before the end
      {3, 0, 600, 500, SegmentKind::kFirst},    // longer than the message
  };
  uint8_t to[1800];
  world.upper.post(to, sizeof to);
  EXPECT_EQ(segment(1, 0, 600, 1800, SegmentKind::kFirst).violation, nullptr);
  for (const auto &row : rows) {
    const Inbox::Taken taken = segment(row.id, row.number, row.n, row.whole, row.kind);
    EXPECT_NE(taken.violation, nullptr) << row.id << ' ' << row.number;
    EXPECT_FALSE(taken.kept);
  }
  inbox.lose_all(c, FI_EPROTO);
  EXPECT_EQ(world.upper.completion(), FI_EPROTO);
  EXPECT_TRUE(c.arriving.empty());
}

TEST_F(InboxTest, AsManyMessagesAtOnceAreNotCorrect) {
  uint64_t id = 0;
  for (; id < 64; ++id)
    EXPECT_EQ(segment(id, 0, 1, 2, SegmentKind::kFirst).violation, nullptr) << id;
  EXPECT_NE(segment(id, 0, 1, 2, SegmentKind::kFirst).violation, nullptr);
  EXPECT_EQ(segment(0, 1, 1, 2, SegmentKind::kLast).violation, nullptr);
  EXPECT_EQ(segment(id, 0, 1, 2, SegmentKind::kFirst).violation, nullptr);
  inbox.lose_all(c, FI_ECONNRESET);
}

// ---- the end of a connection ----

TEST_F(InboxTest, AMessageThatNeverCompletesFailsItsReceive) {
  EXPECT_TRUE(segment(1, 0, 600, 1800, SegmentKind::kFirst).kept);
  inbox.lose_all(c, FI_ECONNRESET);
  EXPECT_EQ(buffers(), 0u);
  EXPECT_EQ(saved(), 1u) << "it keeps its place in the order";
  EXPECT_EQ(shares.charged(), sizeof(RxMessage));
  uint8_t to[8];
  EXPECT_EQ(receive(*world.upper.first_saved(), to, sizeof to).to, nullptr);
  EXPECT_EQ(world.upper.completion(), FI_ECONNRESET);
  world.settings.unexpected_limit = 0;
  EXPECT_TRUE(segment(2, 0, 600, 1800, SegmentKind::kFirst).kept);
  inbox.lose_all(c, FI_ECONNRESET);
  EXPECT_EQ(saved(), 0u) << "past the limit it is dropped";
}

TEST_F(InboxTest, ALargeMessageIsLostWhenItsReadsHaveComeBack) {
  uint8_t to[8];
  world.upper.post(to, sizeof to);
  RxMessage *const m = inbox.add(c, Arrived::kRendezvous, of(8));
  m->vectors[0] = {100, 8, 1};
  m->count = 1;
  m->receive = world.upper.receiver().match(of(8));
  ASSERT_NE(m->receive, nullptr);
  fetches.read(*m);
  EXPECT_TRUE(c.arriving.is_read());
  inbox.lose_all(c, FI_ECONNRESET);
  EXPECT_TRUE(c.arriving.empty());
  EXPECT_EQ(world.upper.completion(), -1) << "the carrier may still write to its memory";
  EXPECT_EQ(fetches.on_read(*m, FI_ECANCELED).step, Fetches::Step::kOver);
  EXPECT_EQ(inbox.finish(*m, m->err).to, nullptr);
  EXPECT_EQ(world.upper.completion(), FI_ECONNRESET);
}

TEST_F(InboxTest, OnlyMemoryThatWasNamedIsWritten) {
  RxMessage *const read = inbox.add(c, Arrived::kRendezvous, of(8)), *const failed = inbox.add(
                                                                         c, Arrived::kRendezvous,
                                                                         of(8));
  read->id = 1;
  failed->id = 2;
  failed->failed = true;
  EXPECT_EQ(Inbox::written(c, 1), nullptr);
  EXPECT_EQ(Inbox::written(c, 2), failed);
  EXPECT_EQ(Inbox::written(c, 3), nullptr);
  for (RxMessage *m : {read, failed}) inbox.discard(*m, true);
}

TEST_F(InboxTest, TheFirstBytesOfAMessage) {
  RxMessage &m = saved_whole(8);
  uint8_t first[4] = {};
  EXPECT_EQ(Inbox::read_first(m, first, sizeof first), 0);
  EXPECT_EQ(std::memcmp(first, data, sizeof first), 0);
  EXPECT_EQ(Inbox::read_first(m, first, 9), -FI_EAGAIN) << "they are yet to come";
  m.err = FI_EIO;
  EXPECT_EQ(Inbox::read_first(m, first, sizeof first), -FI_EIO);
}

// A message that is on its way into a receive is reported under the peer's new name.
TEST_F(InboxTest, MessagesGetTheNewNameOfTheirPeer) {
  uint8_t to[1800];
  world.upper.post(to, sizeof to);
  EXPECT_EQ(segment(1, 0, 600, 1800, SegmentKind::kFirst).violation, nullptr);
  RxMessage &m = saved_whole(8);
  Peer &p = c.peer();
  const uint32_t before = p.source();
  world.peers.set_index(p, 9);
  inbox.rename(p, before, p.source());
  EXPECT_EQ(m.message.source, p.source());
  EXPECT_NE(before, p.source());
  inbox.lose_all(c, FI_ECONNRESET);
}

}  // namespace
}  // namespace weft::rxm
