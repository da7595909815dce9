// SPDX-License-Identifier: BSD-2-Clause
// rxd through the public API: its datagrams and timers. tests/conformance has the tests for all
// unconnected endpoints, protocol/ those of the protocol.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/counters.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

// A socket that receives datagrams and never answers.
class Mute {
 public:
  Mute() : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
    socklen_t size = sizeof address_;
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr *>(&address_), &size), 0);
  }
  ~Mute() { ::close(fd_); }
  Mute(const Mute &) = delete;
  std::string name() const { return {reinterpret_cast<const char *>(&address_), sizeof address_}; }
  uint16_t port() const { return ntohs(address_.sin_port); }
  // Datagrams so far.
  size_t heard() {
    char bytes[2048];
    while (::recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT) >= 0) ++heard_;
    return heard_;
  }

 private:
  const int fd_;
  sockaddr_in address_{};
  size_t heard_ = 0;
};

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) / 1e9;
}

uint64_t packets_received(const Node &node) {
  return read_counters(node.fabric).at("packets_received");
}

Options with_wait(enum fi_wait_obj wait) {
  Options options;
  options.tx_cq = options.rx_cq = Options::cq_attr(FI_CQ_FORMAT_TAGGED, wait);
  return options;
}

// The reader sleeps. The protocol's timers retransmit, and wake it at the peer's timeout.
TEST(Rxd, ASleepingReaderWakesWhenThePeerTimesOut) {
  if (!in_fresh_process({"FI_OFI_RXD_PEER_TIMEOUT_MS=600"})) return;
  Mute mute;
  Node node(with_wait(FI_WAIT_FD));
  const fi_addr_t nobody = node.insert(mute.name());
  const double cpu = cpu_seconds();
  const auto began = std::chrono::steady_clock::now();
  must(fi_send(node.ep, "hello", 5, nullptr, nobody, &node));
  fi_cq_tagged_entry entry{};
  ssize_t rc = -FI_EAGAIN;
  while (rc == -FI_EAGAIN && std::chrono::steady_clock::now() - began < std::chrono::minutes(1))
    rc = fi_cq_sread(node.tx_cq, &entry, 1, nullptr, 60'000);
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - began;
  ASSERT_EQ(rc, -FI_EAVAIL);
  fi_cq_err_entry error{};
  ASSERT_EQ(fi_cq_readerr(node.tx_cq, &error, 0), 1);
  EXPECT_EQ(error.err, FI_ETIMEDOUT);
  EXPECT_EQ(error.op_context, &node);
  EXPECT_GT(waited.count(), 0.58);  // FI_OFI_RXD_PEER_TIMEOUT_MS
  EXPECT_LT(cpu_seconds() - cpu, waited.count() / 2) << "it spins instead of sleeping";
  EXPECT_GE(mute.heard(), 5u);    // it tried
  EXPECT_LE(mute.heard(), 100u);  // and did not flood
}

// The same with automatic progress, without any call of the application.
TEST(Rxd, AutomaticProgressRetransmits) {
  Mute mute;
  Options options = with_wait(FI_WAIT_UNSPEC);
  options.progress = FI_PROGRESS_AUTO;
  Node node(options);
  const fi_addr_t nobody = node.insert(mute.name());
  must(fi_inject(node.ep, "hello", 5, nobody));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (mute.heard() < 4 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_GE(mute.heard(), 4u);
}

// An endpoint that is bound to all addresses tells peers one by which they reach it.
TEST(Rxd, AnEndpointBoundToAllAddressesIsReachable) {
  uint16_t port;
  {
    Mute free;
    port = free.port();
  }
  Options any;
  any.node = "0.0.0.0";
  any.service = std::to_string(port);
  Net net(1);
  Node server(any);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const fi_addr_t to = net[0].insert({reinterpret_cast<const char *>(&address), sizeof address});
  std::vector<uint8_t> in(100'000), out(100'000, 7);
  must(fi_recv(server.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  net.post([&] { return fi_send(net[0].ep, out.data(), out.size(), nullptr, to, &out); });
  bool received = false;
  ASSERT_TRUE(net.until([&] {
    received = received || poll(server.rx_cq).has_value();
    server.progress();
    return received;
  }));
  EXPECT_EQ(in, out);
}

// The application does not read the completions of its receives: its sends go on and complete.
TEST(Rxd, UnreadCompletionsOfReceivesDoNotStopSends) {
  Options small;
  small.resource_mgmt = FI_RM_ENABLED;
  small.rx_cq.size = 4;
  constexpr size_t kCount = 200, kSize = 3000;
  Net net(2, small);
  std::vector<std::vector<uint8_t>> in(kCount, std::vector<uint8_t>(kSize)), back = in;
  std::vector<uint8_t> out(kSize, 7);
  for (size_t i = 0; i < kCount; ++i) {
    must(fi_recv(net[1].ep, in[i].data(), kSize, nullptr, FI_ADDR_UNSPEC, &in[i]));
    net.post([&] { return fi_send(net[0].ep, out.data(), kSize, nullptr, net.at(0, 1), &out); });
  }
  net.settle();
  for (size_t i = 0; i < 10; ++i) {
    must(fi_recv(net[0].ep, back[i].data(), kSize, nullptr, FI_ADDR_UNSPEC, &back[i]));
    const iovec iov{out.data(), kSize};
    fi_msg message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = net.at(1, 0);
    message.context = &back[i];
    net.post([&] { return fi_sendmsg(net[1].ep, &message, FI_DELIVERY_COMPLETE); });
    EXPECT_EQ(net.wait(net[1].tx_cq).context, &back[i]);
    EXPECT_EQ(net.wait(net[0].rx_cq).context, &back[i]);
  }
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(net.wait(net[1].rx_cq).len, kSize);
    EXPECT_EQ(net.wait(net[0].tx_cq).context, &out);
  }
  for (const std::vector<uint8_t> &one : in) EXPECT_EQ(one, out);
}

// rxd is offered, but after the other providers.
TEST(Rxd, IsOfferedAfterTheOtherProviders) {
  Info hints = conformance::make_hints(FI_MSG | FI_TAGGED);
  hints->ep_attr->type = FI_EP_RDM;
  std::free(std::exchange(hints->fabric_attr->prov_name, nullptr));
  Info list;
  must(try_info(list, nullptr, nullptr, 0, hints.get(), kApi));
  EXPECT_STRNE(list->fabric_attr->prov_name, "udp;ofi_rxd");
  bool offered = false;
  for (const fi_info *info = list.get(); info != nullptr; info = info->next)
    offered = offered || std::strcmp(info->fabric_attr->prov_name, "udp;ofi_rxd") == 0;
  EXPECT_TRUE(offered);
}

// Who makes progress seldom, while many peers ask it again and again, must read them faster than
// they ask: else what they say later waits behind old questions until it is worth nothing.
TEST(Rxd, AFewCallsReadAllThatHasCome) {
  Node node{Options()};
  sockaddr_in to{};
  std::memcpy(&to, node.name().data(), sizeof to);
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const char bytes[64] = {};
  uint64_t sent = 0;
  const auto send = [&](int count) {  // no more than the smallest receive buffer has room for
    for (; count > 0; --count, ++sent)
      ASSERT_EQ(::sendto(fd, bytes, sizeof bytes, 0, reinterpret_cast<sockaddr *>(&to), sizeof to),
                ssize_t(sizeof bytes));
  };
  const auto read_all = [&](int calls) {
    while (calls > 0 && packets_received(node) < sent) {
      --calls;
      fi_cq_read(node.rx_cq, nullptr, 0);
    }
    return packets_received(node) == sent;
  };
  send(100);
  EXPECT_TRUE(read_all(100)) << "udp learns how they come";
  send(200);
  EXPECT_TRUE(read_all(8));
  ::close(fd);
}

}  // namespace
}  // namespace weft::conformance::rdm
