// SPDX-License-Identifier: BSD-2-Clause
// Long messages: their first bytes have met a receive, and the NIC or software reads the rest.
#include <algorithm>
#include <vector>

#include "plugins/cxi/inbox.h"

namespace weft::cxi {

void Inbox::on_rendezvous(const Event &event) {
  if (!is_slot(event.buffer_id) || slots_[event.buffer_id].receive == nullptr) return;
  Slot &slot = slots_[event.buffer_id];
  // Here the initiator is the NIC and the PID.
  const Peer peer{
      .nid = event.initiator >> 12, .pid = Pid(event.initiator & kAnyPid), .vni = event.vni};
  Incoming &message = incoming(slot, event, {.peer = peer}, &Incoming::begun);
  message.begun = true;
  if (!event.get_issued) {
    const uint64_t at = event.start - slot.start;
    const uint64_t whole = std::min<uint64_t>(event.rlength, slot.length - (at - event.mlength));
    message.bits = event.match_bits;
    message.get.local = event.start;
    message.get.length = uint32_t(whole > event.mlength ? whole - event.mlength : 0);
    read_rest(message, event.remote_offset + event.mlength, event.rendezvous_id);
  }
  advance(message);
}

void Inbox::on_reply(const Event &event) {
  if (event.rendezvous) return on_read_by_nic(event);
  auto &message = *reinterpret_cast<Incoming *>(event.user_ptr);
  message.done = true;
  message.read = event.mlength;
  if (event.rc != Rc::kOk) message.rc = event.rc;
  advance(message);
}

// The NIC names the sender without its VNI, and the number alone. Messages that share these, of
// senders in several VNIs or of one that has used its number again, are all done with the last
// reply: the network may have turned the replies' order around.
void Inbox::on_read_by_nic(const Event &event) {
  const RendezvousReply reply = RendezvousReply::of(event.user_ptr);
  std::vector<Incoming *> open;
  uint32_t replies = 1;
  auto [one, end] =
      rendezvous_.equal_range(key_of(reply.buffer_id, reply.nid, reply.pid, reply.id));
  for (; one != end; ++one) {
    if (one->second->done) continue;
    open.push_back(one->second);
    replies += one->second->replies;
  }
  if (open.empty()) return;
  if (event.rc != Rc::kOk) open.front()->rc = event.rc;
  if (replies < open.size()) {
    ++open.front()->replies;
    return;
  }
  const auto bad = std::ranges::find_if(open, [](const auto *m) { return m->rc != Rc::kOk; });
  const Rc rc = bad != open.end() ? (*bad)->rc : Rc::kOk;
  for (Incoming *const message : open) {
    message->done = true;
    message->read = event.mlength;
    message->reads_all = open.size() != 1;
    message->rc = rc;
  }
  for (Incoming *const message : open) advance(*message);
}

void Inbox::forget_rendezvous(const Incoming &message) {
  auto [one, end] = rendezvous_.equal_range(message.key);
  while (one != end && one->second != &message) ++one;
  if (one != end) rendezvous_.erase(one);
}

// ---- Gets of our own ----

void Inbox::read_rest(Incoming &message, uint64_t remote_offset, uint8_t id) {
  Transfer &get = message.get;
  get.op = Op::kGet;
  get.to = {message.sender.peer.nid, message.sender.peer.pid, kRendezvousIndex};
  get.memory = message.slot != nullptr      ? memory_of(*message.slot)
               : message.window.number != 0 ? message.window
                                            : ports_.all;
  get.remote_offset = remote_offset;
  get.match_bits = read_bits(id, message.bits);
  get.initiator = ports_.initiator;
  get.is_answer = true;
  get.eq = events_.get();
  get.user_ptr = reinterpret_cast<uintptr_t>(&message);
  gets_.push_back(&message);
  post_gets();
}

void Inbox::post_gets() {
  bool posted = false;
  while (!gets_.empty() && queue_.post(gets_.front()->get, gets_.front()->sender.peer.vni) == 0) {
    gets_.pop_front();
    posted = true;
  }
  if (posted) queue_.flush();
}

}  // namespace weft::cxi
