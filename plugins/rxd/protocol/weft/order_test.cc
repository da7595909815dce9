// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/order.h"

#include <gtest/gtest.h>

#include <deque>

#include "plugins/rxd/protocol/weft/test_link.h"

namespace weft::rxd {
namespace {

// Packets of a peer that are put in order, and what is processed of them.
struct Ordered : Linked {
  Ordered() {
    near.keeps = true;
    link.channel.set_share(kWindow);
  }
  ~Ordered() {
    order.clear(link);
    EXPECT_EQ(pools.kept.in_use(), 0U);
  }
  // A packet in which operation `id` begins, or that has data of it; with or without an answer.
  std::span<const uint8_t> packet(uint64_t number, bool begins, uint32_t id, bool answers = false) {
    Frames &page = pages_.emplace_back();
    wire::Writer &w = page.writer;
    w.header({.kind = wire::PacketKind::kData,
              .flags = begins ? wire::kFlagOrdered : uint16_t(0),
              .sequence = uint32_t(number)});
    if (answers) w.done({.id = 77});
    if (begins) {
      w.message({.id = id}, 0);
    } else {
      w.data({.id = id}, 0);
    }
    return w.written();
  }
  bool keep(uint64_t number, std::span<const uint8_t> bytes, bool answered = false) {
    link.channel.accept(number, wire::parse_header(bytes).value(), 1'000'000'000);
    return order.keep(link, number, bytes, buffer_, answered);
  }
  void take() {
    order.take(link, [this](const wire::Packet &p, Order::Frames which) {
      processed.push_back({p.header.sequence, which});
      wire::FrameReader frames(p);
      while (frames.next())
        if (which != Order::Frames::kAnswers && wire::starts(frames.kind())) {
          EXPECT_TRUE(order.begin(frames.id()));
        }
      if (full_after == processed.size()) near.core().set_full(true);
      return processed.size() != over_after;
    });
  }
  struct Processed {
    uint32_t number;
    Order::Frames which;
    bool operator==(const Processed &) const = default;
  };
  std::vector<Processed> processed;
  size_t over_after = 0, full_after = 0;
  Order order;

 private:
  std::deque<Frames> pages_;
  Buffer buffer_;
};

using Log = std::vector<Ordered::Processed>;
constexpr auto kAll = Order::Frames::kAll, kAnswers = Order::Frames::kAnswers,
               kOthers = Order::Frames::kOthers;

TEST(Order, OperationsBeginInOrder) {
  Ordered peer;
  EXPECT_FALSE(peer.order.begin(1));
  EXPECT_TRUE(peer.order.begin(0));
  EXPECT_FALSE(peer.order.begin(0));
  const auto known = peer.packet(0, false, 0), unknown = peer.packet(0, false, 1),
             begins = peer.packet(0, true, 5);
  EXPECT_TRUE(peer.order.has_begun(*wire::parse(known)));
  EXPECT_FALSE(peer.order.has_begun(*wire::parse(unknown)));
  EXPECT_TRUE(peer.order.has_begun(*wire::parse(begins)));
  EXPECT_TRUE(Order::reports(*wire::parse(known)));
  EXPECT_TRUE(Order::reports(*wire::parse(begins)));
}

// Data come before the operation, and all that before the packet that begins it.
TEST(Order, PacketsWaitForThoseBeforeThem) {
  Ordered peer;
  EXPECT_TRUE(peer.keep(3, peer.packet(3, false, 1)));
  EXPECT_TRUE(peer.keep(2, peer.packet(2, true, 1)));
  peer.take();
  EXPECT_EQ(peer.processed, Log{});
  EXPECT_TRUE(peer.keep(0, peer.packet(0, true, 0)));
  peer.take();
  EXPECT_EQ(peer.processed, (Log{{0, kAll}}));
  EXPECT_TRUE(peer.keep(1, peer.packet(1, false, 0)));
  peer.take();
  EXPECT_EQ(peer.processed, (Log{{0, kAll}, {1, kAll}, {2, kAll}, {3, kAll}}));
  EXPECT_TRUE(peer.order.empty());
  EXPECT_EQ(peer.near.released, 4U);
  EXPECT_FALSE(peer.is_over());
}

TEST(Order, DataOfAnOperationThatNeverBegan) {
  Ordered peer;
  EXPECT_TRUE(peer.keep(0, peer.packet(0, false, 0)));  // all before it are here
  peer.take();
  EXPECT_EQ(peer.processed, Log{});
  EXPECT_TRUE(peer.is_over());
}

TEST(Order, NothingIsProcessedAfterTheEnd) {
  Ordered peer;
  for (uint32_t i = 0; i < 3; ++i) EXPECT_TRUE(peer.keep(i, peer.packet(i, true, i)));
  peer.over_after = 2;
  peer.take();
  EXPECT_EQ(peer.processed.size(), 2U);
  EXPECT_EQ(peer.near.released, 2U);
  EXPECT_FALSE(peer.order.empty());
}

// The application does not read its completions: answers are processed once, the rest later.
TEST(Order, AnswersDoNotWaitForTheApplication) {
  Ordered peer;
  EXPECT_TRUE(peer.keep(0, peer.packet(0, true, 0)));
  EXPECT_TRUE(peer.keep(1, peer.packet(1, true, 1, true)));
  EXPECT_TRUE(peer.keep(2, peer.packet(2, true, 2, true), true));  // its answers were processed
  peer.full_after = 1;
  peer.take();
  EXPECT_EQ(peer.processed, (Log{{0, kAll}, {1, kAnswers}}));
  EXPECT_TRUE(peer.order.is_stalled());
  EXPECT_TRUE(peer.link.peer.wants_room);
  peer.near.core().set_full(false);
  peer.take();
  EXPECT_EQ(peer.processed, (Log{{0, kAll}, {1, kAnswers}, {1, kOthers}, {2, kOthers}}));
  EXPECT_FALSE(peer.order.is_stalled());
}

TEST(Order, KeepsSoManyPackets) {
  Ordered peer;
  for (uint32_t i = 1; i <= 256; ++i) EXPECT_TRUE(peer.keep(i, peer.packet(i, true, i)));
  EXPECT_FALSE(peer.keep(257, peer.packet(257, true, 257)));
  peer.order.clear(peer.link);
  EXPECT_EQ(peer.near.released, 256U);
  Ordered other;
  other.near.low = true;  // few receive buffers are left
  EXPECT_FALSE(other.keep(1, other.packet(1, true, 1)));
}

}  // namespace
}  // namespace weft::rxd
