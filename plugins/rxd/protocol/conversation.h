// SPDX-License-Identifier: BSD-2-Clause
// A conversation with one peer, in the peer's dialect: weft's (docs/rxd-protocol.md) or that of
// stock libfabric. Core makes it when it knows the dialect, gives it operations and packets, and
// destroys it after its end.
//
// Example:
//    #include "plugins/rxd/protocol/core.h"
//    // The peer's process has restarted. Operations that had not begun begin anew with `next`; the
//    // others have failed.
//    inline void replace(Peer &peer, std::unique_ptr<Conversation> next) {
//      Conversation::Queue unsent;
//      peer.conversation->end(FI_ECONNRESET, &unsent);
//      peer.conversation = std::move(next);
//      for (TxOp *op = unsent.first; op != nullptr;) {
//        TxOp *following = op->next;  // start() changes it
//        peer.conversation->start(*op);
//        op = following;
//      }
//    }
//
// All calls are made with the engine's lock held. A conversation that finds that it is over calls
// Core::lose(); after the current call has returned, Core ends and destroys it.
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

  // Takes the operation, and sends the packets that may leave now.
  virtual void start(TxOp &op) = 0;
  // A datagram of the peer. True: the buffer is kept, and released later.
  virtual bool on_packet(std::span<const uint8_t> bytes, Buffer &buffer) = 0;
  // The carrier has nothing more to read now: waiting acknowledgements and pulls are sent.
  virtual void on_idle() = 0;
  // The carrier has room again, or the pace permits packets again.
  virtual void on_room() = 0;
  virtual void on_deadline(uint64_t now) = 0;
  // An unexpected message of this peer got a receive (message.receive is set), or was discarded.
  virtual void fetch(Incoming &message) = 0;
  // An unexpected message has none, but its first `n` bytes are wanted.
  virtual void fetch_first(Incoming &, size_t) {}
  virtual void discard(Incoming &message) = 0;
  // The conversation is over: started operations and incomplete messages fail with `err`.
  // Operations that were not started go back to `unsent`, in order; if it is null, they fail too.
  struct Queue {
    TxOp *first = nullptr, *last = nullptr;
  };
  virtual void end(int err, Queue *unsent) = 0;
  // fi_close: sends close to the peer. parted() is true when nothing is outstanding and the peer
  // has answered.
  virtual void part() = 0;
  virtual bool parted() const = 0;
  // Whether anything is outstanding or waits.
  virtual bool busy() const = 0;
};

// In stock libfabric's dialect. The RTS or CTS that caused it is passed to on_packet() next.
std::unique_ptr<Conversation> make_stock_conversation(Core &core, Peer &peer);

}  // namespace weft::rxd

#endif
