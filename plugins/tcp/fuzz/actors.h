// SPDX-License-Identifier: BSD-2-Clause
// Thief and Relay: what the stateful fuzz target has beside its strangers. Both speak the protocol
// well, and neither has the honest processes' auth_key.
//
// Example:
//    // A process that wants to be taken for the one at `name`, and one that passes bytes on.
//    inline void play(Input &input, Friendship &friendship, const sockaddr_in &victim,
//                     const sockaddr_in &name) {
//      Thief thief(friendship);
//      thief.claim(input, victim, name);
//      Relay relay(friendship, /*host=*/7);
//      relay.listen();
//      while (!input.over()) {
//        thief.speak(input);
//        relay.accept(victim);  // its bytes go back to itself
//        relay.pass(input);
//        thief.look();
//        relay.look();
//      }
//    }
//
// Not for what breaks the protocol: stranger.h.
#ifndef WEFT_PLUGINS_TCP_FUZZ_ACTORS_H
#define WEFT_PLUGINS_TCP_FUZZ_ACTORS_H

#include <netinet/in.h>

#include <cstdint>
#include <vector>

#include "plugins/tcp/fuzz/application.h"
#include "tests/fuzz/tally.h"

namespace weft::tcp::fuzz {

weft::fuzz::Tally &thief_tally();
weft::fuzz::Tally &relay_tally();

// A socket, and what has come from it that nobody has used yet.
struct Wire {
  int fd = -1;
  bool ended = false;  // the other side has sent all
  size_t came = 0;     // bytes, in all
  std::vector<uint8_t> bytes;
  void read();
  void write(std::vector<uint8_t> &out, size_t most);
  void close();
};

// A process on the host of an honest one. It takes that one's port while it does not run, or names
// its port in requests of its own.
class Thief {
 public:
  explicit Thief(Friendship &friendship) : friendship_(friendship) {}
  ~Thief() { leave(); }
  Thief(const Thief &) = delete;
  Thief &operator=(const Thief &) = delete;

  void listen(const sockaddr_in &at);
  bool listens() const { return listener_ >= 0; }
  void stop_listening();
  // A connection that came to that address. It answers, stays silent, or hangs up.
  void accept(Input &in);
  // Asks `victim` for a connection, as the process at `name` or as itself.
  void claim(Input &in, const sockaddr_in &victim, const sockaddr_in &name);
  // Sends a message with its mark over a connection that it has, or answers at last.
  void speak(Input &in);
  void hang_up(Input &in);
  void leave();
  // Reads what has come, and checks it.
  void look();
  // Connections in its own name that the endpoint at `victim` keeps.
  size_t unnamed(const sockaddr_in &victim) const;

 private:
  static constexpr size_t kMost = 8;
  struct Talk {
    Wire wire;
    bool asked = false, answered = false, own_name = false;
    bool up = false;       // a connection, for both sides
    bool counted = false;  // the answer is in the tally
    sockaddr_in victim{};
    std::vector<uint8_t> out;
    size_t answer_left = 0;  // bytes at the front of `out`
  };
  void answer(Talk &talk, uint8_t how) const;
  void write(Talk &talk, size_t most) const;
  void look(Talk &talk) const;

  Friendship &friendship_;
  int listener_ = -1;
  std::vector<Talk> talks_;
};

// A process that an honest one calls. It calls an honest one itself, and passes on what both say.
class Relay {
 public:
  static constexpr uint16_t kPort = 7100;

  Relay(Friendship &friendship, uint8_t host) : friendship_(friendship), host_(host) {}
  ~Relay() { leave(); }
  Relay(const Relay &) = delete;
  Relay &operator=(const Relay &) = delete;

  sockaddr_in address() const;
  void listen();
  void accept(const sockaddr_in &target);
  // Passes on some bytes of one connection, in one direction.
  void pass(Input &in);
  void hang_up(Input &in);
  void leave();
  void look();

 private:
  static constexpr size_t kMost = 6;
  struct Pipe {
    Wire caller, target;
    std::vector<uint8_t> answer;  // the first bytes of the target
    bool counted = false;
  };
  void look(Pipe &pipe) const;

  Friendship &friendship_;
  const uint8_t host_;
  int listener_ = -1;
  std::vector<Pipe> pipes_;
};

}  // namespace weft::tcp::fuzz

#endif
