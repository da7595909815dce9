// SPDX-License-Identifier: BSD-2-Clause
#include "key_exchange.h"

#include <gtest/gtest.h>
#include <weft/sdk/ip/sock_addr.h>

#include <algorithm>
#include <string>

namespace weft::tcp {
namespace {

class KeyExchangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto mac = sdk::Mac::load();
    ASSERT_TRUE(mac) << mac.error().text;
    mac_ = *mac;
  }
  KeyExchange active(std::string_view key, const char *at = "10.0.0.1") {
    return make(ConnectRole::kActive, key, at);
  }
  KeyExchange passive(std::string_view key, const char *at = "10.0.0.1") {
    return make(ConnectRole::kPassive, key, at);
  }
  KeyExchange make(ConnectRole role, std::string_view key, const char *at, uint16_t port = 7000) {
    return KeyExchange(role, sdk::AuthKey(key.begin(), key.end()), *mac_,
                       sdk::place_of(*sdk::SockAddr::from_ip(at, port)));
  }
  static std::vector<uint8_t> take(KeyExchange &from) {
    std::vector<uint8_t> bytes(from.output().begin(), from.output().end());
    from.sent();
    return bytes;
  }
  static size_t give(KeyExchange &to, std::span<const uint8_t> bytes, size_t piece) {
    size_t used = 0;
    while (used < bytes.size()) {
      const std::span<uint8_t> space = to.space();
      const size_t n = std::min({space.size(), piece, bytes.size() - used});
      if (n == 0) break;
      std::copy_n(bytes.data() + used, n, space.data());
      to.on_read(n);
      used += n;
    }
    return used;
  }
  // Until neither side has output.
  static void talk(KeyExchange &a, KeyExchange &b, size_t piece) {
    for (int turn = 0; turn < 4; ++turn) {
      give(b, take(a), piece);
      give(a, take(b), piece);
    }
  }
  const sdk::Mac *mac_ = nullptr;
};

TEST_F(KeyExchangeTest, TheSameKeyInAnyPieces) {
  for (size_t piece : {1, 7, 100}) {
    KeyExchange a = active("secret"), b = passive("secret");
    talk(a, b, piece);
    EXPECT_TRUE(a.done() && b.done()) << piece;
    EXPECT_FALSE(a.rejected() || b.rejected());
    EXPECT_TRUE(a.space().empty() && b.space().empty()) << "later bytes are for the next reader";
  }
}

TEST_F(KeyExchangeTest, TheActiveSideRefusesAnotherKey) {
  KeyExchange a = active("secret"), b = passive("Secret");
  talk(a, b, 100);
  EXPECT_EQ(a.rejected(), KeyExchange::Refusal::kOtherKey);
  EXPECT_FALSE(a.done() || b.done());
  EXPECT_TRUE(a.output().empty()) << "a side without the key gets no code";
}

TEST_F(KeyExchangeTest, RecordedBytesAreRefused) {
  KeyExchange a = active("secret"), b = passive("secret");
  const auto hello = take(a);
  give(b, hello, 100);
  give(a, take(b), 100);
  const auto proof = take(a);
  ASSERT_TRUE(a.done());
  // A replay of all recorded bytes.
  KeyExchange c = passive("secret");
  EXPECT_EQ(give(c, hello, 100), hello.size());
  (void)take(c);
  give(c, proof, 100);
  EXPECT_EQ(c.rejected(), KeyExchange::Refusal::kOtherKey);
  // The side's own code, sent back to it.
  KeyExchange d = passive("secret");
  give(d, hello, 100);
  const auto answer = take(d);
  give(d, std::span(answer).last(sdk::Mac::kSize), 100);
  EXPECT_EQ(d.rejected(), KeyExchange::Refusal::kOtherKey);
}

// Who has the called address passes the bytes on to another process with the key.
TEST_F(KeyExchangeTest, WhoWasCalledElsewhereIsRefused) {
  KeyExchange a = active("secret", "10.0.0.1"), b = passive("secret", "10.0.0.2");
  talk(a, b, 100);
  EXPECT_EQ(a.rejected(), KeyExchange::Refusal::kOtherKey);
  EXPECT_FALSE(b.done());
  KeyExchange c = active("secret"), d = make(ConnectRole::kPassive, "secret", "10.0.0.1", 7001);
  talk(c, d, 100);
  EXPECT_EQ(c.rejected(), KeyExchange::Refusal::kOtherKey);
  EXPECT_FALSE(d.done());
}

TEST_F(KeyExchangeTest, BothFamiliesAndAnyScopeNameOnePlace) {
  KeyExchange a = active("secret", "10.0.0.1"), b = passive("secret", "::ffff:10.0.0.1");
  talk(a, b, 100);
  EXPECT_TRUE(a.done() && b.done());
  KeyExchange c = active("secret", "fe80::1%2"), d = passive("secret", "fe80::1%3");
  talk(c, d, 100);
  EXPECT_TRUE(c.done() && d.done());
}

TEST_F(KeyExchangeTest, OneWrongBitIsRefused) {
  for (size_t bit = 0; bit < sdk::Mac::kSize * 8; ++bit) {
    KeyExchange a = active("secret"), b = passive("secret");
    give(b, take(a), 100);
    give(a, take(b), 100);
    auto proof = take(a);
    ASSERT_EQ(proof.size(), sdk::Mac::kSize);
    proof[bit / 8] = uint8_t(proof[bit / 8] ^ 1u << bit % 8);
    give(b, proof, 100);
    EXPECT_EQ(b.rejected(), KeyExchange::Refusal::kOtherKey) << bit;
  }
}

TEST_F(KeyExchangeTest, APeerWithoutAKeyIsRefusedAtItsFirstByte) {
  std::array<uint8_t, kMaxConnectSize> request;
  const size_t n = encode_connect(ConnectType::kRequest, {}, request);
  KeyExchange b = passive("secret");
  EXPECT_EQ(give(b, {request.data(), n}, 1), 1u);
  EXPECT_EQ(b.rejected(), KeyExchange::Refusal::kNoKey);
  // The other way round: the first bytes of the exchange are not a connection request.
  KeyExchange a = active("secret");
  EXPECT_EQ(parse_connect_header(a.output(), ConnectRole::kPassive).error(),
            ConnectRefusal::kTruncated);
  ConnectReader reader(ConnectRole::kPassive);
  auto greeting = take(a);
  greeting.resize(kConnectHeaderSize);
  reader.on_bytes(greeting);
  EXPECT_EQ(reader.rejected(), ConnectRefusal::kVersion);
  for (auto refusal : {KeyExchange::Refusal::kNoKey, KeyExchange::Refusal::kOtherKey})
    EXPECT_STRNE(KeyExchange::text(refusal), "unknown");
}

TEST_F(KeyExchangeTest, NoncesDiffer) {
  KeyExchange a = active("secret"), b = active("secret");
  EXPECT_NE(take(a), take(b));
}

}  // namespace
}  // namespace weft::tcp
