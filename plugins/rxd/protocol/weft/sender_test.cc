// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/sender.h"

#include <gtest/gtest.h>

#include <cstring>

#include "plugins/rxd/protocol/weft/test_link.h"

namespace weft::rxd {
namespace {

const wire::Part kHere{.instance = 1, .connection = 10, .cookie = 100, .datagram = 1472};
const wire::Part kThere{
    .instance = 2, .connection = 20, .cookie = 200, .datagram = 1472, .flags = wire::kPartChecksum};

struct Sends : Linked {
  wire::Packet last() {
    const auto packet = wire::parse(sent());
    EXPECT_TRUE(packet);
    EXPECT_TRUE(peers.fits(*packet, 0));  // the checksum is right
    EXPECT_EQ(packet->header.to, 20U);
    EXPECT_EQ(packet->header.cookie, 300U);
    return *packet;
  }
  // Another packet came, so that the peer is owed an acknowledgement.
  void owe() {
    wire::Header h;
    h.flags = wire::kFlagAsk;
    link.channel.accept(next++, h, link.now());
  }
  uint64_t next = 0;
  Answers answers{link};
  Grants grants;
  Sender sender{link, grants, answers, kHere, kThere};
  const Seal peers{kThere, kHere, ""};
};

TEST(Sender, PacketsHaveWhatIsOwed) {
  Sends sends;
  OutPacket p;
  p.clear();
  p.used = wire::kPingFrameSize;
  wire::Writer({p.bytes + OutPacket::kHead, p.used}).ping();
  for (const bool owes : {false, true, true, false}) {
    if (owes) sends.owe();
    EXPECT_EQ(sends.sender.owes(), owes);
    EXPECT_EQ(sends.sender.send(p, 5, sends.link.now(), owes), 0);
    const wire::Packet packet = sends.last();
    EXPECT_EQ(packet.header.kind, wire::PacketKind::kData);
    EXPECT_EQ(packet.header.sequence, 5U);
    EXPECT_EQ(packet.header.has(wire::kFlagAcknowledgement), owes);
    EXPECT_EQ(packet.header.has(wire::kFlagAsk), owes);
    if (owes) {
      EXPECT_EQ(packet.acknowledgement.next, sends.next);
      EXPECT_EQ(packet.acknowledgement.messages, kFirstMessages);
    }
    EXPECT_FALSE(sends.sender.owes());  // it is told
  }
}

TEST(Sender, APayloadFollowsItsFrame) {
  Sends sends;
  OutPacket p;
  p.clear();
  TxOp &op = sends.take(TxOp::Kind::kMessage, 1000);
  wire::Writer w({p.bytes + OutPacket::kHead, OutPacket::kFrames});
  w.data({.id = 3, .offset = 200}, 600);
  p.used = uint16_t(w.size());
  p.source = &op;
  p.offset = 200;
  p.length = 600;
  p.asks = true;
  EXPECT_EQ(sends.sender.send(p, 0, sends.link.now(), false), 0);
  const wire::Packet packet = sends.last();
  EXPECT_TRUE(packet.header.has(wire::kFlagAsk));
  wire::FrameReader frames(packet);
  ASSERT_TRUE(frames.next());
  ASSERT_EQ(frames.payload().size(), 600U);
  const auto *from = static_cast<const uint8_t *>(op.iov[0].iov_base) + 200;
  EXPECT_EQ(std::memcmp(frames.payload().data(), from, 600), 0);
  sends.near.core().give(op);
}

// The region of a read was closed (this endpoint has none): the peer hears that.
TEST(Sender, AReadWhoseRegionIsGone) {
  Sends sends;
  OutPacket p;
  p.clear();
  Answer *a = sends.answers.add(Answer::Kind::kRead, 9);
  a->length = 600;
  a->count = 1;
  a->vectors[0] = {0, 600, 1};
  wire::Writer w({p.bytes + OutPacket::kHead, OutPacket::kFrames});
  EXPECT_TRUE(sends.answers.add_data(p, w, 600));
  p.used = uint16_t(w.size());
  EXPECT_EQ(sends.sender.send(p, 0, sends.link.now(), false), 0);
  const wire::Packet packet = sends.last();
  wire::FrameReader frames(packet);
  ASSERT_TRUE(frames.next());
  EXPECT_EQ(frames.kind(), wire::FrameKind::kDone);
  EXPECT_EQ(frames.done().status, FI_EACCES);
  EXPECT_FALSE(frames.next());
  EXPECT_EQ(sends.pools.answers.in_use(), 0U);
}

TEST(Sender, PacketsWithoutFrames) {
  Sends sends;
  const uint64_t now = sends.link.now();
  sends.owe();
  EXPECT_TRUE(sends.sender.close(wire::PacketKind::kClose, now));
  EXPECT_EQ(sends.last().header.kind, wire::PacketKind::kClose);
  EXPECT_TRUE(sends.sender.owes());
  EXPECT_TRUE(sends.sender.close(wire::PacketKind::kClosed, now));
  EXPECT_EQ(sends.last().header.kind, wire::PacketKind::kClosed);
  EXPECT_TRUE(sends.sender.acknowledge(now));
  EXPECT_EQ(sends.last().header.kind, wire::PacketKind::kAcknowledge);
  EXPECT_EQ(sends.last().acknowledgement.next, 1U);
  EXPECT_FALSE(sends.sender.owes());
  sends.sender.probe(1400, now);
  EXPECT_EQ(sends.last().header.kind, wire::PacketKind::kProbe);
  EXPECT_EQ(sends.sent().size(), 1400U);
  sends.sender.probed({.number = 1400, .size = 1400}, now);
  EXPECT_EQ(sends.last().header.kind, wire::PacketKind::kProbed);
}

// Packets without frames stay unchanged until they are flushed, however many there are.
TEST(Sender, ManyPacketsWithoutFrames) {
  Sends sends;
  for (size_t i = 0; i < 3 * Pools::kScratch; ++i) {
    EXPECT_TRUE(sends.sender.acknowledge(sends.link.now()));
    EXPECT_LE(sends.pools.next_scratch, Pools::kScratch);
  }
}

}  // namespace
}  // namespace weft::rxd
