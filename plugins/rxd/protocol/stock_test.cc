// SPDX-License-Identifier: BSD-2-Clause
// Conversations in stock's dialect between two weft endpoints that take each other for stock.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "plugins/rxd/protocol/stock.h"
#include "plugins/rxd/protocol/stock_simulation.h"

namespace weft::rxd::stock_world {
namespace {

TEST(Stock, MessagesOfManySizesArrive) {
  Net net(1);
  Node a(net, 1), b(net, 2);
  const std::vector<size_t> sizes = {0,    1,    16,   1447,    1448,   1449,
                                     1456, 1457, 4000, 100'000, 1 << 20};
  std::vector<Bytes> out, in;
  out.reserve(sizes.size());
  in.reserve(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    in.emplace_back(sizes[i] + 1);
    b.post(in.back(), i % 2 == 0, i, 0);
    out.push_back(pattern_of(i, sizes[i]));
    a.send(2, out.back(), i % 2 == 0, i, i % 3 == 0);
  }
  ASSERT_TRUE(net.run([&] {
    b.reap();
    return a.all_ended() && b.got.size() == sizes.size();
  }));
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(a.done[i].err, 0);
    EXPECT_EQ(b.got[i].length, sizes[i]);
    if (i % 2 == 0) {
      EXPECT_EQ(b.got[i].tag, i);
    }
    if (i % 3 == 0) {
      EXPECT_EQ(b.got[i].data, i + 1000);
    }
    EXPECT_EQ((b.got[i].flags & FI_REMOTE_CQ_DATA) != 0, i % 3 == 0);
    EXPECT_TRUE(std::equal(out[i].begin(), out[i].end(), in[i].begin())) << sizes[i];
  }
  EXPECT_EQ(a.core().counters().repeated.value(), 0u);
  EXPECT_EQ(a.core().counters().timeouts.value(), 0u);
}

TEST(Stock, UnexpectedMessagesAreKeptOrTruncated) {
  Net net(2);
  Node a(net, 1), b(net, 2);
  const Bytes small = pattern_of(1, 100), large = pattern_of(2, 500'000);
  a.send(2, small, true, 1);
  a.send(2, large, true, 2);
  a.send(2, small, true, 3);
  // Messages without a receive are kept, well beyond one window.
  ASSERT_TRUE(net.run([&] { return a.all_ended(); }));
  EXPECT_EQ(b.core().counters().rejected.value(), 0u);
  Bytes in1(64), in2(500'000), in3(200);
  b.post(in3, true, 3, 0);
  b.post(in2, true, 2, 0);
  b.post(in1, true, 1, 0);
  b.reap();
  ASSERT_EQ(b.got.size(), 3u);
  EXPECT_EQ(b.got[0].length, 100u);
  EXPECT_EQ(b.got[1].length, 500'000u);
  EXPECT_EQ(in2, large);
  EXPECT_EQ(b.got[2].err, FI_ETRUNC);
  EXPECT_TRUE(std::equal(in1.begin(), in1.end(), small.begin()));
}

TEST(Stock, AReceiveTakesAMessageThatIsStillArriving) {
  Net net(3);
  Node a(net, 1), b(net, 2);
  const Bytes large = pattern_of(2, 3 << 20);
  a.send(2, large, true, 9);
  ASSERT_TRUE(net.run([&] { return b.core().inbox().bytes() > (1 << 20); }));
  Bytes in(3 << 20);
  b.post(in, true, 9, 0);
  EXPECT_EQ(b.core().inbox().bytes(), 0u);
  ASSERT_TRUE(net.run([&] {
    b.reap();
    return a.all_ended() && !b.got.empty();
  }));
  EXPECT_EQ(in, large);
}

TEST(Stock, BeyondTheLimitMessagesWaitForTheirReceives) {
  Net net(4);
  Settings settings;
  settings.unexpected_limit = 100'000;
  settings.peer_timeout_ns = 60 * kS;
  Node a(net, 1), b(net, 2, settings);
  const Bytes part = pattern_of(3, 30'000);
  for (uint64_t tag = 0; tag < 20; ++tag) a.send(2, part, true, tag);
  net.run_for(3 * kS);
  EXPECT_LT(b.core().inbox().bytes(), 300'000u);
  EXPECT_FALSE(a.all_ended());
  // Messages with receives arrive after those before them, whatever the order of the receives.
  std::vector<Bytes> in(20, Bytes(30'000));
  for (uint64_t tag = 20; tag-- > 0;) b.post(in[tag], true, tag, 0);
  ASSERT_TRUE(net.run([&] {
    b.reap();
    return a.all_ended() && b.got.size() == 20;
  }));
  for (const Bytes &bytes : in) EXPECT_EQ(bytes, part);
}

TEST(Stock, WritesAndReads) {
  Net net(5);
  Node a(net, 1), b(net, 2);
  Bytes out = pattern_of(5, 30'000), small = pattern_of(6, 100), in(30'000), nothing;
  a.access(TxOp::Kind::kWrite, 2, out, 1000, kKey, true, 3);
  a.access(TxOp::Kind::kWrite, 2, small, 50'000, kKey);
  a.access(TxOp::Kind::kRead, 2, in, 1000, kKey, false, 2);
  a.access(TxOp::Kind::kRead, 2, nothing, 0);
  a.access(TxOp::Kind::kWrite, 2, nothing, 0, kKey, true);
  ASSERT_TRUE(net.run([&] { return a.all_ended(); }));
  for (const Done &d : a.done) EXPECT_EQ(d.err, 0);
  EXPECT_EQ(in, out);
  EXPECT_TRUE(std::equal(small.begin(), small.end(), b.memory.begin() + 50'000));
  EXPECT_EQ(b.writes, 3u);
  EXPECT_EQ(b.write_data, 77u);
  EXPECT_EQ(b.reads, 1u);
}

TEST(Stock, Atomics) {
  Net net(6);
  Node a(net, 1), b(net, 2);
  auto *words = reinterpret_cast<uint64_t *>(b.memory.data());
  for (size_t i = 0; i < 8; ++i) words[i] = i;
  std::vector<uint64_t> none, ones(4, 1), before(4), read(4), swap = {10, 11, 12, 13, 0, 2, 99, 4},
                                                              swapped(4);
  a.atomic(2, sdk::AtomicKind::kWrite, FI_SUM, ones, none, 0);
  a.atomic(2, sdk::AtomicKind::kWrite, FI_SUM, ones, none, 0, kKey, 2);
  a.atomic(2, sdk::AtomicKind::kFetch, FI_SUM, ones, before, 0, kKey, 2);
  a.atomic(2, sdk::AtomicKind::kFetch, FI_ATOMIC_READ, none, read, 0);
  swap = {100, 101, 102, 103, 3, 4, 99, 6};  // operands, then compares: the third differs
  a.atomic(2, sdk::AtomicKind::kCompare, FI_CSWAP, swap, swapped, 0);
  ASSERT_TRUE(net.run([&] { return a.all_ended(); }));
  for (const Done &d : a.done) EXPECT_EQ(d.err, 0);
  EXPECT_EQ(before, (std::vector<uint64_t>{2, 3, 4, 5}));
  EXPECT_EQ(read, (std::vector<uint64_t>{3, 4, 5, 6}));
  EXPECT_EQ(swapped, (std::vector<uint64_t>{3, 4, 5, 6}));
  EXPECT_EQ(words[0], 100u);
  EXPECT_EQ(words[1], 101u);
  EXPECT_EQ(words[2], 5u);
  EXPECT_EQ(words[3], 103u);
  EXPECT_EQ(b.atomics, 5u);
}

// Such atomics would crash a stock peer, so they fail locally, whether the peer is known or not.
TEST(Stock, AtomicsThatStockLacksFailLocally) {
  Net net(6);
  Node a(net, 1), b(net, 2);
  const auto wide = [&] {
    size_t id;
    TxOp &op = a.make(id);
    op.kind = TxOp::Kind::kAtomic;
    op.datatype = FI_UINT128;
    op.op = FI_SUM;
    op.vectors[0] = {0, 16, kKey};
    op.vector_count = 1;
    op.length = 16;
    Bytes one(16, 1);
    op.iov[0] = {one.data(), one.size()};
    op.count = 1;
    a.core().own_data(op);
    const sdk::Address address = address_of(2);
    const int rc = a.core().start(op, 2, &address);
    if (rc != 0) {
      a.core().give(op);
      a.done[id] = {1, -rc};
    }
  };
  std::vector<uint64_t> one(1, 1), none;
  wide();
  a.atomic(2, sdk::AtomicKind::kWrite, FI_SUM, one, none, 0);
  ASSERT_TRUE(net.run([&] { return a.all_ended(); }));
  wide();
  a.atomic(2, sdk::AtomicKind::kWrite, FI_SUM, one, none, 0);
  ASSERT_TRUE(net.run([&] { return a.all_ended(); }));
  for (size_t i = 0; i < a.done.size(); ++i)
    EXPECT_EQ(a.done[i].err, i % 2 == 0 ? FI_EOPNOTSUPP : 0);
  EXPECT_EQ(b.atomics, 2u);
  EXPECT_EQ(b.memory[0], 2);
}

// A refused request fails, and the operations behind it do not.
TEST(Stock, ABadKeyFailsItsOwnOperationOnly) {
  Net net(7);
  Node a(net, 1), b(net, 2);
  Bytes out = pattern_of(1, 5000), in(5000), message = pattern_of(2, 3000), got(3000);
  std::vector<uint64_t> one(1, 1), before(1);
  b.post(got, true);
  const size_t write = a.access(TxOp::Kind::kWrite, 2, out, 0, 12345);
  const size_t read = a.access(TxOp::Kind::kRead, 2, in, 60'000, kKey);  // beyond the region
  const size_t atomic = a.atomic(2, sdk::AtomicKind::kFetch, FI_SUM, one, before, 0, 99);
  const size_t sent = a.send(2, message, true, 1);
  ASSERT_TRUE(net.run([&] {
    b.reap();
    return a.all_ended() && !b.got.empty();
  }));
  EXPECT_EQ(a.done[write].err, FI_EACCES);
  EXPECT_EQ(a.done[read].err, 0) << "60'000 + 5000 is inside 64 KiB";
  EXPECT_EQ(a.done[atomic].err, FI_EACCES);
  EXPECT_EQ(a.done[sent].err, 0);
  EXPECT_EQ(got, message);
  EXPECT_EQ(b.writes + b.atomics, 0u);
  EXPECT_EQ(b.memory, Bytes(64 << 10));
  const size_t beyond = a.access(TxOp::Kind::kRead, 2, in, 61'000, kKey);
  ASSERT_TRUE(net.run([&] { return a.ended(beyond); }));
  EXPECT_EQ(a.done[beyond].err, FI_EACCES);
}

TEST(Stock, OperationsToAnEndedProcessTimeOut) {
  Net net(8);
  Settings settings;
  settings.peer_timeout_ns = 2 * kS;
  Node a(net, 1, settings);
  auto b = std::make_unique<Node>(net, 2);
  Bytes in(10), out = pattern_of(1, 10), more(50'000);
  b->post(in, true);
  a.send(2, out, true, 1);
  ASSERT_TRUE(net.run([&] {
    b->reap();
    return a.all_ended() && !b->got.empty();
  }));
  b.reset();
  const uint64_t from = net.now;
  const size_t sent = a.send(2, out, true, 2);
  const size_t read = a.access(TxOp::Kind::kRead, 2, more, 0);
  ASSERT_TRUE(net.run([&] { return a.all_ended(); }));
  EXPECT_EQ(a.done[sent].err, FI_ETIMEDOUT);
  EXPECT_EQ(a.done[read].err, FI_ETIMEDOUT);
  EXPECT_LT(net.now - from, 3 * kS);
  EXPECT_LT(a.core().counters().repeated.value(), 100u) << "too many retransmissions";
  EXPECT_EQ(a.warnings, 1u);
  // Later operations fail too.
  const size_t again = a.send(2, out, true, 3);
  ASSERT_TRUE(net.run([&] { return a.all_ended(); }));
  EXPECT_EQ(a.done[again].err, FI_ETIMEDOUT);
  // A new process is at the address, without the old state.
  Node c(net, 2);
  c.post(in, true);
  const size_t last = a.send(2, out, true, 4);
  ASSERT_TRUE(net.run([&] {
    c.reap();
    return a.all_ended() && !c.got.empty();
  }));
  EXPECT_EQ(a.done[last].err, 0);
  EXPECT_EQ(c.got[0].tag, 4u);
}

// The peer was only unreachable: the numbers continue, in both directions.
TEST(Stock, AfterATimeoutTheNumbersContinue) {
  Net net(9);
  Settings settings;
  settings.peer_timeout_ns = 1 * kS;
  Node a(net, 1, settings), b(net, 2, settings);
  meet(net, a, 2);
  Bytes in(10), in2(10), out = pattern_of(1, 10);
  for (int i = 0; i < 5; ++i) {
    b.post(in, true);
    a.post(in2, true);
    a.send(2, out, true, 1);
    b.send(1, out, true, 2);
    ASSERT_TRUE(net.run([&] { return a.all_ended() && b.all_ended(); }));
  }
  net.cut = true;
  const size_t lost = a.send(2, out, true, 3);
  ASSERT_TRUE(net.run([&] { return a.all_ended(); }));
  EXPECT_EQ(a.done[lost].err, FI_ETIMEDOUT);
  net.cut = false;
  b.post(in, true);
  a.post(in2, true);
  const size_t again = a.send(2, out, true, 4);
  ASSERT_TRUE(net.run([&] { return a.all_ended(); }));
  const size_t back = b.send(1, out, true, 5);
  ASSERT_TRUE(net.run([&] { return a.all_ended() && b.all_ended(); }));
  EXPECT_EQ(a.done[again].err, 0);
  EXPECT_EQ(b.done[back].err, 0);
  a.reap();
  b.reap();
  ASSERT_EQ(a.got.size(), 6u);
  ASSERT_EQ(b.got.size(), 6u);
  EXPECT_EQ(b.got.back().tag, 4u);
  EXPECT_EQ(a.got.back().tag, 5u);
}

// Time in which this process did not run (a debugger, a long computation) is not the peer's
// silence.
TEST(Stock, APauseOfThisProcessIsNotSilenceOfThePeer) {
  Net net(10);
  Settings settings;
  settings.peer_timeout_ns = 1 * kS;
  Node a(net, 1, settings), b(net, 2, settings);
  meet(net, a, 2);
  Bytes in(10), out = pattern_of(1, 10), more(50'000);
  b.post(in, true);
  net.cut = true;
  const size_t sent = a.send(2, out, true, 3);
  const size_t read = a.access(TxOp::Kind::kRead, 2, more, 0);
  net.now += 10 * kS;
  net.cut = false;
  ASSERT_TRUE(net.run([&] { return a.all_ended(); }));
  EXPECT_EQ(a.done[sent].err, 0);
  EXPECT_EQ(a.done[read].err, 0);
  EXPECT_EQ(a.warnings, 0u);
}

// A peer whose application does not read completions is alive, and takes acknowledgements.
TEST(Stock, UnreadCompletionsDoNotEndTheConversation) {
  Net net(11);
  Settings settings;
  settings.peer_timeout_ns = 1 * kS;
  Node a(net, 1, settings), b(net, 2, settings);
  meet(net, a, 2);
  Bytes in(5000), in2(5000), out = pattern_of(1, 5000);
  b.core().set_full(true);
  b.post(in, true);
  a.post(in2, true);
  const size_t there = a.send(2, out, true, 1);
  const size_t back = b.send(1, out, true, 2);
  net.run_for(5 * kS);
  EXPECT_FALSE(a.ended(there));
  EXPECT_TRUE(b.ended(back));
  b.core().set_full(false);
  ASSERT_TRUE(net.run([&] {
    b.reap();
    return a.all_ended() && !b.got.empty();
  }));
  EXPECT_EQ(a.done[there].err, 0);
  EXPECT_EQ(b.done[back].err, 0);
  EXPECT_EQ(in, out);
  EXPECT_EQ(in2, out);
}

TEST(Stock, AReceiveFailsWhenTheSenderEndsInTheMiddle) {
  Net net(10);
  Settings settings;
  settings.peer_timeout_ns = 3 * kS;
  auto a = std::make_unique<Node>(net, 1);
  Node b(net, 2, settings);
  Bytes out = pattern_of(1, 4 << 20), in(4 << 20);
  b.post(in, true);
  a->send(2, out, true, 1);
  ASSERT_TRUE(net.run([&] { return b.core().counters().packets_received.value() > 500; }));
  a.reset();
  ASSERT_TRUE(net.run([&] {
    b.reap();
    return !b.got.empty();
  }));
  EXPECT_EQ(b.got[0].err, FI_ETIMEDOUT);
}

TEST(Stock, AFenceWaitsForEarlierOperations) {
  Net net(11);
  Node a(net, 1), b(net, 2);
  Bytes out = pattern_of(1, 20'000), in(20'000);
  a.access(TxOp::Kind::kRead, 2, in, 0);
  size_t id;
  TxOp &op = a.make(id);
  op.kind = TxOp::Kind::kMessage;
  op.fence = true;
  a.go(op, id, 2);
  ASSERT_TRUE(net.run([&] {
    EXPECT_FALSE(a.ended(id) && !a.ended(0));
    return a.all_ended();
  }));
}

// Memory for a peer that has sent only an RTS.
static_assert(sizeof(StockConversation) + sizeof(Peer) <= 1024);

}  // namespace
}  // namespace weft::rxd::stock_world
