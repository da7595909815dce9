// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/deadlines.h"

#include <algorithm>

namespace weft::rxm {

using sdk::PeerLink;

void Deadlines::wait(Peer &p) {
  if (!p.timed_) waiting_.push_back(&p);
  p.timed_ = true;
  arm();
}

std::vector<Peer *> Deadlines::take_due(uint64_t now) {
  armed_ = 0;
  std::vector<Peer *> due;
  std::erase_if(waiting_, [&](Peer *p) {
    if (p->link().wake_at() > now) return false;
    p->timed_ = false;
    due.push_back(p);
    return true;
  });
  return due;
}

void Deadlines::arm() {
  uint64_t first = 0;
  for (const Peer *p : waiting_) {
    const PeerLink::State state = p->link().state();
    if (state != PeerLink::State::kBackoff && state != PeerLink::State::kDoubt) continue;
    if (first == 0 || p->link().wake_at() < first) first = p->link().wake_at();
  }
  if (first == armed_) return;
  armed_ = first;
  carrier_.set_deadline(first);
}

void Deadlines::forget(Peer &p) {
  if (p.timed_) std::erase(waiting_, &p);
}

}  // namespace weft::rxm
