// SPDX-License-Identifier: BSD-2-Clause
// Peers, connections and operations on their way out. What arrives is in input.cc.
#include "plugins/rxm/protocol/core.h"

#include <rdma/fi_errno.h>
#include <weft/sdk/iov.h>
#include <weft/sdk/levels.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace weft::rxm {

using sdk::gather;
using sdk::slice;
namespace {

// What strangers may make us owe them, as a part of what others may.
constexpr size_t kStrangersPart = 16;
constexpr uint64_t kDoubtNs = 100'000'000;      // how long the end of a link may take to get here
constexpr uint64_t kSilenceNs = 1'000'000'000;  // of a stranger, before it has to make room
constexpr uint64_t kFirstRetryNs = 1'000'000;
constexpr uint64_t kLastRetryNs = 500'000'000;
constexpr uint64_t kKeptForCredits = 1;  // the last credit carries a credit packet
constexpr uint64_t kInvalidKey = UINT64_MAX;
constexpr size_t kMostReserve = 8;
constexpr size_t kKeptResult = 256;  // bytes of memory that an answer keeps for the next

// Bytes in network order, address before port (wire sheet, 2.4).
int compare(const sdk::SockAddr &a, const sdk::SockAddr &b) {
  const auto bytes = [](const sdk::SockAddr &x) -> std::pair<const void *, size_t> {
    if (x.family() == AF_INET)
      return {&reinterpret_cast<const sockaddr_in *>(x.c())->sin_addr, sizeof(in_addr)};
    return {&reinterpret_cast<const sockaddr_in6 *>(x.c())->sin6_addr, sizeof(in6_addr)};
  };
  if (a.family() != b.family()) return a.family() < b.family() ? -1 : 1;
  const auto [at, size] = bytes(a);
  if (const int order = std::memcmp(at, bytes(b).first, size); order != 0) return order;
  return int(a.port()) - int(b.port());
}

// Errors of a call that say that the link is gone, not that the operation is wrong.
bool is_link_error(ssize_t rc) {
  switch (-rc) {
    case FI_ENOTCONN:
    case FI_ESHUTDOWN:
    case FI_ECONNRESET:
    case FI_ECONNABORTED:
    case EPIPE:
      return true;
    default:
      return false;
  }
}

uint64_t pause_after(uint32_t attempts) {
  return std::min(kLastRetryNs, kFirstRetryNs << std::min<uint32_t>(attempts, 16));
}

}  // namespace

Core::Core(Carrier &carrier, Owner &owner, const Settings &settings)
    : carrier_(carrier),
      owner_(owner),
      settings_(settings),
      reserve_(std::clamp<size_t>(settings.receive_count / 16, 1, kMostReserve)),
      ops_(settings.tx_size),
      segments_(SIZE_MAX),
      controls_(SIZE_MAX),
      messages_(SIZE_MAX) {}

Core::~Core() {
  for (TxOp *op : op_slots_) conceal_all(*op);
  for (Connection *c : slots_) {
    if (c == nullptr) continue;
    for (RxMessage *m = c->messages_.first; m != nullptr; m = m->following)
      while (m->exposed != 0) carrier_.conceal(*m->registrations[--m->exposed]);
    delete c;
  }
}

// ---- connections ----

Connection *Core::make(const sdk::SockAddr &address, bool own) {
  auto made = std::make_unique<Connection>();
  Connection *c = made.get();
  c->address_ = address;
  c->own_ = own;
  if (free_slots_.empty()) {
    free_slots_.reserve(slots_.size() + 1);
    c->slot_ = uint32_t(slots_.size());
    slots_.push_back(c);
  } else {
    c->slot_ = free_slots_.back();
    free_slots_.pop_back();
    slots_[c->slot_] = c;
  }
  made.release();
  if (!own) by_address_.emplace(address, c);
  return c;
}

// Whether messages of others may be saved under its name.
bool Core::has_others(const Connection &c) const {
  return std::any_of(slots_.begin(), slots_.end(), [&c](const Connection *other) {
    return other != nullptr && other != &c && other->address_ == c.address_;
  });
}

void Core::reap() {
  for (size_t i = 0; i < unused_.size();) {
    Connection &c = *unused_[i];
    const bool unused = c.state_ == State::kIdle && c.first_ == nullptr && c.controls_ == 0 &&
                        c.flights_ == 0 && c.kept_ == 0 && !c.contested_ &&
                        !(c.shares_name_ && has_others(c));
    // With the last of its messages it comes here again.
    if (!unused && c.state_ == State::kIdle && c.kept_ == 0) {
      ++i;
      continue;
    }
    c.unused_ = false;
    unused_[i] = unused_.back();
    unused_.pop_back();
    if (!unused) continue;
    if (c.blocked_) std::erase(blocked_, &c);
    if (c.index_ != kNoIndex) peers_.set(c.index_, nullptr);
    if (!c.own_) by_address_.erase(c.address_);
    slots_[c.slot_] = nullptr;
    free_slots_.push_back(c.slot_);
    delete &c;
  }
}

void Core::forget(uint32_t index) {
  Connection *c = peers_.at(index);
  if (c == nullptr) return;
  peers_.set(index, nullptr);
  // Whoever gets the index next has not sent what this one did.
  rename(*c, kNoIndex, c->own_);
}

void Core::introduce(uint32_t index, const sdk::SockAddr &address) {
  if (by_address_.empty()) return;
  const auto it = by_address_.find(address);
  if (it == by_address_.end() || it->second->index_ != kNoIndex) return;
  name(*it->second, index);
}

void Core::name(Connection &c, uint32_t index) {
  peers_.set(index, &c);
  rename(c, index, c.own_);
}

// What came from it, and what is still coming, is from `index` now; kNoIndex: from a stranger.
void Core::rename(Connection &c, uint32_t index, bool own) {
  const uint32_t before = source_of(c);
  if (is_stranger(c)) {
    strangers_ -= c.link_ != nullptr;
    strangers_buffers_ -= c.buffers_;
    strangers_charged_ -= c.charged_;
  }
  c.index_ = index;
  c.own_ = own;
  if (is_stranger(c)) {
    strangers_ += c.link_ != nullptr;
    strangers_buffers_ += c.buffers_;
    strangers_charged_ += c.charged_;
  }
  const uint32_t now = source_of(c);
  if (before == now) return;
  for (RxMessage *m : {c.messages_.first, c.unfinished_.first})
    for (; m != nullptr; m = m->following)
      if (m->receive != nullptr && m->message.source == before) m->message.source = now;
  owner_.receiver().rename_source(before, now);
}

