// SPDX-License-Identifier: BSD-2-Clause
// The life of a conversation between weft peers: begin, timers, end.
#include "plugins/rxd/protocol/weft.h"

#include <rdma/fi_errno.h>

#include <algorithm>

namespace weft::rxd {
namespace {

constexpr uint32_t kDoubtTimeouts = 3;  // in a row
constexpr uint32_t kGoneAfter = 5;  // timeouts, at least: this process may not have been running

// Bytes of the first datagrams.
uint32_t first_datagram(Core &core, const wire::Part &ours, const wire::Part &theirs) {
  return uint32_t(
      std::min<size_t>({core.settings().first_datagram, ours.datagram, theirs.datagram}));
}

}  // namespace

uint32_t WeftConversation::first_limit(Core &core) {
  return std::clamp<uint32_t>(
      uint32_t(core.carrier().receive_window() / core.settings().first_datagram), kMinShare,
      kWindow);
}

WeftConversation::WeftConversation(Core &core, Peer &peer, const wire::Part &ours,
                                   const wire::Part &theirs)
    : theirs_(theirs),
      link_(core, peer, *core.pools_, first_datagram(core, ours, theirs), theirs.limit,
            core.has_key()),
      operations_(link_, Credit(theirs.messages, theirs.credit)),
      answers_(link_),
      accesses_(link_, answers_),
      arrivals_(link_, answers_, *this, uint32_t(core.settings().first_datagram)),
      sender_(link_, arrivals_.grants(), answers_, ours, theirs),
      outbox_(link_, operations_, sender_,
              DatagramSize(uint32_t(core.settings().first_datagram),
                           std::min(ours.datagram, theirs.datagram))) {
  if (core.carrier().is_local(peer.address)) link_.channel.set_direct();
  link_.channel.set_share(first_limit(core));
}

WeftConversation::~WeftConversation() {
  if (!ended_) end(FI_ECANCELED, nullptr);
}

bool WeftConversation::busy() const {
  return !operations_.empty() || outbox_.pending() != nullptr || !answers_.empty() ||
         link_.channel.outstanding() != 0 || !arrivals_.empty() || accesses_.waits() ||
         !order_.empty();
}

// ---- timers ----

// Whether to ask the peer if it is alive: we wait for it, and it owes us no acknowledgement that
// would show it.
bool WeftConversation::waits() const {
  return link_.channel.outstanding() == 0 &&
         (operations_.waits() || arrivals_.waits() || accesses_.waits());
}

// When a peer that owes acknowledgements, and says nothing, is gone; 0: never.
uint64_t WeftConversation::silent_until() const {
  const uint64_t silent = link_.channel.silent_since();
  return silent != 0 && link_.channel.timeouts() >= kGoneAfter
             ? silent + link_.core.settings().peer_timeout_ns
             : 0;
}

void WeftConversation::arm(uint64_t now) {
  uint64_t at = link_.channel.deadline();
  for (const uint64_t other : {silent_until(), outbox_.pings().deadline(now, waits()),
                               outbox_.size().deadline(), closing_.deadline()})
    if (other != 0 && (at == 0 || other < at)) at = other;
  link_.core.set_deadline(link_.peer, at);
}

void WeftConversation::on_deadline(uint64_t now) {
  Core &core = link_.core;
  if (const uint64_t until = silent_until(); until != 0 && now >= until) {
    core.counters().timed_out.add_alone();
    core.upper().warn_of_peer("a peer has not answered for peer_timeout_ms: its operations fail");
    return core.lose(link_.peer, FI_ETIMEDOUT, false);
  }
  if (link_.channel.on_deadline(now)) on_timeout();
  outbox_.pings().on_deadline(now, waits());
  if (const uint32_t bytes = outbox_.size().due(now); bytes != 0) sender_.probe(bytes, now);
  switch (closing_.on_deadline(now, close_pause())) {
    case Closing::Next::kNothing:
      break;
    case Closing::Next::kAgain:
      sender_.close(wire::PacketKind::kClose, now);
      break;
    case Closing::Next::kUnanswered:
      core.count_unanswered();
      break;
  }
  pump();
}

void WeftConversation::on_timeout() {
  link_.core.counters().timeouts.add_alone();
  if (link_.channel.timeouts() < kDoubtTimeouts) return;
  link_.core.doubt(link_.peer);
  // The path may not take large datagrams any more. The next large operation probes again.
  if (!link_.channel.direct() && outbox_.size().fall_back())
    link_.channel.set_datagram(outbox_.size().bytes());
}

// ---- the end ----

void WeftConversation::part() {
  closing_.begin();
  pump();
}

// Nothing of it may be under way.
void WeftConversation::end_copies() {
  while (!link_.landings.empty()) end_landings();
  operations_.end_copies();
  answers_.end_copies();
  if (const OutPacket *p = outbox_.pending(); p != nullptr && p->answer != nullptr)
    link_.copies()->end(p->answer->ahead);
  accesses_.end_copies();
}

void WeftConversation::end(int err, Queue *unsent) {
  ended_ = true;
  if (link_.copies() != nullptr) end_copies();
  const auto free_packet = [this](void *packet) {
    auto &p = *static_cast<OutPacket *>(packet);
    answers_.release(p);
    outbox_.free(p);
  };
  link_.channel.abandon(free_packet);
  if (OutPacket *p = outbox_.pending()) {
    outbox_.left();
    free_packet(p);
  }
  order_.clear(link_);
  answers_.clear();
  accesses_.clear();
  arrivals_.end(err);
  operations_.end(err, unsent);
  closing_.finish();
}

}  // namespace weft::rxd
