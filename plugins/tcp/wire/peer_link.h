// SPDX-License-Identifier: BSD-2-Clause
// PeerLink: how two FI_EP_RDM endpoints come to exactly one stream between them, whoever connects
// first, both at once, again after a restart, or in vain. A state machine without sockets or clock:
// one per peer.
//
//   if (link.want(now) == PeerLink::Next::kConnect) start_connecting();     // a send needs a
//   stream
//
//   PeerLink::Decision d = link.on_request(peer_address <=> own_address, hello.process);
//   if (d.drop_attempt) make_a_question_of(attempt);                      // see below
//   if (d.challenge) ask_the_owner_of(peer_address);                      // it answers
//   on_accepted() d.accept ? accept(stranger) : reject(stranger);
//
//   switch (link.on_refused(now, PeerLink::Refusal::kRejected)) {           // our attempt failed
//     case kWait: call on_retry() at link.retry_at();  case kFail: fail what waits for the stream;
//   }
//
// "Attempt" is a connection that we asked for and that was not answered yet; "stream" one that was
// accepted by either side. Both sides run the same rules over the same two addresses, so that of
// two requests that cross one is rejected by one side and dropped by the other. It does not say
// what to do with operations, nor which bytes to send (rdm_message.h).
//
// Anybody on the peer's host can call itself by the peer's port. Where there is a stream, a
// request of another process is a restart of the peer or an impostor, and its word does not count:
// it is rejected. If the stream is found to be over, on_lost() comes first, and the request is
// looked at again. Else a request of ours goes to the peer's address: a peer that has the stream
// rejects it; one that was restarted, or whose place an impostor has, is there to accept it, and
// then that is the stream. Whoever was rejected asks again, not before a request of the other side
// could be here: while both ask, one of them rejects. An attempt of ours that lost to a request
// goes on as such a question; what it was answered before counts first, because who accepted it may
// have died before the other one asked. If the stream ends while a question is open, the question
// goes on as the attempt: the peer may have accepted it already.
#ifndef WEFT_PLUGINS_TCP_WIRE_PEER_LINK_H
#define WEFT_PLUGINS_TCP_WIRE_PEER_LINK_H

#include <compare>
#include <cstdint>

namespace weft::tcp {

class PeerLink {
 public:
  enum class State : uint8_t {
    kIdle,
    kAttempt,  // our request is on its way
    kBackoff,  // it was refused in a way that does not last: again at retry_at()
    kUp,
  };
  enum class Next : uint8_t {
    kNothing,
    kConnect,  // begin an attempt
    kWait,     // call on_retry() at retry_at()
    kFail,     // no stream: what waits for one fails
  };
  enum class Refusal : uint8_t {
    kRejected,     // by a reject: the peer thinks that there is a stream, or will connect itself
    kHungUp,       // the end of the stream instead of an answer: perhaps too many came at once
    kUnreachable,  // no TCP connection, a timeout, or an answer that is none
  };
  struct Decision {
    bool accept = false;        // else: reject
    bool drop_attempt = false;  // the peer's attempt wins
    bool challenge = false;     // another process calls itself the peer; see below
    bool second = false;        // a connection to ourselves: accept, but the attempt goes on
  };

  State state() const { return state_; }
  uint64_t retry_at() const { return retry_at_; }
  uint64_t deadline() const { return deadline_; }  // of all attempts together; 0: none
  uint32_t process() const { return process_; }

  // A stream is needed. `timeout` is for all attempts until there is one; 0: no limit.
  Next want(uint64_t now, uint64_t timeout);
  // A peer's request came in. `peer` is its address compared with ours.
  Decision on_request(std::strong_ordering peer, uint32_t process);
  // Our attempt was accepted.
  void on_accepted(uint32_t process);
  // Our attempt ended otherwise. `wanted`: something still waits for a stream.
  Next on_refused(uint64_t now, Refusal refusal, bool wanted);
  Next on_retry(uint64_t now, bool wanted);
  // The stream is gone, for whatever reason.
  void on_lost();

 private:
  static constexpr uint64_t kFirstPauseNs = 1'000'000, kLongestPauseNs = 100'000'000;
  static constexpr uint64_t kLongestTripNs = 1'000'000'000;
  static constexpr unsigned kHangUps = 12;  // that are waited out where there is no limit of time

  Next begin(uint64_t now);

  State state_ = State::kIdle;
  uint8_t pauses_ = 0, hang_ups_ = 0;
  uint32_t process_ = 0;
  uint64_t begun_at_ = 0, retry_at_ = 0, deadline_ = 0;
};

}  // namespace weft::tcp

#endif  // WEFT_PLUGINS_TCP_WIRE_PEER_LINK_H
