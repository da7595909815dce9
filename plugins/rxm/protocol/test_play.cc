// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/test_play.h"

#include <algorithm>

#include "plugin-api/sdk/testing/test_seeds.h"

namespace weft::rxm {

namespace {

// As many seeds as WEFT_SEEDS says, from WEFT_FIRST_SEED on (plugin-api/sdk/testing/test_seeds.h).
auto seeds(unsigned usual) {
  const auto first = int(sdk::number_of("WEFT_FIRST_SEED", 0));
  return ::testing::Range(first, first + int(sdk::number_of("WEFT_SEEDS", sdk::rounds(usual))));
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Some, Seeds, seeds(60));
INSTANTIATE_TEST_SUITE_P(Some, ManySeeds, seeds(200));

Play::Play(unsigned seed, const Script &script) : world(seed), script_(script) {
  settings_.eager_limit = 512;
  settings_.sar_limit = 2048;
  settings_.rendezvous_write = script.write;
  settings_.tx_size = 64;
  settings_.iov_limit = 2 + seed % 4;
  settings_.unexpected_limit = 20000;
  settings_.connect_timeout_ns = script.connect_timeout_ns;
  settings_.credits = settings_.asker_first = script.credits;
  settings_.receive_count = script.credits ? 8 : 12;
  settings_.max_connections = script.max_connections;
  settings_.owed_limit = script.owed_limit;
  settings_.inject_limit = script.inject_limit;
  settings_.max_controls = script.max_controls;
  settings_.max_segments = script.max_segments;
  settings_.max_strangers = script.max_strangers;
  sent.reserve(1 << 14);
  for (size_t i = 0; i < script.peers; ++i) start(i);
}

Play::~Play() {
  for (size_t i = 0; i < nodes.size(); ++i) stop(i);
}

void Play::start(size_t i) {
  if (nodes.size() <= i) nodes.resize(i + 1);
  settings_.bare = script_.bare == Bare::kAll || (script_.bare == Bare::kSome && world.chance(50));
  nodes[i] =
      std::make_unique<Node>(world, i, ++processes_, settings_, sent, script_.stock && i % 2 == 1);
  nodes[i]->allow_warnings = script_.failures;
}

void Play::stop(size_t i) {
  if (nodes[i] == nullptr) return;
  *nodes[i]->alive_ = false;
  for (Sent &s : sent) s.gone = s.gone || (s.from == i && s.ended == 0);
  broken += nodes[i]->broken;
  world.silent = script_.names && world.chance(50);
  nodes[i].reset();
  world.silent = false;
}

void Play::tell_of_the_dead() {
  for (size_t i = 0; i < world.links.size(); ++i) {
    Link &link = *world.links[i];
    if (link.owner == nullptr || link.other == nullptr || link.other->open) continue;
    if (std::exchange(link.open, false)) link.node->core().on_closed(*link.owner, FI_ECONNRESET);
  }
}

void Play::act() {
  const size_t who = world.some(nodes.size());
  if (nodes[who] == nullptr) {
    if (world.chance(30)) start(who);
    return;
  }
  Node &node = *nodes[who];
  static constexpr size_t kSizes[] = {0, 1, 64, 65, 448, 512, 513, 1024, 2048, 2049, 5000};
  const unsigned what = unsigned(world.some(100));
  if (what < 45) {
    node.send(world.some(nodes.size()), kSizes[world.some(std::size(kSizes))], world.chance(70),
              unsigned(world.some(Node::kKinds)));
  } else if (what < 85) {
    node.post(world.chance(10) ? 300 : 5000, world.chance(70));
  } else if (what < 90) {
    results_.push_back(0);
    node.add(world.some(nodes.size()), &results_.back(), Node::kCounterKey);
  } else if (what < 92 && script_.failures) {
    stop(who);
  } else if (what < 96 && script_.names) {
    const size_t whom = world.some(nodes.size());
    node.knows(whom) ? node.forget(whom) : node.introduce(whom);
  }
}

void Play::turn() {
  for (auto &node : nodes) {
    if (node == nullptr) continue;
    node->core().begin_pass();
    node->core().poll();
    node->reap();
    node->expect_named();
  }
}

void Play::settle() {
  world.eagain = 0;
  for (int i = 0; i < 3; ++i) {
    turn();
    while (world.step()) turn();
  }
}

void play(Play &run, int actions) {
  for (int i = 0; i < actions; ++i) {
    run.act();
    for (uint64_t n = run.world.some(6); n-- > 0 && run.world.step();) run.turn();
    run.turn();
    if (::testing::Test::HasFatalFailure()) return;
  }
}

void receive_all(Play &run) {
  run.settle();
  const auto waits = [&run] {
    return std::ranges::any_of(run.nodes, [](const auto &node) {
      return node != nullptr && (node->saved() != 0 || node->core().in_flight() != 0);
    });
  };
  for (size_t n = 0; n < 400 && (n < 40 || waits()); ++n) {
    for (auto &node : run.nodes) {
      if (node == nullptr) continue;
      for (int k = 0; k < 5; ++k) {
        node->post(5000, true);
        node->post(5000, false);
      }
    }
    run.settle();
  }
}

Script script_of(int seed) {
  static constexpr Bare kBare[] = {Bare::kNobody, Bare::kSome, Bare::kSome, Bare::kAll, Bare::kAll};
  return {.peers = size_t(2 + seed % 7),
          .write = seed % 2 != 0,
          .credits = seed % 3 == 0,
          .bare = kBare[seed % 5]};
}

void expect_nothing_left(Play &run) {
  for (size_t n = 0; n < run.nodes.size(); ++n) {
    if (run.nodes[n] == nullptr) continue;
    EXPECT_EQ(run.nodes[n]->core().in_flight(), 0u) << n;
    EXPECT_FALSE(run.nodes[n]->core().has_queued()) << n;
    EXPECT_EQ(run.nodes[n]->core().unexpected_bytes(), 0u) << n;
  }
  for (size_t id = 0; id < run.sent.size(); ++id)
    EXPECT_TRUE(run.sent[id].ended == 1 || run.sent[id].gone) << id;
}

void expect_everything_arrived_in_order(Play &run) {
  expect_nothing_left(run);
  uint64_t adds = 0, added = 0;
  for (size_t id = 0; id < run.sent.size(); ++id) {
    EXPECT_EQ(run.sent[id].err, 0) << id;
    if (run.sent[id].message) {
      EXPECT_EQ(run.sent[id].arrived, 1) << id;
    } else {
      ++adds;
    }
  }
  for (auto &node : run.nodes) {
    added += node->counter;
    EXPECT_EQ(node->broken, 0u);
    // Messages of one sender match receives in the order in which both were posted.
    std::sort(node->received.begin(), node->received.end());
    std::map<std::pair<size_t, bool>, uint64_t> last;
    for (const auto &[receive, id] : node->received) {
      uint64_t &before = last[{run.sent[id].from, run.sent[id].tagged}];
      EXPECT_LE(before, id + 1) << "message " << id << " overtook another";
      before = id + 1;
    }
  }
  EXPECT_EQ(added, adds);
}

}  // namespace weft::rxm
