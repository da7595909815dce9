// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/control.h"

#include <algorithm>

#include "plugins/cxi/inbox.h"
#include "plugins/cxi/nic/return_codes.h"
#include "plugins/cxi/transmit.h"

namespace weft::cxi {
namespace {

constexpr uint16_t kControlBuffer = UINT16_MAX;
constexpr size_t kMaxWindows = UINT16_MAX;
constexpr size_t kControlQueue = 1024;

// Not so what the NIC tells of the Get that follows a long message, which a region is no place for.
bool is_access(EventType type) {
  return type == EventType::kMatch || type == EventType::kPut || type == EventType::kGet ||
         type == EventType::kAtomic || type == EventType::kFetchAtomic;
}

}  // namespace

Control::Control(const Ports &ports, sdk::Engine &engine, const Settings &settings,
                 Transmit &transmit, Inbox &inbox)
    : ports_(ports), engine_(engine), settings_(settings), transmit_(transmit), inbox_(inbox) {}

Result<void> Control::open(bool waits, bool match_events) {
  match_events_ = match_events;
  unlinks_ = 0;
  WEFT_TRY(events_,
           ports_.lni->event_queue({.places = settings_.control_events() * (match_events ? 2 : 1),
                                    .reserved = kControlQueue,
                                    .waits = waits}));
  WEFT_CHECK(queue_.open(*ports_.lni, kControlQueue, ports_.profile));
  const PortalOptions options{
      .is_matching = true, .match_events = match_events, .no_rendezvous = true};
  WEFT_TRY(writes_, ports_.lni->portal(options, *events_));
  WEFT_TRY(reads_, ports_.lni->portal(options, *events_));
  WEFT_CHECK(ports_.map(*writes_, kWriteIndex));
  WEFT_CHECK(ports_.map(*reads_, kReadIndex));
  writes_->set_state(PortalState::kEnabled, kIgnoreDrops);
  reads_->set_state(PortalState::kEnabled, kIgnoreDrops);
  Entry entry{.buffer_id = kControlBuffer, .match_bits = kControl, .ignore_bits = ~kControl};
  entry.op_put = true;
  entry.unlink_disable = true;
  append(*writes_, entry);
  return linked("what peers tell about flow control");
}

void Control::close() {
  engine_.set_deadline(*this, 0);
  reads_.reset();
  writes_.reset();
  queue_.close();
  events_.reset();
  messages_.clear();
}

// ---- regions ----

Result<void> Control::linked(const char *what) {
  return links_.wait(what, *writes_, [this] { return read_events(); });
}

Result<uint16_t> Control::add(WindowUser &user) {
  if (free_.empty()) {
    if (users_.size() == kMaxWindows)
      return fail(FI_ENOSPC, "an endpoint of cxi has at most %zu memory regions", kMaxWindows);
    free_.push_back(uint16_t(users_.size()));
    users_.emplace_back();
  }
  const uint16_t id = free_.front();
  free_.pop_front();
  users_[id] = {.user = &user};
  return id;
}

void Control::remove(uint16_t buffer_id) {
  users_[buffer_id] = {};
  free_.push_back(buffer_id);
}

void Control::unlink(Portal &portal, uint16_t buffer_id) {
  portal.unlink(List::kPriority, buffer_id);
  ++unlinks_;
}

// ---- messages ----

void Control::tell(const Peer &peer, ControlBits bits) {
  if (bits.drops == 0) {
    for (Message &message : messages_) {
      if (message.peer != peer || message.bits.type != bits.type) continue;
      message.again |= message.at == 0;
      return;
    }
  }
  Message &message = messages_.emplace_back(Message{.peer = peer, .bits = bits});
  message.token = tokens_.add(message);
  send(message);
}

void Control::send(Message &message) {
  message.at = 0;
  message.again = false;
  if (!put(message.peer, message.bits.bits(), *events_, message.token))
    on_answer(message, Rc::kNoSpace);
}

bool Control::ask(const Peer &peer, EventQueue &answers, uint64_t user_ptr) {
  return put(peer, kNobodysKey, answers, user_ptr);
}

bool Control::put(const Peer &peer, uint64_t bits, EventQueue &eq, uint64_t user_ptr) {
  Transfer put;
  put.to = {peer.nid, peer.pid, kWriteIndex};
  put.match_bits = bits;
  put.initiator = ports_.initiator;
  put.is_answer = true;
  put.eq = &eq;
  put.user_ptr = user_ptr;
  if (queue_.post(put, peer.vni) != 0) return false;
  queue_.flush();
  return true;
}

void Control::on_answer(Message &message, Rc rc) {
  if (rc != Rc::kOk && !is_gone(rc)) {  // it has no place for the event
    message.at = sdk::now_ns() + settings_.fc_retry_ns + 1;
    return schedule();
  }
  if (rc == Rc::kOk && message.again) {
    message.bits.drops = 0;  // it knows of those
    return send(message);
  }
  if (is_gone(rc) && message.bits.type == ControlType::kNotify) transmit_.on_lost(message.peer, rc);
  tokens_.remove(message.token);
  messages_.remove_if([&](const Message &one) { return &one == &message; });
}

void Control::schedule() {
  uint64_t next = 0;
  for (const Message &message : messages_)
    if (message.at != 0 && (next == 0 || message.at < next)) next = message.at;
  engine_.set_deadline(*this, next);
}

void Control::on_deadline() {
  const uint64_t now = sdk::now_ns();
  for (Message &message : messages_)
    if (message.at != 0 && message.at <= now) send(message);
  schedule();
}

bool Control::read_events() {
  size_t taken = 0;
  while (taken != settings_.eq_ack_batch) {
    const Event *const place = events_->peek(taken);
    if (place == nullptr) break;
    const Event event = *place;
    ++taken;
    if (event.type == EventType::kAck) {
      if (Message *const message = tokens_.find(event.user_ptr)) on_answer(*message, event.rc);
    } else if (event.type == EventType::kLink) {
      links_.on_link(event);
    } else if (event.type == EventType::kUnlink) {
      if (unlinks_ != 0) --unlinks_;
    } else if (event.type == EventType::kPut && event.buffer_id == kControlBuffer) {
      on_control(event);
    } else if (is_access(event.type)) {
      on_access(event);
    }
  }
  if (taken != 0) events_->ack(taken);
  return taken != 0;
}

// What has found no entry names none.
void Control::on_access(const Event &event) {
  if (event.buffer_id >= users_.size() || event.rc == Rc::kEntryNotFound) return;
  User &user = users_[event.buffer_id];
  if (user.user == nullptr) return;
  if (event.type == EventType::kMatch) {
    ++user.under_way;
    return;
  }
  if (user.under_way != 0) --user.under_way;
  user.user->on_window(event);
}

void Control::on_control(const Event &event) {
  if (is_logical(event.initiator)) return;  // no endpoint sends these as a rank
  const ControlBits control = ControlBits::of(event.match_bits);
  const Peer peer = Peer::of(event.initiator, event.vni);
  if (peer.is_nowhere()) return;  // endpoints say where they are in these
  switch (control.type) {
    case ControlType::kNotify:
      return inbox_.on_notify(peer, control.drops);
    case ControlType::kResume:
      return transmit_.on_resume(peer);
  }
}

}  // namespace weft::cxi
