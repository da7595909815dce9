// SPDX-License-Identifier: BSD-2-Clause
// FI_EP_RDM: random traffic between endpoints that disappear and return, with limits that are
// reached all the time. Every operation of a living endpoint ends once, and the bytes that arrive
// are the bytes that were sent.
#include <algorithm>
#include <memory>
#include <vector>

#include "plugins/tcp/test_node.h"

namespace weft::conformance {
namespace {

using rdm::Completion, rdm::Options;

class Traffic {
 public:
  Traffic() {
    for (size_t i = 0; i < kNodes; ++i) revive(i);
    for (size_t i = 0; i < kNodes; ++i) introduce(i);
  }

  // A random node sends, posts a receive, is replaced, or makes progress.
  void step() {
    const size_t i = below(kNodes);
    switch (below(8)) {
      case 0:
      case 1:
      case 2:
        return send(i);
      case 3:
      case 4: {
        auto &receives = players_[i].receives;
        Receive &receive = *receives[below(receives.size())];
        if (!receive.posted) post(players_[i], receive);
        return;
      }
      case 5:
        if (below(150) == 0) {
          revive(i);
          introduce(i);
        }
        return;
      default:
        return progress(players_[i]);
    }
  }

  // All nodes receive whatever comes, until no send is in flight. False: too late.
  bool settle() {
    for (const Deadline deadline; !deadline.passed();) {
      size_t sending = 0;
      for (Player &player : players_) {
        for (auto &receive : player.receives)
          if (!receive->posted) post(player, *receive);
        progress(player);
        sending += player.sending;
      }
      if (sending == 0 || ::testing::Test::HasFatalFailure()) return true;
    }
    return false;
  }

  size_t arrived() const { return arrived_; }
  size_t failed() const { return failed_; }

 private:
  static constexpr size_t kNodes = 4, kRoom = 60000;
  struct Receive {
    Bytes bytes = Bytes(kRoom);
    bool posted = false;
  };
  struct Player {
    std::vector<std::unique_ptr<Receive>> receives;  // outlive the endpoint
    std::unique_ptr<Node> node;
    fi_addr_t to[kNodes] = {};
    size_t sending = 0;
  };

  size_t below(uint64_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % limit;
  }

  void revive(size_t i) {
    Options options = defaults();
    if (players_[i].node != nullptr) options = defaults_at(players_[i].node->name);
    players_[i].node.reset();
    players_[i] = {};
    players_[i].node = std::make_unique<Node>(options);
    for (size_t k = 0; k < 8; ++k) players_[i].receives.push_back(std::make_unique<Receive>());
  }
  void introduce(size_t i) {
    for (size_t k = 0; k < kNodes; ++k)
      players_[i].to[k] = players_[i].node->insert(*players_[k].node);
  }

  void send(size_t i) {
    static constexpr size_t kSizes[] = {0, 1, 100, 4000, 5000, 20000, 60000};
    Player &player = players_[i];
    const size_t to = below(kNodes);
    if (player.sending > 60) return;
    // A node that is held back receives nothing from itself: no more than it can save.
    const uint64_t size = to == i ? below(100) : kSizes[below(std::size(kSizes))];
    const uint64_t at = below(256);
    const ssize_t rc = fi_tsend(player.node->ep, source_.data() + at, size, nullptr, player.to[to],
                                size << 8 | at, nullptr);
    if (rc == 0) ++player.sending;
    ASSERT_TRUE(rc == 0 || rc == -FI_EAGAIN) << rc;
  }

  void post(Player &player, Receive &receive) {
    must(fi_trecv(player.node->ep, receive.bytes.data(), kRoom, nullptr, FI_ADDR_UNSPEC, 0,
                  ~UINT64_C(0), &receive));
    receive.posted = true;
  }

  void progress(Player &player) {
    player.node->progress();
    for (; !player.node->done.empty(); player.node->done.pop_front()) {
      const Completion &e = player.node->done.front();
      if (e.flags & FI_SEND) {
        ASSERT_GT(player.sending, 0u);
        --player.sending;
        failed_ += e.err != 0 ? 1 : 0;
        continue;
      }
      auto *receive = static_cast<Receive *>(e.context);
      ASSERT_TRUE(receive->posted);
      receive->posted = false;
      if (e.err != 0) continue;  // its sender disappeared in the middle
      ++arrived_;
      // The tag has the length of the message, and where in the source it begins.
      ASSERT_EQ(e.len, e.tag >> 8);
      const auto *begin = source_.data() + (e.tag & 0xff);
      ASSERT_TRUE(std::equal(begin, begin + e.len, receive->bytes.begin()));
    }
  }

  const Bytes source_ = pattern(kRoom + 256, 18);
  uint64_t state_ = 4711;
  size_t arrived_ = 0, failed_ = 0;
  Player players_[kNodes];
};

TEST(Rdm, RandomTrafficAndRestarts) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED_SIZE=4K", "FI_TCP_MAX_SAVED_PER_PEER=40K",
                         "FI_TCP_MAX_SAVED=100K", "FI_TCP_MAX_CONNECTIONS=2",
                         "FI_TCP_CLOSE_LINGER_MS=0", "FI_LOG_LEVEL="}))
    return;
  Traffic traffic;
  for (int i = 0; i < 20000 && !HasFatalFailure(); ++i) traffic.step();
  EXPECT_TRUE(traffic.settle());
  EXPECT_GT(traffic.arrived(), 500u);
  EXPECT_LT(traffic.failed(), traffic.arrived());
}

}  // namespace
}  // namespace weft::conformance