void Core::connect(Connection &c) {
  if (c.attempts_++ == 0) c.started_at_ = carrier_.now_ns();
  if (settings_.max_connections != 0) close_idle(settings_.max_connections - 1);
  const ConnectBytes data =
      encode(ConnectData{.port = own_.port(),
                         .flow_control = settings_.credits ? FlowControl::kOn : FlowControl::kOff,
                         .eager_limit = settings_.eager_limit,
                         .receive_count = settings_.receive_count,
                         .level = kLevel,
                         .process = settings_.process,
                         .index = c.slot_});
  c.state_ = State::kConnecting;
  int err = 0;
  c.link_ = carrier_.connect(c, c.address_, data, err);
  if (c.link_ != nullptr) {
    strangers_ += is_stranger(c);
    if (must_wait(c)) hold(c);
    return;
  }
  drop_link(c, err);
  fail_queue(c, err);
}

void Core::refuse(Request &request, RejectReason reason) {
  carrier_.reject(request, encode(reason));
}

void Core::on_request(Request &request, const sdk::SockAddr &from, const sdk::SockAddr &to,
                      std::span<const uint8_t> data) {
  const auto theirs = parse_connect(data);
  char text[200];
  if (!theirs || theirs->eager_limit != settings_.eager_limit) {
    if (!theirs) {
      std::snprintf(text, sizeof text, "a connection of %s is refused: %s",
                    from.to_string().c_str(), text_of(theirs.error()));
    } else {
      std::snprintf(text, sizeof text,
                    "a connection of %s is refused: its eager limit is %u, ours %u: give both "
                    "sides the same FI_OFI_RXM_BUFFER_SIZE",
                    from.to_string().c_str(), theirs->eager_limit, settings_.eager_limit);
    }
    owner_.warn(text);
    return refuse(request, RejectReason::kRefused);
  }
  if (down_) return refuse(request, RejectReason::kRefused);
  sdk::SockAddr peer = from;
  peer.set_port(theirs->port);
  const auto it = by_address_.find(peer);
  Connection *c = it != by_address_.end() ? it->second : nullptr;
  if (c == nullptr) return accept(*make(peer, false), request, *theirs);
  switch (c->state_) {
    case State::kIdle:
      return accept(*c, request, *theirs);
    case State::kWaiting:
      stop_waiting(*c);
      return accept(*c, request, *theirs);
    case State::kConnecting: {
      // What was heard of it says that ours is accepted.
      if (c->disputed_ || c->heard_) return refuse(request, RejectReason::kAlready);
      sdk::SockAddr own = own_;
      if (own.is_any()) {
        own = to;
        own.set_port(own_.port());
      }
      const int order = compare(peer, own);
      if (order < 0) return refuse(request, RejectReason::kAlready);
      if (order == 0) {
        c->shares_name_ = true;
        return accept(*make(peer, true), request, *theirs);
      }
      return accept_beside(*c, request, *theirs);
    }
    case State::kAccepting:
    case State::kConnected:
      if (c->agreed_ && c->rival_ == nullptr) {  // nothing more comes by the old one
        drop_link(*c, FI_ECONNABORTED);
        return accept(*c, request, *theirs);
      }
      if (c->peer_process_ == theirs->process) return refuse(request, RejectReason::kAlready);
      // The peer was started again, or somebody on its host would like to have its place. Who it
      // is, is what the owner of the address says; the requester waits meanwhile.
      refuse(request, RejectReason::kAlready);
      return contest(*c);
  }
}

// Both ask at once, and the peer's request counts. Ours goes on as a rival, because the requester
// may be somebody else on the peer's host: the peer itself refuses ours.
void Core::accept_beside(Connection &attempt, Request &request, const ConnectData &data) {
  Connection &c = *make(attempt.address_, true);
  inherit(c, attempt);
  hand_over(attempt, c);
  c.rival_ = &attempt;
  attempt.rival_ = &c;
  attempt.crossed_ = true;
  accept(c, request, data);
  if (c.state_ == State::kIdle && c.rival_ != nullptr) inherit(attempt, c);
}

void Core::accept(Connection &c, Request &request, const ConnectData &data) {
  if (is_stranger(c)) {
    if (const uint32_t index = owner_.index_of(c.address_); index != kNoIndex) name(c, index);
  }
  if (is_stranger(c) && c.first_ == nullptr && strangers_ >= settings_.max_strangers &&
      !make_room()) {
    c.state_ = State::kIdle;
    note_unused(c);
    return refuse(request, RejectReason::kAlready);  // it asks again
  }
  if (std::exchange(c.contested_, false)) std::erase(contested_, &c);
  if (settings_.max_connections != 0) close_idle(settings_.max_connections - 1);
  const FlowControl flow = settings_.credits ? FlowControl::kOn : FlowControl::kOff;
  c.peer_slot_ = data.index;
  c.peer_process_ = data.process;
  c.level_ = data.level;
  c.flow_control_ = settings_.credits && data.flow_control != FlowControl::kOff;
  const AcceptBytes answer = encode(AcceptData{.process = settings_.process,
                                               .index = c.slot_,
                                               .receive_count = settings_.receive_count,
                                               .level = kLevel,
                                               .flow_control = flow});
  int err = 0;
  c.state_ = State::kAccepting;
  c.link_ = carrier_.accept(c, request, answer, err);
  if (c.link_ != nullptr) {
    strangers_ += is_stranger(c);
    c.started_at_ = carrier_.now_ns();
    if (must_wait(c)) hold(c);
    return;
  }
  refuse(request, RejectReason::kRefused);
  if (c.rival_ != nullptr) return part(c, err);  // our own request goes on
  drop_link(c, err);
  fail_queue(c, err);
}

