// SPDX-License-Identifier: BSD-2-Clause
// A PeerLink that any sequence of events drives. Input: a byte for its rules, then one per event.
#include <weft/sdk/peer/link.h>

#include <algorithm>
#include <utility>

#include "tests/fuzz/check.h"

using weft::sdk::PeerLink;
using State = PeerLink::State;
using Next = PeerLink::Next;

namespace {

// What the caller has, by what it was told to do.
struct Caller {
  bool attempt = false, probe = false, link = false;

  void follow(Next next) {
    if (next == Next::kConnect) attempt = true;
    if (next == Next::kProbe) probe = true;
    if (next == Next::kResume || next == Next::kReplace) {
      FUZZ_CHECK(probe);
      probe = false;
      (next == Next::kResume ? attempt : link) = true;
    }
  }
  void check(const PeerLink &peer) const {
    const State state = peer.state();
    FUZZ_CHECK(link == peer.is_up());
    FUZZ_CHECK(attempt == (state == State::kAttempt || state == State::kInsist));
    FUZZ_CHECK(probe == (state == State::kAsking || state == State::kDoubt));
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  PeerLink peer(PeerLink::Rules{.doubt_ns = (data[0] & 1) != 0 ? 50'000'000u : 0u});
  Caller caller;
  uint64_t now = 0;
  for (size_t i = 1; i < size; ++i) {
    const State before = peer.state();
    const uint8_t argument = data[i] >> 4;
    switch (data[i] & 15) {
      case 0: {
        const Next next = peer.want(now, 50'000'000);
        FUZZ_CHECK((next == Next::kConnect) == (before == State::kIdle));
        caller.follow(next);
        break;
      }
      case 1:
        caller.follow(peer.ask(now, 50'000'000));
        break;
      case 2:
      case 3: {
        const auto order = argument % 3 == 0   ? std::strong_ordering::less
                           : argument % 3 == 1 ? std::strong_ordering::equal
                                               : std::strong_ordering::greater;
        const auto proof = argument < 12 ? PeerLink::Proof::kNone : PeerLink::Proof::kAddress;
        const auto decision = peer.on_request(order, argument, now, proof);
        FUZZ_CHECK(!decision.to_probe || before == State::kAttempt);
        FUZZ_CHECK(!decision.claim || (before >= State::kUp && !decision.accept));
        FUZZ_CHECK(decision.replaces == (decision.accept && before >= State::kUp));
        FUZZ_CHECK(!decision.accept || decision.second || peer.is_up());
        if (decision.to_probe) caller.probe = std::exchange(caller.attempt, false);
        if (decision.accept && !decision.second) caller.link = true;
        if (decision.accept && proof == PeerLink::Proof::kAddress)
          caller.attempt = caller.probe = false;
        caller.follow(decision.next);
        break;
      }
      case 4:
        caller.follow(peer.suspect(now));
        break;
      case 5:
        peer.on_heard();
        break;
      case 6: {
        const Next next = peer.on_accepted(now, argument);
        if (std::exchange(caller.attempt, false)) caller.link = true;
        caller.follow(next);
        break;
      }
      case 7:
      case 8:
      case 9: {
        const auto refusal = static_cast<PeerLink::Refusal>((data[i] & 15) - 7);
        const Next next = peer.on_refused(now, refusal, argument != 0);
        caller.attempt = false;
        FUZZ_CHECK(next != Next::kWait ||
                   (peer.state() == State::kBackoff && peer.wake_at() > now));
        FUZZ_CHECK(next != Next::kFail || peer.state() == State::kIdle);
        caller.follow(next);
        break;
      }
      case 10:
        peer.on_probe_ended();
        caller.probe = false;
        break;
      case 11:
        now = std::max(now, peer.wake_at());
        caller.follow(peer.on_time(now, argument != 0));
        break;
      case 12:
        now += uint64_t{argument} * 1'000'000;
        break;
      default: {
        const Next next = peer.on_lost(now, argument != 0, 50'000'000);
        FUZZ_CHECK(peer.is_up() == (next == Next::kReplace));
        caller.link = false;
        caller.follow(next);
      }
    }
    caller.check(peer);
  }
  return 0;
}
