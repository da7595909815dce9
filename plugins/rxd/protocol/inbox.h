// SPDX-License-Identifier: BSD-2-Clause
// Inbox: messages on their way from a packet to the receive that they belong to, for both dialects.
// A message whose receive is posted goes from the datagram to the user's memory; of another one a
// copy of the right size is kept until it is wanted.
//
//   if (inbox.whole(peer, message, payload)) ...           // all of it came in one packet
//   Incoming *m = inbox.begin(peer, this, message, id);    // null: no memory
//   if (!inbox.place(*m, offset, bytes)) ...               // each packet; false: no room
//   if (m->arrived == m->message.length) inbox.finish(*m, 0);
//
// Of an Incoming that is not wanted yet (`receive` is null) finish() leaves the completion to the
// time when it is. Not for what must be said to the peer.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_INBOX_H
#define WEFT_PLUGINS_RXD_PROTOCOL_INBOX_H

#include <weft/sdk/iov.h>
#include <weft/sdk/pool.h>

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

  // All of a message. True: it was matched and is complete. False: it was saved, or there is no
  // memory for it and it is lost: then `lost` is set.
  bool whole(Peer &peer, const sdk::Message &message, std::span<const uint8_t> payload,
             bool &lost) {
    Incoming *m = nullptr;
    return whole(peer, message, payload, m, lost);
  }
  // The same; `m` is what was saved.
  bool whole(Peer &peer, const sdk::Message &message, std::span<const uint8_t> payload,
             Incoming *&m, bool &lost);
  // A message of which more comes than is here: matched with a receive (m->receive), or saved.
  Incoming *begin(Peer &peer, Conversation *conversation, const sdk::Message &message, uint32_t id);
  // The same, of one that the caller has matched.
  Incoming *begin(Peer &peer, Conversation *conversation, const sdk::Message &message, uint32_t id,
                  sdk::Receive &matched);
  // Bytes of it, in any order, each once. False: they do not fit the message, or there is no
  // memory to keep them.
  bool place(Incoming &m, uint64_t offset, std::span<const uint8_t> bytes);
  // Nothing more of it comes: completes the receive with 0 or FI_E..., and frees it; of one that
  // is not wanted yet, when it is. It belongs to no conversation any more.
  void finish(Incoming &m, int err);
  // Its conversation is over. It must be off the conversation's lists.
  void orphan(Incoming &m, int err);
  // The receiver wants it (Core::deliver, which set m.receive): what was kept goes to its place.
  // True: it is complete, and gone.
  bool deliver(Incoming &m);
  // Frees it without a word.
  void drop(Incoming &m);

  // What unwanted messages take. Whoever grants credit asks for it.
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
