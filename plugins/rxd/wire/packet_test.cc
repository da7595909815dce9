// SPDX-License-Identifier: BSD-2-Clause
// Packets as bytes, read and written: headers, acknowledgements, the handshake, the end. Frames are
// in frames_test.cc.
#include "plugins/rxd/wire/packet.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "plugins/rxd/wire/test_packet.h"

namespace weft::rxd::wire {
namespace {

TEST(Packet, HeaderIsAsWritten) {
  Page page;
  ASSERT_TRUE(page.writer.header(kHeader));
  EXPECT_EQ(page.written(), hex(kHeaderText));
  const auto header = parse_header(page.written());
  ASSERT_TRUE(header);
  EXPECT_EQ(header->kind, PacketKind::kData);
  EXPECT_EQ(header->flags, kFlagOrdered);
  EXPECT_EQ(header->to, kHeader.to);
  EXPECT_EQ(header->cookie, kHeader.cookie);
  EXPECT_EQ(header->sequence, kHeader.sequence);
  EXPECT_EQ(header->time, kHeader.time);
  EXPECT_EQ(header->checksum, kHeader.checksum);
  set_time(page.bytes.data(), 0xAABBCCDD);
  set_checksum(page.bytes.data(), 0x11223344);
  const auto again = parse_header(page.written());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->time, 0xAABBCCDDu);
  EXPECT_EQ(again->checksum, 0x11223344u);
  EXPECT_EQ(again->cookie, kHeader.cookie);
}

TEST(Packet, BadHeadersAreRefused) {
  EXPECT_EQ(reject_of({}), Reject::kShort);
  EXPECT_EQ(reject_of(hex("02")), Reject::kMagic);
  EXPECT_EQ(reject_of(hex("f7")), Reject::kShort);
  const Bytes right = hex(kHeaderText) + hex("09000000");
  EXPECT_EQ(reject_of(right), Reject::kNone);
  for (size_t n = 0; n < kHeaderSize; ++n) {
    EXPECT_EQ(reject_of(Bytes(right.begin(), right.begin() + static_cast<ptrdiff_t>(n))),
              Reject::kShort);
  }
  for (const uint8_t kind : {0, 11, 255}) {
    Bytes wrong = right;
    wrong[3] = kind;
    EXPECT_EQ(reject_of(wrong), Reject::kKind);
  }
  Bytes wrong = right;
  wrong[1] = 4;  // a stock process would take it for its own packet
  EXPECT_EQ(reject_of(wrong), Reject::kMagic);
  wrong = right;
  wrong[2] = 0x28;
  EXPECT_EQ(reject_of(wrong), Reject::kFlags);
  wrong = right;
  wrong[3] = uint8_t(PacketKind::kProbe);  // has neither the ordered flag nor a number
  EXPECT_EQ(reject_of(wrong), Reject::kFlags);
  wrong[2] = 0;
  EXPECT_EQ(reject_of(wrong), Reject::kSequence);
  for (const auto kind : {PacketKind::kAcknowledge, PacketKind::kClose}) {
    wrong[3] = uint8_t(kind);  // without an acknowledgement
    EXPECT_EQ(reject_of(wrong), Reject::kFlags);
  }
  EXPECT_EQ(reject_of(hex(kHeaderText)), Reject::kEmpty);
}

TEST(Packet, Acknowledgement) {
  Acknowledgement ack;
  ack.next = 0x01020304;
  ack.echo = 5;
  ack.limit = 6;
  ack.messages = 7;
  ack.credit = 8;
  ack.words = 2;
  ack.unread = 10;
  ack.bitmap[0] = 9;
  ack.bitmap[1] = uint64_t{1} << 63;
  Page page;
  Header header{.kind = PacketKind::kAcknowledge, .flags = kFlagAcknowledgement};
  ASSERT_TRUE(page.writer.header(header));
  ASSERT_TRUE(page.writer.acknowledgement(ack));
  const Bytes bytes = page.written();
  EXPECT_EQ(Bytes(bytes.begin() + kHeaderSize, bytes.end()),
            hex("04030201 05000000 06000000 07000000 08000000 0200 0a00"
                "0900000000000000 0000000000000080"));
  const auto packet = parse(bytes);
  ASSERT_TRUE(packet);
  EXPECT_TRUE(std::holds_alternative<Acknowledge>(packet->content));
  EXPECT_EQ(packet->acknowledgement.next, ack.next);
  EXPECT_EQ(packet->acknowledgement.echo, 5u);
  EXPECT_EQ(packet->acknowledgement.limit, 6u);
  EXPECT_EQ(packet->acknowledgement.messages, 7u);
  EXPECT_EQ(packet->acknowledgement.credit, 8u);
  EXPECT_EQ(packet->acknowledgement.unread, 10u);
  ASSERT_EQ(packet->acknowledgement.words, 2u);
  EXPECT_EQ(packet->acknowledgement.bitmap[0], 9u);
  EXPECT_EQ(packet->acknowledgement.bitmap[1], uint64_t{1} << 63);
  for (size_t n = kHeaderSize; n < bytes.size(); ++n) {
    EXPECT_EQ(reject_of(Bytes(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n))),
              Reject::kShort);
  }
  EXPECT_EQ(reject_of(bytes + hex("00")), Reject::kLength);
  Bytes wrong = bytes;
  wrong[kHeaderSize + 20] = 17;
  EXPECT_EQ(reject_of(wrong), Reject::kAcknowledgement);
  wrong = bytes;
  wrong[3] = uint8_t(PacketKind::kClose);
  const auto close = parse(wrong);
  ASSERT_TRUE(close);
  EXPECT_TRUE(std::holds_alternative<Close>(close->content));
  // With frames after it.
  wrong[3] = uint8_t(PacketKind::kData);
  EXPECT_EQ(reject_of(wrong), Reject::kEmpty);
  const Bytes with = wrong + hex("09000000");
  const auto data = parse(with);
  ASSERT_TRUE(data);
  ASSERT_TRUE(std::holds_alternative<Data>(data->content));
  EXPECT_EQ(std::get<Data>(data->content).frames.size(), 4u);
  EXPECT_EQ(data->acknowledgement.bitmap[0], 9u);
}

