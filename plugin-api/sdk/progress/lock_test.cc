// SPDX-License-Identifier: BSD-2-Clause
#include <gtest/gtest.h>
#include <weft/sdk/progress/lock.h>

#include <thread>
#include <vector>

namespace weft::sdk {
namespace {

// More threads than processors, so that some wait and some lose the processor with the lock held.
TEST(Lock, OneThreadAtATimeAndNoneIsForgotten) {
  constexpr int kThreads = 8, kRounds = 20000;
  Lock lock;
  int value = 0, inside = 0, overlaps = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        Guard guard(lock);
        overlaps += inside++ != 0;
        ++value;
        if (round % 1000 == 0) std::this_thread::yield();
        --inside;
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(value, kThreads * kRounds);
  EXPECT_EQ(overlaps, 0);
}

TEST(Lock, ATryFailsWhileAnotherThreadHoldsIt) {
  Lock lock;
  lock.lock();
  std::thread([&] { EXPECT_FALSE(lock.try_lock()); }).join();
  lock.unlock();
  std::thread([&] {
    EXPECT_TRUE(lock.try_lock());
    lock.unlock();
  }).join();
}

TEST(Lock, OneThatIsNotNeededIsAlwaysFree) {
  Lock lock(/*needed=*/false);
  EXPECT_FALSE(lock.needed());
  Guard guard(lock);
  EXPECT_TRUE(lock.try_lock());
}

TEST(Lock, OneIsNeededForATimeOnly) {
  Lock lock(/*needed=*/false);
  EXPECT_FALSE(lock.try_lock_if_needed());
  {
    const Guard guard(lock);
    lock.need();
    std::thread([&] { EXPECT_FALSE(lock.try_lock_if_needed()); }).join();
  }
  std::thread([&] {
    EXPECT_TRUE(lock.try_lock_if_needed());
    lock.unlock();
  }).join();
  {
    const Guard guard(lock);
    lock.spare();
  }
  EXPECT_FALSE(lock.needed());
  EXPECT_FALSE(lock.try_lock_if_needed());
  const Guard guard(lock);
  lock.need();
}

TEST(Lock, CountsThreadsThatHadToWait) {
  struct Counters : CounterSet {
    Counter waits{*this, "waits", "times when a thread waited"};
  } counters;
  Lock lock;
  lock.count_waits(counters.waits);
  for (int i = 0; i < 3; ++i) Guard guard(lock);
  EXPECT_EQ(counters.waits.value(), 0u);
  lock.lock();
  std::thread waits([&] { Guard guard(lock); });
  while (counters.waits.value() == 0) std::this_thread::yield();
  lock.unlock();
  waits.join();
  EXPECT_EQ(counters.waits.value(), 1u);
}

}  // namespace
}  // namespace weft::sdk
