// SPDX-License-Identifier: BSD-2-Clause
// Connections: how one begins and ends at the carrier, and what both sides say then. Which of them
// counts is in links.cc, the end of idle ones in parting.cc.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

namespace {

// What we tell the peer of ourselves.
uint8_t own_level(const Settings &settings) {
  return settings.bare ? kLevel : kLevelOfBare - 1;
}

// The order in which rxm compares addresses: bytes in network order, host before port. It decides
// which request counts when both peers connect at once; stock peers use the same order for IP.
std::strong_ordering compare(const sdk::Address &a, const sdk::Address &b) {
  if (a.format() != b.format()) return a.format() <=> b.format();
  const std::span<const uint8_t> host = a.host();
  const int order = std::memcmp(host.data(), b.host().data(), host.size());
  return order != 0 ? order <=> 0 : a.port() <=> b.port();
}

}  // namespace

// ---- names ----

void Core::forget(uint32_t index) {
  owners_.forget(sdk::Av::entry_of(index));
  // The next peer with this index must not get the messages of this one.
  if (Peer *p = peers_.at(index)) rename(*p, kNoIndex);
}

void Core::introduce(uint32_t index, const sdk::Address &address) {
  if (Peer *p = peers_.find(address); p != nullptr && p->is_stranger()) rename(*p, index);
}

// Messages of this peer, saved and arriving, have the source `index` from now on; kNoIndex: that of
// a stranger.
void Core::rename(Peer &p, uint32_t index) {
  const uint32_t before = p.source();
  peers_.set_index(p, index);
  const uint32_t now = p.source();
  if (before == now) return;
  inbox_.rename(p, before, now);
}

void Core::reap() {
  peers_.visit_unused([this](Peer &p) { return reap(p); });
}

// Deletes what is not used any more. False: the carrier still has operations of connections that
// are over.
bool Core::reap(Peer &p) {
  bool all = true;
  for (Connection *c = p.connections_; c != nullptr;) {
    Connection &one = *std::exchange(c, c->next_);
    if (one.state_ != State::kEnded) continue;
    if (one.departed.count() != 0 || one.answers.count() != 0) {
      all = false;
      continue;
    }
    sender_.forget(one);
    peers_.erase(one);
  }
  if (!all) return false;
  if (p.connections_ != nullptr || p.kept_ != 0 || !p.queue_.empty() ||
      p.link_.state() != PeerLink::State::kIdle)
    return true;
  deadlines_.forget(p);
  peers_.erase(p);
  return true;
}

// ---- our requests ----

// 0, or why the carrier makes no connection.
int Core::request(Connection &c) {
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
  int err = 0;
  c.set_link(carrier_.connect(c, c.peer_.address_, data, err));
  if (c.link_ != nullptr) {
    opened(c);
    return 0;
  }
  counters_.failures.add_alone();
  return err;
}

void Core::opened(Connection &c) {
  peers_.opened(c);
  c.set_started(carrier_.now_ns());
  if (shares_.must_wait(c.peer_)) shares_.hold(c);
}

void Core::on_connected(Connection &c, std::span<const uint8_t> data) {
  if (c.state_ == State::kAccepting) return establish(c);
  if (c.state_ != State::kConnecting) return;
  const auto theirs = parse_accept(data);
  if (!theirs) {
    char text[200];
    std::snprintf(text, sizeof text, "the answer of %s to a connection request is invalid: %s",
                  c.peer_.address_.to_string().c_str(), text_of(theirs.error()));
    upper_.warn_of_peer(text);
    return ended(c, FI_EPROTO);
  }
  c.peer_slot_ = theirs->index;
  take_level(c, theirs->level);
  sender_.use_credits(c, settings_.credits && theirs->flow_control != FlowControl::kOff);
  told(c, theirs->last_place);
  accepted(c, theirs->process);
}

void Core::on_refused(Connection &c, int err, std::span<const uint8_t> data, bool passes) {
  if (c.state_ != State::kConnecting) return ended(c, err);
  if (!passes) told(c, parse_last_place(data));
  const bool later = parse_reject(data) == RejectReason::kAlready;
  if (!passes && !later) counters_.failures.add_alone();
  ended(c, err,
        passes  ? PeerLink::Refusal::kHungUp
        : later ? PeerLink::Refusal::kRejected
                : PeerLink::Refusal::kUnreachable);
}

// ---- the peers' requests ----

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
  const auto claim = judge(*named, theirs->place);
  if (claim == sdk::PlaceOwner::Claim::kAsk || claim == sdk::PlaceOwner::Claim::kWait)
    return refuse(request, RejectReason::kAlready, &*theirs);  // the peer retries
  Peer &p = peers_.get(*named);
  if (p.main_ != nullptr && p.main_->idleness.has_agreed() && p.probe_ == nullptr) {
    lose_main(p, FI_ECONNABORTED);  // the old connection brings nothing more
    p.link_.on_lost(carrier_.now_ns(), /*wanted=*/false, 0);
  }
  // The process has a connection. Its end cannot be read yet, if messages before it wait for room.
  if (p.main_ != nullptr && (p.main_->held_ || !carrier_.reads()) &&
      p.link_.process() == theirs->process)
    return refuse(request, RejectReason::kAlready, &*theirs);
  if (!p.link_.is_up() && !admit(p, *theirs, claim == sdk::PlaceOwner::Claim::kTrue)) {
    peers_.note_unused(p);
    return refuse(request, RejectReason::kAlready);  // the peer retries
  }
  sdk::Address own = own_;
  if (own.is_any()) own = to.with_port(own_.port()).value_or(own_);
  const PeerLink::Decision decision =
      p.link_.on_request(compare(*named, own), theirs->process, carrier_.now_ns());
  if (!decision.accept) return put_off(p, request, *theirs, decision);
  if (decision.to_probe) {
    counters_.crossed.add_alone();
    p.probe_ = std::exchange(p.attempt_, nullptr);
  }
  accept(p, request, *theirs, decision.second);
}

