// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/event_ring.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

namespace weft::cxi {
namespace {

Event numbered(uint64_t number) {
  return {.type = EventType::kAck, .user_ptr = number};
}

TEST(EventRing, EventsStayUntilTheyAreAcknowledged) {
  EventRing ring({.places = 4});
  EXPECT_EQ(ring.peek(0), nullptr);
  for (uint64_t i = 0; i < 3; ++i) ring.post(numbered(i));
  EXPECT_EQ(ring.peek(2)->user_ptr, 2u);
  EXPECT_EQ(ring.peek(3), nullptr);
  EXPECT_FALSE(ring.has_room(1));
  ring.ack(2);
  EXPECT_TRUE(ring.has_room(2));
  EXPECT_EQ(ring.peek(0)->user_ptr, 2u);
  for (uint64_t i = 3; i < 100; ++i) {
    ring.post(numbered(i));
    ring.ack(1);
    EXPECT_EQ(ring.peek(0)->user_ptr, i);
  }
  EXPECT_FALSE(ring.has_dropped());
}

TEST(EventRing, WithoutAPlaceAnEventIsLostAndToldOf) {
  EventRing ring({.places = 3});
  for (uint64_t i = 0; i < 3; ++i) ring.post(numbered(i));
  EXPECT_TRUE(ring.has_dropped());
  EXPECT_EQ(ring.peek(1)->user_ptr, 1u);
  EXPECT_EQ(ring.peek(2), nullptr);
}

TEST(EventRing, PeersLeaveTheReservedPlaces) {
  EventRing ring({.places = 5, .reserved = 2});
  ring.post(numbered(0));
  EXPECT_TRUE(ring.has_room(1));
  ring.post(numbered(1));
  EXPECT_FALSE(ring.has_room(1));
  EXPECT_FALSE(ring.reserve(2));
  ring.unreserve(2);
  EXPECT_TRUE(ring.has_room(2));
  EXPECT_TRUE(ring.reserve(3));
  EXPECT_FALSE(ring.has_room(1));
}

TEST(EventRing, SaysOnceThatItWasFull) {
  EventRing ring({.places = 11, .fill_percent = 50});
  for (uint64_t i = 0; i < 4; ++i) ring.post(numbered(i));
  EXPECT_FALSE(ring.take_saturation());
  ring.post(numbered(4));
  EXPECT_TRUE(ring.take_saturation());
  EXPECT_FALSE(ring.take_saturation());
}

TEST(EventRing, ArmingAndPostingMissNoEvent) {
  EventRing ring({.places = 2, .waits = true});
  ASSERT_GE(ring.wait_fd(), 0);
  constexpr uint64_t kCount = 2000;
  std::thread nic([&] {
    for (uint64_t i = 0; i < kCount; ++i) {
      while (!ring.has_room(1)) std::this_thread::yield();
      ring.post(numbered(i));
    }
  });
  for (uint64_t i = 0; i < kCount; ++i) {
    while (ring.peek(0) == nullptr && ring.arm()) {
      pollfd descriptor{ring.wait_fd(), POLLIN, 0};
      ASSERT_EQ(poll(&descriptor, 1, 20000), 1) << "an event came and woke nobody: " << i;
    }
    const Event *event = ring.peek(0);
    if (event == nullptr) {  // arm() says that there is one
      --i;
      continue;
    }
    ASSERT_EQ(event->user_ptr, i);
    ring.ack(1);
  }
  nic.join();
}

TEST(EventRing, WithoutADescriptorItCannotBeArmed) {
  EventRing ring({.places = 2});
  EXPECT_EQ(ring.wait_fd(), -1);
  EXPECT_FALSE(ring.arm());
}

}  // namespace
}  // namespace weft::cxi
