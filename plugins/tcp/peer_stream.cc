// SPDX-License-Identifier: BSD-2-Clause
// Messages, remote accesses and announcements on a stream. Its end is in peer_stream_end.cc.
#include "plugins/tcp/peer_stream.h"

#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <utility>

#include "plugins/tcp/peer.h"
#include "plugins/tcp/unconnected_endpoint.h"

namespace weft::tcp {

PeerStream::PeerStream(UnconnectedEndpoint &ep, Peer &peer, int fd, const Terms &terms)
    : Stream(ep.domain()), ep_(ep), peer_(peer), terms_(terms) {
  socket_ = fd;
  refuses_ = terms.refuses;
  order_ = terms.order;
  reader_.start(terms.kind, terms.order);
  last_used_ = engine_.rounds();
  engine_.add(*this, fd, kInput, EPOLLRDHUP | EPOLLET);
}

const weft_instance *PeerStream::instance() const {
  return ep_.instance();
}

std::string PeerStream::peer_name() const {
  return peer_.address.to_string();
}

sdk::Pool<Operation> &PeerStream::control_ops() {
  return ep_.control_ops();
}

void PeerStream::launch(RdmOperation &op) {
  if (op.match && !may_match(op)) [[unlikely]]
    return ep_.finish(op, FI_EOPNOTSUPP);
  last_used_ = engine_.rounds();
  // A layer asks for completions of its own: who knows whether its application waits for one?
  start(op, op.length, op.more, op.report && !domain_.shared().read_by_layer);
  if (open_ && stalled() && is_urgent()) ep_.look_again();
}

void PeerStream::watch() {
  if (!open_) return;
  const uint32_t want = (starved_                   ? uint32_t(EPOLLRDHUP)
                         : stalled() && turns_ == 0 ? 0
                                                    : kInput) |
                        (want_out_ ? uint32_t(EPOLLOUT) : 0);
  engine_.change(*this, want, EPOLLRDHUP | EPOLLET);
}

void PeerStream::on_event(uint32_t events) {
  if (open_ && events & EPOLLOUT && want_out_) flush_output();
  if (open_ && starved_) return look_whether_it_can_end();
  if (open_ && !stalled() && events & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP)) receive(events);
}

void PeerStream::on_flush() {
  if (open_) retry_after_full_queue();
  if (open_ && turns_ != 0) {
    if (--turns_ == 0 || !engine_.spinning())
      end_turn();
    else
      engine_.mark_dirty(*this);
  }
  if (open_ && !leaving_) flush_output();
}

void PeerStream::complete(Operation &op, int error) {
  answered(op);
  auto &rdm = static_cast<RdmOperation &>(op);
  if (rdm.stage != RdmOperation::kWhole && rdm.number != 0) {
    announced_[rdm.number - 1u] = nullptr;
    if (rdm.match) --matching_;
    free_numbers_.push_back(rdm.number);
    if (open_ && error == 0 && !held_.empty()) release_held();
  }
  ep_.finish(rdm, error);
}

bool PeerStream::may_send_unasked(uint64_t length) const {
  if (terms_.kind != EndpointKind::kRdm1 || !ep_.announces()) return true;
  return length <= std::min(ep_.settings().max_saved_size, sends_long_ ? kLongest : kSentUnasked);
}

// Chooses how the transfer at the front of the queue is sent, and encodes an announcement if
// needed. False: it must wait.
bool PeerStream::prepare(Operation &base) {
  auto &op = static_cast<RdmOperation &>(base);
  if (op.match) return op.stage != RdmOperation::kWhole || announce(op);
  // Accesses that must stay behind messages stay behind those that wait for their receives.
  if (!op.tagged) return matching_ == 0 || op.kind == Operation::kSend || ep_.announces();
  if (op.stage != RdmOperation::kWhole || op.copied != nullptr) return true;
  if (may_send_unasked(op.length)) {
    if (op.length <= kSentUnasked || !sends_long_) return true;
    // A queued message can no longer become an announcement if the peer says that it has no room,
    // so few bytes are queued.
    if (unasked_ != 0 && unasked_ + op.length > kLongest) return false;
    unasked_ += op.length;
    op.stage = RdmOperation::kLong;
    return true;
  }
  return announce(op);
}

