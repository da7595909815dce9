// SPDX-License-Identifier: BSD-2-Clause
// Peers, and the connections with them: how a peer is found, how a connection begins and ends.
// Competing claims to an address are in rivals.cc, the end of idle connections in parting.cc.
#include <rdma/fi_errno.h>
#include <weft/sdk/peer/crowd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

namespace {

constexpr uint64_t kSilenceNs = 1'000'000'000;  // then a silent stranger has to make room
// Times kSilenceNs, for one that has sent messages: what it is sending just then is lost.
constexpr int kPatientLooks = 10;
constexpr uint64_t kDeadNs = 1'000'000'000;  // without a packet while the peer asks for another
constexpr uint64_t kFirstRetryNs = 1'000'000;
constexpr uint64_t kLastRetryNs = 500'000'000;

// What we tell the peer of ourselves.
uint8_t own_level(const Settings &settings) {
  return settings.bare ? kLevel : kLevelOfBare - 1;
}

// The order in which rxm compares addresses: bytes in network order, host before port. It decides
// which request counts when both peers connect at once; stock peers use the same order for IP.
int compare(const sdk::Address &a, const sdk::Address &b) {
  if (a.format() != b.format()) return a.format() < b.format() ? -1 : 1;
  const std::span<const uint8_t> host = a.host();
  if (const int order = std::memcmp(host.data(), b.host().data(), host.size()); order != 0)
    return order;
  return int(a.port()) - int(b.port());
}

}  // namespace

