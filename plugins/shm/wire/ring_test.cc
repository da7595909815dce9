// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/shm/wire/ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace weft::shm {
namespace {

constexpr Geometry kSmall{.lines = Geometry::kLeastLines, .bytes = Geometry::kLeastBytes};

// The memory of two ends, and the ends of direction 0.
struct Ring {
  Ring() : memory(static_cast<uint8_t *>(std::aligned_alloc(kLine, kSmall.size())), &std::free) {
    std::memset(memory.get(), 0, kSmall.size());
  }
  const std::unique_ptr<uint8_t, void (*)(void *)> memory;
  const Direction direction = direction_of(memory.get(), kSmall, 0);
  Producer out{direction, kSmall};
  Consumer in{direction, kSmall};
};

// What record `n` has, of which both ends know everything.
struct Wanted {
  explicit Wanted(uint32_t n) : random(n) {
    content.resize(random() % (kMostContent + 1));
    payload.resize(random() % 3 == 0 ? random() % (kSmall.most_payload() + 1) : 0);
    for (uint8_t &byte : content) byte = uint8_t(random());
    for (uint8_t &byte : payload) byte = uint8_t(random());
    head = {.type = uint8_t(random()),
            .flags = uint8_t(random()),
            .size = uint16_t(content.size()),
            .tag = random() * UINT64_C(0x9e3779b97f4a7c15)};
  }
  std::mt19937 random;
  Head head;
  std::vector<uint8_t> content, payload;
};

bool put(Producer &out, const Wanted &wanted) {
  if (!out.has_room(lines_of(wanted.content.size()), wanted.payload.size())) return false;
  const size_t half = wanted.payload.size() / 2;
  out.put_bytes(wanted.payload.data(), half);
  out.put_bytes(wanted.payload.data() + half, wanted.payload.size() - half);
  out.put(wanted.head, wanted.content.data());
  return true;
}

bool take(Consumer &in, const Wanted &wanted) {
  Head head;
  if (!in.peek(head)) return false;
  EXPECT_EQ(head.type, wanted.head.type);
  EXPECT_EQ(head.flags, wanted.head.flags);
  EXPECT_EQ(head.size, wanted.head.size);
  EXPECT_EQ(head.tag, wanted.head.tag);
  uint8_t content[kMostContent];
  in.read(wanted.content.size(), content);
  EXPECT_TRUE(std::equal(wanted.content.begin(), wanted.content.end(), content));
  std::vector<uint8_t> payload;
  in.visit_bytes(0, wanted.payload.size(),
                 [&](const uint8_t *at, size_t n) { payload.insert(payload.end(), at, at + n); });
  EXPECT_EQ(payload, wanted.payload);
  in.take(lines_of(wanted.content.size()), wanted.payload.size());
  return true;
}

TEST(ShmRing, IsEmptyAtFirst) {
  Ring ring;
  Head head;
  EXPECT_FALSE(ring.in.peek(head));
  EXPECT_TRUE(ring.in.is_empty());
  EXPECT_TRUE(ring.out.drained());
}

TEST(ShmRing, RecordsOfAllSizesComeInOrderThroughManyLaps) {
  Ring ring;
  for (uint32_t n = 0; n < 5'000; ++n) {
    const Wanted wanted(n);
    ASSERT_TRUE(put(ring.out, wanted)) << n;
    ASSERT_TRUE(take(ring.in, wanted)) << n;
    ASSERT_FALSE(HasFailure()) << n;
  }
}

// The other end has taken everything, and said so late. There is room for a record all the same.
TEST(ShmRing, AConsumerThatTellsLateLeavesRoomForTheLargestRecord) {
  Ring ring;
  std::vector<uint8_t> content(kMostContent), payload(kSmall.most_payload());
  for (int n = 0; n < 1000; ++n) {
    ASSERT_TRUE(ring.out.has_room(lines_of(content.size()), payload.size())) << n;
    ring.out.put_bytes(payload.data(), payload.size());
    ring.out.put({.type = 1, .size = uint16_t(content.size())}, content.data());
    ring.in.take(lines_of(content.size()), payload.size());
  }
}

TEST(ShmRing, AFullRingTakesMoreWhenSomethingWasTaken) {
  Ring ring;
  uint32_t put_count = 0, taken = 0;
  while (put(ring.out, Wanted(put_count))) ++put_count;
  ASSERT_GT(put_count, 4u);
  while (!put(ring.out, Wanted(put_count))) {
    ASSERT_TRUE(take(ring.in, Wanted(taken)));
    ++taken;
  }
  ++put_count;
  while (taken < put_count) ASSERT_TRUE(take(ring.in, Wanted(taken++)));
}

TEST(ShmRing, TwoThreads) {
  Ring ring;
  constexpr uint32_t kRecords = 5'000;
  std::thread producer([&] {
    for (uint32_t n = 0; n < kRecords; ++n) {
      const Wanted wanted(n);
      while (!put(ring.out, wanted)) std::this_thread::yield();
    }
  });
  for (uint32_t n = 0; n < kRecords; ++n) {
    const Wanted wanted(n);
    while (!take(ring.in, wanted)) std::this_thread::yield();
    if (HasFailure()) break;
  }
  if (HasFailure()) {  // let it go on to its end
    for (Head head;; std::this_thread::yield()) {
      if (ring.in.peek(head)) ring.in.take(lines_of(head.size), 0);
      ring.in.tell();
      if (ring.out.broken()) break;
    }
  }
  producer.join();
}

// A thread that sleeps is woken by the first record after it has looked, whenever that comes.
TEST(ShmRing, AConsumerThatSleepsIsWokenOnce) {
  Ring ring;
  EXPECT_FALSE(ring.out.must_wake()) << "nobody sleeps";
  ring.in.sleep();
  EXPECT_TRUE(ring.in.is_empty());
  ASSERT_TRUE(put(ring.out, Wanted(1)));
  EXPECT_TRUE(ring.out.must_wake());
  ASSERT_TRUE(put(ring.out, Wanted(2)));
  EXPECT_FALSE(ring.out.must_wake()) << "it was woken already";
  ring.in.sleep();
  EXPECT_FALSE(ring.in.is_empty());
  EXPECT_TRUE(ring.out.must_wake());
}

TEST(ShmRing, AConsumerThatSleepsMissesNoRecord) {
  Ring ring;
  constexpr uint32_t kRecords = 1'000;
  std::atomic<uint32_t> wakes{0};
  std::thread producer([&] {
    for (uint32_t n = 0; n < kRecords; ++n) {
      const Wanted wanted(n);
      while (!put(ring.out, wanted)) std::this_thread::yield();
      if (!ring.out.must_wake()) continue;
      wakes.fetch_add(1);
      wakes.notify_one();
    }
  });
  for (uint32_t n = 0; n < kRecords; ++n) {
    const Wanted wanted(n);
    for (;;) {
      const uint32_t seen = wakes.load();
      ring.in.sleep();
      if (!ring.in.is_empty()) break;
      ring.in.tell();
      wakes.wait(seen);  // for ever, if a wake is missed
    }
    ASSERT_TRUE(take(ring.in, wanted));
  }
  producer.join();
}

// The consumer's counts are the other end's word.
TEST(ShmRing, CountsThatCannotBeEndTheProducersTrust) {
  for (const bool lines : {false, true}) {
    for (const uint64_t lie : {UINT64_C(1) << 40, UINT64_MAX, UINT64_C(200'000)}) {
      Ring ring;
      while (put(ring.out, Wanted(7))) {
      }
      (lines ? ring.direction.control->lines_taken : ring.direction.control->bytes_taken)
          .store(lie);
      EXPECT_FALSE(ring.out.has_room(1, kSmall.most_payload()));
      EXPECT_FALSE(ring.out.has_room(kSmall.lines, kSmall.bytes));
      EXPECT_TRUE(ring.out.broken());
      EXPECT_FALSE(ring.out.has_room(1, 0)) << "never again";
    }
  }
}

// What was in a line before, and what an application sends, is never taken for a head.
TEST(ShmRing, ContentIsNoHead) {
  Ring ring;
  for (uint64_t lap = 0; lap < 4; ++lap) {
    uint64_t content[kMostContent / 8];
    for (uint64_t &word : content) word = (lap + 1) | UINT64_C(1) << 31 | UINT64_C(8) << 48;
    for (size_t n = 0; n < kSmall.lines / lines_of(sizeof content); ++n) {
      ASSERT_TRUE(ring.out.has_room(lines_of(sizeof content), 0));
      ring.out.put({.type = 1, .size = sizeof content}, content);
      ring.in.take(lines_of(sizeof content), 0);
      Head head;
      ASSERT_FALSE(ring.in.peek(head));
    }
    ring.in.tell();
  }
}

}  // namespace
}  // namespace weft::shm
