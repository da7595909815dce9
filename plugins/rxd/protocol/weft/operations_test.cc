// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/operations.h"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <algorithm>

#include "plugins/rxd/protocol/weft/test_link.h"

namespace weft::rxd {
namespace {

using Kind = TxOp::Kind;

struct Ours : Linked {
  // What Outbox does: the first operation begins in the packet, and the first bytes with it.
  TxOp &begin(OutPacket &p, size_t sent, bool copied) {
    TxOp &op = *operations.unsent();
    op.id = operations.next_id();
    op.sent = sent;
    op.allowed = std::max<uint64_t>(op.allowed, sent);
    op.copied = copied;
    if (!copied && sent != 0) {
      p.source = &op;
      ++op.packets;
    }
    operations.begin(p);
    return op;
  }
  size_t ended() {
    operations.end_settled();
    return near.done;
  }
  // Everything that an operation needs at most: nothing may be left.
  ~Ours() { operations.end(FI_ECANCELED, nullptr); }
  Operations operations{link, Credit(64, 64)};
};

// What ends an operation.
TEST(Operations, EndWhenTheirLevelIsReached) {
  enum Event { kLeaves, kArrives, kDone };
  const struct {
    Kind kind;
    bool copied, transmit, delivery;
    std::vector<Event> events;  // the last one ends it
  } rows[] = {
      {Kind::kMessage, true, false, false, {kLeaves}},
      {Kind::kMessage, true, true, false, {kLeaves, kArrives}},
      {Kind::kMessage, true, false, true, {kLeaves, kArrives, kDone}},
      {Kind::kMessage, true, false, true, {kLeaves, kDone, kArrives}},
      {Kind::kMessage, false, false, false, {kLeaves, kArrives}},
      {Kind::kMessage, false, false, true, {kLeaves, kArrives, kDone}},
      {Kind::kWrite, false, false, false, {kLeaves, kArrives, kDone}},
      {Kind::kWrite, false, false, false, {kLeaves, kDone, kArrives}},
      {Kind::kRead, false, false, false, {kLeaves, kArrives, kDone}},
      {Kind::kAtomic, false, false, false, {kLeaves, kArrives, kDone}},
  };
  for (const auto &row : rows) {
    Ours ours;
    TxOp &op = ours.take(row.kind, 100);
    op.transmit = row.transmit;
    op.delivery = row.delivery;
    ours.operations.add(op);
    EXPECT_FALSE(ours.operations.waits());
    OutPacket p;
    p.clear();
    ours.begin(p, row.kind == Kind::kRead ? 0 : 100, row.copied);
    EXPECT_TRUE(ours.operations.waits());
    for (const Event event : row.events) {
      EXPECT_EQ(ours.ended(), 0U);
      if (event == kLeaves) ours.operations.release_copied(p);
      if (event == kArrives) ours.operations.release(p);
      if (event == kDone) {
        EXPECT_TRUE(ours.operations.take(wire::DoneFrame{.status = 0, .id = 0}));
      }
    }
    EXPECT_EQ(ours.ended(), 1U) << int(row.kind) << row.copied << row.transmit << row.delivery;
    EXPECT_TRUE(ours.operations.empty());
    EXPECT_EQ(ours.near.failed, 0U);
  }
}

TEST(Operations, AReadEndsWithItsLastByte) {
  Ours ours;
  ours.operations.add(ours.take(Kind::kRead, 100));
  OutPacket p;
  p.clear();
  ours.begin(p, 0, false);
  ours.operations.release(p);
  const std::vector<uint8_t> data(60, 1);
  EXPECT_TRUE(ours.operations.take(wire::DataFrame{.answers = true, .id = 0, .offset = 40}, data));
  EXPECT_EQ(ours.ended(), 0U);
  EXPECT_TRUE(ours.operations.take(wire::DataFrame{.answers = true, .id = 0, .offset = 0},
                                   std::span<const uint8_t>(data).first(40)));
  EXPECT_EQ(ours.ended(), 1U);
  // Late data of it do no harm.
  EXPECT_TRUE(ours.operations.take(wire::DataFrame{.answers = true, .id = 0, .offset = 0}, data));
  EXPECT_FALSE(ours.is_over());
}

// Answers that no peer may give end the conversation; those that come late do not.
TEST(Operations, AnswersThatFitNoOperation) {
  const std::vector<uint8_t> data(101);
  using Take = bool (*)(Operations &, std::span<const uint8_t>);
  const struct {
    Kind kind;
    bool good;
    Take take;
  } rows[] = {
      {Kind::kMessage, false, [](Operations &o, auto) { return o.take(wire::DoneFrame{.id = 1}); }},
      {Kind::kMessage, true,
       [](Operations &o, auto) { return o.take(wire::DoneFrame{.id = ~0U}); }},
      {Kind::kMessage, false,
       [](Operations &o, auto) { return o.take(wire::PullFrame{.id = 1, .limit = 0}); }},
      {Kind::kMessage, true,
       [](Operations &o, auto) { return o.take(wire::PullFrame{.id = 0, .limit = 100}); }},
      {Kind::kMessage, false,
       [](Operations &o, auto) { return o.take(wire::PullFrame{.id = 0, .limit = 101}); }},
      {Kind::kWrite, false,
       [](Operations &o, auto) { return o.take(wire::PullFrame{.id = 0, .limit = 100}); }},
      {Kind::kRead, true,
       [](Operations &o, auto d) { return o.take(wire::DataFrame{.id = 0}, d.first(100)); }},
      {Kind::kRead, false,
       [](Operations &o, auto d) { return o.take(wire::DataFrame{.id = 0}, d); }},
      {Kind::kRead, false,
       [](Operations &o, auto d) {
         return o.take(wire::DataFrame{.id = 0, .offset = 101}, d.first(0));
       }},
      {Kind::kWrite, false,
       [](Operations &o, auto d) { return o.take(wire::DataFrame{.id = 0}, d.first(1)); }},
      {Kind::kRead, false,
       [](Operations &o, auto d) { return o.take(wire::DataFrame{.id = 1}, d.first(1)); }},
      {Kind::kRead, false,
       [](Operations &o, auto d) { return o.take(wire::ResultFrame{.id = 0}, d.first(100)); }},
      {Kind::kAtomic, false,
       [](Operations &o, auto d) { return o.take(wire::ResultFrame{.id = 0}, d.first(99)); }},
      {Kind::kAtomic, false,
       [](Operations &o, auto d) { return o.take(wire::ResultFrame{.id = 1}, d.first(100)); }},
      {Kind::kAtomic, true,
       [](Operations &o, auto d) {
         return o.take(wire::ResultFrame{.status = FI_EACCES, .id = 0}, d.first(0));
       }},
  };
  for (const auto &row : rows) {
    Ours ours;
    ours.operations.add(ours.take(row.kind, 100));
    OutPacket p;
    p.clear();
    TxOp &op = ours.begin(p, 0, false);
    op.announced = row.kind == Kind::kMessage;
    EXPECT_EQ(row.take(ours.operations, data), row.good) << &row - rows;
    EXPECT_EQ(ours.is_over(), !row.good) << &row - rows;
    ours.operations.release(p);
  }
}

TEST(Operations, TakeTurnsAndHaveTheirLimits) {
  Ours ours;
  OutPacket p;
  p.clear();
  for (int i = 0; i < 2; ++i) {
    TxOp &op = ours.take(Kind::kMessage, 3000);
    op.allowed = 3000;
    ours.operations.add(op);
    ours.begin(p, 0, false);
  }
  TxOp *first = ours.operations.ready();
  first->sent = 1000;
  ours.operations.took_turn();
  TxOp *second = ours.operations.ready();
  EXPECT_NE(first, second);
  second->sent = 3000;
  ours.operations.took_turn();
  EXPECT_EQ(ours.operations.ready(), first);
  first->sent = 3000;
  ours.operations.took_turn();
  EXPECT_EQ(ours.operations.ready(), nullptr);
  // A fence waits for all before it; 256 accesses may be without an answer.
  TxOp &fence = ours.take(Kind::kMessage, 1);
  fence.fence = true;
  ours.operations.add(fence);
  EXPECT_FALSE(ours.operations.may_begin(fence));
  ours.operations.release(p);
  EXPECT_EQ(ours.ended(), 2U);
  EXPECT_TRUE(ours.operations.may_begin(fence));
  OutPacket q;
  q.clear();
  ours.begin(q, 1, true);
  for (int i = 0; i < 256; ++i) {
    TxOp &access = ours.take(Kind::kWrite, 1);
    ours.operations.add(access);
    EXPECT_TRUE(ours.operations.may_begin(access));
    ours.begin(q, 1, true);
  }
  TxOp &access = ours.take(Kind::kRead, 1);
  ours.operations.add(access);
  EXPECT_FALSE(ours.operations.may_begin(access));
  EXPECT_TRUE(ours.operations.take(wire::DoneFrame{.id = 3}));
  ours.operations.release(q);
  EXPECT_TRUE(ours.operations.may_begin(access));
  // The end: what has begun fails, what has not goes back.
  EXPECT_EQ(ours.ended(), 4U);
  Conversation::Queue unsent;
  ours.operations.end(FI_ECONNRESET, &unsent);
  EXPECT_EQ(ours.near.failed, 255U);
  EXPECT_EQ(unsent.first, &access);
  EXPECT_EQ(unsent.last, &access);
  ours.near.core().give(access);
}

}  // namespace
}  // namespace weft::rxd
