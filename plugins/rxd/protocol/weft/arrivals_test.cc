// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/arrivals.h"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include "plugins/rxd/protocol/weft/test_link.h"

namespace weft::rxd {
namespace {

// Messages of a peer, and the conversation in as far as it has to do with them.
struct Arriving final : Linked, Conversation {
  ~Arriving() override {
    arrivals.end(FI_ECONNRESET);
    answers.clear();
  }
  void start(TxOp &) override {}
  bool on_packet(std::span<const uint8_t>, Buffer &) override { return false; }
  void on_idle() override {}
  void on_room() override {}
  void on_deadline(uint64_t) override {}
  void fetch(Incoming &m) override { arrivals.fetch(m); }
  void fetch_first(Incoming &m, size_t n) override { arrivals.fetch_first(m, n); }
  void discard(Incoming &m) override { arrivals.discard(m); }
  void end(int, Queue *) override {}
  void part() override {}
  bool parted() const override { return false; }
  bool busy() const override { return false; }

  static wire::MessageFrame message(uint32_t id, uint64_t length, bool announced = false) {
    return {.tagged = true, .announced = announced, .id = id, .tag = 7, .total = length};
  }
  std::span<const uint8_t> bytes(size_t n) {
    if (bytes_.size() < n) bytes_.resize(n, 0x33);
    return std::span<const uint8_t>(bytes_).first(n);
  }
  void post(size_t n) {
    if (place_.size() < n) place_.resize(n);
    near.post(place_.data(), n);
  }
  // What the peer is told: the limit of the last pull (0: none), and whether there is a `done`.
  struct Told {
    uint64_t limit = 0;
    bool done = false;
  };
  Told told() {
    Frames frames;
    arrivals.add_pulls(frames.writer);
    answers.add(frames.writer);
    Told out;
    wire::FrameReader reader(frames.writer.written(), false);
    while (reader.next()) {
      if (reader.kind() == wire::FrameKind::kPull) out.limit = reader.pull().limit;
      out.done |= reader.kind() == wire::FrameKind::kDone;
    }
    return out;
  }
  Answers answers{link};
  Arrivals arrivals{link, answers, *this, 1472};

