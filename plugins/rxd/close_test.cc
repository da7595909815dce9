// SPDX-License-Identifier: BSD-2-Clause
// Endpoints of one domain that are each other's peers, and are closed before any of them has made
// progress: packets must be acknowledged by endpoints that the application does not call. The test
// runs with a close_linger_ms of ten minutes, so waiting for it in vain would exceed its timeout.
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kNodes = 4, kSize = 3000;

// All nodes have connections to all others, and messages in flight to each.
class Close : public testing::Test {
 protected:
  void open(const Options &options) {
    net.emplace(1, options);
    for (size_t i = 1; i < kNodes; ++i) net->add(options, {}, &(*net)[0]);
    for (size_t from = 0; from < kNodes; ++from)
      for (size_t to = 0; to < kNodes; ++to)
        if (from != to) net->exchange(from, to);
    for (size_t to = 0; to < kNodes; ++to)
      for (size_t i = 0; i + 1 < kNodes; ++i) {
        in.emplace_back(kSize);
        must(fi_recv((*net)[to].ep, in.back().data(), kSize, nullptr, FI_ADDR_UNSPEC, &in));
      }
    for (size_t from = 0; from < kNodes; ++from)
      for (size_t to = 0; to < kNodes; ++to)
        if (from != to)
          must(fi_send((*net)[from].ep, out.data(), kSize, nullptr, net->at(from, to), &out));
  }

  std::vector<uint8_t> out = std::vector<uint8_t>(kSize, 7);
  std::vector<std::vector<uint8_t>> in;
  std::optional<Net> net;
};

TEST_F(Close, OneAfterTheOther) {
  open({});
  for (size_t i = 0; i + 1 < kNodes; ++i) (*net)[i].ep.reset();
  // Everything that was sent to the last one has arrived.
  Node &last = (*net)[kNodes - 1];
  size_t received = 0;
  while (const auto done = poll(last.rx_cq)) {
    EXPECT_EQ(done->err, 0);
    EXPECT_EQ(done->len, kSize);
    ++received;
  }
  EXPECT_EQ(received, kNodes - 1);
}

TEST_F(Close, AtTheSameTime) {
  Options options;
  options.threading = FI_THREAD_SAFE;
  open(options);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kNodes; ++i) threads.emplace_back([this, i] { (*net)[i].ep.reset(); });
  for (std::thread &thread : threads) thread.join();
}

}  // namespace
}  // namespace weft::conformance::rdm
