// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/answers.h"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include "plugins/rxd/protocol/weft/test_link.h"

namespace weft::rxd {
namespace {

using wire::FrameKind;

struct Owed : Linked {
  ~Owed() {
    answers.clear();
    EXPECT_EQ(pools.answers.in_use() + pools.results.in_use(), 0U);
  }
  Answer &read(uint32_t id, uint64_t length) {
    Answer *a = answers.add(Answer::Kind::kRead, id);
    a->length = length;
    return *a;
  }
  Answers answers{link};
};

TEST(Answers, LeaveInOrderAndCount) {
  Owed owed;
  EXPECT_TRUE(owed.answers.done(0, 0, false));  // of a message
  EXPECT_FALSE(owed.answers.owes());
  EXPECT_TRUE(owed.answers.done(1, FI_EACCES));
  Answer *result = owed.answers.add(Answer::Kind::kResult, 2);
  result->result = owed.pools.results.take();
  result->length = 1000;
  EXPECT_TRUE(owed.answers.done(3, 0));
  EXPECT_TRUE(owed.answers.has_short());
  EXPECT_FALSE(owed.answers.has_reads());
  EXPECT_TRUE(owed.link.peer.wants_room);
  // A packet with room for two.
  std::array<uint8_t, 1000> small;
  wire::Writer w(small);
  owed.answers.add(w);
  EXPECT_EQ(w.size(), 2 * wire::kDoneFrameSize);
  EXPECT_TRUE(owed.answers.owes());
  Frames frames;
  owed.answers.add(frames.writer);
  EXPECT_EQ(frames.kinds(), (std::vector<FrameKind>{FrameKind::kResult, FrameKind::kDone}));
  EXPECT_TRUE(owed.answers.empty());
  EXPECT_FALSE(owed.answers.owes());
}

TEST(Answers, AreFullAt512Accesses) {
  Owed owed;
  for (uint32_t i = 0; i < 512; ++i) {
    EXPECT_FALSE(owed.answers.is_full());
    if (i % 2 == 0) owed.answers.owe();  // a write that arrives
    if (i % 2 == 1) owed.answers.done(i, 0);
  }
  EXPECT_TRUE(owed.answers.is_full());
  Frames frames;
  owed.answers.add(frames.writer);
  EXPECT_FALSE(owed.answers.is_full());
  EXPECT_TRUE(owed.answers.owes());
  for (uint32_t i = 0; i < 256; ++i) owed.answers.settle();
  EXPECT_FALSE(owed.answers.owes());
}

TEST(Answers, ReadsTakeTurnsUntilTheirDataHaveArrived) {
  Owed owed;
  owed.read(7, 2500);
  owed.read(8, 1000);
  const struct {
    uint32_t id;
    uint64_t offset;
    uint32_t length;
  } rows[] = {{7, 0, 1000}, {8, 0, 1000}, {7, 1000, 1000}, {7, 2000, 500}};
  std::vector<OutPacket> sent(std::size(rows));
  for (size_t i = 0; i < sent.size(); ++i) {
    Frames frames;
    sent[i].clear();
    EXPECT_TRUE(owed.answers.owes());
    owed.answers.drop_failed();
    EXPECT_TRUE(owed.answers.add_data(sent[i], frames.writer, 1000));
    EXPECT_EQ(sent[i].answer->id, rows[i].id);
    EXPECT_EQ(sent[i].offset, rows[i].offset);
    EXPECT_EQ(sent[i].length, rows[i].length);
  }
  EXPECT_TRUE(owed.answers.empty());
  EXPECT_FALSE(owed.answers.owes());
  for (const OutPacket &p : sent) {
    EXPECT_NE(owed.pools.answers.in_use(), 0U);
    owed.answers.release(p);
  }
  EXPECT_EQ(owed.pools.answers.in_use(), 0U);
}

// Little room behind other frames is not worth a piece of the data.
TEST(Answers, DataAreNotCutIntoSmallPieces) {
  Owed owed;
  owed.read(0, 1000);
  Frames frames;
  frames.writer.ping();
  OutPacket p;
  p.clear();
  EXPECT_FALSE(owed.answers.add_data(p, frames.writer, kWorthwhile - 1));
  EXPECT_EQ(p.answer, nullptr);
  EXPECT_TRUE(owed.answers.add_data(p, frames.writer, kWorthwhile));
  EXPECT_EQ(p.length, kWorthwhile);
  owed.answers.release(p);
}

// The region of a read was closed: the packet says so, and no more is sent.
TEST(Answers, AReadThatIsRefused) {
  for (const bool before_the_end : {false, true}) {
    Owed owed;
    owed.read(5, before_the_end ? 2000 : 1000);
    OutPacket p;
    p.clear();
    wire::Writer w({p.bytes + OutPacket::kHead, OutPacket::kFrames});
    w.ping();
    EXPECT_TRUE(owed.answers.add_data(p, w, 1000));
    p.used = uint16_t(w.size());
    owed.answers.refuse(p, FI_EACCES);
    EXPECT_EQ(p.answer, nullptr);
    EXPECT_EQ(p.length, 0U);
    wire::FrameReader frames({p.bytes + OutPacket::kHead, p.used}, false);
    EXPECT_TRUE(frames.next() && frames.next());
    EXPECT_EQ(frames.kind(), FrameKind::kDone);
    EXPECT_EQ(frames.id(), 5U);
    EXPECT_EQ(frames.done().status, FI_EACCES);
    owed.answers.drop_failed();
    EXPECT_TRUE(owed.answers.empty());
    EXPECT_FALSE(owed.answers.owes());
    EXPECT_EQ(owed.pools.answers.in_use(), 0U);
  }
}

}  // namespace
}  // namespace weft::rxd