// There are as many strangers as there may be. The one that has been silent for longest goes; of
// those who have spoken one that is idle is asked to, and the newcomer asks again. False: not yet.
bool Core::make_room() {
  const uint64_t now = carrier_.now_ns();
  Connection *silent = nullptr, *idle = nullptr;
  for (Connection *c : slots_) {
    if (c == nullptr || c->link_ == nullptr || !is_stranger(*c) || c->first_ != nullptr) continue;
    if (!c->heard_) {
      if (now - c->started_at_ >= kSilenceNs &&
          (silent == nullptr || c->started_at_ < silent->started_at_))
        silent = c;
    } else if (c->state_ == State::kConnected && c->level_ != 0 && !c->asked_ && !c->agreed_ &&
               !busy(*c) && (idle == nullptr || c->last_use_ < idle->last_use_)) {
      idle = c;
    }
  }
  if (silent != nullptr) {
    if (Connection *rival = silent->rival_) drop_link(*rival, FI_ECONNABORTED);
    drop_link(*silent, FI_ECONNABORTED);
    return true;
  }
  if (idle != nullptr) ask_to_part(*idle);
  return false;
}

void Core::on_connected(Connection &c, std::span<const uint8_t> data) {
  if (c.state_ != State::kConnecting && c.state_ != State::kAccepting) return;
  if (c.state_ == State::kConnecting) {
    const auto theirs = parse_accept(data);
    if (!theirs) {
      char text[200];
      std::snprintf(text, sizeof text, "the answer of %s is not understood: %s",
                    c.address_.to_string().c_str(), text_of(theirs.error()));
      owner_.warn(text);
      drop_link(c, FI_EPROTO);
      return fail_queue(c, FI_EPROTO);
    }
    c.peer_slot_ = theirs->index;
    c.peer_process_ = theirs->process;
    c.level_ = theirs->level;
    c.flow_control_ = settings_.credits && theirs->flow_control != FlowControl::kOff;
    if (c.rival_ != nullptr && c.crossed_) return doubt(c);
    if (c.rival_ != nullptr) replace(c);
  }
  establish(c);
}

void Core::establish(Connection &c) {
  c.state_ = State::kConnected;
  c.disputed_ = c.crossed_ = false;
  c.attempts_ = 0;
  ++connected_;
  if (c.agreed_) ++leaving_;
  touch(c);
  if (settings_.max_connections != 0) close_idle(settings_.max_connections);
  if (c.flow_control_ && settings_.receive_count > 1) {
    c.reposted_ += settings_.receive_count - 1;
  }
  if (!flush(c)) block(c);
}

void Core::on_refused(Connection &c, int err, std::span<const uint8_t> data, bool hung_up) {
  const bool parting = c.asked_ || c.agreed_;
  if (c.state_ != State::kConnecting && (!hung_up || parting || c.state_ != State::kAccepting))
    return on_closed(c, err);
  // Neither is an answer that lasts: another connection comes, or the peer was too busy for us. A
  // rival has what it asked for; and what came by this connection already ends with it.
  const bool later = hung_up || parse_reject(data) == RejectReason::kAlready;
  bool receives = c.unfinished_.first != nullptr;
  for (const RxMessage *m = c.messages_.first; m != nullptr; m = m->following)
    receives = receives || !m->over;
  if (later && c.rival_ == nullptr && !receives) {
    c.disputed_ = false;
    drop_controls(c);
    close_link(c);
    return wait_for_other(c);
  }
  if (later && c.rival_ != nullptr && !c.own_ && !receives) return part(c, err);  // as in accept()
  drop_link(c, err);
  fail_queue(c, err);
}

void Core::on_closed(Connection &c, int err) {
  if (c.asked_ || c.agreed_) return part(c, err);
  drop_link(c, err);
  fail_queue(c, err);
}

void Core::wait_for_other(Connection &c) {
  // The other connection may be one that the peer has not noticed the end of: then nothing comes,
  // and asking again helps.
  c.state_ = State::kWaiting;
  const uint64_t now = carrier_.now_ns();
  if (c.attempts_ == 0) c.started_at_ = now;
  c.retry_at_ = now + pause_after(c.attempts_);
  c.retry_ = true;
  retrying_.push_back(&c);
  arm();
}

void Core::stop_waiting(Connection &c) {
  if (!c.retry_) return;
  c.retry_ = false;
  std::erase(retrying_, &c);
}

// ---- whose an address is ----

void Core::contest(Connection &c) {
  if (c.contested_ || c.rival_ != nullptr || down_) return;
  c.contested_ = true;
  contested_.push_back(&c);
  // In the middle of the requester's pause: requests of both sides that cross are both refused.
  // Each time later than the time before, because it costs the owner something.
  c.contest_at_ = carrier_.now_ns() + pause_after(c.contests_++) / 2;
  arm();
}

// The owner of an address is who listens there. One that has our connection already says so
// (RejectReason::kAlready), and the other claim was false; one that accepts knows nothing of it.
void Core::ask_owner(Connection &c) {
  if (down_ || c.own_) return;
  if (c.state_ == State::kIdle) return connect(c);  // the old one has ended meanwhile
  if (c.state_ != State::kAccepting && c.state_ != State::kConnected) return;
  Connection &rival = *make(c.address_, true);
  rival.rival_ = &c;
  c.rival_ = &rival;
  connect(rival);
}

// Accepted, but by whom? The owner, while the requester lied; or by one who had the address before
// the requester, and is dead. Then the link ends.
void Core::doubt(Connection &attempt) {
  attempt.accepted_ = true;
  if (!std::exchange(attempt.contested_, true)) contested_.push_back(&attempt);
  attempt.contest_at_ = carrier_.now_ns() + kDoubtNs;
  arm();
}

// The rival is accepted: it gets the other's place. Of that nothing more will come.
void Core::replace(Connection &rival) {
  Connection &old = *rival.rival_;
  const bool fresh = old.state_ != State::kConnected || old.asked_ || old.agreed_;
  inherit(rival, old);
  drop_link(old, FI_ECONNRESET);
  if (fresh) return hand_over(old, rival);  // nothing of it has gone the other way
  fail_queue(old, FI_ECONNRESET);
}

