// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/congestion.h"

#include <cmath>

namespace weft::rxd {
namespace {

constexpr uint64_t kFirstWindow = 64 << 10;
constexpr uint64_t kFirstDatagrams = 10;

// The delay that is allowed beyond the path's own. Small windows may have more (Swift's flow
// scaling), so that flows that measure different path delays still get similar shares.
constexpr double kAllowance = 200'000;  // ns
constexpr double kLargeWindow = 64;     // datagrams: such a window gets only kAllowance
constexpr double kMostScale = 4;

constexpr uint32_t kEnoughSamples = 8;  // to stop doubling within a round
constexpr uint64_t kNoise = 25'000;     // ns of delay that do not count as a queue
constexpr double kDelayFactor = 0.8;
constexpr double kLeastFactor = 0.5;
constexpr double kOvershot = 0.5;
constexpr uint16_t kRoundsToSpeedUp = 16;
constexpr uint64_t kMostSteps = 8;
constexpr double kDrainFactor = 0.75;
constexpr uint32_t kMemory = 512;  // packets over which the loss rate is measured

// How much loss is too much, and by how many deviations it must exceed the expected value.
struct Tolerance {
  double rate;
  double deviations;
  double factor;  // what remains of the window
};
constexpr Tolerance kQueued{0.01, 1, 0.7};       // there is a queue, which probably overflows
constexpr Tolerance kUnqueued{0.02, 2.5, 0.85};  // the link is bad, or its queue very short

bool too_many(uint32_t lost, uint32_t n, const Tolerance &tolerance) {
  const double expected = tolerance.rate * n;
  return lost >= 3 && lost > expected + tolerance.deviations * (1 + std::sqrt(expected));
}

}  // namespace

void RoundTrip::sample(uint64_t rtt, uint64_t now) {
  rtt = std::max<uint64_t>(rtt, 1);
  if (smoothed_ == 0) {
    smoothed_ = rtt;
    variation_ = rtt / 2;
    half_ends_ = now + kHalf;
  } else {
    const uint64_t error = smoothed_ > rtt ? smoothed_ - rtt : rtt - smoothed_;
    variation_ = (3 * variation_ + error) / 4;
    smoothed_ = std::max<uint64_t>((7 * smoothed_ + rtt) / 8, 1);
  }
  if (now >= half_ends_) {
    least_before_ = least_now_;
    least_now_ = rtt;
    half_ends_ = now + kHalf;
  }
  least_now_ = std::min(least_now_, rtt);
}

Congestion::Congestion(uint32_t datagram)
    : window_(std::max(kFirstWindow, kFirstDatagrams * datagram)), datagram_(datagram) {}

void Congestion::set_datagram(uint32_t bytes) {
  datagram_ = bytes;
  window_ = std::clamp(window_, floor(), kMaxWindow);
}

void Congestion::set_direct() {
  direct_ = true;
  window_ = kMaxWindow;
}

uint64_t Congestion::target(const RoundTrip &trip) const {
  const double scale =
      std::sqrt(kLargeWindow * double(datagram_) / static_cast<double>(std::max(window_, floor())));
  const auto allowance = static_cast<uint64_t>(kAllowance * std::clamp(scale, 1.0, kMostScale));
  return trip.least() + std::max(allowance, trip.least() / 2);
}

void Congestion::shrink(double factor) {
  window_ = std::max(static_cast<uint64_t>(static_cast<double>(window_) * factor), floor());
  growth_ = 0;
  above_ = below_ = 0;
}

void Congestion::drain(const RoundTrip &trip) {
  const double empty =
      kDrainFactor * static_cast<double>(trip.least()) / static_cast<double>(delay_);
  drain_window_ = std::max(static_cast<uint64_t>(static_cast<double>(window_) * empty), floor());
  drain_rounds_ = 1;
}

void Congestion::set_pace(const RoundTrip &trip) {
  if (!trip.known() || direct_) return;
  // 65536 ns·bytes over 1.25 or 2 windows.
  const uint64_t windows = doubles_ ? 8 * window() : 5 * window();
  interval_ = (trip.smoothed() << 18) / windows;
  slack_ = interval_ * std::max<uint64_t>(kBurst, floor()) >> 16;
}

void Congestion::on_lost(uint32_t packets) {
  lost_ += packets;
  if (!doubles_ || direct_ || deaf_rounds_ != 0) return;
  if (too_many(lost_, acknowledged_ + lost_, kUnqueued)) {
    doubles_ = false;
    overshot_ = true;
  }
}

void Congestion::on_acknowledged(uint64_t bytes, uint32_t packets, uint64_t delay,
                                 const RoundTrip &trip) {
  acknowledged_ += packets;
  if (delay != 0 && !direct_) {
    delay_ = std::min(delay_, delay);
    ++samples_;
  }
  if (doubles_ && samples_ >= kEnoughSamples && delay_ > target(trip)) doubles_ = false;
  // A window that was not used up is no reason for a larger one.
  if ((limited_ || was_limited_) && drain_rounds_ == 0) {
    if (doubles_) {
      window_ = std::min(window_ + bytes, kMaxWindow);
    } else if (above_ == 0) {
      growth_ += bytes;
      if (growth_ >= window_) {
        growth_ -= window_;
        const uint64_t steps =
            below_ < kRoundsToSpeedUp
                ? 1
                : std::min<uint64_t>(1 + (below_ - kRoundsToSpeedUp) / 8, kMostSteps);
        window_ = std::min(window_ + steps * datagram_, kMaxWindow);
      }
    }
  }
  set_pace(trip);
}

void Congestion::on_round(const RoundTrip &trip) {
  if (drain_rounds_ != 0) --drain_rounds_;
  const bool queued = samples_ != 0 && delay_ > trip.least() + std::max(trip.least() / 2, kNoise);
  const Tolerance &tolerance = queued ? kQueued : kUnqueued;
  bool cut = false;
  if (deaf_rounds_ != 0) {
    --deaf_rounds_;
    acknowledged_ = lost_ = 0;
  } else {
    cut = too_many(lost_, acknowledged_ + lost_, tolerance);
  }
  const uint64_t target = this->target(trip);
  if (cut) {
    cuts_ |= kForLoss;
    deaf_rounds_ = 1;
    if (queued) drain(trip);
    shrink(overshot_ ? kOvershot : tolerance.factor);
    overshot_ = false;
    doubles_ = direct_;  // to a peer of this host it grows again as quickly as possible
  } else if (samples_ != 0 && delay_ > target) {
    below_ = 0;
    doubles_ = false;
    // In one round the reader may have been busy; a real queue shows in the next round too.
    if (++above_ >= 2) {
      cuts_ |= kForDelay;
      const double excess = static_cast<double>(delay_ - target) / static_cast<double>(delay_);
      drain(trip);
      shrink(std::max(1 - kDelayFactor * excess, kLeastFactor));
    }
  } else {
    above_ = 0;
    if (limited_ && below_ < UINT16_MAX) ++below_;
  }
  delay_ = UINT64_MAX;
  samples_ = 0;
  if (cut) {
    acknowledged_ = lost_ = 0;
  } else if (acknowledged_ + lost_ >= kMemory) {
    acknowledged_ /= 2;
    lost_ /= 2;
  }
  was_limited_ = limited_;
  limited_ = false;
}

void Congestion::on_collapse() {
  cuts_ |= kCollapsed;
  window_ = floor();
  growth_ = 0;
  above_ = below_ = 0;
  drain_rounds_ = 0;
  deaf_rounds_ = 1;
  doubles_ = true;
  overshot_ = false;
}

}  // namespace weft::rxd
