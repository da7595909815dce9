// SPDX-License-Identifier: BSD-2-Clause
// The end of an idle connection, agreed with a weft peer (docs/rxm-extensions.md). Idle: no packet
// is queued or in flight, and no answer is outstanding.
#include <rdma/fi_errno.h>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

// Asks idle peers to part until `most` connections are left. Closing a connection without asking
// would lose what the peer is sending. Stock peers cannot be asked, so their connections stay.
void Core::close_idle(size_t most) {
  while (Connection *const idlest = idle_limit_.idlest(most))
    if (!ask_to_part(*idlest)) return;
}

bool Core::ask_to_part(Connection &c) {
  if (!answers_.ask_to_part(c)) return false;
  idle_limit_.asked(c);
  look(c.peer_);
  return true;
}

// The side that receives an agreement closes the connection. An agreement is the last packet of its
// sender, so the other side has read everything before it. If both sides ask at once, both answer.
void Core::take_part(Connection &c, const Packet &p) {
  if (p.parting != Parting::kAsk && !c.idleness.has_asked())
    return fail_peer(c, "an answer to a request to part that it did not get");
  switch (p.parting) {
    case Parting::kAsk: {
      if (c.idleness.has_agreed()) return fail_peer(c, "a second request to part");
      const bool agrees = c.is_idle();
      Control *control = new_control(c, PacketType::kPart, 0);
      if (control == nullptr) return;
      control->header.control_data = uint64_t(agrees ? Parting::kAgree : Parting::kStay);
      if (agrees) {
        idle_limit_.agree(c);
        look(c.peer_);
      } else {
        idle_limit_.touch(c);
      }
      return queue_control(c, *control);
    }
    case Parting::kAgree:
      return ended(c, FI_ECONNABORTED);  // what waits goes by another connection
    case Parting::kStay:                 // it still needs the connection
      idle_limit_.stay(c);
      return look(c.peer_);
  }
}

}  // namespace weft::rxm
