// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/idle_limit.h"

namespace weft::rxm {

void IdleLimit::connect(const Connection &c) {
  ++connected_;
  if (c.idleness.has_agreed()) ++leaving_;
}

void IdleLimit::disconnect(const Connection &c) {
  --connected_;
  if (c.idleness.leaves()) --leaving_;
}

Connection *IdleLimit::idlest(size_t most) const {
  if (connected_ - leaving_ <= most) return nullptr;
  Connection *oldest = nullptr;
  for (Connection *c : peers_.connections()) {
    if (c == nullptr || !c->may_part()) continue;
    if (oldest == nullptr || c->idleness.last_use() < oldest->idleness.last_use()) oldest = c;
  }
  return oldest;
}

void IdleLimit::asked(Connection &c) {
  c.idleness.asked_ = true;
  ++leaving_;
}

void IdleLimit::agree(Connection &c) {
  if (c.state() == State::kConnected && !c.idleness.asked_) ++leaving_;
  c.idleness.agreed_ = true;
}

void IdleLimit::stay(Connection &c) {
  c.idleness.asked_ = false;
  if (c.idleness.agreed_) return;
  --leaving_;
  touch(c);
}

}  // namespace weft::rxm
