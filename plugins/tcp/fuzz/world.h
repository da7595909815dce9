// SPDX-License-Identifier: BSD-2-Clause
// World: all parties of the stateful fuzz target, and the commands of an input.
//
// Example:
//    inline void run(Input &input) {
//      World world(input);
//      world.run();     // what the input says
//      world.settle();  // all others leave, and the friends come to an end
//    }
//
// Not for what each party does: application.h, stranger.h, actors.h.
#ifndef WEFT_PLUGINS_TCP_FUZZ_WORLD_H
#define WEFT_PLUGINS_TCP_FUZZ_WORLD_H

#include <memory>
#include <vector>

#include "plugins/tcp/fuzz/actors.h"
#include "plugins/tcp/fuzz/application.h"
#include "plugins/tcp/fuzz/node.h"
#include "plugins/tcp/fuzz/stranger.h"

namespace weft::tcp::fuzz {

class World {
 public:
  explicit World(Input &in);
  ~World();
  void run();
  void settle();

 private:
  static constexpr uint8_t kOwnHost = 1, kFriendHost = 2, kFirstStranger = 3, kRelayHost = 7;

  void step();
  void post_to_stranger(Endpoint &e, bool message);
  void disturb(uint8_t which);
  void befriend(Endpoint &a, Endpoint &b);
  Endpoint *some(uint8_t which);
  void talk(Stranger &s);
  void connect_stranger(Stranger &s);
  void read_events(Node &node);
  void answer(fi_info *request, bool is_friend);
  void reopen(Node &node);
  bool start(Node &node, const sockaddr_in &at);
  void remove_or_insert(uint8_t which);
  void close_region(uint8_t which);

  // world_actors.cc
  void let_act();
  void act(uint8_t command);
  void thieve();
  void relay();
  void look();
  void kill_or_start_friend();
  const sockaddr_in &address(const Node &node) const { return &node == &us_ ? at_ : friend_at_; }
  static void say(Endpoint &from);
  bool attend();
  bool done() const;
  void tell_what_is_left() const;
  void dismiss();
  void reunite();

  Input &in_;
  bool msg_ = false, shared_ = false;
  Settings settings_;
  Node us_, them_;
  Friendship friendship_;
  std::vector<std::unique_ptr<Stranger>> strangers_;
  std::vector<fi_addr_t> stranger_addrs_;
  Known known_;
  Endpoint *calling_ = nullptr;  // the friend's, until it is accepted
  uint8_t accepts_ = 0;
  std::unique_ptr<Thief> thief_;  // both null: nobody acts
  std::unique_ptr<Relay> relay_;
  fi_addr_t relay_addrs_[2] = {};  // in our address vector, and in the friend's
  sockaddr_in at_{}, friend_at_{};
  uint32_t relayed_ = 0;
};

}  // namespace weft::tcp::fuzz

#endif
