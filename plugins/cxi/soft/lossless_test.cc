// SPDX-License-Identifier: BSD-2-Clause
// R13: at a lossless portal a message waits for its place.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "plugins/cxi/soft/test_nic.h"
#include "plugins/cxi/soft/test_node.h"

namespace weft::cxi {
namespace {

constexpr PortalOptions kLossless{.is_matching = true, .flow_control = true, .lossless = true};

struct Patient {
  explicit Patient(size_t places = 64) : places(places) {}
  void send(uint64_t tag, const std::string &text) { a.send(message(tag, text)); }
  Transfer message(uint64_t tag, const std::string &text) {
    Transfer put = a.put_to(b.at(0), text);
    put.match_bits = tag;
    put.user_ptr = tag;
    return put;
  }
  void receive_into(const Entry &entry, List list = List::kPriority) {
    portal->append(list, b.entry_for(entry, space));
  }
  static std::string text(const Event &event) {
    return {reinterpret_cast<const char *>(event.start), event.mlength};
  }
  uint32_t used() const { return host.used(Resource::kListEntry); }

  const size_t places;
  Host host;
  Process a{host, 1}, b{host, 2, kAnyPid, kVni, places};
  Portal *portal = &b.open_portal(0, kLossless);
  std::array<char, 1000> space{};
};

TEST(Lossless, AMessageWaitsForAReceive) {
  Patient p;
  std::string text = "early";
  p.send(1, text);
  EXPECT_FALSE(p.a.ack().has_value());
  EXPECT_FALSE(p.b.next().has_value()) << "and the portal stays as it is";
  EXPECT_TRUE(p.host.engine.has_waiting());
  p.receive_into(tagged(1, 1));
  const Event event = p.b.next().value();
  EXPECT_EQ(p.text(event), "early");
  EXPECT_EQ(p.a.ack().value().rc, Rc::kOk);
  EXPECT_FALSE(p.host.engine.has_waiting());
}

TEST(Lossless, ItsBytesAreKept) {
  Patient p;
  std::string text = "as it was";
  p.send(1, text);
  std::ranges::fill(text, 'x');
  p.receive_into(tagged(1, 1));
  EXPECT_EQ(p.text(p.b.next().value()), "as it was");
}

TEST(Lossless, MessagesKeepTheirOrder) {
  Patient p;
  const std::string text = "m";
  for (const uint64_t tag : {1, 2, 1}) p.send(tag, text);
  p.receive_into(tagged(1, 2));
  EXPECT_FALSE(p.b.next().has_value()) << "the first one waits, and those behind it";
  p.receive_into(overflow(100, 0), List::kOverflow);
  EXPECT_EQ(p.b.next().value().list, List::kOverflow);
  EXPECT_EQ(p.b.next().value().buffer_id, 1);
  EXPECT_EQ(p.b.next().value().list, List::kOverflow);
  for (const uint64_t tag : {1, 2, 1}) EXPECT_EQ(p.a.ack().value().user_ptr, tag);
}

TEST(Lossless, WhatIsBehindAFenceWaitsToo) {
  Patient p;
  const std::string text = "m";
  ASSERT_EQ(p.a.queue->post(p.message(1, text)), 0);
  ASSERT_EQ(p.a.queue->fence(), 0);
  Transfer second = p.message(2, text);
  Process c(p.host, 3);
  c.open_portal(0, {.is_matching = true})
      .append(List::kPriority, c.entry_for(tagged(7, 2), p.space));
  second.to = c.at(0);
  ASSERT_EQ(p.a.queue->post(second), 0);
  p.a.queue->flush();
  EXPECT_FALSE(c.next().has_value());
  p.receive_into(tagged(1, 1));
  EXPECT_EQ(c.next().value().buffer_id, 7);
}

TEST(Lossless, AMessageWaitsForAListEntry) {
  Patient p;
  p.host.limits[size_t(Resource::kListEntry)] = 2;
  const std::string text = "m";
  p.receive_into(overflow(100, 0), List::kOverflow);
  for (const uint64_t tag : {1, 2, 3}) p.send(tag, text);
  EXPECT_EQ(p.b.next().value().match_bits, 1u);
  EXPECT_FALSE(p.b.next().has_value()) << "no state has changed";
  EXPECT_EQ(p.used(), 2u);
  // Software takes the header.
  p.portal->search({.ignore_bits = ~uint64_t{0}, .once = true}, true);
  EXPECT_EQ(p.b.next().value().type, EventType::kPutOverflow);
  EXPECT_EQ(p.b.next().value().match_bits, 2u);
  // A receive takes the next one.
  p.receive_into(tagged(1, 2));
  EXPECT_EQ(p.b.next().value().type, EventType::kPutOverflow);
  EXPECT_EQ(p.b.next().value().match_bits, 3u);
}

// Of another portal, or another process.
TEST(Lossless, AnEntryThatOthersGiveBackIsFound) {
  Patient p;
  p.host.limits[size_t(Resource::kListEntry)] = 2;
  const std::string text = "m";
  p.receive_into(overflow(100, 0), List::kOverflow);
  ASSERT_TRUE(p.host.take(Resource::kListEntry));
  p.send(1, text);
  EXPECT_FALSE(p.b.next().has_value());
  p.host.give(Resource::kListEntry);
  p.host.engine.try_waiting();
  EXPECT_EQ(p.b.next().value().match_bits, 1u);
}

TEST(Lossless, AMessageWaitsForAPlaceOfTheEventQueue) {
  Patient p(4);
  const std::string text = "m";
  p.receive_into(overflow(100, 0), List::kOverflow);
  for (uint64_t tag = 0; tag < 9; ++tag) p.send(tag, text);
  EXPECT_FALSE(p.b.events->has_dropped());
  for (uint64_t tag = 0; tag < 9; ++tag) {
    if (p.b.events->peek(0) == nullptr) p.host.engine.try_waiting();
    EXPECT_EQ(p.b.next().value().match_bits, tag);
  }
  EXPECT_FALSE(p.host.engine.has_waiting());
}

TEST(Lossless, SoftwareThatMatchesGetsItInItsNextBuffer) {
  Patient p;
  const std::string text = "m";
  p.portal->set_state(PortalState::kSoftwareManaged, kIgnoreDrops);
  EXPECT_EQ(p.b.next().value().type, EventType::kStateChange);
  p.send(1, text);
  EXPECT_FALSE(p.b.next().has_value());
  p.receive_into(overflow(200, 128), List::kRequest);
  const Event event = p.b.next().value();
  EXPECT_EQ(event.list, List::kRequest);
  EXPECT_EQ(event.mlength, event.head + text.size());
  EXPECT_EQ(p.a.ack().value().rc, Rc::kOk);
}

TEST(Lossless, WithRequestBuffersSoftwareTakesOverAllTheSame) {
  Patient p;
  p.host.limits[size_t(Resource::kListEntry)] = 2;
  const std::string text = "m";
  p.receive_into(overflow(200, 128), List::kRequest);
  p.receive_into(overflow(100, 0), List::kOverflow);
  p.send(1, text);
  EXPECT_EQ(p.b.next().value().state, PortalState::kSoftwareManaged);
  EXPECT_EQ(p.b.next().value().list, List::kRequest);
}

TEST(Lossless, WhatMovesNoMessageDoesNotWait) {
  Patient p;
  std::array<char, 8> in{};
  Transfer get = p.a.put_to(p.b.at(0), in);
  get.op = Op::kGet;
  EXPECT_EQ(p.a.result_of(get), Rc::kEntryNotFound);
}

TEST(Lossless, SoftwareMayStopAPortalAndCountsWhatWaited) {
  Patient p;
  const std::string text = "m";
  p.send(1, text);
  p.send(2, text);
  p.portal->set_state(PortalState::kDisabled, 0);
  EXPECT_EQ(p.a.ack().value().rc, Rc::kPtDisabled);
  EXPECT_EQ(p.a.ack().value().rc, Rc::kPtDisabled);
  EXPECT_EQ(p.portal->status().drops, 2u);
  EXPECT_FALSE(p.host.engine.has_waiting());
}

TEST(Lossless, APortalThatEndsSaysSo) {
  Patient p;
  const std::string text = "m";
  p.send(1, text);
  p.b.portals.clear();
  EXPECT_EQ(p.a.ack().value().rc, Rc::kPtlteNotFound);
  EXPECT_FALSE(p.host.engine.has_waiting());
}

TEST(Lossless, AnEndpointThatEndsSaysSo) {
  Patient p;
  const std::string text = "m";
  p.send(1, text);
  p.b.endpoint.reset();
  EXPECT_EQ(p.a.ack().value().rc, Rc::kPtlteNotFound);
}

TEST(Lossless, ASenderMayEndMeanwhile) {
  Patient p;
  const std::string text = "m";
  {
    Process c(p.host, 3);
    Transfer put = c.put_to(p.b.at(0), text);
    c.send(put);
  }
  p.receive_into(receive(1));
  EXPECT_EQ(p.text(p.b.next().value()), "m") << "it was sent";
}

// ---- among processes ----

struct Apart {
  void send(Node &from, uint64_t tag, const std::vector<uint8_t> &bytes) {
    Transfer put;
    put.to = {b.nid, b.endpoint->pid(), 1};
    put.memory = from.everything;
    put.local = reinterpret_cast<uintptr_t>(bytes.data());
    put.length = uint32_t(bytes.size());
    put.match_bits = put.user_ptr = tag;
    put.initiator = match_id(from.endpoint->pid(), from.nid);
    put.eq = from.acks.get();
    ASSERT_EQ(from.queue->post(put), 0);
    from.queue->flush();
  }
  Entry entry(Entry one, std::vector<uint8_t> &memory) const {
    one.memory = b.everything;
    one.start = reinterpret_cast<uintptr_t>(memory.data());
    one.length = memory.size();
    return one;
  }
  template <class F>
  bool until(F condition, std::initializer_list<Node *> nodes) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      for (Node *const node : nodes) node->neighbours->poll();
    }
    return true;
  }
  bool waits() { return b.neighbours->engine().has_waiting(); }