// Another connection counts. If the peer was restarted, or another process on its host claims its
// address, the address is asked.
void Core::put_off(Peer &p, Request &request, const ConnectData &data,
                   PeerLink::Decision decision) {
  refuse(request, RejectReason::kAlready, &data);
  PeerLink::Next next = decision.next;
  if (!decision.claim && p.main_ != nullptr && seems_dead(*p.main_))
    next = p.link_.suspect(carrier_.now_ns());
  if (next == PeerLink::Next::kProbe) counters_.contested.add_alone();
  follow(p, next);
}

// Names the requester if it has a name. Whether there is room for it: strangers have a limit.
bool Core::admit(Peer &p, const ConnectData &data, bool believed) {
  if (p.is_stranger()) {
    p.place_ = data.place;
    has_contexts_ |= data.place != 0;
    const uint32_t index = data.place == 0 ? upper_.index_of(p.address_)
                           : believed      ? upper_.index_of_context(p.address_, data.place)
                                           : uint32_t{kNoIndex};
    if (index != kNoIndex) rename(p, index);
  }
  return !p.is_stranger() || p.open_ != 0 || !p.queue_.empty() ||
         strangers() < settings_.max_strangers || make_room();
}

// Closes the connections of a silent stranger, or asks an idle one to part: then the result is
// false, and the new one has to retry.
bool Core::make_room() {
  const StrangerLimit::Leaver leaver = stranger_limit_.first_to_leave(carrier_.now_ns());
  if (leaver.silent != nullptr) {
    counters_.strangers_closed.add_alone();
    end_all(*leaver.silent, FI_ECONNABORTED);
    return true;
  }
  if (leaver.idle != nullptr) ask_to_part(*leaver.idle);
  return false;
}

// `second`: the other end of a connection to ourselves.
void Core::accept(Peer &p, Request &request, const ConnectData &data, bool second) {
  Connection &c = peers_.connect(p);
  if (!second) p.main_ = &c;
  if (settings_.max_connections != 0) close_idle(settings_.max_connections - 1);
  const FlowControl flow = settings_.credits ? FlowControl::kOn : FlowControl::kOff;
  c.set_state(State::kAccepting);
  c.peer_slot_ = data.index;
  take_level(c, data.level);
  sender_.use_credits(c, settings_.credits && data.flow_control != FlowControl::kOff);
  c.quiet_ = settings_.asker_first && c.sending.credits().used();
  const AcceptBytes answer = encode(AcceptData{.process = settings_.process,
                                               .index = c.slot_,
                                               .receive_count = settings_.receive_count,
                                               .level = own_level(settings_),
                                               .last_place = settings_.last_place,
                                               .flow_control = flow});
  int err = 0;
  c.set_link(carrier_.accept(c, request, answer, err));
  if (c.link_ == nullptr) {
    refuse(request, RejectReason::kRefused);
    return ended(c, err);
  }
  opened(c);
  if (!second && p.place_ == 0 && !p.is_stranger())
    owners_.begun(sdk::Av::entry_of(p.index_), p.address_, carrier_.now_ns());
}

// ---- life ----

void Core::take_level(Connection &c, uint8_t level) {
  c.set_level(std::min(level, own_level(settings_)));
}

void Core::establish(Connection &c) {
  if (c.state_ == State::kEnded) return;  // by what its peer's new name has brought
  c.set_state(State::kConnected);
  c.peer_.attempts_ = 0;
  idle_limit_.connect(c);
  counters_.made.add_alone();
  idle_limit_.touch(c);
  if (settings_.max_connections != 0) close_idle(settings_.max_connections);
  if (settings_.receive_count > 1) sender_.repost(c, settings_.receive_count - 1);
  look(c.peer_);
  if (!flush(c)) sender_.block(c);
}

void Core::on_closed(Connection &c, int err) {
  ended(c, err);
}

// Operations that wait for an answer of the peer fail here; operations at the carrier end when they
// come back.
void Core::close(Connection &c, int err) {
  if (c.state_ == State::kEnded) return;
  const bool leaves = c.idleness.leaves();
  const bool orderly = leaves || c.state_ != State::kConnected;
  if (c.state_ == State::kConnected) {
    idle_limit_.disconnect(c);
    if (!down_) (leaves ? counters_.parted : counters_.lost).add_alone();
  }
  take_level(c, 0);
  c.set_state(State::kEnded);
  peers_.note_unused(c.peer_);
  answers_.drop(c);
  if (c.link_ != nullptr) close_link(c, orderly);
  in_flight_.end_awaited(c, err);
  inbox_.lose_all(c, err);
}

// `orderly`: no message waits at the carrier that the peer may never take.
void Core::close_link(Connection &c, bool orderly) {
  shares_.forget(c);
  peers_.closed(c);
  inbox_.untie(c);
  const bool idle =
      orderly && c.departed.count() == 0 && c.answers.count() == 0 && !c.arriving.is_read();
  Link &link = *c.link_;
  c.set_link(nullptr);
  carrier_.close(link, idle);
}

void Core::fail_peer(Connection &c, const char *what) {
  char text[240];
  std::snprintf(text, sizeof text, "%s sent %s: the connection is closed",
                c.peer_.address_.to_string().c_str(), what);
  upper_.warn_of_peer(text);
  counters_.violations.add_alone();
  ended(c, FI_EPROTO);
}

}  // namespace weft::rxm
