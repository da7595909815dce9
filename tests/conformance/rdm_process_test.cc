// SPDX-License-Identifier: BSD-2-Clause
// What fork() means to an unconnected endpoint: a child clears away what is its parent's.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kLongMessage = 3'000'000;  // under way while the child is at work

// A child that closes all that it has inherited: the parent's messages that are under way arrive, and
// its later ones.
void expect_undisturbed(const Options &options, void (*exits)(int)) {
  Net net(2, options);
  net.exchange(0, 1);
  net.exchange(1, 0, 100'000);
  std::vector<uint8_t> out = pattern(up_to_limit(kLongMessage, options), 3), in(out.size());
  must(fi_trecv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 9, 0, &in));
  net.post(
      [&] { return fi_tsend(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), 9, &out); });
  in_forked_child(
      [&] {
        const Net closes = std::move(net);
        if (::testing::Test::HasFailure()) _exit(1);
      },
      exits);
  const Completion came = net.wait(net[1].rx_cq), left = net.wait(net[0].tx_cq);
  EXPECT_EQ(came.err, 0);
  EXPECT_EQ(left.err, 0);
  EXPECT_EQ(in, out);
  for (int i = 0; i < 3; ++i) {
    net.exchange(0, 1);
    net.exchange(1, 0, 100'000);
  }
}

TEST(RdmFork, AChildThatClosesAllDisturbsNothing) {
  covers("life cycle");
  if (!in_fresh_process()) return;
  for (const auto exits : kForkedEnds) expect_undisturbed({}, exits);
}

// The parent's epoll sets and timers are the child's, too.
TEST(RdmFork, NorDoesItWhereTheParentSleeps) {
  covers("life cycle");
  Options options;
  options.rx_cq = options.tx_cq = Options::cq_attr(FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
  NEEDS_OFFER(options, "wait objects");
  if (!in_fresh_process()) return;
  Net net(2, options);
  net.exchange(0, 1);
  char bytes[64];
  fi_cq_tagged_entry entry;
  (void)fi_cq_sread(net[1].rx_cq, &entry, 1, nullptr, 1);  // the sets come into being
  in_forked_child([&] { const Net closes = std::move(net); }, _exit);
  must(fi_trecv(net[1].ep, bytes, sizeof bytes, nullptr, FI_ADDR_UNSPEC, 4, 0, bytes));
  std::atomic<bool> came = false;
  std::thread sender([&] {
    const uint64_t out = 1;
    while (fi_tinject(net[0].ep, &out, sizeof out, net.at(0, 1), 4) == -FI_EAGAIN)
      net[0].progress();
    while (!came) net[0].progress();
  });
  EXPECT_EQ(fi_cq_sread(net[1].rx_cq, &entry, 1, nullptr, 20'000), 1);
  came = true;
  sender.join();
}

// ... nor where the library has a thread, which the child has not.
TEST(RdmFork, NorDoesItWhereAThreadMakesTheProgress) {
  if (is_sanitized())
    GTEST_SKIP() << "a sanitizer's own locks may be held by a thread that the child has not";
  covers("life cycle");
  Options options;
  options.progress = FI_PROGRESS_AUTO;
  NEEDS_OFFER(options, "FI_PROGRESS_AUTO");
  if (!in_fresh_process()) return;
  for (const auto exits : kForkedEnds) expect_undisturbed(options, exits);
}

int count_inet_sockets() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    if (::getsockname(fd, reinterpret_cast<sockaddr *>(&name), &size) != 0) continue;
    count += name.ss_family == AF_INET || name.ss_family == AF_INET6;
  }
  return count;
}

// What the child has closed it does not keep open: where its parent dies, peers hear of that.
TEST(RdmFork, TheChildsCopiesOfSocketsAreClosed) {
  covers("life cycle");
  NEEDS_IPV4_ADDRESSES();
  if (!in_fresh_process()) return;
  Net net(2);
  net.exchange(0, 1);
  EXPECT_NE(count_inet_sockets(), 0);
  in_forked_child(
      [&] {
        { const Net closes = std::move(net); }
        if (count_inet_sockets() != 0) _exit(1);
      },
      _exit);
}

}  // namespace
}  // namespace weft::conformance::rdm
