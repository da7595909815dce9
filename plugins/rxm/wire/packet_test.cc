// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/wire/packet.h"

#include <gtest/gtest.h>
#include <rdma/fi_domain.h>

#include <cstring>
#include <string>
#include <vector>

namespace weft::rxm {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes hex(const char *text) {
  Bytes out;
  for (const char *at = text; *at != '\0'; ++at) {
    if (*at == ' ') continue;
    out.push_back(uint8_t(std::stoul(std::string(at, 2), nullptr, 16)));
    ++at;
  }
  return out;
}

template <class T>
Bytes bytes_of(const T &t) {
  Bytes out(sizeof t);
  std::memcpy(out.data(), &t, sizeof t);
  return out;
}

Bytes join(Bytes a, const Bytes &b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

WireHeader message(PacketType type, uint64_t size) {
  WireHeader h = header_of(type, 3);
  h.op = uint8_t(PacketOp::kTagged);
  h.size = size;
  h.tag = 0x1234;
  h.message = 9;
  return h;
}

TEST(Packet, TheSenderSaysWhatItWaitsFor) {
  for (const PacketType type : {PacketType::kEager, PacketType::kSegment})
    for (const auto &[flags, tell] : {std::pair(0u, Tell::kNothing),
                                      {kFlagTellDelivered, Tell::kDelivered},
                                      {kFlagTellMatched | kFlagRemoteData, Tell::kMatched},
                                      {kFlagRemoteData, Tell::kNothing}}) {
      WireHeader h = message(type, 0);
      h.control_data = uint64_t(SegmentKind::kFirst);
      h.flags = flags;
      const Parsed p = parse(bytes_of(h));
      ASSERT_EQ(p.reject, Reject::kNone) << text_of(p.reject);
      EXPECT_EQ(p.packet.tell, tell);
    }
}

// Packets captured from stock peers.
TEST(Packet, TaggedWithDataAsCaptured) {
  const Bytes b = join(hex("04000000 00000000 0000000000000000 0000000000000000 0000000000000000"
                           "02000100 00000200 1000000000000000 8877665544332211 0110000000000000"),
                       Bytes(16, 'x'));
  const Parsed p = parse(b);
  ASSERT_EQ(p.reject, Reject::kNone) << text_of(p.reject);
  EXPECT_EQ(p.packet.type, PacketType::kEager);
  EXPECT_EQ(p.packet.op, PacketOp::kTagged);
  EXPECT_TRUE(p.packet.has_data);
  EXPECT_EQ(p.packet.data, 0x1122334455667788u);
  EXPECT_EQ(p.packet.tag, 0x1001u);
  EXPECT_EQ(p.packet.payload.size(), 16u);
}

TEST(Packet, RendezvousAsCaptured) {
  Bytes b =
      hex("0402401c 02000000 0000000000000000 0200000000000000 0300000000000000"
          "02000100 00000000 400d030000000000 0000000000000000 0a10000000000000"
          "0000000000000000 400d030000000000 0000008000000000");
  b.resize(64 + 96, 0xee);  // unused vectors
  b.push_back(1);
  b.resize(168, 0xee);
  const Parsed p = parse(b);
  ASSERT_EQ(p.reject, Reject::kNone) << text_of(p.reject);
  EXPECT_EQ(p.packet.type, PacketType::kRendezvous);
  EXPECT_EQ(p.packet.message, 2u);
  EXPECT_EQ(p.packet.size, 200000u);
  ASSERT_EQ(p.packet.count, 1);
  EXPECT_EQ(p.packet.vectors[0], (RmaVector{0, 200000, 0x80000000}));
}

TEST(Packet, FetchingAtomicAsCaptured) {
  Bytes b =
      hex("04040000 00000000 0000000000000000 0200000000000000 0000000000000000"
          "02000700 00000000 6800000000000000 0000000000000000 0702010000000000"
          "0000000000000000 0100000000000000 0100dec000000000");
  b.resize(64 + 96, 0xee);
  b = join(b, hex("0700000000000000"));
  const Parsed p = parse(b);
  ASSERT_EQ(p.reject, Reject::kNone) << text_of(p.reject);
  EXPECT_EQ(p.packet.op, PacketOp::kFetch);
  EXPECT_EQ(p.packet.datatype, FI_UINT64);
  EXPECT_EQ(p.packet.operation, FI_SUM);
  EXPECT_EQ(p.packet.size, 8u);
  EXPECT_EQ(p.packet.vectors[0].key, 0xc0de0001u);
  EXPECT_EQ(p.packet.payload[0], 7);
}

TEST(Packet, AtomicResponseAsCaptured) {
  const Bytes b =
      hex("04050000 00000000 0000000000000000 0200000000000000 0000000000000000"
          "02000700 00000000 1000000000000000 0000000000000000 0702000000000000"
          "00000000 00000008 6662636465666768");
  const Parsed p = parse(b);
  ASSERT_EQ(p.reject, Reject::kNone) << text_of(p.reject);
  EXPECT_EQ(p.packet.status, 0);
  EXPECT_EQ(p.packet.payload.size(), 8u);
  Bytes bad = b;
  bad[64] = 0xff, bad[65] = 0xff, bad[66] = 0xff, bad[67] = 0xf3, bad[71] = 0;
  EXPECT_EQ(parse(bad).packet.status, -13);
  bad[71] = 9;  // longer than the packet
  EXPECT_EQ(parse(bad).reject, Reject::kLength);
}

TEST(Packet, EncodedPacketsAreParsed) {
  uint8_t status[kAtomicStatusSize];
  encode_status(-13, 0, status);
  EXPECT_EQ(Bytes(status, status + 8), hex("fffffff3 00000000"));
  const RmaVector vectors[] = {{1, 600, 3}, {4, 400, 6}};
  WireVectors wire;
  encode_vectors(vectors, wire);
  const Parsed p = parse(join(bytes_of(message(PacketType::kRendezvous, 1000)), bytes_of(wire)));
  ASSERT_EQ(p.reject, Reject::kNone);
  ASSERT_EQ(p.packet.count, 2);
  EXPECT_EQ(p.packet.vectors[1], vectors[1]);
  EXPECT_EQ(p.packet.connection, 3u);
}

TEST(Packet, ImpossiblePacketsAreRejected) {
  const Bytes eager = join(bytes_of(message(PacketType::kEager, 4)), Bytes(4));
  ASSERT_EQ(parse(eager).reject, Reject::kNone);
  EXPECT_EQ(parse({}).reject, Reject::kShort);
  EXPECT_EQ(parse({eager.data(), 63}).reject, Reject::kShort);
  EXPECT_EQ(parse({eager.data(), 67}).reject, Reject::kLength);
  const auto with = [](Bytes b, size_t at, uint8_t value) {
    b[at] = value;
    return parse(b).reject;
  };
  EXPECT_EQ(with(eager, 0, 5), Reject::kControlVersion);
  EXPECT_EQ(with(eager, 1, 9), Reject::kType);
  EXPECT_EQ(with(eager, 32, 3), Reject::kOperationVersion);
  EXPECT_EQ(with(eager, 34, 2), Reject::kOp);
  EXPECT_EQ(with(eager, 40, 5), Reject::kLength);

  WireHeader h = message(PacketType::kSegment, 10);
  h.segment_size = 4;
  h.control_data = uint64_t(SegmentKind::kFirst);
  const Bytes segment = join(bytes_of(h), Bytes(4));
  ASSERT_EQ(parse(segment).reject, Reject::kNone);
  EXPECT_EQ(with(segment, 24, 0), Reject::kSegment);  // no kind
  EXPECT_EQ(with(segment, 24, 2), Reject::kSegment);  // not the first, with number 0
  EXPECT_EQ(with(segment, 4, 1), Reject::kSegment);   // the first, with another number
  EXPECT_EQ(with(segment, 40, 3), Reject::kSegment);  // longer than its message
  EXPECT_EQ(with(segment, 2, 5), Reject::kLength);

  WireVectors wire{};
  wire.count = 1;
  wire.vector[0].length = 1000;
  const Bytes request = join(bytes_of(message(PacketType::kRendezvous, 1000)), bytes_of(wire));
  ASSERT_EQ(parse(request).reject, Reject::kNone);
  EXPECT_EQ(with(request, 160, 0), Reject::kVectors);
  EXPECT_EQ(with(request, 160, 5), Reject::kVectors);
  EXPECT_EQ(with(request, 40, 1), Reject::kVectors);  // another length
  wire.count = 0;                                     // an empty message may have no vector
  EXPECT_EQ(parse(join(bytes_of(message(PacketType::kRendezvous, 0)), bytes_of(wire))).reject,
            Reject::kNone);
  EXPECT_EQ(parse({request.data(), 167}).reject, Reject::kLength);
}

TEST(Packet, PacketsThatEndAConnection) {
  WireHeader h = header_of(PacketType::kPart, 3);
  for (Parting parting : {Parting::kAsk, Parting::kAgree, Parting::kStay}) {
    h.control_data = uint64_t(parting);
    const Parsed p = parse(bytes_of(h));
    ASSERT_EQ(p.reject, Reject::kNone);
    EXPECT_EQ(p.packet.type, PacketType::kPart);
    EXPECT_EQ(p.packet.parting, parting);
  }
  for (uint64_t unknown : {UINT64_C(0), UINT64_C(4), UINT64_C(0x101)}) {
    h.control_data = unknown;
    EXPECT_EQ(parse(bytes_of(h)).reject, Reject::kParting);
  }
  for (uint8_t type : {9, 63, 65, 255}) {
    h.type = type;
    EXPECT_EQ(parse(bytes_of(h)).reject, Reject::kType);
  }
}

TEST(Packet, AtomicsThatLieAboutTheirLengthAreRejected) {
  WireHeader h = header_of(PacketType::kAtomic, 0);
  h.op = uint8_t(PacketOp::kCompare);
  h.size = 96 + 16;
  h.atomic.datatype = FI_UINT64;
  h.atomic.operation = FI_CSWAP;
  h.atomic.vectors = 1;
  RmaVector v{0, 1, 7};
  const auto packet = [&](size_t more) {
    Bytes b = join(bytes_of(h), bytes_of(v));
    b.resize(64 + 96 + more);
    return parse(b).reject;
  };
  EXPECT_EQ(packet(16), Reject::kNone);
  EXPECT_EQ(packet(8), Reject::kAtomicLength);
  v.length = UINT64_MAX / 4;  // times 8 overflows
  EXPECT_EQ(packet(16), Reject::kAtomicLength);
  v.length = 2;
  EXPECT_EQ(packet(16), Reject::kAtomicLength);
  v.length = 1;
  h.atomic.datatype = 200;
  EXPECT_EQ(packet(16), Reject::kAtomicCode);
  h.atomic.datatype = FI_UINT64;
  h.atomic.vectors = 5;
  EXPECT_EQ(packet(16), Reject::kVectors);
  // An atomic read has no operands, but its answer must have a possible length.
  h.op = uint8_t(PacketOp::kFetch);
  h.atomic.operation = FI_ATOMIC_READ;
  h.atomic.vectors = 1;
  h.size = 96;
  EXPECT_EQ(packet(0), Reject::kNone);
  v.length = UINT64_C(1) << 40;
  EXPECT_EQ(packet(0), Reject::kAtomicLength);
}

}  // namespace
}  // namespace weft::rxm
