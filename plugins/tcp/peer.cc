// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/peer.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/sdk/log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "plugins/tcp/fabric.h"
#include "plugins/tcp/socket.h"
#include "plugins/tcp/unconnected_endpoint.h"

namespace weft::tcp {

// ---- the stream to a peer ----

PeerStream::PeerStream(UnconnectedEndpoint &ep, Peer &peer, int fd, const Terms &terms)
    : Stream(ep.domain()), ep_(ep), peer_(peer), terms_(terms) {
  socket_ = fd;
  order_ = terms.order;
  reader_.start(terms.kind, terms.order);
  last_used_ = engine_.rounds();
  engine_.add(*this, fd, EPOLLIN, EPOLLRDHUP | EPOLLET);
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
  last_used_ = engine_.rounds();
  start(op, op.length, op.more, op.report);
  if (open_ && stalled() && is_urgent()) ep_.look_again();
}

void PeerStream::watch() {
  if (!open_) return;
  const uint32_t want = (starved_    ? uint32_t(EPOLLRDHUP)
                         : stalled() ? 0
                                     : uint32_t(EPOLLIN)) |
                        (want_out_ ? uint32_t(EPOLLOUT) : 0);
  engine_.change(*this, want, EPOLLRDHUP | EPOLLET);
}

void PeerStream::on_event(uint32_t events) {
  if (open_ && events & EPOLLOUT && want_out_) flush_output();
  if (open_ && starved_) return look_whether_it_can_end();
  if (open_ && !stalled() && events & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP)) receive();
}

void PeerStream::on_flush() {
  if (open_) retry_after_full_queue();
  if (open_ && !leaving_) flush_output();
}

void PeerStream::complete(Operation &op, int error) {
  answered(op);
  auto &rdm = static_cast<RdmOperation &>(op);
  if (rdm.stage != RdmOperation::kWhole && rdm.number != 0) {
    announced_[rdm.number - 1u] = nullptr;
    free_numbers_.push_back(rdm.number);
    if (open_ && error == 0 && !held_.empty()) release_held();
  }
  ep_.finish(rdm, error);
}

bool PeerStream::may_send_unasked(uint64_t length) const {
  if (terms_.kind != EndpointKind::kRdm1 || !ep_.announces()) return true;
  return length <= std::min(ep_.settings().max_saved_size, sends_long_ ? kLongest : kSentUnasked);
}

