// SPDX-License-Identifier: BSD-2-Clause
// PeerLink: the rules by which two FI_EP_RDM endpoints get exactly one stream between them, even if
// both connect at once, one restarts, or a connection fails. A state machine without sockets or
// clock, one per peer.
//
// Example:
//    struct Caller {
//      void connect();                // begins an attempt, or a probe
//      void become_probe();           // the attempt, if there is one
//      void wait_until(uint64_t ns);  // then calls on_retry()
//      void fail_operations();        // those that wait for a stream
//      void answer(bool accept);      // the peer's request
//
//      void follow(PeerLink::Next next) {
//        if (next == PeerLink::Next::kConnect) connect();
//        if (next == PeerLink::Next::kWait) wait_until(link.retry_at());
//        if (next == PeerLink::Next::kFail) fail_operations();
//      }
//      void send(uint64_t now) { follow(link.want(now, /*timeout=*/0)); }
//      void on_reject(uint64_t now) {
//        follow(link.on_refused(now, PeerLink::Refusal::kRejected, /*wanted=*/true));
//      }
//      void on_request(std::strong_ordering peer, uint32_t process) {
//        const PeerLink::Decision decision = link.on_request(peer, process);
//        if (decision.drop_attempt) become_probe();  // see below
//        if (decision.challenge) connect();          // a probe; if it is accepted: on_accepted()
//        answer(decision.accept);
//      }
//      PeerLink link;
//    };
//
// An attempt is a connection that we asked for, without an answer yet. A stream is a connection
// that one side accepted. Both sides apply the same rules to the same two addresses. So if two
// requests cross, the same one loses: its receiver rejects it, and its sender drops it. Not for
// operations, nor for the bytes to send (rdm_message.h).
//
// Any process on the peer's host can name the peer's port. While there is a stream, a request of
// another process comes from a restarted peer or from an impostor, and is rejected:
// - If the stream turns out to be over, the caller calls on_lost() and then on_request() again.
// - Otherwise the caller sends a probe, a request of ours, to the peer's address. A peer that has
//   the stream rejects it. A peer that was restarted, or whose place an impostor has, accepts it,
//   and the accepted probe replaces the stream.
// - A side whose request was rejected asks again, but not before a request of the other side can
//   have arrived: while both ask, one of them rejects.
// - An attempt that lost to a request goes on as a probe. If it was answered before the request,
//   that answer is read first: the process that accepted it may have died before the requester
//   started.
// - If the stream ends during a probe, the probe goes on as the attempt: the peer may have accepted
//   it already.
#ifndef WEFT_PLUGINS_TCP_WIRE_PEER_LINK_H
#define WEFT_PLUGINS_TCP_WIRE_PEER_LINK_H

#include <compare>
#include <cstdint>

namespace weft::tcp {

class PeerLink {
 public:
  enum class State : uint8_t {
    kIdle,
    kAttempt,  // our request has no answer yet
    kBackoff,  // it was refused for a passing reason: again at retry_at()
    kUp,       // there is a stream
  };
  enum class Next : uint8_t {
    kNothing,
    kConnect,  // begin an attempt
    kWait,     // call on_retry() at retry_at()
    kFail,     // no stream: the waiting operations fail
  };
  enum class Refusal : uint8_t {
    kRejected,     // by a reject: the peer thinks that there is a stream, or will connect itself
    kHungUp,       // the connection ended without an answer: the peer may be overloaded
    kUnreachable,  // no TCP connection, a timeout, or an invalid answer
  };
  struct Decision {
    bool accept = false;        // else: reject
    bool drop_attempt = false;  // the peer's attempt wins
    bool challenge = false;     // another process claims to be the peer: probe
    bool second = false;        // a connection to ourselves: accept, and the attempt goes on
  };

  State state() const { return state_; }
  uint64_t retry_at() const { return retry_at_; }
  uint64_t deadline() const { return deadline_; }  // of all attempts together; 0: none
  uint32_t process() const { return process_; }

  // A stream is needed. `timeout` limits all attempts together; 0: no limit.
  Next want(uint64_t now, uint64_t timeout);
  // A peer's request arrived. `peer` is its address compared with ours.
  Decision on_request(std::strong_ordering peer, uint32_t process);
  // Our attempt was accepted.
  void on_accepted(uint32_t process);
  // Our attempt ended otherwise. `wanted`: operations wait for a stream.
  Next on_refused(uint64_t now, Refusal refusal, bool wanted);
  Next on_retry(uint64_t now, bool wanted);
  // The stream is gone, for any reason.
  void on_lost();

 private:
  static constexpr uint64_t kFirstPauseNs = 1'000'000, kLongestPauseNs = 100'000'000;
  static constexpr uint64_t kLongestTripNs = 1'000'000'000;
  static constexpr unsigned kHangUps = 12;  // tolerated if there is no time limit

  Next begin(uint64_t now);

  State state_ = State::kIdle;
  uint8_t pauses_ = 0, hang_ups_ = 0;
  uint32_t process_ = 0;
  uint64_t begun_at_ = 0, retry_at_ = 0, deadline_ = 0;
};

}  // namespace weft::tcp

#endif  // WEFT_PLUGINS_TCP_WIRE_PEER_LINK_H
