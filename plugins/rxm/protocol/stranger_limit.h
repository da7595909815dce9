// SPDX-License-Identifier: BSD-2-Clause
// StrangerLimit: who makes room when as many strangers are connected as may be.
//
// Example:
//    // A place for one more. Null: an idle one is asked to part, so that there is one soon.
//    inline Peer *make_room(StrangerLimit &limit, uint64_t now, void (*ask_to_part)(Connection &)) {
//      const StrangerLimit::Leaver leaver = limit.first_to_leave(now);
//      if (leaver.silent == nullptr && leaver.idle != nullptr) ask_to_part(*leaver.idle);
//      return leaver.silent;
//    }
//
// Which one of several: weft/sdk/peer/crowd.h. Not for peers in the address vector: they never make
// room.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_STRANGER_LIMIT_H
#define WEFT_PLUGINS_RXM_PROTOCOL_STRANGER_LIMIT_H

#include <cstdint>

#include "plugins/rxm/protocol/peers.h"

namespace weft::rxm {

class StrangerLimit {
 public:
  struct Leaver {
    Peer *silent = nullptr;      // may be closed without a question
    Connection *idle = nullptr;  // may be asked to part
  };

  explicit StrangerLimit(const Peers &peers) : peers_(peers) {}
  Leaver first_to_leave(uint64_t now);

 private:
  void look(uint64_t now);
  static bool is_silent(const Connection &c, uint64_t now);

  const Peers &peers_;
  uint64_t looked_at_ = 0;  // ns
};

}  // namespace weft::rxm

#endif
