// SPDX-License-Identifier: BSD-2-Clause
// Endpoints that call each other in a World without faults, or with one: what peer_model_test.cc
// has from seeds, one by one.
#include <gtest/gtest.h>

#include "plugin-api/sdk/testing/test_peer_actors.h"
#include "plugin-api/sdk/testing/test_rounds.h"

namespace weft::sdk::peer_model {
namespace {

Endpoint::Settings settings_of(uint64_t seed) {
  Endpoint::Settings settings{.in_order = seed % 2 == 0};
  if (!settings.in_order)
    settings.rules = {.doubt_ns = 100 * kMs, .again_ns = 5 * kSec, .longest_pause_ns = 500 * kMs};
  return settings;
}

// Endpoints that have each other in their address vectors, each in a process of its host.
std::vector<Endpoint *> endpoints(World &world, size_t n, uint64_t seed) {
  std::vector<Endpoint *> all;
  for (size_t i = 0; i < n; ++i) {
    const auto host = unsigned(i + 1);
    all.push_back(
        &world.add<Endpoint>(host, world.new_process(), address_of(host, 1000), settings_of(seed)));
    EXPECT_TRUE(all.back()->open());
  }
  for (Endpoint *by : all)
    for (size_t i = 0; i < n; ++i) by->insert(all[i]->address(), uint32_t(i));
  return all;
}

TEST(PeerCalls, AllCallAllAtOnce) {
  for (uint64_t seed = 0; seed < rounds(900); ++seed) {
    SCOPED_TRACE(seed);
    const size_t n = seed % 3 != 0 ? 2 : 1 + seed % 6;
    World world(seed, seed % 4 < 2, kMs << seed % 8);
    const auto all = endpoints(world, n, seed);
    std::vector<std::pair<Endpoint *, int>> sent;
    for (Endpoint *from : all)
      for (Endpoint *to : all) sent.emplace_back(to, from->send(to->address()));
    world.run_for(20 * kSec);
    size_t i = 0;
    for (const Endpoint *from : all)
      for (const Endpoint *to : all) {
        EXPECT_TRUE(from->is_linked_with(*to) || from == to);
        EXPECT_TRUE(to->has_received(from->process(), sent[i++].second));
      }
    for (const Endpoint *endpoint : all) EXPECT_EQ(endpoint->failed(), 0);
    EXPECT_EQ(world.wires(), n * (n + 1) / 2);
    if (HasFailure()) return;
  }
}

// A thief is connected in the peer's name. It may know the peer's process number.
TEST(PeerCalls, ThePeerItselfGetsThePlaceThatAThiefTook) {
  for (uint64_t seed = 0; seed < rounds(300); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed, seed % 4 < 2, kMs << seed % 9);
    const auto all = endpoints(world, 2, seed);
    const size_t as = seed / 2 % 2;
    Endpoint &peer = *all[as], &victim = *all[1 - as];
    Thief &thief = world.add<Thief>(peer.host(), world.new_process());
    thief.claim(victim, peer.address(), seed % 3 == 0 ? peer.number() : 1, 0);
    world.run_for(5 * kSec);
    ASSERT_EQ(victim.peer_at(peer.address())->link.state(), State::kUp) << "nobody was asked";
    const int value = peer.send(victim.address());
    world.run_for(5 * kSec + 2 * victim.settings().rules.again_ns);
    EXPECT_TRUE(peer.is_linked_with(victim));
    EXPECT_TRUE(victim.has_received(peer.process(), value));
    EXPECT_EQ(peer.failed(), 0);
    if (HasFailure()) return;
  }
}

TEST(PeerCalls, AFalseClaimTakesNoPlace) {
  for (uint64_t seed = 0; seed < rounds(300); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed, seed % 4 < 2, kMs << seed % 8);
    const auto all = endpoints(world, 2, seed);
    all[0]->send(all[1]->address());
    world.run_for(2 * kSec);
    const WirePtr before = all[0]->peer_at(all[1]->address())->stream;
    ASSERT_NE(before, nullptr);
    Thief &thief = world.add<Thief>(1, world.new_process());
    for (uint64_t number = 1; number < 6; ++number) {
      thief.claim(*all[1], all[0]->address(), number == 5 ? all[0]->number() : number, 0);
      world.run_for(world.random.below(20 * kMs));
    }
    world.run_for(2 * kSec);
    EXPECT_EQ(all[0]->peer_at(all[1]->address())->stream, before);
    EXPECT_TRUE(all[0]->is_linked_with(*all[1]));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace weft::sdk::peer_model
