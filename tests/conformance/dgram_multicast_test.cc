// SPDX-License-Identifier: BSD-2-Clause
// Multicast (fi_cm.3, fi_join): members that send, that receive, that do both; several of one
// host; leaving.
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "tests/conformance/dgram_harness.h"

namespace weft::conformance::dgram {
namespace {

using unconnected::Bytes;

// Groups differ from test to test, so that no test receives datagrams of another one.
std::string group_name(unsigned last, uint16_t port) {
  if (is_of_a_device(FI_EP_DGRAM)) {
    // FI_ADDR_IB_UD: the GID ff15::x, and the queue pair of all groups. Groups have no ports. What
    // is sent to a group of IPv4 would come from another GID than the endpoint is known by.
    const std::string gid = "\xff\x15" + std::string(13, '\0') + char(last);
    return gid + std::string("\xff\xff\xff\0", 4) + std::string(12, '\0');
  }
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(0xefc0a800u + last);  // 239.192.168.x
  in.sin_port = htons(port);
  return {reinterpret_cast<const char *>(&in), sizeof in};
}

uint16_t port_of(const std::string &name) {
  uint16_t port;
  std::memcpy(&port, name.data() + offsetof(sockaddr_in, sin_port), 2);
  return ntohs(port);
}

uint16_t free_port() {
  return port_of(PlainSocket().name());
}

Options with_multicast() {
  Options options;
  options.caps |= FI_MULTICAST | FI_SOURCE;
  options.event_queue = true;
  return options;
}

Handle<fid_mc> join(Node &node, const std::string &group, uint64_t flags = 0) {
  Handle<fid_mc> mc;
  char context;
  must(fi_join(node.ep, group.data(), flags, mc.out(), &context));
  const Deadline deadline;
  fi_eq_entry entry{};
  uint32_t event = 0;
  ssize_t n;
  while ((n = fi_eq_read(node.eq, &event, &entry, sizeof entry, 0)) == -FI_EAGAIN)
    if (deadline.passed()) throw std::runtime_error("no FI_JOIN_COMPLETE");
  must(n);
  EXPECT_EQ(event, uint32_t(FI_JOIN_COMPLETE));
  EXPECT_EQ(entry.fid, mc.fid());
  EXPECT_EQ(entry.context, &context);
  return mc;
}

ssize_t send_to(Node &node, fid_mc *mc, Bytes &bytes, uint64_t flags = FI_MULTICAST) {
  iovec iov{bytes.data(), bytes.size()};
  fi_msg message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = fi_mc_addr(mc);
  return fi_sendmsg(node.ep, &message, flags | FI_COMPLETION);
}

#define MULTICAST_NEEDED DGRAM_NEEDS(FI_MSG | FI_MULTICAST | FI_SOURCE, "FI_MULTICAST")

TEST(DgramMulticast, EveryMemberReceives) {
  MULTICAST_NEEDED;
  Net net(4, with_multicast());
  const std::string group = group_name(1, free_port());
  std::vector<Handle<fid_mc>> members;
  for (size_t i = 0; i < 3; ++i) members.push_back(join(net[i], group));
  Bytes in[4] = {Bytes(100), Bytes(100), Bytes(100), Bytes(100)}, out = pattern(100, 1);
  for (size_t i = 0; i < 4; ++i)
    must(fi_recv(net[i].ep, in[i].data(), 100, nullptr, FI_ADDR_UNSPEC, &in[i]));
  net.post([&] { return send_to(net[0], members[0], out); });
  for (size_t i = 0; i < 3; ++i) {
    const Completion got = net.wait(net[i].rx_cq);
    EXPECT_EQ(got.err, 0);
    EXPECT_EQ(got.source, net.at(i, 0));
    EXPECT_EQ(in[i], out);
  }
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  net.settle();
  EXPECT_FALSE(poll(net[3].rx_cq)) << "is no member";
  // Its own address still receives.
  net.post([&] { return fi_send(net[1].ep, out.data(), 100, nullptr, net.at(1, 3), &out); });
  EXPECT_EQ(net.wait(net[3].rx_cq).source, net.at(3, 1));
}

TEST(DgramMulticast, ASendOnlyMemberReceivesNothing) {
  MULTICAST_NEEDED;
  Net net(2, with_multicast());
  const std::string group = group_name(2, free_port());
  const auto sender = join(net[0], group, FI_SEND), receiver = join(net[1], group, FI_RECV);
  Bytes in0(10), in1(10), out = pattern(10, 1);
  must(fi_recv(net[0].ep, in0.data(), 10, nullptr, FI_ADDR_UNSPEC, &in0));
  must(fi_recv(net[1].ep, in1.data(), 10, nullptr, FI_ADDR_UNSPEC, &in1));
  net.post([&] { return send_to(net[0], sender, out); });
  EXPECT_EQ(net.wait(net[1].rx_cq).source, net.at(1, 0));
  EXPECT_EQ(in1, out);
  net.settle();
  EXPECT_FALSE(poll(net[0].rx_cq));
  EXPECT_LT(send_to(net[1], receiver, out), 0) << "a receive-only member sends";
}

TEST(DgramMulticast, AMemberThatLeftReceivesNothing) {
  MULTICAST_NEEDED;
  Net net(2, with_multicast());
  const std::string group = group_name(3, free_port());
  const auto sender = join(net[0], group, FI_SEND);
  Bytes in(10), out = pattern(10, 1);
  must(fi_recv(net[1].ep, in.data(), 10, nullptr, FI_ADDR_UNSPEC, &in));
  for (int round = 0; round < 3; ++round) {
    {
      const auto member = join(net[1], group);
      EXPECT_EQ(fi_close(net[1].ep.fid()), -FI_EBUSY) << "with a group open";
      net.post([&] { return send_to(net[0], sender, out); });
      EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
      must(fi_recv(net[1].ep, in.data(), 10, nullptr, FI_ADDR_UNSPEC, &in));
    }
    net.post([&] { return send_to(net[0], sender, out); });
    net.settle();
    EXPECT_FALSE(poll(net[1].rx_cq));
  }
}

TEST(DgramMulticast, SeveralGroupsAreKeptApart) {
  MULTICAST_NEEDED;
  Net net(2, with_multicast());
  const uint16_t port = free_port();
  std::vector<Handle<fid_mc>> mine, theirs;
  for (unsigned i = 0; i < 4; ++i) {
    mine.push_back(join(net[0], group_name(10 + i, port), FI_SEND));
    if (i % 2 == 0) theirs.push_back(join(net[1], group_name(10 + i, port)));
  }
  std::vector<Bytes> in(4, Bytes(10));
  for (auto &buffer : in)
    must(fi_recv(net[1].ep, buffer.data(), 10, nullptr, FI_ADDR_UNSPEC, &buffer));
  for (unsigned i = 0; i < 4; ++i) {
    Bytes out = pattern(10, i);
    net.post([&] { return send_to(net[0], mine[i], out); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  }
  net.settle();
  std::vector<Bytes> got;
  while (auto done = poll(net[1].rx_cq)) got.push_back(*static_cast<Bytes *>(done->context));
  std::sort(got.begin(), got.end());
  std::vector<Bytes> expected{pattern(10, 0), pattern(10, 2)};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(got, expected);
}

// An endpoint on all addresses, and a group on its own port: one socket receives for both.
TEST(DgramMulticast, OnTheEndpointsOwnPort) {
  DGRAM_NEEDS_SOCKETS();
  MULTICAST_NEEDED;
  Options options = with_multicast();
  options.node.clear();
  options.service = std::to_string(free_port());
  Node node(options);
  Net net(1, with_multicast());
  const uint16_t port = port_of(node.name());
  const auto sender = join(net[0], group_name(20, port), FI_SEND);
  Bytes in(10), out = pattern(10, 1);
  must(fi_recv(node.ep, in.data(), 10, nullptr, FI_ADDR_UNSPEC, &in));
  Handle<fid_mc> member;
  try {
    member = join(node, group_name(20, port));
  } catch (const std::runtime_error &) {
    GTEST_SKIP() << "no route for multicast on this host";
  }
  // The kernel chooses the interface. What the endpoint itself sends to the group leaves by the
  // same one.
  must(send_to(node, member, out));
  EXPECT_TRUE(net.until([&] { return poll(node.rx_cq).has_value(); }));
  EXPECT_EQ(in, out);
}

TEST(DgramMulticast, APlainSocketIsAMember) {
  DGRAM_NEEDS_SOCKETS();
  MULTICAST_NEEDED;
  covers("plain sockets as peers");
  Net net(1, with_multicast());
  const std::string group = group_name(4, free_port());
  PlainSocket peer(AF_INET, group);
  ip_mreqn request{};
  std::memcpy(&request.imr_multiaddr, group.data() + offsetof(sockaddr_in, sin_addr), 4);
  request.imr_address.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(setsockopt(peer.fd(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request), 0);
  const auto mc = join(net[0], group);
  Bytes in(10), out = pattern(10, 1);
  must(fi_recv(net[0].ep, in.data(), 10, nullptr, FI_ADDR_UNSPEC, &in));
  net.post([&] { return send_to(net[0], mc, out); });
  EXPECT_EQ(peer.receive(), out);
  EXPECT_EQ(net.wait(net[0].rx_cq).err, 0) << "its own, as a member";
}

// The address works in calls without flags, too, and in batches.
TEST(DgramMulticast, EveryFormOfSendReachesAGroup) {
  MULTICAST_NEEDED;
  Net net(2, with_multicast());
  const std::string group = group_name(5, free_port());
  const auto sender = join(net[0], group, FI_SEND), receiver = join(net[1], group, FI_RECV);
  std::vector<Bytes> in(4, Bytes(10));
  for (auto &buffer : in)
    must(fi_recv(net[1].ep, buffer.data(), 10, nullptr, FI_ADDR_UNSPEC, &buffer));
  Bytes out = pattern(10, 1);
  must(fi_send(net[0].ep, out.data(), 10, nullptr, fi_mc_addr(sender), nullptr));
  must(fi_inject(net[0].ep, out.data(), 10, fi_mc_addr(sender)));
  must(send_to(net[0], sender, out, FI_MULTICAST | FI_MORE));
  must(send_to(net[0], sender, out));
  for (auto &buffer : in) {
    EXPECT_EQ(net.wait(net[1].rx_cq).context, &buffer);
    EXPECT_EQ(buffer, out);
  }
}

// The group is the endpoint's, whichever of its fids joined.
TEST(DgramMulticast, AnAliasJoins) {
  MULTICAST_NEEDED;
  Net net(1, with_multicast());
  const std::string group = group_name(7, free_port());
  fid_ep *alias = nullptr;
  must(fi_ep_alias(net[0].ep, &alias, FI_TRANSMIT | FI_COMPLETION));
  Handle<fid_mc> mc;
  must(fi_join(alias, group.data(), 0, mc.out(), nullptr));
  must(fi_close(&alias->fid));
  Bytes in(10), out = pattern(10, 1);
  must(fi_recv(net[0].ep, in.data(), 10, nullptr, FI_ADDR_UNSPEC, &in));
  net.post([&] { return send_to(net[0], mc, out); });
  EXPECT_EQ(net.wait(net[0].rx_cq).err, 0);
  EXPECT_EQ(in, out);
}

TEST(DgramMulticast, OtherAddressesAreRefused) {
  MULTICAST_NEEDED;
  Net net(1, with_multicast());
  const std::string group = group_name(6, free_port());
  fid_mc *mc = nullptr;
  EXPECT_LT(fi_join(net[0].ep, net[0].name().data(), 0, &mc, nullptr), 0) << "no group";
  EXPECT_EQ(fi_join(net[0].ep, group.data(), FI_PEEK, &mc, nullptr), -FI_EBADFLAGS);
  EXPECT_LT(fi_join(net[0].ep, nullptr, 0, &mc, nullptr), 0);
  EXPECT_LT(fi_join(net[0].ep, group.data(), 0, nullptr, nullptr), 0);
  Options deaf = with_multicast();
  deaf.event_queue = false;
  Net other(1, deaf);
  EXPECT_EQ(fi_join(other[0].ep, group.data(), 0, &mc, nullptr), -FI_ENOEQ);
  Net plain(1);
  EXPECT_LT(fi_join(plain[0].ep, group.data(), 0, &mc, nullptr), 0) << "without the capability";
  // FI_MULTICAST with an address that is no group's (fi_cm.3, fi_mc_addr).
  Bytes out(10);
  iovec iov{out.data(), 10};
  fi_msg message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = net.at(0, 0);
  EXPECT_LT(fi_sendmsg(net[0].ep, &message, FI_MULTICAST), 0);
}

}  // namespace
}  // namespace weft::conformance::dgram
