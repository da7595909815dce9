// SPDX-License-Identifier: BSD-2-Clause
// Tests with a network link of their own, which link_test.sh makes: full sockets, and IPv6
// multicast.
// No host has 10.99.0.2, so datagrams to it wait in the socket's small send buffer until the other
// end of the link gets the address. The other end sees all that leaves.
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/conformance/dgram_harness.h"

namespace weft::conformance::dgram {
namespace {

using Bytes = std::vector<uint8_t>;

class Stalled : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("WEFT_TEST_LINK") == nullptr)
      GTEST_SKIP() << "needs the network of link_test.sh";
    shell("ip neigh del 10.99.0.2 dev end0 2>/dev/null || true");
    Options options;
    options.node = "10.99.0.1";
    net.add(options);
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(7);
    in.sin_addr.s_addr = inet_addr("10.99.0.2");
    const fi_addr_t self = net.at(0, 0);
    to = net[0].insert({reinterpret_cast<const char *>(&in), sizeof in});
    ASSERT_NE(to, self);
    wire = ::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_IP));
    sockaddr_ll link{};
    link.sll_family = AF_PACKET;
    link.sll_protocol = htons(ETH_P_IP);
    link.sll_ifindex = int(if_nametoindex("end1"));
    ASSERT_GE(wire, 0);
    ASSERT_EQ(::bind(wire, reinterpret_cast<sockaddr *>(&link), sizeof link), 0);
  }
  ~Stalled() override {
    if (wire >= 0) ::close(wire);
  }
  static void shell(const char *command) {
    if (std::system(command) != 0) throw std::runtime_error(std::string("failed: ") + command);
  }
  // The other end has the address from now on; waiting datagrams leave.
  void release() {
    shell("ip neigh replace 10.99.0.2 lladdr 02:00:00:00:00:01 dev end0 nud permanent");
  }
  // The payload of the next datagram to the address.
  Bytes next() {
    for (;;) {
      pollfd wait{wire, POLLIN, 0};
      if (::poll(&wait, 1, int(std::chrono::milliseconds(kPatience).count())) != 1)
        throw std::runtime_error("no datagram on the wire");
      Bytes packet(70000);
      const ssize_t n = ::recv(wire, packet.data(), packet.size(), 0);
      packet.resize(size_t(std::max<ssize_t>(n, 0)));
      const size_t header = packet.empty() ? 0 : size_t(packet[0] & 15) * 4;
      if (packet.size() < header + 8 || packet[9] != IPPROTO_UDP) continue;
      // By UDP's own length: the link pads short frames.
      const size_t length = size_t(packet[header + 4]) << 8 | packet[header + 5];
      return {packet.begin() + ptrdiff_t(header + 8), packet.begin() + ptrdiff_t(header + length)};
    }
  }
  bool is_quiet() {
    pollfd wait{wire, POLLIN, 0};
    return ::poll(&wait, 1, 0) == 0;
  }
  // Sends numbered datagrams until the socket is full. Returns their count.
  unsigned fill() {
    Bytes bytes(64);
    for (unsigned i = 0;; ++i) {
      bytes.assign(64, uint8_t(i));
      const ssize_t rc = fi_inject(net[0].ep, bytes.data(), bytes.size(), to);
      if (rc == -FI_EAGAIN) return i;
      must(rc);
      if (i > 250) throw std::runtime_error("the socket does not fill up");
    }
  }
  ssize_t send(Bytes &bytes, uint64_t flags, void *context) {
    iovec iov{bytes.data(), bytes.size()};
    fi_msg message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = to;
    message.context = context;
    return fi_sendmsg(net[0].ep, &message, flags | FI_COMPLETION);
  }

  Net net{0};
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  int wire = -1;
};

TEST_F(Stalled, ASendWithoutRoomIsRefused) {
  const unsigned taken = fill();
  EXPECT_GT(taken, 0u);
  Bytes bytes = pattern(64, 99);
  EXPECT_EQ(send(bytes, 0, nullptr), -FI_EAGAIN);
  net.settle();
  EXPECT_FALSE(poll(net[0].tx_cq)) << "a refused call completes";
  EXPECT_TRUE(is_quiet());
  release();
  for (unsigned i = 0; i < taken; ++i) EXPECT_EQ(next(), Bytes(64, uint8_t(i)));
  net.post([&] { return send(bytes, 0, nullptr); });
  EXPECT_EQ(next(), pattern(64, 99));
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_TRUE(is_quiet());
}

// Sends accepted with FI_MORE stay queued, as copies after the end of the batch. The send that
// ended the batch is refused.
TEST_F(Stalled, SendsAcceptedWithMoreStayQueuedAsCopies) {
  const unsigned taken = fill();
  std::vector<Bytes> batch;
  for (unsigned i = 0; i < 10; ++i) batch.push_back(pattern(100 + i % 2, i));
  for (auto &bytes : batch) must(send(bytes, FI_MORE, &bytes));
  Bytes last = pattern(70, 50);
  EXPECT_EQ(send(last, 0, &last), -FI_EAGAIN);
  for (auto &bytes : batch) std::fill(bytes.begin(), bytes.end(), 0xdd);
  EXPECT_EQ(send(last, 0, &last), -FI_EAGAIN) << "other datagrams still wait";
  net.settle();
  EXPECT_FALSE(poll(net[0].tx_cq));
  release();
  for (auto &bytes : batch) {
    const Completion sent = net.wait(net[0].tx_cq);
    EXPECT_EQ(sent.err, 0);
    EXPECT_EQ(sent.context, &bytes);
  }
  for (unsigned i = 0; i < taken; ++i) EXPECT_EQ(next(), Bytes(64, uint8_t(i)));
  for (unsigned i = 0; i < 10; ++i) EXPECT_EQ(next(), pattern(100 + i % 2, i));
  EXPECT_TRUE(is_quiet()) << "a refused datagram left";
  net.post([&] { return send(last, 0, &last); });
  EXPECT_EQ(next(), last);
}

