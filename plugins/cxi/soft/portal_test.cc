// SPDX-License-Identifier: BSD-2-Clause
// R3, R5, R6, R9: which entry takes a message, and what it says.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

#include "plugins/cxi/soft/portal.h"
#include "plugins/cxi/soft/test_nic.h"

namespace weft::cxi {
namespace {

constexpr PortalOptions kReceives{.is_matching = true, .flow_control = true};

struct Inbox {
  Host host;
  Process a{host, 1, 5}, b{host, 2, 6};
  Portal &portal = b.open_portal(0, kReceives);
  std::array<char, 256> space{};

  Transfer message(const std::string &text, uint64_t tag = 0) const {
    Transfer put = a.put_to(b.at(0), text);
    put.match_bits = tag;
    return put;
  }
  Rc send(const std::string &text, uint64_t tag = 0) { return a.result_of(message(text, tag)); }
  void receive_into(const Entry &entry, List list = List::kPriority) {
    portal.append(list, b.entry_for(entry, space));
  }
  std::string text(const Event &event) const {
    return {reinterpret_cast<const char *>(event.start), event.mlength};
  }
};

TEST(Portal, TheOldestReceiveThatMatchesTakesAMessage) {
  Inbox inbox;
  inbox.receive_into(tagged(1, 7));
  inbox.receive_into(tagged(2, 8));
  inbox.receive_into(tagged(3, 7));
  EXPECT_EQ(inbox.send("x", 8), Rc::kOk);
  EXPECT_EQ(inbox.send("y", 7), Rc::kOk);
  EXPECT_EQ(inbox.send("z", 7), Rc::kOk);
  for (const unsigned id : {2, 1, 3}) EXPECT_EQ(inbox.b.next().value().buffer_id, id);
}

TEST(Portal, AReceiveMayWantOneSender) {
  Inbox inbox;
  Process other(inbox.host, 3, 5);
  Entry from_other = receive(1);
  from_other.match_id = other.id();
  inbox.receive_into(from_other);
  inbox.receive_into(receive(2));
  EXPECT_EQ(inbox.send("a"), Rc::kOk);
  EXPECT_EQ(inbox.b.next().value().buffer_id, 2);
  const std::string text = "o";
  EXPECT_EQ(other.result_of(other.put_to(inbox.b.at(0), text)), Rc::kOk);
  const Event event = inbox.b.next().value();
  EXPECT_EQ(event.buffer_id, 1);
  EXPECT_EQ(event.initiator, other.id());
}

TEST(Portal, AMessageThatIsTooLongIsCut) {
  Inbox inbox;
  Entry entry = inbox.b.entry_for(receive(1), inbox.space);
  entry.length = 3;
  inbox.portal.append(List::kPriority, entry);
  EXPECT_EQ(inbox.send("12345"), Rc::kOk);
  const Event event = inbox.b.next().value();
  EXPECT_EQ(event.mlength, 3u);
  EXPECT_EQ(event.rlength, 5u);
  EXPECT_EQ(inbox.a.ack(), std::nullopt);
  entry.no_truncate = true;
  inbox.portal.append(List::kPriority, entry);
  EXPECT_EQ(inbox.send("12345"), Rc::kPtDisabled) << "no receive is long enough";
}

TEST(Portal, AReceiveForManyMessagesEndsWhenLittleIsLeft) {
  Inbox inbox;
  Entry entry = inbox.b.entry_for(overflow(1, 4), inbox.space);
  entry.length = 10;
  inbox.portal.append(List::kPriority, entry);
  EXPECT_EQ(inbox.send("abc"), Rc::kOk);
  EXPECT_EQ(inbox.send("def"), Rc::kOk);
  EXPECT_EQ(inbox.send("g"), Rc::kOk);
  for (const char *const text : {"abc", "def", "g"}) {
    const Event event = inbox.b.next().value();
    EXPECT_EQ(inbox.text(event), text);
    EXPECT_EQ(event.auto_unlinked, text[0] == 'g') << "3 bytes are left, which is less than 4";
  }
  EXPECT_EQ(inbox.send("h"), Rc::kPtDisabled);
}

// 0: the whole buffer may be used, and then takes messages of no bytes.
TEST(Portal, WithoutALeastRoomAReceiveStays) {
  Inbox inbox;
  Entry entry = inbox.b.entry_for(overflow(1, 0), inbox.space);
  entry.length = 3;
  inbox.portal.append(List::kPriority, entry);
  EXPECT_EQ(inbox.send("abc"), Rc::kOk);
  EXPECT_EQ(inbox.send(""), Rc::kOk);
  EXPECT_EQ(inbox.send("d"), Rc::kOk) << "cut to nothing";
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(inbox.b.next().value().auto_unlinked);
}

TEST(Portal, WithoutFlowControlAMessageThatNobodyTakesIsRefused) {
  Inbox inbox;
  inbox.b.open_portal(1, {.is_matching = true});
  Transfer put = inbox.message("x");
  put.to.index = 1;
  EXPECT_EQ(inbox.a.result_of(put), Rc::kEntryNotFound);
  const Event event = inbox.b.next().value();
  EXPECT_EQ(event.type, EventType::kPut);
  EXPECT_EQ(event.rc, Rc::kEntryNotFound);
}

TEST(Portal, WithFlowControlItDisablesThePortal) {
  Inbox inbox;
  EXPECT_EQ(inbox.send("x"), Rc::kPtDisabled);
  const Event event = inbox.b.next().value();
  EXPECT_EQ(event.type, EventType::kStateChange);
  EXPECT_TRUE(event.nic_auto);
  EXPECT_EQ(event.state, PortalState::kDisabled);
  EXPECT_EQ(event.reason, Reason::kNoMatch);
  EXPECT_EQ(inbox.portal.status().drops, 1u);
  EXPECT_EQ(inbox.send("x"), Rc::kPtDisabled);
  EXPECT_EQ(inbox.portal.status().drops, 2u);
  // A command to disable it, which was on its way, is not the end of counting.
  inbox.portal.set_state(PortalState::kDisabled, 0);
  EXPECT_EQ(inbox.portal.status().drops, 2u);
}

TEST(Portal, WhatComesTooEarlyWaitsForItsReceive) {
  Inbox inbox;
  std::array<char, 64> saved{};
  inbox.portal.append(List::kOverflow, inbox.b.entry_for(overflow(100, 8), saved));
  EXPECT_EQ(inbox.send("one", 1), Rc::kOk);
  EXPECT_EQ(inbox.send("two", 2), Rc::kOk);
  for (const char *const text : {"one", "two"}) {
    const Event event = inbox.b.next().value();
    EXPECT_EQ(event.type, EventType::kPut);
    EXPECT_EQ(event.list, List::kOverflow);
    EXPECT_EQ(event.buffer_id, 100);
    EXPECT_EQ(inbox.text(event), text);
  }
  inbox.receive_into(tagged(7, 2));
  const Event event = inbox.b.next().value();
  EXPECT_EQ(event.type, EventType::kPutOverflow);
  EXPECT_EQ(event.buffer_id, 7);
  EXPECT_EQ(inbox.text(event), "two");
  EXPECT_TRUE(event.auto_unlinked);
  EXPECT_EQ(inbox.portal.status().unexpected.size(), 1u);
  // A receive for many takes what has waited, and then stays.
  inbox.receive_into(overflow(8, 1));
  EXPECT_EQ(inbox.text(inbox.b.next().value()), "one");
  EXPECT_EQ(inbox.send("three"), Rc::kOk);
  EXPECT_EQ(inbox.b.next().value().buffer_id, 8);
}

TEST(Portal, EventsCanBeLeftOut) {
  Inbox inbox;
  Entry entry = receive(1);
  entry.success_disable = true;
  inbox.receive_into(entry);
  entry.buffer_id = 2;
  entry.comm_disable = true;
  entry.link_disable = false;
  inbox.receive_into(entry);
  EXPECT_EQ(inbox.b.next().value().type, EventType::kLink);
  EXPECT_EQ(inbox.send("x"), Rc::kOk);
  EXPECT_EQ(inbox.send("y"), Rc::kOk);
  EXPECT_FALSE(inbox.b.next().has_value());
  entry.unlink_disable = false;
  inbox.receive_into(entry);
  inbox.b.next();
  EXPECT_EQ(inbox.send("z"), Rc::kOk);
  EXPECT_EQ(inbox.b.next().value().type, EventType::kUnlink);
}

TEST(Portal, AMatchIsToldBeforeTheOperation) {
  Inbox inbox;
  Portal &portal = inbox.b.open_portal(1, {.is_matching = true, .match_events = true});
  Entry entry = inbox.b.entry_for(region(1, 3), inbox.space);
  entry.length = 2;
  portal.append(List::kPriority, entry);
  Transfer put = inbox.message("xyz", 3);
  put.to.index = 1;
  EXPECT_EQ(inbox.a.result_of(put), Rc::kAddrOutOfRange);
  EXPECT_EQ(inbox.b.next().value().type, EventType::kMatch);
  const Event event = inbox.b.next().value();
  EXPECT_EQ(event.type, EventType::kPut);
  EXPECT_EQ(event.rc, Rc::kAddrOutOfRange);
  EXPECT_EQ(event.mlength, 0u);
}

TEST(Portal, AnEntryCanBeUnlinked) {
  Inbox inbox;
  inbox.receive_into(tagged(1, 7));
  inbox.portal.unlink(List::kPriority, 1);
  inbox.portal.unlink(List::kPriority, 1);
  const Event gone = inbox.b.next().value();
  EXPECT_EQ(gone.type, EventType::kUnlink);
  EXPECT_EQ(gone.rc, Rc::kOk);
  EXPECT_FALSE(gone.auto_unlinked);
  EXPECT_EQ(inbox.b.next().value().rc, Rc::kEntryNotFound);
  EXPECT_EQ(inbox.send("x", 7), Rc::kPtDisabled);
}

TEST(Portal, TheUnexpectedListCanBeSearched) {
  Inbox inbox;
  std::array<char, 64> saved{};
  inbox.portal.append(List::kOverflow, inbox.b.entry_for(overflow(100, 8), saved));
  for (const auto &[text, tag] : {std::pair("a", 1), {"b", 2}, {"c", 1}}) {
    EXPECT_EQ(inbox.send(text, uint64_t(tag)), Rc::kOk);
    inbox.b.next();
  }
  const auto found = [&](EventType type) {
    std::string texts;
    while (const auto event = inbox.b.next()) {
      if (event->rc == Rc::kNoMatch) return texts + ".";
      EXPECT_EQ(event->type, type);
      texts += inbox.text(*event);
    }
    return texts;
  };
  inbox.portal.search({.match_bits = 1}, false);
  EXPECT_EQ(found(EventType::kSearch), "ac.");
  inbox.portal.search({.match_bits = 1, .once = true}, false);
  EXPECT_EQ(found(EventType::kSearch), "a");
  inbox.portal.search({.match_bits = 3, .once = true}, false);
  EXPECT_EQ(found(EventType::kSearch), ".");
  inbox.portal.search({.match_bits = 1}, true);
  EXPECT_EQ(found(EventType::kPutOverflow), "ac.");
  inbox.portal.search({.ignore_bits = ~uint64_t{0}}, true);
  EXPECT_EQ(found(EventType::kPutOverflow), "b.");
  EXPECT_TRUE(inbox.portal.status().unexpected.empty());
}

TEST(Portal, SoftwareGetsWhatNoReceiveTakes) {
  Inbox inbox;
  std::array<char, 256> requests{};
  inbox.receive_into(tagged(1, 7));
  inbox.portal.append(List::kRequest, inbox.b.entry_for(overflow(200, 128), requests));
  inbox.portal.set_state(PortalState::kSoftwareManaged, 0);
  inbox.b.next();
  EXPECT_EQ(inbox.send("posted", 7), Rc::kOk) << "receives of before are still matched";
  EXPECT_EQ(inbox.b.next().value().buffer_id, 1);
  EXPECT_EQ(inbox.send("hello", 9), Rc::kOk);
  const Event event = inbox.b.next().value();
  EXPECT_EQ(event.list, List::kRequest);
  EXPECT_EQ(event.buffer_id, 200);
  ASSERT_EQ(event.mlength, event.head + 5);
  ASSERT_GE(event.head, sizeof(RequestHeader));
  RequestHeader header;
  std::memcpy(&header, reinterpret_cast<const void *>(event.start), sizeof header);
  EXPECT_EQ(header.match_bits, 9u);
  EXPECT_EQ(header.initiator, inbox.a.id());
  EXPECT_EQ(header.length, 5u);
  EXPECT_EQ(inbox.text(event).substr(event.head), "hello");
  // A receive cannot be appended any more.
  inbox.receive_into(tagged(2, 9));
  EXPECT_EQ(inbox.b.next().value().rc, Rc::kPtlteSwManaged);
}

TEST(Portal, SoftwareMatchesMessagesAlone) {
  Inbox inbox;
  std::array<char, 256> requests{};
  Entry entry = overflow(200, 128);
  entry.op_get = true;
  inbox.portal.append(List::kRequest, inbox.b.entry_for(entry, requests));
  inbox.portal.set_state(PortalState::kSoftwareManaged, 0);
  std::string text = "12345678";
  Transfer get = inbox.message(text);
  get.op = Op::kGet;
  EXPECT_EQ(inbox.a.result_of(get), Rc::kEntryNotFound);
  EXPECT_EQ(inbox.portal.status().state, PortalState::kSoftwareManaged);
}

// A length of 32 bits and a header in front of it need more.
TEST(Portal, AMessageOfFourGigabytesFitsIntoNoRequestBuffer) {
  Inbox inbox;
  Entry entry = inbox.b.entry_for(overflow(200, 0), inbox.space);
  entry.length = uint64_t{8} << 30;
  inbox.portal.append(List::kRequest, entry);
  inbox.portal.set_state(PortalState::kSoftwareManaged, 0);
  inbox.b.next();
  Transfer put = inbox.message("");
  put.length = UINT32_MAX;
  EXPECT_EQ(inbox.a.result_of(put), Rc::kPtDisabled);
  EXPECT_EQ(inbox.b.next().value().reason, Reason::kRequestFull);
}

TEST(Portal, AnAtomicIsDoneWholeOrNotAtAll) {
  Inbox inbox;
  alignas(8) std::array<char, 12> words{};
  Portal &portal = inbox.b.open_portal(1, {.is_matching = true});
  portal.append(List::kPriority, inbox.b.entry_for(overflow(1, 0), words));
  const uint64_t operand = 7;
  Transfer add = inbox.message("");
  add.to.index = 1;
  add.op = Op::kAtomic;
  add.inline_bytes = &operand;
  add.length = sizeof operand;
  EXPECT_EQ(inbox.a.result_of(add), Rc::kOk);
  EXPECT_EQ(inbox.a.result_of(add), Rc::kAddrOutOfRange) << "4 bytes are left";
  EXPECT_EQ(words[8], 0);
}

TEST(Portal, WithoutARequestBufferThePortalIsDisabled) {
  Inbox inbox;
  inbox.portal.set_state(PortalState::kSoftwareManaged, 0);
  inbox.b.next();
  EXPECT_EQ(inbox.send("x"), Rc::kPtDisabled);
  EXPECT_EQ(inbox.b.next().value().reason, Reason::kRequestFull);
}

TEST(Portal, SoftwareTakesOverWhenItKnowsAllDrops) {
  Inbox inbox;
  EXPECT_EQ(inbox.portal.take_over(0), -FI_EINVAL) << "it is not disabled";
  EXPECT_EQ(inbox.send("x"), Rc::kPtDisabled);
  EXPECT_EQ(inbox.portal.take_over(0), -FI_EAGAIN);
  EXPECT_EQ(inbox.portal.take_over(1), 0);
  EXPECT_EQ(inbox.portal.status().state, PortalState::kSoftwareManaged);
}

TEST(Portal, AFullEventQueueDisablesThePortal) {
  Host host;
  Process a(host, 1), b(host, 2, kAnyPid, kVni, 4);
  Portal &portal = b.open_portal(0, kReceives);
  ASSERT_TRUE(b.events->reserve(1));
  std::array<char, 8> space{};
  portal.append(List::kPriority, b.entry_for(overflow(1, 0), space));
  const std::string text = "x";
  int taken = 0;
  Rc rc;
  while ((rc = a.result_of(a.put_to(b.at(0), text))) == Rc::kOk) ++taken;
  EXPECT_EQ(rc, Rc::kPtDisabled);
  EXPECT_TRUE(Host::is_soft ? taken == 2 : taken > 2) << taken;
  for (int i = 0; i < taken; ++i) EXPECT_EQ(b.next().value().type, EventType::kPut);
  const Event event = b.next().value();
  EXPECT_EQ(event.type, EventType::kStateChange) << "for which a place was reserved";
  EXPECT_EQ(event.reason, Reason::kEqFull);
  EXPECT_FALSE(b.events->has_dropped());
}

TEST(Portal, APlaceOfAnEndpointHasOnePortal) {
  Host host;
  Process b(host);
  b.open_portal(3, {});
  auto second = must(b.lni->portal({}, *b.events));
  EXPECT_EQ(second->map(*b.endpoint, 3).error().code, EEXIST);
  must(second->map(*b.endpoint, 4));
  EXPECT_EQ(second->map(*b.endpoint, 5).error().code, FI_EINVAL);
  b.portals.clear();
  auto third = must(b.lni->portal({}, *b.events));
  must(third->map(*b.endpoint, 3));
}

constexpr Vni kOtherVni = 1;

// An endpoint with several keys has one PID in several VNIs, and one portal in all of them.
TEST(Portal, APortalIsReachedThroughEachOfItsVnis) {
  Host host;
  Process a(host, 1), b(host, 2);
  auto second = must(b.lni->endpoint(kOtherVni, b.endpoint->pid()));
  Portal &portal = b.open_portal(0, {.is_matching = true});
  must(portal.map(*second, 0));
  EXPECT_EQ(portal.map(*second, 0).error().code, FI_EINVAL);
  auto third = must(b.lni->endpoint(kOtherVni, kAnyPid));
  EXPECT_EQ(portal.map(*third, 0).error().code, FI_EINVAL) << "another PID";
  std::array<char, 8> space{};
  Entry entry{.buffer_id = 1, .ignore_bits = ~uint64_t{0}};
  entry.op_put = true;
  portal.append(List::kPriority, b.entry_for(entry, space));
  EXPECT_EQ(b.next().value().type, EventType::kLink);
  const std::string text = "x";
  for (const Vni vni : {kVni, kOtherVni}) {
    must(a.queue->set_profile({.vni = vni}));
    EXPECT_EQ(a.result_of(a.put_to(b.at(0), text)), Rc::kOk);
    const Event event = b.next().value();
    EXPECT_EQ(event.type, EventType::kPut);
    EXPECT_EQ(event.vni, vni);
  }
  second.reset();
  EXPECT_NE(a.result_of(a.put_to(b.at(0), text)), Rc::kOk) << "that one is gone";
  must(a.queue->set_profile({.vni = kVni}));
  EXPECT_EQ(a.result_of(a.put_to(b.at(0), text)), Rc::kOk);
}

}  // namespace
}  // namespace weft::cxi
