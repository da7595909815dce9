// SPDX-License-Identifier: BSD-2-Clause
// Core: the protocol of one rxm endpoint, without sockets, clock or threads. It keeps the peers,
// connects to a peer at first use, turns operations into packets, and packets into messages.
//
// Example:
//    // Sends to the peer `index` of the address vector. The first operation connects.
//    // Upper::on_done() tells the end of the operation.
//    inline ssize_t send(Core &core, const iovec &message, uint32_t index,
//                        const sdk::Address &address) {
//      TxOp *op = core.take();
//      if (op == nullptr) return -FI_EAGAIN;  // tx_size operations are in flight
//      op->iov[0] = message;
//      op->count = 1;
//      op->length = message.iov_len;
//      core.prepare_message(*op, /*tagged=*/false, /*has_data=*/false, Tell::kNothing);
//      const int rc = core.start(*op, index, core.knows(index) ? nullptr : &address);
//      if (rc != 0) core.give(*op);
//      return rc;
//    }
//    // What the carrier does with a packet. Messages go to Upper::receiver().
//    inline void on_packet(Core &core, Carrier &carrier, Connection &from,
//                          std::span<const uint8_t> bytes, Buffer &buffer) {
//      if (!core.on_packet(from, bytes, buffer)) carrier.release(buffer);
//    }
//
// A peer that is only in the address vector costs no memory here. A peer that is not in the address
// vector is called a stranger. Call everything with the same lock held. Settings limit the memory
// that peers can occupy. Not for completion queues, address vectors, or moving bytes (carrier.h).
//
// It connects parts that own their state: for what leaves Sender, Answers, InFlight, Offers,
// Forms, Outbox; for what arrives Shares, Inbox, Fetches, Atomics; for connections Peers,
// IdleLimit, StrangerLimit, Deadlines. One file per subject is the rest: send.cc, input.cc,
// rendezvous.cc; connections.cc, links.cc (which of them counts), parting.cc, places.cc; core.cc
// (life).
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_CORE_H
#define WEFT_PLUGINS_RXM_PROTOCOL_CORE_H

#include <rdma/fi_atomic.h>
#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/memory/pool.h>
#include <weft/sdk/peer/place.h>
#include <weft/sdk/transfers/atomic.h>
#include <weft/sdk/transfers/receiver.h>
#include <weft/sdk/transfers/transfer.h>

#include <memory>
#include <optional>
#include <vector>

#include "plugins/rxm/protocol/answers.h"
#include "plugins/rxm/protocol/atomics.h"
#include "plugins/rxm/protocol/carrier.h"
#include "plugins/rxm/protocol/connection.h"
#include "plugins/rxm/protocol/counters.h"
#include "plugins/rxm/protocol/deadlines.h"
#include "plugins/rxm/protocol/fetches.h"
#include "plugins/rxm/protocol/forms.h"
#include "plugins/rxm/protocol/idle_limit.h"
#include "plugins/rxm/protocol/in_flight.h"
#include "plugins/rxm/protocol/inbox.h"
#include "plugins/rxm/protocol/outbox.h"
#include "plugins/rxm/protocol/peers.h"
#include "plugins/rxm/protocol/sender.h"
#include "plugins/rxm/protocol/settings.h"
#include "plugins/rxm/protocol/shares.h"
#include "plugins/rxm/protocol/stranger_limit.h"
#include "plugins/rxm/protocol/upper.h"
#include "plugins/rxm/wire/connect_data.h"
#include "plugins/rxm/wire/packet.h"

namespace weft::rxm {

class Core final : private sdk::PlaceOwners::Peers {
 public:
  using Upper = rxm::Upper;

  Core(Carrier &carrier, Upper &upper, const Settings &settings);
  Core(const Core &) = delete;
  Core &operator=(const Core &) = delete;

  // The address at which the carrier listens.
  void set_own_address(const sdk::Address &address) { own_ = address; }

  // ---- operations ----
  TxOp *take() { return in_flight_.take(); }  // null: tx_size operations are in flight
  // Returns an operation that was not started.
  void give(TxOp &op) { in_flight_.give(op); }
  // fi_cancel of what has begun; false: there is none.
  bool cancel(const void *context) { return in_flight_.cancel(context); }
  // Fills in what the header needs, and chooses the form by length. `until`: the operation ends
  // when the peer has told so much.
  void prepare_message(TxOp &op, bool tagged, bool has_data, Tell until) {
    forms_.choose(op, tagged, has_data, until);
  }
  // False: a device has failed, from which operands come.
  bool prepare_atomic(TxOp &op, const sdk::AtomicRequest &request, size_t element) {
    return atomics_.prepare(op, request, element);
  }
  // Copies the data into the operation, so that the caller may reuse its memory. The carrier then
  // reports the end of the operation (op.inject is cleared).
  // False: a device has failed.
  bool own_data(TxOp &op) { return forms_.own_data(op); }
  // Starts the operation toward the peer `index` of the address vector. `address`: its address,
  // null if knows(index). On -FI_E... nothing was sent, and the operation is still the caller's.
  int start(TxOp &op, uint32_t index, const sdk::Address *address) {
    const bool outlives = op.form == TxOp::Form::kRendezvous || op.until != Tell::kNothing;
    if (op.inject && outlives && !own_data(op)) return -FI_EFAULT;
    Peer *p = peers_.at(index);
    if (p == nullptr) [[unlikely]] {
      p = meet(index, address);
      if (p == nullptr) return -FI_EINVAL;
    }
    const ssize_t rc = outbox_.send(*p, op);
    return rc == 0 ? 0 : start_later(*p, op, rc);
  }
  bool knows(uint32_t index) const { return peers_.at(index) != nullptr; }
  // The address vector lost this entry, or got it.
  void forget(uint32_t index);
  void introduce(uint32_t index, const sdk::Address &address);
  bool has_contexts() const { return has_contexts_; }
  void introduce_context(uint32_t index, const sdk::Address &address, unsigned place);
  // A context that is not open yet: it accepts no peer, but says how many contexts there are.
  void only_tell(bool only) { only_tells_ = only; }

