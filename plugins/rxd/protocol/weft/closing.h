// SPDX-License-Identifier: BSD-2-Clause
// Closing: the end of a connection by fi_close: close is sent when nothing is outstanding, and
// repeated until the peer has answered, a few times (docs/rxd-protocol.md, section 9).
//
// Example:
//    void send_close();
//    inline void go_on(Closing &closing, bool all_has_arrived, uint64_t now) {
//      if (!closing.is_due() || !all_has_arrived) return;
//      send_close();
//      closing.sent(now, Closing::pause(/*round_trip=*/200'000), /*waits=*/true);
//    }
//    inline void on_timer(Closing &closing, uint64_t now) {
//      if (closing.on_deadline(now, Closing::pause(200'000)) == Closing::Next::kAgain) send_close();
//    }
//
// Times in ns. Not for a connection that is lost.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_CLOSING_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_CLOSING_H

#include <algorithm>
#include <cstdint>

#include "plugins/rxd/protocol/core.h"

namespace weft::rxd {

class Closing {
 public:
  // How long to wait for the answer, by the smoothed round trip.
  static uint64_t pause(uint64_t round_trip) {
    return std::clamp(4 * round_trip, kShortest, kLongest);
  }

  void begin() { begun_ = true; }
  bool has_begun() const { return begun_; }
  // Close is to be sent once nothing is outstanding.
  bool is_due() const { return begun_ && at_ == 0 && !over_; }
  // It has left. Without `waits` that is the end.
  void sent(uint64_t now, uint64_t pause, bool waits) {
    if (waits) {
      at_ = now + pause;
    } else {
      over_ = true;
    }
  }
  uint64_t deadline() const { return at_; }  // of on_deadline(); 0: never
  enum class Next : uint8_t {
    kNothing,
    kAgain,       // close is to be sent again
    kUnanswered,  // the peer does not answer: it is over
  };
  Next on_deadline(uint64_t now, uint64_t pause) {
    if (at_ == 0 || now < at_) return Next::kNothing;
    if (++tries_ < kTries) {
      at_ = now + pause;
      return Next::kAgain;
    }
    finish();
    return Next::kUnanswered;
  }
  // The peer says that it has closed.
  void answered() {
    if (begun_) finish();
  }
  void finish() {
    over_ = true;
    at_ = 0;
  }
  bool is_over() const { return over_; }

 private:
  static constexpr uint8_t kTries = 3;
  static constexpr uint64_t kShortest = kMillisecond, kLongest = 20 * kMillisecond;
  static_assert(kTries * kLongest <= kPartingNs);

  uint64_t at_ = 0;
  uint8_t tries_ = 0;
  bool begun_ = false, over_ = false;
};

}  // namespace weft::rxd

#endif