// The rival is the connection with that address from now on.
void Core::inherit(Connection &rival, Connection &old) {
  old.rival_ = rival.rival_ = nullptr;
  const uint32_t index = old.index_;
  by_address_.find(rival.address_)->second = &rival;
  if (index != kNoIndex) peers_.set(index, &rival);
  rename(rival, index, false);
  rename(old, kNoIndex, true);
  rival.shares_name_ = true;
  old.shares_name_ = false;
  adopt(rival);
  if (must_wait(rival)) hold(rival);
}

// What is saved under its name is its own from now on, and counts as kept by it: who comes again
// may not keep any more.
void Core::adopt(Connection &c) {
  owner_.receiver().visit_unexpected(source_of(c), [&](sdk::Unexpected &unexpected) {
    auto &m = static_cast<RxMessage &>(unexpected);
    Connection &before = *m.from;
    if (&before == &c) return;
    const auto buffers = size_t(std::count_if(
        m.parts.begin(), m.parts.end(), [](const auto &part) { return part.buffer != nullptr; }));
    before.buffers_ -= buffers;
    before.charged_ -= m.charged;
    if (is_stranger(before)) {
      strangers_buffers_ -= buffers;
      strangers_charged_ -= m.charged;
    }
    m.from = &c;
    ++c.kept_;
    c.buffers_ += buffers;
    c.charged_ += m.charged;
    if (is_stranger(c)) {
      strangers_buffers_ += buffers;
      strangers_charged_ += m.charged;
    }
    if (--before.kept_ == 0 && before.state_ == State::kIdle) note_unused(before);
  });
}

void Core::arm() {
  uint64_t first = 0;
  for (const Connection *c : retrying_)
    if (first == 0 || c->retry_at_ < first) first = c->retry_at_;
  for (const Connection *c : contested_)
    if (first == 0 || c->contest_at_ < first) first = c->contest_at_;
  if (first == deadline_) return;
  deadline_ = first;
  carrier_.set_deadline(first);
}

void Core::on_deadline() {
  deadline_ = 0;
  const uint64_t now = carrier_.now_ns();
  std::vector<Connection *> due;
  for (Connection *c : retrying_)
    if (c->retry_at_ <= now) due.push_back(c);
  for (Connection *c : due) {
    stop_waiting(*c);
    c->state_ = State::kIdle;
    if (c->first_ == nullptr) {  // nobody needs it any more
      note_unused(*c);
    } else if (now - c->started_at_ >= settings_.connect_timeout_ns) {
      char text[200];
      std::snprintf(text, sizeof text,
                    "no connection to %s: it put us off or hung up, %u times within %llu ms "
                    "(ofi_rxm connect_timeout_ms)",
                    c->address_.to_string().c_str(), c->attempts_,
                    (unsigned long long)(settings_.connect_timeout_ns / 1'000'000u));
      owner_.warn(text);
      drop_link(*c, FI_ETIMEDOUT);
      fail_queue(*c, FI_ETIMEDOUT);
    } else {
      connect(*c);
    }
  }
  due.clear();
  for (Connection *c : contested_)
    if (c->contest_at_ <= now) due.push_back(c);
  for (Connection *c : due) {
    if (!std::exchange(c->contested_, false)) continue;
    std::erase(contested_, c);
    note_unused(*c);
    if (!std::exchange(c->accepted_, false)) {
      ask_owner(*c);
    } else {
      if (c->rival_ != nullptr) replace(*c);
      establish(*c);
    }
  }
  arm();
}

void Core::note_unused(Connection &c) {
  if (c.unused_) return;
  c.unused_ = true;
  unused_.push_back(&c);
}

// The connection is over. What the peer still owes an answer for fails here; what is at the carrier
// when it comes back.
void Core::drop_link(Connection &c, int err) {
  if (c.state_ == State::kConnected) {
    --connected_;
    if (c.asked_ || c.agreed_) --leaving_;
  }
  c.asked_ = c.agreed_ = false;
  c.level_ = 0;
  stop_waiting(c);
  if (Connection *other = c.rival_) {
    if (c.own_) {
      other->rival_ = c.rival_ = nullptr;
    } else {
      // It ended by itself. The owner, who was asked, may have accepted that already, and talks.
      inherit(*other, c);
      other->disputed_ = true;
      if (other->accepted_) {  // nobody is there any more to be in doubt about
        other->contest_at_ = carrier_.now_ns();
        arm();
      }
    }
  }
  if (std::exchange(c.accepted_, false)) {
    c.contested_ = false;
    std::erase(contested_, &c);
  }
  c.disputed_ = c.crossed_ = false;
  c.state_ = State::kIdle;
  c.attempts_ = 0;
  note_unused(c);
  for (TxOp *op = c.first_; op != nullptr; op = op->next)
    if (op->form == TxOp::Form::kRendezvous) undescribe(*op);
  drop_controls(c);
  if (c.link_ != nullptr) close_link(c);
  while (c.in_flight_.first != nullptr) end(*c.in_flight_.first, err);
  lose_messages(c, err);
}

void Core::close_link(Connection &c) {
  if (std::exchange(c.held_, false)) std::erase(held_, &c);
  strangers_ -= is_stranger(c);
  c.heard_ = false;
  c.credits_ = 1;
  c.reposted_ = 0;
  bool idle = c.flights_ == 0 && c.controls_ == 0;
  for (const RxMessage *m = c.messages_.first; m != nullptr && idle; m = m->following)
    idle = m->tokens == 0;
  carrier_.close(*std::exchange(c.link_, nullptr), idle);
}

void Core::drop_controls(Connection &c) {
  while (c.control_ != nullptr) {
    Control *control = c.control_;
    c.control_ = control->next;
    free_control(*control);
  }
}

void Core::fail_queue(Connection &c, int err) {
  TxOp *op = c.first_;
  c.first_ = c.last_ = nullptr;
  while (op != nullptr) {
    TxOp *next = op->next;
    op->queued = false;
    end(*op, err);
    op = next;
  }
}

// ---- the end of idle connections: nothing is on its way, or waits for an answer ----

// Leaves no more than `most` connections of those that can be spared. To close one alone would lose
// what the peer is sending at that moment, and stock peers have no word for it: theirs stay.
void Core::close_idle(size_t most) {
  while (connected_ - leaving_ > most) {
    Connection *oldest = nullptr;
    for (Connection *c : slots_) {
      if (c == nullptr || c->state_ != State::kConnected || c->level_ == 0 || c->asked_ ||
          c->agreed_ || busy(*c))
        continue;
      if (oldest == nullptr || c->last_use_ < oldest->last_use_) oldest = c;
    }
    if (oldest == nullptr || !ask_to_part(*oldest)) return;
  }
}