  // ---- from the receiver's sink ----
  // A receive matched the saved message, or the application dropped it.
  void deliver(RxMessage &message, sdk::Receive &receive);
  void discard(RxMessage &message);
  int read_first(RxMessage &message, void *to, size_t n);

  // ---- from the carrier ----
  // A peer asks for a connection. `from`: its address, with a port that means nothing; `to`: ours.
  void on_request(Request &request, const sdk::Address &from, const sdk::Address &to,
                  std::span<const uint8_t> data);
  void on_connected(Connection &connection, std::span<const uint8_t> data);
  // The request was refused or failed; `data`: the peer's private data. `passes`: the next try may
  // fare better (a process listens there, but it closed the connection without an answer; or the
  // port for the connection is in use here), and the core tries again until connect_timeout_ns is
  // over.
  void on_refused(Connection &connection, int err, std::span<const uint8_t> data,
                  bool passes = false);
  void on_closed(Connection &connection, int err);
  Connection *find(uint32_t slot) const { return peers_.in_slot(slot); }
  // The source that messages have in the receiver: an index of the address vector, or kFirstUnnamed
  // and more for a stranger.
  static uint32_t source_of(const Peer &p) { return p.source(); }
  static uint32_t source_of(const Connection &c) { return c.source_; }
  // The address of a stranger by its source; null: it is gone.
  const sdk::Address *address_of(uint32_t source) const {
    const Peer *p = peers_.of_source(source);
    return p != nullptr ? &p->address() : nullptr;
  }
  // True: the core keeps the buffer, and releases it later.
  bool on_packet(Connection &connection, std::span<const uint8_t> bytes, Buffer &buffer);
  // A message of a weft peer without an rxm header. `data`: the carrier's remote data.
  bool on_bare_message(Connection &connection, std::span<const uint8_t> bytes, uint32_t data,
                       Buffer &buffer);
  // A tagged message without an rxm header, as stock peers send it over carriers with tags.
  bool on_short_message(Connection &connection, std::span<const uint8_t> bytes, bool has_data,
                        uint64_t data, uint64_t tag, Buffer &buffer);
  void on_sent(Token &token, int err);
  // The carrier posted `count` receives of this connection again. Only with `credits`.
  void on_reposted(Connection &connection, uint32_t count);
  void on_deadline();
  // Before what one progress of the carrier brings; poll() is behind it.
  void begin_pass() { sender_.begin_pass(); }
  void poll() {
    if (sender_.has_blocked()) resume();
    if (fetches_.has_waiting()) fetches_.resume([this](RxMessage &m) { fetch(m); });
    if (offers_.has_waiting()) resume_writes();
    if (shares_.holds_any()) shares_.release();
    if (peers_.has_unused()) reap();
  }

  // Fails all operations with `err` and closes all connections. Tokens that the carrier has still
  // come back through on_sent().
  void shut_down(int err);
  // The carrier is about to close by itself: nothing comes back from it any more.
  void abandon();
  // Whether something has to leave before the endpoint may close, or the peer has yet to tell of
  // it: what it tells an endpoint that is gone would reset the connection, with messages in it.
  bool has_queued() const;
  // The same of operations whose completion nobody waits for.
  bool has_unasked() const;
  size_t in_flight() const { return in_flight_.size(); }
  size_t connections() const { return idle_limit_.connected(); }
  size_t strangers() const { return peers_.strangers().connected; }
  size_t objects() const { return peers_.objects(); }  // connections, and peers without one
  uint64_t unexpected_bytes() const { return shares_.charged(); }
  const Settings &settings() const { return settings_; }
  const Counters &counters() const { return counters_; }

 private:
  using PeerLink = sdk::PeerLink;

