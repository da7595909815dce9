// SPDX-License-Identifier: BSD-2-Clause
// All operations at once in stock's dialect, over hundreds of bad networks. Each message must
// arrive once, in order and with its bytes; each atomic is executed once. SEED=n runs one network,
// SEEDS=n that many.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_rounds.h"
#include "plugins/rxd/protocol/stock_simulation.h"

namespace weft::rxd::stock_world {
namespace {

// One seed: two endpoints start all kinds of operations toward each other, over a network with
// faults.
class Exchange {
 public:
  explicit Exchange(unsigned seed) : net_(seed), seed_(seed) {
    net_.loss = seed % 4 * 7;
    net_.twice = seed % 3 * 5;
    net_.late = seed % 5 == 0 ? 10 : 0;
    net_.eagain = seed % 7 == 0 ? 10 : 0;
    Settings settings;
    settings.peer_timeout_ns = 30 * kS;
    a_.emplace(net_, 1, settings);
    b_.emplace(net_, 2, settings);
  }

  void run() {
    meet(net_, *a_, 2);
    // The second half of a region is never written, so that reads can be checked.
    for (Node *n : {&*a_, &*b_})
      for (size_t i = 32'000; i < n->memory.size(); ++i) n->memory[i] = pattern(n->number(), i);
    for (int i = 0; i < 60; ++i) {
      const bool first = net_.chance(50);
      start(first ? *a_ : *b_, first ? *b_ : *a_);
      if (net_.chance(30)) net_.run_for(net_.random() % (200 * kUs) + 1);
    }
    if (seed_ % 2 == 0) post_all();
    ASSERT_TRUE(net_.run([&] { return settled(); }, 300 * kS));
    post_all();
    ASSERT_TRUE(net_.run([&] {
      return settled() && a_->got.size() == expected_[&*a_].size() &&
             b_->got.size() == expected_[&*b_].size();
    }));
    net_.run_for(5 * kS);  // nothing may arrive twice
    settled();
    check(*a_);
    check(*b_);
    for (const Read &read : reads_)
      for (size_t k = 0; k < read.into->size(); ++k)
        ASSERT_EQ((*read.into)[k], pattern(read.from->number(), read.at + k));
  }

 private:
  struct Message {
    uint64_t tag;
    size_t length;
  };
  struct Read {
    Bytes *into;
    Node *from;
    uint64_t at;
  };

  size_t length() {
    switch (net_.random() % 4) {
      case 0:
        return net_.random() % 64;
      case 1:
        return net_.random() % 1500;
      case 2:
        return 1400 + net_.random() % 100;
      default:
        return net_.random() % 40'000;
    }
  }
  // Starts a random operation of `n` toward `peer`.
  void start(Node &n, Node &peer) {
    const size_t to = peer.number();
    switch (net_.random() % 6) {
      case 0:
      case 1:
      case 2: {
        const size_t size = length();
        held_.push_back(pattern_of(tag_, size));
        n.send(to, held_.back(), true, tag_, net_.chance(30), net_.chance(20));
        expected_[&peer].push_back({tag_, size});
        ++tag_;
        break;
      }
      case 3: {
        held_.push_back(pattern_of(tag_, std::min<size_t>(length(), 16'000)));
        n.access(TxOp::Kind::kWrite, to, held_.back(), 64 + net_.random() % 15'000, kKey,
                 net_.chance(50), 1 + net_.random() % 4);
        break;
      }
      case 4: {
        held_.emplace_back(std::min<size_t>(length(), 16'000));
        const uint64_t at = 32'000 + net_.random() % 10'000;
        n.access(TxOp::Kind::kRead, to, held_.back(), at, kKey, false, 1 + net_.random() % 4);
        reads_.push_back({&held_.back(), &peer, at});
        break;
      }
      default: {
        const uint64_t add = net_.random() % 1000;
        sums_[&peer] += add;
        words_.push_back({add});
        std::vector<uint64_t> &value = words_.back();
        words_.emplace_back(net_.chance(50) ? 1 : 0);
        std::vector<uint64_t> &result = words_.back();
        n.atomic(to, result.empty() ? sdk::AtomicKind::kWrite : sdk::AtomicKind::kFetch, FI_SUM,
                 value, result, 0);
        break;
      }
    }
  }
  // Posts a receive for each message that was sent and has none.
  void post_all() {
    for (Node *n : {&*a_, &*b_})
      for (size_t i = in_[n].size(); i < expected_[n].size(); ++i) {
        in_[n].emplace_back(40'000);
        n->post(in_[n].back(), true);
      }
  }
  bool settled() {
    a_->reap();
    b_->reap();
    return a_->all_ended() && b_->all_ended();
  }
  // Checks that every message arrived once, in order and with its bytes, and every atomic once.
  void check(Node &n) {
    for (const Done &d : n.done) EXPECT_EQ(d.err, 0);
    ASSERT_EQ(n.got.size(), expected_[&n].size());
    for (size_t i = 0; i < n.got.size(); ++i) {
      const Got &got = n.got[i];
      EXPECT_EQ(got.context, i + 1);
      EXPECT_EQ(got.tag, expected_[&n][i].tag);
      ASSERT_EQ(got.length, expected_[&n][i].length);
      const Bytes &bytes = in_[&n][i];
      for (size_t k = 0; k < got.length; ++k)
        ASSERT_EQ(bytes[k], pattern(got.tag, k)) << "byte " << k << " of " << got.length;
    }
    uint64_t sum;
    std::memcpy(&sum, n.memory.data(), sizeof sum);
    EXPECT_EQ(sum, sums_[&n]);
    EXPECT_EQ(n.core().counters().rejected.value(), 0u);
  }

  Net net_;
  const unsigned seed_;
  std::map<Node *, std::vector<Message>> expected_;
  std::deque<Bytes> held_;  // memory of operations
  std::map<Node *, std::deque<Bytes>> in_;
  std::vector<Read> reads_;
  std::map<Node *, uint64_t> sums_;
  std::deque<std::vector<uint64_t>> words_;
  uint64_t tag_ = 0;
  std::optional<Node> a_, b_;
};

TEST(Stock, EverythingArrivesOverBadNetworks) {
  unsigned first = 1, last = sdk::rounds(400);
  if (const char *seeds = std::getenv("SEEDS")) last = unsigned(std::atoi(seeds));
  if (const char *seed = std::getenv("SEED")) first = last = unsigned(std::atoi(seed));
  for (unsigned seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Exchange(seed).run();
    if (::testing::Test::HasFailure()) {
      std::fprintf(stderr, "again with SEED=%u\n", seed);
      return;
    }
  }
}

// 1 % of loss must not slow down a transfer by more than a factor.
TEST(Stock, LossIsRepairedQuickly) {
  uint64_t took[2];
  for (const unsigned loss : {0u, 1u}) {
    Net net(20);
    Node a(net, 1), b(net, 2);
    net.loss = loss;
    Bytes out = pattern_of(1, 4 << 20), in(4 << 20);
    b.post(in, true);
    const uint64_t from = net.now;
    a.send(2, out, true, 1);
    ASSERT_TRUE(net.run([&] { return a.all_ended(); }));
    EXPECT_EQ(in, out);
    took[loss] = net.now - from;
    RecordProperty("timeouts", std::to_string(a.core().counters().timeouts.value()));
    RecordProperty("repeated", std::to_string(a.core().counters().repeated.value()));
  }
  RecordProperty("us_without_loss", std::to_string(took[0] / kUs));
  RecordProperty("us_with_loss", std::to_string(took[1] / kUs));
  EXPECT_LT(took[1], 20 * took[0]);
}

}  // namespace
}  // namespace weft::rxd::stock_world
