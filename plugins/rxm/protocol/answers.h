// SPDX-License-Identifier: BSD-2-Clause
// Answers: packets of the protocol itself (Control) that answer a peer, or ask it to part. A peer
// that asks for many and takes none is limited.
//
// Example:
//    // The peer's request `id` is done. What is returned, the Core does with the connection.
//    inline int answer(Answers &answers, Connection &c, uint64_t id) {
//      Control *const control = answers.make(c, PacketType::kReadDone, id);
//      return control != nullptr ? answers.queue(c, *control) : Answers::kTooMuch;
//    }
//
// It owns what a connection has in Connection::answers. Not for what an answer says.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_ANSWERS_H
#define WEFT_PLUGINS_RXM_PROTOCOL_ANSWERS_H

#include <weft/sdk/memory/pool.h>

#include "plugins/rxm/protocol/connection.h"
#include "plugins/rxm/protocol/operations.h"
#include "plugins/rxm/protocol/sender.h"
#include "plugins/rxm/protocol/settings.h"

namespace weft::rxm {

class Answers {
 public:
  static constexpr int kTooMuch = -1;  // the peer asks for more than it takes

  Answers(Sender &sender, const Settings &settings) : sender_(sender), settings_(settings) {}
  Answers(const Answers &) = delete;
  Answers &operator=(const Answers &) = delete;

  // A header of this type, of the message `id`, which the caller completes. Null: no
  // more may wait for the peer.
  Control *make(Connection &c, PacketType type, uint64_t id);
  // It leaves now, or as soon as there is room. 0; the FI_E... of a connection that has failed (the
  // answer is gone); kTooMuch: the peer does not take what it asks for.
  int queue(Connection &c, Control &control);
  // Asks the peer to part, now or not at all. False: not at all.
  bool ask_to_part(Connection &c);
  // Sends what is queued. 0; -FI_EAGAIN: there is no room for all; another error: the connection
  // has failed.
  ssize_t flush(Connection &c);
  // The connection is over: what is queued never leaves.
  void drop(Connection &c);
  // The carrier has sent it.
  void free(Control &control);

 private:
  Control *take(Connection &c, PacketType type, uint64_t id);
  ssize_t send(Connection &c, Control &control);

  Sender &sender_;
  const Settings &settings_;
  sdk::Pool<Control> pool_{SIZE_MAX};
};

}  // namespace weft::rxm

#endif
