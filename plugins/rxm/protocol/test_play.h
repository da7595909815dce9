// SPDX-License-Identifier: BSD-2-Clause
// Play: a scenario of core_test with several simulated peers, and checks of its result.
//
// Example:
//    TEST_P(Seeds, ThreePeersLoseNothing) {
//      Play run(unsigned(GetParam()), {.peers = 3});
//      play(run, 500);    // random actions: sends, receives, atomics
//      receive_all(run);  // a receive for each message that has none
//      expect_everything_arrived_in_order(run);
//    }
//
// Not for tests of a single node: test_node.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_TEST_PLAY_H
#define WEFT_PLUGINS_RXM_PROTOCOL_TEST_PLAY_H

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "plugins/rxm/protocol/test_node.h"

namespace weft::rxm {

enum class Bare { kNobody, kSome, kAll };  // who takes bare messages, of those that are not stock

struct Script {
  size_t peers = 2;
  bool write = false;
  bool failures = false;
  bool credits = false;
  size_t max_connections = 0;
  bool stock = false;  // every second peer is stock
  Bare bare = Bare::kAll;
  size_t max_controls = 1 << 16, max_segments = 512, max_strangers = SIZE_MAX;
  uint64_t owed_limit = 1 << 20;
  size_t inject_limit = 128;
  uint64_t connect_timeout_ns = 60'000'000;
  bool names = false;  // address vectors change, and some deaths are not reported
};

class Play {
 public:
  Play(unsigned seed, const Script &script);
  ~Play();
  void start(size_t i);
  void stop(size_t i);
  // Reports the deaths that were not reported.
  void tell_of_the_dead();
  const Settings &settings() const { return settings_; }
  void act();
  void turn();
  // Runs until no event is left.
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

class Seeds : public ::testing::TestWithParam<int> {};  // 60 seeds
class ManySeeds : public Seeds {};                      // 200 seeds

Script script_of(int seed);
// Random actions of all peers.
void play(Play &run, int actions);
// Posts receives until no message is unexpected and no operation is in flight.
void receive_all(Play &run);
void expect_nothing_left(Play &run);
void expect_everything_arrived_in_order(Play &run);

}  // namespace weft::rxm

#endif