const Part kPart{.instance = 0x0807060504030201,
                 .connection = 0x0C0B0A09,
                 .cookie = 0x100F0E0D,
                 .datagram = 0x14131211,
                 .flags = 0x18171615,
                 .limit = 0x1C1B1A19,
                 .messages = 0x201F1E1D,
                 .credit = 0x24232221};

TEST(Packet, Handshake) {
  const Bytes token = counting(kTokenSize, 0x40), name = counting(kNameSize, 0x80);
  const Token token_span{token.data(), kTokenSize};
  {
    Page page;
    ASSERT_TRUE(page.writer.challenge({}, 0x0102, token_span));
    const Bytes bytes = page.written();
    EXPECT_EQ(bytes.size(), kChallengeSize);
    EXPECT_LT(bytes.size(), 88u);  // smaller than the RTS that causes it: no amplification
    EXPECT_EQ(bytes, hex("f709 0001 00000000 00000000 00000000 00000000 00000000"
                         "0201000000000000") +
                         token);
    const auto packet = parse(bytes);
    ASSERT_TRUE(packet);
    const auto &challenge = std::get<Challenge>(packet->content);
    EXPECT_EQ(challenge.index, 0x0102u);
    EXPECT_TRUE(std::equal(token.begin(), token.end(), challenge.token.begin()));
    EXPECT_EQ(reject_of(bytes + hex("00")), Reject::kLength);
    EXPECT_EQ(reject_of(Bytes(bytes.begin(), bytes.end() - 1)), Reject::kShort);
  }
  const Bytes part = counting(36, 1) + Bytes(4, 0);
  {
    Page page;
    ASSERT_TRUE(page.writer.connect({}, 3, token_span, Name{name.data(), kNameSize}, kPart));
    const Bytes bytes = page.written();
    EXPECT_EQ(bytes.size(), kConnectSize);
    EXPECT_EQ(bytes, hex("f709 0002 00000000 00000000 00000000 00000000 00000000"
                         "0300000000000000") +
                         token + name + part);
    const auto packet = parse(bytes);
    ASSERT_TRUE(packet);
    const auto &connect = std::get<Connect>(packet->content);
    EXPECT_EQ(connect.index, 3u);
    EXPECT_EQ(connect.part, kPart);
    EXPECT_TRUE(std::equal(name.begin(), name.end(), connect.name.begin()));
    EXPECT_EQ(reject_of(bytes + hex("00")), Reject::kLength);
    EXPECT_EQ(reject_of(Bytes(bytes.begin(), bytes.end() - 1)), Reject::kShort);
  }
  {
    Page page;
    ASSERT_TRUE(page.writer.accept({.to = 1, .cookie = 2}, 4, kPart));
    const Bytes bytes = page.written();
    EXPECT_EQ(bytes.size(), kAcceptSize);
    EXPECT_EQ(bytes, hex("f709 0003 01000000 02000000 00000000 00000000 00000000"
                         "0400000000000000") +
                         part);
    const auto packet = parse(bytes);
    ASSERT_TRUE(packet);
    EXPECT_EQ(std::get<Accept>(packet->content).part, kPart);
    EXPECT_EQ(std::get<Accept>(packet->content).index, 4u);
    EXPECT_EQ(reject_of(bytes + hex("00")), Reject::kLength);
    EXPECT_EQ(reject_of(Bytes(bytes.begin(), bytes.end() - 1)), Reject::kShort);
  }
}

