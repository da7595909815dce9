// SPDX-License-Identifier: BSD-2-Clause
// A scenario of core_test: simulated peers, what they do, and what must hold afterwards.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_TEST_PLAY_H
#define WEFT_PLUGINS_RXM_PROTOCOL_TEST_PLAY_H

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "plugins/rxm/protocol/test_node.h"

namespace weft::rxm {

struct Script {
  size_t peers = 2;
  bool write = false;
  bool failures = false;
  bool credits = false;
  size_t max_connections = 0;
  bool stock = false;  // every other one is no weft peer
  size_t max_controls = 1 << 16, max_segments = 512, max_strangers = SIZE_MAX;
  uint64_t owed_limit = 1 << 20;
  size_t inject_limit = 128;
  uint64_t connect_timeout_ns = 60'000'000;
  bool names = false;  // address vectors change, and nobody hears of some deaths
};

class Play {
 public:
  Play(unsigned seed, const Script &script);
  ~Play();
  void start(size_t i);
  void stop(size_t i);
  // At last everybody hears of those who died in silence.
  void tell_of_the_dead();
  const Settings &settings() const { return settings_; }
  void act();
  void turn();
  // Until nothing happens any more.
  void settle();

  World world;
  std::vector<Sent> sent;
  std::vector<std::unique_ptr<Node>> nodes;
  size_t broken = 0;

 private:
  const Script script_;
  Settings settings_;
  uint32_t processes_ = 100;
  std::deque<uint64_t> results_;
};

class Seeds : public ::testing::TestWithParam<int> {};  // 60 of them
class ManySeeds : public Seeds {};                      // 200

Script script_of(int seed);
// Random actions of all peers.
void play(Play &run, int actions);
// Those who have not been asked for keep nobody waiting: everything gets a receive in the end.
void receive_all(Play &run);
void expect_nothing_left(Play &run);
void expect_everything_arrived_in_order(Play &run);

}  // namespace weft::rxm

#endif