bool Core::ask_to_part(Connection &c) {
  Control *control = controls_.take();
  if (control == nullptr) return false;
  control->connection = &c;
  ++c.controls_;
  reset(*control, PacketType::kPart, 0);
  control->header.control_data = uint64_t(Parting::kAsk);
  if (send_control(c, *control) != 0) {
    free_control(*control);
    return false;
  }
  c.asked_ = true;
  ++leaving_;
  return true;
}

// The peer needs the connection.
void Core::stay(Connection &c) {
  c.asked_ = false;
  if (c.agreed_) return;
  --leaving_;
  touch(c);
  if (c.first_ != nullptr) block(c);
}

// The connection is over and nothing is lost: what has waited for that goes by a new one.
void Core::part(Connection &c, int err) {
  Connection *heir = c.rival_;
  drop_link(c, err);
  if (c.first_ == nullptr) return;
  if (heir == nullptr) return connect(c);
  hand_over(c, *heir);
}

void Core::hand_over(Connection &from, Connection &to) {
  for (TxOp *op = from.first_; op != nullptr; op = op->next) op->connection = &to;
  to.first_ = std::exchange(from.first_, nullptr);
  to.last_ = std::exchange(from.last_, nullptr);
}

void Core::fail_peer(Connection &c, const char *what) {
  char text[240];
  std::snprintf(text, sizeof text, "%s sent %s: the connection is closed",
                c.address_.to_string().c_str(), what);
  owner_.warn(text);
  drop_link(c, FI_EPROTO);
  fail_queue(c, FI_EPROTO);
}

void Core::abandon() {
  down_ = true;
  for (Connection *c : slots_) {
    if (c == nullptr) continue;
    c->link_ = nullptr;
    c->state_ = State::kIdle;
  }
}

void Core::shut_down(int err) {
  down_ = true;
  for (Connection *c : slots_) {
    if (c == nullptr) continue;
    drop_link(*c, err);
    fail_queue(*c, err);
  }
}

// ---- operations ----

TxOp *Core::take() {
  TxOp *op = ops_.take();
  if (op == nullptr) return nullptr;
  if (op->slot == kNoIndex) {
    op->slot = uint32_t(op_slots_.size());
    op_slots_.push_back(op);
  }
  ++op->generation;
  op->fence = op->sent = op->answer = op->writing = op->inject = op->counted = op->queued = false;
  op->report = true;
  op->exposed = 0;
  op->tokens = 0;
  op->err = 0;
  op->offset = 0;
  op->flags = 0;
  op->vector_count = 0;
  op->result_count = 0;
  return op;
}

void Core::give(TxOp &op) {
  op.bounce.reset();
  ops_.give(&op);
}

void Core::prepare_message(TxOp &op, bool tagged, bool has_data, bool delivery) {
  PacketType type;
  if (!delivery && op.length <= settings_.eager_limit) {
    op.form = TxOp::Form::kEager;
    type = PacketType::kEager;
  } else if (!delivery && op.length <= settings_.sar_limit && settings_.eager_limit <= UINT16_MAX) {
    op.form = TxOp::Form::kSegments;
    type = PacketType::kSegment;
  } else {
    op.form = TxOp::Form::kRendezvous;
    type = PacketType::kRendezvous;
  }
  op.header = header_of(type, 0);
  op.header.op = uint8_t(tagged ? PacketOp::kTagged : PacketOp::kMessage);
  op.header.size = op.length;
  if (has_data) {
    op.header.flags = kFlagRemoteData;
    op.header.data = op.data;
  }
  if (tagged) op.header.tag = op.tag;
  if (type != PacketType::kEager) op.header.message = id_of(op);
}

void Core::prepare_atomic(TxOp &op, const sdk::AtomicRequest &request, size_t element) {
  op.form = TxOp::Form::kAtomic;
  op.header = header_of(PacketType::kAtomic, 0);
  op.header.op = uint8_t(request.kind == sdk::AtomicKind::kWrite   ? PacketOp::kAtomic
                         : request.kind == sdk::AtomicKind::kFetch ? PacketOp::kFetch
                                                                   : PacketOp::kCompare);
  op.header.message = id_of(op);
  op.header.atomic.datatype = uint8_t(request.datatype);
  op.header.atomic.operation = uint8_t(request.op);
  op.header.atomic.vectors = uint8_t(request.rma_count);
  std::memset(op.bytes, 0, kAtomicVectorsSize);
  for (size_t i = 0; i < request.rma_count; ++i) {
    const RmaVector v{request.rma[i].addr, request.rma[i].count, request.rma[i].key};
    std::memcpy(op.bytes + i * sizeof v, &v, sizeof v);
  }
  const size_t bytes = size_t(request.elements) * element;
  const size_t operands = request.op != FI_ATOMIC_READ ? bytes : 0;
  const size_t compares = request.compare_count != 0 ? bytes : 0;
  uint8_t *out = op.bytes + kAtomicVectorsSize;
  if (operands + compares > kInlineSize - kAtomicVectorsSize) {
    op.bounce = std::make_unique_for_overwrite<uint8_t[]>(operands + compares);
    out = op.bounce.get();
  }
  if (operands != 0)
    sdk::ioc_gather(out, operands, request.operands, request.operand_count, element);
  if (compares != 0)
    sdk::ioc_gather(out + operands, compares, request.compares, request.compare_count, element);
  op.header.size = kAtomicVectorsSize + operands + compares;
  op.length = bytes;
  op.count = 0;
  op.result_count = uint8_t(request.result_count);
  std::copy_n(request.results, request.result_count, op.results);
}

void Core::own_data(TxOp &op) {
  uint8_t *to = op.bytes;
  // A rendezvous has its vectors there.
  if (op.form == TxOp::Form::kRendezvous || op.length > sizeof op.bytes) {
    op.bounce = std::make_unique_for_overwrite<uint8_t[]>(op.length);
    to = op.bounce.get();
  }
  gather(to, op.iov, op.count, 0, op.length);
  op.iov[0] = {to, size_t(op.length)};
  op.count = 1;
  op.inject = false;
}

