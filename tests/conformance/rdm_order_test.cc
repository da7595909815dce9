// SPDX-License-Identifier: BSD-2-Clause
// The order in which a target serves its peers: who comes first is served first, whatever
// connection its bytes come by. No man page demands it; programs that count completions before
// delivery live by it.
#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

// Peers send to a target that sleeps, one after the other. Then it must look as if it had served
// each of them at once: the messages match its receives in that order, and memory has what was
// written last. What it did before must not matter, such as whom it heard of last.
class RdmOrderOfPeers : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (stack() == "shm")
      GTEST_SKIP() << "each peer has a ring of its own, and an access is complete when it is over";
  }
  // Application `i` calls, and has the progress that its bytes need to leave. All others sleep.
  template <class Call>
  void alone(Net &net, size_t i, Call call) {
    for (size_t k = 0; k < net.size(); ++k) net.set_asleep(k, k != i);
    net.post(call);
    net.settle();
    for (size_t k = 0; k < net.size(); ++k) net.set_asleep(k, k == 0);
  }
  std::array<uint64_t, 8> out_{};
  uint64_t number_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Peers, RdmOrderOfPeers, ::testing::Values(2, 3, 5));

TEST_P(RdmOrderOfPeers, IsThatOfTheirMessages) {
  Options options;
  options.progress = FI_PROGRESS_MANUAL;
  Net net(GetParam() + 1, options);
  std::vector<size_t> peers(GetParam());
  std::iota(peers.begin(), peers.end(), size_t(1));
  for (const size_t i : peers) net.exchange(i, 0);
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    std::shuffle(peers.begin(), peers.end(), random);
    const size_t count = 1 + random() % peers.size();
    std::array<uint64_t, 8> in{};
    for (size_t i = 0; i < count; ++i)
      must(fi_recv(net[0].ep, &in[i], sizeof in[i], nullptr, FI_ADDR_UNSPEC, &in[i]));
    const uint64_t first = number_ + 1;
    for (size_t i = 0; i < count; ++i) {
      uint64_t &out = out_[peers[i]] = ++number_;
      alone(net, peers[i],
            [&] { return fi_inject(net[peers[i]].ep, &out, sizeof out, net.at(peers[i], 0)); });
    }
    net.set_asleep(0, false);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(net.wait(net[0].rx_cq).err, 0);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(in[i], first + i) << "round " << round;
    if (random() % 2 == 0) net.settle();
  }
}

TEST_P(RdmOrderOfPeers, IsThatOfTheirWrites) {
  RDM_NEEDS(FI_RMA);
  Options options;
  options.caps |= FI_RMA;
  options.progress = FI_PROGRESS_MANUAL;
  alignas(8) uint64_t word = 0, got = 0;
  Net net(GetParam() + 1, options);
  fid_mr *region = net[0].expose(&word, sizeof word, FI_REMOTE_READ | FI_REMOTE_WRITE, 1);
  const uint64_t at = net[0].base_of(&word), key = fi_mr_key(region);
  std::vector<size_t> peers(GetParam());
  std::iota(peers.begin(), peers.end(), size_t(1));
  for (const size_t i : peers) net.exchange(i, 0);
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    std::shuffle(peers.begin(), peers.end(), random);
    // One writes, and another one reads after it.
    const size_t writer = peers[0], reader = peers[1];
    if (random() % 2 == 0)  // the one of whom it has heard most of late
      for (int i = 0; i < 12; ++i) net.exchange(reader, 0);
    const uint64_t out = ++number_;
    alone(net, writer, [&] {
      return fi_inject_write(net[writer].ep, &out, sizeof out, net.at(writer, 0), at, key);
    });
    alone(net, reader, [&] {
      return fi_read(net[reader].ep, &got, sizeof got, nullptr, net.at(reader, 0), at, key, &got);
    });
    net.set_asleep(0, false);
    EXPECT_EQ(net.wait(net[reader].tx_cq).err, 0);
    EXPECT_EQ(got, number_) << "round " << round;
    if (random() % 2 == 0) net.settle();
  }
}

}  // namespace
}  // namespace weft::conformance::rdm