TEST_F(Stalled, ABatchHolds64Datagrams) {
  fill();
  Bytes bytes = pattern(30, 1);
  ssize_t rc = 0;
  size_t held = 0;
  while (held < 1000 && (rc = send(bytes, FI_MORE | FI_INJECT, &bytes)) == 0) ++held;
  EXPECT_EQ(rc, -FI_EAGAIN);
  EXPECT_EQ(held, 64u);
  release();
  for (size_t i = 0; i < held; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_EQ(send(bytes, 0, &bytes), 0);
}

// A thread that blocks for a completion wakes when there is room.
TEST_F(Stalled, RoomWakesABlockedThread) {
  Options options;
  options.node = "10.99.0.1";
  options.tx_cq.wait_obj = FI_WAIT_FD;
  net.add(options);
  Node &node = net[1];
  const std::string address = [&] {
    char name[64];
    size_t size = sizeof name;
    must(fi_av_lookup(net[0].av, to, name, &size));
    return std::string(name, size);
  }();
  const fi_addr_t there = node.insert(address);
  Bytes bytes = pattern(30, 1);
  iovec iov{bytes.data(), bytes.size()};
  fi_msg message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = there;
  message.context = &bytes;
  ssize_t rc = 0;
  for (int i = 0; i < 250 && rc == 0; ++i)
    rc = fi_inject(node.ep, bytes.data(), bytes.size(), there);
  ASSERT_EQ(rc, -FI_EAGAIN);
  must(fi_sendmsg(node.ep, &message, FI_MORE | FI_COMPLETION));
  fi_cq_msg_entry entry{};
  EXPECT_EQ(fi_cq_sread(node.tx_cq, &entry, 1, nullptr, 20), -FI_EAGAIN);
  std::thread releaser([&] { release(); });
  const ssize_t n = fi_cq_sread(node.tx_cq, &entry, 1, nullptr,
                                int(std::chrono::milliseconds(kPatience).count()));
  releaser.join();
  EXPECT_EQ(n, 1) << error_text(n);
  EXPECT_EQ(entry.op_context, &bytes);
}

// fi_close with queued datagrams: they leave if they can, and are dropped if not.
TEST_F(Stalled, CloseDropsDatagramsThatCannotLeave) {
  fill();
  Bytes bytes = pattern(30, 1);
  for (int i = 0; i < 20; ++i) must(send(bytes, FI_MORE, &bytes));
}

// ---- multicast over IPv6 ----

TEST(LinkMulticast6, MembersReceiveTheDatagramsOfTheGroup) {
  if (std::getenv("WEFT_TEST_LINK") == nullptr) GTEST_SKIP() << "needs the network of link_test.sh";
  if (!have_ipv6_loopback()) GTEST_SKIP() << "no IPv6";
  Options options;
  options.node = "fd99::1";
  options.caps |= FI_MULTICAST | FI_SOURCE;
  options.event_queue = true;
  Net net(3, options);
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  const std::string name = PlainSocket(AF_INET6).name();  // a port that is free
  std::memcpy(&in.sin6_port, name.data() + offsetof(sockaddr_in6, sin6_port), 2);
  ASSERT_EQ(inet_pton(AF_INET6, "ff15::4711", &in.sin6_addr), 1);
  const std::string group(reinterpret_cast<const char *>(&in), sizeof in);
  Handle<fid_mc> members[2];
  must(fi_join(net[0].ep, group.data(), FI_SEND, members[0].out(), nullptr));
  must(fi_join(net[1].ep, group.data(), FI_RECV, members[1].out(), nullptr));
  // Any UDP program is a member, too.
  PlainSocket plain(AF_INET6, group);
  ipv6_mreq request{};
  request.ipv6mr_multiaddr = in.sin6_addr;
  request.ipv6mr_interface = if_nametoindex("end0");
  ASSERT_EQ(setsockopt(plain.fd(), IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request), 0);
  std::vector<Bytes> buffers(3, Bytes(1000));
  for (size_t i = 0; i < 3; ++i)
    must(fi_recv(net[i].ep, buffers[i].data(), 1000, nullptr, FI_ADDR_UNSPEC, &buffers[i]));
  Bytes out = pattern(1000, 1);
  must(fi_inject(net[0].ep, out.data(), out.size(), fi_mc_addr(members[0])));
  const Completion got = net.wait(net[1].rx_cq);
  EXPECT_EQ(got.err, 0);
  EXPECT_EQ(got.source, net.at(1, 0));
  EXPECT_EQ(buffers[1], out);
  EXPECT_EQ(plain.receive(), out);
  net.settle();
  EXPECT_FALSE(poll(net[0].rx_cq)) << "a member that only sends receives nothing";
  EXPECT_FALSE(poll(net[2].rx_cq)) << "an endpoint outside of the group receives nothing";
  members[1].reset();
  must(fi_recv(net[1].ep, buffers[1].data(), 1000, nullptr, FI_ADDR_UNSPEC, nullptr));
  must(fi_inject(net[0].ep, out.data(), out.size(), fi_mc_addr(members[0])));
  EXPECT_EQ(plain.receive(), out);
  net.settle();
  EXPECT_FALSE(poll(net[1].rx_cq)) << "it has left the group";
}

}  // namespace
}  // namespace weft::conformance::dgram
