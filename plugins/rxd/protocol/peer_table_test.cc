// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/peer_table.h"

#include <gtest/gtest.h>
#include <weft/sdk/ip/sock_addr.h>

#include <algorithm>
#include <list>
#include <random>

#include "plugins/rxd/protocol/test_carrier.h"

namespace weft::rxd {
namespace {

sdk::Address at_port(unsigned port) {
  return *sdk::SockAddr::from_ip("10.0.0.1", uint16_t(port));
}

std::vector<uint32_t> numbers_by_age(const PeerTable &peers) {
  std::vector<uint32_t> numbers;
  for (const Peer *peer = peers.oldest(); peer != nullptr; peer = peer->newer)
    numbers.push_back(peer->number);
  return numbers;
}

TEST(PeerTable, APeerIsFoundByNumberIndexAndAddress) {
  PeerTable peers;
  Path path{};
  EXPECT_EQ(peers.of_number(0), nullptr);
  EXPECT_EQ(peers.of_number(1), nullptr);
  Peer &named = peers.add(at_port(1), path, 70'000), &other = peers.add(at_port(2), path, kNoIndex);
  EXPECT_EQ(named.path, &path);
  EXPECT_EQ(peers.of_number(named.number), &named);
  EXPECT_EQ(peers.at(70'000), &named);
  EXPECT_EQ(peers.find(at_port(1)), &named);
  EXPECT_EQ(peers.find(at_port(2)), &other);
  EXPECT_EQ(peers.find(at_port(3)), nullptr);
  EXPECT_EQ(peers.unnamed(), 1U);
  peers.name(other, 5);
  EXPECT_EQ(peers.at(5), &other);
  EXPECT_EQ(peers.unnamed(), 0U);
  peers.unname(named);
  EXPECT_EQ(peers.at(70'000), nullptr);
  EXPECT_EQ(peers.oldest(), &named);
  const uint32_t number = other.number;
  peers.remove(other);
  EXPECT_EQ(peers.at(5), nullptr);
  EXPECT_EQ(peers.find(at_port(2)), nullptr);
  EXPECT_EQ(peers.of_number(number), nullptr);
  EXPECT_EQ(peers.size(), 1U);
  EXPECT_EQ(peers.add(at_port(4), path, kNoIndex).number, number) << "numbers are used again";
}

TEST(PeerTable, WhoWasHeardOfGoesLast) {
  PeerTable peers;
  Path path{};
  Peer &a = peers.add(at_port(1), path, kNoIndex), &b = peers.add(at_port(2), path, kNoIndex),
       &c = peers.add(at_port(3), path, kNoIndex), &named = peers.add(at_port(4), path, 9);
  EXPECT_EQ(numbers_by_age(peers), (std::vector{a.number, b.number, c.number}));
  peers.heard_of(b);
  peers.heard_of(named);
  EXPECT_EQ(numbers_by_age(peers), (std::vector{a.number, c.number, b.number}));
  peers.heard_of(a);
  peers.heard_of(a);
  EXPECT_EQ(numbers_by_age(peers), (std::vector{c.number, b.number, a.number}));
}

TEST(PeerTable, UnprovenPeersComeOutInOrderUnlessTheyAreGone) {
  PeerTable peers;
  Path path{};
  Peer &a = peers.add(at_port(1), path, kNoIndex), &b = peers.add(at_port(2), path, kNoIndex);
  peers.add_unproven(a);
  peers.add_unproven(b);
  EXPECT_EQ(peers.unproven(), 2U);
  peers.remove(a);
  EXPECT_EQ(peers.take_unproven(), nullptr);
  EXPECT_EQ(peers.take_unproven(), &b);
  EXPECT_EQ(peers.unproven(), 0U);
}

TEST(PeerTable, AgreesWithAModel) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    PeerTable peers;
    Path path{};
    struct Known {
      Peer *peer;
      unsigned port;
      uint32_t index;
    };
    std::list<Known> model;  // those without an index by age
    for (int i = 0; i < 300; ++i) {
      const auto port = unsigned(1 + random() % 20);
      const auto known = std::ranges::find(model, port, &Known::port);
      if (known == model.end()) {
        const uint32_t index = random() % 2 == 0 ? port : kNoIndex;
        model.push_back({&peers.add(at_port(port), path, index), port, index});
      } else if (random() % 3 == 0) {
        peers.remove(*known->peer);
        model.erase(known);
      } else if (known->index != kNoIndex) {
        peers.unname(*known->peer);
        known->index = kNoIndex;
        model.splice(model.end(), model, known);
      } else if (random() % 2 == 0) {
        peers.name(*known->peer, port);
        known->index = port;
      } else {
        peers.heard_of(*known->peer);
        model.splice(model.end(), model, known);
      }
      std::vector<uint32_t> by_age;
      for (const Known &k : model) {
        EXPECT_EQ(peers.find(at_port(k.port)), k.peer);
        EXPECT_EQ(peers.of_number(k.peer->number), k.peer);
        EXPECT_EQ(k.peer->index, k.index);
        EXPECT_EQ(peers.at(k.port), k.index != kNoIndex ? k.peer : nullptr);
        if (k.index == kNoIndex) by_age.push_back(k.peer->number);
      }
      EXPECT_EQ(numbers_by_age(peers), by_age);
      EXPECT_EQ(peers.unnamed(), by_age.size());
      EXPECT_EQ(peers.size(), model.size());
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace weft::rxd
