// SPDX-License-Identifier: BSD-2-Clause
// Handshake: one handshake with a peer, from our side: which packet leaves when, until the peer
// answers or nobody does. A state machine without a carrier or a clock. Whether there is a
// connection, and which one counts, is PeerLink's (weft/sdk/peer/link.h).
//
// Example:
//    // What must leave: at the beginning an RTS, then what on_time() says.
//    inline void on_time(Handshake &handshake, uint64_t now, uint64_t patience) {
//      switch (handshake.on_time(now, patience, /*asks=*/false)) {
//        case Handshake::Step::kRts:      // with handshake.question()
//        case Handshake::Step::kConnect:  // with handshake.token()
//          break;
//        case Handshake::Step::kNobody:
//          return;
//      }
//      // Again at handshake.next_at().
//    }
//
// The question is a random number that is in our RTS: a packet with it comes from a process that
// receives at the peer's address now. The token of a challenge goes into our connect, and proves
// the same of us. Both packets are repeated after pauses that grow (docs/rxd-protocol.md, section
// 3). Not for what we answer to the handshakes of others: that needs no state.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_HANDSHAKE_H
#define WEFT_PLUGINS_RXD_PROTOCOL_HANDSHAKE_H

#include <algorithm>
#include <array>
#include <cstdint>

#include "plugins/rxd/wire/packet.h"

namespace weft::rxd {

class Handshake {
 public:
  enum class Step : uint8_t { kRts, kConnect, kNobody };
  static constexpr uint64_t kShortestPauseNs = 1'000'000;
  static constexpr uint64_t kLongestPauseNs = 200'000'000;
  static constexpr uint32_t kMinAttempts =
      5;                                    // before nobody is there: we may not have been running
  static constexpr uint32_t kNewToken = 4;  // every fourth connect is an RTS, for a new token
  static constexpr uint8_t kUndelivered = 2;

  // Before the first handshake, so that an attacker that guesses the peer's number has no valid
  // answer.
  void set_question(uint32_t question) { question_ = question; }
  // An RTS with this question leaves now.
  void begin(uint32_t question, uint64_t now) {
    *this = {};
    question_ = question;
    begun_at_ = now;
    next_at_ = now + pause();
  }
  // It is over, or needs no more packets.
  void end() { next_at_ = 0; }
  // The question was answered by a challenge; a connect leaves now.
  void on_challenge(wire::Token token) {
    std::copy(token.begin(), token.end(), token_.begin());
    has_token_ = true;
    undelivered_ = 0;
  }
  // What leaves at next_at(). `patience`: of the whole handshake. `asks`: only a challenge will do.
  Step on_time(uint64_t now, uint64_t patience, bool asks);
  // The network reports that it could not deliver an RTS. True: nobody is there. The first report
  // may be late, and the peer may have started since.
  bool on_undelivered() { return ++undelivered_ >= kUndelivered; }

  uint32_t question() const { return question_; }
  bool has_token() const { return has_token_; }
  wire::Token token() const { return wire::Token(token_); }
  uint64_t next_at() const { return next_at_; }  // 0: never

 private:
  uint64_t pause() const {
    return std::min(kShortestPauseNs << std::min(attempts_, 20U), kLongestPauseNs);
  }

  uint32_t question_ = 0;
  uint32_t attempts_ = 0;  // since the first
  uint64_t begun_at_ = 0, next_at_ = 0;
  bool has_token_ = false;
  uint8_t undelivered_ = 0;
  std::array<uint8_t, wire::kTokenSize> token_{};
};

inline Handshake::Step Handshake::on_time(uint64_t now, uint64_t patience, bool asks) {
  if (now - begun_at_ >= patience && attempts_ >= kMinAttempts) {
    next_at_ = 0;
    return Step::kNobody;
  }
  ++attempts_;
  next_at_ = now + pause();
  return has_token_ && !asks && attempts_ % kNewToken != 0 ? Step::kConnect : Step::kRts;
}

}  // namespace weft::rxd

#endif
