// SPDX-License-Identifier: BSD-2-Clause
// Long messages: their first bytes have met a receive, and the NIC or software reads the rest.
#include <algorithm>
#include <utility>

#include "plugins/cxi/inbox.h"

namespace weft::cxi {

// `start`: where the rest goes, behind the first `mlength` bytes.
void Inbox::on_rendezvous(const Event &event) {
  Slot *const slot = slot_of(event);
  if (slot == nullptr) return;
  Incoming &message = incoming(*slot, event, event.start, &Incoming::begun);
  message.begun = true;
  // Here the initiator is the NIC and the PID.
  message.reader = {
      .nid = event.initiator >> 12, .pid = Pid(event.initiator & kAnyPid), .vni = event.vni};
  if (message.sender.peer.is_nowhere()) message.sender.peer = message.reader;
  const uint64_t at = event.start - event.mlength - slot->start;
  const uint64_t whole =
      std::min<uint64_t>(event.rlength, slot->length - std::min(at, slot->length));
  message.rest = uint32_t(whole > event.mlength ? whole - event.mlength : 0);
  if (event.get_issued) {
    const uint64_t key = RendezvousReply{.nid = message.reader.nid,
                                         .pid = message.reader.pid,
                                         .id = event.rendezvous_id,
                                         .buffer_id = event.buffer_id}
                             .user_ptr();
    reads_[key].messages.push_back(&message);
    return end_reads(key);
  }
  message.bits = event.match_bits;
  message.get.local = event.start;
  read_rest(message, event.remote_offset + event.mlength, event.rendezvous_id);
}

void Inbox::on_reply(const Event &event) {
  if (event.rendezvous) return on_read_by_nic(event);
  Incoming *const message = tokens_.find(event.user_ptr);
  if (message == nullptr) return;
  tokens_.remove(event.user_ptr);
  message->done = true;
  message->read = std::min(event.mlength, message->rest);
  if (event.rc != Rc::kOk)
    message->rc = event.rc;
  else if (message->read != message->rest)
    message->rc = Rc::kAddrOutOfRange;  // the peer has sent less than it has announced
  advance(*message);
}

// The NIC names the sender without its VNI, and the number alone. Messages that share these, of
// senders in several VNIs or of one that has used its number again, are all done with the last
// reply: the network may have turned the replies' order around.
void Inbox::on_read_by_nic(const Event &event) {
  const RendezvousReply reply = RendezvousReply::of(event.user_ptr);
  if (!is_slot(reply.buffer_id) || slots_[reply.buffer_id].receive == nullptr) return;
  const uint64_t key = reply.user_ptr();  // without the portal, which hardware has there, too
  Reads &reads = reads_[key];
  ++reads.replies;
  reads.bytes += event.mlength;
  if (event.rc != Rc::kOk) reads.rc = event.rc;
  end_reads(key);
}

void Inbox::end_reads(uint64_t key) {
  const auto found = reads_.find(key);
  if (found->second.replies != found->second.messages.size()) return;
  Reads reads = std::move(found->second);
  reads_.erase(found);
  uint64_t wanted = 0;
  for (const Incoming *const message : reads.messages) wanted += message->rest;
  if (reads.rc == Rc::kOk && reads.bytes != wanted) reads.rc = Rc::kAddrOutOfRange;
  for (Incoming *const message : reads.messages) {
    message->done = true;
    message->read = message->rest;
    if (reads.rc != Rc::kOk) message->rc = reads.rc;
  }
  for (Incoming *const message : reads.messages) advance(*message);
}

void Inbox::forget_rendezvous(const Incoming &message) {
  auto [one, end] = rendezvous_.equal_range(message.rest_at);
  while (one != end && one->second != &message) ++one;
  if (one != end) rendezvous_.erase(one);
}

// ---- Gets of our own ----

void Inbox::read_rest(Incoming &message, uint64_t remote_offset, uint8_t id) {
  Transfer &get = message.get;
  get.op = Op::kGet;
  get.to = {message.reader.nid, message.reader.pid, kRendezvousIndex};
  get.length = message.rest;
  get.memory = message.slot != nullptr      ? memory_of(*message.slot)
               : message.window.number != 0 ? message.window
                                            : ports_.all;
  get.remote_offset = remote_offset;
  get.match_bits = read_bits(id, message.bits);
  get.initiator = ports_.initiator;
  get.is_answer = true;
  get.eq = events_.get();
  get.user_ptr = tokens_.add(message);
  gets_.push_back(&message);
  post_gets();
}

void Inbox::post_gets() {
  bool posted = false;
  while (!gets_.empty() && queue_.post(gets_.front()->get, gets_.front()->reader.vni) == 0) {
    gets_.pop_front();
    posted = true;
  }
  if (posted) queue_.flush();
}

}  // namespace weft::cxi
