// SPDX-License-Identifier: BSD-2-Clause
// A child after fork() that goes on with what its parent has opened: it may get errors, and its
// parent does not notice.
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/process.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kRounds = 6, kBytes = 70'000;

// A peer that gets the messages of the rounds, and nothing else.
void be_peer(int socket) {
  Node node{Options()};
  std::vector<std::vector<uint8_t>> in(2 * kRounds + 1, std::vector<uint8_t>(kBytes));
  for (auto &bytes : in)
    must(fi_recv(node.ep, bytes.data(), bytes.size(), nullptr, FI_ADDR_UNSPEC, &bytes));
  tell_text(socket, node.name());
  size_t got = 0;
  bool is_over = false;  // all that was sent is here then
  const Deadline deadline;
  while ((!is_over || got < 2 * kRounds) && !deadline.passed()) {
    is_over = is_over || can_hear(socket);
    node.progress();
    while (const auto done = poll(node.rx_cq)) {
      const auto &bytes = *static_cast<std::vector<uint8_t> *>(done->context);
      const size_t i = size_t(&bytes - in.data());  // a long one may be done after the next
      const size_t size = i % 2 == 0 ? 8 : kBytes;
      EXPECT_EQ(done->err, 0);
      EXPECT_EQ(done->len, size);
      const auto expected = pattern(size, unsigned(i));
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), bytes.begin())) << i;
      ++got;
    }
  }
  EXPECT_EQ(got, 2 * kRounds);
}

// `forked`: what the child does with the parent's application, in each round.
void run(const std::function<void(Net &net, fi_addr_t peer)> &forked) {
  Child peer(be_peer);
  const std::string name = hear_text(peer.socket());
  Net net(1);
  const fi_addr_t to = net[0].insert(name);
  for (size_t i = 0; i < 2 * kRounds; ++i) {
    const std::vector<uint8_t> out = pattern(i % 2 == 0 ? 8 : kBytes, unsigned(i));
    net.post([&] { return fi_send(net[0].ep, out.data(), out.size(), nullptr, to, nullptr); });
    if (i % 2 == 0) in_forked_child([&] { forked(net, to); }, _exit);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  }
  tell(peer.socket(), 1);
  peer.join();
}

TEST(CxiFork, AChildThatSends) {
  if (!in_fresh_process()) return;
  run([](Net &net, fi_addr_t peer) {
    const std::vector<uint8_t> out(8, 0xbb);
    (void)fi_send(net[0].ep, out.data(), out.size(), nullptr, peer, nullptr);
    (void)fi_send(net[0].ep, out.data(), out.size(), nullptr, peer, nullptr);
    for (int i = 0; i < 100; ++i) (void)poll(net[0].tx_cq);
  });
}

TEST(CxiFork, AChildThatReceives) {
  if (!in_fresh_process()) return;
  run([](Net &net, fi_addr_t) {
    std::vector<uint8_t> in(8);
    (void)fi_recv(net[0].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, nullptr);
    for (int i = 0; i < 100; ++i) (void)poll(net[0].rx_cq);
  });
}

TEST(CxiFork, AChildThatClosesAll) {
  if (!in_fresh_process()) return;
  run([](Net &net, fi_addr_t) { const Net closes = std::move(net); });
}

// It gets a NIC of its own.
TEST(CxiFork, AChildThatOpensItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not let a child of fork() start threads";
#endif
  if (!in_fresh_process()) return;
  run([](Net &, fi_addr_t) {
    Net own(2);
    own.exchange(0, 1, 8);
    own.exchange(1, 0, kBytes);
    if (::testing::Test::HasFailure()) _exit(1);
  });
}

}  // namespace
}  // namespace weft::conformance::rdm
