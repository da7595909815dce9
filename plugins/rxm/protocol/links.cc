// SPDX-License-Identifier: BSD-2-Clause
// Which connection with a peer counts. weft/sdk/peer/link.h decides; here is done what it says, and
// it is told what has happened.
#include <rdma/fi_errno.h>

#include <cstdio>
#include <utility>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

// `err`: of operations that fail.
void Core::follow(Peer &p, PeerLink::Next next, int err) {
  switch (next) {
    case PeerLink::Next::kNothing:
      return;
    case PeerLink::Next::kConnect:
      return attempt(p);
    case PeerLink::Next::kProbe:
      return probe(p);
    case PeerLink::Next::kWait:
      return deadlines_.wait(p);
    case PeerLink::Next::kFail:
      p.attempts_ = 0;
      return in_flight_.end_all(outbox_.take_all(p), err);
    case PeerLink::Next::kResume:  // the peer may have accepted it already, and may be sending
      p.attempt_ = std::exchange(p.probe_, nullptr);
      return;
    case PeerLink::Next::kReplace:
      return replace(p);
  }
}

// Operations of this peer wait.
void Core::demand(Peer &p) {
  if (!p.link_.is_up()) follow(p, p.link_.want(carrier_.now_ns(), settings_.connect_timeout_ns));
}

// Whether somebody waits for a link, or for an answer of the peer.
bool Core::wanted(const Peer &p) const {
  return !p.queue_.empty() ||
         (!p.is_stranger() && owners_.waits(sdk::Av::entry_of(p.index_), carrier_.now_ns()));
}

// Something has changed that decides by which connection operations leave. In doubt they wait, also
// those that are queued already: the application may answer a message of the process that has
// accepted our request, and the other process must not get the answer.
void Core::look(Peer &p) {
  Connection *const c = p.main_;
  const bool leave = c != nullptr && c->state_ == State::kConnected && !c->waits() &&
                     p.link_.state() != PeerLink::State::kDoubt;
  p.way_ = leave ? c : nullptr;
  if (leave && !p.queue_.empty()) sender_.block(*c);
}

void Core::attempt(Peer &p) {
  if (p.attempts_++ != 0) counters_.retries.add_alone();
  Connection &c = peers_.connect(p);
  p.attempt_ = &c;
  if (const int err = request(c); err != 0) ended(c, err);
}

void Core::probe(Peer &p) {
  Connection &c = peers_.connect(p);
  p.probe_ = &c;
  if (const int err = request(c); err != 0) ended(c, err);
}

// ---- time ----

void Core::on_deadline() {
  const uint64_t now = carrier_.now_ns();
  for (Peer *p : deadlines_.take_due(now)) {
    follow(*p, p->link_.on_time(now, wanted(*p)));
    peers_.note_unused(*p);
  }
  deadlines_.arm();
}

void Core::warn_of_timeout(const Peer &p) {
  char text[300];
  std::snprintf(
      text, sizeof text,
      "no connection to %s: it postponed the connection or hung up, or the port for it was in "
      "use here, %u times within %llu ms (ofi_rxm connect_timeout_ms)",
      p.address_.to_string().c_str(), p.attempts_,
      (unsigned long long)(settings_.connect_timeout_ns / 1'000'000u));
  counters_.timeouts.add_alone();
  upper_.warn(text);
}

// ---- events ----

// The first packet of this connection.
void Core::hear(Connection &c) {
  c.set_heard();
  Peer &p = c.peer_;
  if (c.quiet_ && c.state_ == State::kConnected) sender_.block(c);
  c.quiet_ = false;
  if (&c == p.attempt_ || &c == p.probe_) p.link_.on_heard();
  look(p);
}

// The peer asks for another connection. One that is held does not get here (on_request).
bool Core::seems_dead(Connection &c) {
  return c.state_ == State::kConnected && carrier_.reads() &&
         c.doubt_.lasts(carrier_.now_ns(), c.idleness.last_use());
}

// Our request is accepted, by the process that listens at the peer's address.
void Core::accepted(Connection &c, uint32_t process) {
  Peer &p = c.peer_;
  if (&c == p.attempt_) {
    p.link_.on_accepted(carrier_.now_ns(), process);
    p.main_ = std::exchange(p.attempt_, nullptr);
    name_by_address(p);
    return establish(c);
  }
  const PeerLink::Next next = p.link_.on_accepted(carrier_.now_ns(), process);
  if (next == PeerLink::Next::kWait) look(p);
  follow(p, next);
}

// Another may have said that it is a context, and is not: who listens at the address may have a
// name.
void Core::name_by_address(Peer &p) {
  if (!p.is_stranger()) return;
  if (const uint32_t index = upper_.index_of(p.address_); index != kNoIndex) rename(p, index);
}

// The probe is the link from now on. The old one brings nothing more, or is over.
void Core::replace(Peer &p) {
  Connection &c = *p.probe_;
  const OpQueue failed = outbox_.take_failing(p);
  Connection *const old = std::exchange(p.main_, std::exchange(p.probe_, nullptr));
  look(p);
  if (old != nullptr) {
    counters_.replaced.add_alone();
    close(*old, FI_ECONNRESET);
  }
  in_flight_.end_all(failed, FI_ECONNRESET);
  name_by_address(p);
  establish(c);
}

// The connection is over, or comes to nothing.
void Core::ended(Connection &c, int err, PeerLink::Refusal refusal) {
  Peer &p = c.peer_;
  if (&c == p.attempt_) {
    p.attempt_ = nullptr;
    close(c, err);
    const PeerLink::Next next = p.link_.on_refused(carrier_.now_ns(), refusal, wanted(p));
    if (next == PeerLink::Next::kFail && refusal != PeerLink::Refusal::kUnreachable) {
      warn_of_timeout(p);
      err = FI_ETIMEDOUT;
    }
    return follow(p, next, err);
  }
  if (&c == p.probe_) {
    p.probe_ = nullptr;
    p.link_.on_probe_ended();
    close(c, err);
    return look(p);
  }
  if (&c != p.main_) return close(c, err);
  lose_main(p, err);
  const uint64_t now = carrier_.now_ns();
  follow(p, p.link_.on_lost(now, wanted(p), settings_.connect_timeout_ns), err);
}

// The connection that counts is over. What waits fails with it, unless it could not be sent there:
// then it goes by the next one.
void Core::lose_main(Peer &p, int err) {
  const OpQueue failed = outbox_.take_failing(p);
  Connection &c = *std::exchange(p.main_, nullptr);
  look(p);
  if (p.place_ == 0 && !p.is_stranger()) owners_.ended(sdk::Av::entry_of(p.index_));
  close(c, err);
  in_flight_.end_all(failed, err);
}

// Ends everything with this peer.
void Core::end_all(Peer &p, int err) {
  p.link_ = PeerLink(Peer::kRules);
  p.main_ = p.attempt_ = p.probe_ = nullptr;
  look(p);
  const OpQueue failed = outbox_.take_all(p);
  for (Connection *c = p.connections_; c != nullptr; c = c->next_) close(*c, err);
  in_flight_.end_all(failed, err);
}

}  // namespace weft::rxm
