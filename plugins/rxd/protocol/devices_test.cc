// SPDX-License-Identifier: BSD-2-Clause
// Memory of devices (FI_HMEM) in the protocol: how few copies there are, and what becomes of one
// that fails. Random runs with such memory are among those of network_seeds_test.cc.
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include "plugin-api/sdk/testing/test_time.h"
#include "plugins/rxd/protocol/simulation.h"
#include "plugins/rxd/protocol/test_device.h"

namespace weft::rxd {
namespace {

using sdk::kMillisecond, sdk::kSecond;

constexpr size_t kLength = 1'000'000;
constexpr size_t kSide = kLength / DeviceCopies::kPart + 2;  // copies

// Two endpoints with a device each.
struct Devices : public ::testing::Test {
  Devices() : world(5) {
    world.eagain = 0;
    Settings settings = patient();
    settings.hmem = &sender.hmem;
    a = &world.add(0, settings);
    settings.hmem = &target.hmem;
    b = &world.add(1, settings);
  }
  // The connection is there, and all before has ended.
  bool exchange(size_t length) {
    b->post(length, true);
    const size_t before = b->received.size();
    a->send(1, length, {});
    return world.run_until([&] { return world.all_ended() && b->received.size() > before; },
                           20 * kSecond);
  }
  bool ends() {
    return world.run_until([&] { return world.all_ended(); }, 20 * kSecond);
  }
  TestDevice sender, target;  // they outlive the world
  World world;
  Node *a = nullptr, *b = nullptr;
};

TEST_F(Devices, ThereAreFewCopies) {
  ASSERT_TRUE(exchange(kLength));
  EXPECT_LE(sender.copies, kSide + 1);  // from two vectors
  EXPECT_LE(target.copies, kSide);
  sender.copies = target.copies = 0;
  a->write(1, kLength, 0, true);
  ASSERT_TRUE(ends());
  EXPECT_LE(sender.copies, kSide);
  EXPECT_LE(target.copies, kSide + 1);  // to two vectors
  sender.copies = target.copies = 0;
  a->read(1, kLength, 0);
  ASSERT_TRUE(ends());
  EXPECT_LE(sender.copies, kSide);
  EXPECT_LE(target.copies, kSide);
  world.check(true);
}

// What is lost is copied once more where it is sent, and divides what is collected where it is
// missing.
TEST_F(Devices, ThereAreFewCopiesInBadWeather) {
  world.weather = {.loss = 10, .doubled = 10, .delay = 20'000};
  ASSERT_TRUE(exchange(kLength));
  const size_t datagrams = kLength / 1400;
  EXPECT_LE(sender.copies, kSide + datagrams / 20);
  EXPECT_LE(target.copies, kSide + datagrams / 20);
  world.check(true);
}

// More messages than there are parts.
TEST_F(Devices, ManyMessagesAtATime) {
  world.weather = {.loss = 5, .delay = 20'000, .jitter = 20'000};
  constexpr size_t kMany = 3 * DeviceCopies::kParts;
  for (size_t i = 0; i < kMany; ++i) b->post(100'000, true);
  for (size_t i = 0; i < kMany; ++i) a->send(1, 20'000 + i * 800, {.delivery = i % 3 == 0});
  EXPECT_TRUE(world.run_until([&] { return world.all_ended() && b->received.size() == kMany; },
                              60 * kSecond));
  world.check(true);
}

// The receive fails, and nothing else.
TEST_F(Devices, ACopyThatFailsAtTheReceiver) {
  ASSERT_TRUE(exchange(100));
  for (const bool starts : {false, true}) {
    const size_t broken = b->broken;
    b->post(kLength, true);
    target.starts_left = starts ? SIZE_MAX : 1;
    target.loses = starts;
    a->send(1, kLength, {});
    ASSERT_TRUE(
        world.run_until([&] { return world.all_ended() && b->broken > broken; }, 20 * kSecond));
    EXPECT_EQ(world.operations.back().err, 0);
    target.starts_left = SIZE_MAX;
    target.loses = false;
    EXPECT_TRUE(exchange(kLength));
  }
  EXPECT_EQ(b->warnings, 0U);
}

// If nothing has left, only this operation fails. In its middle the connection ends, which its
// receiver hears; later ones have a new one.
TEST_F(Devices, ACopyThatFailsAtTheSender) {
  ASSERT_TRUE(exchange(100));
  for (const size_t starts : {0, 1, 2}) {
    const size_t broken = b->broken, warnings = a->warnings;
    if (starts != 0) b->post(kLength, true);
    sender.starts_left = starts;
    a->send(1, kLength, {});
    ASSERT_TRUE(ends());
    EXPECT_EQ(world.operations.back().err, FI_EIO);
    sender.starts_left = SIZE_MAX;
    EXPECT_TRUE(
        world.run_until([&] { return b->broken == broken + (starts != 0 ? 1 : 0); }, kSecond));
    EXPECT_EQ(a->warnings, warnings + (starts != 0 ? 1 : 0));
    EXPECT_TRUE(exchange(kLength));
  }
}

// The error goes to who asked.
TEST_F(Devices, ACopyThatFailsAtATarget) {
  ASSERT_TRUE(exchange(100));
  for (const size_t starts : {0, 1, 2}) {
    target.starts_left = starts;
    a->read(1, kLength, 0);
    ASSERT_TRUE(ends());
    EXPECT_EQ(world.operations.back().err, FI_EIO);
    target.starts_left = starts;
    a->write(1, kLength, 0, true);
    ASSERT_TRUE(ends());
    EXPECT_EQ(world.operations.back().err, FI_EIO);
    target.starts_left = SIZE_MAX;
    target.loses = true;
    a->write(1, kLength, 0, true);
    ASSERT_TRUE(ends());
    EXPECT_EQ(world.operations.back().err, FI_EIO);
    target.loses = false;
    EXPECT_TRUE(exchange(kLength));
  }
  EXPECT_EQ(a->warnings + b->warnings, 0U);
}

TEST_F(Devices, ACopyOfAReadThatFails) {
  ASSERT_TRUE(exchange(100));
  for (const bool starts : {false, true}) {
    sender.starts_left = starts ? SIZE_MAX : 1;
    sender.loses = starts;
    a->read(1, kLength, 0);
    ASSERT_TRUE(ends());
    EXPECT_EQ(world.operations.back().err, FI_EIO);
    sender.starts_left = SIZE_MAX;
    sender.loses = false;
    EXPECT_TRUE(exchange(kLength));
  }
}

// At any time: what the application has back may be freed, so nothing is under way.
TEST_F(Devices, AnEndpointThatClosesInTheMiddle) {
  for (uint64_t time = 20'000; time < 400'000; time += 3'000) {
    Settings settings = patient();
    World other(time);
    settings.hmem = &sender.hmem;
    Node &from = other.add(0, settings);
    settings.hmem = &target.hmem;
    Node &to = other.add(1, settings);
    to.post(kLength, true);
    from.send(1, kLength, {});
    from.write(1, 300'000, 0, true);
    to.read(0, 300'000, 0);
    other.run(time);
    for (Node *node : {&to, &from}) {
      node->core().shut_down(FI_ECANCELED);
      EXPECT_EQ((node == &to ? target : sender).under_way(), 0U) << time;
    }
    for (Operation &o : other.operations) EXPECT_EQ(o.ended, 1) << time;
  }
}

}  // namespace
}  // namespace weft::rxd
