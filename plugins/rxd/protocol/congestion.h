// SPDX-License-Identifier: BSD-2-Clause
// How many bytes may be on their way to a peer, and how quickly they leave: by the delay that they
// cause (docs/rxd-protocol.md, section 8).
//
//   RoundTrip trip;
//   Congestion congestion(1472);
//   if (in_flight + size <= congestion.window() && congestion.pace_at() <= now)
//     congestion.on_sent(size, now);
//   trip.sample(rtt, now);
//   congestion.on_acknowledged(bytes, rtt, trip, now);
//   if (a_round_is_over) congestion.on_round(trip, now);
//
// Arithmetic only; all times in ns. Not for what was lost or when to repeat it (channel.h).
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_CONGESTION_H
#define WEFT_PLUGINS_RXD_PROTOCOL_CONGESTION_H

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace weft::rxd {

// The time that a packet and its acknowledgement take: smoothed (RFC 6298), and the least of late.
class RoundTrip {
 public:
  // Each of two halves of the memory of the least one.
  static constexpr uint64_t kHalf = 5'000'000'000;

  void sample(uint64_t rtt, uint64_t now);
  bool known() const { return smoothed_ != 0; }
  uint64_t smoothed() const { return smoothed_; }
  uint64_t variation() const { return variation_; }
  // 0 before the first sample.
  uint64_t least() const {
    const uint64_t least = std::min(least_now_, least_before_);
    return least == kNever ? 0 : least;
  }

 private:
  static constexpr uint64_t kNever = UINT64_MAX;
  uint64_t smoothed_ = 0, variation_ = 0;
  uint64_t least_now_ = kNever, least_before_ = kNever;
  uint64_t half_ends_ = 0;
};

class Congestion {
 public:
  static constexpr uint64_t kMaxWindow = 16 << 20;  // bytes
  static constexpr uint64_t kBurst = 64 << 10;      // bytes, that leave without a pace

  explicit Congestion(uint32_t datagram);
  void set_datagram(uint32_t bytes);
  // The path has no queue but the reader's socket: delay says when it runs, and nothing of a path.
  // The window is as large as can be, until much is lost.
  void set_direct();
  bool direct() const { return direct_; }

  uint64_t window() const { return drain_rounds_ != 0 ? drain_window_ : window_; }
  bool doubles() const { return doubles_; }
  // When the next datagram may leave; in the past: now.
  uint64_t pace_at() const { return pace_at_; }

  void on_sent(size_t bytes, uint64_t now) {
    if (interval_ == 0) return;
    pace_at_ = std::max(pace_at_, now > slack_ ? now - slack_ : 0) + ((bytes * interval_) >> 16);
  }
  // The window kept something back.
  void on_limited() { limited_ = true; }
  // `rtt`: of this acknowledgement; 0: it told none.
  void on_acknowledged(uint64_t bytes, uint32_t packets, uint64_t rtt, const RoundTrip &trip);
  void on_lost(uint32_t packets);
  // They came late, and were not lost.
  void on_found(uint32_t packets) { lost_ -= std::min(lost_, packets); }
  // A packet that was sent after the last call was acknowledged.
  void on_round(const RoundTrip &trip);
  // Most of what was on its way is lost.
  void on_collapse();
  // What delay may be, as the window is now.
  uint64_t target(const RoundTrip &trip) const;

 private:
  uint64_t floor() const { return 2 * uint64_t{datagram_}; }
  // The path is left empty for a round: only then do all flows on it see how short it is, and a
  // late one does not take the queue of the others for a part of the path.
  void drain(const RoundTrip &trip);
  void shrink(double factor);
  void set_pace(const RoundTrip &trip);

  uint64_t window_;  // bytes
  uint64_t drain_window_ = 0;
  uint64_t pace_at_ = 0;
  uint64_t interval_ = 0;  // ns per 64 KiB; 0: no pace yet
  uint64_t slack_ = 0;     // ns that the pace may be behind
  uint64_t growth_ = 0;    // bytes acknowledged that have not made the window grow yet
  // ---- of this round ----
  uint64_t delay_ = UINT64_MAX;  // the least of it
  uint32_t samples_ = 0;
  uint32_t datagram_;
  uint16_t above_ = 0, below_ = 0;        // rounds in a row above the target, and not above
  uint32_t acknowledged_ = 0, lost_ = 0;  // packets, of late
  uint8_t drain_rounds_ = 0;              // to come
  uint8_t deaf_rounds_ = 0;               // whose losses are of before the window was cut
  bool direct_ = false;
  bool doubles_ = true;
  bool overshot_ = false;  // it doubled until packets were lost
  bool limited_ = false, was_limited_ = false;
};

}  // namespace weft::rxd

#endif
