// SPDX-License-Identifier: BSD-2-Clause
// Orders that the hardware may choose, from seeds, and a thread of its own.
#include <atomic>
#include <memory>
#include <random>
#include <set>

#include "plugins/verbs/double/test_pair.h"

namespace weft::verbs_double {
namespace {

constexpr uint64_t kSeeds = 40;

TEST(DoubleOrder, NothingHappensWithoutAStep) {
  Surroundings surroundings({.progress = Progress::kByStep});
  Pair pair(surroundings);
  surroundings.network.run();
  ASSERT_EQ(pair.active.post(pair.active.access(IBV_WR_RDMA_WRITE, 1, 0, 8, pair.passive, 0)), 0);
  EXPECT_TRUE(pair.active.is_empty());
  EXPECT_TRUE(surroundings.network.step());
  surroundings.network.run();
  EXPECT_EQ(pair.active.completion().status, IBV_WC_SUCCESS);
  EXPECT_FALSE(surroundings.network.step());
}

TEST(DoubleOrder, MessagesOfAQueuePairKeepTheirOrder) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Surroundings surroundings({.progress = Progress::kByStep, .seed = seed});
    Pair pair(surroundings);
    for (uint64_t i = 0; i < 8; ++i) {
      ASSERT_EQ(pair.passive.post_receive(i, 64 * i, 64), 0);
      pair.active.memory[i] = i;
      ASSERT_EQ(pair.active.post(pair.active.send(i, 8 * i, 8)), 0);
    }
    for (uint64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(pair.passive.completion().wr_id, i);
      EXPECT_EQ(pair.passive.memory[8 * i], i);
    }
    for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(pair.active.completion().wr_id, i);
  }
}

TEST(DoubleOrder, EndsSeeTheirCompletionsInAnyOrder) {
  std::set<bool> sender_first;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Surroundings surroundings({.progress = Progress::kByStep, .seed = seed});
    Pair pair(surroundings);
    ASSERT_EQ(pair.passive.post_receive(1, 0, 16), 0);
    ASSERT_EQ(pair.active.post(pair.active.send(2, 0, 4)), 0);
    ibv_wc wc;
    int sent = 0;
    int received = 0;
    ASSERT_TRUE(surroundings.wait([&] {
      sent += ibv_poll_cq(pair.active.cq, 1, &wc);
      received += ibv_poll_cq(pair.passive.cq, 1, &wc);
      return sent + received > 0;
    }));
    sender_first.insert(sent > received);
  }
  EXPECT_EQ(sender_first.size(), 2U);
}

TEST(DoubleOrder, SendMayPassAReadUnlessItIsFenced) {
  std::set<uint64_t> unfenced;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const bool fenced : {false, true}) {
      Surroundings surroundings({.progress = Progress::kByStep, .seed = seed});
      Pair pair(surroundings);
      pair.passive.memory[0] = 1;
      pair.active.memory[1] = 2;
      ASSERT_EQ(pair.active.post(pair.active.access(IBV_WR_RDMA_READ, 1, 0, 8, pair.passive, 0)),
                0);
      ibv_send_wr write = pair.active.access(IBV_WR_RDMA_WRITE, 2, 8, 8, pair.passive, 0);
      if (fenced) write.send_flags |= IBV_SEND_FENCE;
      ASSERT_EQ(pair.active.post(write), 0);
      EXPECT_EQ(pair.active.completion().wr_id, 1U) << "completions keep their order";
      EXPECT_EQ(pair.active.completion().wr_id, 2U);
      if (fenced) {
        EXPECT_EQ(pair.active.memory[0], 1U) << "seed " << seed;
      } else {
        unfenced.insert(pair.active.memory[0]);
      }
    }
  }
  EXPECT_EQ(unfenced, (std::set<uint64_t>{1, 2}));
}

TEST(DoubleOrder, SameSeedIsTheSameOrder) {
  const auto trace = [](uint64_t seed) {
    Surroundings surroundings({.progress = Progress::kByStep, .seed = seed});
    Pair first(surroundings);
    Pair second(surroundings);
    std::string order;
    for (uint64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(first.passive.post_receive(i, 0, 16), 0);
      EXPECT_EQ(second.passive.post_receive(i, 0, 16), 0);
      EXPECT_EQ(first.active.post(first.active.send(i, 0, 4)), 0);
      EXPECT_EQ(second.active.post(second.active.send(i, 0, 4)), 0);
    }
    ibv_wc wc;
    while (surroundings.network.step()) {
      if (ibv_poll_cq(first.passive.cq, 1, &wc) == 1) order += '1';
      if (ibv_poll_cq(second.passive.cq, 1, &wc) == 1) order += '2';
    }
    return order;
  };
  EXPECT_EQ(trace(5), trace(5));
  std::set<std::string> orders;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) orders.insert(trace(seed));
  EXPECT_GT(orders.size(), 1U);
}