// False: it must wait for a number.
bool PeerStream::announce(RdmOperation &op) {
  if (op.match && has_many_matching()) return false;
  if (free_numbers_.empty()) {
    if (announced_.size() == kSlots) return false;  // until one of them has ended
    announced_.push_back(nullptr);
    free_numbers_.reserve(announced_.capacity());
    free_numbers_.push_back(uint8_t(announced_.size()));
  }
  const std::span<const iovec> payload = op.vectors();
  op.result_count = uint8_t(payload.size());
  std::ranges::copy(payload, op.result);
  op.number = free_numbers_.back();
  free_numbers_.pop_back();
  announced_[op.number - 1u] = &op;
  op.stage = RdmOperation::kAnnounce;
  op.rendezvous = true;
  FrameHeader header;
  header.op = Op::kReadyToSend;
  header.op_data = op.number;
  header.flags = op.wire_flags;
  if (op.match) {
    ++matching_;
    if (terms_.announces_any) header.flags |= kFlagMatch | (op.tagged ? 0 : kFlagUntagged);
  }
  header.data = op.data;
  header.tag = op.tag;
  header.rendezvous_length = op.length;
  op.set_header(header, order_);
  return true;
}

bool PeerStream::begun(Operation &base) {
  auto &op = static_cast<RdmOperation &>(base);
  if (op.stage == RdmOperation::kAnnounce) {
    op.stage = RdmOperation::kAnnounced;
    return true;
  }
  if (op.stage == RdmOperation::kLong) {
    unasked_ -= op.length;
    if (!held_.empty()) release_held();
  }
  return false;
}

Verdict PeerStream::take_clear(const FrameHeader &header) {
  if (header.op_data == kAnnounceAll || header.op_data == kAnnounceNoMore)
    return terms_.says_when_full ? Verdict::kAccept
                                 : refuse("says whether it has room, which was not agreed");
  const size_t slot = header.op_data - 1u;
  if (slot >= announced_.size() || announced_[slot] == nullptr ||
      announced_[slot]->stage != RdmOperation::kAnnounced)
    return refuse("asks for a message that was not announced");
  return Verdict::kAccept;
}

void PeerStream::end_clear(const FrameHeader &header) {
  if (header.op_data == kAnnounceAll || header.op_data == kAnnounceNoMore) {
    sends_long_ = header.op_data == kAnnounceNoMore;
    if (sends_long_ && !held_.empty()) release_held();
    return;
  }
  RdmOperation &op = *announced_[header.op_data - 1u];
  op.stage = RdmOperation::kData;
  FrameHeader data;
  data.op = Op::kRendezvousData;
  data.op_data = op.number;
  data.flags = op.wire_flags;
  data.payload_size = op.length;
  op.set_header(data, order_);
  for (size_t i = 0; i < op.result_count; ++i) op.add(op.result[i].iov_base, op.result[i].iov_len);
  writer_.push(op);
  engine_.mark_dirty(*this);
}

// ---- saved messages ----

// The payload of the current frame goes to `saved`. The announced length counts for the peer's
// limit only; arrived bytes count for the limits of all peers.
void PeerStream::fill(Saved &saved, uint64_t payload) {
  filling_ = &saved;
  fill_size_ = payload;
  filled_ = 0;
}

void PeerStream::filled() {
  ep_.count_arrived(*std::exchange(filling_, nullptr), fill_size_ - filled_);
}

bool PeerStream::may_fill() const {
  return filling_->dropped || filling_->receive != nullptr ||
         ep_.has_room(peer_, has_extra() ? kUrgentExtra : 0) ||
         ep_.receiver().is_wanted(saving_ != nullptr ? last_message_ : filling_->message);
}

// Called after each read. False: further bytes stay in the socket.
bool PeerStream::go_on_reading() {
  if (filling_ == nullptr) return true;
  const uint64_t arrived = fill_size_ - reader_.direct_left();
  ep_.count_arrived(*filling_, arrived - filled_);
  filled_ = arrived;
  if (may_fill()) return true;
  starved_ = true;
  ep_.stalled(*this);
  watch();
  return false;
}

void PeerStream::resume() {
  if (!open_) return;
  if (starved_) {
    if (!may_fill()) return ep_.stalled(*this);
    starved_ = false;
    watch();
  } else if (stalled()) {
    continue_stalled();
  }
}

// A peer that has gone must not hold room: if the rest of the message is not in the socket, it will
// never come, and the stream ends.
void PeerStream::look_whether_it_can_end() {
  pollfd p{socket_, POLLRDHUP, 0};
  if (::poll(&p, 1, 0) <= 0 || !(p.revents & (POLLRDHUP | POLLHUP | POLLERR))) return;
  int there = 0;
  if (::ioctl(socket_, FIONREAD, &there) != 0) there = 0;
  if (uint64_t(there) < reader_.direct_left()) return end(FI_ECONNRESET);
  starved_ = false;  // the whole message is there
  watch();
}

