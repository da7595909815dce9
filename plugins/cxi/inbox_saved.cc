// SPDX-License-Identifier: BSD-2-Clause
// Messages that have come before their receive.
#include <rdma/fi_errno.h>
#include <weft/sdk/memory/iov.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "plugins/cxi/control.h"
#include "plugins/cxi/inbox.h"
#include "plugins/cxi/nic/return_codes.h"

namespace weft::cxi {

// The bytes of a message without a receive are in an overflow buffer. Its header may have been
// taken already.
void Inbox::on_saved_put(const Event &event) {
  counters_.messages_saved.add();
  if (event.rc == Rc::kOk) ++waiting_;
  if (event.rc == Rc::kOk && event.mlength != 0) {
    if (const auto taken = awaited_.extract(event.start); !taken.empty()) {
      taken.mapped()->landed = true;
      advance(*taken.mapped());
    } else if (const auto saved = awaited_saved_.extract(event.start); !saved.empty()) {
      saved.mapped()->landed = true;
      if (sdk::Receive *const receive = std::exchange(saved.mapped()->receive, nullptr))
        start_delivery(*saved.mapped(), *receive);
    } else {
      landed_.insert(event.start);
    }
  }
  on_overflow_end(event);
  if (starved_ && may_post()) search();
}

// Of a buffer, if this was the last that it has taken.
void Inbox::on_overflow_end(const Event &event) {
  if (!event.auto_unlinked) return;
  overflow_.on_full(event.buffer_id, event.start + event.mlength);
  overflow_.link(*portal_);
}

// The NIC leaves a message to software. It is newer than all that the NIC has saved.
void Inbox::on_request(const Event &event) {
  if (collecting_) return held_.push_back(event);
  counters_.messages_requested.add();
  if (event.rc == Rc::kOk) {
    const auto *const bytes = reinterpret_cast<const uint8_t *>(event.start);
    RequestHeader header;
    std::memcpy(&header, bytes, sizeof header);
    Saved &saved = *saved_.take();
    saved.sender = sources_.sender_of(header.initiator, header.vni);
    saved.bits = header.match_bits;
    saved.start = event.start + event.head;
    saved.first = event.mlength - event.head;
    saved.remote_offset = header.remote_offset;
    saved.rendezvous_id = header.rendezvous_id;
    saved.is_rendezvous = header.rendezvous != 0;
    saved.landed = true;
    saved.is_requested = true;
    saved.receive = nullptr;
    request_.release(event.start, event.head);
    save(saved, header.header_data, header.length);
  }
  if (!event.auto_unlinked) return;
  request_.on_full(event.buffer_id, event.start + event.mlength);
  request_.link(*portal_);
}

// The NIC has given up the header of a message that it has saved.
void Inbox::on_collected(const Event &event) {
  counters_.messages_collected.add();
  --waiting_;
  Saved &saved = *saved_.take();
  saved.sender = sources_.sender_of(event.initiator, event.vni);
  saved.bits = event.match_bits;
  saved.start = event.start;
  saved.first = event.mlength;
  saved.remote_offset = event.remote_offset;
  saved.rendezvous_id = event.rendezvous_id;
  saved.is_rendezvous = event.rendezvous;
  saved.is_requested = false;
  saved.receive = nullptr;
  saved.landed = event.mlength == 0 || landed_.erase(event.start) != 0;
  if (!saved.landed) awaited_saved_[event.start] = &saved;
  save(saved, event.header_data, event.rlength);
  search();
}

void Inbox::save(Saved &saved, uint64_t data, uint64_t length) {
  saved.message = message_of(saved.sender, saved.bits, data, length);
  if (sdk::Receive *const receive = receiver_.match(saved.message)) return deliver(saved, *receive);
  receiver_.save(saved);
}

void Inbox::deliver(sdk::Unexpected &message, sdk::Receive &receive) {
  auto &saved = static_cast<Saved &>(message);
  if (!saved.is_rendezvous && saved.bits & kMatchComplete)
    tell_matched(saved.sender.peer, saved.bits);
  if (saved.landed) return start_delivery(saved, receive);
  saved.receive = &receive;
}

void Inbox::start_delivery(Saved &saved, sdk::Receive &receive) {
  const size_t first = std::min<size_t>(saved.first, receive.length);
  void *const memory = receive.count != 0 ? receive.iov[0].iov_base : nullptr;
  const auto start = reinterpret_cast<uintptr_t>(memory);
  const sdk::HmemPlace place = place_of(receive, start, receive.length);
  const bool copied = sdk::hmem_copy(memory, place.or_null(),
                                     reinterpret_cast<const void *>(saved.start), nullptr, first);
  release(saved.start, saved.first, saved.is_requested);
  sdk::Message about = saved.message;
  if (!saved.is_rendezvous) {
    const Rc rc = copied ? Rc::kOk : Rc::kNoTranslation;
    if (!copied) about.prov_errno = uint16_t(rc);
    saved_.give(&saved);
    return receiver_.complete(receive, about, copied ? first : 0, errno_of(rc));
  }
  Incoming &message = *incoming_.take();
  message = {.receive = &receive,
             .sender = saved.sender,
             .reader = saved.sender.peer,
             .bits = saved.bits,
             .data = about.data,
             .first = uint32_t(first),
             .length = uint32_t(about.length),
             .known = true,
             .done = false};
  const uint64_t whole = std::min<uint64_t>(about.length, receive.length);
  message.get.local = start + first;
  // Where it fails the rest is read all the same: then its sender is done.
  if (!copied || !map_device(place, start, receive.length, message.window))
    message.rc = Rc::kNoTranslation;
  message.rest = uint32_t(whole > saved.first ? whole - saved.first : 0);
  const uint64_t offset = saved.remote_offset + saved.first;
  const uint8_t id = saved.rendezvous_id;
  saved_.give(&saved);
  read_rest(message, offset, id);
}

// The sender of a long message is done when it was read: nothing is read of it.
void Inbox::discard(sdk::Unexpected &message) {
  auto &saved = static_cast<Saved &>(message);
  if (!saved.landed) {
    awaited_saved_.erase(saved.start);
    landed_.insert(saved.start);
  }
  if (events_ != nullptr && saved.is_rendezvous) {
    Transfer get;
    get.op = Op::kGet;
    get.to = {saved.sender.peer.nid, saved.sender.peer.pid, kRendezvousIndex};
    get.match_bits = read_bits(saved.rendezvous_id, saved.bits);
    get.remote_offset = saved.remote_offset;
    get.initiator = ports_.initiator;
    get.is_answer = true;
    if (queue_.post(get, saved.sender.peer.vni) == 0) queue_.flush();
  }
  if (events_ != nullptr && !saved.is_rendezvous && saved.bits & kMatchComplete)
    tell_matched(saved.sender.peer, saved.bits);
  if (saved.landed) release(saved.start, saved.first, saved.is_requested);
  saved_.give(&saved);
}

void Inbox::release(uint64_t start, uint32_t bytes, bool is_requested) {
  (is_requested ? request_ : overflow_).release(start, bytes);
}

// ---- notices ----

// FI_MATCH_COMPLETE of a message that has had to wait for its receive.
void Inbox::tell_matched(const Peer &peer, uint64_t bits) {
  Transfer notice;
  notice.to = {peer.nid, peer.pid, kDoneIndex};
  notice.match_bits = MessageBits().with_transaction(transaction_of(bits)).bits;
  notice.initiator = ports_.initiator;
  notice.is_answer = true;
  if (queue_.post(notice, peer.vni) == 0) queue_.flush();
}

}  // namespace weft::cxi
