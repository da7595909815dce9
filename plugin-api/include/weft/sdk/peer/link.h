// SPDX-License-Identifier: BSD-2-Clause
// PeerLink: the rules by which two endpoints get exactly one link between them, even if both
// connect at once, one restarts, a connection fails, or another process says that it is the peer. A
// state machine without sockets or clock, one per peer. Begin here; what else is known of peers is
// in place.h (contexts of scalable endpoints) and crowd.h (what strangers may cost).
//
// Example:
//    struct Caller {
//      void connect();                // begins an attempt
//      void probe();                  // begins a probe; where it can't: link.on_probe_ended()
//      void attempt_is_probe();       // the attempt goes on as the probe
//      void probe_is_attempt();       // and the other way
//      void probe_is_link();          // the old link is over
//      void wait_until(uint64_t ns);  // then follow(link.on_time(now, wanted))
//      void fail_operations();        // those that wait for a link
//      void answer(bool accept);      // the peer's request
//
//      void follow(PeerLink::Next next) {
//        switch (next) {
//          case PeerLink::Next::kNothing: return;
//          case PeerLink::Next::kConnect: return connect();
//          case PeerLink::Next::kProbe: return probe();
//          case PeerLink::Next::kWait: return wait_until(link.wake_at());
//          case PeerLink::Next::kFail: return fail_operations();
//          case PeerLink::Next::kResume: return probe_is_attempt();
//          case PeerLink::Next::kReplace: return probe_is_link();
//        }
//      }
//      void send(uint64_t now) { follow(link.want(now, /*timeout=*/0)); }
//      void on_reject(uint64_t now) {
//        follow(link.on_refused(now, PeerLink::Refusal::kRejected, /*wanted=*/true));
//      }
//      void on_request(std::strong_ordering peer, uint64_t process, uint64_t now) {
//        const PeerLink::Decision decision = link.on_request(peer, process, now);
//        if (decision.to_probe) attempt_is_probe();
//        answer(decision.accept);
//        follow(decision.next);
//      }
//      PeerLink link;
//    };
//
// An attempt is a connection that we asked for, without an answer yet. A link is a connection that
// one side accepted. Both sides apply the same rules to the same two addresses. So if two requests
// cross, the same one loses: its receiver rejects it, and its sender drops it. Not for operations,
// nor for the bytes to send.
//
// Any process on the peer's host can name the peer's port. While there is a link, a request of
// another process comes from a restarted peer or from an impostor, and is rejected: it is a claim.
// - If the caller finds that the link is over, it calls on_lost() before on_request().
// - Otherwise a probe, a request of ours, asks the process at the peer's address. A peer that has
//   the link rejects it. A peer that was restarted, or whose place an impostor has, accepts it, and
//   the accepted probe replaces the link. Claims that are repeated soon bring no further probe.
// - A side whose request was rejected asks again, but not before a request of the other side can
//   have arrived: while both ask, one of them rejects.
// - An attempt that lost to a request goes on as a probe. If it is accepted, either the process at
//   the peer's address did, and the requester lied. Or an earlier process accepted it and died, and
//   the requester is the peer. A caller that reads answers in the order in which they came reads
//   that one first, and has no doubt. Others have: the accepted probe replaces the link only when
//   its end has not come for Rules::doubt_ns, and meanwhile nothing may be sent on either.
// - If the link ends during a probe, the probe goes on as the attempt: the peer may have accepted
//   it already.
// A request with a proof needs none of this: its sender has answered a question that was sent to
// the peer's address.
#ifndef WEFT_SDK_PEER_LINK_H
#define WEFT_SDK_PEER_LINK_H

#include <compare>
#include <cstdint>

