// SPDX-License-Identifier: BSD-2-Clause
// Pings: when to ask a peer that says nothing: while we wait for it and it owes no acknowledgement
// that would show that it is alive, and while an operation waits for credit
// (docs/rxd-protocol.md, sections 7 and 9).
//
// Example:
//    // True: a ping is to be put into a packet; then call pings.sent().
//    inline bool on_timer(Pings &pings, uint64_t now, bool waits) {
//      pings.on_deadline(now, waits);
//      return pings.wanted();
//    }
//
// Times in ns. Not for whether a silent peer is gone: Channel::silent_since().
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_PINGS_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_PINGS_H

#include <algorithm>
#include <cstdint>
#include <utility>

namespace weft::rxd {

class Pings {
 public:
  explicit Pings(uint64_t now) : heard_at_(now) {}

  bool wanted() const { return wanted_; }
  void sent() { wanted_ = false; }
  void heard(uint64_t now) { heard_at_ = now; }  // something of the peer

  // An operation waits for credit. True: it begins to.
  bool starve() { return !std::exchange(starved_, true); }
  // None does.
  void feed() {
    starved_ = false;
    ask_at_ = 0;
    asked_ = 0;
  }
  // None is known to, because a packet is full.
  void pass() { starved_ = false; }

  // When to call on_deadline(); 0: never. `waits`: we wait for the peer, and it owes nothing.
  uint64_t deadline(uint64_t now, bool waits) {
    uint64_t at = waits ? heard_at_ + kPause : 0;
    if (!starved_) return at;
    if (ask_at_ == 0) ask_at_ = now + (kFirstPause << asked_);
    return at == 0 ? ask_at_ : std::min(at, ask_at_);
  }
  void on_deadline(uint64_t now, bool waits) {
    if (waits && now >= heard_at_ + kPause) {
      wanted_ = true;
      heard_at_ = now;
    }
    if (starved_ && ask_at_ != 0 && now >= ask_at_) {
      wanted_ = true;
      if (asked_ < kLast) ++asked_;
      ask_at_ = now + (kFirstPause << asked_);
    }
  }

 private:
  static constexpr uint64_t kPause = 1'000'000'000;  // of silence
  static constexpr uint64_t kFirstPause = 1'000'000;
  static constexpr uint8_t kLast = 10;  // 2^10 ms between questions for credit

  uint64_t heard_at_;
  uint64_t ask_at_ = 0;  // for credit
  uint8_t asked_ = 0;    // times
  bool starved_ = false;
  bool wanted_ = false;
};

}  // namespace weft::rxd

#endif
