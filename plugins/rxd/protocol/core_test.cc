// SPDX-License-Identifier: BSD-2-Clause
// Costs of the protocol, and the ends of operations and endpoints, on a wire without losses.
// Networks with faults are in network_test.cc.
#include "plugins/rxd/protocol/core.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <rdma/fi_errno.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "plugin-api/sdk/testing/test_allocations.h"
#include "plugins/rxd/protocol/test_wire.h"
#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd::lossless {
namespace {

TEST(Core, AllocatesNothingAfterTheFirstExchanges) {
  Wire wire(4096);
  End a(wire, 0, quick()), b(wire, 1, quick());
  std::vector<uint8_t> out(300'000), in(300'000);
  const auto exchange = [&](size_t length, size_t count, bool early) {
    for (size_t i = 0; i < count && early; ++i) b.post(in.data(), length);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(a.send(1, out.data(), length), 0);
    wire.pass(kMillisecond);
    for (size_t i = 0; i < count && !early; ++i) b.post(in.data(), length);
    wire.pass(kMillisecond);
    EXPECT_EQ(b.posted(), 0U);
    EXPECT_EQ(b.receiver().unexpected(), 0U);
    EXPECT_EQ(a.core().in_flight(), 0U);
  };
  for (int warm = 0; warm < 3; ++warm) {
    exchange(0, 20, true);
    exchange(64, 200, true);
    exchange(64, 20, false);
    exchange(2000, 20, true);
    exchange(300'000, 8, true);
  }
  const size_t before = sdk::allocations();
  exchange(0, 20, true);
  exchange(64, 200, true);
  exchange(64, 20, false);
  exchange(2000, 20, true);
  exchange(300'000, 8, true);
  EXPECT_EQ(sdk::allocations(), before);
  EXPECT_EQ(a.failed + b.failed, 0U);
}

TEST(Core, TenThousandPeersStayWithinTheBudget) {
  constexpr uint32_t kPeers = 10'000;
  Wire wire(1 << 16);
  std::vector<std::unique_ptr<End>> ends;
  ends.push_back(std::make_unique<End>(wire, 0, quick()));
  for (uint32_t i = 1; i <= kPeers; ++i) ends.push_back(std::make_unique<End>(wire, i, quick()));
  End &hub = *ends[0];
  char text[64] = "one of many", in[64];
  // The first peer allocates what all peers share.
  for (int i = 0; i < 8; ++i) {
    ends[1]->post(in, sizeof in);
    ASSERT_EQ(hub.send(1, text, sizeof text), 0);
    wire.pass(kMillisecond);
  }
  const size_t before = mallinfo2().uordblks;
  for (uint32_t i = 2; i <= kPeers; ++i) {
    ends[i]->post(in, sizeof in);
    ASSERT_EQ(hub.send(i, text, sizeof text), 0);
    while (wire.step()) {
    }
    wire.run();
  }
  wire.pass(kMillisecond);
  EXPECT_EQ(hub.done, size_t{kPeers} + 7);
  EXPECT_EQ(hub.failed, 0U);
  EXPECT_EQ(hub.core().peers(), size_t{kPeers});
  const size_t used = mallinfo2().uordblks - before;
  // Each connection has both ends in this process, and each small end has pools of its own.
  std::printf("%zu bytes for each connection and both of its ends; %zu and %zu in objects\n",
              used / (kPeers - 1), sizeof(Peer), sizeof(WeftConversation));
  EXPECT_LE(sizeof(Peer) + sizeof(WeftConversation) + 128, 2048U);
  // Idle peers cost no time: there is no near deadline, and no packet is sent.
  wire.pass(100 * kMillisecond);
  const size_t sent = hub.core().counters().packets_sent.value();
  wire.pass(20'000 * kMillisecond);
  EXPECT_EQ(hub.core().counters().packets_sent.value(), sent);
  EXPECT_EQ(hub.deadline, 0U);
  // All at once.
  for (uint32_t i = 1; i <= kPeers; ++i) {
    hub.post(in, sizeof in);
    if (i % 1000 == 0) wire.pass(kMillisecond);
    ASSERT_EQ(ends[i]->send(0, text, sizeof text), 0);
  }
  wire.pass(100 * kMillisecond);
  EXPECT_EQ(hub.posted(), 0U);
}

TEST(Core, AnOperationFailsWhenThePeerDoesNotAnswer) {
  Wire wire(64);
  End a(wire, 0, quick());
  char text[8] = "nobody";
  ASSERT_EQ(a.send(4, text, sizeof text), 0);
  wire.pass(11'000 * kMillisecond);
  EXPECT_EQ(a.failed, 1U);
  EXPECT_EQ(a.err, FI_ETIMEDOUT);
  EXPECT_EQ(a.core().peers(), 0U);
  Settings locked = quick();
  locked.auth_key = "one";
  End b(wire, 1, locked), c(wire, 2, quick());
  ASSERT_EQ(b.send(2, text, sizeof text), 0);
  ASSERT_EQ(c.send(1, text, sizeof text), 0);
  wire.pass(11'000 * kMillisecond);
  EXPECT_EQ(b.err, FI_EACCES);
  EXPECT_EQ(c.failed, 1U);
}

// The packets of an exchange in which `b` answers before its next progress, or does not.
size_t exchange(Wire &wire, End &a, End &b, End::Until until, bool replies) {
  char out[64] = "one of a pair", in[2][64];
  a.post(in[0], sizeof in[0]);
  b.post(in[1], sizeof in[1]);
  const size_t before = wire.tail, done = a.done;
  EXPECT_EQ(a.send(1, out, sizeof out, true, until), 0);
  while (wire.step()) {
  }
  b.core().poll();  // the end of the progress that brought it
  EXPECT_EQ(b.posted(), 0U);
  if (!replies) {
    while (wire.step()) {
    }
    wire.pass(kMillisecond);
    EXPECT_EQ(a.done, done + 1);
  }
  EXPECT_EQ(b.send(0, out, sizeof out, true, until), 0);
  while (wire.step()) {
  }
  EXPECT_EQ(a.done, done + 1);  // the reply, or a packet before it, has told
  wire.pass(kMillisecond);
  EXPECT_EQ(a.posted(), 0U);
  return wire.tail - before;
}

TEST(Core, AnswersMayLeaveWithTheReplyThatIsExpected) {
  for (const End::Until until : {End::Until{.delivery = true}, End::Until{.transmit = true}}) {
    Wire wire(4096);
    End a(wire, 0, quick()), b(wire, 1, quick());
    exchange(wire, a, b, until, false);
    b.delays = true;
    const size_t apart = exchange(wire, a, b, until, true);
    EXPECT_EQ(exchange(wire, a, b, until, true), apart);
    EXPECT_EQ(b.delayed, 0U);
    EXPECT_EQ(exchange(wire, a, b, until, true), apart - 1);
    EXPECT_EQ(b.delayed, 1U);
    exchange(wire, a, b, until, false);  // it waits in vain, until the next progress
    EXPECT_EQ(b.delayed, 2U);
    EXPECT_EQ(exchange(wire, a, b, until, true), apart);
    EXPECT_EQ(b.delayed, 2U);
    b.delays = false;
    exchange(wire, a, b, until, true);
    EXPECT_EQ(exchange(wire, a, b, until, true), apart);  // nobody would send it in the end
    EXPECT_EQ(a.failed + b.failed, 0U);
  }
}

TEST(Core, ClosesWhenEverythingHasArrived) {
  Wire wire(4096);
  End a(wire, 0, quick()), b(wire, 1, quick());
  std::vector<uint8_t> out(100'000), in(100'000);
  b.post(in.data(), in.size());
  ASSERT_EQ(a.send(1, out.data(), out.size()), 0);
  a.core().part();
  EXPECT_FALSE(a.core().parted());
  wire.pass(100 * kMillisecond);
  EXPECT_TRUE(a.core().parted());
  EXPECT_EQ(a.failed, 0U);
  EXPECT_EQ(b.posted(), 0U);
  char text[8] = "more";
  EXPECT_EQ(a.send(1, text, sizeof text), -FI_EOPBADSTATE);
}

}  // namespace
}  // namespace weft::rxd::lossless
