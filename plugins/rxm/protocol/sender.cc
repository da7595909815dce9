// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/sender.h"

namespace weft::rxm {

bool Sender::tell_credits(Connection &c) {
  Credits &credits = c.sending.credits_;
  if (!c.may_tell_credits() || !credits.owes(settings_.receive_count)) return true;
  if (!credits.may_tell()) return true;  // sent when the peer has granted credits
  WireHeader header = header_of(PacketType::kCredit, c.peer_slot());
  header.control_data = credits.untold();
  header.op = uint8_t(PacketOp::kAtomic);  // stock peers send this value
  const iovec iov{&header, sizeof header};
  const ssize_t rc = carrier_.send(*c.link(), &iov, nullptr, 1, 0, FI_INJECT, nullptr);
  if (rc != 0) return rc != -FI_EAGAIN;  // the carrier reports a dead link by itself
  credits.told();
  return true;
}

}  // namespace weft::rxm