 private:
  std::vector<uint8_t> bytes_, place_ = std::vector<uint8_t>(1);
};

TEST(Arrivals, AMessageInOnePacket) {
  for (const bool early : {false, true})
    for (const bool wants_done : {false, true}) {
      Arriving peer;
      wire::MessageFrame f = Arriving::message(0, 100);
      f.wants_done = wants_done;
      if (early) peer.post(100);
      EXPECT_TRUE(peer.arrivals.take(f, peer.bytes(100)));
      EXPECT_EQ(peer.arrivals.empty(), early || !wants_done);
      EXPECT_EQ(peer.told().done, early && wants_done);
      if (!early) {
        peer.post(100);
        EXPECT_EQ(peer.told().done, wants_done);
      }
      EXPECT_EQ(peer.near.posted(), 0U);
      EXPECT_TRUE(peer.arrivals.empty());
      EXPECT_FALSE(peer.arrivals.waits() || peer.is_over());
    }
}

// How much of a long message is asked for, and how its sender hears of its end.
TEST(Arrivals, ALongMessageIsPulledAsFarAsItIsWanted) {
  constexpr uint64_t kPart = 1400, kMegabyte = 1 << 20;
  enum When { kEarly, kLate, kDiscarded };
  const struct {
    uint64_t length, room;  // of the message, and of its receive
    When when;              // the receive is posted
    bool wants_done;
    uint64_t sent;  // bytes
    bool done;
  } rows[] = {
      {kMegabyte, kMegabyte, kEarly, false, kMegabyte, false},
      {kMegabyte, kMegabyte, kEarly, true, kMegabyte, true},
      {kMegabyte, kMegabyte, kLate, false, kMegabyte, false},
      {kMegabyte, kMegabyte, kLate, true, kMegabyte, true},
      {kMegabyte, 100'000, kEarly, false, 100'000, true},
      {kMegabyte, 100'000, kLate, false, 100'000, true},
      {kMegabyte, 10, kEarly, false, kPrefix, true},  // they may come unasked
      {3000, 3000, kEarly, false, 3000, false},
      {3000, 10, kLate, false, 3000, false},
      {kMegabyte, 0, kDiscarded, false, kPart, true},
  };
  for (const auto &row : rows) {
    Arriving peer;
    if (row.when == kEarly) peer.post(row.room);
    wire::MessageFrame f = Arriving::message(0, row.length, true);
    f.wants_done = row.wants_done;
    EXPECT_TRUE(peer.arrivals.take(f, peer.bytes(kPart)));
    uint64_t sent = kPart;
    if (row.when != kEarly) {
      EXPECT_FALSE(peer.arrivals.wants_pulls() || peer.arrivals.waits());
      if (row.when == kLate) peer.post(row.room);
      if (row.when == kDiscarded) {
        Incoming &m = *peer.arrivals.find(0);
        peer.near.receiver().forget(m);
        peer.arrivals.discard(m);
      }
    }
    EXPECT_EQ(peer.arrivals.waits(), row.when != kDiscarded);
    EXPECT_EQ(peer.pools.pulling, row.when != kDiscarded ? 1U : 0U);
    bool done = false;
    for (uint64_t limit = 0; !done;) {
      const Arriving::Told told = peer.told();
      done = told.done;
      EXPECT_TRUE(told.limit == 0 || told.limit > limit);
      limit = std::max(limit, told.limit);
      EXPECT_LE(limit, std::max(row.room, kPrefix));
      const uint64_t n = std::min(kPart, std::max(limit, sent) - sent);
      if (done || n == 0) break;
      EXPECT_TRUE(
          peer.arrivals.take(*peer.arrivals.find(0), {.id = 0, .offset = sent}, peer.bytes(n)));
      sent += n;
    }
    EXPECT_EQ(sent, row.sent) << &row - rows;
    EXPECT_EQ(done, row.done) << &row - rows;
    EXPECT_EQ(peer.near.posted(), 0U) << &row - rows;
    EXPECT_TRUE(peer.arrivals.empty());
    EXPECT_FALSE(peer.arrivals.waits());
    EXPECT_EQ(peer.pools.pulling, 0U);
    // What is under way still counts, and does no harm.
    peer.arrivals.take_late({.id = 0, .offset = sent}, kPart);
    EXPECT_FALSE(peer.is_over());
  }
}

TEST(Arrivals, TheFirstBytesAreAskedForWhenTheyAreWaitedFor) {
  Arriving peer;
  EXPECT_TRUE(peer.arrivals.take(Arriving::message(0, 100'000, true), peer.bytes(0)));
  Incoming &m = *peer.arrivals.find(0);
  peer.arrivals.fetch_first(m, 5000);
  EXPECT_EQ(peer.told().limit, 5000U);
  peer.arrivals.fetch_first(m, 4000);
  EXPECT_EQ(peer.told().limit, 0U);
}

TEST(Arrivals, WhatNoPeerMaySend) {
  {
    Arriving peer;  // 64 messages
    for (uint32_t i = 0; i < 64; ++i) EXPECT_TRUE(peer.arrivals.take(Arriving::message(i, 0), {}));
    EXPECT_FALSE(peer.arrivals.take(Arriving::message(64, 0), {}));
    EXPECT_TRUE(peer.is_over());
  }
  const struct {
    uint64_t offset;
    size_t n;
    bool good;
  } rows[] = {
      {1400, 64, true},        {kPrefix - 1, 1, true}, {kPrefix, 1, false},
      {kPrefix - 1, 2, false}, {200'000, 0, false},
  };
  for (const auto &row : rows) {
    Arriving peer;
    EXPECT_TRUE(peer.arrivals.take(Arriving::message(0, 100'000, true), peer.bytes(1400)));
    EXPECT_EQ(peer.arrivals.take(*peer.arrivals.find(0), {.id = 0, .offset = row.offset},
                                 peer.bytes(row.n)),
              row.good);
    EXPECT_EQ(peer.is_over(), !row.good);
  }
}

// Receives raise the peer's credit, and it is told before it has none.
TEST(Arrivals, ReceivesRaiseTheCredit) {
  Arriving peer;
  for (uint32_t i = 0; i < 40; ++i) {
    peer.post(1);
    EXPECT_TRUE(peer.arrivals.take(Arriving::message(i, 1), peer.bytes(1)));
  }
  EXPECT_FALSE(peer.arrivals.grants().tells());  // with the next acknowledgement
  EXPECT_TRUE(peer.arrivals.take(Arriving::message(40, 1), peer.bytes(1)));
  EXPECT_FALSE(peer.arrivals.grants().tells());
  Incoming late;
  late.unasked = 1;
  peer.arrivals.consumed(late);
  EXPECT_TRUE(peer.arrivals.grants().tells());
}

}  // namespace
}  // namespace weft::rxd
