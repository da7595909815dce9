// SPDX-License-Identifier: BSD-2-Clause
// R8 and the pool of list entries: what happens when there is none left.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "plugins/cxi/soft/test_nic.h"

namespace weft::cxi {
namespace {

struct Poor {
  explicit Poor(uint32_t entries) { host.limits[size_t(Resource::kListEntry)] = entries; }
  uint32_t used() const { return host.used(Resource::kListEntry); }
  Rc send(uint64_t tag) {
    Transfer put = a.put_to(b.at(0), text);
    put.match_bits = tag;
    return a.result_of(put);
  }

  Host host;
  Process a{host, 1}, b{host, 2};
  Portal &portal = b.open_portal(0, {.is_matching = true, .flow_control = true});
  std::array<char, 1000> space{}, saved{}, requests{};
  std::string text = "message";
};

TEST(Resources, EntriesAndUnexpectedHeadersComeFromOnePool) {
  Poor p(10);
  p.portal.append(List::kOverflow, p.b.entry_for(overflow(100, 8), p.saved));
  p.portal.append(List::kPriority, p.b.entry_for(tagged(1, 1), p.space));
  EXPECT_EQ(p.used(), 2u);
  EXPECT_EQ(p.send(5), Rc::kOk);
  EXPECT_EQ(p.used(), 3u);
  EXPECT_EQ(p.b.next().value().entries_used, 3u);
  EXPECT_EQ(p.send(1), Rc::kOk);
  EXPECT_EQ(p.used(), 2u) << "the receive is used up";
  p.portal.append(List::kPriority, p.b.entry_for(tagged(2, 5), p.space));
  EXPECT_EQ(p.used(), 1u) << "the message has its receive, which was never linked";
  p.b.portals.clear();
  EXPECT_EQ(p.used(), 0u);
}

TEST(Resources, WithoutAnEntryForAHeaderThePortalIsDisabled) {
  Poor p(2);
  p.portal.append(List::kOverflow, p.b.entry_for(overflow(100, 8), p.saved));
  EXPECT_EQ(p.send(1), Rc::kOk);
  EXPECT_EQ(p.send(2), Rc::kPtDisabled);
  p.b.next();
  const Event event = p.b.next().value();
  EXPECT_EQ(event.state, PortalState::kDisabled);
  EXPECT_EQ(event.reason, Reason::kUnexpectedFail);
  // Software takes the headers, and says that it may go on.
  p.portal.search({.ignore_bits = ~uint64_t{0}}, true);
  EXPECT_EQ(p.b.next().value().match_bits, 1u);
  p.b.next();
  p.portal.set_state(PortalState::kEnabled, 1);
  EXPECT_EQ(p.b.next().value().rc, Rc::kOk);
  EXPECT_EQ(p.send(2), Rc::kOk);
}

TEST(Resources, WithRequestBuffersSoftwareTakesOver) {
  Poor p(3);
  p.portal.append(List::kRequest, p.b.entry_for(overflow(200, 128), p.requests));
  p.portal.append(List::kOverflow, p.b.entry_for(overflow(100, 8), p.saved));
  EXPECT_EQ(p.send(1), Rc::kOk);
  EXPECT_EQ(p.send(2), Rc::kOk) << "software matches it";
  EXPECT_EQ(p.b.next().value().list, List::kOverflow);
  const Event event = p.b.next().value();
  EXPECT_EQ(event.type, EventType::kStateChange);
  EXPECT_TRUE(event.nic_auto);
  EXPECT_EQ(event.state, PortalState::kSoftwareManaged);
  EXPECT_EQ(event.reason, Reason::kSmUnexpectedFail);
  EXPECT_EQ(p.b.next().value().list, List::kRequest);
  EXPECT_EQ(p.portal.status().unexpected.size(), 1u) << "which software has to take";
}

TEST(Resources, AReceiveWithoutAnEntryStopsThoseBehindIt) {
  Poor p(1);
  Entry entry = p.b.entry_for(receive(1), p.space);
  p.portal.append(List::kPriority, entry);
  entry.buffer_id = 2;
  p.portal.append(List::kPriority, entry);
  Event event = p.b.next().value();
  EXPECT_EQ(event.type, EventType::kLink);
  EXPECT_EQ(event.rc, Rc::kNoSpace);
  EXPECT_EQ(event.buffer_id, 2);
  EXPECT_EQ(p.send(1), Rc::kOk);
  p.b.next();
  // There is room now, but the order of the receives would be lost.
  entry.buffer_id = 3;
  p.portal.append(List::kPriority, entry);
  EXPECT_EQ(p.b.next().value().rc, Rc::kNoSpace);
  entry.buffer_id = 4;
  entry.restart_sequence = true;
  p.portal.append(List::kPriority, entry);
  EXPECT_FALSE(p.b.next().has_value());
  EXPECT_EQ(p.send(1), Rc::kOk);
  EXPECT_EQ(p.b.next().value().buffer_id, 4);
}

TEST(Resources, AReceiveWithoutAnEntryLetsSoftwareTakeOver) {
  Poor p(1);
  p.portal.append(List::kRequest, p.b.entry_for(overflow(200, 128), p.requests));
  p.portal.append(List::kPriority, p.b.entry_for(receive(1), p.space));
  EXPECT_EQ(p.b.next().value().reason, Reason::kSmAppendFail);
  EXPECT_EQ(p.b.next().value().rc, Rc::kNoSpace);
  p.portal.append(List::kPriority, p.b.entry_for(receive(2), p.space));
  EXPECT_EQ(p.b.next().value().rc, Rc::kPtlteSwManaged);
  EXPECT_EQ(p.send(1), Rc::kOk);
  EXPECT_EQ(p.b.next().value().list, List::kRequest);
}

}  // namespace
}  // namespace weft::cxi
