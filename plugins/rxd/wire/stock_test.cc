// SPDX-License-Identifier: BSD-2-Clause
// The packets of stock's rxd: captured ones byte for byte, the same written by us, and bad ones.
#include "plugins/rxd/wire/stock.h"

#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <weft/sdk/ip/sock_addr.h>

#include <cstring>
#include <string>
#include <vector>

namespace weft::rxd::stock {
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

Bytes join(Bytes a, const Bytes &b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Bytes written(const Packet &p) {
  uint8_t header[kMaxHeader];
  const size_t n = encode(p, header);
  EXPECT_EQ(n, header_size(p));
  return {header, header + n};
}

Packet accepted(const Bytes &b) {
  const Parsed p = parse(b, FI_SOCKADDR_IP);
  EXPECT_EQ(p.reject, Reject::kNone) << text_of(p.reject);
  return p.packet;
}

// ---- packets of stock peers, byte for byte, and the same written by us ----

TEST(StockPacket, Rts) {
  const Bytes b = join(hex("02090000 00000000 0000000000000000"
                           "0100000000000000 020085b0 7f000001"),
                       Bytes(56, 0));
  const Packet p = accepted(b);
  EXPECT_EQ(p.type, Type::kRts);
  EXPECT_EQ(p.index, 1u);
  EXPECT_FALSE(p.marked);
  EXPECT_EQ(p.name.to_string(), "127.0.0.1:34224");
  EXPECT_EQ(written(p), b);
}

TEST(StockPacket, MarkedRts) {
  Packet p;
  p.type = Type::kRts;
  p.index = 5;
  p.marked = true;
  p.name = sdk::SockAddr::loopback(AF_INET6, 99);
  const Bytes b = written(p);
  EXPECT_EQ(b.size(), kRtsSize);
  EXPECT_EQ(std::string(b.begin() + 8, b.begin() + 16), "weft-rxd");
  const Packet q = accepted(b);
  EXPECT_TRUE(q.marked);
  EXPECT_EQ(q.index, 5u);
  EXPECT_EQ(q.name, p.name);
}

TEST(StockPacket, Cts) {
  const Bytes b = hex("020a0000 00000000 0000000000000000 0100000000000000 0100000000000000");
  const Packet p = accepted(b);
  EXPECT_EQ(p.type, Type::kCts);
  EXPECT_EQ(p.rts_index, 1u);
  EXPECT_EQ(p.index, 1u);
  EXPECT_EQ(written(p), b);
}

TEST(StockPacket, InlineMessage) {
  const Bytes header = hex("02002000 01000000 0000000000000000");
  const Bytes b = join(header, Bytes(16, 'x'));
  const Packet p = accepted(b);
  EXPECT_EQ(p.type, Type::kMessage);
  EXPECT_TRUE(p.is_inline);
  EXPECT_EQ(p.peer, 1u);
  EXPECT_EQ(p.size, 16u);
  EXPECT_EQ(p.packets, 1u);
  EXPECT_EQ(p.payload.size(), 16u);
  EXPECT_EQ(written(p), header);
}

TEST(StockPacket, Acknowledgement) {
  // Stock leaves values in the undefined fields; ours are 0.
  const Packet p =
      accepted(hex("020b0000 01000000 0100000000000000 01000000 80000000 0100000000000000"));
  EXPECT_EQ(p.type, Type::kAck);
  EXPECT_EQ(p.sequence, 1u);
  EXPECT_EQ(p.window, 128u);
  EXPECT_EQ(written(p),
            hex("020b0000 01000000 0100000000000000 00000000 80000000 0000000000000000"));
  // A write with a wrong key.
  const Packet q =
      accepted(hex("020b0000 01000000 0100000000000000 01000000 00000000 0100000000000000"));
  EXPECT_EQ(q.window, 0u);
}

TEST(StockPacket, TaggedWithData) {
  const Bytes header = hex("02013100 01000000 0200000000000000 0110000000000000 8877665544332211");
  const Packet p = accepted(join(header, Bytes(16, 'x')));
  EXPECT_EQ(p.type, Type::kTagged);
  EXPECT_EQ(p.sequence, 2u);
  EXPECT_EQ(p.tag, 0x1001u);
  EXPECT_TRUE(p.has_data);
  EXPECT_EQ(p.data, 0x1122334455667788u);
  EXPECT_EQ(written(p), header);
}

TEST(StockPacket, WriteWithData) {
  const Bytes header =
      hex("02042100 01000000 0b00000000000000 8877665544332211 0000000000000000"
          "1000000000000000 0100dec000000000");
  const Packet p = accepted(join(header, Bytes(16, 'x')));
  EXPECT_EQ(p.type, Type::kWrite);
  EXPECT_EQ(p.count, 1);
  EXPECT_EQ(p.vectors[0].length, 16u);
  EXPECT_EQ(p.vectors[0].key, 0xc0de0001u);
  EXPECT_EQ(written(p), header);
}

TEST(StockPacket, LongTagged) {
  const Bytes header =
      hex("02011100 01000000 0700000000000000 0210000000000000 8877665544332211"
          "a00f000000000000 0300000000000000 00000000 00 68696a");
  const Bytes b = join(header, Bytes(kDatagram - header.size(), 'a'));
  const Packet p = accepted(b);
  EXPECT_FALSE(p.is_inline);
  EXPECT_EQ(p.size, 4000u);
  EXPECT_EQ(p.packets, 3u);
  EXPECT_EQ(p.count, 0);
  EXPECT_EQ(p.payload.size(), 1416u);
  Bytes ours = header;
  std::fill(ours.end() - 3, ours.end(), uint8_t(0));
  EXPECT_EQ(written(p), ours);

  const Packet d = accepted(join(hex("020c1000 01000000 0900000000000000 0000000000000000"
                                     "0100000000000000"),
                                 Bytes(1144, 'b')));
  EXPECT_EQ(d.type, Type::kData);
  EXPECT_EQ(d.sequence, 9u);
  EXPECT_EQ(d.segment, 1u);
  EXPECT_EQ(d.payload.size(), 1144u);
}

TEST(StockPacket, ReadAndAnswer) {
  const Bytes b =
      hex("02020000 01000000 0c00000000000000 1000000000000000 0100000000000000"
          "00000000 01000000 0000000000000000 1000000000000000 0100dec000000000");
  const Packet p = accepted(b);
  EXPECT_EQ(p.type, Type::kRead);
  EXPECT_EQ(p.size, 16u);
  EXPECT_EQ(p.count, 1);
  EXPECT_EQ(written(p), b);

  const Bytes answer = hex("020d0000 01000000 0000000000000000 0000000000000000 0000000000000000");
  const Packet a = accepted(join(answer, Bytes(16, 'z')));
  EXPECT_EQ(a.type, Type::kAnswer);
  EXPECT_EQ(a.payload.size(), 16u);
  EXPECT_EQ(written(a), answer);
}

TEST(StockPacket, CompareSwap) {
  const Bytes header =
      hex("02080000 01000000 1300000000000000 0800000000000000 0100000000000000"
          "00000000 01000000 0000000000000000 0800000000000000 0100dec000000000"
          "07000000 0c000000");
  const Bytes whole = join(header, hex("0900000000000000 0c00000000000000"));
  const Packet p = accepted(whole);
  EXPECT_EQ(p.type, Type::kCompare);
  EXPECT_EQ(p.datatype, uint32_t(FI_UINT64));
  EXPECT_EQ(p.operation, uint32_t(FI_CSWAP));
  EXPECT_EQ(p.size, 8u);
  ASSERT_EQ(p.payload.size(), 8u);
  ASSERT_EQ(p.compare.size(), 8u);
  EXPECT_EQ(p.payload[0], 9);
  EXPECT_EQ(p.compare[0], 12);
  EXPECT_EQ(written(p), header);
}

// ---- what is refused ----

Reject reason(const Bytes &b) {
  return parse(b, FI_SOCKADDR_IP).reject;
}

TEST(StockPacket, ATruncatedPacketIsRefusedOrWhole) {
  const Bytes write = join(hex("02042100 01000000 0b00000000000000 8877665544332211"
                               "0000000000000000 1000000000000000 0100dec000000000"),
                           Bytes(16, 'x'));
  for (size_t n = 0; n < write.size(); ++n)
    EXPECT_NE(reason({write.begin(), write.begin() + long(n)}), Reject::kNone) << n;
  EXPECT_EQ(reason(write), Reject::kNone);
}

TEST(StockPacket, BadPacketsAreRefusedWithAReason) {
  const Bytes base = hex("02002000 01000000 0000000000000000");
  const auto with = [&](size_t at, uint8_t value) {
    Bytes b = base;
    b[at] = value;
    return reason(b);
  };
  EXPECT_EQ(reason(base), Reject::kNone);  // a message of no bytes
  EXPECT_EQ(with(0, 1), Reject::kVersion);
  for (const uint8_t type : {3, 5, 14, 255}) EXPECT_EQ(with(1, type), Reject::kType);
  EXPECT_EQ(with(1, 1), Reject::kTag);
  EXPECT_EQ(with(1, 2), Reject::kInline);
  EXPECT_EQ(with(1, 9), Reject::kShort);

  Packet p;
  p.type = Type::kMessage;
  p.size = 2000;
  p.packets = 3;  // 1432 and 568: two
  EXPECT_EQ(reason(join(written(p), Bytes(1432, 'a'))), Reject::kPackets);
  p.packets = 2;
  EXPECT_EQ(reason(join(written(p), Bytes(1432, 'a'))), Reject::kNone);
  p.size = 1000;
  EXPECT_EQ(reason(join(written(p), Bytes(1432, 'a'))), Reject::kLength);
  p.size = UINT64_MAX;
  EXPECT_EQ(reason(join(written(p), Bytes(1432, 'a'))), Reject::kLength);

  p = {};
  p.type = Type::kRead;
  p.size = 10;
  p.count = 5;
  Bytes b =
      hex("02020000 01000000 0c00000000000000 1000000000000000 0100000000000000"
          "00000000 05000000 0000000000000000 1000000000000000 0100dec000000000");
  EXPECT_EQ(reason(b), Reject::kVectors);
  b[36] = 0;
  EXPECT_EQ(reason(b), Reject::kVectors);
  b[36] = 2;
  EXPECT_EQ(reason(b), Reject::kShort);
  p.count = 2;
  p.vectors[0].length = UINT64_MAX;
  p.vectors[1].length = 11;
  EXPECT_EQ(reason(written(p)), Reject::kVectors);  // 10, if it could overflow
  p.vectors[0].length = 0;
  EXPECT_EQ(reason(written(p)), Reject::kVectors);
  p.vectors[1].length = 10;
  EXPECT_EQ(reason(written(p)), Reject::kNone);
}

TEST(StockPacket, AtomicLengths) {
  Packet p;
  p.type = Type::kFetch;
  p.count = 1;
  p.vectors[0].length = 16;
  p.operation = FI_SUM;
  EXPECT_EQ(reason(join(written(p), Bytes(16))), Reject::kNone);
  EXPECT_EQ(reason(join(written(p), Bytes(15))), Reject::kOperand);
  EXPECT_EQ(reason(written(p)), Reject::kOperand);
  p.operation = FI_ATOMIC_READ;
  EXPECT_EQ(reason(written(p)), Reject::kNone);
  p.vectors[0].length = uint64_t(1) << 40;  // the answer would not fit a packet
  EXPECT_EQ(reason(written(p)), Reject::kOperand);
}

TEST(StockPacket, NamesOfUnsupportedFamiliesAreRefused) {
  Packet p;
  p.type = Type::kRts;
  p.index = 1;
  p.name = sdk::SockAddr::any(AF_INET, 7);
  EXPECT_EQ(reason(written(p)), Reject::kName);
  p.name = sdk::SockAddr::loopback(AF_INET, 0);
  EXPECT_EQ(reason(written(p)), Reject::kName);
  p.name = sdk::SockAddr::loopback(AF_INET, 7);
  EXPECT_EQ(reason(written(p)), Reject::kNone);
  p.index = 0;
  EXPECT_EQ(reason(written(p)), Reject::kIndex);
}

// The name is an address of the inner provider, so only the receiver knows its format.
TEST(StockPacket, NamesAreOfTheInnerProvidersFormat) {
  Packet p;
  p.type = Type::kRts;
  p.index = 1;
  for (const char *text : {"fi_addr_ib_ud://fe80::1:11/4/ffff/3", "fi_addr_cxi://0x00001201",
                           "fi_sockaddr_ib://[fe80::1]:0xffff:0x106:0x0"}) {
    p.name = *sdk::read_address(FI_ADDR_STR, text);
    const Parsed parsed = parse(written(p), p.name.format());
    EXPECT_EQ(parsed.reject, Reject::kNone) << text;
    EXPECT_EQ(parsed.packet.name, p.name) << text;
    EXPECT_EQ(reason(written(p)), Reject::kName) << text << " where peers have IP addresses";
  }
  p.name = *sdk::read_address(FI_ADDR_STR, "fi_addr_ib_ud://fe80::1:0/4/ffff/3");
  EXPECT_EQ(parse(written(p), FI_ADDR_IB_UD).reject, Reject::kName) << "no queue pair";
}

}  // namespace
}  // namespace weft::rxd::stock
