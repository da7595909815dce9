// SPDX-License-Identifier: BSD-2-Clause
// Simulated endpoints of rxd in simulated time. A seed decides which datagrams are lost, delayed,
// duplicated, reordered and damaged. Every byte and every completion is checked.
//
// Example (statements):
//    World world(/*seed=*/7);
//    world.weather = {.loss = 10, .jitter = 50'000};  // per thousand; ns
//    Node &a = world.add(0, patient()), &b = world.add(1, patient());
//    b.post(1000, /*tagged=*/true);
//    a.send(b.number(), 1000, {.tagged = true});
//    // A send may end before its message is in the receive: wait for both.
//    bool ended = world.run_until(
//        [&] { return world.all_ended() && b.received.size() == 1; }, 60'000'000'000);
//    world.check(/*all_well=*/ended);
//
// The memory of a sent datagram is read at the flush and no earlier, and receive buffers are
// overwritten as soon as they are released: so accesses to memory that is not owned any more are
// found. Not for performance: calls take no simulated time.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_SIMULATION_H
#define WEFT_PLUGINS_RXD_PROTOCOL_SIMULATION_H

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "plugins/rxd/protocol/simulation_node.h"
#include "plugins/rxd/protocol/simulation_world.h"

namespace weft::rxd {

inline World::~World() {
  nodes.clear();
}

inline Node &World::add(size_t number, const Settings &settings) {
  if (nodes.size() <= number) {
    nodes.resize(number + 1);
    lives.resize(number + 1);
  }
  nodes[number] = std::make_unique<Node>(*this, number, ++lives[number], settings);
  return *nodes[number];
}

inline void World::kill(size_t number) {
  // The datagrams of its destructor are lost.
  for (size_t i = 0; i < lives.size(); ++i) cut.insert({number, i});
  for (Operation &o : operations)
    if (o.from == number && o.ended == 0) o.gone = true;
  ++lives[number];
  nodes[number].reset();
  for (size_t i = 0; i < lives.size(); ++i) cut.erase({number, i});
}

inline void World::carry(size_t from, const sdk::Address &address, std::vector<uint8_t> bytes) {
  static const bool traces = std::getenv("TRACE") != nullptr;
  const size_t to = number_of(address);
  ++datagrams;
  const auto trace = [&](const char *what) {
    if (traces)
      std::fprintf(stderr, "%.3f ms: %zu to %zu%s: %s\n", double(now) / 1e6, from, to, what,
                   text_of(bytes, format).c_str());
  };
  if (spy && !spy(from, to, bytes)) return;
  if (cut.count({from, to}) != 0) return trace(", lost");
  const auto way = ways.find({from, to});
  const Weather &w = way != ways.end() ? way->second : weather;
  if (bytes.size() > w.path_mtu || chance(w.loss)) return trace(", lost");
  for (int copies = chance(w.doubled) ? 2 : 1; copies > 0; --copies) {
    std::vector<uint8_t> copy = bytes;
    const bool damages = !copy.empty() && chance(w.damaged);
    if (damages) copy[some(copy.size())] ^= uint8_t(1U << some(8));
    trace(damages ? ", damaged" : "");
    after(w.delay + some(w.jitter),
          [this, from, to, copy = std::move(copy)] { arrive(from, to, copy); });
  }
}

inline void World::arrive(size_t from, size_t to, const std::vector<uint8_t> &bytes) {
  if (Node *n = node(to)) return n->arrive(from, bytes);
  if (told == 0 || !chance(told)) return;
  after(weather.delay, [this, from, to, bytes] {
    if (Node *n = node(from)) n->unreachable(to, bytes);
  });
}

inline void World::check(bool all_well) {
  for (auto &n : nodes)
    if (n != nullptr) n->reap();
  std::map<size_t, uint64_t> added;
  std::map<size_t, std::set<uint64_t>> fetched;
  for (size_t id = 0; id < operations.size(); ++id) {
    const Operation &o = operations[id];
    EXPECT_TRUE(o.gone || o.ended == 1) << "operation " << id;
    EXPECT_TRUE(!all_well || o.err == 0) << "operation " << id << ": " << o.err;
    EXPECT_LE(o.arrived, 1);
    const bool target_lives = lives[o.to] == o.target_life;
    EXPECT_TRUE(!o.sure || !target_lives || o.gone || o.err != 0 || o.arrived == 1)
        << "operation " << id << " ended well, and has not arrived";
    EXPECT_TRUE(o.kind != TxOp::Kind::kMessage || !all_well || o.arrived == 1)
        << "operation " << id << " of " << o.length << " bytes";
    if (o.kind == TxOp::Kind::kAtomic && o.err == 0 && !o.gone && target_lives) {
      EXPECT_TRUE(fetched[o.to].insert(o.value).second) << "executed once";
      ++added[o.to];
    }
  }
  for (auto &n : nodes) {
    if (n == nullptr) continue;
    if (all_well) {
      EXPECT_EQ(n->counter, added[n->number()]);
      EXPECT_EQ(n->broken, 0U);
      EXPECT_EQ(n->warnings, 0U) << n->last_warning;
    }
    // Receives were posted in order, and each takes any message: so the messages of one sender must
    // be in them in order.
    std::sort(n->received.begin(), n->received.end());
    std::map<std::pair<size_t, bool>, uint64_t> last;
    for (const auto &[receive, id] : n->received) {
      const Operation &o = operations[id];
      auto [it, first] = last.emplace(std::pair{o.from, o.tagged}, id);
      if (!first) {
        EXPECT_LT(it->second, id) << "out of order";
        it->second = id;
      }
    }
  }
}

}  // namespace weft::rxd

#endif
