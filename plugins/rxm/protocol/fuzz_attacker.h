// SPDX-License-Identifier: BSD-2-Clause
// The attacker of core_fuzz.cc: it connects to the endpoint under any name, answers or does not,
// and sends any bytes, as the input says.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_FUZZ_ATTACKER_H
#define WEFT_PLUGINS_RXM_PROTOCOL_FUZZ_ATTACKER_H

#include <map>
#include <vector>

#include "plugins/rxm/protocol/fuzz_side.h"

namespace weft::rxm {

// A length around a border between the forms of a message.
size_t some_length(fuzz::Input &input);

class Attacker {
 public:
  // `settings`: of the endpoint, filled in before the first action.
  Attacker(fuzz::Input &input, World &world, const Settings &settings)
      : input_(input), world_(world), settings_(settings) {}

  void connect();
  void answer_call();
  // A packet of any type.
  void say();
  // The next of a message in segments, as it should be.
  void say_segment();
  void answer_read();
  // Memory of the endpoint, by any key that there is.
  void reach();
  void hang_up();
  // Its addresses come and go in the vector, and get each other's places there.
  void change_names();

 private:
  struct Run {
    uint64_t id = 0;
    size_t length = 0, at = 0;
    uint32_t number = 0;
  };

  Side &endpoint() { return *world_.endpoint; }
  // Of the attacker's ends, one that the endpoint still has.
  Link *an_end(uint8_t which);
  void deliver(Link &link, std::vector<uint8_t> bytes);
  uint64_t id();
  // What follows the header of a packet of `type`, and the fields that go with it.
  std::vector<uint8_t> fill(PacketType type, uint8_t how, WireHeader &h);

  fuzz::Input &input_;
  World &world_;
  const Settings &settings_;
  std::map<Link *, Run> runs_;
};

}  // namespace weft::rxm

#endif
