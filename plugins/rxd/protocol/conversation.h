// SPDX-License-Identifier: BSD-2-Clause
// A conversation with one peer, in the dialect that it speaks: weft's (docs/rxd-protocol.md) or
// that of stock libfabric. Core makes it when it knows which, gives it operations and packets, and
// lets it go when it has ended.
//
//   peer.conversation->start(op);
//   kept = peer.conversation->on_packet(bytes, buffer);
//
// Everything with the engine's lock held. A conversation that finds that it is over says so by
// Core::lose(); when the call that it is in has returned, Core ends and destroys it.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_CONVERSATION_H
#define WEFT_PLUGINS_RXD_PROTOCOL_CONVERSATION_H

#include <cstdint>
#include <memory>
#include <span>

#include "plugins/rxd/protocol/operation.h"

namespace weft::rxd {

class Core;
struct Peer;

class Conversation {
 public:
  virtual ~Conversation() = default;

  // Takes the operation, and sends what may be sent now.
  virtual void start(TxOp &op) = 0;
  // A datagram of the peer. True: the buffer is kept, and released later.
  virtual bool on_packet(std::span<const uint8_t> bytes, Buffer &buffer) = 0;
  // The carrier has nothing more to read now: what waits to be said (acknowledgements, pulls) goes.
  virtual void on_idle() = 0;
  // The carrier, or the pace, lets packets out again.
  virtual void on_room() = 0;
  virtual void on_deadline(uint64_t now) = 0;
  // An unexpected message of this peer is wanted now (message.receive is set), or will never be.
  virtual void fetch(Incoming &message) = 0;
  virtual void discard(Incoming &message) = 0;
  // The conversation is over: operations that were started fail with `err`, messages that are not
  // whole too; those that were not started go back to `unsent`, in order, unless it is null: then
  // they fail as well.
  struct Queue {
    TxOp *first = nullptr, *last = nullptr;
  };
  virtual void end(int err, Queue *unsent) = 0;
  // fi_close: says good-bye. Then parted() when nothing is outstanding and the peer knows.
  virtual void part() = 0;
  virtual bool parted() const = 0;
  // Whether something is outstanding or waits.
  virtual bool busy() const = 0;
};

// In the dialect of stock libfabric; the RTS or CTS that made it necessary comes by on_packet().
std::unique_ptr<Conversation> make_stock_conversation(Core &core, Peer &peer);

}  // namespace weft::rxd

#endif
