// SPDX-License-Identifier: BSD-2-Clause
// The checksum, the MAC, the keys and the tokens: what they depend on, and known values.
#include "plugins/rxd/wire/integrity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace weft::rxd::wire {
namespace {

using Bytes = std::vector<uint8_t>;
constexpr uint64_t kSecond = 1'000'000'000;

std::span<const uint8_t> span_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t *>(text.data()), text.size()};
}

TEST(Checksum, IsCrc32c) {
  EXPECT_EQ(crc32c(span_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(span_of("")), 0u);
  const Bytes zeros(32, 0), ones(32, 0xFF);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(zeros), 0x8A9136AAu);
  EXPECT_EQ(crc32c(ones), 0x62A8AB43u);
}

TEST(Checksum, OfPiecesEqualsThatOfTheWhole) {
  std::string text(5000, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7);
  const uint32_t whole = crc32c(span_of(text));
  EXPECT_EQ(crc32c(span_of(text).subspan(1234), crc32c(span_of(text).first(1234))), whole);
  for (const size_t cut : {0u, 1u, 24u, 4999u, 5000u}) {
    const iovec pieces[] = {{text.data(), cut}, {nullptr, 0}, {text.data() + cut, 5000 - cut}};
    EXPECT_EQ(crc32c(pieces), whole);
  }
}

Bytes packet_of(uint16_t flags) {
  Bytes bytes(kHeaderSize + kPingFrameSize);
  Writer writer(bytes);
  writer.header({.kind = PacketKind::kData, .flags = flags, .to = 1, .cookie = 2, .sequence = 3});
  writer.ping();
  return bytes;
}

TEST(Checksum, EveryBitOfADatagramCounts) {
  Bytes bytes = packet_of(kFlagChecksum);
  const iovec piece{bytes.data(), bytes.size()};
  set_checksum(bytes.data(), checksum({&piece, 1}));
  ASSERT_TRUE(parse(bytes));
  EXPECT_TRUE(checksum_fits(*parse(bytes)));
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    Bytes wrong = bytes;
    wrong[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    const auto packet = parse(wrong);
    EXPECT_FALSE(packet && checksum_fits(*packet)) << bit;
  }
  // Without a checksum the field must be zero, so a cleared flag is found.
  const Bytes none = packet_of(0);
  EXPECT_TRUE(checksum_fits(*parse(none)));
}

TEST(Mac, DependsOnEveryBitTheKeyAndTheNumber) {
  const Key key = handshake_key("a key of ours");
  Bytes bytes = packet_of(kFlagMac);
  const size_t n = bytes.size();
  bytes.resize(n + kMacSize);
  const iovec pieces[] = {{bytes.data(), 10}, {bytes.data() + 10, n - 10}};
  mac(key, pieces, 7, std::span<uint8_t, kMacSize>(bytes.data() + n, kMacSize));
  ASSERT_TRUE(parse(bytes));
  EXPECT_TRUE(mac_fits(key, *parse(bytes), 7));
  EXPECT_FALSE(mac_fits(key, *parse(bytes), 8));
  EXPECT_FALSE(mac_fits(handshake_key("another key"), *parse(bytes), 7));
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    Bytes wrong = bytes;
    wrong[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    const auto packet = parse(wrong);
    EXPECT_FALSE(packet && mac_fits(key, *packet, 7)) << bit;
  }
  const Bytes none = packet_of(0);
  EXPECT_FALSE(mac_fits(key, *parse(none), 7));
}

// An independent BLAKE2b gives the same (python3: hashlib.blake2b).
TEST(Keys, AreAsDocumented) {
  const auto text = [](const Key &key) {
    std::string out;
    for (const uint8_t byte : key) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", byte);
      out += digits;
    }
    return out;
  };
  EXPECT_EQ(text(handshake_key("secret")),
            "ef03ba177d60cb82f79f4941a3696e33c8d30a9fa156b930d71a5fd67acb1eeb");
  EXPECT_EQ(text(handshake_key(std::string(100, 'k'))),
            "e30481fd9b535bf1d264fbd05c12d4b04b79763afe24e9d399397cecc9165af9");
  const Part one{.instance = 1, .connection = 2, .cookie = 3, .limit = 99};
  const Part two{.instance = 0x0102030405060708, .connection = 5, .cookie = 6};
  EXPECT_EQ(text(connection_key("secret", one, two)),
            "47263db2a88e002b1f365cf82b2b0156b699e1aeaf25661e31df87f725f37df4");
}

TEST(Keys, AreTheSameAtBothEnds) {
  const Part one{.instance = 10, .connection = 2, .cookie = 3, .limit = 4};
  Part two{.instance = 9, .connection = 2, .cookie = 3, .limit = 4};
  EXPECT_EQ(connection_key("k", one, two), connection_key("k", two, one));
  EXPECT_NE(connection_key("k", one, two), connection_key("l", one, two));
  EXPECT_NE(connection_key("k", one, two), handshake_key("k"));
  const Key key = connection_key("k", one, two);
  two.limit = 1000;  // may change while a handshake is repeated
  EXPECT_EQ(connection_key("k", one, two), key);
  two.cookie = 4;
  EXPECT_NE(connection_key("k", one, two), key);
  two.instance = 10;  // an endpoint that talks to itself
  EXPECT_EQ(connection_key("k", one, two), connection_key("k", two, one));
}

TEST(Tokens, HoldForAnAddressAndATime) {
  const TokenMaker maker({1, 2, 3}), other({1, 2, 4});
  Bytes address(16, 7);
  const auto token = maker.make(100 * kSecond, address);
  EXPECT_EQ(maker.made_at(token, 100 * kSecond, 10 * kSecond, address), 100 * kSecond);
  EXPECT_EQ(maker.made_at(token, 110 * kSecond, 10 * kSecond, address), 100 * kSecond);
  EXPECT_EQ(maker.made_at(token, 110 * kSecond + 1, 10 * kSecond, address), 0u);
  EXPECT_EQ(maker.made_at(token, 99 * kSecond, 10 * kSecond, address), 0u);  // of the future
  EXPECT_EQ(other.made_at(token, 100 * kSecond, 10 * kSecond, address), 0u);
  for (size_t bit = 0; bit < 8 * token.size(); ++bit) {
    auto wrong = token;
    wrong[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    EXPECT_EQ(maker.made_at(wrong, 100 * kSecond, UINT64_MAX, address), 0u) << bit;
  }
  address.back() = 8;
  EXPECT_EQ(maker.made_at(token, 100 * kSecond, 10 * kSecond, address), 0u);
  address.pop_back();
  EXPECT_EQ(maker.made_at(token, 100 * kSecond, 10 * kSecond, address), 0u);
}

}  // namespace
}  // namespace weft::rxd::wire
