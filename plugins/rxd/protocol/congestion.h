// SPDX-License-Identifier: BSD-2-Clause
// Congestion: how many bytes may be in flight to a peer, and how quickly they leave, judged by the
// delay that they cause (docs/rxd-protocol.md, section 8).
//
// Example:
//    struct Flow {
//      RoundTrip trip;
//      Congestion congestion{1472};
//      uint64_t in_flight = 0;  // bytes
//
//      bool may_send(size_t bytes, uint64_t now) {
//        if (in_flight + bytes <= congestion.window()) return congestion.pace_at() <= now;
//        congestion.on_limited();  // only a window that is used up grows
//        return false;
//      }
//      void sent(size_t bytes, uint64_t now) {
//        congestion.on_sent(bytes, now);
//        in_flight += bytes;
//      }
//      // One packet was acknowledged, `rtt` ns after it had left.
//      void acknowledged(size_t bytes, uint64_t rtt, uint64_t now, bool ends_round) {
//        in_flight -= bytes;
//        trip.sample(rtt, now);
//        congestion.on_acknowledged(bytes, 1, rtt, trip);
//        if (ends_round) congestion.on_round(trip);
//      }
//    };
//
// Arithmetic only; all times in ns. Not for finding losses or for retransmission (channel.h).
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_CONGESTION_H
#define WEFT_PLUGINS_RXD_PROTOCOL_CONGESTION_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace weft::rxd {

// The round trip of a packet and its acknowledgement: smoothed (RFC 6298), and the least one of the
// last 5 to 10 s.
class RoundTrip {
 public:
  // Half of the time for which the least round trip is remembered.
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
  static constexpr uint64_t kBurst = 64 << 10;      // bytes that leave without a pace

  explicit Congestion(uint32_t datagram);
  void set_datagram(uint32_t bytes);
  // The path has no queue but the reader's socket: delay shows only when the reader runs. The
  // window is the largest, until much is lost.
  void set_direct();
  bool direct() const { return direct_; }

  uint64_t window() const { return drain_rounds_ != 0 ? drain_window_ : window_; }
  bool doubles() const { return doubles_; }
  // When the next datagram may leave; a time in the past means now.
  uint64_t pace_at() const { return pace_at_; }

  void on_sent(size_t bytes, uint64_t now) {
    if (interval_ == 0) return;
    pace_at_ = std::max(pace_at_, now > slack_ ? now - slack_ : 0) + ((bytes * interval_) >> 16);
  }
  // The window held a packet back.
  void on_limited() { limited_ = true; }
  // `delay`: the round trip of this acknowledgement without the time for which it or its packet may
  // have waited for an end that did not look; 0: unknown.
  void on_acknowledged(uint64_t bytes, uint32_t packets, uint64_t delay, const RoundTrip &trip);
  void on_lost(uint32_t packets);
  // Packets that were declared lost have arrived late.
  void on_found(uint32_t packets) { lost_ -= std::min(lost_, packets); }
  // Once per round trip: a packet that was sent after the last call was acknowledged.
  void on_round(const RoundTrip &trip);
  // Half of the packets in flight or more are lost after a timeout.
  void on_collapse();

  // Why the window was cut since the last call, for counters: bits.
  enum Cut : uint8_t { kForLoss = 1, kForDelay = 2, kCollapsed = 4 };
  uint8_t take_cuts() { return std::exchange(cuts_, uint8_t{0}); }
  // The largest delay that is allowed with the present window.
  uint64_t target(const RoundTrip &trip) const;

 private:
  uint64_t floor() const { return 2 * uint64_t{datagram_}; }
  // Keeps the path's queue empty for a round. Only then do all flows see how short the path is, and
  // a flow that began late does not take the others' queue for a part of the path.
  void drain(const RoundTrip &trip);
  void shrink(double factor);
  void set_pace(const RoundTrip &trip);

  uint64_t window_;  // bytes
  uint64_t drain_window_ = 0;
  uint64_t pace_at_ = 0;
  uint64_t interval_ = 0;  // ns per 64 KiB; 0: no pace yet
  uint64_t slack_ = 0;     // ns that the pace may be behind
  uint64_t growth_ = 0;    // acknowledged bytes that have not made the window grow yet
  // ---- of this round ----
  uint64_t delay_ = UINT64_MAX;  // the least one
  uint32_t samples_ = 0;
  uint32_t datagram_;
  uint16_t above_ = 0, below_ = 0;        // rounds in a row above the target, and not above
  uint32_t acknowledged_ = 0, lost_ = 0;  // packets, of about the last 512
  uint8_t drain_rounds_ = 0;              // rounds for which the queue is still kept empty
  uint8_t deaf_rounds_ = 0;               // rounds whose losses happened before the window was cut
  uint8_t cuts_ = 0;
  bool direct_ = false;
  bool doubles_ = true;
  bool overshot_ = false;  // the window doubled until packets were lost
  bool limited_ = false, was_limited_ = false;
};

}  // namespace weft::rxd

#endif
