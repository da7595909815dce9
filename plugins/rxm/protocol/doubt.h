// SPDX-License-Identifier: BSD-2-Clause
// Doubt: whether a connection may be dead whose peer asks for another one. Mostly it is ending, and
// the carrier will say so. But the end may have been lost with the network. Then nothing comes any
// more, and the peer asks again and again.
//
// Example:
//    #include "plugins/rxm/protocol/connection.h"
//    // The peer asks. True: its address is to be asked who is there (PeerLink::suspect).
//    inline bool asks(Doubt &doubt, const Connection &c, uint64_t now) {
//      return doubt.lasts(now, c.idleness.last_use());
//    }
//
// Not for packets that wait here because there is no room for them: ask only while they are read.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_DOUBT_H
#define WEFT_PLUGINS_RXM_PROTOCOL_DOUBT_H

#include <cstdint>

namespace weft::rxm {

class Doubt {
 public:
  static constexpr uint64_t kLongestNs = 1'000'000'000;

  // Whether nothing has come since the first question, and that is long ago. `last_use`: another
  // one whenever something comes.
  bool lasts(uint64_t now, uint64_t last_use) {
    if (use_ == last_use) return now - since_ >= kLongestNs;
    use_ = last_use;
    since_ = now;
    return false;
  }

 private:
  uint64_t since_ = 0, use_ = UINT64_MAX;
};

}  // namespace weft::rxm

#endif
