// SPDX-License-Identifier: BSD-2-Clause
// Transmit: what an endpoint sends: messages, remote accesses, atomics, until their completion.
//
// Example:
//    // Moves on what the NIC has told.
//    inline void progress(Transmit &transmit) {
//      while (transmit.read_events()) {
//      }
//    }
//
// An operation is done when the NIC has acknowledged it; a long message when its target has also
// read the rest (portal kRendezvousIndex); one with FI_MATCH_COMPLETE when it has met its receive.
//
// Flow control: a peer whose receive portal is disabled refuses messages. All later ones to this
// peer wait here, in order, until those under way have come back; then the peer is told how many it
// has dropped (Control), and when it says that it is ready they all go again. Whoever waits for
// that asks again: the endpoint may have ended, and another one may have its address.
//
// A peer that ends tells nobody. While something waits for what only a peer can do, after its NIC
// has acknowledged it, the peer is asked from time to time whether it is there (PeerWatch). If it
// is gone, what waits for it fails.
//
// All calls are with the endpoint's lock held. Not for what a region or an atomic operation is on
// the wire: endpoint.cc makes the commands.
#ifndef WEFT_PLUGINS_CXI_TRANSMIT_H
#define WEFT_PLUGINS_CXI_TRANSMIT_H

#include <weft/sdk/memory/pool.h>
#include <weft/sdk/objects/contexts.h>
#include <weft/sdk/progress/engine.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "plugins/cxi/bits.h"
#include "plugins/cxi/counters.h"
#include "plugins/cxi/free_numbers.h"
#include "plugins/cxi/links.h"
#include "plugins/cxi/peer_watch.h"
#include "plugins/cxi/ports.h"
#include "plugins/cxi/settings.h"
#include "plugins/cxi/tokens.h"

namespace weft::cxi {

class Control;
class DeferredWork;

class Transmit final : private sdk::Handler {
 public:
  // An operation from its call to its completion.
  struct Op {
    void *context = nullptr;
    uint64_t flags = 0;  // of the completion
    uint64_t length = 0;
    bool report = true;
    bool is_message = false;
    bool is_rendezvous = false;
    bool is_inject = false;
    bool acknowledged = false, read = false, matched = false;
    bool wants_match = false;
    bool in_flight = false;
    bool is_awaited = false;           // it is acknowledged, and its peer has not done its part
    bool is_canceled = false;          // by fi_cancel, when the NIC had it
    uint32_t tries = 0;                // that found no receive
    uint64_t again_at = 0, until = 0;  // when it goes again, and when no more
    bool is_deferred = false;          // a counter starts it
    bool is_work = false;              // of that: it is deferred work, and no call with FI_TRIGGER
    sdk::Cntr *completion = nullptr;   // of work
    bool writes_back = false;          // which is written to the application's memory, too
    bool is_counted = false;           // by the NIC, when it is acknowledged
    Memory window;          // of a long message: what its target may read; memory of a device
    uint32_t number = 0;    // of a long message, or of a transaction
    uint64_t sequence = 0;  // of posting
    uint64_t token = 0;
    Rc rc = Rc::kOk;
    Peer peer;
    Profile profile;
    Transfer transfer;
    alignas(16) uint8_t bytes[kMaxInlineUnrestricted];
  };

  // `retries`: a message that finds no receive is sent again (FI_PROTO_CXI_RNR).
  Transmit(const Ports &ports, sdk::Engine &engine, sdk::TxContext &tx, const Settings &settings,
           Counters &counters, size_t size, bool retries);
  // Opens its queues and portals. `waits`: the events have a descriptor.
  Result<void> open(bool waits);
  void set_partners(Control &control, DeferredWork &deferred) {
    control_ = &control;
    deferred_ = &deferred;
  }
  void close();
  // How long after its call a message is still sent again; 0: not at all.
  void set_retry_time(uint64_t ns) { retry_time_ns_ = ns; }

