// SPDX-License-Identifier: BSD-2-Clause
// R7: a message of which the first bytes come along, and the target's NIC reads the rest.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "plugins/cxi/soft/test_nic.h"

namespace weft::cxi {
namespace {

constexpr uint32_t kLength = 1000, kEager = 100;
constexpr uint64_t kAltRead = uint64_t{1} << 61, kHighBits = uint64_t{0x9001} << 48;

struct Rendezvous {
  Rendezvous() : in(kLength), out(kLength) {
    std::iota(out.begin(), out.end(), uint8_t{1});
    source.append(List::kPriority, a.entry_for(source_entry(), out));
    a.next();
  }
  static Entry source_entry() {
    Entry entry = region(50, 0);
    entry.ignore_bits = ~uint64_t{0xff};
    entry.match_bits = 33;  // the rendezvous' number
    return entry;
  }
  Transfer message(uint64_t tag) const {
    Transfer put = a.put_to(b.at(0), out);
    put.op = Op::kRendezvousPut;
    put.match_bits = tag;
    put.eager_length = kEager;
    put.rendezvous_id = 33;
    put.user_ptr = 4711;
    return put;
  }

  Host host;
  Process a{host, 1, 5}, b{host, 2, 6};
  Portal &source = a.open_portal(kRendezvousIndex, {.is_matching = true});
  Portal &portal = b.open_portal(0, {.is_matching = true, .flow_control = true});
  std::vector<uint8_t> in, out;
};

void expect_get(Rendezvous &r, uint16_t receive_id, uint32_t rest = kLength - kEager) {
  const Event reply = r.b.next().value();
  EXPECT_EQ(reply.type, EventType::kReply);
  EXPECT_EQ(reply.rc, Rc::kOk);
  EXPECT_TRUE(reply.rendezvous);
  EXPECT_EQ(reply.portal, &r.portal);
  EXPECT_EQ(reply.mlength, rest);
  const auto whose = RendezvousReply::of(reply.user_ptr);
  EXPECT_EQ(whose.nid, 1u);
  EXPECT_EQ(whose.pid, 5);
  EXPECT_EQ(whose.id, 33);
  EXPECT_EQ(whose.buffer_id, receive_id);
  const Event read = r.a.next().value();
  EXPECT_EQ(read.type, EventType::kGet);
  EXPECT_EQ(read.buffer_id, 50);
  EXPECT_EQ(read.mlength, rest);
  EXPECT_EQ(read.initiator, r.b.id());
}

TEST(Rendezvous, TheNicReadsTheRest) {
  Rendezvous r;
  r.portal.append(List::kPriority, r.b.entry_for(tagged(7, kHighBits | 9), r.in));
  EXPECT_EQ(r.a.result_of(r.message(kHighBits | 9)), Rc::kOk);
  EXPECT_EQ(r.in, r.out);
  const Event put = r.b.next().value();
  EXPECT_EQ(put.type, EventType::kPut);
  EXPECT_TRUE(put.rendezvous);
  EXPECT_EQ(put.rendezvous_id, 33);
  EXPECT_EQ(put.mlength, kEager);
  EXPECT_EQ(put.rlength, kLength);
  const Event begun = r.b.next().value();
  EXPECT_EQ(begun.type, EventType::kRendezvous);
  EXPECT_TRUE(begun.get_issued);
  EXPECT_EQ(begun.start, reinterpret_cast<uintptr_t>(r.in.data()) + kEager);
  EXPECT_EQ(begun.initiator, 1u << 12 | 5u) << "the NIC and the PID, for software's own Get";
  expect_get(r, 7);
}

// The NIC's own Get has nothing of the operation that had its place before.
TEST(Rendezvous, WhatWasSentBeforeDoesNotShowInTheGet) {
  Rendezvous r;
  auto counter = must(r.b.lni->counter());
  Transfer before = r.b.put_to({99, 1, 3}, r.out);  // nobody is there
  before.counter = counter.get();
  before.success_disable = before.restricted = true;
  // Two places, which are used again: that of the message, and that of its Get.
  ASSERT_EQ(r.b.queue->post(before), 0);
  EXPECT_EQ(r.b.result_of(before), Rc::kUndeliverable);
  EXPECT_EQ(r.b.ack().value().rc, Rc::kUndeliverable);
  r.portal.append(List::kPriority, r.b.entry_for(receive(7), r.in));
  EXPECT_EQ(r.a.result_of(r.message(9)), Rc::kOk);
  EXPECT_EQ(r.b.next().value().type, EventType::kPut);
  EXPECT_EQ(r.b.next().value().type, EventType::kRendezvous);
  expect_get(r, 7);
  EXPECT_EQ(counter->success(), 0u);
}

TEST(Rendezvous, TheGetSaysWhichMessageItIsFor) {
  Rendezvous r;
  // Only a source that knows the number and the high bits of the message is read.
  r.source.unlink(List::kPriority, 50);
  r.a.next();
  Entry entry = r.a.entry_for(Rendezvous::source_entry(), r.out);
  entry.ignore_bits = 0;
  entry.match_bits = kHighBits | 33;
  r.source.append(List::kPriority, entry);
  r.portal.append(List::kPriority, r.b.entry_for(receive(7), r.in));
  EXPECT_EQ(r.a.result_of(r.message(kHighBits | 0xffff'0000'1234)), Rc::kOk);
  EXPECT_EQ(r.in, r.out);
}

TEST(Rendezvous, AnEarlyMessageIsReadWhenItsReceiveIsThere) {
  Rendezvous r;
  std::vector<uint8_t> saved(400);
  r.portal.append(List::kOverflow, r.b.entry_for(overflow(100, 8), saved));
  EXPECT_EQ(r.a.result_of(r.message(9)), Rc::kOk);
  EXPECT_EQ(r.b.next().value().list, List::kOverflow);
  EXPECT_FALSE(r.b.next().has_value());
  EXPECT_FALSE(r.a.next().has_value());
  r.portal.append(List::kPriority, r.b.entry_for(tagged(7, 9), r.in));
  const Event early = r.b.next().value();
  EXPECT_EQ(early.type, EventType::kPutOverflow);
  EXPECT_EQ(early.mlength, kEager);
  EXPECT_EQ(early.start, reinterpret_cast<uintptr_t>(saved.data()));
  EXPECT_EQ(r.b.next().value().type, EventType::kRendezvous);
  expect_get(r, 7);
  // The first bytes are in the overflow buffer: software copies them.
  EXPECT_TRUE(std::equal(r.in.begin() + kEager, r.in.end(), r.out.begin() + kEager));
  EXPECT_EQ(r.in[0], 0);
}

TEST(Rendezvous, OfALongMessageOnlyWhatFitsIsRead) {
  Rendezvous r;
  Entry entry = r.b.entry_for(receive(7), r.in);
  entry.length = 300;
  r.portal.append(List::kPriority, entry);
  EXPECT_EQ(r.a.result_of(r.message(9)), Rc::kOk);
  EXPECT_EQ(r.b.next().value().rlength, kLength);
  r.b.next();
  expect_get(r, 7, 200);
  EXPECT_EQ(r.in[299], r.out[299]);
  EXPECT_EQ(r.in[300], 0);
}

TEST(Rendezvous, ABufferForManyKeepsRoomForTheRest) {
  Rendezvous r;
  r.portal.append(List::kPriority, r.b.entry_for(overflow(7, 1), r.in));
  Transfer first = r.message(9);
  first.length = 600;
  EXPECT_EQ(r.a.result_of(first), Rc::kOk);
  for (int i = 0; i < 3; ++i) r.b.next();
  const uint8_t next = 0xcc;
  Transfer second = r.a.put_to(r.b.at(0), std::array{next});
  second.local = reinterpret_cast<uintptr_t>(&next);
  EXPECT_EQ(r.a.result_of(second), Rc::kOk);
  EXPECT_EQ(r.b.next().value().start, reinterpret_cast<uintptr_t>(r.in.data()) + 600);
  EXPECT_EQ(r.in[599], r.out[599]);
  EXPECT_EQ(r.in[600], next);
}

TEST(Rendezvous, SoftwareReadsWhereTheMessageOrTheDeviceSaysSo) {
  for (const bool by_message : {true, false}) {
    Rendezvous r;
    if (!by_message) r.host.engine.set_issues_gets(false);
    r.portal.append(List::kPriority, r.b.entry_for(receive(7), r.in));
    EXPECT_EQ(r.a.result_of(r.message(by_message ? kAltRead : 9)), Rc::kOk);
    r.b.next();
    const Event begun = r.b.next().value();
    EXPECT_EQ(begun.type, EventType::kRendezvous);
    EXPECT_FALSE(begun.get_issued);
    EXPECT_FALSE(r.b.next().has_value());
    EXPECT_FALSE(r.a.next().has_value());
  }
}

TEST(Rendezvous, ASourceThatIsGoneFailsTheRead) {
  Rendezvous r;
  r.source.unlink(List::kPriority, 50);
  r.portal.append(List::kPriority, r.b.entry_for(receive(7), r.in));
  EXPECT_EQ(r.a.result_of(r.message(9)), Rc::kOk);
  r.b.next();
  r.b.next();
  const Event reply = r.b.next().value();
  EXPECT_EQ(reply.type, EventType::kReply);
  EXPECT_EQ(reply.rc, Rc::kEntryNotFound);
  EXPECT_EQ(RendezvousReply::of(reply.user_ptr).buffer_id, 7);
}

}  // namespace
}  // namespace weft::cxi