Connection *Core::make(const sdk::Address &address, bool own) {
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

// Whether another connection has the same address: then messages of both may be saved under it.
bool Core::has_others(const Connection &c) const {
  return std::any_of(slots_.begin(), slots_.end(), [&c](const Connection *other) {
    return other != nullptr && other != &c && other->address_ == c.address_;
  });
}

void Core::note_unused(Connection &c) {
  if (c.unused_) return;
  c.unused_ = true;
  unused_.push_back(&c);
}

void Core::reap() {
  for (size_t i = 0; i < unused_.size();) {
    Connection &c = *unused_[i];
    const bool unused = c.state_ == State::kIdle && c.first_ == nullptr && c.controls_ == 0 &&
                        c.flights_ == 0 && c.kept_ == 0 && !c.contested_ &&
                        !(c.shares_name_ && has_others(c));
    // An idle connection that still keeps messages leaves the list; free_message() puts it back.
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
  owners_.erase(index);
  Connection *c = peers_.at(index);
  if (c == nullptr) return;
  peers_.set(index, nullptr);
  // The next peer with this index must not get the messages of this one.
  rename(*c, kNoIndex, c->own_);
}

void Core::introduce(uint32_t index, const sdk::Address &address) {
  if (by_address_.empty()) return;
  const auto it = by_address_.find(address);
  if (it == by_address_.end() || it->second->index_ != kNoIndex) return;
  name(*it->second, index);
}

void Core::name(Connection &c, uint32_t index) {
  peers_.set(index, &c);
  rename(c, index, c.own_);
}

// Messages of this connection, saved and arriving, have the source `index` from now on; kNoIndex:
// that of a stranger.
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
  upper_.receiver().rename_source(before, now);
}

void Core::connect(Connection &c) {
  if (c.attempts_++ == 0)
    c.started_at_ = carrier_.now_ns();
  else
    counters_.retries.add_alone();
  if (settings_.max_connections != 0) close_idle(settings_.max_connections - 1);
  const ConnectBytes data =
      encode(ConnectData{.port = own_.port(),
                         .flow_control = settings_.credits ? FlowControl::kOn : FlowControl::kOff,
                         .eager_limit = settings_.eager_limit,
                         .receive_count = settings_.receive_count,
                         .level = own_level(settings_),
                         .place = settings_.place,
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
  counters_.failures.add_alone();
  fail(c, err);
}

// `theirs`: what is known of the requester.
void Core::refuse(Request &request, RejectReason reason, const ConnectData *theirs) {
  (reason == RejectReason::kAlready ? counters_.put_off : counters_.refused).add_alone();
  const RejectBytes bytes = encode(reason, settings_.last_place);
  const bool tells = theirs != nullptr && theirs->level >= kLevelOfPlaces;
  carrier_.reject(request, std::span(bytes).first(tells ? kRejectSize : kStockRejectSize));
}

void Core::on_request(Request &request, const sdk::Address &from, const sdk::Address &to,
                      std::span<const uint8_t> data) {
  const auto theirs = parse_connect(data);
  char text[200];
  if (!theirs || theirs->eager_limit != settings_.eager_limit) {
    if (!theirs) {
      std::snprintf(text, sizeof text, "a connection from %s is refused: %s",
                    from.to_string().c_str(), text_of(theirs.error()));
    } else {
      std::snprintf(text, sizeof text,
                    "a connection from %s is refused: its eager limit is %u, ours %u: give both "
                    "sides the same FI_OFI_RXM_BUFFER_SIZE",
                    from.to_string().c_str(), theirs->eager_limit, settings_.eager_limit);
    }
    upper_.warn_of_peer(text);
    return refuse(request, RejectReason::kRefused);
  }
  if (only_tells_) return refuse(request, RejectReason::kAlready, &*theirs);  // the peer retries
  if (down_ || settings_.only_transmits) return refuse(request, RejectReason::kRefused, &*theirs);
  const Result<sdk::Address> named = from.with_port(theirs->port);
  if (!named) {
    std::snprintf(text, sizeof text, "a connection is refused: %.150s", named.error().text.c_str());
    upper_.warn_of_peer(text);
    return refuse(request, RejectReason::kRefused);
  }
  const sdk::Address &peer = *named;
  const auto claim = judge(peer, theirs->place);
  if (claim == sdk::PlaceOwner::Claim::kAsk || claim == sdk::PlaceOwner::Claim::kWait)
    return refuse(request, RejectReason::kAlready, &*theirs);  // the peer retries
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
      // A packet that arrived proves that the peer accepted our request.
      if (c->disputed_ || c->heard_) return refuse(request, RejectReason::kAlready, &*theirs);
      sdk::Address own = own_;
      if (own.is_any()) own = to.with_port(own_.port()).value_or(own_);
      const int order = compare(peer, own);
      if (order < 0) return refuse(request, RejectReason::kAlready, &*theirs);
      if (order == 0) {
        c->shares_name_ = true;
        return accept(*make(peer, true), request, *theirs);
      }
      return accept_beside(*c, request, *theirs);
    }
    case State::kAccepting:
    case State::kConnected:
      if (c->agreed_ && c->rival_ == nullptr) {  // the old link brings nothing more
        drop_link(*c, FI_ECONNABORTED);
        return accept(*c, request, *theirs);
      }
      if (c->peer_process_ == theirs->process) {
        refuse(request, RejectReason::kAlready, &*theirs);
        if (seems_dead(*c)) contest(*c);
        return;
      }
      // The peer was restarted, or another process on its host claims its address. The requester
      // waits while we ask the owner of the address (rivals.cc).
      refuse(request, RejectReason::kAlready, &*theirs);
      return contest(*c);
  }
}

// The peer asks for a connection although it has one. Mostly that one is ending, and the carrier
// will say so. But the end may have been lost with the network. Then nothing comes any more, and
// the peer asks again and again.
bool Core::seems_dead(Connection &c) {
  if (c.state_ != State::kConnected || !carrier_.reads(*c.link_)) return false;
  const uint64_t now = carrier_.now_ns();
  if (c.doubted_use_ == c.last_use_) return now - c.doubted_at_ >= kDeadNs;
  c.doubted_use_ = c.last_use_;
  c.doubted_at_ = now;
  return false;
}

void Core::accept(Connection &c, Request &request, const ConnectData &data) {
  if (is_stranger(c)) {
    c.place_ = data.place;
    has_contexts_ |= data.place != 0;
    if (data.place != 0) {
      if (judge(c.address_, data.place) == sdk::PlaceOwner::Claim::kTrue)
        name_context(c, data.place);
    } else if (const uint32_t index = upper_.index_of(c.address_); index != kNoIndex) {
      name(c, index);
    }
  }
  if (is_stranger(c) && c.first_ == nullptr && strangers_ >= settings_.max_strangers &&
      !make_room()) {
    c.state_ = State::kIdle;
    note_unused(c);
    return refuse(request, RejectReason::kAlready);  // the peer retries
  }
  if (std::exchange(c.contested_, false)) std::erase(contested_, &c);
  if (settings_.max_connections != 0) close_idle(settings_.max_connections - 1);
  const FlowControl flow = settings_.credits ? FlowControl::kOn : FlowControl::kOff;
  c.peer_slot_ = data.index;
  c.peer_process_ = data.process;
  take_level(c, data.level);
  c.flow_control_ = settings_.credits && data.flow_control != FlowControl::kOff;
  c.quiet_ = settings_.asker_first && c.flow_control_;
  const AcceptBytes answer = encode(AcceptData{.process = settings_.process,
                                               .index = c.slot_,
                                               .receive_count = settings_.receive_count,
                                               .level = own_level(settings_),
                                               .last_place = settings_.last_place,
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
  fail(c, err);
}

// Counts, for each connection, how many looks in a row have found nothing new.
void Core::look_at_strangers(uint64_t now) {
  if (now - looked_at_ < kSilenceNs) return;
  looked_at_ = now;
  for (Connection *c : slots_) {
    if (c == nullptr) continue;
    const bool useless = std::exchange(c->seen_use_, c->last_use_) == c->last_use_;
    c->useless_looks_ = useless ? uint8_t(std::min(c->useless_looks_ + 1, kPatientLooks)) : 0;
  }
}

// Whether the connection of a stranger may be closed without asking it: nothing that it has sent
// waits for this side, and either it never sent a whole message, or it has been useless for long and
// cannot be asked to part, or does not answer.
bool Core::is_silent(const Connection &c, uint64_t now) {
  if (!c.heard_) return now - c.started_at_ >= kSilenceNs;
  if (c.control_ != nullptr || c.flights_ != 0 || c.messages_.first != nullptr ||
      c.matchless_.first != nullptr)
    return false;
  const int looks = c.seen_use_ == c.last_use_ ? c.useless_looks_ : 0;
  if (!c.useful_) return looks >= 1;
  const bool cannot_be_asked = c.level_ == 0 || c.asked_ || c.unfinished_.first != nullptr;
  return cannot_be_asked && looks >= kPatientLooks;
}

// Makes room when the number of strangers is at its limit. Closes the connection of a silent one, or
// asks an idle one to part: then the result is false, and the new stranger has to retry. Which one:
// weft/sdk/peer/crowd.h.
bool Core::make_room() {
  const uint64_t now = carrier_.now_ns();
  look_at_strangers(now);
  const auto is_one = [](const Connection *c) {
    return c != nullptr && c->link_ != nullptr && is_stranger(*c);
  };
  sdk::Crowd of_silent;
  for (const Connection *c : slots_)
    if (is_one(c)) of_silent.add(c->address_);
  sdk::Crowd of_idle = of_silent;
  Connection *silent = nullptr, *idle = nullptr;
  for (Connection *c : slots_) {
    if (!is_one(c) || c->first_ != nullptr) continue;
    if (is_silent(*c, now)) {
      if (of_silent.goes_before(c->address_, c->last_use_)) silent = c;
    } else if (c->state_ == State::kConnected && c->level_ != 0 && !c->asked_ && !c->agreed_ &&
               c->heard_ && !busy(*c) && of_idle.goes_before(c->address_, c->last_use_)) {
      idle = c;
    }
  }
  if (silent != nullptr) {
    counters_.strangers_closed.add_alone();
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
      std::snprintf(text, sizeof text, "the answer of %s to a connection request is invalid: %s",
                    c.address_.to_string().c_str(), text_of(theirs.error()));
      upper_.warn_of_peer(text);
      return fail(c, FI_EPROTO);
    }
    c.peer_slot_ = theirs->index;
    c.peer_process_ = theirs->process;
    take_level(c, theirs->level);
    learn_places(c, theirs->last_place);
    c.flow_control_ = settings_.credits && theirs->flow_control != FlowControl::kOff;
    if (c.rival_ != nullptr && c.crossed_) return doubt(c);
    if (c.rival_ != nullptr) replace(c);
  }
  establish(c);
}

void Core::take_level(Connection &c, uint8_t level) {
  c.level_ = std::min(level, own_level(settings_));
  c.bare_ = c.level_ >= kLevelOfBare;
}

void Core::establish(Connection &c) {
  c.state_ = State::kConnected;
  c.disputed_ = c.crossed_ = false;
  c.attempts_ = 0;
  ++connected_;
  counters_.made.add_alone();
  if (c.agreed_) ++leaving_;
  touch(c);
  if (settings_.max_connections != 0) close_idle(settings_.max_connections);
  if (c.flow_control_ && settings_.receive_count > 1) {
    c.reposted_ += settings_.receive_count - 1;
  }
  if (!flush(c)) block(c);
}

void Core::on_refused(Connection &c, int err, std::span<const uint8_t> data, bool passes) {
  if (c.state_ == State::kConnecting && !passes) learn_places(c, parse_last_place(data));
  const bool parting = c.asked_ || c.agreed_;
  if (c.state_ != State::kConnecting && (!passes || parting || c.state_ != State::kAccepting))
    return on_closed(c, err);
  // `later`: the refusal is not final. Another connection is on its way, or the peer was too busy.
  // A rival does not retry, because it has its answer. Nor does a connection on which messages are
  // arriving already: they end with it.
  const bool later = passes || parse_reject(data) == RejectReason::kAlready;
  const bool receives = c.unfinished_.first != nullptr || c.messages_.first != nullptr;
  if (later && c.rival_ == nullptr && !receives) {
    c.disputed_ = false;
    drop_controls(c);
    close_link(c, true);
    return wait_for_other(c);
  }
  if (later && c.rival_ != nullptr && !c.own_ && !receives) return part(c, err);  // like accept()
  if (!later) counters_.failures.add_alone();
  fail(c, err);
}

void Core::on_closed(Connection &c, int err) {
  if (c.asked_ || c.agreed_) return part(c, err);
  fail(c, err);
}

// The link has failed, and with it what waits for it. In doubt that goes by the rival.
void Core::fail(Connection &c, int err) {
  Connection *heir = c.doubted_ ? c.rival_ : nullptr;
  drop_link(c, err);
  if (heir == nullptr) return fail_queue(c, err);
  fail_begun(c, err);
  hand_over(c, *heir);
}

uint64_t Core::pause_after(uint32_t attempts) {
  return std::min(kLastRetryNs, kFirstRetryNs << std::min<uint32_t>(attempts, 16));
}

void Core::wait_for_other(Connection &c) {
  // The peer may refuse us for the sake of a dead connection, whose end it has not noticed. Then no
  // other connection comes, so retry.
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

// Ends the connection. Operations that wait for an answer of the peer fail here; operations at the
// carrier end when they come back. The queue stays, for the caller to fail or to hand over.
void Core::drop_link(Connection &c, int err) {
  if (c.state_ == State::kConnected && c.index_ != kNoIndex) owners_.erase(c.index_);
  const bool leaves = c.asked_ || c.agreed_;
  const bool orderly = leaves || c.state_ != State::kConnected;
  if (c.state_ == State::kConnected) {
    --connected_;
    if (leaves) --leaving_;
    if (!down_) (leaves ? counters_.parted : counters_.lost).add_alone();
  }
  c.asked_ = c.agreed_ = c.doubted_ = false;
  take_level(c, 0);
  stop_waiting(c);
  if (Connection *other = c.rival_) {
    if (c.own_) {
      other->rival_ = c.rival_ = nullptr;
      if (other->doubted_) trust(*other);
    } else {
      // This link ended by itself. The rival takes its place: the owner of the address may have
      // accepted it already, and may be sending.
      inherit(*other, c);
      other->disputed_ = true;
      if (other->accepted_) {  // the claimant is gone, so there is no doubt
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
  if (c.link_ != nullptr) close_link(c, orderly);
  while (c.in_flight_.first != nullptr) end(*c.in_flight_.first, err);
  lose_messages(c, err);
}

// `orderly`: no message waits at the carrier that the peer may never take.
void Core::close_link(Connection &c, bool orderly) {
  if (std::exchange(c.held_, false)) std::erase(held_, &c);
  strangers_ -= is_stranger(c);
  c.heard_ = c.quiet_ = c.useful_ = false;
  c.useless_looks_ = 0;
  c.tags_sent_ = c.tags_heard_ = BareTags();
  c.credits_ = 1;
  c.reposted_ = 0;
  while (c.matchless_.first != nullptr) unlist(*c.matchless_.first);  // they are whole, and stay
  bool idle = orderly && c.flights_ == 0 && c.controls_ == 0;
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

// Part of an operation was sent on this link, so it cannot go by another.
void Core::fail_begun(Connection &c, int err) {
  TxOp *op = c.first_;
  if (op == nullptr || op->offset == 0) return;
  c.first_ = op->next;
  if (c.first_ == nullptr) c.last_ = nullptr;
  op->queued = false;
  end(*op, err);
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
  upper_.warn_of_peer(text);
  counters_.violations.add_alone();
  fail(c, FI_EPROTO);
}

}  // namespace weft::rxm