  // ---- connections.cc ----
  void rename(Peer &p, uint32_t index);
  void take_level(Connection &c, uint8_t level);
  void refuse(Request &request, RejectReason reason, const ConnectData *theirs = nullptr);
  bool admit(Peer &p, const ConnectData &data, bool believed);
  bool make_room();
  void accept(Peer &p, Request &request, const ConnectData &data, bool second);
  void put_off(Peer &p, Request &request, const ConnectData &data, PeerLink::Decision decision);
  int request(Connection &c);
  void opened(Connection &c);
  void establish(Connection &c);
  void close(Connection &c, int err);
  void close_link(Connection &c, bool orderly);
  void fail_peer(Connection &c, const char *what);
  void reap();
  bool reap(Peer &p);

  // ---- links.cc ----
  void follow(Peer &p, PeerLink::Next next, int err = FI_ECONNREFUSED);
  void demand(Peer &p);
  bool wanted(const Peer &p) const;
  void look(Peer &p);
  void attempt(Peer &p);
  void probe(Peer &p);
  void hear(Connection &c);
  bool seems_dead(Connection &c);
  void accepted(Connection &c, uint32_t process);
  void name_by_address(Peer &p);
  void replace(Peer &p);
  void ended(Connection &c, int err, PeerLink::Refusal refusal = PeerLink::Refusal::kUnreachable);
  void lose_main(Peer &p, int err);
  void end_all(Peer &p, int err);
  void warn_of_timeout(const Peer &p);

  // ---- places.cc ----
  sdk::PlaceOwner::Claim judge(const sdk::Address &address, unsigned place);
  void told(const Connection &c, uint8_t last);
  uint32_t index_of_context(const sdk::Address &address, unsigned place) override;
  bool is_connected(uint32_t entry) override;
  void ask_for_places(uint32_t entry, const sdk::Address &first) override;
  void name_context(const sdk::Address &address, unsigned place, uint32_t index) override;
  void drop_context(const sdk::Address &address, unsigned place) override;

  // ---- parting.cc ----
  void close_idle(size_t most);
  bool ask_to_part(Connection &c);
  void take_part(Connection &c, const Packet &p);

  // ---- send.cc ----
  int start_later(Peer &p, TxOp &op, ssize_t rc);
  Peer *meet(uint32_t index, const sdk::Address *address);
  void resume();
  bool flush(Connection &c);  // false: must wait
  Control *new_control(Connection &c, PacketType type, uint64_t id);
  void queue_control(Connection &c, Control &control);
  void answer(Connection &c, PacketType type, uint64_t id);

  // ---- rendezvous.cc ----
  void take_read_done(Connection &c, const Packet &p);
  void take_target(Connection &c, const Packet &p);
  void write(Connection &c, TxOp &op);
  void resume_writes();
  bool take_rendezvous(Connection &c, const Packet &p, Buffer &buffer);
  void fetch(RxMessage &m);
  void proceed(RxMessage &m, const Fetches::Outcome &outcome);
  int peek(RxMessage &m, void *to, size_t n);
  void fetched(RxMessage &m);
  void end_fetch(RxMessage &m);
  void take_write_done(Connection &c, const Packet &p);

  // ---- input.cc ----
  void note_use(Connection &c, const Packet &p);
  void note_message(Connection &c);
  sdk::Message message_of(Connection &c, const Packet &p) const;
  bool take_whole(Connection &c, const sdk::Message &m, std::span<const uint8_t> payload,
                  Buffer &buffer);
  bool save_whole(Connection &c, const sdk::Message &m, std::span<const uint8_t> payload,
                  Buffer &buffer);
  static Tell asked_of(const Connection &c, const Packet &p) {
    return c.may_be_told() ? p.tell : Tell::kNothing;
  }
  bool take_awaited(Connection &c, const Packet &p, Tell asked, Buffer &buffer);
  void say(const Inbox::Word &word);
  void tell(Connection *c, uint64_t id);
  RxMessage *new_message(Connection &c, RxMessage::Form form, const sdk::Message &m);
  bool take_segment(Connection &c, const Packet &p, Buffer &buffer);
  void take_response(Connection &c, const Packet &p);
  void take_atomic(Connection &c, const Packet &p);

  Carrier &carrier_;
  Upper &upper_;
  const Settings settings_;
  Counters counters_;
  sdk::Address own_;
  rxm::Peers peers_;
  sdk::PlaceOwners owners_{*this};
  Deadlines deadlines_{carrier_};
  Shares shares_{carrier_, peers_, settings_, counters_};
  IdleLimit idle_limit_{peers_};
  StrangerLimit stranger_limit_{peers_};
  Sender sender_{carrier_, settings_};
  Answers answers_{sender_, settings_};
  Offers offers_{carrier_, settings_};
  InFlight in_flight_{settings_.tx_size, sender_, offers_, upper_, counters_};
  Forms forms_{settings_};
  Outbox outbox_{{carrier_, upper_, settings_, counters_, forms_, idle_limit_, sender_, answers_,
                  offers_, in_flight_}};
  Atomics atomics_{carrier_, upper_, settings_};
  Fetches fetches_{carrier_, settings_};
  Inbox inbox_{carrier_, upper_, settings_, counters_, peers_, shares_, fetches_};
  bool has_contexts_ = false;  // some peers are contexts of scalable endpoints
  bool only_tells_ = false;
  bool down_ = false;
};

}  // namespace weft::rxm

#endif