  const TestFolder folder;
  Node b{folder.path, 2, 6};
  std::unique_ptr<Portal> portal = [this] {
    auto made = must(b.lni->portal(kLossless, *b.events));
    must(made->map(*b.endpoint, 1));
    made->set_state(PortalState::kEnabled, 0);
    b.events->ack(1);
    return made;
  }();
};

TEST(Lossless, MessagesOfOtherProcessesWait) {
  Apart t;
  Node a(t.folder.path, 1, 5);
  const std::vector<uint8_t> little = pattern(10), long_one = pattern(100'000);
  t.send(a, 1, little);
  t.send(a, 2, long_one);
  t.send(a, 3, little);
  ASSERT_TRUE(t.until([&] { return t.waits(); }, {&a, &t.b}));
  // Others go by, on the same connection.
  std::vector<uint8_t> there(10);
  t.b.append(region(1, 0), there);
  a.start(Op::kPut, t.b.at(), little);
  EXPECT_EQ(a.result({&t.b}), Rc::kOk);
  EXPECT_EQ(there, little);
  EXPECT_EQ(Process::take(*t.b.events).value().match_bits, 0u);
  std::vector<uint8_t> space(200'000);
  t.portal->append(List::kOverflow, t.entry(overflow(100, 0), space));
  uint64_t expected = 1;
  ASSERT_TRUE(t.until(
      [&] {
        if (const auto ack = Process::take(*a.acks)) {
          EXPECT_EQ(ack->rc, Rc::kOk);
          EXPECT_EQ(ack->user_ptr, expected);
          ++expected;
        }
        return expected == 4;
      },
      {&a, &t.b}));
  for (const uint64_t tag : {1, 2, 3}) {
    const Event event = Process::take(*t.b.events).value();
    EXPECT_EQ(event.match_bits, tag);
    const auto &sent = tag == 2 ? long_one : little;
    ASSERT_EQ(event.mlength, sent.size());
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), reinterpret_cast<uint8_t *>(event.start)));
  }
}