sdk::Message PeerStream::message_of(const FrameHeader &header) const {
  return {.tagged = header.op != Op::kMessage && !(header.flags & kFlagUntagged),
          .has_data = header.has_data(),
          .source = peer_.source,
          .tag = header.tag,
          .data = header.data,
          .length = header.op == Op::kReadyToSend ? header.rendezvous_length : header.payload_size};
}

Verdict PeerStream::stall() {
  ep_.stalled(*this);
  return Verdict::kStall;
}

// When an operation has just ended, the application may post the next receive as soon as it hears
// of that. So a long message stays in the socket until the next progress, which saves a copy. An
// application that waits for descriptors, or has a thread for its progress, might make no other
// progress, and the message would never be read.
bool PeerStream::may_wait_a_turn(uint64_t payload) const {
  return payload >= kLargePayload && !has_waited_ && ep_.has_news() && engine_.spinning();
}

Verdict PeerStream::wait_a_turn() {
  has_waited_ = true;
  turns_ = 2;  // one flush ends this progress, one begins the next
  engine_.mark_dirty(*this);
  return Verdict::kStall;
}

void PeerStream::end_turn() {
  turns_ = 0;
  if (!stalled()) return;
  continue_stalled();
  if (!open_) return;
  if (stalled())
    watch();
  else if (!starved_)
    receive(EPOLLRDHUP);  // the event was for the message that waited
}

Verdict PeerStream::take_message(const FrameHeader &header, Target &target) {
  last_message_ = message_of(header);
  bool full = false;
  if (sdk::Receive *r = ep_.receiver().match(last_message_, &full)) {
    has_waited_ = false;
    current_ = r;
    fit_ = target.fit({r->iov, r->count}, header.payload_size);
    return Verdict::kAccept;
  }
  if (full) {
    wait_for_room();
    return Verdict::kStall;
  }
  if (may_wait_a_turn(header.payload_size)) return wait_a_turn();
  has_waited_ = false;
  saving_ = ep_.save(peer_, header.payload_size, has_extra());
  if (saving_ == nullptr) {
    if (!ep_.receiver().is_told_early(last_message_)) return stall();
    Saved *const saved = ep_.save(peer_, ep_.receiver().first_bytes(), true);
    if (saved == nullptr) return stall();
    saved->stage = Saved::kFetching;
    saved->message = last_message_;
    saved->is_part = true;
    const Verdict verdict = take_part(*saved, header, target);
    ep_.receiver().save(*saved);
    return verdict;
  }
  if (header.payload_size >= kLargePayload) ep_.counters().long_saved.add();
  if (header.payload_size != 0) target.add(saving_->bytes, header.payload_size);
  fill(*saving_, header.payload_size);
  if (has_room_) say_whether_full();
  return Verdict::kAccept;
}

void PeerStream::end_message(const FrameHeader &header) {
  if (current_ != nullptr) {
    ep_.note_end();
    ep_.receiver().complete(*std::exchange(current_, nullptr), last_message_, fit_,
                            take_landing_error());
  } else if (!end_part()) {
    // Receives may find it only when it is whole.
    filled();
    Saved *saved = std::exchange(saving_, nullptr);
    saved->message = message_of(header);
    if (sdk::Receive *r = ep_.receiver().match(saved->message)) {
      ep_.deliver(*saved, *r);
    } else {
      ep_.receiver().save(*saved);
    }
  }
}

Verdict PeerStream::take_announcement(const FrameHeader &header) {
  if (header.flags & (kFlagMatch | kFlagUntagged) && !terms_.announces_any)
    return refuse("announces a message in a way that was not agreed");
  const size_t slot = header.op_data - 1u;
  if (slot < expected_.size() && expected_[slot].used)
    return refuse("announces two messages by one number");
  if (owes_too_much()) return refuse("reads none of the answers that it asked for");
  last_message_ = message_of(header);
  bool full = false;
  current_ = ep_.receiver().match(last_message_, &full);
  if (current_ != nullptr) return Verdict::kAccept;
  if (full) {
    wait_for_room();
    return Verdict::kStall;
  }
  if (last_message_.length <= std::min(ep_.settings().max_saved_size, kLongest))
    was_promised_ = false;
  // A peer has few of them at a time, and they take hardly any room.
  saving_ = ep_.save(peer_, 0, true);
  return saving_ != nullptr ? Verdict::kAccept : stall();
}

