// SPDX-License-Identifier: BSD-2-Clause
// Two engines, and a stream between them that is cut anywhere.
#include "plugins/cxi/soft/peer_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "plugins/cxi/soft/test_wire.h"

namespace weft::cxi {
namespace {

std::vector<uint8_t> content(size_t length, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(length);
  for (uint8_t &byte : bytes) byte = uint8_t(random());
  return bytes;
}

Event only(EventQueue &queue) {
  const auto event = Process::take(queue);
  EXPECT_TRUE(event.has_value());
  return event.value_or(Event{});
}

TEST(PeerStream, MessagesOfEachLengthArriveInAnyPieces) {
  for (const size_t piece : {1, 7, 128, 5000, 1 << 20}) {
    Wire wire;
    unsigned seed = 0;
    for (const size_t length : {0, 1, 4095, 4096, 4097, 100'000}) {
      if (piece == 1 && length > 5000) continue;
      const std::vector<uint8_t> out = content(length, ++seed);
      std::vector<uint8_t> in(length + 1);
      wire.b.inbox->append(List::kPriority, wire.b.entry_for(receive(1), in));
      wire.a.start(wire.a.transfer(Op::kPut, out, 2, 0));
      wire.settle(piece);
      EXPECT_EQ(only(*wire.a.acks).rc, Rc::kOk);
      EXPECT_EQ(only(*wire.b.events).mlength, length);
      EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin())) << length;
    }
  }
}

TEST(PeerStream, AnEarlyLongMessageWaitsInAnOverflowBuffer) {
  Wire wire;
  std::vector<uint8_t> saved(200'000), in(100'000);
  const std::vector<uint8_t> out = content(100'000, 1);
  wire.b.inbox->append(List::kOverflow, wire.b.entry_for(overflow(9, 8), saved));
  wire.a.start(wire.a.transfer(Op::kPut, out, 2, 0));
  wire.settle();
  EXPECT_EQ(only(*wire.b.events).list, List::kOverflow);
  wire.b.inbox->append(List::kPriority, wire.b.entry_for(receive(1), in));
  const Event event = only(*wire.b.events);
  EXPECT_EQ(event.type, EventType::kPutOverflow);
  EXPECT_TRUE(std::equal(out.begin(), out.end(), reinterpret_cast<uint8_t *>(event.start)));
}

TEST(PeerStream, TheRestOfARendezvousIsReadOverIt) {
  Wire wire;
  const std::vector<uint8_t> out = content(300'000, 1);
  std::vector<uint8_t> memory = out, in(300'000);
  Entry entry = wire.a.entry_for(region(50, 33), memory);
  entry.ignore_bits = ~uint64_t{0xff};
  wire.a.source->append(List::kPriority, entry);
  wire.b.inbox->append(List::kPriority, wire.b.entry_for(receive(1), in));
  Transfer message = wire.a.transfer(Op::kRendezvousPut, memory, 2, 0);
  message.eager_length = 2000;
  message.rendezvous_id = 33;
  wire.a.start(message);
  // The source hears of the Get when its bytes have left, and may then change them.
  bool is_read = false;
  while (wire.carry(1000)) {
    while (const auto event = Process::take(*wire.a.events)) {
      is_read = true;
      EXPECT_EQ(event->type, EventType::kGet);
      std::fill(memory.begin(), memory.end(), uint8_t{0});
    }
  }
  EXPECT_TRUE(is_read);
  EXPECT_EQ(in, out);
}

TEST(PeerStream, AtomicsBringTheOldValue) {
  Wire wire;
  std::vector<uint8_t> words(16), operand(8), old(8);
  operand[0] = 5;
  words[0] = 37;
  wire.b.inbox->append(List::kPriority, wire.b.entry_for(region(1, 0), words));
  Transfer add = wire.a.transfer(Op::kFetchAtomic, operand, 2, 0);
  add.result_memory = wire.a.everything;
  add.result = reinterpret_cast<uintptr_t>(old.data());
  wire.a.start(add);
  wire.settle();
  EXPECT_EQ(only(*wire.a.acks).type, EventType::kReply);
  EXPECT_EQ(words[0], 42);
  EXPECT_EQ(old[0], 37);
}

TEST(PeerStream, MemoryThatGoesMeanwhileFailsTheOperation) {
  Wire wire;
  const std::vector<uint8_t> out = content(100'000, 1);
  std::vector<uint8_t> in(100'000);
  wire.b.inbox->append(List::kPriority, wire.b.entry_for(receive(1), in));
  Transfer put = wire.a.transfer(Op::kPut, out, 2, 0);
  put.memory = must(wire.a.lni->map(put.local, put.length, Lni::kRead));
  wire.a.start(put);
  wire.carry(10'000);
  wire.a.lni->unmap(put.memory);
  wire.settle();
  EXPECT_EQ(only(*wire.a.acks).rc, Rc::kMstCancelled);
  EXPECT_EQ(only(*wire.b.events).rc, Rc::kMstCancelled);
}

TEST(PeerStream, AnEntryThatIsInvalidatedIsNotReadAnyMore) {
  Wire wire;
  std::vector<uint8_t> there = content(100'000, 1), got(100'000);
  wire.b.inbox->append(List::kPriority, wire.b.entry_for(region(7, 0), there));
  wire.a.start(wire.a.transfer(Op::kGet, got, 2, 0));
  for (int i = 0; i < 10; ++i) wire.carry(1000);
  wire.b.inbox->invalidate(List::kPriority, 7);
  std::fill(there.begin(), there.end(), uint8_t{0});
  wire.settle();
  EXPECT_EQ(only(*wire.a.acks).rc, Rc::kMstCancelled);
}

// One of them ends in the midst of a read by the same peer: the bytes are there as long as another
// lends them.
TEST(PeerStream, BytesThatTwoMessagesLendAreReadThoughOneEnds) {
  for (const size_t ends : {0, 1, 2}) {
    SCOPED_TRACE(ends);
    Wire wire;
    std::vector<uint8_t> there = content(100'000, 1), got(100'000);
    const auto start = reinterpret_cast<uintptr_t>(there.data());
    std::vector<Memory> lent;
    for (int i = 0; i < 2; ++i) {
      lent.push_back(must(wire.b.lni->map(start, there.size(), Lni::kRead | Lni::kRemote)));
      wire.b.lni->lend(lent.back(), key_of(1, kVni, 1));
    }
    Entry entry = wire.b.entry_for(region(7, 0), there);
    entry.memory = {.number = Memory::kLent, .lac = lent[0].lac};
    wire.b.inbox->append(List::kPriority, entry);
    wire.a.start(wire.a.transfer(Op::kGet, got, 2, 0));
    for (int i = 0; i < 10; ++i) wire.carry(1000);
    for (size_t i = 0; i < 2; ++i)
      if (ends == 2 || ends == i) wire.b.lni->unmap(lent[i]);
    wire.settle();
    EXPECT_EQ(only(*wire.a.acks).rc, ends == 2 ? Rc::kMstCancelled : Rc::kOk);
    EXPECT_EQ(got == there, ends != 2);
  }
}

TEST(PeerStream, TheEndFailsWhatIsUnderWay) {
  Wire wire;
  const std::vector<uint8_t> out = content(100'000, 1);
  std::vector<uint8_t> in(100'000);
  wire.b.inbox->append(List::kPriority, wire.b.entry_for(receive(1), in));
  for (int i = 0; i < 3; ++i) wire.a.start(wire.a.transfer(Op::kPut, out, 2, 0));
  wire.carry(10'000);
  wire.a.stream->end();
  wire.b.stream->end();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(only(*wire.a.acks).rc, Rc::kUndeliverable);
  EXPECT_EQ(only(*wire.b.events).rc, Rc::kMstCancelled);
}

// What others have under way goes on.
TEST(PeerStream, AnAnswerToAQueueThatIsClosedEndsNothing) {
  Wire wire;
  std::vector<uint8_t> there = content(10'000, 1), got(10'000);
  wire.b.inbox->append(List::kPriority, wire.b.entry_for(region(1, 0), there));
  wire.a.start(wire.a.transfer(Op::kGet, got, 2, 0));
  std::vector<uint8_t> bytes(1000);
  bytes.resize(wire.a.stream->output(bytes));
  ASSERT_EQ(wire.b.stream->on_bytes(bytes), std::nullopt);
  wire.a.queue = must(wire.a.lni->transmit_queue(64, {.vni = kVni}));
  wire.a.start(wire.a.transfer(Op::kGet, got, 2, 0));  // in the place of the first one
  wire.settle();
  EXPECT_EQ(only(*wire.a.acks).rc, Rc::kOk);
  EXPECT_FALSE(Process::take(*wire.a.acks));
  EXPECT_EQ(got, there);
}

// The same, when a part of the answer is here already.
TEST(PeerStream, AnAnswerThatIsHalfHereEndsNothingEither) {
  Wire wire;
  std::vector<uint8_t> there = content(100'000, 1), got(100'000);
  wire.b.inbox->append(List::kPriority, wire.b.entry_for(region(1, 0), there));
  wire.a.start(wire.a.transfer(Op::kGet, got, 2, 0));
  for (int i = 0; i < 10; ++i) wire.carry(1000);
  wire.a.queue = must(wire.a.lni->transmit_queue(64, {.vni = kVni}));
  std::vector<uint8_t> next(100'000);
  wire.a.start(wire.a.transfer(Op::kGet, next, 2, 0));  // in the place of the first one
  wire.settle();
  EXPECT_EQ(only(*wire.a.acks).rc, Rc::kOk);
  EXPECT_FALSE(Process::take(*wire.a.acks));
  EXPECT_EQ(next, there);
}

// Two streams to one process become one. A question of the first was given up, and another one has
// its place, in the second.
TEST(PeerStream, AStreamThatIsHandedOverTakesNoPlace) {
  Wire wire;
  PeerStream early(wire.a.engine);
  std::vector<uint8_t> there = content(10'000, 1), got(10'000), next(10'000);
  wire.b.inbox->append(List::kPriority, wire.b.entry_for(region(1, 0), there));
  wire.a.outside.stream = &early;
  wire.a.start(wire.a.transfer(Op::kGet, got, 2, 0));
  wire.a.queue = must(wire.a.lni->transmit_queue(64, {.vni = kVni}));
  wire.a.outside.stream = wire.a.stream.get();
  wire.a.start(wire.a.transfer(Op::kGet, next, 2, 0));
  {
    const EngineGuard guard(wire.a.engine.lock);
    early.hand_over(*wire.a.stream);
  }
  wire.settle();
  EXPECT_EQ(only(*wire.a.acks).rc, Rc::kOk);
  EXPECT_FALSE(Process::take(*wire.a.acks));
  EXPECT_EQ(next, there);
}

TEST(PeerStream, AnAnswerToWhatWasNotAskedEndsIt) {
  Wire wire;
  std::array<uint8_t, kHeadSize> head;
  write_head(Reply{.token = 1}, false, head);
  EXPECT_EQ(wire.b.stream->on_bytes(head), Refusal::kAnswer);
  head.fill(0xee);
  EXPECT_EQ(wire.a.stream->on_bytes(head), Refusal::kVersion);
}

// Each has two streams: on one it asks, and on the other it is asked.
TEST(PeerStream, AnAnswerMayGoAlongWithQuestions) {
  Wire wire;
  PeerStream asked(wire.a.engine), asks(wire.b.engine);
  const std::vector<uint8_t> out = content(100, 1);
  std::vector<uint8_t> in(100);
  wire.b.inbox->append(List::kPriority, wire.b.entry_for(region(1, 0), in));
  const auto put = [&] {
    wire.a.start(wire.a.transfer(Op::kPut, out, 2, 0));
    std::vector<uint8_t> bytes(1000);
    bytes.resize(wire.a.stream->output(bytes));
    ASSERT_EQ(wire.b.stream->on_bytes(bytes), std::nullopt);
  };
  for (int i = 0; i < 3; ++i) put();
  EXPECT_TRUE(wire.b.stream->has_only_acks());
  EXPECT_TRUE(wire.b.stream->move_acks(asks));
  EXPECT_FALSE(wire.b.stream->has_only_acks());
  std::vector<uint8_t> bytes(1000);
  EXPECT_EQ(wire.b.stream->output(bytes), 0u);
  bytes.resize(asks.output(bytes));
  EXPECT_EQ(bytes.size(), 3 * kHeadSize);
  asked.set_partner(wire.a.stream.get());
  ASSERT_EQ(asked.on_bytes(bytes), std::nullopt);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(only(*wire.a.acks).rc, Rc::kOk);
  EXPECT_EQ(asked.on_bytes(bytes), std::nullopt) << "answered already, which harms nobody";
  EXPECT_FALSE(Process::take(*wire.a.acks));
  asked.set_partner(nullptr);
  EXPECT_EQ(asked.on_bytes(bytes), Refusal::kAnswer);
  // What is no success stays: who asks has to find out where the other one is now.
  wire.b.inbox->set_state(PortalState::kDisabled, kIgnoreDrops);
  put();
  EXPECT_FALSE(wire.b.stream->has_only_acks());
  wire.settle();
  EXPECT_EQ(only(*wire.a.acks).rc, Rc::kPtDisabled);
}

TEST(PeerStream, APeerThatReadsNoAnswersIsNotHeard) {
  Wire wire;
  std::vector<uint8_t> there(4000);
  wire.b.inbox->append(List::kPriority, wire.b.entry_for(region(7, 0), there));
  Packet get{.op = Op::kGet,
             .vni = kVni,
             .source = 1,
             .to = {2, 2, 0},
             .initiator = match_id(1, 1),
             .length = 4000};
  std::array<uint8_t, kHeadSize> head;
  write_head(get, head);
  int asked = 0;
  for (; wire.b.stream->wants_input(); ++asked) {
    ASSERT_EQ(wire.b.stream->on_bytes(head), std::nullopt);
    while (Process::take(*wire.b.events)) {
    }
    ASSERT_LT(asked, 1000) << "its memory grows";
  }
  std::vector<uint8_t> answers(2 << 20);
  EXPECT_GT(wire.b.stream->output(answers), PeerStream::kMaxReplies);
  EXPECT_TRUE(wire.b.stream->wants_input());
}

// Random operations both ways, pieces of random lengths: each is right, and answered once.
TEST(PeerStream, AnyOperationsInAnyPieces) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Wire wire;
    std::vector<uint8_t> memories[2] = {content(50'000, 1), content(50'000, 2)};
    Side *const sides[] = {&wire.a, &wire.b};
    for (int i = 0; i < 2; ++i)
      sides[i]->inbox->append(List::kPriority, sides[i]->entry_for(region(1, 0), memories[i]));
    std::deque<std::vector<uint8_t>> buffers;
    size_t asked[2] = {}, answered[2] = {};
    for (int step = 0; step < 200; ++step) {
      const int i = random() % 2;
      const Op op = random() % 2 ? Op::kPut : Op::kGet;
      const uint32_t offset = random() % 40'000, length = random() % (random() % 2 ? 100 : 10'000);
      buffers.push_back(content(length, step));
      Transfer t = sides[i]->transfer(op, buffers.back(), Nid(2 - i), 0);
      t.remote_offset = offset;
      if (sides[i]->queue->post(t) == 0) ++asked[i];
      sides[i]->queue->flush();
      if (random() % 2) wire.carry(1 + random() % 3000);
      for (int k = 0; k < 2; ++k) {
        while (Process::take(*sides[k]->events)) {
        }
        while (const auto event = Process::take(*sides[k]->acks)) {
          EXPECT_EQ(event->rc, Rc::kOk);
          ++answered[k];
        }
      }
    }
    wire.settle(777);
    for (int k = 0; k < 2; ++k) {
      while (Process::take(*sides[k]->acks)) ++answered[k];
      EXPECT_EQ(answered[k], asked[k]) << seed;
      EXPECT_FALSE(sides[k]->events->has_dropped());
    }
    // What was put there last can be read.
    const std::vector<uint8_t> last = content(30'000, 99);
    std::vector<uint8_t> got(30'000);
    wire.a.start(wire.a.transfer(Op::kPut, last, 2, 0));
    wire.a.start(wire.a.transfer(Op::kGet, got, 2, 0));
    wire.settle(777);
    EXPECT_EQ(got, last);
  }
}

}  // namespace
}  // namespace weft::cxi