TEST(Packet, ProbesResetsAndClose) {
  Page page;
  ASSERT_TRUE(page.writer.probe({}, 7, 100));
  EXPECT_EQ(page.writer.size(), 100u);
  auto packet = parse(page.written());
  ASSERT_TRUE(packet);
  EXPECT_EQ(std::get<Probe>(packet->content).number, 7u);
  EXPECT_EQ(std::get<Probe>(packet->content).size, 100u);
  EXPECT_FALSE(page.writer.probe({}, 7, kHeaderSize + 3));
  EXPECT_EQ(page.writer.size(), 100u);

  page.writer.clear();
  ASSERT_TRUE(page.writer.probed({}, 7, 100));
  packet = parse(page.written());
  ASSERT_TRUE(packet);
  EXPECT_EQ(std::get<Probed>(packet->content).number, 7u);
  EXPECT_EQ(std::get<Probed>(packet->content).size, 100u);
  EXPECT_EQ(reject_of(page.written() + hex("00")), Reject::kLength);

  page.writer.clear();
  const Bytes stray = hex(kHeaderText) + hex("09000000");
  ASSERT_TRUE(page.writer.reset({.to = 9}, stray));
  EXPECT_EQ(page.writer.size(), 2 * kHeaderSize);
  packet = parse(page.written());
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->header.to, 9u);
  EXPECT_EQ(std::get<Reset>(packet->content).echo.cookie, kHeader.cookie);
  Bytes wrong = page.written();
  wrong[kHeaderSize] = 2;
  EXPECT_EQ(reject_of(wrong), Reject::kMagic);
  EXPECT_EQ(reject_of(page.written() + hex("00")), Reject::kLength);
  EXPECT_FALSE(page.writer.reset({}, std::span<const uint8_t>(stray).first(23)));

  page.writer.clear();
  ASSERT_TRUE(page.writer.header({.kind = PacketKind::kClosed}));
  packet = parse(page.written());
  ASSERT_TRUE(packet);
  EXPECT_TRUE(std::holds_alternative<Closed>(packet->content));
  EXPECT_EQ(reject_of(page.written() + hex("00")), Reject::kLength);
}

