// SPDX-License-Identifier: BSD-2-Clause
#include "peer_link.h"

#include <algorithm>

namespace weft::tcp {

PeerLink::Next PeerLink::begin(uint64_t now) {
  state_ = State::kAttempt;
  begun_at_ = now;
  return Next::kConnect;
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

PeerLink::Decision PeerLink::on_request(std::strong_ordering peer, uint32_t process) {
  Decision decision;
  switch (state_) {
    case State::kAttempt:
      if (peer == std::strong_ordering::less) return decision;
      decision.accept = true;
      if (peer == std::strong_ordering::equal) {
        decision.second = true;
        return decision;
      }
      decision.drop_attempt = true;
      break;
    case State::kUp:
      // If the process is the same, the stream that we have will do. If that is about to end, we
      // will see it soon, and the peer asks again.
      decision.challenge = process != process_;
      return decision;
    default:
      decision.accept = true;
  }
  state_ = State::kUp;
  process_ = process;
  return decision;
}

void PeerLink::on_accepted(uint32_t process) {
  state_ = State::kUp;
  process_ = process;
}

PeerLink::Next PeerLink::on_refused(uint64_t now, Refusal refusal, bool wanted) {
  if (state_ != State::kAttempt) return Next::kNothing;
  state_ = State::kIdle;
  if (!wanted) return Next::kNothing;
  if (refusal == Refusal::kUnreachable) return Next::kFail;
  if (refusal == Refusal::kHungUp && deadline_ == 0 && ++hang_ups_ > kHangUps) return Next::kFail;
  uint64_t pause = std::min(kFirstPauseNs << std::min<unsigned>(pauses_, 16), kLongestPauseNs);
  if (deadline_ != 0 && now + pause >= deadline_) return Next::kFail;
  // A request that the peer sends now arrives within the time that our attempt took.
  const uint64_t trip = std::min(now - begun_at_, kLongestTripNs);
  if (refusal == Refusal::kRejected && (deadline_ == 0 || now + trip < deadline_))
    pause = std::max(pause, trip);
  if (pauses_ < 16) ++pauses_;
  retry_at_ = now + pause;
  state_ = State::kBackoff;
  return Next::kWait;
}

PeerLink::Next PeerLink::on_retry(uint64_t now, bool wanted) {
  if (state_ != State::kBackoff) return Next::kNothing;
  if (wanted) return begin(now);
  state_ = State::kIdle;
  return Next::kNothing;
}

void PeerLink::on_lost() {
  if (state_ == State::kUp) state_ = State::kIdle;
}

}  // namespace weft::tcp