int Core::start(TxOp &op, uint32_t index, const sdk::SockAddr *address) {
  if (op.inject && op.form == TxOp::Form::kRendezvous) own_data(op);
  Connection *c = peers_.at(index);
  if (c == nullptr) {
    if (address == nullptr) return -FI_EINVAL;
    const auto it = by_address_.find(*address);
    c = it != by_address_.end() ? it->second : make(*address, false);
    if (c->index_ == kNoIndex) name(*c, index);
  }
  op.connection = c;
  const bool leaves = c->asked_ || c->agreed_;
  if (c->state_ == State::kConnected && c->first_ == nullptr && !leaves) {
    const ssize_t rc = transmit(*c, op);
    if (rc == 0) return 0;
    if (rc != -FI_EAGAIN && !is_link_error(rc)) return int(rc);
    if (rc != -FI_EAGAIN) {
      // The link is dead, and this operation the first to find out: all before it are lost, itself
      // is not.
      Connection *heir = c->own_ ? nullptr : c->rival_;
      drop_link(*c, int(-rc));
      if (op.offset != 0) {
        end(op, int(-rc));
        return 0;
      }
      if (heir != nullptr) op.connection = c = heir;
    }
  }
  enqueue(*c, op);
  if (c->state_ == State::kConnected) {
    if (!leaves) block(*c);
  } else if (c->state_ == State::kIdle) {
    connect(*c);
  }
  return 0;
}

void Core::enqueue(Connection &c, TxOp &op) {
  if (op.inject && !(op.count == 1 && op.iov[0].iov_base == op.bytes)) {
    own_data(op);
    op.inject = true;
  }
  op.queued = true;
  op.next = nullptr;
  (c.last_ != nullptr ? c.last_->next : c.first_) = &op;
  c.last_ = &op;
}

void Core::block(Connection &c) {
  if (c.blocked_) return;
  c.blocked_ = true;
  blocked_.push_back(&c);
}

void Core::resume() {
  resuming_.swap(blocked_);
  for (Connection *c : resuming_) c->blocked_ = false;
  for (size_t i = 0; i < resuming_.size(); ++i) {
    Connection &c = *resuming_[i];
    if (c.state_ == State::kConnected && !flush(c)) block(c);
  }
  resuming_.clear();
}

void Core::resume_fetches() {
  // Each once; a connection that ends meanwhile takes its own off the list.
  for (size_t turns = fetching_.size(); turns != 0 && !fetching_.empty(); --turns) {
    RxMessage *m = fetching_.front();
    fetching_.erase(fetching_.begin());
    m->waits = false;
    fetch(*m);
  }
}

// Everything that waits, in order. False: the carrier has no room.
bool Core::flush(Connection &c) {
  if (owes_credits(c) && !send_credits(c)) return false;
  while (c.control_ != nullptr) {
    Control *control = c.control_;
    const ssize_t rc = send_control(c, *control);
    if (rc == -FI_EAGAIN) return false;
    if (rc != 0) {
      on_closed(c, int(-rc));
      return true;
    }
    c.control_ = control->next;
    if (c.control_ == nullptr) c.control_last_ = nullptr;
  }
  if (c.asked_ || c.agreed_) return true;
  while (c.first_ != nullptr) {
    TxOp &op = *c.first_;
    const ssize_t rc = transmit(c, op);
    if (rc == -FI_EAGAIN) return false;
    if (is_link_error(rc)) {
      on_closed(c, int(-rc));
      return true;
    }
    // What was sent at once may have ended, but its `next` is not touched until it is taken again.
    if (c.first_ != &op) return true;
    c.first_ = op.next;
    if (c.first_ == nullptr) c.last_ = nullptr;
    op.queued = false;
    if (rc != 0) {
      end(op, int(-rc));
    } else {
      settle(op);
    }
  }
  return true;
}

ssize_t Core::packet(Connection &c, const iovec *iov, size_t count, uint64_t flags, Token *token) {
  if (c.flow_control_) {
    if (c.credits_ <= kKeptForCredits) return -FI_EAGAIN;
    const ssize_t rc = carrier_.send(*c.link_, iov, count, flags, token);
    if (rc == 0) --c.credits_;
    return rc;
  }
  return carrier_.send(*c.link_, iov, count, flags, token);
}

