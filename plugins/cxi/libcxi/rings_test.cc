// SPDX-License-Identifier: BSD-2-Clause
// The rings by themselves: the test plays the NIC.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plugins/cxi/libcxi/command_ring.h"
#include "plugins/cxi/libcxi/event_bytes.h"

namespace weft::cxi {
namespace {

class Commands {
 public:
  explicit Commands(unsigned slots, CommandRing::Use use = CommandRing::Use::kTransmit)
      : memory(slots * CommandRing::kSlot, 0xee), ring(library, made(slots), use) {
    read(CommandRing::kFirst);
  }
  void read(unsigned slot) { put(memory.data(), QueueStatus::read, slot / 2); }
  const uint8_t *at(unsigned slot) const { return &memory[slot * CommandRing::kSlot]; }
  unsigned slot_of(const uint8_t *command) const {
    return unsigned(size_t(command - memory.data()) / CommandRing::kSlot);
  }

  Library library{LibraryFunctions{}};
  std::vector<uint8_t> memory;
  uint64_t doorbell = 0;
  CommandRing ring;

 private:
  abi::CommandQueue made(unsigned slots) {
    return {.size = slots / 2, .doorbell = &doorbell, .commands = memory.data(), .size32 = slots};
  }
};

TEST(CommandRing, SizesOfInlineCommands) {
  EXPECT_EQ(CommandRing::size_of(16), CommandSize::k32);
  EXPECT_EQ(CommandRing::size_of(32), CommandSize::k32);
  EXPECT_EQ(CommandRing::size_of(33), CommandSize::k64);
  EXPECT_EQ(CommandRing::size_of(64), CommandSize::k64);
  EXPECT_EQ(CommandRing::size_of(65), CommandSize::k128);
  EXPECT_EQ(CommandRing::size_of(128), CommandSize::k128);
  EXPECT_EQ(CommandRing::size_of(129), CommandSize::k256);
  EXPECT_EQ(CommandRing::size_of(240), CommandSize::k256);
}

TEST(CommandRing, EachCommandBeginsAtAMultipleOfItsSize) {
  for (const CommandSize first : {CommandSize::k32, CommandSize::k64, CommandSize::k128}) {
    for (const CommandSize size :
         {CommandSize::k32, CommandSize::k64, CommandSize::k128, CommandSize::k256}) {
      Commands commands(128);
      commands.ring.add(first);
      const unsigned slots = 1u << unsigned(size), slot = commands.slot_of(commands.ring.add(size));
      EXPECT_EQ(slot % slots, 0u);
      EXPECT_EQ(get(commands.at(slot), CommandHead::size), uint64_t(size));
      for (unsigned gap = CommandRing::kFirst + (1u << unsigned(first)); gap < slot; ++gap)
        EXPECT_EQ(get(commands.at(gap), Field{0, 64}), 0u) << "a command that does nothing";
    }
  }
}

TEST(CommandRing, AQueueOfTriggersHasGapsOf64Bytes) {
  Commands commands(128, CommandRing::Use::kTriggers);
  commands.ring.add(CommandSize::k64);
  EXPECT_EQ(commands.slot_of(commands.ring.add(CommandSize::k128)), CommandRing::kFirst + 4);
  const uint8_t *const gap = commands.at(CommandRing::kFirst + 2);
  EXPECT_EQ(get(gap, CommandHead::kind), uint64_t(CommandKind::kCounter));
  EXPECT_EQ(get(gap, CommandHead::size), uint64_t(CommandSize::k64));
  EXPECT_EQ(get(gap, CommandHead::op), uint64_t(CounterOp::kNone));
}

TEST(CommandRing, RingsForPlacesOf64Bytes) {
  Commands commands(128);
  commands.ring.ring();
  EXPECT_EQ(commands.doorbell, 0u) << "nothing new";
  commands.ring.add(CommandSize::k32);
  commands.ring.ring();
  EXPECT_EQ(commands.doorbell, CommandRing::kFirst / 2 + 1);
  EXPECT_FALSE(commands.ring.is_drained());
  commands.read(CommandRing::kFirst + 2);
  EXPECT_TRUE(commands.ring.is_drained());
}

TEST(CommandRing, IsFullBeforeItWouldLookEmptyAndBeginsAnew) {
  Commands commands(64);
  unsigned added = 0;
  while (commands.ring.has_room()) {
    commands.ring.add(CommandSize::k256);
    ++added;
  }
  EXPECT_EQ(added, (64 - CommandRing::kFirst - CommandRing::kMost) / 8u);
  commands.read(CommandRing::kFirst + 8 * added);
  ASSERT_TRUE(commands.ring.has_room());
  std::vector<unsigned> slots;
  for (int i = 0; i != 4; ++i)
    slots.push_back(commands.slot_of(commands.ring.add(CommandSize::k256)));
  EXPECT_TRUE(std::ranges::find(slots, CommandRing::kFirst) != slots.end()) << "behind the status";
  for (const unsigned slot : slots) EXPECT_GE(slot, CommandRing::kFirst);
}

// ---- events ----

class Events {
 public:
  explicit Events(size_t bytes) : memory(bytes), events(library, made()) {}
  // An acknowledgement, by the NIC.
  void write(uint64_t number) {
    uint8_t *const at = &memory[write_];
    put(at, InitiatorEvent::user_ptr, number);
    put(at, EventHead::type, 9);
    put(at, EventHead::size, uint64_t(EventSize::k16));
    put(at, InitiatorEvent::rc, 1);
    write_ += InitiatorEvent::kBytes;
    if (write_ == memory.size()) write_ = EventBytes::kBlock;
  }

