// SPDX-License-Identifier: BSD-2-Clause
// The end of an idle connection, agreed with a weft peer (docs/rxm-extensions.md). Idle: no packet
// is queued or in flight, and no answer is outstanding.
#include <rdma/fi_errno.h>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

// Asks idle peers to part until `most` connections are left. Closing a connection without asking
// would lose what the peer is sending. Stock peers cannot be asked, so their connections stay.
void Core::close_idle(size_t most) {
  while (connected_ - leaving_ > most) {
    Connection *oldest = nullptr;
    for (Connection *c : peers_.connections()) {
      if (c == nullptr || !c->may_part()) continue;
      if (oldest == nullptr || c->last_use_ < oldest->last_use_) oldest = c;
    }
    if (oldest == nullptr || !ask_to_part(*oldest)) return;
  }
}

bool Core::ask_to_part(Connection &c) {
  if (!answers_.ask_to_part(c)) return false;
  c.asked_ = true;
  ++leaving_;
  look(c.peer_);
  return true;
}

// The side that receives an agreement closes the connection. An agreement is the last packet of its
// sender, so the other side has read everything before it. If both sides ask at once, both answer.
void Core::take_part(Connection &c, const Packet &p) {
  if (p.parting != Parting::kAsk && !c.asked_)
    return fail_peer(c, "an answer to a request to part that it did not get");
  switch (p.parting) {
    case Parting::kAsk: {
      if (c.agreed_) return fail_peer(c, "a second request to part");
      const bool agrees = c.is_idle();
      Control *control = new_control(c, PacketType::kPart, 0);
      if (control == nullptr) return;
      control->header.control_data = uint64_t(agrees ? Parting::kAgree : Parting::kStay);
      if (agrees) {
        if (c.state_ == State::kConnected && !c.asked_) ++leaving_;
        c.agreed_ = true;
        look(c.peer_);
      } else {
        touch(c);
      }
      return queue_control(c, *control);
    }
    case Parting::kAgree:
      return ended(c, FI_ECONNABORTED);  // what waits goes by another connection
    case Parting::kStay:
      return stay(c);
  }
}

// The peer still needs the connection.
void Core::stay(Connection &c) {
  c.asked_ = false;
  if (c.agreed_) return;
  --leaving_;
  touch(c);
  look(c.peer_);
}

}  // namespace weft::rxm
