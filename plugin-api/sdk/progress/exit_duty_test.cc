// SPDX-License-Identifier: BSD-2-Clause
// What exit() does for objects that owe something. Each test exits in a child.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/sdk/progress/exit_duty.h>

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "plugin-api/sdk/testing/test_engine.h"

namespace weft::sdk {
namespace {

constexpr uint64_t kLongNs = 60'000 * kMs;

class OwingObject final : public ExitDuty {
 public:
  explicit OwingObject(Engine &engine, int rounds = 0, uint64_t most_ns = kLongNs)
      : ExitDuty(engine, most_ns), left(rounds) {}
  using ExitDuty::owe, ExitDuty::settle;
  bool owes(bool exits) override {
    left -= exits && left > 0;
    if (exits && left == 0 && channel >= 0) (void)!write(std::exchange(channel, -1), "x", 1);
    return left != 0;
  }

  int left;  // rounds of exit() until nothing waits; negative: for ever
  int channel = -1;
};

// What `act` writes to its channel until its process has exited.
std::string at_exit_of(const std::function<void(int channel)> &act) {
  int channel[2];
  EXPECT_EQ(pipe(channel), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    act(channel[1]);
    exit(0);
  }
  close(channel[1]);
  std::string text;
  char byte;
  while (read(channel[0], &byte, 1) == 1) text += byte;
  close(channel[0]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return text;
}

// They outlive main(), as what an application has not closed.
Engine &engine_of_exit(bool locked = true) {
  static auto *const all = new std::vector<Engine *>;
  return *all->emplace_back(new Engine(locked));
}
OwingObject &owing(int channel, Engine &engine, int rounds, uint64_t most_ns = kLongNs) {
  static auto *const all = new std::vector<OwingObject *>;
  auto &object = *all->emplace_back(new OwingObject(engine, rounds, most_ns));
  object.channel = channel;
  const Guard guard(engine.lock());
  object.owe();
  object.owe();
  return object;
}

TEST(ExitDuty, ExitGoesOnUntilNothingIsOwed) {
  EXPECT_EQ(at_exit_of([](int channel) {
              owing(channel, engine_of_exit(), 1);
              owing(channel, engine_of_exit(), 5);
              owing(channel, engine_of_exit(/*locked=*/false), 3);
            }),
            "xxx");
}

TEST(ExitDuty, WhatIsOwedForEverIsWaitedForSoLong) {
  EXPECT_EQ(at_exit_of([](int channel) {
              owing(channel, engine_of_exit(), -1, 20 * kMs);
              owing(channel, engine_of_exit(), 2);
            }),
            "x");
}

TEST(ExitDuty, WhatWasSettledIsForgotten) {
  EXPECT_EQ(at_exit_of([](int channel) {
              Engine &engine = engine_of_exit();
              OwingObject &object = owing(channel, engine, -1);
              const Guard guard(engine.lock());
              object.settle();
              OwingObject gone(engine, -1);
              gone.owe();
            }),
            "");
}

// What the parent owes the parent does.
TEST(ExitDuty, AChildDoesNothingForItsParent) {
  Engine engine(true);
  OwingObject object(engine, -1);
  const Guard guard(engine.lock());
  object.owe();
  EXPECT_EQ(at_exit_of([&](int channel) { object.channel = channel; }), "");
  object.settle();
}

// A layer above gives something to an engine whose turn is over.
TEST(ExitDuty, WhatIsOwedDuringExitIsSeenToAsWell) {
  EXPECT_EQ(at_exit_of([](int channel) {
              static int its_channel;
              its_channel = channel;
              std::atexit([] { owing(its_channel, engine_of_exit(), 3); });
              owing(channel, engine_of_exit(), 1);  // exit() sees to it first
            }),
            "xx");
}

// An engine that serves one thread has a lock while exit() may have something to do, and no longer.
TEST(ExitDuty, AnEngineWithoutALockLendsOne) {
  Engine engine(false);
  OwingObject object(engine, 1);
  {
    const Guard guard(engine.lock());
    object.owe();
  }
  EXPECT_TRUE(engine.lock().needed());
  const auto pass = [&] {
    for (int i = 0; i < 5000; ++i) {
      const Guard guard(engine.lock());
      engine.progress();
    }
  };
  pass();
  EXPECT_TRUE(engine.lock().needed());
  std::thread other([&] {
    EXPECT_TRUE(engine.lock().try_lock_if_needed());
    engine.lock().unlock();
  });
  other.join();
  object.left = 0;
  pass();
  EXPECT_FALSE(engine.lock().needed());
  EXPECT_FALSE(engine.lock().try_lock_if_needed());
}

}  // namespace
}  // namespace weft::sdk