void PeerStream::end_announcement(const FrameHeader &header) {
  const size_t slot = header.op_data - 1u;
  if (slot >= expected_.size()) expected_.resize(slot + 1);
  Expected &expected = expected_[slot];
  if (current_ != nullptr) {
    expected = {.used = true,
                .asked = true,
                .receive = std::exchange(current_, nullptr),
                .message = last_message_};
    return ask(header.op_data);
  }
  expected = {.used = true};
  Saved *saved = std::exchange(saving_, nullptr);
  saved->stage = Saved::kAnnounced;
  saved->message = last_message_;
  saved->stream = this;
  saved->number = header.op_data;
  saved->next = unanswered_;
  if (unanswered_ != nullptr) unanswered_->previous = saved;
  unanswered_ = saved;
  ++unanswered_count_;
  if (unanswered_count_ > kFetchFrom && !(header.flags & kFlagMatch)) fetch(*saved);
  ep_.receiver().save(*saved);
}

void PeerStream::unlink(Saved &saved) {
  (saved.previous != nullptr ? saved.previous->next : unanswered_) = saved.next;
  if (saved.next != nullptr) saved.next->previous = saved.previous;
  --unanswered_count_;
}

void PeerStream::ask_for(Saved &saved, sdk::Receive *receive) {
  expected_[saved.number - 1u] = {
      .used = true, .asked = true, .receive = receive, .message = saved.message};
  unlink(saved);
  ask(saved.number);
}

// Fetches an announced message without a receive. A peer that has used all rendezvous numbers could
// not announce the message that our application is waiting for.
void PeerStream::fetch(Saved &saved) {
  if (!ep_.make_room(saved)) return;
  expected_[saved.number - 1u] = {
      .used = true, .asked = true, .saved = &saved, .message = saved.message};
  unlink(saved);
  saved.stage = Saved::kFetching;
  ask(saved.number);
}

void PeerStream::fetch_first(Saved &saved, size_t n) {
  fetch(saved);
  if (saved.stage != Saved::kAnnounced) return;
  auto *memory = static_cast<char *>(std::malloc(n));
  if (memory == nullptr) return;
  saved.bytes = memory;
  saved.is_part = true;
  expected_[saved.number - 1u] = {
      .used = true, .asked = true, .saved = &saved, .message = saved.message};
  unlink(saved);
  saved.stage = Saved::kFetching;
  ask(saved.number);
}

// ---- long messages of which the application is told first ----

Verdict PeerStream::take_part(Saved &saved, const FrameHeader &header, Target &target) {
  part_ = &saved;
  const size_t first = ep_.receiver().first_bytes();
  if (first != 0) target.add(saved.bytes, first);
  target.asks = true;
  target.discard = header.payload_size - first;
  return Verdict::kAccept;
}

// The first bytes are there. The rest goes to the receive that claims the message, or is dropped.
Verdict PeerStream::on_rest(const FrameHeader &, Target &rest) {
  Saved &saved = *part_;
  const size_t first = ep_.receiver().first_bytes();
  const uint64_t left = saved.message.length - first;
  saved.is_begun = true;
  ep_.receiver().on_more(saved);
  if (saved.dropped) {
    rest.discard = left;
    return Verdict::kAccept;
  }
  if (saved.receive == nullptr) return stall();
  sdk::Receive &r = *saved.receive;
  const auto head = size_t(std::min<uint64_t>(first, r.length));
  const char *from = saved.bytes;
  sdk::pieces(r.iov, r.count, 0, head, [&](uint8_t *at, size_t k) {
    put(at, from, k);
    from += k;
  });
  iovec parts[sdk::kIovLimit];
  const size_t count = sdk::slice(r.iov, r.count, head, r.length - head, parts);
  fit_ = head + rest.fit({parts, count}, left);
  return Verdict::kAccept;
}

// True: the message that ends was such a one.
bool PeerStream::end_part() {
  Saved *const saved = std::exchange(part_, nullptr);
  if (saved == nullptr) return false;
  const int error = take_landing_error();
  if (saved->receive != nullptr)
    ep_.receiver().complete(*saved->receive, saved->message, fit_, error);
  ep_.release(saved);
  return true;
}

void PeerStream::say_whether_full() {
  if (!open_ || leaving_ || !terms_.says_when_full || owes_too_much()) return;
  const bool room = ep_.may_send_long(peer_, has_room_, has_share_);
  if (room == has_room_ || !clear(room ? kAnnounceNoMore : kAnnounceAll)) return;
  has_room_ = room;
  was_promised_ = !room;
  if (room && !std::exchange(has_share_, true)) ep_.take_share();
}

void PeerStream::ask(uint8_t number) {
  if (!clear(number)) return;  // no memory: the message never comes
  ++asked_;
  say_whether_full();
}