// The beginning of a transfer whose turn has come. False: not now.
bool PeerStream::prepare(Operation &base) {
  auto &op = static_cast<RdmOperation &>(base);
  if (!op.tagged || op.stage != RdmOperation::kWhole || op.copied != nullptr) return true;
  if (may_send_unasked(op.length)) {
    if (op.length <= kSentUnasked || !sends_long_) return true;
    // What is queued here cannot be announced any more when the peer says that it is full.
    if (unasked_ != 0 && unasked_ + op.length > kLongest) return false;
    unasked_ += op.length;
    op.stage = RdmOperation::kLong;
    return true;
  }
  if (free_numbers_.empty()) {
    if (announced_.size() == kSlots) return false;  // until one of them is through
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
                                 : refuse("says what it did not say that it would");
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

// ---- what is saved ----

// The payload of the frame that begins goes there. What a header says is the peer's own affair;
// what has arrived is everybody's.
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
         ep_.has_room(peer_, is_urgent() ? kUrgentExtra : 0) ||
         ep_.receiver().is_wanted(saving_ != nullptr ? last_message_ : filling_->message);
}

// After each read. False: what comes next stays in the socket.
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

// A peer that has gone keeps nobody's room: if the rest of the message is not in the socket, it
// never will be.
void PeerStream::look_whether_it_can_end() {
  pollfd p{socket_, POLLRDHUP, 0};
  if (::poll(&p, 1, 0) <= 0 || !(p.revents & (POLLRDHUP | POLLHUP | POLLERR))) return;
  int there = 0;
  if (::ioctl(socket_, FIONREAD, &there) != 0) there = 0;
  if (uint64_t(there) < reader_.direct_left()) return end(FI_ECONNRESET);
  starved_ = false;  // all of it is there
  watch();
}

sdk::Message PeerStream::message_of(const FrameHeader &header) const {
  return {.tagged = header.op != Op::kMessage,
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

Verdict PeerStream::take_message(const FrameHeader &header, Target &target) {
  last_message_ = message_of(header);
  bool full = false;
  if (sdk::Receive *r = ep_.receiver().match(last_message_, &full)) {
    current_ = r;
    fit_ = target.fit({r->iov, r->count}, header.payload_size);
    return Verdict::kAccept;
  }
  if (full) {
    wait_for_room();
    return Verdict::kStall;
  }
  saving_ = ep_.save(peer_, header.payload_size, is_urgent());
  if (saving_ == nullptr) return stall();
  if (header.payload_size != 0) target.add(saving_->bytes, header.payload_size);
  fill(*saving_, header.payload_size);
  if (has_room_) say_whether_full();
  return Verdict::kAccept;
}

void PeerStream::end_message(const FrameHeader &header) {
  if (current_ != nullptr) {
    ep_.receiver().complete(*std::exchange(current_, nullptr), last_message_, fit_, 0);
  } else {
    // Only now, that all of it is here, may it be found by a receive.
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
  saving_ = ep_.save(peer_, 0, is_urgent());
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
  ep_.receiver().save(*saved);
  if (unanswered_count_ > kFetchFrom) fetch(*saved);
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

// A peer who may announce no more cannot say what our application is waiting for.
void PeerStream::fetch(Saved &saved) {
  if (!ep_.make_room(saved)) return;
  expected_[saved.number - 1u] = {
      .used = true, .asked = true, .saved = &saved, .message = saved.message};
  unlink(saved);
  saved.stage = Saved::kFetching;
  ask(saved.number);
}

void PeerStream::say_whether_full() {
  if (!open_ || leaving_ || !terms_.says_when_full || owes_too_much()) return;
  const bool room = ep_.may_send_long(peer_, has_room_, has_share_);
  if (room == has_room_ || !clear(room ? kAnnounceNoMore : kAnnounceAll)) return;
  has_room_ = room;
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
  if (expected.receive != nullptr)
    ep_.receiver().complete(*expected.receive, expected.message, fit_, 0);
  if (Saved *saved = expected.saved) {
    saved->stage = Saved::kHere;
    if (saved->dropped) {
      ep_.release(saved);
    } else if (saved->receive != nullptr) {
      ep_.deliver(*saved, *saved->receive);
    }
  }
}

Verdict PeerStream::on_header(const FrameHeader &header, Target &target) {
  last_payload_ = header.payload_size;
  last_used_ = engine_.rounds();
  if (header.wants_ack() && owes_too_much())
    return refuse("reads none of the answers that it asked for");
  if (leaving_ && (header.wants_ack() || header.op == Op::kReadRequest))
    return refuse("asks for an answer on a connection that is being closed for want of use");
  switch (header.op) {
    case Op::kMessage:
      if (header.is_ack()) return take_ack();
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
      if (header.is_ack()) return end_ack();
      [[fallthrough]];
    case Op::kTagged:
      end_message(header);
      break;
    case Op::kReadRequest:
      return;
    case Op::kReadResponse:
      return end_response();
    case Op::kWrite:
      end_write(header);
      break;
    case Op::kReadyToSend:
      return end_announcement(header);  // acknowledged when the message is here
    case Op::kClearToSend:
      return end_clear(header);
    case Op::kRendezvousData:
      end_rendezvous(header);
      break;
  }
  if (header.wants_ack()) queue_ack();
}

bool PeerStream::no_room_to_report() const {
  return ep_.rx_cq_full();
}

void PeerStream::written(const FrameHeader &header, bool) {
  ep_.count_remote(FI_REMOTE_WRITE, header.payload_size);
  if (header.has_data()) ep_.report_remote_write(header.payload_size, header.data, peer_.source);
}

void PeerStream::was_read(uint64_t bytes) {
  ep_.count_remote(FI_REMOTE_READ, bytes);
}

bool PeerStream::is_idle() const {
  if (leaving_ || !writer_.empty() || !held_.empty() || answers_outstanding() || !reader_.idle() ||
      unanswered_ != nullptr || free_numbers_.size() != announced_.size())
    return false;
  if (std::ranges::any_of(expected_, [](const Expected &e) { return e.used; })) return false;
  char byte;
  return ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

void PeerStream::say_goodbye(bool hurry) {
  leaving_ = true;
  ::shutdown(socket_, SHUT_WR);
  if (hurry) engine_.set_deadline(*this, sdk::now_ns() + ep_.settings().handshake_timeout_ns);
}

void PeerStream::on_deadline() {
  end(FI_ECONNRESET);
}

bool PeerStream::is_over() {
  pollfd p{socket_, POLLRDHUP, 0};
  if (::poll(&p, 1, 0) <= 0 || !(p.revents & (POLLRDHUP | POLLHUP | POLLERR))) return false;
  // What came before the end counts.
  while (open_ && !stalled() && !starved_) receive();
  if (open_) end(FI_ECONNRESET);
  return true;
}

void PeerStream::ask_whether_alive() {
  keep_alive(socket_);
}

void PeerStream::ended() {
  // A peer that had no use for the stream any more, or one that is gone: what was not begun yet
  // can go another way, and will find out.
  if (!leaving_ && peer_.stream == this && order_ == ByteOrder::kNative && reader_.idle() &&
      !writer_.inside_frame() && !answers_outstanding() &&
      free_numbers_.size() == announced_.size()) {
    take_back([this](Operation &op) {
      static_cast<RdmOperation &>(op).stage = RdmOperation::kWhole;
      peer_.pending.push(op);
    });
  }
  end(FI_ECONNRESET);
}

void PeerStream::failed(int error, const char *doing) {
  // A peer that closed with unread bytes resets the connection: nothing to tell beyond its end.
  if (error != FI_ECONNRESET)
    WEFT_WARN(instance(), FI_LOG_EP_DATA, "%s %s: %s", doing, peer_name().c_str(), strerror(error));
  end(error);
}

void PeerStream::rejected(Reject reject) {
  ep_.stats().add(Stat::kFramesRejected);
  // A frame that the endpoint itself refused was logged there, with what was wrong about it.
  if (reject != Reject::kRefused)
    WEFT_WARN(instance(), FI_LOG_EP_DATA, "stream from %s: %s; the connection is closed",
              peer_name().c_str(), text(reject));
  end(FI_EPROTO);
}

void PeerStream::drop_region(const sdk::Mr &mr) {
  if (!open_ || !uses(mr)) return;
  WEFT_WARN(
      instance(), FI_LOG_MR,
      "region with key %#llx is closed while %s still reads or writes it: the connection is closed",
      (unsigned long long)mr.key(), peer_name().c_str());
  end(FI_ECONNABORTED);
}

void PeerStream::end(int error) {
  if (!open_) return;
  open_ = false;
  filling_ = nullptr;
  engine_.remove(*this);
  close_socket();
  if (!leaving_ && error != FI_ECANCELED) ep_.stats().add(Stat::kConnectionsLost);
  fail_operations(error);
  for (size_t i = 0; i < announced_.size(); ++i)
    if (announced_[i] != nullptr) complete(*announced_[i], error);
  sdk::Receiver &receiver = ep_.receiver();
  if (current_ != nullptr)
    receiver.complete(*std::exchange(current_, nullptr), last_message_, 0, error);
  if (saving_ != nullptr) ep_.release(std::exchange(saving_, nullptr));
  const auto drop = [&](Saved *saved) {
    if (saved->receive != nullptr) {
      receiver.complete(*saved->receive, saved->message, 0, error);
    } else if (!saved->dropped) {
      // It keeps its place among the messages: others of the peer that came whole are behind it,
      // and whoever receives it is told.
      saved->stage = Saved::kHere;
      saved->stream = nullptr;
      saved->error = error;
      return;
    }
    ep_.release(saved);
  };
  for (Expected &e : expected_) {
    if (e.receive != nullptr) receiver.complete(*e.receive, e.message, 0, error);
    if (e.saved != nullptr) drop(e.saved);
    e = {};
  }
  // Nobody can fetch these any more.
  while (Saved *saved = unanswered_) {
    unlink(*saved);
    drop(saved);
  }
  ep_.bury(*this);
  peer_.stream_ended(*this);
}

// ---- how to get one ----

void Peer::wait(RdmOperation &op) {
  pending.push(op);
  const uint64_t timeout = endpoint.settings().connect_timeout_ns;
  try_again(link.want(sdk::now_ns(), timeout), FI_ECONNREFUSED);
}

void Peer::try_again(PeerLink::Next next, int error) {
  switch (next) {
    case PeerLink::Next::kNothing:
      return;
    case PeerLink::Next::kWait:
      if (attempt != nullptr) attempt->wait_until(link.retry_at());
      return;
    case PeerLink::Next::kConnect: {
      // What is there of an earlier attempt may be our caller.
      Result<void> started;
      try {
        if (attempt == nullptr) attempt = std::make_unique<Attempt>(*this);
        started = attempt->connect();
      } catch (const std::bad_alloc &) {
        started = fail(FI_ENOMEM, "connect to %s: no memory", address.to_string().c_str());
      }
      if (started) return;
      WEFT_WARN(endpoint.instance(), FI_LOG_EP_CTRL, "%s", started.error().text.c_str());
      return attempt_failed(PeerLink::Refusal::kUnreachable, started.error().code);
    }
    case PeerLink::Next::kFail:
      fail_pending(error);
      endpoint.check(*this);
      return;
  }
}

void Peer::fail_pending(int error) {
  // One that is completed may make room for another: those that come meanwhile are not for this
  // failure.
  OperationList failed = std::exchange(pending, {});
  while (!failed.empty()) endpoint.finish(static_cast<RdmOperation &>(*failed.pop()), error);
}

void Peer::attempt_failed(PeerLink::Refusal refusal, int error) {
  const PeerLink::Next next = link.on_refused(sdk::now_ns(), refusal, !pending.empty());
  // A retry needs the object, as a clock.
  if (next != PeerLink::Next::kWait) attempt.reset();
  try_again(next, error);
  if (pending.empty()) endpoint.check(*this);
}

void Peer::open_stream(int fd, const Terms &terms, bool second) {
  apply_peer_settings(fd, endpoint.settings());
  PeerStream *opened = endpoint.make_stream(*this, fd, terms);
  if (opened == nullptr) {
    ::close(fd);
    if (second) return;
    link.on_lost();
    fail_pending(FI_ENOMEM);
    return reconnect();
  }
  if (second) return;  // answers to ourselves
  stream = opened;
  OperationList waiting = std::exchange(pending, {});
  while (!waiting.empty()) {
    auto &op = static_cast<RdmOperation &>(*waiting.pop());
    if (stream == nullptr) {  // gone already
      wait(op);
      continue;
    }
    op.set_order(terms.order);
    op.more = true;
    stream->launch(op);
  }
  if (stream != nullptr) stream->flush();
}

void Peer::stream_ended(PeerStream &which) {
  if (leaving == &which) leaving = nullptr;
  if (stream == &which) {
    stream = nullptr;
    link.on_lost();
    return reconnect();
  }
  endpoint.check(*this);
}

void Peer::reconnect() {
  if (probe != nullptr) {
    // The peer may have accepted that already, and talks.
    attempt = std::move(probe);
    return attempt->become_attempt();
  }
  if (pending.empty()) return endpoint.check(*this);
  try_again(link.want(sdk::now_ns(), endpoint.settings().connect_timeout_ns), FI_ECONNREFUSED);
}

void Peer::yield() {
  if (attempt == nullptr || !attempt->connecting() || probe != nullptr) return attempt.reset();
  probe = std::move(attempt);
  probe->become_probe();
}

void Peer::challenge(bool may_connect) {
  endpoint.stats().add(Stat::kIdentitiesDisputed);
  stream->ask_whether_alive();
  if (!may_connect || probe != nullptr) return;
  Result<void> started;
  try {
    probe = std::make_unique<Attempt>(*this, /*probe=*/true);
    started = probe->connect();
  } catch (const std::bad_alloc &) {
    started = fail(FI_ENOMEM, "no memory");
  }
  if (!started) probe.reset();  // the claim is repeated, if it is true
}

void Peer::confirmed(int fd, const Terms &terms, uint32_t process) {
  // Not a loss that leads to a new attempt: the new stream is here.
  if (PeerStream *old = std::exchange(stream, nullptr)) old->end(FI_ECONNRESET);
  link.on_accepted(process);
  open_stream(fd, terms, false);
}

Attempt::~Attempt() {
  peer_.endpoint.engine().remove(*this);
  if (socket_ >= 0) ::close(socket_);
}

Result<void> Attempt::connect() {
  const Settings &settings = peer_.endpoint.settings();
  const std::string to = peer_.address.to_string();
  WEFT_TRY(const int fd, open_socket(peer_.address.family(), settings));
  // The peer knows us by the address that it sees, so it must be the endpoint's.
  sdk::SockAddr from = peer_.endpoint.name();
  if (!from.is_any() && from.family() == peer_.address.family()) {
    from.set_port(0);
    if (auto bound = bind_socket(fd, from); !bound) {
      ::close(fd);
      return bound;
    }
  }
  if (::connect(fd, peer_.address.c(), peer_.address.size()) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    ::close(fd);
    return fail(error, "connect to %s: %s", to.c_str(), strerror(error));
  }
  if (socket_ >= 0) wait_until(0);  // another attempt by the same object
  socket_ = fd;
  requested_ = false;
  exchange_.reset();
  answer_ = ConnectReader(ConnectRole::kActive);
  sdk::Engine &engine = peer_.endpoint.engine();
  engine.add(*this, fd, EPOLLOUT, EPOLLOUT);
  deadline_ = probe_ ? sdk::now_ns() + settings.handshake_timeout_ns : peer_.link.deadline();
  engine.set_deadline(*this, deadline_);
  return {};
}

void Attempt::become_probe() {
  probe_ = true;
  deadline_ = sdk::now_ns() + peer_.endpoint.settings().handshake_timeout_ns;
  peer_.endpoint.engine().set_deadline(*this, deadline_);
}

void Attempt::become_attempt() {
  probe_ = false;
  peer_.link.want(sdk::now_ns(), peer_.endpoint.settings().connect_timeout_ns);
  deadline_ = peer_.link.deadline();
  peer_.endpoint.engine().set_deadline(*this, deadline_);
}

void Attempt::wait_until(uint64_t at_ns) {
  sdk::Engine &engine = peer_.endpoint.engine();
  engine.remove(*this);
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  engine.set_deadline(*this, at_ns);
}

void Attempt::failed(PeerLink::Refusal refusal, int error) {
  Peer &peer = peer_;
  if (!probe_) return peer.attempt_failed(refusal, error);
  // Whoever is at the peer's address has a stream with us, or nobody is there: all stays as it is.
  peer.probe.reset();  // this
  peer.endpoint.check(peer);
}

void Attempt::warn(const char *what) const {
  if (probe_) return;  // nobody wants it
  WEFT_WARN(peer_.endpoint.instance(), FI_LOG_EP_CTRL, "connect to %s: %s",
            peer_.address.to_string().c_str(), what);
}

void Attempt::on_event(uint32_t) {
  if (requested_) return on_answer();
  if (exchange_ != nullptr) return prove();
  pollfd p{socket_, POLLOUT, 0};
  if (::poll(&p, 1, 0) <= 0) return;
  on_connected();
}

short Attempt::awaited() const {
  return requested_ || exchange_ != nullptr ? POLLIN : POLLOUT;
}

// After a step that was made late, because nobody looked: the peer has not had its time.
void Attempt::give_time() {
  const uint64_t now = sdk::now_ns();
  if (deadline_ != 0 && now >= deadline_)
    peer_.endpoint.engine().set_deadline(*this, now + kLateAnswerNs);
}

void Attempt::on_connected() {
  Peer &peer = peer_;
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  // A reset is the answer of one who is there, and too busy.
  if (error != 0)
    return failed(
        error == ECONNRESET ? PeerLink::Refusal::kHungUp : PeerLink::Refusal::kUnreachable, error);
  give_time();
  exchange_ = peer.endpoint.keys().exchange(ConnectRole::kActive);
  if (exchange_ == nullptr) return request();
  peer.endpoint.engine().change(*this, EPOLLIN, EPOLLIN);
  prove();
}

void Attempt::prove() {
  int error = 0;
  const Progress progress = advance(socket_, *exchange_, error);
  if (progress == Progress::kWaits) return;
  const std::unique_ptr<KeyExchange> exchange = std::move(exchange_);
  if (progress == Progress::kDone) return request();
  const bool refused = progress == Progress::kRefused;
  warn(refused ? KeyExchange::text(*exchange->rejected())
               : "the connection ended before the peer had shown our auth_key: has it one?");
  failed(PeerLink::Refusal::kUnreachable, refused ? FI_EACCES : error);
}

void Attempt::request() {
  Peer &peer = peer_;
  RdmHello hello = peer.endpoint.hello(peer.endpoint.name().port());
  hello.version = kRdmVersion;
  std::array<uint8_t, kMaxConnectSize> message;
  const size_t n = encode_connect(ConnectType::kRequest, encode_hello(hello), message);
  // An empty socket takes it whole; stock reads it by one call.
  if (::send(socket_, message.data(), n, MSG_NOSIGNAL | MSG_DONTWAIT) != ssize_t(n))
    return failed(PeerLink::Refusal::kHungUp, FI_ECONNRESET);
  requested_ = true;
  give_time();
  peer.endpoint.engine().change(*this, EPOLLIN, EPOLLIN);
  on_answer();
}

void Attempt::on_answer() {
  Peer &peer = peer_;
  for (;;) {
    const std::span<uint8_t> space = answer_.space();
    const ssize_t n = ::recv(socket_, space.data(), space.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) return failed(PeerLink::Refusal::kHungUp, FI_ECONNRESET);
    answer_.on_read(size_t(n));
    if (auto refusal = answer_.rejected()) {
      warn(text(*refusal));
      return failed(PeerLink::Refusal::kUnreachable, FI_ECONNREFUSED);
    }
    if (answer_.done()) break;
  }
  if (answer_.header().type == ConnectType::kReject) {
    // A reject that says nothing is for good; all others repeat the request (wire sheet, 10.2).
    if (!answer_.private_bytes().empty())
      return failed(PeerLink::Refusal::kRejected, FI_ECONNREFUSED);
    warn("refused: has it an auth_key that we lack?");
    return failed(PeerLink::Refusal::kUnreachable, FI_ECONNREFUSED);
  }
  const auto hello = parse_hello(answer_.private_bytes());
  if (!hello) {
    warn(text(hello.error()));
    return failed(PeerLink::Refusal::kUnreachable, FI_ECONNREFUSED);
  }
  const Terms terms = terms_of(answer_.header().order, hello->version, hello->features);
  peer.endpoint.engine().remove(*this);
  const int fd = std::exchange(socket_, -1);
  if (probe_) {
    peer.probe.reset();  // this
    return peer.confirmed(fd, terms, hello->process);
  }
  peer.link.on_accepted(hello->process);
  peer.attempt.reset();  // this
  peer.open_stream(fd, terms, false);
}

void Attempt::on_deadline() {
  Peer &peer = peer_;
  if (socket_ < 0) {
    const PeerLink::Next next = peer.link.on_retry(sdk::now_ns(), !peer.pending.empty());
    if (next == PeerLink::Next::kConnect) return peer.try_again(next, FI_ECONNREFUSED);
    peer.attempt.reset();
    peer.endpoint.check(peer);
    return;
  }
  if (probe_) return failed(PeerLink::Refusal::kUnreachable, FI_ETIMEDOUT);
  WEFT_WARN(peer.endpoint.instance(), FI_LOG_EP_CTRL,
            "connect to %s: %s within %llu ms (tcp connect_timeout_ms): is the address right, and "
            "is a firewall between?",
            peer.address.to_string().c_str(),
            requested_ ? "the peer did not answer the request" : "no connection",
            (unsigned long long)(peer.endpoint.settings().connect_timeout_ns / 1'000'000u));
  failed(PeerLink::Refusal::kUnreachable, FI_ETIMEDOUT);
}

}  // namespace weft::tcp
