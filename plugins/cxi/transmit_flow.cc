// SPDX-License-Identifier: BSD-2-Clause
// Flow control at a sender: messages that a peer has refused, and those behind them.
#include <algorithm>
#include <utility>

#include "plugins/cxi/control.h"
#include "plugins/cxi/transmit.h"

namespace weft::cxi {

Transmit::Parked &Transmit::park(const Peer &peer) {
  const auto [at, is_new] = parked_.try_emplace(peer.key());
  Parked &parked = at->second;
  if (!is_new) return parked;
  parked.peer = peer;
  ops_.visit([&](const Op &op) {
    if (op.in_flight && op.is_message && op.peer == peer) ++parked.in_flight;
  });
  return parked;
}

void Transmit::on_refused(Op &op, bool counted) {
  counters_.messages_refused.add();
  if (op.sequence == 0) op.sequence = ++sequence_;
  const bool known = parked_.contains(op.peer.key());
  Parked &parked = park(op.peer);
  if (known && counted) --parked.in_flight;
  ++parked.drops;
  parked.resumes = false;
  if (op.is_canceled) {
    op.rc = Rc::kCanceled;
    complete(op);
  } else {
    // In the order of the calls, in front of what has not left since.
    const auto from = parked.waiting.begin() + ptrdiff_t(parked.next);
    const auto place =
        std::ranges::upper_bound(from, parked.waiting.end(), op.sequence, {}, &Op::sequence);
    parked.waiting.insert(place, &op);
    ++waiting_;
  }
  on_returned(parked);
}

void Transmit::on_returned(Parked &parked) {
  if (parked.in_flight != 0) return;
  if (parked.drops != 0) {
    // More may come when it has been told: of what counters start.
    parked.told = true;
    if (look_at_ == 0) start_watch();
    control_->tell(parked.peer, {ControlType::kNotify, uint16_t(std::exchange(parked.drops, 0))});
  } else if (!parked.told && parked.next == parked.waiting.size()) {
    parked_.erase(parked.peer.key());
  }
}

// The peer takes messages again.
void Transmit::on_resume(const Peer &peer) {
  const auto found = parked_.find(peer.key());
  if (found == parked_.end() || !found->second.told) return;
  Parked &parked = found->second;
  parked.told = false;
  parked.resumes = true;
  go_on(parked);
}

void Transmit::on_lost(const Peer &peer, Rc rc) {
  const auto found = parked_.extract(peer.key());
  if (found.empty()) return;
  Parked &parked = found.mapped();
  for (; parked.next != parked.waiting.size(); ++parked.next) {
    --waiting_;
    parked.waiting[parked.next]->rc = rc;
    complete(*parked.waiting[parked.next]);
  }
}

void Transmit::go_on(Parked &parked) {
  if (parked.next == parked.waiting.size()) return;
  while (parked.next != parked.waiting.size()) {
    Op &op = *parked.waiting[parked.next];
    if (start(op) != 0) break;  // its acknowledgements make room
    ++parked.next;
    --waiting_;
  }
  if (parked.next == parked.waiting.size()) {
    parked.waiting.clear();
    parked.next = 0;
  }
  queue_->flush();
}

}  // namespace weft::cxi
