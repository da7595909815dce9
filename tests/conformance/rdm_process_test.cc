// SPDX-License-Identifier: BSD-2-Clause
// What exit() and fork() mean to an unconnected endpoint: a process exits behind what it has
// injected, and a child clears away what is its parent's.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

// ---- exit() ----

constexpr size_t kFewInjects = 20;

// The calls of fi_msg.3 and fi_tagged.3 after which no completion says that a message has left.
enum class InjectCall { kInject, kTagged, kData };

struct Burst {
  InjectCall call;
  bool as_many_as_go;  // the longest, until -FI_EAGAIN; else a few short ones
  enum fi_threading threading;
};
constexpr Burst kInjectBursts[] = {
    {InjectCall::kInject, false, FI_THREAD_SAFE}, {InjectCall::kTagged, false, FI_THREAD_SAFE},
    {InjectCall::kData, false, FI_THREAD_SAFE},   {InjectCall::kInject, false, FI_THREAD_DOMAIN},
    {InjectCall::kTagged, true, FI_THREAD_SAFE},  {InjectCall::kInject, true, FI_THREAD_DOMAIN},
};

Options options_of(const Burst &burst) {
  Options options;
  options.threading = burst.threading;
  return options;
}
size_t bytes_of(const Burst &burst, const Node &node) {
  return burst.as_many_as_go ? node.info->tx_attr->inject_size : sizeof(uint64_t);
}

ssize_t inject(const Burst &burst, Node &node, const std::vector<uint8_t> &out, fi_addr_t to) {
  switch (burst.call) {
    case InjectCall::kInject:
      return fi_inject(node.ep, out.data(), out.size(), to);
    case InjectCall::kTagged:
      return fi_tinject(node.ep, out.data(), out.size(), to, 1);
    case InjectCall::kData:
      return fi_injectdata(node.ep, out.data(), out.size(), 7, to);
  }
  return -FI_EINVAL;
}

// A process whose first call to its peer is the burst, and whose last call is exit().
void inject_and_exit(int parent, const Burst &burst) {
  static Node *const node = new Node(options_of(burst));  // reachable to the end
  const fi_addr_t to = node->insert(hear_text(parent));
  std::vector<uint8_t> out(bytes_of(burst, *node));
  uint64_t sent = 0;
  while (burst.as_many_as_go || sent < kFewInjects) {
    std::memcpy(out.data(), &sent, sizeof sent);
    const ssize_t rc = inject(burst, *node, out, to);
    if (rc == -FI_EAGAIN && burst.as_many_as_go) break;
    must(rc);
    ++sent;
  }
  tell(parent, sent);
  exit(0);
}

TEST(RdmExit, WhatWasInjectedBeforeThereWasAConnectionArrives) {
  covers("life cycle");
  NEEDS_PROCESSES();
  if (stack().find("ofi_rxd") != std::string::npos)
    GTEST_SKIP() << "datagrams need their sender: it repeats those that are lost";
  if (stack().find("cxi") != std::string::npos)
    GTEST_SKIP() << "a NIC in software sends in its process's thread, and ends with it";
  if (!in_fresh_process()) return;
  for (const Burst &burst : kInjectBursts) {
    if (!find_info(options_of(burst))) continue;
    SCOPED_TRACE("burst " + std::to_string(&burst - kInjectBursts));
    Child sender([&](int parent) { inject_and_exit(parent, burst); });
    Net net(1);
    tell_text(sender.socket(), net[0].name());
    const uint64_t sent = hear(sender.socket());
    ASSERT_NE(sent, 0u);
    std::vector<uint8_t> in(bytes_of(burst, net[0]));
    for (uint64_t i = 0; i < sent; ++i) {
      if (burst.call == InjectCall::kTagged)
        must(fi_trecv(net[0].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
      else
        must(fi_recv(net[0].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
      const Completion done = net.wait(net[0].rx_cq);
      ASSERT_EQ(done.err, 0);
      uint64_t number;
      std::memcpy(&number, in.data(), sizeof number);
      ASSERT_EQ(number, i) << "of " << sent;
    }
    sender.join();
  }
}

// An address at which connections are made, and nobody answers.
class SilentHost {
 public:
  SilentHost() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    must(::bind(fd_, reinterpret_cast<sockaddr *>(&address), size));
    must(::listen(fd_, 16));
    must(::getsockname(fd_, reinterpret_cast<sockaddr *>(&address), &size));
    name_.assign(reinterpret_cast<char *>(&address), size);
  }
  ~SilentHost() { ::close(fd_); }
  const std::string &name() const { return name_; }

 private:
  const int fd_;
  std::string name_;
};

// How long a process took to exit that has sent a message to a peer which does not answer.
std::chrono::milliseconds time_of_exit(const std::function<void(Node &, fi_addr_t)> &send) {
  const SilentHost host;
  Child sender([&](int parent) {
    static Node *const node = new Node(Options());
    send(*node, node->insert(host.name()));
    tell(parent, 0);
    exit(0);
  });
  hear(sender.socket());
  const auto begin = std::chrono::steady_clock::now();
  sender.join();
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               begin);
}

// As fi_close does (close_linger_ms).
TEST(RdmExit, APeerThatDoesNotAnswerIsWaitedForNoLongerThanByClose) {
  NEEDS_PROCESSES();
  NEEDS_IPV4_ADDRESSES();
  if (!in_fresh_process({"FI_TCP_CLOSE_LINGER_MS=200", "FI_OFI_RXM_CLOSE_LINGER_MS=200",
                         "FI_OFI_RXD_CLOSE_LINGER_MS=200"}))
    return;
  const auto time = time_of_exit([](Node &node, fi_addr_t to) {
    const uint64_t out = 1;
    must(fi_inject(node.ep, &out, sizeof out, to));
  });
  EXPECT_LT(time.count(), 10'000);
}

// Its completion would have told the application that it may exit.
TEST(RdmExit, AMessageWhoseCompletionIsWantedIsNotWaitedFor) {
  NEEDS_PROCESSES();
  NEEDS_IPV4_ADDRESSES();
  if (!in_fresh_process({"FI_TCP_CLOSE_LINGER_MS=60000", "FI_OFI_RXM_CLOSE_LINGER_MS=60000",
                         "FI_OFI_RXD_CLOSE_LINGER_MS=60000"}))
    return;
  const auto time = time_of_exit([](Node &node, fi_addr_t to) {
    static const uint64_t out = 1;
    must(fi_send(node.ep, &out, sizeof out, nullptr, to, nullptr));
  });
  EXPECT_LT(time.count(), 20'000);
}

// ---- fork() ----

constexpr size_t kLongMessage = 3'000'000;  // under way while the child is at work

// A child that closes all that it has inherited: the parent's messages that are under way arrive,
// and its later ones.
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
