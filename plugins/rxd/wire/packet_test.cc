// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/wire/packet.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace weft::rxd::wire {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes counting(size_t n, uint8_t from) {
  Bytes out(n);
  std::iota(out.begin(), out.end(), from);
  return out;
}

// "f7 04 0100 ..." as bytes.
Bytes hex(const std::string &text) {
  Bytes out;
  std::string digits;
  for (const char c : text) {
    if (c != ' ') digits += c;
  }
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    out.push_back(static_cast<uint8_t>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return out;
}

Bytes operator+(Bytes a, const Bytes &b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A writer with its own memory.
struct Page {
  std::array<uint8_t, 4096> bytes{};
  Writer writer{bytes};
  Bytes written() const { return {writer.written().begin(), writer.written().end()}; }
};

const Header kHeader{.kind = PacketKind::kData,
                     .flags = kFlagOrdered,
                     .to = 0x04030201,
                     .cookie = 0x08070605,
                     .sequence = 0x0C0B0A09,
                     .time = 0x100F0E0D,
                     .checksum = 0x14131211};
const std::string kHeaderText = "f709 0804 01020304 05060708 090a0b0c 0d0e0f10 11121314";

Reject reject_of(const Bytes &bytes) {
  const auto packet = parse(bytes);
  return packet ? Reject::kNone : packet.error();
}
Reject frames_reject(const Bytes &frames, bool ordered = true) {
  FrameReader reader(frames, ordered);
  while (reader.next()) {
  }
  return reader.reject();
}

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
  ack.bitmap[0] = 9;
  ack.bitmap[1] = uint64_t{1} << 63;
  Page page;
  Header header{.kind = PacketKind::kAcknowledge, .flags = kFlagAcknowledgement};
  ASSERT_TRUE(page.writer.header(header));
  ASSERT_TRUE(page.writer.acknowledgement(ack));
  const Bytes bytes = page.written();
  EXPECT_EQ(Bytes(bytes.begin() + kHeaderSize, bytes.end()),
            hex("04030201 05000000 06000000 07000000 08000000 0200 0000"
                "0900000000000000 0000000000000080"));
  const auto packet = parse(bytes);
  ASSERT_TRUE(packet);
  EXPECT_TRUE(std::holds_alternative<Acknowledge>(packet->content));
  EXPECT_EQ(packet->acknowledgement.next, ack.next);
  EXPECT_EQ(packet->acknowledgement.echo, 5u);
  EXPECT_EQ(packet->acknowledgement.limit, 6u);
  EXPECT_EQ(packet->acknowledgement.messages, 7u);
  EXPECT_EQ(packet->acknowledgement.credit, 8u);
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

// ---- frames ----

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
