// SPDX-License-Identifier: BSD-2-Clause
// The life of a conversation between weft peers: begin, timers, probes of datagram sizes, end.
#include "plugins/rxd/protocol/weft.h"

#include <rdma/fi_errno.h>

#include <algorithm>

namespace weft::rxd {
namespace {

constexpr uint64_t kPingPause = 1000 * kMillisecond;  // of silence, before a waiting side pings
constexpr uint32_t kLastAsk = 10;                     // 2^10 ms between questions for credit
constexpr uint32_t kDoubtTimeouts = 3;                // in a row
constexpr uint32_t kGoneAfter = 5;  // timeouts, at least: this process may not have been running
constexpr uint8_t kCloseTries = 3;
constexpr uint64_t kClosePause = 20 * kMillisecond;  // at most
static_assert(kCloseTries * kClosePause <= kPartingNs);
constexpr uint64_t kProbePause = 20 * kMillisecond;
constexpr uint8_t kProbeTries = 3;
constexpr uint32_t kProbeSizes[] = {0, 8972, 4052};  // 0: the largest that both ends take
constexpr uint8_t kNoProbe = std::size(kProbeSizes);

}  // namespace

uint32_t WeftConversation::first_limit(Core &core) {
  return std::clamp<uint32_t>(
      uint32_t(core.carrier().receive_window() / core.settings().first_datagram), kMinShare,
      kWindow);
}

WeftConversation::WeftConversation(Core &core, Peer &peer, const wire::Part &ours,
                                   const wire::Part &theirs)
    : core_(core),
      peer_(peer),
      pools_(*core.pools_),
      channel_(core.pools_->sent,
               uint32_t(std::min<size_t>(
                   {core.settings().first_datagram, ours.datagram, theirs.datagram})),
               theirs.limit),
      theirs_(theirs),
      cookie_(ours.cookie + theirs.cookie),
      checksum_(((ours.flags | theirs.flags) & wire::kPartChecksum) != 0),
      authentic_(core.has_key()),
      datagram_(uint32_t(
          std::min<size_t>({core.settings().first_datagram, ours.datagram, theirs.datagram}))),
      largest_(std::min(ours.datagram, theirs.datagram)),
      seen_(uint32_t(core.settings().first_datagram)),
      may_start_(theirs.messages),
      may_send_(uint64_t{theirs.credit} << 10),
      pull_window_(kMinPullWindow) {
  if (authentic_)
    key_ =
        std::make_unique<wire::Key>(wire::connection_key(core.settings().auth_key, ours, theirs));
  if (core.carrier().is_local(peer.address)) channel_.set_direct();
  channel_.set_share(first_limit(core));
  heard_at_ = core.carrier().now_ns();
}

WeftConversation::~WeftConversation() {
  if (!ended_) end(FI_ECANCELED, nullptr);
}

void WeftConversation::heard() {
  heard_at_ = core_.carrier().now_ns();
  channel_.heard(heard_at_);
}

bool WeftConversation::busy() const {
  return first_ != nullptr || pending_ != nullptr || answers_ != nullptr || reads_ != nullptr ||
         channel_.outstanding() != 0 || messages_ != nullptr || remotes_ != nullptr ||
         kept_ != nullptr;
}

// When to ask the peer whether it is alive: we wait for it, and it owes us no acknowledgement that
// would show it. 0: never.
uint64_t WeftConversation::wait_deadline() const {
  if (channel_.outstanding() != 0) return 0;
  const bool waits =
      (first_ != nullptr && first_ != unsent_) || pulled_ != 0 || remotes_ != nullptr;
  return waits ? heard_at_ + kPingPause : 0;
}

void WeftConversation::arm(uint64_t now) {
  uint64_t at = channel_.deadline();
  const auto also = [&at](uint64_t other) {
    if (other != 0 && (at == 0 || other < at)) at = other;
  };
  if (const uint64_t silent = channel_.silent_since();
      silent != 0 && channel_.timeouts() >= kGoneAfter)
    also(silent + core_.settings().peer_timeout_ns);
  also(wait_deadline());
  if (starved_) {
    if (ask_at_ == 0) ask_at_ = now + (kMillisecond << asked_);
    also(ask_at_);
  }
  also(probe_at_);
  also(close_at_);
  core_.set_deadline(peer_, at);
}

void WeftConversation::on_deadline(uint64_t now) {
  if (const uint64_t silent = channel_.silent_since();
      silent != 0 && channel_.timeouts() >= kGoneAfter &&
      now - silent >= core_.settings().peer_timeout_ns) {
    core_.counters().timed_out.add_alone();
    core_.upper().warn_of_peer("a peer has not answered for peer_timeout_ms: its operations fail");
    return core_.lose(peer_, FI_ETIMEDOUT, false);
  }
  if (channel_.on_deadline(now)) {
    core_.counters().timeouts.add_alone();
    if (channel_.timeouts() >= kDoubtTimeouts) {
      core_.doubt(peer_);
      if (datagram_ > core_.settings().first_datagram && !channel_.direct()) {
        // The path may not take large datagrams any more. The next large operation probes again.
        datagram_ = uint32_t(core_.settings().first_datagram);
        channel_.set_datagram(datagram_);
        probe_ = 0;
      }
    }
  }
  if (const uint64_t at = wait_deadline(); at != 0 && now >= at) {
    wants_ping_ = true;
    heard_at_ = now;
  }
  if (starved_ && ask_at_ != 0 && now >= ask_at_) {
    wants_ping_ = true;
    if (asked_ < kLastAsk) ++asked_;
    ask_at_ = now + (kMillisecond << asked_);
  }
  if (probe_at_ != 0 && now >= probe_at_) send_probe(now);
  if (close_at_ != 0 && now >= close_at_) {
    if (++close_tries_ >= kCloseTries) {
      close_at_ = 0;
      parted_ = true;
      core_.count_unanswered();
    } else {
      close_at_ = now + close_pause();
      send_alone(wire::PacketKind::kClose, now);
    }
  }
  pump();
}

// Called at the end of a progress call too, if that brought a packet which must be answered at
// once: the application may stop to make progress after this completion.
void WeftConversation::on_room() {
  if (resumes_) resume();
  const uint64_t now = core_.carrier().now_ns();
  if (now < gather_until_ && channel_.owed() < Channel::Owed::kAsked && answers_ == nullptr &&
      pending_ == nullptr && !channel_.has_lost())
    return core_.want_room(peer_);
  if (leaves_with_reply() && core_.carrier().flush_later()) return core_.want_room(peer_);
  pump();
  if (channel_.owed() >= Channel::Owed::kAsked && !send_acknowledgement(now))
    core_.want_room(peer_);
}

// Whether there is nothing to send but what the peer is to be told of its messages, and the
// application is likely to reply before its next progress.
bool WeftConversation::leaves_with_reply() {
  const bool tells = answers_ != nullptr || channel_.owed() == Channel::Owed::kAsked;
  if (!tells || owed_ != 0 || channel_.owed() > Channel::Owed::kAsked) return false;
  replies_.told(core_.passes());
  return replies_.expected() && pending_ == nullptr && ready_ == nullptr && unsent_ == nullptr &&
         pulls_ == 0 && !wants_ping_ && !parting_ && !channel_.has_lost();
}

void WeftConversation::on_idle() {
  end_settled();
  pump();
  const uint64_t now = core_.carrier().now_ns();
  if ((channel_.owed() != Channel::Owed::kNothing || tell_credit_) && !send_acknowledgement(now))
    core_.want_idle(peer_);
}

// ---- the size of datagrams ----

void WeftConversation::start_probes(uint64_t now) {
  if (probe_ != 0 || probe_at_ != 0 || largest_ <= datagram_) return;
  probing_ = largest_;
  probe_tries_ = 0;
  send_probe(now);
}

void WeftConversation::send_probe(uint64_t now) {
  probe_at_ = 0;
  if (probe_ >= kNoProbe) return;
  if (probe_tries_ == kProbeTries) {
    probe_tries_ = 0;
    do {
      if (++probe_ >= kNoProbe) return;
      probing_ = kProbeSizes[probe_];
    } while (probing_ >= largest_ || probing_ <= datagram_);
  }
  ++probe_tries_;
  probe_at_ = now + kProbePause;
  const size_t size = probing_ - (authentic_ ? wire::kMacSize : 0);
  if (pools_.zeros.size() < probing_) pools_.zeros.resize(probing_);
  // All conversations share the buffer: send what is in it first.
  core_.flush();
  uint8_t *bytes = pools_.zeros.data();
  wire::Writer writer({bytes, probing_});
  writer.probe(header(wire::PacketKind::kProbe, 0, now), probing_, size);
  send_scratch(bytes, size);
  core_.flush();
}

// ---- the end ----

uint64_t WeftConversation::close_pause() const {
  return std::clamp(4 * channel_.round_trip().smoothed(), kMillisecond, kClosePause);
}

void WeftConversation::part() {
  parting_ = true;
  pump();
}

// If the packet is lost, the peer finds out by its next packet, which belongs to no connection
// here.
void WeftConversation::dismiss() {
  send_alone(wire::PacketKind::kClose, core_.carrier().now_ns());
}

void WeftConversation::end(int err, Queue *unsent) {
  ended_ = true;
  if (core_.copies() != nullptr) end_copies();
  const auto free_packet = [this](void *packet) {
    auto &p = *static_cast<OutPacket *>(packet);
    // An answer that was sent whole is on no other list.
    if (p.answer != nullptr && --p.answer->packets == 0 && p.answer->sent == p.answer->length)
      free_answer(*p.answer);
    pools_.packets.give(&p);
  };
  channel_.abandon(free_packet);
  if (pending_ != nullptr) free_packet(pending_);
  pending_ = nullptr;
  while (Kept *k = kept_) {
    kept_ = k->next;
    core_.carrier().release(*k->buffer);
    pools_.kept.give(k);
  }
  for (Answer **list : {&answers_, &reads_}) {
    while (Answer *a = *list) {
      *list = a->next;
      if (a->result != nullptr) pools_.results.give(a->result);
      pools_.answers.give(a);
    }
  }
  while (Remote *r = remotes_) {
    remotes_ = r->next;
    pools_.remotes.give(r);
  }
  while (Incoming *m = messages_) {
    messages_ = m->following;
    m->following = m->previous = nullptr;
    m->conversation = nullptr;
    const bool all = m->receive == nullptr && m->arrived == m->message.length;
    if (all) {
      core_.inbox().finish(*m, 0);
    } else {
      core_.inbox().orphan(*m, err);
    }
  }
  messages_last_ = hint_ = nullptr;
  if (pulled_ != 0) --core_.pulling_;
  pulled_ = pulls_ = 0;
  end_settled();
  TxOp *op = std::exchange(first_, nullptr);
  TxOp *const not_begun = std::exchange(unsent_, nullptr);
  last_ = ready_ = ready_last_ = nullptr;
  bool begun = true;
  while (op != nullptr) {
    if (op == not_begun) begun = false;
    TxOp *next = op->next;
    op->next = op->previous = nullptr;
    if (begun || unsent == nullptr) {
      core_.end(*op, err);
    } else {
      (unsent->last != nullptr ? unsent->last->next : unsent->first) = op;
      unsent->last = op;
    }
    op = next;
  }
  parted_ = true;
}

}  // namespace weft::rxd
