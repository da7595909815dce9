// SPDX-License-Identifier: BSD-2-Clause
// A conversation with a peer that sends packets captured from stock peers, byte by byte.
#include <gtest/gtest.h>
#include <weft/sdk/ip/sock_addr.h>

#include <string>
#include <vector>

#include "plugins/rxd/protocol/stock_simulation.h"

namespace weft::rxd::stock_world {
namespace {

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

class StockCaptures : public ::testing::Test {
 protected:
  // The next packet that our endpoint sent to the peer.
  Bytes next() {
    if (!net.run([&] { return !net.strange.empty(); }, 5 * kS)) return {};
    Bytes out = net.strange.front();
    net.strange.pop_front();
    return out;
  }
  Bytes ack(uint8_t number, uint8_t window = 128) {
    Bytes b = hex("020b0000 01000000 0000000000000000 00000000 00000000 0000000000000000");
    b[8] = number;
    b[20] = window;
    return b;
  }
  // The peer is bound to port 0x85b0, like the captured one.
  void meet() {
    node.take(join(hex("02090000 00000000 0000000000000000 0100000000000000 020085b0 7f000001"),
                   Bytes(56)));
    EXPECT_EQ(next(), hex("020a0000 01000000 0000000000000000 0100000000000000 0100000000000000"));
  }
  Net net{1};
  Node node{net, 2};
};

TEST_F(StockCaptures, SetUpAndMessages) {
  meet();
  Bytes in(64), in2(64);
  node.post(in, false);
  node.post(in2, true, 0x1001, 0);
  const Bytes body(16, 'x');
  node.take(join(hex("02002000 01000000 0000000000000000"), body));
  EXPECT_EQ(next(), ack(1));
  // A duplicate is answered, but not delivered.
  node.take(join(hex("02002000 01000000 0000000000000000"), body));
  EXPECT_EQ(next(), ack(1));
  // A packet that is too early is dropped, and answered with the expected number.
  node.take(
      join(hex("02013100 01000000 0200000000000000 0110000000000000 8877665544332211"), body));
  EXPECT_EQ(next(), ack(1));
  node.take(
      join(hex("02013100 01000000 0100000000000000 0110000000000000 8877665544332211"), body));
  EXPECT_EQ(next(), ack(2));
  node.reap();
  ASSERT_EQ(node.got.size(), 2u);
  EXPECT_EQ(node.got[0].length, 16u);
  EXPECT_EQ(node.got[1].tag, 0x1001u);
  EXPECT_EQ(node.got[1].data, 0x1122334455667788u);
  EXPECT_EQ(in[15], 'x');
}

TEST_F(StockCaptures, LongTaggedMessage) {
  meet();
  Bytes in(4000);
  node.post(in, true);
  const Bytes bytes = pattern_of(1, 4000);
  const auto part = [&](size_t from, size_t to) {
    return Bytes(bytes.begin() + long(from), bytes.begin() + long(to));
  };
  node.take(join(hex("02011100 01000000 0000000000000000 0210000000000000 8877665544332211"
                     "a00f000000000000 0300000000000000 00000000 00 68696a"),
                 part(0, 1416)));
  node.take(join(hex("020c1000 01000000 0100000000000000 00000000 00000000 0000000000000000"),
                 part(1416, 2856)));
  EXPECT_EQ(next(), ack(2));
  const Bytes last =
      join(hex("020c1000 01000000 0200000000000000 00000000 00000000 0100000000000000"),
           part(2856, 4000));
  node.take(last);
  node.take(last);
  EXPECT_EQ(next(), ack(3));
  node.reap();
  ASSERT_EQ(node.got.size(), 1u);
  EXPECT_EQ(node.got[0].length, 4000u);
  EXPECT_EQ(in, bytes);
}

TEST_F(StockCaptures, WriteReadCompareSwap) {
  meet();
  node.take(join(hex("02042100 01000000 0000000000000000 8877665544332211 0000000000000000"
                     "1000000000000000 0100dec000000000"),
                 Bytes(16, 'w')));
  EXPECT_EQ(next(), ack(1));
  EXPECT_EQ(node.writes, 1u);
  EXPECT_EQ(node.write_data, 0x1122334455667788u);
  node.take(
      hex("02020000 01000000 0100000000000000 1000000000000000 0100000000000000"
          "00000000 01000000 0000000000000000 1000000000000000 0100dec000000000"));
  EXPECT_EQ(next(), join(hex("020d0000 01000000 0000000000000000 0000000000000000"
                             "0000000000000000"),
                         Bytes(16, 'w')));
  EXPECT_EQ(next(), ack(2));
  node.take(ack(1));
  Bytes word = hex("0c00000000000000");
  std::copy(word.begin(), word.end(), node.memory.begin());
  node.take(
      hex("02080000 01000000 0200000000000000 0800000000000000 0100000000000000"
          "00000000 01000000 0000000000000000 0800000000000000 0100dec000000000"
          "07000000 0c000000 0900000000000000 0c00000000000000"));
  EXPECT_EQ(next(), join(hex("020d0000 01000000 0100000000000000 0000000000000000"
                             "0000000000000000"),
                         word));
  EXPECT_EQ(next(), ack(3));
  node.take(ack(2));
  EXPECT_EQ(node.memory[0], 9);
  EXPECT_EQ(next(), Bytes()) << "nothing is left to say";
}

TEST_F(StockCaptures, AWriteWithAWrongKeyIsRefused) {
  meet();
  const Bytes write = join(hex("02042000 01000000 0000000000000000 0000000000000000"
                               "1000000000000000 0200dec000000000"),
                           Bytes(16, 'w'));
  for (int i = 0; i < 3; ++i) {
    node.take(write);
    EXPECT_EQ(next(), ack(0, 0));
  }
  EXPECT_EQ(node.memory, Bytes(64 << 10));
  // A message with the same number is taken, and the window opens again.
  Bytes in(4);
  node.post(in, false);
  node.take(hex("02002000 01000000 0000000000000000 01020304"));
  EXPECT_EQ(next(), ack(1));
}

// The first packets of our endpoint: before and after the answer of a stock peer.
TEST_F(StockCaptures, WeSendTheFirstPacket) {
  const sdk::Address peer = *sdk::SockAddr::from_ip("127.0.0.1", 0x85b0);
  size_t id;
  TxOp &op = node.make(id);
  op.kind = TxOp::Kind::kMessage;
  op.tagged = true;
  op.tag = 0x1001;
  op.has_data = true;
  op.data = 0x1122334455667788;
  Bytes body(16, 'x');
  op.iov[0] = {body.data(), body.size()};
  op.count = 1;
  op.length = 16;
  ASSERT_EQ(node.core().start(op, 0x85b0 - 5000, &peer), 0);
  const Bytes rts = next();
  ASSERT_EQ(rts.size(), 88u);
  EXPECT_EQ(Bytes(rts.begin(), rts.begin() + 2), hex("0209"));
  // The peer's index, and ours as it stands in the RTS.
  node.take(join(hex("020a0000 00000000 0000000000000000"),
                 join(Bytes(rts.begin() + 16, rts.begin() + 24), hex("0700000000000000"))));
  Bytes first = next();
  while (first.size() == 88) first = next();  // the RTS was repeated meanwhile
  const Bytes expected =
      join(hex("02013100 07000000 0000000000000000 0110000000000000 8877665544332211"), body);
  EXPECT_EQ(first, expected);
  EXPECT_EQ(next(), expected) << "it is repeated until it is acknowledged";
  EXPECT_FALSE(node.ended(id));
  node.take(ack(1));
  EXPECT_TRUE(node.ended(id));
  EXPECT_EQ(node.done[id].err, 0);
}

// A request that is refused for long is given up, and the next operation gets its number. If the
// peer then acknowledges the old numbers, it is wrong or has taken what it had refused. Outstanding
// operations fail, and nothing else happens.
TEST_F(StockCaptures, AnAcknowledgementOfNumbersThatWereTakenBack) {
  const sdk::Address peer = *sdk::SockAddr::from_ip("127.0.0.1", 0x85b0);
  meet();
  Bytes body(16, 'x');
  const auto send = [&] {
    size_t id;
    TxOp &op = node.make(id);
    op.kind = TxOp::Kind::kMessage;
    op.iov[0] = {body.data(), body.size()};
    op.count = 1;
    op.length = 16;
    EXPECT_EQ(node.core().start(op, 0x85b0 - 5000, &peer), 0);
    return id;
  };
  const size_t refused = send(), behind = send(), third = send();
  node.take(ack(0));  // operations are sent only to a peer that has proven itself
  while (!node.ended(refused)) {
    ASSERT_FALSE(next().empty());
    node.take(ack(0, 0));
  }
  EXPECT_EQ(node.done[refused].err, FI_EACCES);
  EXPECT_FALSE(node.ended(behind));
  node.take(ack(3));
  const size_t later = send();
  net.run([&] { return node.ended(behind) && node.ended(third); }, 5 * kS);
  EXPECT_EQ(node.done[behind].err, FI_ECONNRESET);
  EXPECT_EQ(node.done[third].err, FI_ECONNRESET);
  // The peer is asked which number it expects, and the conversation continues from there.
  Bytes question;
  do {
    question = next();
    ASSERT_FALSE(question.empty());
  } while (question.at(1) != 9);
  node.take(
      join(hex("020a0000 00000000 0000000000000000"),
           join(Bytes(question.begin() + 16, question.begin() + 24), hex("0100000000000000"))));
  node.take(ack(3));
  net.run([&] { return node.ended(later); }, 100 * kMs);
  node.take(ack(4));
  net.run([&] { return node.ended(later); }, 5 * kS);
  EXPECT_EQ(node.done[later].err, 0);
}

// A slow peer acknowledges every packet in its socket with the number that it expects, and each
// retransmission too. The retransmissions must not go on for ever.
TEST_F(StockCaptures, RepeatedAcknowledgementsCauseOneRetransmission) {
  const sdk::Address peer = *sdk::SockAddr::from_ip("127.0.0.1", 0x85b0);
  meet();
  Bytes body(100 * stock::kSegment, 'x');
  size_t id;
  TxOp &op = node.make(id);
  op.kind = TxOp::Kind::kMessage;
  op.iov[0] = {body.data(), body.size()};
  op.count = 1;
  op.length = body.size();
  ASSERT_EQ(node.core().start(op, 0x85b0 - 5000, &peer), 0);
  for (int i = 0; i < 300; ++i) {
    node.take(ack(0));
    net.run_for(10 * kUs);
  }
  EXPECT_EQ(node.core().counters().timeouts.value(), 0U);
  EXPECT_GT(node.core().counters().repeated.value(), 0U);
  EXPECT_LE(node.core().counters().repeated.value(), 128U);
  // The peer catches up, and takes everything.
  uint64_t expected = 0;
  while (!node.ended(id)) {
    const Bytes packet = next();
    ASSERT_FALSE(packet.empty());
    expected += stock::parse(packet, FI_SOCKADDR_IP).packet.sequence == expected;
    node.take(ack(uint8_t(expected)));
  }
  EXPECT_EQ(node.done[id].err, 0);
}

// Packets that are truncated or changed anywhere cause drops and answers only.
TEST_F(StockCaptures, DamagedPacketsAreDroppedOrAnswered) {
  meet();
  const std::vector<Bytes> packets = {
      join(hex("02013100 01000000 0000000000000000 0110000000000000 8877665544332211"),
           Bytes(16, 'x')),
      join(hex("02011100 01000000 0000000000000000 0210000000000000 8877665544332211"
               "a00f000000000000 0300000000000000 00000000 00 000000"),
           Bytes(1416, 'y')),
      hex("020c1000 01000000 0100000000000000 00000000 00000000 0000000000000000"),
      hex("02020000 01000000 0000000000000000 1000000000000000 0100000000000000"
          "00000000 01000000 0000000000000000 1000000000000000 0100dec000000000"),
      hex("020d0000 01000000 0000000000000000 0000000000000000 0000000000000000"),
      hex("02080000 01000000 0000000000000000 0800000000000000 0100000000000000"
          "00000000 01000000 0000000000000000 0800000000000000 0100dec000000000"
          "07000000 0c000000 0900000000000000 0c00000000000000"),
      ack(0),
      ack(200),
      hex("020a0000 01000000 0000000000000000 0100000000000000 0100000000000000"),
  };
  for (int i = 0; i < 20'000; ++i) {
    Bytes b = packets[net.random() % packets.size()];
    for (uint64_t n = net.random() % 3; n != 0; --n)
      b[8 + net.random() % (b.size() - 8)] = uint8_t(net.random());
    if (net.chance(20)) b.resize(16 + net.random() % (b.size() - 15));
    if (b.size() >= 16 && net.chance(70)) b[8] = uint8_t(i % 256);
    node.take(b);
    if (i % 100 == 0) net.run_for(kMs);
  }
  net.strange.clear();
  EXPECT_LT(node.core().inbox().bytes(), 64u << 20);
}

}  // namespace
}  // namespace weft::rxd::stock_world
