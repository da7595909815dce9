// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/peers.h"

#include <gtest/gtest.h>
#include <weft/sdk/ip/sock_addr.h>

namespace weft::rxm {
namespace {

sdk::Address address(uint16_t port) {
  return sdk::SockAddr::loopback(AF_INET, port);
}

TEST(Peers, APeerIsFoundByEachOfItsNames) {
  Peers peers;
  EXPECT_EQ(peers.find(address(1)), nullptr);
  Peer &p = peers.get(address(1)), &other = peers.get(address(2));
  EXPECT_EQ(&peers.get(address(1)), &p);
  EXPECT_EQ(peers.find(address(2)), &other);
  EXPECT_NE(p.source(), other.source());
  EXPECT_EQ(peers.of_source(p.source()), &p);
  EXPECT_EQ(peers.of_source(7), nullptr) << "an index of the address vector";
  peers.set_index(p, 7);
  EXPECT_EQ(peers.at(7), &p);
  EXPECT_EQ(p.source(), 7u);
  peers.set_index(p, kNoIndex);
  EXPECT_EQ(peers.at(7), nullptr);
  EXPECT_EQ(peers.of_source(p.source()), &p);
  peers.set_index(other, 7);
  EXPECT_EQ(peers.at(7), &other) << "the index belongs to the next one";
  peers.erase(other);
  EXPECT_EQ(peers.at(7), nullptr);
  EXPECT_EQ(peers.find(address(2)), nullptr);
  EXPECT_EQ(peers.objects(), 1u);
}

// Whatever its connections, a stranger has one source.
TEST(Peers, AStrangerKeepsItsSource) {
  Peers peers;
  Peer &p = peers.get(address(1));
  const uint32_t source = p.source();
  Connection &first = peers.connect(p), &second = peers.connect(p);
  EXPECT_NE(first.slot(), second.slot());
  EXPECT_EQ(peers.in_slot(first.slot()), &first);
  peers.erase(first);
  EXPECT_EQ(peers.in_slot(0), nullptr);
  EXPECT_EQ(p.source(), source);
  Connection &third = peers.connect(peers.get(address(2)));
  EXPECT_EQ(third.slot(), 0u) << "slots are used again";
  EXPECT_NE(third.peer().source(), source);
  EXPECT_EQ(peers.objects(), 2u);
  peers.erase(second);
  EXPECT_EQ(peers.objects(), 2u) << "a peer without a connection is one object";
  EXPECT_EQ(peers.in_slot(99), nullptr);
}

TEST(Peers, StrangersAreCountedAsTheyGetAndLoseNames) {
  Peers peers;
  Peer &p = peers.get(address(1)), &other = peers.get(address(2));
  peers.set_index(other, 3);
  const auto expect = [&](size_t connected, size_t buffers, uint64_t charged) {
    EXPECT_EQ(peers.strangers().connected, connected);
    EXPECT_EQ(peers.strangers().buffers, buffers);
    EXPECT_EQ(peers.strangers().charged, charged);
  };
  for (Peer *one : {&p, &other}) {
    Connection &link = peers.connect(*one), &probe = peers.connect(*one);
    peers.opened(link);
    peers.opened(probe);
    peers.add_buffers(*one, 2);
    peers.add_bytes(*one, 100);
  }
  expect(1, 2, 100);
  peers.set_index(other, kNoIndex);
  expect(2, 4, 200);
  peers.set_index(p, 4);
  expect(1, 2, 100);
  peers.add_buffers(other, -1);
  peers.add_bytes(other, -100);
  expect(1, 1, 0);
  for (Connection *c : peers.connections())
    if (&c->peer() == &other) peers.closed(*c);
  expect(0, 1, 0);
}

}  // namespace
}  // namespace weft::rxm