bool PeerStream::clear(uint8_t context) {
  Operation *op = ep_.control_ops().take();
  if (op == nullptr) return false;
  FrameHeader header;
  header.op = Op::kClearToSend;
  header.op_data = context;
  op->kind = Operation::kClear;
  op->set_header(header, order_);
  queue_control(*op);
  return true;
}

Verdict PeerStream::take_rendezvous(const FrameHeader &header, Target &target) {
  const size_t slot = header.op_data - 1u;
  if (slot >= expected_.size() || !expected_[slot].asked)
    return refuse("sends a message that was not asked for");
  const Expected &expected = expected_[slot];
  if (expected.message.length != header.payload_size)
    return refuse("sends a message with another length than announced");
  if (expected.saved != nullptr && expected.saved->is_part)
    return take_part(*expected.saved, header, target);
  if (expected.saved != nullptr) {
    target.add(expected.saved->bytes, header.payload_size);
    fill(*expected.saved, header.payload_size);
  } else if (expected.receive == nullptr) {
    target.discard = header.payload_size;
  } else {
    fit_ = target.fit({expected.receive->iov, expected.receive->count}, header.payload_size);
  }
  return Verdict::kAccept;
}

void PeerStream::end_rendezvous(const FrameHeader &header) {
  if (filling_ != nullptr) filled();
  const Expected expected = std::exchange(expected_[header.op_data - 1u], {});
  if (asked_ != 0) --asked_;
  if (expected.receive != nullptr) {
    ep_.note_end();
    ep_.receiver().complete(*expected.receive, expected.message, fit_, take_landing_error());
  }
  if (Saved *saved = expected.saved; saved != nullptr && !end_part()) {
    saved->stage = Saved::kHere;
    if (saved->dropped) {
      ep_.release(saved);
    } else if (saved->receive != nullptr) {
      ep_.deliver(*saved, *saved->receive);
    } else {
      ep_.receiver().on_more(*saved);
    }
  }
}

Verdict PeerStream::on_header(const FrameHeader &header, Target &target) {
  last_payload_ = header.payload_size;
  last_used_ = engine_.rounds();
  if (header.wants_ack() && owes_too_much())
    return refuse("reads none of the answers that it asked for");
  if (leaving_ && (header.wants_ack() || header.op == Op::kReadRequest))
    return refuse("asks for an answer after we began to close the idle connection");
  switch (header.op) {
    case Op::kMessage:
      if (header.is_answer()) return take_ack(header);
      [[fallthrough]];
    case Op::kTagged:
      return take_message(header, target);
    case Op::kReadRequest:
      return take_read(header);
    case Op::kReadResponse:
      return take_response(header, target);
    case Op::kWrite:
      return take_write(header, target);
    case Op::kReadyToSend:
      return take_announcement(header);
    case Op::kClearToSend:
      return take_clear(header);
    case Op::kRendezvousData:
      return take_rendezvous(header, target);
  }
  return Verdict::kReject;
}

void PeerStream::on_frame_end(const FrameHeader &header) {
  switch (header.op) {
    case Op::kMessage:
      if (header.is_answer()) return end_ack(header);
      [[fallthrough]];
    case Op::kTagged:
      end_message(header);
      break;
    case Op::kReadRequest:
      return;
    case Op::kReadResponse:
      return end_response(header);
    case Op::kWrite:
      if (!end_write(header)) return;
      break;
    case Op::kReadyToSend:
      return end_announcement(header);  // acknowledged with its data
    case Op::kClearToSend:
      return end_clear(header);
    case Op::kRendezvousData:
      end_rendezvous(header);
      break;
  }
  if (header.wants_ack()) queue_ack();
}

void PeerStream::lost(uint64_t flags, int error) {
  ep_.lost(flags, error);
}

void PeerStream::on_full() {
  ep_.waits();
}

void PeerStream::on_mute() {
  engine_.set_deadline(*this, sdk::now_ns() + ep_.settings().handshake_timeout_ns);
}

bool PeerStream::no_room_to_report() const {
  return ep_.receiver().is_full();
}

void PeerStream::written(const FrameHeader &header, bool) {
  ep_.receiver().count_remote(FI_REMOTE_WRITE, header.payload_size);
  if (header.has_data()) ep_.report_remote_write(header.payload_size, header.data, peer_.source);
}

void PeerStream::was_read(uint64_t bytes) {
  ep_.receiver().count_remote(FI_REMOTE_READ, bytes);
}

// No layer has regions of its own here.
sdk::MrPeer PeerStream::mr_peer() const {
  return {.endpoint = ep_.number()};
}

}  // namespace weft::tcp
