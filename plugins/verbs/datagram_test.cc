// SPDX-License-Identifier: BSD-2-Clause
// Datagram endpoints over the double.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "plugins/verbs/datagram_endpoint.h"
#include "plugins/verbs/test_datagrams.h"

namespace weft::verbs {
namespace {

TEST(VerbsDatagrams, AMessageArrivesBehindFortyBytes) {
  TestNode node;
  DatagramSide a(node), b(node);
  const fi_addr_t to_b = a.insert(b);
  DatagramBuffer in(b, 1000), out(a, 1000, "hello");
  ASSERT_EQ(fi_recv(b.ep, in.start(), in.size(), in.desc(), 0, &in), 0);
  ASSERT_EQ(fi_send(a.ep, out.start(), out.length(900), out.desc(), to_b, &out), 0);
  const auto received = b.completion(), sent = a.completion();
  EXPECT_EQ(received.entry.op_context, &in);
  EXPECT_EQ(received.entry.flags, uint64_t(FI_RECV | FI_MSG));
  EXPECT_EQ(received.entry.len, kDatagramHeader + 900);
  EXPECT_EQ(in.text(5), "hello");
  EXPECT_EQ(sent.entry.op_context, &out);
  EXPECT_EQ(sent.entry.flags, uint64_t(FI_SEND | FI_MSG));
}

TEST(VerbsDatagrams, InjectsAndData) {
  TestNode node;
  DatagramSide a(node), b(node);
  const fi_addr_t to_b = a.insert(b);
  DatagramBuffer in(b, 100), more(b, 100);
  ASSERT_EQ(fi_recv(b.ep, in.start(), in.size(), in.desc(), 0, &in), 0);
  ASSERT_EQ(fi_recv(b.ep, more.start(), more.size(), more.desc(), 0, &more), 0);
  char message[kDatagramHeader + 2000] = {};
  std::memcpy(message + kDatagramHeader, "inline", 6);
  ASSERT_EQ(fi_inject(a.ep, message, kDatagramHeader + 6, to_b), 0);
  ASSERT_EQ(fi_injectdata(a.ep, message, kDatagramHeader, 0x1122334455667788, to_b), 0);
  EXPECT_EQ(b.completion().entry.len, kDatagramHeader + 6);
  EXPECT_EQ(in.text(6), "inline");
  const auto empty = b.completion();
  EXPECT_EQ(empty.entry.len, kDatagramHeader);
  EXPECT_EQ(empty.entry.data, 0x55667788u);
  EXPECT_EQ(empty.entry.flags, uint64_t(FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA));
  EXPECT_FALSE(a.try_completion());
  const size_t most = a.info->tx_attr->inject_size;
  EXPECT_EQ(fi_inject(a.ep, message, kDatagramHeader + most, to_b), 0);
  EXPECT_EQ(fi_inject(a.ep, message, kDatagramHeader + most + 1, to_b), -FI_EMSGSIZE);
}

TEST(VerbsDatagrams, TheLargestIsThePathsMtuAndThePrefixDoesNotCount) {
  TestNode node;
  DatagramSide a(node), b(node);
  const size_t most = a.info->ep_attr->max_msg_size;
  EXPECT_EQ(most, 4096u);
  EXPECT_EQ(a.info->ep_attr->msg_prefix_size, kDatagramHeader);
  const fi_addr_t to_b = a.insert(b);
  DatagramBuffer in(b, most), out(a, most + 1, "x");
  ASSERT_EQ(fi_recv(b.ep, in.start(), in.size(), in.desc(), 0, &in), 0);
  EXPECT_EQ(fi_send(a.ep, out.start(), out.length(most + 1), out.desc(), to_b, nullptr),
            -FI_EMSGSIZE);
  ASSERT_EQ(fi_send(a.ep, out.start(), out.length(most), out.desc(), to_b, nullptr), 0);
  EXPECT_EQ(b.completion().entry.len, kDatagramHeader + most);
  EXPECT_EQ(a.completion().entry.flags, uint64_t(FI_SEND | FI_MSG));
}

TEST(VerbsDatagrams, VectorsHaveThePrefixInTheFirst) {
  TestNode node;
  DatagramSide a(node), b(node);
  const fi_addr_t to_b = a.insert(b);
  DatagramBuffer in(b, 100), out(a, 1000, "prefix only, and more");
  iovec first[] = {{in.start(), kDatagramHeader}, {in.start() + kDatagramHeader, 50}};
  void *descs[] = {in.desc(), in.desc()};
  ASSERT_EQ(fi_recvv(b.ep, first, descs, 2, 0, &in), 0);
  iovec pieces[] = {{out.start(), kDatagramHeader + 7}, {out.start() + kDatagramHeader + 13, 8}};
  void *out_descs[] = {out.desc(), out.desc()};
  ASSERT_EQ(fi_sendv(a.ep, pieces, out_descs, 2, to_b, nullptr), 0);
  EXPECT_EQ(b.completion().entry.len, kDatagramHeader + 15);
  EXPECT_EQ(in.text(15), "prefix and more");
  pieces[0].iov_len = kDatagramHeader - 1;
  pieces[1].iov_len = 100;
  EXPECT_EQ(fi_sendv(a.ep, pieces, out_descs, 2, to_b, nullptr), -FI_EINVAL);
  first[0].iov_len = 1;
  EXPECT_EQ(fi_recvv(b.ep, first, descs, 2, 0, &in), -FI_EINVAL);
  EXPECT_EQ(fi_send(a.ep, out.start(), kDatagramHeader - 1, out.desc(), to_b, nullptr), -FI_EINVAL);
}

TEST(VerbsDatagrams, TheSourceIsNamed) {
  TestNode node;
  DatagramSide a(node), b(node), c(node);
  const fi_addr_t a_to_c = a.insert(c), b_to_c = b.insert(c);
  const fi_addr_t b_at_c = c.insert(b);
  DatagramBuffer in(c, 100);
  char message[kDatagramHeader + 1] = {};
  const auto source = [&](DatagramSide &from, fi_addr_t to) {
    EXPECT_EQ(fi_recv(c.ep, in.start(), in.size(), in.desc(), 0, &in), 0);
    EXPECT_EQ(fi_inject(from.ep, message, sizeof message, to), 0);
    return c.completion().source;
  };
  EXPECT_EQ(source(b, b_to_c), b_at_c);
  EXPECT_EQ(source(a, a_to_c), FI_ADDR_NOTAVAIL);
  const fi_addr_t a_at_c = c.insert(a);
  EXPECT_EQ(source(a, a_to_c), a_at_c);
  EXPECT_EQ(source(b, b_to_c), b_at_c);
  fi_addr_t gone = b_at_c;
  ASSERT_EQ(fi_av_remove(c.av, &gone, 1, 0), 0);
  EXPECT_EQ(source(b, b_to_c), FI_ADDR_NOTAVAIL);
}

ibv_gid_entry gid_at(uint32_t index, const char *text, uint32_t type = IBV_GID_TYPE_ROCE_V2) {
  ibv_gid_entry entry{};
  EXPECT_EQ(inet_pton(AF_INET6, text, entry.gid.raw), 1);
  entry.gid_index = index;
  entry.gid_type = type;
  return entry;
}

TEST(VerbsDatagrams, AGidThatRoutersPassOn) {
  const ibv_gid_entry local = gid_at(0, "fe80::1"), global = gid_at(2, "2001:db8::1"),
                      ipv4 = gid_at(3, "::ffff:10.0.0.1"),
                      old = gid_at(1, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V1);
  EXPECT_EQ(routable_gid_index({local, old, global, ipv4}), 3);
  EXPECT_EQ(routable_gid_index({local, old, global}), 2);
  EXPECT_EQ(routable_gid_index({local, old}), 0);
  EXPECT_EQ(routable_gid_index({gid_at(4, "2001:db8::1", IBV_GID_TYPE_IB)}), 4);
  EXPECT_EQ(routable_gid_index({}), 0);

  TestNode node;
  DatagramOptions options;
  options.settings.gid_index = std::nullopt;
  DatagramSide a(node, options), b(node);
  EXPECT_TRUE(a.name().is_ipv4());
  EXPECT_FALSE(b.name().is_ipv4());
  // Each knows the other, though their names are of two kinds.
  const fi_addr_t to_b = a.insert(b), to_a = b.insert(a);
  DatagramBuffer at_a(a, 10), at_b(b, 10);
  ASSERT_EQ(fi_recv(a.ep, at_a.start(), at_a.size(), at_a.desc(), 0, &at_a), 0);
  ASSERT_EQ(fi_recv(b.ep, at_b.start(), at_b.size(), at_b.desc(), 0, &at_b), 0);
  char message[kDatagramHeader + 1] = {};
  ASSERT_EQ(fi_inject(a.ep, message, sizeof message, to_b), 0);
  EXPECT_EQ(b.completion().entry.op_context, &at_b);
  ASSERT_EQ(fi_inject(b.ep, message, sizeof message, to_a), 0);
  EXPECT_EQ(a.completion().entry.op_context, &at_a);
}

TEST(VerbsDatagrams, AHandleIsMadeForAPeerThatIsUsed) {
  TestNode node;
  DatagramSide a(node), b(node);
  std::vector<fi_addr_t> peers;
  for (int i = 0; i < 100; ++i) peers.push_back(a.insert(b));
  EXPECT_EQ(node.network.calls("ibv_create_ah"), 0u);
  char message[kDatagramHeader + 1] = {};
  for (int i = 0; i < 3; ++i) ASSERT_EQ(fi_inject(a.ep, message, sizeof message, peers[7]), 0);
  ASSERT_EQ(fi_inject(a.ep, message, sizeof message, peers[99]), 0);
  EXPECT_EQ(node.network.calls("ibv_create_ah"), 2u);
  ASSERT_EQ(fi_av_remove(a.av, &peers[7], 1, 0), 0);
  EXPECT_EQ(fi_inject(a.ep, message, sizeof message, peers[7]), -FI_EINVAL);
  EXPECT_EQ(fi_inject(a.ep, message, sizeof message, 12345), -FI_EINVAL);
  EXPECT_EQ(fi_inject(a.ep, message, sizeof message, FI_ADDR_UNSPEC), -FI_EINVAL);
  // The index leads to the new peer.
  EXPECT_EQ(a.insert(b), peers[7]);
  ASSERT_EQ(fi_inject(a.ep, message, sizeof message, peers[7]), 0);
}

}  // namespace
}  // namespace weft::verbs