TEST(Lossless, WhatAKilledSenderHadWaitingIsDropped) {
  Apart t;
  TestProcess other([&](const auto &ready) {
    Node a(t.folder.path, 1, 5);
    const std::vector<uint8_t> bytes = pattern(10);
    t.send(a, 1, bytes);
    t.send(a, 2, bytes);
    a.neighbours->poll();
    ready();
    serve(*a.neighbours);
  });
  Node c(t.folder.path, 3, 7);
  ASSERT_TRUE(t.until([&] { return t.waits(); }, {&t.b}));
  const std::vector<uint8_t> bytes = pattern(10);
  t.send(c, 3, bytes);
  c.neighbours->poll();
  other.kill_it();
  std::vector<uint8_t> space(100);
  // Its connection ends in some poll after this; a buffer for one message alone shows which it is.
  for (int i = 0; i < 100; ++i) t.b.neighbours->poll();
  t.portal->append(List::kOverflow, t.entry(overflow(100, 0), space));
  EXPECT_EQ(c.result({&t.b}), Rc::kOk);
  EXPECT_EQ(Process::take(*t.b.events).value().match_bits, 3u);
  EXPECT_FALSE(Process::take(*t.b.events).has_value());
}

// A process that sleeps has nothing else to wake it up.
TEST(Lossless, WhoSleepsLooksAgain) {
  Apart t;
  Node a(t.folder.path, 1, 5);
  const std::vector<uint8_t> bytes = pattern(10);
  std::vector<uint8_t> space(100'000);
  t.portal->append(List::kOverflow, t.entry(overflow(100, 0), space));
  for (int i = 0; i < 300; ++i) {  // more than the event queue has places
    t.send(a, 1, bytes);
    a.neighbours->poll();
    t.b.neighbours->poll();
    while (Process::take(*a.acks)) {
    }
    if (t.waits()) break;
  }
  ASSERT_TRUE(t.waits());
  while (Process::take(*t.b.events)) {
  }
  pollfd descriptor{t.b.neighbours->wait_fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&descriptor, 1, 30'000), 1);
  t.b.neighbours->poll();
  EXPECT_FALSE(t.waits());
  // And no more than it must.
  t.b.neighbours->poll();
  EXPECT_EQ(::poll(&descriptor, 1, 20), 0);
}

// ---- any order of what peers and software do ----

// Senders put numbered messages; the receiver has few entries, small buffers and few places for
// events, and appends, reads and searches as it likes. Each message arrives once, in the order of
// its sender.
class Simulation {
 public:
  explicit Simulation(unsigned seed) : random_(seed) {
    host_.limits[size_t(Resource::kListEntry)] = kBuffers + most_receives_ + 1;
    for (Nid nid = 2; nid < 5; ++nid) senders_.push_back(std::make_unique<Process>(host_, nid));
  }
  void run() {
    constexpr uint64_t kEach = 20;
    for (int steps = 0; steps < 20'000 && arrived_ != kEach * senders_.size(); ++steps) {
      switch (below(8)) {
        case 0:
        case 1: {
          const size_t which = below(unsigned(senders_.size()));
          Process &sender = *senders_[which];
          if (sent_[which] == kEach) break;
          Transfer put = sender.put_to(receiver_.at(0), word_);
          put.length = below(17);
          put.match_bits = below(2);
          put.header_data = sent_[which]++;
          sender.send(put);
          break;
        }
        case 2:
          if (buffers_ == kBuffers) break;
          append(List::kOverflow, overflow(uint16_t(100 + ++appended_ % 50), 16));
          ++buffers_;
          break;
        case 3:
          if (receives_ == most_receives_) break;
          append(List::kPriority, tagged(uint16_t(1 + ++appended_ % 50), below(2)));
          ++receives_;
          break;
        case 4:
          portal_->search({.ignore_bits = ~uint64_t{0}, .once = true}, true);
          break;
        case 5:
          host_.engine.try_waiting();
          break;
        default:
          read();
      }
    }
    for (const auto &sender : senders_)
      while (const auto ack = sender->ack()) {
        EXPECT_EQ(ack->rc, Rc::kOk);
        ++acknowledged_;
      }
    EXPECT_EQ(arrived_, kEach * senders_.size());
    EXPECT_EQ(acknowledged_, arrived_);
    EXPECT_FALSE(host_.engine.has_waiting());
    EXPECT_EQ(portal_->status().drops, 0u);
  }

 private:
  static constexpr unsigned kBuffers = 2;
  unsigned below(unsigned limit) { return unsigned(random_() % limit); }
  void append(List list, Entry entry) {
    entry.link_disable = false;
    entry.restart_sequence = true;
    portal_->append(list, receiver_.entry_for(entry, space_));
  }
  void read() {
    const auto event = receiver_.next();
    if (!event) return;
    switch (event->type) {
      case EventType::kPut: {
        uint64_t &next = next_[event->initiator];
        EXPECT_EQ(event->header_data, next++);
        ++arrived_;
        if (event->list == List::kPriority) --receives_;
        if (event->list == List::kOverflow && event->auto_unlinked) --buffers_;
        return;
      }
      case EventType::kPutOverflow:
        if (event->buffer_id != 0) --receives_;
        return;
      case EventType::kLink:
        if (event->rc != Rc::kOk) --(event->list == List::kPriority ? receives_ : buffers_);
        return;
      default:
        EXPECT_NE(event->type, EventType::kStateChange);
    }
  }

  std::mt19937 random_;
  const unsigned most_receives_ = below(4);  // one entry is left for a header
  Host host_;
  Process receiver_{host_, 1, kAnyPid, kVni, 12};
  Portal *portal_ = &receiver_.open_portal(0, kLossless);
  std::vector<std::unique_ptr<Process>> senders_;
  std::array<uint64_t, 3> sent_{};
  std::map<uint32_t, uint64_t> next_;
  std::array<char, 64> space_{};
  std::array<char, 16> word_{};
  unsigned appended_ = 0, buffers_ = 0, receives_ = 0;
  uint64_t arrived_ = 0, acknowledged_ = 0;
};

TEST(Lossless, EachMessageArrivesOnceAndInOrder) {
  for (unsigned seed = 1; seed <= 1000; ++seed) {
    Simulation(seed).run();
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << "seed " << seed;
      return;
    }
  }
}

}  // namespace
}  // namespace weft::cxi
