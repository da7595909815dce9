// SPDX-License-Identifier: BSD-2-Clause
// Deadlines: peers whose PeerLink waits for a time, and when the carrier is to wake the Core.
//
// Example:
//    // PeerLink::Next::kWait, and what Core::on_deadline() does.
//    inline void wait(Deadlines &deadlines, Peer &peer) { deadlines.wait(peer); }
//    inline void on_deadline(Deadlines &deadlines, uint64_t now, void (*follow)(Peer &)) {
//      for (Peer *peer : deadlines.take_due(now)) follow(*peer);
//      deadlines.arm();
//    }
//
// Not for what happens then: links.cc.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_DEADLINES_H
#define WEFT_PLUGINS_RXM_PROTOCOL_DEADLINES_H

#include <cstdint>
#include <vector>

#include "plugins/rxm/protocol/carrier.h"
#include "plugins/rxm/protocol/peer.h"

namespace weft::rxm {

class Deadlines {
 public:
  explicit Deadlines(Carrier &carrier) : carrier_(carrier) {}
  Deadlines(const Deadlines &) = delete;
  Deadlines &operator=(const Deadlines &) = delete;

  // Until PeerLink::wake_at().
  void wait(Peer &p);
  // Those whose time has come: they wait no more. The carrier's deadline is over.
  std::vector<Peer *> take_due(uint64_t now);
  // Tells the carrier the first time that is waited for, if it does not know.
  void arm();
  void forget(Peer &p);  // it is about to be deleted

 private:
  Carrier &carrier_;
  std::vector<Peer *> waiting_;
  uint64_t armed_ = 0;  // what the carrier knows; 0: nothing
};

}  // namespace weft::rxm

#endif