namespace weft::sdk {

class PeerLink {
 public:
  enum class State : uint8_t {
    kIdle,     // no link
    kAttempt,  // our request has no answer yet
    kInsist,   // the same, but the peer may have accepted it: no other request counts
    kBackoff,  // it was refused for a passing reason: again at wake_at()
    kUp,       // there is a link
    kAsking,   // and a probe
    kDoubt,    // and the probe is accepted, or something came on it: nothing may be sent
  };
  enum class Next : uint8_t {
    kNothing,
    kConnect,  // begin an attempt
    kProbe,    // begin a probe
    kWait,     // call on_time() at wake_at()
    kFail,     // no link: the waiting operations fail
    kResume,   // the probe is the attempt from now on
    kReplace,  // the probe is the link from now on
  };
  enum class Refusal : uint8_t {
    kRejected,     // by a reject: the peer thinks that there is a link, or will connect itself
    kHungUp,       // the connection ended without an answer: the peer may be overloaded
    kUnreachable,  // no connection, a timeout, or an invalid answer
  };
  enum class Proof : uint8_t {
    kNone,     // the requester has named the peer's address
    kAddress,  // it receives there
  };
  struct Rules {
    uint64_t doubt_ns = 0;
    // The process that has the link asks for one, and still does so after this time: it has none.
    uint64_t again_ns = 1'000'000'000;
    uint64_t longest_pause_ns = 100'000'000;
  };
  struct Decision {
    bool accept = false;    // else: reject
    bool to_probe = false;  // the peer's request wins: our attempt is the probe from now on
    bool second = false;    // a connection to ourselves: accept, and the attempt goes on
    bool claim = false;     // another process says that it is the peer
    bool replaces = false;  // accept, and the link that there was is over
    Next next = Next::kNothing;
  };

  PeerLink() = default;
  explicit PeerLink(const Rules &rules) : rules_(rules) {}

  State state() const { return state_; }
  bool is_up() const { return state_ >= State::kUp; }
  uint64_t wake_at() const { return wake_at_; }
  uint64_t deadline() const { return deadline_; }  // of all attempts together; 0: none
  uint64_t process() const { return process_; }    // at the other end of the link

  // A link is needed. `timeout` limits all attempts together; 0: no limit.
  Next want(uint64_t now, uint64_t timeout);
  // An answer of the process at the peer's address is needed: by an attempt, or by a probe.
  Next ask(uint64_t now, uint64_t timeout);
  // A peer's request arrived. `peer` is its address compared with ours.
  Decision on_request(std::strong_ordering peer, uint64_t process, uint64_t now,
                      Proof proof = Proof::kNone);
  // The link may have ended without news of it: what a claim would do.
  Next suspect(uint64_t now);
  // Something came on our attempt, or on the probe, before the news that it is accepted.
  void on_heard();
  // Our attempt, or the probe, was accepted.
  Next on_accepted(uint64_t now, uint64_t process);
  // Our attempt ended otherwise. `wanted`: operations wait for a link, or an answer does.
  Next on_refused(uint64_t now, Refusal refusal, bool wanted);
  // The probe ended otherwise, also after it was accepted. So the link is the peer's.
  void on_probe_ended();
  Next on_time(uint64_t now, bool wanted);
  // The link is gone, for any reason.
  Next on_lost(uint64_t now, bool wanted, uint64_t timeout);

 private:
  static constexpr uint64_t kFirstPauseNs = 1'000'000;
  static constexpr uint64_t kLongestTripNs = 1'000'000'000;
  static constexpr unsigned kHangUps = 12;  // tolerated if there is no time limit

  static constexpr uint8_t kMostCounted = 16;

  Next begin(uint64_t now);
  Next claimed(uint64_t now);
  bool asks_again(uint64_t now);
  Next up(uint64_t process, Next next = Next::kNothing);
  uint64_t pause_after(unsigned tries) const;

  Rules rules_;
  State state_ = State::kIdle;
  bool crossed_ = false;   // kAsking, kDoubt: the probe began as an attempt
  bool accepted_ = false;  // kDoubt: the probe is accepted
  uint8_t pauses_ = 0, hang_ups_ = 0;
  uint8_t asked_ = 0;  // probes on account of claims
  uint64_t process_ = 0, next_process_ = 0;
  uint64_t begun_at_ = 0, wake_at_ = 0, deadline_ = 0;
  uint64_t may_ask_at_ = 0;
  // The process that has the link asks for one since then, and did last. 0: it does not.
  uint64_t again_since_ = 0, again_at_ = 0;
};

}  // namespace weft::sdk

#endif
