// SPDX-License-Identifier: BSD-2-Clause
// R1, R2, R4, R10, R11: where a request goes, what it may touch, and what its initiator hears.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <string>

#include "plugins/cxi/soft/test_nic.h"

namespace weft::cxi {
namespace {

using Bytes = std::array<uint8_t, 64>;

Bytes pattern(uint8_t first) {
  Bytes bytes;
  std::iota(bytes.begin(), bytes.end(), first);
  return bytes;
}

struct Pair {
  explicit Pair(Nid b_nid = 2) : a(host, 1), b(host, b_nid) {}
  Host host;
  Process a, b;
  Bytes in{}, out = pattern(1);
};

TEST(Transfer, APutArrivesAndIsAcknowledged) {
  Pair p;
  Portal &portal = p.b.open_portal(3, {.is_matching = true});
  portal.append(List::kPriority, p.b.entry_for(tagged(9, 77), p.in));
  Transfer put = p.a.put_to(p.b.at(3), p.out);
  put.match_bits = 77;
  put.header_data = 5;
  put.user_ptr = 42;
  p.a.send(put);
  EXPECT_EQ(p.in, p.out);
  const Event event = p.b.next().value();
  EXPECT_EQ(event.type, EventType::kPut);
  EXPECT_EQ(event.rc, Rc::kOk);
  EXPECT_EQ(event.list, List::kPriority);
  EXPECT_EQ(event.portal, &portal);
  EXPECT_EQ(event.buffer_id, 9);
  EXPECT_EQ(event.match_bits, 77u);
  EXPECT_EQ(event.header_data, 5u);
  EXPECT_EQ(event.initiator, p.a.id());
  EXPECT_EQ(event.vni, kVni);
  EXPECT_EQ(event.start, reinterpret_cast<uintptr_t>(&p.in));
  EXPECT_EQ(event.mlength, 64u);
  EXPECT_EQ(event.rlength, 64u);
  EXPECT_TRUE(event.auto_unlinked);
  const Event ack = p.a.ack().value();
  EXPECT_EQ(ack.type, EventType::kAck);
  EXPECT_EQ(ack.rc, Rc::kOk);
  EXPECT_EQ(ack.user_ptr, 42u);
  EXPECT_EQ(ack.mlength, 64u);
  EXPECT_FALSE(p.b.next().has_value());
  EXPECT_FALSE(p.a.ack().has_value());
}

TEST(Transfer, AnAddressWithoutAnyoneSaysWhatIsMissing) {
  Pair p;
  p.b.open_portal(3, {});
  EXPECT_EQ(p.a.result_of(p.a.put_to({99, 1, 3}, p.out)), Rc::kUndeliverable);
  EXPECT_EQ(p.a.result_of(p.a.put_to(p.b.at(4), p.out)), Rc::kPtlteNotFound);
  Process other(p.host, 1, kAnyPid, 11);
  Transfer put = other.put_to(p.b.at(3), p.out);
  EXPECT_EQ(other.result_of(put), Rc::kUndeliverable) << "the host says what it has of VNI 11";
}

TEST(Transfer, WithoutFlushNothingLeaves) {
  Pair p;
  Portal &portal = p.b.open_portal(0, {});
  portal.append(List::kPriority, p.b.entry_for(region(1, 0), p.in));
  p.b.next();
  ASSERT_EQ(p.a.queue->post(p.a.put_to(p.b.at(0), p.out)), 0);
  EXPECT_NE(p.in, p.out);
  p.a.queue->flush();
  EXPECT_EQ(p.in, p.out);
}

TEST(Transfer, AFullQueueTakesNoMore) {
  Pair p;
  int taken = 0;
  while (p.a.queue->post(p.a.put_to({99, 1, 3}, p.out)) == 0) ++taken;
  EXPECT_TRUE(Host::is_soft ? taken == 16 : taken > 16) << taken;
  EXPECT_EQ(p.a.queue->fence(), -FI_EAGAIN);
  p.a.queue->flush();
  for (int i = 0; i < taken; ++i) EXPECT_EQ(p.a.ack().value().rc, Rc::kUndeliverable);
  EXPECT_EQ(p.a.queue->fence(), 0);
}

TEST(Transfer, InlineBytesAreCopiedByTheCall) {
  Pair p;
  Portal &portal = p.b.open_portal(0, {});
  portal.append(List::kPriority, p.b.entry_for(region(1, 0), p.in));
  Transfer put = p.a.put_to(p.b.at(0), p.out);
  put.inline_bytes = p.out.data();
  put.memory = {};
  put.local = 0;
  ASSERT_EQ(p.a.queue->post(put), 0);
  const Bytes sent = std::exchange(p.out, Bytes{});
  p.a.queue->flush();
  EXPECT_EQ(p.in, sent);
  if (!Host::is_soft) return;  // other bytes are read from where they are
  const std::array<uint8_t, kMaxInline + 1> large{};
  put.inline_bytes = large.data();
  put.length = large.size();
  EXPECT_EQ(p.a.result_of(put), Rc::kOk) << "that of the first";
  EXPECT_EQ(p.a.ack().value().rc, Rc::kNoSpace);
  for (const bool restricted : {false, true}) {
    put.restricted = restricted;
    put.length = 1 + kMaxInlineUnrestricted;
    const Rc expected = restricted ? Rc::kAddrOutOfRange : Rc::kNoSpace;
    EXPECT_EQ(p.a.result_of(put), expected) << "the target has 64 bytes";
  }
}

TEST(Transfer, AGetBringsWhatIsThere) {
  Pair p;
  p.in = pattern(100);
  Portal &portal = p.b.open_portal(200, {});
  portal.append(List::kPriority, p.b.entry_for(region(1, 0), p.in));
  p.b.next();
  Bytes got{};
  Transfer get = p.a.put_to(p.b.at(200), got);
  get.op = Op::kGet;
  get.remote_offset = 60;
  get.length = 4;
  p.a.send(get);
  const Event reply = p.a.ack().value();
  EXPECT_EQ(reply.type, EventType::kReply);
  EXPECT_EQ(reply.rc, Rc::kOk);
  EXPECT_EQ(reply.mlength, 4u);
  EXPECT_EQ(got[0], p.in[60]);
  EXPECT_EQ(got[3], p.in[63]);
  EXPECT_EQ(got[4], 0);
  EXPECT_EQ(p.b.next().value().type, EventType::kGet);
}

TEST(Transfer, BoundsAndRightsOfTheTargetHold) {
  Pair p;
  Portal &portal = p.b.open_portal(0, {});
  Entry entry = p.b.entry_for(region(1, 0), p.in);
  entry.op_get = false;
  portal.append(List::kPriority, entry);
  Transfer put = p.a.put_to(p.b.at(0), p.out);
  put.remote_offset = 1;
  EXPECT_EQ(p.a.result_of(put), Rc::kAddrOutOfRange);
  put.remote_offset = UINT64_MAX - 10;
  EXPECT_EQ(p.a.result_of(put), Rc::kAddrOutOfRange);
  put.remote_offset = 64;
  put.length = 0;
  EXPECT_EQ(p.a.result_of(put), Rc::kOk);
  put.op = Op::kGet;
  EXPECT_EQ(p.a.result_of(put), Rc::kOpViolation);
  put.op = Op::kFetchAtomic;
  EXPECT_EQ(p.a.result_of(put), Rc::kNoTranslation) << "without memory for the result";
  EXPECT_EQ(p.in, Bytes{});
}

TEST(Transfer, MemoryThatIsNotMappedIsNotTouched) {
  Pair p;
  Portal &portal = p.b.open_portal(0, {});
  const auto start = reinterpret_cast<uintptr_t>(&p.in);
  const Memory part = must(p.b.lni->map(start, 32, Lni::kWrite));
  Entry entry = p.b.entry_for(region(1, 0), p.in);
  entry.memory = part;
  portal.append(List::kPriority, entry);
  Transfer put = p.a.put_to(p.b.at(0), p.out);
  EXPECT_EQ(p.a.result_of(put), Rc::kNoTranslation);
  put.length = 32;
  EXPECT_EQ(p.a.result_of(put), Rc::kOk);
  Transfer get = put;
  get.op = Op::kGet;
  EXPECT_EQ(p.a.result_of(get), Rc::kPagePermError);
  p.b.lni->unmap(part);
  EXPECT_EQ(p.a.result_of(put), Rc::kNoTranslation);
  EXPECT_EQ(p.b.lni->map(10, UINT64_MAX, Lni::kRead).error().code, FI_EINVAL);
}

// What a sender of long messages offers: their bytes, for as long as they are under way.
TEST(Transfer, AnEntryOfTheWholeContextGivesWhatIsMappedForPeers) {
  if (!Host::is_soft) GTEST_SKIP() << "there it gives all that is mapped";
  Pair p;
  Portal &portal = p.b.open_portal(255, {});
  Entry entry = region(1, 0);
  entry.memory = {.number = Memory::kWholeLac};
  entry.length = UINT64_MAX;
  portal.append(List::kPriority, entry);
  p.in = pattern(100);
  Bytes got{};
  Transfer get = p.a.put_to(p.b.at(255), got);
  get.op = Op::kGet;
  get.remote_offset = reinterpret_cast<uintptr_t>(&p.in);
  get.length = 32;
  EXPECT_EQ(p.a.result_of(get), Rc::kNoTranslation) << "mapped, but not for peers";
  const Memory first = must(p.b.lni->map(get.remote_offset, 32, Lni::kRead | Lni::kRemote));
  const Memory again = must(p.b.lni->map(get.remote_offset, 32, Lni::kRead | Lni::kRemote));
  EXPECT_EQ(p.a.result_of(get), Rc::kOk);
  EXPECT_EQ(got[31], 131);
  EXPECT_EQ(got[32], 0);
  p.b.lni->unmap(again);
  EXPECT_EQ(p.a.result_of(get), Rc::kOk) << "two messages may be of the same bytes";
  get.length = 33;
  EXPECT_EQ(p.a.result_of(get), Rc::kNoTranslation);
  get.length = 32;
  get.op = Op::kPut;
  EXPECT_NE(p.a.result_of(get), Rc::kOk);
  get.op = Op::kGet;
  p.b.lni->unmap(first);
  EXPECT_EQ(p.a.result_of(get), Rc::kNoTranslation);
}

TEST(Transfer, MemoryOfTheInitiatorIsCheckedBeforeAnythingLeaves) {
  Pair p;
  p.host.elsewhere = true;
  Transfer put = p.a.put_to({99, 1, 3}, p.out);
  put.memory = must(p.a.lni->map(put.local, put.length, Lni::kWrite));
  EXPECT_EQ(p.a.result_of(put), Rc::kPagePermError);
  put.memory = {.number = 1000};
  EXPECT_EQ(p.a.result_of(put), Rc::kNoTranslation);
  EXPECT_TRUE(p.host.sent.empty());
}

TEST(Transfer, ADisabledPortalCountsWhatItDrops) {
  Pair p;
  Portal &portal = p.b.open_portal(0, {.is_matching = true, .flow_control = true});
  portal.append(List::kPriority, p.b.entry_for(tagged(1, 0), p.in));
  portal.set_state(PortalState::kDisabled, 0);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(p.a.result_of(p.a.put_to(p.b.at(0), p.out)), Rc::kPtDisabled);
  EXPECT_EQ(portal.status().drops, 3u);
  EXPECT_EQ(p.b.next().value().state, PortalState::kDisabled);
  // Who has not heard of all drops cannot enable it.
  portal.set_state(PortalState::kEnabled, 2);
  const Event refused = p.b.next().value();
  EXPECT_EQ(refused.rc, Rc::kNoMatch);
  EXPECT_EQ(portal.status().state, PortalState::kDisabled);
  portal.set_state(PortalState::kEnabled, 3);
  EXPECT_EQ(p.b.next().value().rc, Rc::kOk);
  EXPECT_EQ(p.a.result_of(p.a.put_to(p.b.at(0), p.out)), Rc::kOk);
}

TEST(Transfer, RestrictedPacketsAreForPortalsWithoutMatching) {
  Pair p;
  p.b.open_portal(0, {.is_matching = true})
      .append(List::kPriority, p.b.entry_for(tagged(1, 0), p.in));
  p.b.open_portal(20, {}).append(List::kPriority, p.b.entry_for(region(2, 0), p.in));
  Transfer put = p.a.put_to(p.b.at(0), p.out);
  put.restricted = true;
  EXPECT_EQ(p.a.result_of(put), Rc::kRestrictedUnicast);
  put.to = p.b.at(20);
  EXPECT_EQ(p.a.result_of(put), Rc::kOk);
}

TEST(Transfer, OperationsOfAQueueHappenInOrder) {
  Pair p;
  Portal &portal = p.b.open_portal(0, {});
  portal.append(List::kPriority, p.b.entry_for(region(1, 0), p.in));
  std::array<Bytes, 10> out;
  for (uint8_t i = 0; i < out.size(); ++i) {
    out[i].fill(i);
    ASSERT_EQ(p.a.queue->post(p.a.put_to(p.b.at(0), out[i])), 0);
  }
  p.a.queue->flush();
  EXPECT_EQ(p.in, out.back());
}

TEST(Transfer, AFenceWaitsForWhatIsElsewhere) {
  Pair p;
  p.host.elsewhere = true;
  Transfer put = p.a.put_to({99, 1, 3}, p.out);
  ASSERT_EQ(p.a.queue->post(put), 0);
  ASSERT_EQ(p.a.queue->post(put), 0);
  ASSERT_EQ(p.a.queue->fence(), 0);
  ASSERT_EQ(p.a.queue->post(put), 0);
  p.a.queue->flush();
  ASSERT_EQ(p.host.sent.size(), 2u);
  p.host.engine.on_reply({.token = p.host.sent[1].token, .mlength = 64});
  EXPECT_EQ(p.host.sent.size(), 2u);
  p.host.engine.on_reply({.token = p.host.sent[0].token, .mlength = 64});
  EXPECT_EQ(p.host.sent.size(), 3u);
}

TEST(Transfer, RepliesThatNobodyWaitsForAreIgnored) {
  Pair p;
  p.host.elsewhere = true;
  p.a.send(p.a.put_to({99, 1, 3}, p.out));
  const uint64_t token = p.host.sent.at(0).token;
  for (const uint64_t wrong : {uint64_t{0}, token + 1, token + (uint64_t{1} << 24), ~uint64_t{0}})
    p.host.engine.on_reply({.token = wrong});
  EXPECT_FALSE(p.a.ack().has_value());
  p.host.engine.on_reply({.token = token, .rc = Rc::kPtDisabled});
  EXPECT_EQ(p.a.ack().value().rc, Rc::kPtDisabled);
  p.host.engine.on_reply({.token = token});
  EXPECT_FALSE(p.a.ack().has_value()) << "it was answered";
}

TEST(Transfer, AReplyMayBringNoMoreThanWasAskedFor) {
  Pair p;
  p.host.elsewhere = true;
  Bytes got{};
  Transfer get = p.a.put_to({99, 1, 200}, got);
  get.op = Op::kGet;
  get.length = 4;
  p.a.send(get);
  p.host.engine.on_reply({.token = p.host.sent.at(0).token, .mlength = 64, .bytes = p.out.data()});
  EXPECT_EQ(p.a.ack().value().mlength, 4u);
  EXPECT_EQ(got[3], p.out[3]);
  EXPECT_EQ(got[4], 0);
}

TEST(Transfer, SuccessMayBeSilentFailureIsNot) {
  Pair p;
  p.b.open_portal(0, {}).append(List::kPriority, p.b.entry_for(region(1, 0), p.in));
  Transfer put = p.a.put_to(p.b.at(0), p.out);
  put.success_disable = true;
  EXPECT_EQ(p.a.result_of(put), Rc::kNone);
  EXPECT_EQ(p.in, p.out);
  put.to.index = 1;
  EXPECT_EQ(p.a.result_of(put), Rc::kPtlteNotFound);
}

TEST(Transfer, WhatEndsMeanwhileHearsNothing) {
  Host host;
  host.elsewhere = true;
  const Bytes out{};
  std::vector<uint64_t> tokens;
  {
    Process a(host);
    auto counter = must(a.lni->counter());
    Transfer put = a.put_to({99, 1, 3}, out);
    put.counter = counter.get();
    for (int i = 0; i < 4; ++i) a.send(put);
    for (const Packet &packet : host.sent) tokens.push_back(packet.token);
    host.engine.on_reply({.token = tokens[0], .mlength = 64});
    EXPECT_EQ(counter->success(), 1u);
    EXPECT_TRUE(a.ack().has_value());
    // With the queue all of it ends: its memory may go, too.
    std::array<uint8_t, 8> bytes;
    EXPECT_TRUE(host.engine.read_source(tokens[1], 0, bytes));
    a.queue.reset();
    EXPECT_FALSE(host.engine.read_source(tokens[1], 0, bytes));
    host.engine.on_reply({.token = tokens[1], .mlength = 64});
    EXPECT_EQ(counter->success(), 1u);
    EXPECT_FALSE(a.ack().has_value());
    counter.reset();
    a.acks.reset();
    host.engine.on_reply({.token = tokens[2], .mlength = 64});
  }
  host.engine.on_reply({.token = tokens[3], .mlength = 64});
}

}  // namespace
}  // namespace weft::cxi
