// SPDX-License-Identifier: BSD-2-Clause
// The frames of data packets as bytes, read and written.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plugins/rxd/wire/packet.h"
#include "plugins/rxd/wire/test_packet.h"

namespace weft::rxd::wire {
namespace {

TEST(Frames, MessagesInEveryForm) {
  const Bytes payload = counting(5, 1);
  for (int form = 0; form < 16; ++form) {
    Page page;
    MessageFrame frame{.tagged = (form & 1) != 0,
                       .has_data = (form & 2) != 0,
                       .wants_done = (form & 4) != 0,
                       .announced = (form & 8) != 0,
                       .id = 0x01020304,
                       .tag = 0x1111,
                       .data = 0x2222,
                       .total = 0x3333};
    ASSERT_TRUE(page.writer.message(frame, payload.size()));
    EXPECT_EQ(page.writer.size(), message_size(frame));
    ASSERT_TRUE(page.writer.payload(payload));
    Bytes expected = hex("01") + Bytes{static_cast<uint8_t>(form)} + hex("0500 04030201");
    if (frame.tagged) expected = expected + hex("1111000000000000");
    if (frame.has_data) expected = expected + hex("2222000000000000");
    if (frame.announced) expected = expected + hex("3333000000000000");
    const Bytes bytes = page.written();
    EXPECT_EQ(bytes, expected + payload);
    FrameReader reader(bytes, true);
    ASSERT_TRUE(reader.next());
    EXPECT_EQ(reader.kind(), FrameKind::kMessage);
    EXPECT_EQ(reader.id(), 0x01020304u);
    EXPECT_EQ(reader.message().id, 0x01020304u);
    EXPECT_EQ(reader.message().tagged, frame.tagged);
    EXPECT_EQ(reader.message().has_data, frame.has_data);
    EXPECT_EQ(reader.message().wants_done, frame.wants_done);
    EXPECT_EQ(reader.message().announced, frame.announced);
    EXPECT_EQ(reader.message().tag, frame.tagged ? 0x1111u : 0u);
    EXPECT_EQ(reader.message().data, frame.has_data ? 0x2222u : 0u);
    EXPECT_EQ(reader.message().total, frame.announced ? 0x3333u : 5u);
    EXPECT_EQ(Bytes(reader.payload().begin(), reader.payload().end()), payload);
    EXPECT_FALSE(reader.next());
    EXPECT_EQ(reader.reject(), Reject::kNone);
    for (size_t n = 1; n < bytes.size(); ++n) {
      EXPECT_EQ(frames_reject(Bytes(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n))),
                Reject::kShort);
    }
    EXPECT_EQ(frames_reject(bytes, false), Reject::kOrder);
  }
}

// A packet with a frame of each kind except messages, and with two writes.
void write_frames(const Bytes &payload, Bytes &bytes) {
  const RmaVector vectors[] = {{1, 2, 3}, {4, 5, 6}};
  Page page;
  ASSERT_TRUE(page.writer.header(kHeader));
  ASSERT_TRUE(page.writer.data({.answers = true, .id = 1, .offset = 1000}, payload.size()));
  ASSERT_TRUE(page.writer.payload(payload));
  ASSERT_TRUE(page.writer.pull({.id = 2, .limit = 1 << 20}));
  ASSERT_TRUE(page.writer.done({.status = 13, .id = 3}));
  ASSERT_TRUE(page.writer.read(4, vectors));
  ASSERT_TRUE(page.writer.write({.has_data = true, .id = 5, .total = 100, .data = 77}, vectors,
                                payload.size()));
  ASSERT_TRUE(page.writer.payload(payload));
  ASSERT_TRUE(page.writer.write({.id = 6, .total = 8}, {}, payload.size()));
  ASSERT_TRUE(page.writer.payload(payload));
  ASSERT_TRUE(page.writer.atomic({.kind = 2, .datatype = 3, .operation = 4, .id = 7},
                                 std::span<const RmaVector>(vectors, 1), payload.size()));
  ASSERT_TRUE(page.writer.payload(payload));
  ASSERT_TRUE(page.writer.result({.status = 5, .id = 8}, payload.size()));
  ASSERT_TRUE(page.writer.payload(payload));
  ASSERT_TRUE(page.writer.ping());
  bytes = page.written();
}

TEST(Frames, ManyFramesInOnePacket) {
  const Bytes payload = counting(8, 1);
  Bytes bytes;
  write_frames(payload, bytes);
  const auto packet = parse(bytes);
  ASSERT_TRUE(packet);
  FrameReader reader(*packet);

  ASSERT_TRUE(reader.next());
  ASSERT_EQ(reader.kind(), FrameKind::kData);
  EXPECT_TRUE(reader.data().answers);
  EXPECT_EQ(reader.data().offset, 1000u);
  EXPECT_EQ(reader.payload().size(), payload.size());
  ASSERT_TRUE(reader.next());
  ASSERT_EQ(reader.kind(), FrameKind::kPull);
  EXPECT_EQ(reader.pull().limit, 1u << 20);
  EXPECT_EQ(reader.pull().id, 2u);
  EXPECT_TRUE(reader.payload().empty());
  ASSERT_TRUE(reader.next());
  ASSERT_EQ(reader.kind(), FrameKind::kDone);
  EXPECT_EQ(reader.done().status, 13u);
  EXPECT_EQ(reader.done().id, 3u);
  ASSERT_TRUE(reader.next());
  ASSERT_EQ(reader.kind(), FrameKind::kRead);
  EXPECT_EQ(reader.id(), 4u);
  ASSERT_EQ(reader.vectors().size(), 2u);
  EXPECT_EQ(reader.vectors()[1].address, 4u);
  RmaVector copy[kVectorLimit];
  EXPECT_EQ(reader.vectors().copy(copy), 2u);
  EXPECT_EQ(copy[0].length, 2u);
  EXPECT_EQ(copy[1].key, 6u);
  ASSERT_TRUE(reader.next());
  ASSERT_EQ(reader.kind(), FrameKind::kWrite);
  EXPECT_TRUE(reader.write().has_data);
  EXPECT_EQ(reader.write().data, 77u);
  EXPECT_EQ(reader.write().total, 100u);
  EXPECT_EQ(reader.vectors().size(), 2u);
  EXPECT_EQ(reader.vectors()[0].key, 3u);
  EXPECT_EQ(Bytes(reader.payload().begin(), reader.payload().end()), payload);
  ASSERT_TRUE(reader.next());
  ASSERT_EQ(reader.kind(), FrameKind::kWrite);
  EXPECT_FALSE(reader.write().has_data);
  EXPECT_EQ(reader.vectors().size(), 0u);
  ASSERT_TRUE(reader.next());
  ASSERT_EQ(reader.kind(), FrameKind::kAtomic);
  EXPECT_EQ(reader.atomic().kind, 2u);
  EXPECT_EQ(reader.atomic().datatype, 3u);
  EXPECT_EQ(reader.atomic().operation, 4u);
  EXPECT_EQ(reader.vectors().size(), 1u);
  EXPECT_EQ(Bytes(reader.payload().begin(), reader.payload().end()), payload);
  ASSERT_TRUE(reader.next());
  ASSERT_EQ(reader.kind(), FrameKind::kResult);
  EXPECT_EQ(reader.result().status, 5u);
  EXPECT_EQ(reader.payload().size(), payload.size());
  ASSERT_TRUE(reader.next());
  ASSERT_EQ(reader.kind(), FrameKind::kPing);
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(reader.reject(), Reject::kNone);
}

TEST(Frames, ATruncatedPacketHasWholeFramesOrIsRefused) {
  Bytes bytes;
  write_frames(counting(8, 1), bytes);
  // Wherever the packet is cut, it has whole frames only, or is short.
  const Bytes frames(bytes.begin() + kHeaderSize, bytes.end());
  size_t whole = 0;
  for (size_t n = 1; n < frames.size(); ++n) {
    const Reject r =
        frames_reject(Bytes(frames.begin(), frames.begin() + static_cast<ptrdiff_t>(n)));
    whole += r == Reject::kNone;
    EXPECT_TRUE(r == Reject::kNone || r == Reject::kShort) << n;
  }
  EXPECT_EQ(whole, 8u);
}

TEST(Frames, BadFramesAreRefused) {
  EXPECT_EQ(frames_reject(hex("00000000")), Reject::kFrame);
  EXPECT_EQ(frames_reject(hex("0a000000")), Reject::kFrame);
  EXPECT_EQ(frames_reject(hex("0110 0000 01000000")), Reject::kFrameFlags);
  EXPECT_EQ(frames_reject(hex("0202 0000 01000000 0000000000000000")), Reject::kFrameFlags);
  EXPECT_EQ(frames_reject(hex("0600 0000 01000000 01000000 00000000 0000000000000000")),
            Reject::kFrameFlags);
  // Totals that are less than the payload, or more than 2^63-1.
  EXPECT_EQ(frames_reject(hex("0108 0200 01000000 0100000000000000 aabb")), Reject::kTotal);
  EXPECT_EQ(frames_reject(hex("0108 0000 01000000 0000000000000080")), Reject::kTotal);
  EXPECT_EQ(frames_reject(hex("0600 0200 01000000 00000000 00000000 0100000000000000 aabb")),
            Reject::kTotal);
  EXPECT_EQ(frames_reject(hex("0600 0000 01000000 00000000 00000000 0000000000000080")),
            Reject::kTotal);
  EXPECT_EQ(frames_reject(hex("0200 0000 01000000 ffffffffffffff7f")), Reject::kNone);
  EXPECT_EQ(frames_reject(hex("0200 0100 01000000 ffffffffffffff7f aa")), Reject::kTotal);
  for (const char *frame : {"0505 0000 01000000", "0605 0000 01000000", "0705 0000 01000000"}) {
    EXPECT_EQ(frames_reject(hex(frame) + Bytes(200, 0)), Reject::kVectors);
  }
  EXPECT_EQ(frames_reject(hex("0700 0104 01000000 00000000 00000000") + Bytes(1025, 0)),
            Reject::kOperands);
  EXPECT_EQ(frames_reject(hex("0700 0000 01000000 03000000 00000000")), Reject::kOperands);
  EXPECT_EQ(frames_reject(hex("0800 0104 01000000 00000000 00000000") + Bytes(1025, 0)),
            Reject::kOperands);
  // Valid frames before an invalid one are still read.
  const Bytes two = hex("09000000 ff");
  FrameReader reader(two, false);
  EXPECT_TRUE(reader.next());
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(reader.reject(), Reject::kFrame);
  // Only ordered packets may start operations.
  for (const char *frame : {"0100 0000 01000000", "0500 0000 01000000"}) {
    EXPECT_EQ(frames_reject(hex(frame), true), Reject::kNone);
    EXPECT_EQ(frames_reject(hex(frame), false), Reject::kOrder);
  }
  EXPECT_TRUE(starts(FrameKind::kWrite) && starts(FrameKind::kAtomic));
  EXPECT_FALSE(starts(FrameKind::kData) || starts(FrameKind::kPing));
}

}  // namespace
}  // namespace weft::rxd::wire