  // ---- for calls of the application ----
  // Null: as many as the limit are under way, or the NIC has told so much that it is to be read
  // first (FI_CXI_CQ_FILL_PERCENT).
  Op *take();
  void give(Op &op);
  // Numbers of long messages, whose bytes the target may read from now on. False: none is free.
  bool number_long(Op &op, bool tagged);
  bool number_transaction(Op &op);
  // Starts it, behind all before it; `fence`: when those are done. -FI_EAGAIN: nothing has
  // happened; -FI_EINVAL: the service does not allow its traffic class.
  ssize_t post(Op &op, bool fence);
  // Lets the NIC raise a counter, if the acknowledgement is the end of the operation.
  void count_in_nic(Op &op, sdk::Cntr *counter);
  // Of the endpoint, for what it starts; null: there is none.
  sdk::Cntr *counter_of(const Op &op) const;
  // A deferred one has not started, and does not any more. cancel(): its end is told.
  void drop(Op &op);
  void cancel(Op &op);
  // fi_cancel of what has started. One that waits here ends at once. What the NIC has is not given
  // back: it ends as it would have, and an error says that it was canceled. False: there is none.
  bool cancel(const void *context);
  // Whether operations may have it; before fi_enable: not known, so yes.
  bool allows(const Profile &profile) { return queue_ == nullptr || use(profile); }
  // What was posted leaves.
  void flush() { queue_->flush(); }
  size_t left() const { return ops_.limit() - ops_.in_use(); }
  // Injected bytes that nobody has taken yet.
  size_t injected() const { return injected_; }

  // ---- progress ----
  bool read_events();  // false: there were none
  void on_resume(const Peer &peer);
  // It cannot be told how many messages it has dropped: it is gone, and those that wait fail.
  void on_lost(const Peer &peer, Rc rc);
  EventQueue &events() { return *events_; }

 private:
  // A peer that has refused messages.
  struct Parked {
    Peer peer;
    std::vector<Op *> waiting;  // in order, from `next` on
    size_t next = 0;
    uint32_t drops = 0;  // that it has not been told of
    uint32_t in_flight = 0;
    bool resumes = false;  // its waiting messages go out
    bool told = false;     // of others: it will say when it is ready
  };

  // What an event is of, in the low bits of its user_ptr. Above them there is the token of an
  // operation, or the key of a peer.
  enum Owner : uint64_t { kOperation = 0, kEndpointQuestion = 1, kPeerQuestion = 2 };
  static constexpr unsigned kOwnerShift = 2;
  static_assert(Tokens<Op>::kBits + kOwnerShift <= 64);

  void on_acknowledged(const Event &event);
  bool is_the_key_in_doubt(Op &op);  // true: the peer is asked
  void on_endpoint(Op &op, Rc answer);
  void on_read(const Event &event);
  void on_matched(const Event &event);
  bool retry(Op &op);      // false: it has failed
  bool take_back(Op &op);  // false: it does not wait
  void on_deadline() override;
  void on_event(uint32_t) override {}
  void schedule();
  void start_watch();
  void look_at_peers(uint64_t now);
  void on_peer(const Peer &peer, Rc answer);
  void on_gone(const Peer &peer, Rc rc);
  void settle(Op &op);  // completes it, if it is done
  void complete(Op &op);
  void count(const Op &op, sdk::Cntr &counter);
  void report(const Op &op);
  void complete_work(Op &op);
  int start(Op &op);
  bool is_saturated();
  Result<void> open_source();
  Result<void> open_done();
  bool read_link();
  bool use(const Profile &profile);  // from now on; false: the service does not allow it
  Parked &park(const Peer &peer);
  void on_refused(Op &op, bool counted);
  void on_returned(Parked &parked);
  void go_on(Parked &parked);

  const Ports &ports_;
  sdk::Engine &engine_;
  sdk::TxContext &tx_;
  const Settings &settings_;
  Counters &counters_;
  Control *control_ = nullptr;
  DeferredWork *deferred_ = nullptr;
  sdk::Pool<Op> ops_;
  Tokens<Op> tokens_;  // of those in use
  const bool retries_;
  uint64_t retry_time_ns_;
  std::vector<Op *> again_;  // messages that wait for their next try,
  uint64_t again_at_ = 0;    // and when that is
  PeerWatch watch_;
  uint64_t look_at_ = 0;  // when it looks for peers to ask; 0: when something new waits
  std::unique_ptr<EventQueue> events_;
  std::unique_ptr<TransmitQueue> queue_;
  Profile profile_;  // that the queue has
  std::unique_ptr<Portal> source_, done_;
  Links links_;
  uint64_t sequence_ = 0;
  size_t injected_ = 0;
  bool saturated_ = false;  // events_, until all of them are read
  size_t waiting_ = 0;      // of all parked peers
  std::unordered_map<uint64_t, Parked> parked_;
  // Long messages by number, and which numbers are free.
  std::vector<Op *> long_, transactions_;
  FreeNumbers free_untagged_, free_tagged_, free_transactions_;
};

}  // namespace weft::cxi

#endif
