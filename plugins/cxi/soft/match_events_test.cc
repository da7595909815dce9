// SPDX-License-Identifier: BSD-2-Clause
// A portal with events of matches: whoever has unlinked an entry knows when the last access has
// ended.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "plugins/cxi/soft/test_wire.h"

namespace weft::cxi {
namespace {

constexpr PortalOptions kRegions{.is_matching = true, .match_events = true};

struct Window {
  explicit Window(size_t length) : memory(length) {
    portal = must(wire.b.lni->portal(kRegions, *wire.b.events));
    must(portal->map(*wire.b.endpoint, 117));
    portal->set_state(PortalState::kEnabled, kIgnoreDrops);
    wire.b.events->ack(1);
    portal->append(List::kPriority, wire.b.entry_for(region(1, 0), memory));
  }
  // Accesses that have begun, less those that have ended.
  void read() {
    while (const auto event = Process::take(*wire.b.events)) {
      if (event->type == EventType::kUnlink || event->rc == Rc::kEntryNotFound) continue;
      if (event->type == EventType::kMatch)
        ++under_way;
      else
        --under_way;
      ASSERT_GE(under_way, 0);
    }
  }
  Transfer access(Op op, const std::vector<uint8_t> &bytes) const {
    return wire.a.transfer(op, bytes, 2, 117);
  }

  Wire wire;
  std::unique_ptr<Portal> portal;
  std::vector<uint8_t> memory;
  int under_way = 0;
};

TEST(MatchEvents, AMatchIsToldWhenItsFirstBytesCome) {
  Window w(100'000);
  const std::vector<uint8_t> out(100'000, 7);
  w.wire.a.start(w.access(Op::kPut, out));
  w.wire.carry(10'000);
  w.read();
  EXPECT_EQ(w.under_way, 1);
  EXPECT_EQ(w.memory[0], 7);
  EXPECT_EQ(w.memory.back(), 0);
  // What has begun goes on though the entry is gone; what has not finds nothing.
  w.portal->unlink(List::kPriority, 1);
  const std::vector<uint8_t> late(1, 9);
  w.wire.a.start(w.access(Op::kPut, late));
  w.wire.settle();
  EXPECT_EQ(Process::take(*w.wire.a.acks).value().rc, Rc::kOk);
  EXPECT_EQ(Process::take(*w.wire.a.acks).value().rc, Rc::kEntryNotFound);
  w.read();
  EXPECT_EQ(w.under_way, 0);
  EXPECT_EQ(w.memory, out);
}

TEST(MatchEvents, AReadEndsWhenItsBytesHaveLeft) {
  Window w(100'000);
  std::vector<uint8_t> in(100'000);
  w.wire.a.start(w.access(Op::kGet, in));
  w.wire.carry(10'000);
  w.wire.carry(10'000);
  w.read();
  EXPECT_EQ(w.under_way, 1);
  w.wire.settle();
  w.read();
  EXPECT_EQ(w.under_way, 0);
}

TEST(MatchEvents, AnAccessOfAPeerThatIsGoneEnds) {
  Window w(100'000);
  const std::vector<uint8_t> out(100'000, 7);
  w.wire.a.start(w.access(Op::kPut, out));
  w.wire.carry(10'000);
  w.read();
  EXPECT_EQ(w.under_way, 1);
  w.wire.b.stream->end();
  w.read();
  EXPECT_EQ(w.under_way, 0);
}

TEST(MatchEvents, WithoutAPlaceForThemAnAccessIsRefused) {
  Window w(8);
  const std::vector<uint8_t> out(8, 7);
  int good = 0;
  for (int i = 0; i < 300; ++i) {
    w.wire.a.start(w.access(Op::kPut, out));
    w.wire.settle();
    good += Process::take(*w.wire.a.acks).value().rc == Rc::kOk ? 1 : 0;
  }
  EXPECT_NEAR(good, 256 / 2, 1) << "of places for events";
  EXPECT_FALSE(w.wire.b.events->has_dropped());
  w.read();
  EXPECT_EQ(w.under_way, 0);
  w.wire.a.start(w.access(Op::kPut, out));
  w.wire.settle();
  EXPECT_EQ(Process::take(*w.wire.a.acks).value().rc, Rc::kOk);
}

// Writes, reads and atomics of any length in pieces of any length. The owner unlinks the entry when
// it likes. From when it has seen as many ends as matches nothing changes any more, and who has
// been told of success has moved all of its bytes.
void simulate(unsigned seed) {
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto below = [&](unsigned limit) { return unsigned(random() % limit); };
  Window w(8 + below(20'000));
  std::vector<std::unique_ptr<std::vector<uint8_t>>> buffers;
  std::vector<uint8_t> closed;
  bool unlinked = false;
  size_t accesses = 0, answers = 0;
  const uint64_t one = 1;
  for (int step = 0; step < 300; ++step) {
    switch (below(10)) {
      case 0:
      case 1: {
        if (accesses == 20) break;
        const Op op = Op(1 + below(2));
        buffers.push_back(std::make_unique<std::vector<uint8_t>>(
            1 + below(unsigned(below(2) != 0 ? w.memory.size() : 50)), uint8_t(1 + accesses)));
        if (buffers.back()->size() > w.memory.size()) buffers.back()->resize(w.memory.size());
        w.wire.a.start(w.access(op == Op::kPut ? Op::kPut : Op::kGet, *buffers.back()));
        ++accesses;
        break;
      }
      case 2: {
        if (accesses == 20) break;
        Transfer add = w.access(Op::kAtomic, {});
        add.inline_bytes = &one;
        add.length = 8;
        w.wire.a.start(add);
        ++accesses;
        break;
      }
      case 3:
        if (step > 100 && !unlinked) {
          w.portal->unlink(List::kPriority, 1);
          unlinked = true;
        }
        break;
      default:
        w.wire.carry(1 + below(20'000));
    }
    w.read();
    if (unlinked && w.under_way == 0 && closed.empty()) closed = w.memory;
    while (Process::take(*w.wire.a.acks)) ++answers;
  }
  w.wire.settle();
  w.read();
  while (Process::take(*w.wire.a.acks)) ++answers;
  EXPECT_EQ(w.under_way, 0);
  EXPECT_EQ(answers, accesses);
  if (!closed.empty()) {
    EXPECT_EQ(closed, w.memory) << "after its closing";
  }
}

TEST(MatchEvents, NothingChangesAfterTheLastOne) {
  for (unsigned seed = 1; seed <= 1000 && !::testing::Test::HasFailure(); ++seed) simulate(seed);
}

}  // namespace
}  // namespace weft::cxi
