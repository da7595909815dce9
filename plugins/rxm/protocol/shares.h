// SPDX-License-Identifier: BSD-2-Clause
// Shares: how much memory the messages without a receive may occupy, of one peer, of all strangers,
// and of all peers; and whose connections are not read because they have more. Copies of messages
// count in bytes (Settings::unexpected_limit), messages that stay where they arrived in receive
// buffers.
//
// Example:
//    // A message of `length` bytes that stays in its receive buffer, or is copied. False: neither.
//    inline bool save(Shares &shares, Connection &from, size_t length, bool copy) {
//      if (shares.must_wait(from.peer())) shares.hold(from);  // it is not read from now on
//      if (copy && !shares.may_charge(from.peer(), length)) return false;
//      if (copy)
//        shares.charge(from.peer(), int64_t(length));
//      else
//        shares.add_buffers(from.peer(), 1);
//      return true;  // what is charged is given back with the opposite sign
//    }
//
// A peer whose messages are received goes on, whatever others send. Not for the messages
// themselves.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_SHARES_H
#define WEFT_PLUGINS_RXM_PROTOCOL_SHARES_H

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plugins/rxm/protocol/carrier.h"
#include "plugins/rxm/protocol/counters.h"
#include "plugins/rxm/protocol/peers.h"
#include "plugins/rxm/protocol/settings.h"

namespace weft::rxm {

class Shares {
 public:
  Shares(Carrier &carrier, Peers &peers, const Settings &settings, Counters &counters);

  uint64_t charged() const { return charged_; }  // bytes, to all peers
  void charge(Peer &peer, int64_t bytes) {
    charged_ += uint64_t(bytes);
    peers_.add_bytes(peer, bytes);
  }
  void add_buffers(Peer &peer, int count) { peers_.add_buffers(peer, count); }
  // Whether a peer may occupy `bytes` more. Its share shrinks as the sum grows, so that room is
  // left for peers that come later.
  bool may_charge(const Peer &peer, uint64_t bytes) const;
  // Whether it keeps as many buffers as are free without the reserve, or only the reserve is free.
  // All strangers count as one peer.
  bool takes_too_much(const Peer &peer) const;
  // Whether it is past its share and must not be read. A peer of which nothing is kept may always
  // send, no matter how much is kept of others. Connections with receives of their own share
  // nothing.
  bool must_wait(const Peer &peer) const;

  // Stops reading this connection; all of a peer that takes too much, or of all strangers if it is
  // one.
  void hold(Connection &connection);
  void hold_all(Peer &peer);
  void forget(Connection &connection);  // it is about to close
  bool holds_any() const { return !held_.empty(); }
  // Reads those again that are within their share.
  void release();

 private:
  Carrier &carrier_;
  Peers &peers_;
  const Settings &settings_;
  Counters &counters_;
  const size_t reserve_;  // receive buffers that stay free of kept messages
  uint64_t charged_ = 0;
  std::vector<Connection *> held_;
};

}  // namespace weft::rxm

#endif
