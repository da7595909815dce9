// SPDX-License-Identifier: BSD-2-Clause
// What single parts of the protocol keep of a connection. Each has one owner, which alone changes it;
// the others ask.
//
// Example:
//    #include "plugins/rxm/protocol/connection.h"
//    inline bool may_wait(const Connection &c) { return c.sending.credits().has_room(); }
//
// Not for what the Core itself knows of a connection: connection.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_CONNECTION_STATE_H
#define WEFT_PLUGINS_RXM_PROTOCOL_CONNECTION_STATE_H

#include <weft/sdk/replies.h>

#include "plugins/rxm/protocol/credits.h"
#include "plugins/rxm/protocol/operations.h"

namespace weft::rxm {

// Of the Sender: whether there is room for a packet.
class Sending {
 public:
  const Credits &credits() const { return credits_; }

 private:
  friend class Sender;
  Credits credits_;
  sdk::Replies replies_;  // to what the peer is told of its messages
  bool blocked_ = false;  // in Sender::blocked_
};

}  // namespace weft::rxm

#endif
