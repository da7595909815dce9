// SPDX-License-Identifier: BSD-2-Clause
// Attacker: the attacker of core_fuzz.cc. It connects to the endpoint under any name, answers or
// not, and sends any bytes. Each action takes its choices from the input.
//
// Example (statements):
//    World world;
//    Side endpoint(world, kEndpoint, Settings{}, {});
//    world.endpoint = &endpoint;
//    const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8};
//    fuzz::Input input(bytes, sizeof bytes);
//    const Settings settings = endpoint.core().settings();
//    Attacker attacker(input, world, settings);
//    attacker.connect();
//    while (!input.empty()) {
//      while (world.step()) endpoint.core().poll();
//      attacker.say();  // a packet of any type, or any bytes
//    }
//
// Not for honest peers: those are Sides.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_FUZZ_ATTACKER_H
#define WEFT_PLUGINS_RXM_PROTOCOL_FUZZ_ATTACKER_H

#include <map>
#include <vector>

#include "plugins/rxm/protocol/fuzz/side.h"

namespace weft::rxm {

// A message length near a border between the forms of a message.
size_t some_length(fuzz::Input &input);

class Attacker {
 public:
  // `settings`: of the endpoint; must be filled in before the first action.
  Attacker(fuzz::Input &input, World &world, const Settings &settings)
      : input_(input), world_(world), settings_(settings) {}

  void connect();
  void answer_call();
  // Sends a packet of any type, or raw bytes.
  void say();
  // Sends a packet without a header: a bare message, or what cannot be one.
  void say_bare();
  // Sends the next segment of a correct segmented message.
  void say_segment();
  void answer_read();
  // Reads or writes memory of the endpoint with one of its keys.
  void reach();
  void hang_up();
  // Inserts or removes one of its addresses in the endpoint's address vector.
  void change_names();

 private:
  struct Run {
    uint64_t id = 0;
    size_t length = 0, at = 0;
    uint32_t number = 0;
  };

  Side &endpoint() { return *world_.endpoint; }
  // One of the attacker's links that is still open at the endpoint; null: none.
  Link *an_end(uint8_t which);
  void deliver(Link &link, std::vector<uint8_t> bytes);
  uint64_t id();
  // Returns the data of a packet of `type`, and fills in the matching fields of the header.
  std::vector<uint8_t> fill(PacketType type, uint8_t how, WireHeader &h);

  fuzz::Input &input_;
  World &world_;
  const Settings &settings_;
  std::map<Link *, Run> runs_;
};

}  // namespace weft::rxm

#endif
