// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/outbox.h"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <string>

#include "plugins/rxd/protocol/weft/test_link.h"

namespace weft::rxd {
namespace {

const wire::Part kNear{.instance = 1, .connection = 10, .cookie = 100, .datagram = 1472};
const wire::Part kFar{.instance = 2, .connection = 20, .cookie = 200, .datagram = 1472};

// The parts that make packets.
struct Sending : Linked {
  explicit Sending(uint32_t datagram = 1472, uint32_t messages = 64, uint32_t kib = 64)
      : Linked(datagram),
        operations(link, Credit(messages, kib)),
        sender(link, arrivals.grants(), answers, kNear, kFar),
        outbox(link, operations, sender, DatagramSize(datagram, datagram)) {}
  ~Sending() {
    for (OutPacket *p : packets) {
      operations.release(*p);
      answers.release(*p);
      outbox.free(*p);
    }
    operations.end(FI_ECANCELED, nullptr);
    answers.clear();
    EXPECT_EQ(pools.packets.in_use(), 0U);
  }
  void start(TxOp::Kind kind, size_t length) { operations.add(take(kind, length)); }
  // Builds all packets: "MMM|M+1400|": a letter for each frame, and the bytes that follow.
  std::string packets_of_all() {
    std::string out;
    while (outbox.has_output(answers, arrivals)) {
      if (outbox.build(answers, arrivals) != Outbox::Built::kPacket) break;
      OutPacket &p = *outbox.pending();
      outbox.left();
      packets.push_back(&p);
      EXPECT_LE(link.overhead + p.used + p.length, outbox.size().bytes());
      std::vector<uint8_t> frames(p.bytes + OutPacket::kHead, p.bytes + OutPacket::kHead + p.used);
      frames.resize(frames.size() + p.length);
      wire::FrameReader reader(frames, p.ordered);
      while (reader.next()) out += " MDPdRWArp"[size_t(reader.kind())];
      EXPECT_EQ(reader.reject(), wire::Reject::kNone);
      if (p.length != 0) out += "+" + std::to_string(p.length);
      out += "|";
    }
    return out;
  }
  std::vector<OutPacket *> packets;
  Answers answers{link};
  Operations operations;
  Arrivals arrivals{link, answers, *link.peer.conversation, 1472};
  Sender sender;
  Outbox outbox;
};

TEST(Outbox, WhatSharesAPacket) {
  using Kind = TxOp::Kind;
  const struct {
    std::vector<std::pair<Kind, size_t>> operations;
    const char *packets;
  } rows[] = {
      {{}, ""},
      {{{Kind::kMessage, 0}, {Kind::kMessage, 64}, {Kind::kMessage, 1024}}, "MMM|"},
      {{{Kind::kMessage, 1000}, {Kind::kMessage, 500}}, "M|M|"},
      {{{Kind::kMessage, 1025}}, "M+1025|"},
      {{{Kind::kMessage, 64}, {Kind::kMessage, 1300}}, "MM+1300|"},
      {{{Kind::kMessage, 1408}, {Kind::kMessage, 1}}, "M+1408|M|"},
      {{{Kind::kMessage, 3000}, {Kind::kMessage, 1}}, "M+1408|MD+1399|D+193|"},
      {{{Kind::kRead, 5000}, {Kind::kWrite, 64}, {Kind::kMessage, 8}}, "RWM|"},
      {{{Kind::kWrite, 3000}}, "W+1376|D+1408|D+216|"},
      {{{Kind::kAtomic, 8}, {Kind::kAtomic, 16}}, "AA|"},
  };
  for (const auto &row : rows) {
    Sending sending;
    for (const auto &[kind, length] : row.operations) {
      sending.start(kind, length);
      TxOp *op = sending.operations.unsent();
      while (op->next != nullptr) op = op->next;
      op->datatype = FI_UINT64;
    }
    EXPECT_EQ(sending.packets_of_all(), row.packets);
    EXPECT_FALSE(sending.is_over());
  }
}

// Answers and a ping leave with what else there is, or alone.
TEST(Outbox, AnswersLeaveWithOperations) {
  for (const bool with : {false, true}) {
    Sending sending;
    if (with) sending.start(TxOp::Kind::kMessage, 8);
    sending.answers.done(0, 0);
    Answer *read = sending.answers.add(Answer::Kind::kRead, 1);
    read->length = 2000;
    const uint64_t later = sending.link.now() + 2000 * kMillisecond;
    sending.outbox.pings().on_deadline(later, true);
    EXPECT_EQ(sending.packets_of_all(), with ? "dD+1400|MD+600|" : "dD+1400|D+600|");
    EXPECT_FALSE(sending.outbox.pings().wanted());  // each packet is as good
    sending.outbox.pings().on_deadline(2 * later, true);
    EXPECT_EQ(sending.packets_of_all(), "p|");
  }
}

TEST(Outbox, CreditHoldsMessagesBack) {
  const struct {
    uint32_t messages, kib;
    const char *packets;
    bool starved;
  } rows[] = {
      {3, 64, "MMM|", false},
      {2, 64, "MM|", true},
      {0, 64, "", true},
      {3, 0, "MMM|", false},  // they are announced, and nothing of them leaves unasked
  };
  for (const auto &row : rows) {
    Sending sending(1472, row.messages, row.kib);
    for (int i = 0; i < 3; ++i) sending.start(TxOp::Kind::kMessage, 100);
    EXPECT_EQ(sending.packets_of_all(), row.packets);
    EXPECT_EQ(sending.outbox.pings().deadline(1000, false), row.starved ? 1000 + kMillisecond : 0);
    EXPECT_EQ(sending.near.core().counters().waited_for_credit.value(), row.starved ? 1U : 0U);
    EXPECT_EQ(sending.near.core().counters().announced.value(), row.kib == 0 ? 3U : 0U);
  }
}

TEST(Outbox, AnOperationThatNoDatagramCarriesFails) {
  Sending sending(512);
  sending.start(TxOp::Kind::kAtomic, 1024);
  sending.operations.unsent()->datatype = FI_UINT8;
  sending.start(TxOp::Kind::kMessage, 8);
  EXPECT_EQ(sending.packets_of_all(), "M|");
  sending.operations.end_settled();
  EXPECT_EQ(sending.near.failed, 1U);
  EXPECT_EQ(sending.near.err, FI_EMSGSIZE);
}

// Short messages wait in a stream only, and only until their packet is full.
TEST(Outbox, ShortMessagesOfAStreamWait) {
  Sending sending;
  OutPacket dummies[kStream];
  const auto gathers = [&sending](size_t length, bool report = true) {
    TxOp &op = sending.take(TxOp::Kind::kMessage, length);
    op.report = report;
    sending.operations.add(op);
    return sending.outbox.gathers(op);
  };
  EXPECT_FALSE(gathers(8));  // nothing is under way
  for (OutPacket &p : dummies) {
    EXPECT_EQ(sending.link.channel.gate(100, sending.link.now()), Channel::Gate::kOpen);
    sending.link.channel.sent(100, sending.link.now(), &p);
  }
  EXPECT_FALSE(gathers(8, false));
  EXPECT_FALSE(gathers(1025));
  EXPECT_FALSE(sending.outbox.gathers(sending.link.now()));
  for (int i = 0; i < 13; ++i) EXPECT_TRUE(gathers(80)) << i;
  EXPECT_TRUE(sending.outbox.gathers(sending.link.now()));
  EXPECT_FALSE(sending.outbox.gathers(sending.link.now() + 4000));
  EXPECT_FALSE(gathers(80));
  sending.outbox.gather_no_more();
  EXPECT_TRUE(gathers(80));
  sending.link.channel.abandon([](void *) {});
}

}  // namespace
}  // namespace weft::rxd
