// SPDX-License-Identifier: BSD-2-Clause
// Peers of this host and others behind one endpoint: each is reached in its way, their messages
// meet the same receives, and counters say which way was taken. A process without memory
// (FI_LINK_LOCAL=0) stands for one of another host.
#include <algorithm>
#include <vector>

#include "plugins/link/test_peers.h"

namespace weft::conformance::rdm {
namespace {

TEST(Link, EachPeerIsReachedInItsWay) {
  if (!in_fresh_process()) return;
  covers("link: local and network peers");
  Child local([](int socket) { echo(socket, Kind::kLocal); });
  Child far([](int socket) { echo(socket, Kind::kFar); });
  Child stranger([](int socket) { echo(socket, Kind::kStranger); });
  Here here;
  const fi_addr_t to_local = introduce(here, local), to_far = introduce(here, far),
                  to_stranger = introduce(here, stranger);
  EXPECT_EQ(ways_of(here.node), Ways{}) << "nothing is decided before it is needed";
  for (const size_t size : {size_t(1), size_t(100), size_t(20'000), size_t(300'000)}) {
    SCOPED_TRACE(size);
    for (const fi_addr_t from : {to_local, FI_ADDR_UNSPEC}) exchange(here, to_local, size, from);
    for (const fi_addr_t from : {to_far, FI_ADDR_UNSPEC}) exchange(here, to_far, size, from);
    for (const fi_addr_t from : {to_stranger, FI_ADDR_UNSPEC})
      exchange(here, to_stranger, size, from);
  }
  EXPECT_EQ(ways_of(here.node), (Ways{8, 16, 1, 2}));
  for (const fi_addr_t to : {to_local, to_far, to_stranger}) exchange(here, to, 0, to);
  EXPECT_EQ(hear(local.socket()), 1u) << "it answered through memory";
  EXPECT_EQ(hear(far.socket()), 0u);
  for (Child *const child : {&local, &far, &stranger}) child->join();
}

// Messages of both ways are in the order in which they came, whatever receives them.
TEST(Link, ReceivesTakeTheMessagesOfBothInOrder) {
  if (!in_fresh_process()) return;
  covers("link: unexpected messages of both ways, FI_PEEK, FI_DISCARD, fi_cancel");
  Child local([](int socket) { echo(socket, Kind::kLocal); });
  Child far([](int socket) { echo(socket, Kind::kFar); });
  Here here;
  const fi_addr_t to[] = {introduce(here, local), introduce(here, far)};
  std::vector<uint8_t> out(100), in(100);
  const auto peek = [&](uint64_t tag, uint64_t flags = 0) {
    Completion got;
    EXPECT_TRUE(here.until([&] {
      fi_msg_tagged msg{};
      msg.addr = FI_ADDR_UNSPEC;
      msg.tag = tag;
      msg.context = &in;
      must(fi_trecvmsg(here.node.ep, &msg, FI_PEEK | flags));
      got = here.wait(here.node.rx_cq);
      return got.err == 0;
    }));
    return got;
  };
  constexpr uint64_t kCount = 8;
  for (uint64_t i = 0; i < kCount; ++i) {  // by turns; each is there before the next one is sent
    here.post(
        [&] { return fi_tsend(here.node.ep, out.data(), i + 1, nullptr, to[i % 2], i, &out); });
    EXPECT_EQ(here.wait(here.node.tx_cq).err, 0);
    const Completion seen = peek(i);
    EXPECT_EQ(seen.len, i + 1);
    EXPECT_EQ(seen.source, to[i % 2]);
  }
  EXPECT_EQ(peek(3, FI_DISCARD).len, 4u);
  for (uint64_t i = 0; i < kCount; ++i) {
    if (i == 3) continue;
    must(fi_trecv(here.node.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 0, ~0ull, &in));
    const Completion got = here.wait(here.node.rx_cq);
    EXPECT_EQ(got.tag, i);
    EXPECT_EQ(got.source, to[i % 2]);
  }
  // None is left, so this one waits, and can be taken back.
  must(fi_trecv(here.node.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 0, ~0ull, &in));
  must(fi_cancel(here.node.ep.fid(), &in));
  EXPECT_EQ(here.wait(here.node.rx_cq).err, FI_ECANCELED);
  for (const fi_addr_t one : to) exchange(here, one, 0, FI_ADDR_UNSPEC);
  for (Child *const child : {&local, &far}) {
    hear(child->socket());
    child->join();
  }
}

TEST(Link, OneBufferTakesTheMessagesOfBoth) {
  RDM_NEEDS(FI_MULTI_RECV);
  if (!in_fresh_process()) return;
  Child local([](int socket) { echo(socket, Kind::kLocal); });
  Child far([](int socket) { echo(socket, Kind::kFar); });
  Here here;
  const fi_addr_t to[] = {introduce(here, local), introduce(here, far)};
  std::vector<uint8_t> buffer(10'000);
  post_multi(here.node.ep, buffer);
  const uint8_t *at = buffer.data();
  for (size_t i = 0; i < 6; ++i) {
    const std::vector<uint8_t> out = pattern(100 + i, unsigned(i));
    here.post([&] {
      return fi_tsend(here.node.ep, out.data(), out.size(), nullptr, to[i % 2], kUntagged, nullptr);
    });
    EXPECT_EQ(here.wait(here.node.tx_cq).err, 0);
    const Completion got = here.wait(here.node.rx_cq);
    EXPECT_EQ(got.context, &buffer);
    EXPECT_EQ(got.source, to[i % 2]);
    ASSERT_EQ(got.buf, at);
    ASSERT_EQ(got.len, out.size());
    EXPECT_TRUE(std::equal(out.begin(), out.end(), at));
    at += got.len;
  }
  for (const fi_addr_t one : to) exchange(here, one, 0, FI_ADDR_UNSPEC);
  for (Child *const child : {&local, &far}) {
    hear(child->socket());
    child->join();
  }
}

// The network chooses the keys (FI_MR_PROV_KEY), and memory takes them.
TEST(Link, KeysOfTheNetworkHoldInMemory) {
  RDM_NEEDS(FI_RMA);
  covers("link: keys of regions");
  Options options;
  options.caps |= FI_RMA;
  options.domain_mr_mode = FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
  std::vector<uint8_t> one(100), other(100), out = pattern(100, 1);
  Net net(2, options);
  fid_mr *const first = net[0].expose(one.data(), one.size(), FI_REMOTE_WRITE, 7);
  fid_mr *const second = net[0].expose(other.data(), other.size(), FI_REMOTE_WRITE, 7);
  EXPECT_NE(fi_mr_key(first), fi_mr_key(second)) << "what the application asks for is not heeded";
  net.post([&] {
    return fi_write(net[1].ep, out.data(), out.size(), nullptr, net.at(1, 0),
                    net[0].base_of(other.data()), fi_mr_key(second), &out);
  });
  EXPECT_EQ(net.wait(net[1].tx_cq).err, 0);
  EXPECT_EQ(other, out);
  EXPECT_EQ(one, std::vector<uint8_t>(100));
  EXPECT_EQ(ways_of(net[1]).local, 1u);
}

// An operation that waits in memory is found by fi_cancel, and what has a fence waits for it.
TEST(Link, FencesAndCancelsReachMemory) {
  RDM_NEEDS(FI_RMA | FI_FENCE);
  covers("link: FI_FENCE, fi_cancel");
  Options options;
  options.caps |= FI_RMA | FI_FENCE;
  std::vector<uint8_t> longer(300'000), in(300'000), also(300'000), out = pattern(8, 1), got(8),
                                                                    memory(8);
  Net net(3, options);
  fid_mr *const region = net[2].expose(memory.data(), memory.size(), FI_REMOTE_WRITE, 7);
  must(fi_trecv(net[1].ep, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, 2, 0, &got));
  for (const size_t peer : {1, 2})
    net.post([&] {  // nobody receives it yet
      return fi_tsend(net[0].ep, longer.data(), longer.size(), nullptr, net.at(0, peer), 1,
                      &longer);
    });
  iovec iov{out.data(), out.size()};
  const fi_msg_tagged message{
      .msg_iov = &iov, .iov_count = 1, .addr = net.at(0, 1), .tag = 2, .context = &out};
  net.post([&] { return fi_tsendmsg(net[0].ep, &message, FI_FENCE); });
  const fi_rma_iov to{net[2].base_of(memory.data()), memory.size(), fi_mr_key(region)};
  const fi_msg_rma access{.msg_iov = &iov,
                          .iov_count = 1,
                          .addr = net.at(0, 2),
                          .rma_iov = &to,
                          .rma_iov_count = 1,
                          .context = &out};
  net.post([&] { return fi_writemsg(net[0].ep, &access, FI_FENCE); });
  net.settle();
  EXPECT_FALSE(poll(net[1].rx_cq));
  EXPECT_NE(memory, out);
  EXPECT_EQ(fi_cancel(net[0].ep.fid(), &longer), 0);
  must(fi_trecv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
  must(fi_trecv(net[2].ep, also.data(), also.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &also));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  EXPECT_EQ(net.wait(net[2].rx_cq).err, 0);
  for (int i = 0; i < 4; ++i) {
    const Completion done = net.wait(net[0].tx_cq);
    EXPECT_TRUE(done.err == 0 || done.context == &longer) << done.err;
  }
  EXPECT_EQ(got, out);
  EXPECT_EQ(memory, out);
  EXPECT_EQ(ways_of(net[0]).local, 4u);
}

// What is under way toward it fails. Its name is free then; who takes it is reached as any other.
TEST(Link, AKilledPeerIsLost) {
  if (!in_fresh_process()) return;
  covers("link: errors of dead peers");
  std::vector<uint8_t> longer(300'000), out(8);
  Child local([](int socket) {
    Node node{Options()};
    tell_text(socket, node.name());
    node.insert(hear_text(socket));
    tell(socket, 1);
    for (;;) node.progress();
  });
  Child other([](int socket) { echo(socket, Kind::kLocal); });
  Here here;
  const fi_addr_t to = introduce(here, local), to_other = introduce(here, other);
  must(fi_tsend(here.node.ep, longer.data(), longer.size(), nullptr, to, 1, &longer));
  exchange(here, to_other, 100, to_other);
  EXPECT_EQ(ways_of(here.node), (Ways{2, 0, 2, 0}));
  local.kill();
  EXPECT_EQ(here.wait(here.node.tx_cq).err, FI_ECONNRESET);
  // Nobody has its address any more, on this host or by the network.
  here.post([&] { return fi_tsend(here.node.ep, out.data(), 8, nullptr, to, 1, &out); });
  EXPECT_NE(here.wait(here.node.tx_cq).err, 0);
  const Ways ways = ways_of(here.node);
  EXPECT_EQ(ways.peers_network, 1u) << "the way was decided anew";
  // The others notice nothing.
  exchange(here, to_other, 100, to_other);
  exchange(here, to_other, 0, to_other);
  hear(other.socket());
  other.join();
}

// A peer that is not there yet when the first operation toward it begins, and one that has started
// again, are found where they are.
TEST(Link, APeerThatComesLaterIsFound) {
  if (!in_fresh_process()) return;
  covers("link: peers that start late, and again");
  Child first([](int socket) { echo(socket, Kind::kLocal); });
  Child again([](int socket) { echo(socket, Kind::kLocal, true); });
  Here here;
  const std::string name = hear_text(first.socket());
  const fi_addr_t to = here.node.insert(name);
  tell_text(first.socket(), here.node.name());
  hear(first.socket());
  exchange(here, to, 100, to);
  EXPECT_EQ(ways_of(here.node), (Ways{1, 0, 1, 0}));
  first.kill();
  std::vector<uint8_t> out(8);
  const auto send = [&](bool silent) {
    here.post([&] {
      return silent ? fi_tinject(here.node.ep, out.data(), 8, to, 1)
                    : fi_tsend(here.node.ep, out.data(), 8, nullptr, to, 1, &out);
    });
    const Completion got = here.wait(here.node.tx_cq);
    EXPECT_EQ(got.context, silent ? here.node.ep->fid.context : &out) << "as of any endpoint";
    return got.err;
  };
  // What is sent before the loss is known is lost with it. Then nobody is at the address either.
  ASSERT_TRUE(here.until([&] { return send(false) != 0; }));
  EXPECT_NE(send(false), 0);
  EXPECT_NE(send(true), 0);
  const Ways gone = ways_of(here.node);
  EXPECT_GE(gone.peers_network, 2u) << "an error decides anew";
  // Another process has the address now.
  tell_text(again.socket(), name);
  EXPECT_EQ(hear_text(again.socket()), name);
  tell_text(again.socket(), here.node.name());
  hear(again.socket());
  exchange(here, to, 100, to);
  EXPECT_EQ(ways_of(here.node),
            (Ways{gone.local + 1, gone.network, gone.peers_local + 1, gone.peers_network}));
  exchange(here, to, 0, to);
  EXPECT_EQ(hear(again.socket()), 1u);
  again.join();
}

// One that was there without the layer, whose messages are under way, is never overtaken.
TEST(Link, APeerByTheNetworkStaysThere) {
  if (!in_fresh_process()) return;
  Child stranger([](int socket) { echo(socket, Kind::kStranger); });
  Here here;
  const fi_addr_t to = introduce(here, stranger);
  for (const size_t size : {size_t(1), size_t(300'000), size_t(100)}) exchange(here, to, size, to);
  // What reports nothing stays silent, and what is cancelled or fails by itself decides nothing.
  std::vector<uint8_t> out = pattern(8, 1), in(8);
  must(fi_trecv(here.node.ep, in.data(), in.size(), nullptr, to, 5, 0, &in));
  here.post([&] { return fi_tinject(here.node.ep, out.data(), out.size(), to, 5); });
  EXPECT_EQ(here.wait(here.node.rx_cq).context, &in);
  EXPECT_FALSE(poll(here.node.tx_cq));
  EXPECT_EQ(in, out);
  EXPECT_EQ(fi_cancel(here.node.ep.fid(), &out), -FI_ENOENT);
  EXPECT_EQ(ways_of(here.node), (Ways{0, 4, 0, 1}));
  exchange(here, to, 0, to);
  stranger.join();
}

}  // namespace
}  // namespace weft::conformance::rdm
