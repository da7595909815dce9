// SPDX-License-Identifier: BSD-2-Clause
// Thief and Relay: what core_fuzz.cc has beside its attacker. Both speak the protocol well.
//
// Example (statements):
//    World world;
//    Side endpoint(world, kEndpoint, Settings{}, {});
//    world.endpoint = &endpoint;
//    const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8};
//    fuzz::Input input(bytes, sizeof bytes);
//    Thief thief(input, world);
//    Relay relay(input, world);
//    thief.claim();  // a process that wants to be taken for the honest peer
//    while (!input.empty()) {
//      while (world.step()) endpoint.core().poll();
//      thief.speak();
//      relay.accept();  // what has called it; it calls the endpoint or the honest peer
//      relay.pass();
//    }
//
// Not for what breaks the protocol: attacker.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_FUZZ_ACTORS_H
#define WEFT_PLUGINS_RXM_PROTOCOL_FUZZ_ACTORS_H

#include <set>
#include <vector>

#include "plugins/rxm/protocol/fuzz/side.h"

namespace weft::rxm {

// A process on the honest peer's host. It takes that one's port while it does not run, or names its
// port in requests of its own.
class Thief {
 public:
  Thief(fuzz::Input &input, World &world) : input_(input), world_(world) {}

  void listen() { world_.thief_listens = world_.honest == nullptr; }
  void stop_listening() { world_.thief_listens = false; }
  // Accepts a call, refuses it, or lets it wait.
  void answer();
  void claim();
  // Sends a message with its mark over one of its connections.
  void speak();
  void hang_up();
  void leave();
  void look();
  // It has a connection that was asked for at the honest peer's address.
  bool was_called() const;

 private:
  struct Talk {
    Link *link;
    uint32_t index = 0;  // of the endpoint's connection
    bool asked = false, counted = false;
  };
  fuzz::Input &input_;
  World &world_;
  std::vector<Talk> talks_;
};

// A process that the endpoint or the honest peer calls. It calls one of both itself, and passes on
// what they say: now or later, all or a part.
class Relay {
 public:
  Relay(fuzz::Input &input, World &world) : input_(input), world_(world) {}

  // From where its calls come: 0: its own host, 1: the honest peer's, 2: the endpoint's.
  void set_host(uint8_t host) { host_ = host; }
  void accept();
  void pass();
  void hang_up();
  void leave();
  void look();

 private:
  struct Pipe {
    Link *caller;  // of the one that has called
    Link *up = nullptr, *down = nullptr;
    bool answered = false;
  };
  void answer(Pipe &pipe);
  void pass(Link &from, Link &to, uint8_t how);
  void answer_reads(Link &from, Link &to);

  fuzz::Input &input_;
  World &world_;
  uint8_t host_ = 0;
  std::vector<Pipe> pipes_;
};

}  // namespace weft::rxm

#endif
