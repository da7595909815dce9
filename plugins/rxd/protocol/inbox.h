// SPDX-License-Identifier: BSD-2-Clause
// Inbox: brings messages from packets to their receives, for both dialects. A message with a posted
// receive goes from the datagram to the user's memory. An unexpected message is copied and kept
// until a receive wants it.
//
// Example:
//    // A message that comes in one packet. False: there is no memory to save it.
//    inline bool take(Inbox &inbox, Peer &peer, const sdk::Message &message,
//                     std::span<const uint8_t> payload) {
//      bool lost = false;
//      inbox.whole(peer, message, payload, lost);
//      return !lost;
//    }
//    // A packet of a message that inbox.begin() has made. False: the bytes do not fit the message,
//    // or there is no memory to keep them.
//    inline bool take(Inbox &inbox, Incoming &m, uint64_t offset, std::span<const uint8_t> bytes) {
//      if (!inbox.place(m, offset, bytes)) return false;
//      if (m.arrived == m.message.length) inbox.finish(m, 0);  // completes the receive
//      return true;
//    }
//
// finish() of a message without a receive (`receive` is null) leaves the completion to the receive
// that takes it later. Not for answers to the peer.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_INBOX_H
#define WEFT_PLUGINS_RXD_PROTOCOL_INBOX_H

#include <weft/sdk/memory/iov.h>
#include <weft/sdk/memory/pool.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "plugins/rxd/protocol/operation.h"

namespace weft::rxd {

using sdk::gather;
using sdk::pieces;
using sdk::scatter;
using sdk::slice;

class Core;

class Inbox {
 public:
  Inbox(Core &core, uint64_t limit) : core_(core), limit_(limit), messages_(SIZE_MAX) {}

  // Takes a whole message. True: a receive matched, and is complete. False: the message was saved;
  // or, with `lost` set, it is lost for want of memory.
  bool whole(Peer &peer, const sdk::Message &message, std::span<const uint8_t> payload,
             bool &lost) {
    Incoming *m = nullptr;
    return whole(peer, message, payload, m, lost);
  }
  // The same; `m` is the saved message.
  bool whole(Peer &peer, const sdk::Message &message, std::span<const uint8_t> payload,
             Incoming *&m, bool &lost);
  // Begins a message that comes in several parts: matched with a receive (m->receive), or saved.
  Incoming *begin(Peer &peer, Conversation *conversation, const sdk::Message &message, uint32_t id);
  // The same, with a receive that the caller has matched.
  Incoming *begin(Peer &peer, Conversation *conversation, const sdk::Message &message, uint32_t id,
                  sdk::Receive &matched);
  // Takes bytes of the message, in any order, each once. False: they do not fit the message, or
  // there is no memory to keep them.
  bool place(Incoming &m, uint64_t offset, std::span<const uint8_t> bytes);
  // Ends the message: completes its receive with 0 or FI_E... and frees it; without a receive both
  // happen in deliver(). The message does not belong to a conversation any more.
  void finish(Incoming &m, int err);
  // Ends the message because its conversation is over. It must be off the conversation's lists.
  void orphan(Incoming &m, int err);
  // A receive takes the message (Core::deliver has set m.receive): kept bytes go to its memory.
  // True: the message is complete, and freed.
  bool deliver(Incoming &m);
  // Frees the message without a completion.
  void drop(Incoming &m);

  // Bytes that unexpected messages take; conversations grant credit accordingly.
  uint64_t bytes() const { return bytes_; }
  uint64_t limit() const { return limit_; }
  size_t in_use() const { return messages_.in_use(); }

 private:
  Incoming *make(Peer &peer, Conversation *conversation, const sdk::Message &message, uint32_t id);
  bool make_room(Incoming &m, uint64_t size);
  void charge(Incoming &m, uint64_t bytes) {
    m.charged += bytes;
    bytes_ += bytes;
  }

  Core &core_;
  const uint64_t limit_;
  uint64_t bytes_ = 0;
  sdk::Pool<Incoming> messages_;
};

}  // namespace weft::rxd

#endif