ssize_t Core::transmit(Connection &c, TxOp &op) {
  if (op.fence && c.flights_ != 0 && op.offset == 0) return -FI_EAGAIN;
  if (settings_.max_connections != 0) touch(c);
  if (op.form != TxOp::Form::kEager && c.level_ == 0) suit_stock(op);
  op.header.connection = c.peer_slot_;
  const uint64_t more = op.flags & FI_MORE;
  const uint64_t level = op.flags & sdk::kRmaRemoteLevels;
  switch (op.form) {
    case TxOp::Form::kEager: {
      iovec iov[1 + sdk::kIovLimit];
      size_t count = 1;
      if (op.count == 1 && op.iov[0].iov_base == op.bytes) {
        iov[0] = {&op.header, kHeaderSize + size_t(op.length)};
      } else {
        iov[0] = {&op.header, kHeaderSize};
        if (op.length != 0) {
          if (op.count < settings_.iov_limit) {
            for (size_t i = 0; i < op.count; ++i) iov[count++] = op.iov[i];
          } else {
            if (op.bounce == nullptr) {
              op.bounce = std::make_unique_for_overwrite<uint8_t[]>(op.length);
              gather(op.bounce.get(), op.iov, op.count, 0, op.length);
            }
            iov[count++] = {op.bounce.get(), size_t(op.length)};
          }
        }
      }
      const bool fits = kHeaderSize + op.length <= settings_.inject_limit;
      uint64_t flags = more | (level & ~uint64_t(FI_COMMIT_COMPLETE)) | (fits ? FI_INJECT : 0);
      if (op.inject) {  // over when the carrier has it: nobody asks
        if (const ssize_t rc = packet(c, iov, count, flags, nullptr); rc != 0) return rc;
        op.sent = true;
        if (!op.queued) settle(op);
        return 0;
      }
      ++op.tokens;
      if (const ssize_t rc = packet(c, iov, count, flags | FI_COMPLETION, &op); rc != 0) {
        --op.tokens;
        return rc;
      }
      depart(c, op);
      op.sent = true;
      return 0;
    }
    case TxOp::Form::kSegments:
      return transmit_segments(c, op);
    case TxOp::Form::kRendezvous: {
      if (const ssize_t rc = describe(c, op); rc != 0) return rc;
      const iovec iov{&op.header, kHeaderSize + kVectorListSize};
      ++op.tokens;
      if (const ssize_t rc = packet(c, &iov, 1, more | FI_COMPLETION, &op); rc != 0) {
        --op.tokens;
        if (rc != -FI_EAGAIN) undescribe(op);
        return rc;
      }
      await(c, op);
      return 0;
    }
    case TxOp::Form::kRead:
    case TxOp::Form::kWrite: {
      const bool write = op.form == TxOp::Form::kWrite;
      uint64_t flags = more | level | (op.flags & FI_REMOTE_CQ_DATA);
      if (op.inject) flags |= FI_INJECT;
      if (write && c.flow_control_ && op.flags & FI_REMOTE_CQ_DATA && c.credits_ <= kKeptForCredits)
        return -FI_EAGAIN;
      Token *token = op.inject ? nullptr : &op;
      if (token != nullptr) {
        flags |= FI_COMPLETION;
        ++op.tokens;
      }
      const ssize_t rc = write ? carrier_.write(*c.link_, op.iov, op.count, op.vectors,
                                                op.vector_count, op.data, flags, token)
                               : carrier_.read(*c.link_, op.iov, op.count, op.vectors,
                                               op.vector_count, flags, token);
      if (rc != 0) {
        if (token != nullptr) --op.tokens;
        return rc;
      }
      if (write && c.flow_control_ && op.flags & FI_REMOTE_CQ_DATA) --c.credits_;
      if (token != nullptr) depart(c, op);
      op.sent = true;
      if (token == nullptr && !op.queued) settle(op);
      return 0;
    }
    case TxOp::Form::kAtomic: {
      if (c.level_ == 0 &&
          !sdk::stock_executes(op.header.atomic.operation, op.header.atomic.datatype))
        return -FI_EOPNOTSUPP;
      const size_t operands = size_t(op.header.size) - kAtomicVectorsSize;
      iovec iov[2] = {{&op.header, kHeaderSize + kAtomicVectorsSize}, {op.bounce.get(), operands}};
      if (op.bounce == nullptr) iov[0].iov_len += operands;
      ++op.tokens;
      if (const ssize_t rc =
              packet(c, iov, op.bounce == nullptr ? 1 : 2, more | FI_COMPLETION, &op);
          rc != 0) {
        --op.tokens;
        return rc;
      }
      await(c, op);
      return 0;
    }
  }
  return -FI_EINVAL;
}

ssize_t Core::transmit_segments(Connection &c, TxOp &op) {
  const uint64_t level = op.flags & FI_TRANSMIT_COMPLETE;
  while (op.offset < op.length) {
    Segment *s = c.segments_ < settings_.max_segments ? segments_.take() : nullptr;
    ssize_t rc = -FI_EAGAIN;
    const auto n = size_t(std::min<uint64_t>(op.length - op.offset, settings_.eager_limit));
    const bool last = op.offset + n == op.length;
    if (s != nullptr) {
      s->kind = Token::Kind::kSegment;
      s->op = &op;
      ++c.segments_;
      s->header = op.header;
      s->header.segment_size = uint16_t(n);
      s->header.segment_number = uint32_t(op.offset / settings_.eager_limit);
      s->header.control_data = uint64_t(op.offset == 0 ? SegmentKind::kFirst
                                        : last         ? SegmentKind::kLast
                                                       : SegmentKind::kMiddle);
      iovec iov[1 + sdk::kIovLimit] = {{&s->header, kHeaderSize}};
      size_t count = 1 + slice(op.iov, op.count, op.offset, n, iov + 1);
      if (count > settings_.iov_limit) {
        s->copy = std::make_unique_for_overwrite<uint8_t[]>(n);
        gather(s->copy.get(), op.iov, op.count, op.offset, n);
        iov[1] = {s->copy.get(), n};
        count = 2;
      }
      ++op.tokens;
      rc = packet(c, iov, count, FI_COMPLETION | level | (last ? op.flags & FI_MORE : FI_MORE), s);
      if (rc != 0) {
        --op.tokens;
        free_segment(*s);
      }
    }
    // A message that began cannot be taken back: without the rest of it the connection is over.
    if (rc != 0) return op.offset == 0 || rc == -FI_EAGAIN ? rc : -FI_ECONNABORTED;
    depart(c, op);
    op.offset += n;
  }
  op.sent = true;
  return 0;
}

// Forms of messages that stock peers do not finish.
void Core::suit_stock(TxOp &op) {
  if (op.form == TxOp::Form::kSegments) {
    // 1.17, where the message was probed and claimed.
    op.form = TxOp::Form::kRendezvous;
    op.header.type = uint8_t(PacketType::kRendezvous);
  } else if (op.form == TxOp::Form::kRendezvous && op.length == 0) {
    // Nothing to read is nothing to answer. The carrier says when the packet is there, and there is
    // no more to a message of no bytes.
    op.form = TxOp::Form::kEager;
    op.header.type = uint8_t(PacketType::kEager);
    op.flags |= FI_DELIVERY_COMPLETE;
  }
}

// Makes the memory of a rendezvous readable and writes the vectors behind the header.
ssize_t Core::describe(Connection &c, TxOp &op) {
  if (op.vector_count != 0) return 0;  // done already, and the carrier had no room
  RmaVector vectors[kMaxVectors];
  uint8_t count = 0;
  for (size_t i = 0; i < std::max<size_t>(op.count, 1); ++i) {
    iovec iov = i < op.count ? op.iov[i] : iovec{};
    if (iov.iov_len == 0 && (op.length != 0 || i != 0)) continue;
    const size_t length = iov.iov_len;
    // A region of no bytes cannot be had: the header stands in for it.
    if (length == 0) iov = {&op.header, 1};
    if (settings_.rendezvous_write) {
      vectors[count++] = {0, length, kInvalidKey};
      continue;
    }
    int err = 0;
    Registration *r = carrier_.expose(*c.link_, iov, FI_REMOTE_READ, vectors[count], err);
    if (r == nullptr) {
      conceal_all(op);
      return -err;
    }
    op.registrations[op.exposed++] = r;
    vectors[count++].length = length;
  }
  encode_vectors({vectors, count}, op.wire);
  op.vector_count = count;
  return 0;
}

