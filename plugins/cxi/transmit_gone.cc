// SPDX-License-Identifier: BSD-2-Clause
// Operations whose end is a peer's to tell, and peers that are gone.
#include <algorithm>
#include <vector>

#include "plugins/cxi/control.h"
#include "plugins/cxi/nic/return_codes.h"
#include "plugins/cxi/transmit.h"

namespace weft::cxi {

// Something waits that did not before.
void Transmit::start_watch() {
  look_at_ = sdk::now_ns() + PeerWatch::kFirstNs;
  schedule();
}

void Transmit::look_at_peers(uint64_t now) {
  std::vector<Peer> awaited;
  ops_.visit([&](const Op &op) {
    if (op.is_awaited) awaited.push_back(op.peer);
  });
  for (const auto &[key, parked] : parked_)
    if (parked.told) awaited.push_back(parked.peer);
  for (const Peer &peer : watch_.look(now, awaited))
    if (!control_->ask(peer, *events_, peer.key() << kOwnerShift | kPeerQuestion))
      watch_.put_off(peer, now);
  look_at_ = watch_.next();  // 0: all have been asked
}

// It comes by the queue that tells of reads and matches, too, so those of before are known.
void Transmit::on_peer(const Peer &peer, Rc answer) {
  if (watch_.on_answer(peer, !is_gone(answer), sdk::now_ns())) on_gone(peer, answer);
  // It may be another endpoint than the one that was told of drops, and have the address of that.
  if (const auto found = parked_.find(peer.key());
      found != parked_.end() && found->second.told && !is_gone(answer))
    control_->tell(peer, {ControlType::kNotify, 0});
  const uint64_t next = watch_.next();
  if (look_at_ == 0 || (next != 0 && next < look_at_)) look_at_ = next;
  schedule();
}

void Transmit::on_gone(const Peer &peer, Rc rc) {
  std::vector<Op *> lost;
  ops_.visit([&](Op &op) {
    if (op.is_awaited && op.peer == peer) lost.push_back(&op);
  });
  std::ranges::sort(lost, {}, &Op::sequence);
  for (Op *const op : lost) {
    op->rc = rc;
    complete(*op);
  }
  on_lost(peer, rc);
}

}  // namespace weft::cxi
