// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/peer/link.h>

#include <algorithm>
#include <utility>

namespace weft::sdk {

uint64_t PeerLink::pause_after(unsigned tries) const {
  return std::min(kFirstPauseNs << std::min<unsigned>(tries, kMostCounted),
                  rules_.longest_pause_ns);
}

PeerLink::Next PeerLink::begin(uint64_t now) {
  state_ = State::kAttempt;
  begun_at_ = now;
  return Next::kConnect;
}

PeerLink::Next PeerLink::up(uint64_t process, Next next) {
  state_ = State::kUp;
  process_ = process;
  crossed_ = accepted_ = false;
  again_since_ = 0;
  asked_ = 0;
  may_ask_at_ = 0;
  return next;
}

PeerLink::Next PeerLink::want(uint64_t now, uint64_t timeout) {
  switch (state_) {
    case State::kIdle:
      pauses_ = hang_ups_ = 0;
      deadline_ = timeout != 0 ? now + timeout : 0;
      return begin(now);
    case State::kBackoff:
      return Next::kWait;
    default:
      return Next::kNothing;
  }
}

PeerLink::Next PeerLink::ask(uint64_t now, uint64_t timeout) {
  if (state_ != State::kUp) return want(now, timeout);
  state_ = State::kAsking;
  crossed_ = false;
  return Next::kProbe;
}

// Asking costs the peer something, and claims cost their sender little. So pauses grow.
PeerLink::Next PeerLink::claimed(uint64_t now) {
  if (state_ != State::kUp || now < may_ask_at_) return Next::kNothing;
  may_ask_at_ = now + pause_after(asked_);
  if (asked_ < kMostCounted) ++asked_;
  return ask(now, 0);
}

// The process that has the link asks for one. Its request crossed ours, or is a probe; or its link
// has ended, and what it sent before that is still on its way here. But if it asks for long, the
// link may be another's that has named the peer's process. The time then begins anew, so that two
// sides cannot make each other ask for ever.
bool PeerLink::asks_again(uint64_t now) {
  // An older question was another matter.
  const bool goes_on = again_since_ != 0 && now - again_at_ <= 2 * rules_.again_ns;
  again_at_ = now;
  if (!goes_on) again_since_ = std::max<uint64_t>(now, 1);
  if (now < again_since_ + rules_.again_ns) return false;
  again_since_ = 0;
  return true;
}

PeerLink::Next PeerLink::suspect(uint64_t now) {
  return claimed(now);
}

PeerLink::Decision PeerLink::on_request(std::strong_ordering peer, uint64_t process, uint64_t now,
                                        Proof proof) {
  Decision decision;
  if (proof == Proof::kAddress) {
    decision.accept = true;
    decision.replaces = is_up();
    up(process);
    return decision;
  }
  switch (state_) {
    case State::kIdle:
    case State::kBackoff:
      decision.accept = true;
      up(process);
      return decision;
    case State::kAttempt:
      if (peer == std::strong_ordering::less) return decision;
      decision.accept = true;
      if (peer == std::strong_ordering::equal) {
        decision.second = true;
        return decision;
      }
      decision.to_probe = true;
      up(process);
      state_ = State::kAsking;
      crossed_ = true;
      return decision;
    case State::kInsist:
      return decision;
    case State::kUp:
    case State::kAsking:
    case State::kDoubt:
      decision.claim = process != process_ || asks_again(now);
      if (decision.claim) decision.next = claimed(now);
      return decision;
  }
  return decision;
}

void PeerLink::on_heard() {
  if (state_ == State::kAttempt) state_ = State::kInsist;
  if (state_ == State::kAsking) state_ = State::kDoubt;
}

PeerLink::Next PeerLink::on_accepted(uint64_t now, uint64_t process) {
  switch (state_) {
    case State::kAttempt:
    case State::kInsist:
      return up(process);
    case State::kAsking:
    case State::kDoubt:
      if (!crossed_ || rules_.doubt_ns == 0) return up(process, Next::kReplace);
      state_ = State::kDoubt;
      accepted_ = true;
      next_process_ = process;
      wake_at_ = now + rules_.doubt_ns;
      return Next::kWait;
    default:
      return Next::kNothing;
  }
}

PeerLink::Next PeerLink::on_refused(uint64_t now, Refusal refusal, bool wanted) {
  if (state_ != State::kAttempt && state_ != State::kInsist) return Next::kNothing;
  state_ = State::kIdle;
  if (!wanted) return Next::kNothing;
  if (refusal == Refusal::kUnreachable) return Next::kFail;
  if (refusal == Refusal::kHungUp && deadline_ == 0 && ++hang_ups_ > kHangUps) return Next::kFail;
  uint64_t pause = pause_after(pauses_);
  if (deadline_ != 0 && now + pause >= deadline_) return Next::kFail;
  // A request that the peer sends now arrives within the time that our attempt took.
  const uint64_t trip = std::min(now - begun_at_, kLongestTripNs);
  if (refusal == Refusal::kRejected && (deadline_ == 0 || now + trip < deadline_))
    pause = std::max(pause, trip);
  if (pauses_ < kMostCounted) ++pauses_;
  wake_at_ = now + pause;
  state_ = State::kBackoff;
  return Next::kWait;
}

void PeerLink::on_probe_ended() {
  if (state_ != State::kAsking && state_ != State::kDoubt) return;
  state_ = State::kUp;
  crossed_ = accepted_ = false;
}

PeerLink::Next PeerLink::on_time(uint64_t now, bool wanted) {
  switch (state_) {
    case State::kBackoff:
      if (now < wake_at_) return Next::kWait;
      if (wanted) return begin(now);
      state_ = State::kIdle;
      return Next::kNothing;
    case State::kDoubt:
      if (!accepted_) return Next::kNothing;
      return now < wake_at_ ? Next::kWait : up(next_process_, Next::kReplace);
    default:
      return Next::kNothing;
  }
}

PeerLink::Next PeerLink::on_lost(uint64_t now, bool wanted, uint64_t timeout) {
  switch (state_) {
    case State::kUp:
      state_ = State::kIdle;
      return wanted ? want(now, timeout) : Next::kNothing;
    case State::kDoubt:
      if (accepted_) return up(next_process_, Next::kReplace);
      [[fallthrough]];
    case State::kAsking:
      pauses_ = hang_ups_ = 0;
      deadline_ = timeout != 0 ? now + timeout : 0;
      begin(now);
      state_ = State::kInsist;
      crossed_ = false;
      return Next::kResume;
    default:
      return Next::kNothing;
  }
}

}  // namespace weft::sdk