// What was described is for the peer of one link alone.
void Core::undescribe(TxOp &op) {
  conceal_all(op);
  op.vector_count = 0;
}

void Core::conceal_all(TxOp &op) {
  while (op.exposed != 0) carrier_.conceal(*op.registrations[--op.exposed]);
}

// The carrier has it, and the peer owes an answer.
void Core::await(Connection &c, TxOp &op) {
  depart(c, op);
  op.sent = op.answer = true;
  c.in_flight_.add(op);
}

// The operation's part of the protocol is over; it is reported when the carrier has given
// everything back.
void Core::end(TxOp &op, int err) {
  if (op.answer) {
    op.answer = false;
    op.connection->in_flight_.remove(op);
    if (op.writing) std::erase(writes_, &op);
  }
  op.sent = true;
  if (op.err == 0) op.err = err;
  settle(op);
}

void Core::settle(TxOp &op) {
  if (!op.sent || op.answer || op.tokens != 0 || op.queued) return;
  if (op.counted) {
    op.counted = false;
    Connection &c = *op.connection;
    if (--c.flights_ == 0 && c.first_ != nullptr) block(c);  // a fence may wait
  }
  if (op.exposed != 0) conceal_all(op);
  owner_.on_done(op, op.err);
  give(op);
}

void Core::free_segment(Segment &s) {
  s.copy.reset();
  --s.op->connection->segments_;
  segments_.give(&s);
}

void Core::on_sent(Token &token, int err) {
  switch (token.kind) {
    case Token::Kind::kOp: {
      auto &op = static_cast<TxOp &>(token);
      --op.tokens;
      if (err != 0 && op.answer) return end(op, err);
      if (err != 0 && op.err == 0) op.err = err;
      return settle(op);
    }
    case Token::Kind::kSegment: {
      auto &s = static_cast<Segment &>(token);
      TxOp &op = *s.op;
      free_segment(s);
      --op.tokens;
      if (err != 0 && op.err == 0) op.err = err;
      return settle(op);
    }
    case Token::Kind::kControl:
      return free_control(static_cast<Control &>(token));
    case Token::Kind::kMessage:
      return on_read(static_cast<RxMessage &>(token), err);
  }
}

// ---- answers ----

void Core::reset(Control &control, PacketType type, uint64_t id) {
  control.kind = Token::Kind::kControl;
  control.next = nullptr;
  control.more.clear();
  control.owed = 0;
  control.length = kHeaderSize;
  control.header = header_of(type, 0);
  control.header.message = id;
}

Control *Core::new_control(Connection &c, PacketType type, uint64_t id) {
  const size_t most = settings_.max_controls / (is_stranger(c) ? kStrangersPart : 1);
  Control *control = c.controls_ < most ? controls_.take() : nullptr;
  if (control == nullptr) {
    fail_peer(c, "more that asks for an answer than it reads answers");
    return nullptr;
  }
  control->connection = &c;
  ++c.controls_;
  reset(*control, type, id);
  return control;
}

void Core::free_control(Control &control) {
  Connection &c = *control.connection;
  --c.controls_;
  c.owed_ -= control.owed;
  if (control.more.capacity() > kKeptResult) std::vector<uint8_t>().swap(control.more);
  controls_.give(&control);
}

void Core::answer(Connection &c, PacketType type, uint64_t id) {
  if (Control *control = new_control(c, type, id)) queue_control(c, *control);
}

void Core::queue_control(Connection &c, Control &control) {
  control.owed = control.more.size();
  c.owed_ += control.owed;
  const bool too_much = c.owed_ > settings_.owed_limit / (is_stranger(c) ? kStrangersPart : 1);
  if (!too_much && c.state_ == State::kConnected && c.control_ == nullptr) {
    const ssize_t rc = send_control(c, control);
    if (rc == 0) return;
    if (rc != -FI_EAGAIN) {
      free_control(control);
      return on_closed(c, int(-rc));
    }
    block(c);
  }
  (c.control_ != nullptr ? c.control_last_->next : c.control_) = &control;
  c.control_last_ = &control;
  if (too_much) fail_peer(c, "more atomics than it takes results of");
}

ssize_t Core::send_control(Connection &c, Control &control) {
  control.header.connection = c.peer_slot_;
  const iovec iov[2] = {{&control.header, control.length},
                        {control.more.data(), control.more.size()}};
  const size_t total = control.length + control.more.size();
  const size_t count = control.more.empty() ? 1 : 2;
  if (total <= settings_.inject_limit) {
    const ssize_t rc = packet(c, iov, count, FI_INJECT, nullptr);
    // The queue's link is read before the object is taken again.
    if (rc == 0) free_control(control);
    return rc;
  }
  return packet(c, iov, count, FI_COMPLETION, &control);
}

bool Core::owes_credits(const Connection &c) const {
  return c.flow_control_ && !c.agreed_ && c.reposted_ >= std::max(1u, settings_.receive_count / 2);
}

void Core::on_reposted(Connection &c, uint32_t count) {
  if (!c.flow_control_) return;
  c.reposted_ += count;
  if (c.state_ == State::kConnected && owes_credits(c) && !send_credits(c)) block(c);
}

// False: the carrier has no room.
bool Core::send_credits(Connection &c) {
  if (c.credits_ == 0) return true;  // goes out when the peer has granted some
  WireHeader header = header_of(PacketType::kCredit, c.peer_slot_);
  header.control_data = c.reposted_;
  header.op = uint8_t(PacketOp::kAtomic);  // as stock fills it
  const iovec iov{&header, sizeof header};
  const ssize_t rc = carrier_.send(*c.link_, &iov, 1, FI_INJECT, nullptr);
  if (rc != 0) return rc != -FI_EAGAIN;  // a dead link is noticed by what it says itself
  --c.credits_;
  c.reposted_ = 0;
  return true;
}

}  // namespace weft::rxm