  Library library{LibraryFunctions{}};
  std::vector<uint8_t> memory;
  uint64_t reader = 0;
  EventBytes events;

 private:
  abi::EventQueue &made() {
    queue_ = {.bytes = unsigned(memory.size()), .state_address = &reader, .events = memory.data()};
    return queue_;
  }
  abi::EventQueue queue_{};
  size_t write_ = EventBytes::kBlock;
};

TEST(EventBytes, ReadsWhatIsThereAndClearsIt) {
  Events nic(4096);
  EXPECT_EQ(nic.events.next(), nullptr);
  for (uint64_t i = 1; i <= 5; ++i) nic.write(i);
  for (uint64_t i = 1; i <= 5; ++i) {
    const uint8_t *const event = nic.events.next();
    ASSERT_NE(event, nullptr);
    EXPECT_EQ(get(event, InitiatorEvent::user_ptr), i);
  }
  EXPECT_EQ(nic.events.next(), nullptr);
  nic.events.acknowledge(nic.events.position());
  EXPECT_EQ(get(&nic.reader, EventReader::read), 2u) << "whole blocks";
  EXPECT_TRUE(std::ranges::all_of(nic.memory, [](uint8_t byte) { return byte == 0; }));
}

TEST(EventBytes, AnEventIsThereWithItsReturnCode) {
  Events nic(4096);
  uint8_t *const at = &nic.memory[EventBytes::kBlock];
  put(at, EventHead::size, uint64_t(EventSize::k64));
  EXPECT_EQ(nic.events.next(), nullptr);
  put(at, TargetEvent::rc, 1);
  EXPECT_EQ(nic.events.next(), at);
}

TEST(EventBytes, SkipsEventsThatSayNothing) {
  Events nic(4096);
  uint8_t *const at = &nic.memory[EventBytes::kBlock];
  nic.write(1);
  put(at + 16, EventHead::size, uint64_t(EventSize::k16));
  put(at + 16, EventHead::type, kNullEvent);
  put(at + 16, InitiatorEvent::rc, 1);
  put(at + 32, EventHead::size, uint64_t(EventSize::k32));
  put(at + 32, EventHead::type, kTimestampEvent);
  put(at + 32, LongInitiatorEvent::rc, 1);
  EXPECT_NE(nic.events.next(), nullptr);
  EXPECT_EQ(nic.events.next(), nullptr);
  EXPECT_EQ(nic.events.position(), 2 * EventBytes::kBlock);
}

TEST(EventBytes, GoesRound) {
  Events nic(4096);
  uint64_t written = 0, read = 0;
  for (int round = 0; round != 20; ++round) {
    for (int i = 0; i != 100; ++i) nic.write(++written);
    while (const uint8_t *const event = nic.events.next())
      ASSERT_EQ(get(event, InitiatorEvent::user_ptr), ++read);
    nic.events.acknowledge(nic.events.position());
    ASSERT_EQ(read, written);
  }
}

TEST(EventBytes, TellsOfItsFillLevelOnce) {
  Events nic(4096);
  EXPECT_FALSE(nic.events.take_crossing());
  put(nic.memory.data(), EventStatus::crossed, 1);
  put(nic.memory.data(), EventStatus::ns, 77);
  EXPECT_FALSE(nic.events.take_crossing()) << "it is being written";
  put(nic.memory.data(), EventStatus::ns_copy, 77);
  EXPECT_TRUE(nic.events.take_crossing());
  EXPECT_FALSE(nic.events.take_crossing());
  EXPECT_FALSE(nic.events.has_dropped());
  put(nic.memory.data(), EventStatus::dropped, 1);
  EXPECT_TRUE(nic.events.has_dropped());
}

TEST(EventBytes, InterruptsAreAskedFor) {
  Events nic(4096);
  nic.events.set_interrupt(true);
  EXPECT_EQ(get(&nic.reader, EventReader::interrupt_off), 0u);
  EXPECT_EQ(get(&nic.reader, EventReader::read), 1u);
  nic.events.set_interrupt(false);
  EXPECT_EQ(get(&nic.reader, EventReader::interrupt_off), 1u);
}

}  // namespace
}  // namespace weft::cxi