// Random work, and an end of it at a random time: each request completes once, in its order, and
// behind the first that flushes everything flushes.
TEST(DoubleOrder, RequestsCompleteOnceWhateverHappens) {
  for (uint64_t seed = 1; seed <= 4 * kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Surroundings surroundings({.progress = Progress::kByStep, .seed = seed});
    PairOptions options;
    options.active.max_send_wr = options.passive.max_recv_wr = 64;
    options.active.max_cqe = options.passive.max_cqe = 256;
    Pair pair(surroundings, options);
    const uint64_t count = 16 + random() % 32;
    const uint64_t end = random() % (2 * count);
    uint64_t receives = 0;
    for (uint64_t i = 0; i < count; ++i) {
      if (random() % 4 != 0) {
        ASSERT_EQ(pair.passive.post_receive(receives++, 512, 64), 0);
      }
      const size_t at = 8 * (random() % 32);
      ibv_send_wr wr;
      switch (random() % 4) {
        case 0:
          wr = pair.active.access(IBV_WR_RDMA_READ, i, at, 8, pair.passive, at);
          break;
        case 1:
          wr = pair.active.access(IBV_WR_RDMA_WRITE, i, at, 8, pair.passive, at);
          break;
        case 2:
          wr = pair.active.access(IBV_WR_RDMA_WRITE_WITH_IMM, i, at, 8, pair.passive, at);
          break;
        default:
          wr = pair.active.send(i, at, 8);
      }
      if (random() % 4 == 0) wr.send_flags |= IBV_SEND_FENCE;
      ASSERT_EQ(pair.active.post(wr), 0);
      for (uint64_t steps = random() % 4; steps > 0; --steps) surroundings.network.step();
      if (i != end) continue;
      ASSERT_EQ(rdma_disconnect(random() % 2 == 0 ? pair.active.id : pair.passive.id), 0);
    }
    surroundings.network.run();
    rdma_disconnect(pair.active.id);
    rdma_disconnect(pair.passive.id);
    surroundings.network.run();
    const auto check = [](End &side, uint64_t expected) {
      bool failed = false;
      uint64_t next = 0;
      ibv_wc wc;
      while (ibv_poll_cq(side.cq, 1, &wc) == 1) {
        EXPECT_EQ(wc.wr_id, next++);
        EXPECT_TRUE(!failed || wc.status == IBV_WC_WR_FLUSH_ERR) << ibv_wc_status_str(wc.status);
        failed = failed || wc.status != IBV_WC_SUCCESS;
      }
      EXPECT_EQ(next, expected);
    };
    check(pair.active, count);
    check(pair.passive, receives);
  }
}

TEST(DoubleOrder, ThreadsOfTheProgramShareADevice) {
  Surroundings surroundings;
  constexpr uint64_t kMessages = 200;
  std::vector<std::unique_ptr<Pair>> pairs;
  for (int i = 0; i < 4; ++i) pairs.push_back(std::make_unique<Pair>(surroundings));
  std::vector<std::thread> threads;
  std::atomic<uint64_t> done = 0;
  for (const std::unique_ptr<Pair> &pair : pairs) {
    threads.emplace_back([&pair = *pair, &done] {
      for (uint64_t i = 0; i < kMessages; ++i) {
        EXPECT_EQ(pair.passive.post_receive(i, 64, 8), 0);
        pair.active.memory[0] = i;
        EXPECT_EQ(pair.active.post(pair.active.send(i, 0, 8)), 0);
        EXPECT_EQ(pair.active.completion().status, IBV_WC_SUCCESS);
        EXPECT_EQ(pair.passive.completion().wr_id, i);
        if (pair.passive.memory[8] == i) ++done;
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(done, 4 * kMessages);
}

TEST(DoubleOrder, ThreadOfItsOwnDoesTheSame) {
  Surroundings surroundings({.progress = Progress::kByThread});
  Pair pair(surroundings);
  constexpr uint64_t kMessages = 200;
  uint64_t received = 0;
  std::thread receiver([&] {
    for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(pair.passive.post_receive(i, 64 * i, 64), 0);
    while (received < kMessages) {
      const ibv_wc wc = pair.passive.completion();
      if (wc.status != IBV_WC_SUCCESS) return;
      EXPECT_EQ(pair.passive.memory[wc.wr_id * 8], received);
      ++received;
      EXPECT_EQ(pair.passive.post_receive(wc.wr_id, 64 * wc.wr_id, 64), 0);
    }
  });
  for (uint64_t i = 0; i < kMessages; ++i) {
    pair.active.memory[0] = i;
    EXPECT_EQ(pair.active.post(pair.active.send(i, 0, 8)), 0);
    EXPECT_EQ(pair.active.completion().wr_id, i);
  }
  receiver.join();
  EXPECT_EQ(received, kMessages);
}

}  // namespace
}  // namespace weft::verbs_double