TEST(Packet, MacFollowsThePacketAndIsNotPartOfItsSize) {
  Page page;
  ASSERT_TRUE(page.writer.header({.kind = PacketKind::kClosed, .flags = kFlagMac}));
  EXPECT_EQ(reject_of(page.written()), Reject::kShort);
  const Bytes tail = counting(kMacSize, 1), bytes = page.written() + tail;
  const auto packet = parse(bytes);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->covered.size(), kHeaderSize);
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), packet->mac.begin(), packet->mac.end()));
}

TEST(Writing, WithoutRoomNothingIsWritten) {
  const RmaVector vectors[5] = {};
  const Bytes token(kTokenSize), name(kNameSize);
  const Token token_span{token.data(), kTokenSize};
  Acknowledgement ack;
  ack.words = 1;
  ack.bitmap[0] = 0;
  struct {
    size_t size;
    std::function<bool(Writer &)> write;
  } const cases[] = {
      {kHeaderSize, [&](Writer &w) { return w.header({}); }},
      {ack.size(), [&](Writer &w) { return w.acknowledgement(ack); }},
      {kChallengeSize, [&](Writer &w) { return w.challenge({}, 0, token_span); }},
      {kConnectSize,
       [&](Writer &w) {
         return w.connect({}, 0, token_span, Name{name.data(), kNameSize}, {});
       }},
      {kAcceptSize, [&](Writer &w) { return w.accept({}, 0, {}); }},
      {50, [&](Writer &w) { return w.probe({}, 0, 50); }},
      {kHeaderSize + 8, [&](Writer &w) { return w.probed({}, 0, 0); }},
      {2 * kHeaderSize, [&](Writer &w) { return w.reset({}, name); }},
      {message_size({}), [&](Writer &w) { return w.message({}, 0); }},
      {kDataFrameSize, [&](Writer &w) { return w.data({}, 0); }},
      {kPullFrameSize, [&](Writer &w) { return w.pull({}); }},
      {kDoneFrameSize, [&](Writer &w) { return w.done({}); }},
      {read_size(4), [&](Writer &w) { return w.read(0, std::span<const RmaVector>(vectors, 4)); }},
      {write_size(true, 4),
       [&](Writer &w) {
         return w.write({.has_data = true}, std::span<const RmaVector>(vectors, 4), 0);
       }},
      {atomic_size(4),
       [&](Writer &w) { return w.atomic({}, std::span<const RmaVector>(vectors, 4), 0); }},
      {kResultFrameSize, [&](Writer &w) { return w.result({}, 0); }},
      {kPingFrameSize, [&](Writer &w) { return w.ping(); }},
      {3, [&](Writer &w) { return w.payload(std::span(name).first(3)); }},
  };
  for (const auto &c : cases) {
    std::vector<uint8_t> bytes(c.size + 1, 0xEE);
    Writer tight{std::span<uint8_t>(bytes.data(), c.size - 1)};
    EXPECT_FALSE(c.write(tight));
    EXPECT_EQ(tight.size(), 0u);
    EXPECT_EQ(bytes[0], 0xEE);
    Writer exact{std::span<uint8_t>(bytes.data(), c.size)};
    EXPECT_TRUE(c.write(exact));
    EXPECT_EQ(exact.size(), c.size);
    EXPECT_EQ(exact.room(), 0u);
    EXPECT_EQ(bytes[c.size], 0xEE);
  }
  Page page;
  EXPECT_FALSE(page.writer.read(0, vectors));
  EXPECT_FALSE(page.writer.write({}, vectors, 0));
  EXPECT_FALSE(page.writer.atomic({}, vectors, 0));
}

TEST(Texts, EveryReasonHasOne) {
  for (uint8_t r = 0; r <= uint8_t(Reject::kOperands); ++r) {
    EXPECT_STRNE(text_of(static_cast<Reject>(r)), "unknown reason");
  }
}

}  // namespace
}  // namespace weft::rxd::wire
