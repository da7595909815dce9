// SPDX-License-Identifier: BSD-2-Clause
// Core: the protocol of one rxm endpoint, without a socket, a clock or a thread. It knows the
// peers, connects to them at first use, turns operations into packets and packets into operations.
//
//   TxOp *op = core.take();                       // null: tx_size are in flight
//   fill_send(*op, ...);
//   core.start(*op, av_index);                    // upper.on_done(*op, err) follows
//   core.on_packet(*connection, bytes, buffer);   // messages end in upper.receiver()
//
// A connection is an object only while there is something to say: a peer that was only inserted
// costs nothing here. Everything is called with one lock held. What it may hold because of others
// is bounded by Settings. Not for completion queues, address vectors, or how bytes travel.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_CORE_H
#define WEFT_PLUGINS_RXM_PROTOCOL_CORE_H

#include <rdma/fi_atomic.h>
#include <weft/sdk/atomic.h>
#include <weft/sdk/index_table.h>
#include <weft/sdk/pool.h>
#include <weft/sdk/receiver.h>
#include <weft/sdk/transfer.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "plugins/rxm/protocol/carrier.h"
#include "plugins/rxm/protocol/connection.h"
#include "plugins/rxm/protocol/operations.h"
#include "plugins/rxm/wire/connect_data.h"
#include "plugins/rxm/wire/packet.h"

namespace weft::rxm {

struct Settings {
  uint32_t process = 0;
  uint32_t eager_limit = 16384;   // bytes of payload of one packet; equal at both sides
  uint64_t sar_limit = 65536;     // messages up to this go in segments
  bool rendezvous_write = false;  // the sender writes, in place of the receiver's reading
  size_t tx_size = 1024;          // operations in flight
  size_t inject_limit = 128;      // of the carrier, bytes with the header
  size_t iov_limit = 4;           // of the carrier
  uint32_t receive_count = 256;   // packets that the carrier can receive before it must wait
  bool credits = false;           // receives are posted per connection: flow control is offered
  size_t max_connections = 0;     // 0: no limit
  // Bytes of copies of what nobody wanted yet. One peer gets three quarters of it at the most,
  // those who are not in the address vector half of it together.
  uint64_t unexpected_limit = 64 << 20;
  uint64_t owed_limit = 64 << 20;  // bytes of atomics' results that a peer does not take from us
  uint64_t connect_timeout_ns = 30'000'000'000;
  // Connections of peers that are not in the address vector, and answers that a peer makes us owe
  // it: one of those in it; strangers get a part of that.
  size_t max_strangers = SIZE_MAX;
  size_t max_controls = 1 << 16;
  size_t max_segments = 512;  // at the carrier, of one connection
};

class Core {
 public:
  // What the core tells the endpoint above it.
  class Upper {
   public:
    // The operation has ended; it goes back to the core when this returns.
    virtual void on_done(TxOp &op, int err) = 0;
    virtual sdk::Receiver &receiver() = 0;
    // The lowest index of an address in the vector; kNoIndex: none.
    virtual uint32_t index_of(const sdk::SockAddr &address) = 0;
    // Something that an operator should hear of, once per event.
    virtual void warn(const char *text) = 0;
    // An atomic changed or read this memory, lengths in bytes (counters of the endpoint and of
    // regions).
    virtual void on_remote_atomic(uint64_t access, std::span<const RmaVector> where) = 0;

   protected:
    ~Upper() = default;
  };

  Core(Carrier &carrier, Upper &upper, const Settings &settings);
  ~Core();
  Core(const Core &) = delete;
  Core &operator=(const Core &) = delete;

  // Where this endpoint listens: known once the carrier does.
  void set_own_address(const sdk::SockAddr &address) { own_ = address; }

  // ---- operations ----
  TxOp *take();
  void give(TxOp &op);  // one that was not started
  // Fill what is common to messages: header and form by length and flags. `delivery`: it ends when
  // the receiver has it.
  void prepare_message(TxOp &op, bool tagged, bool has_data, bool delivery);
  void prepare_atomic(TxOp &op, const sdk::AtomicRequest &request, size_t element);
  // Copies what it sends into the operation: the caller has its memory back, and the operation is
  // one that comes back from the carrier.
  void own_data(TxOp &op);
  // Starts the operation toward `index`, whose address is `address`. 0, or -FI_E...: nothing
  // happened and the operation is still the caller's.
  int start(TxOp &op, uint32_t index, const sdk::SockAddr *address);
  // Whether start() can do without the address.
  bool knows(uint32_t index) const { return peers_.at(index) != nullptr; }
  void forget(uint32_t index);                                   // removed from the address vector
  void introduce(uint32_t index, const sdk::SockAddr &address);  // inserted

  // ---- from the receiver's sink ----
  void deliver(RxMessage &message, sdk::Receive &receive);
  void discard(RxMessage &message);

  // ---- from the carrier ----
  // A peer asks for a connection, from the address `from` (whose port says nothing) to `to`.
  void on_request(Request &request, const sdk::SockAddr &from, const sdk::SockAddr &to,
                  std::span<const uint8_t> data);
  void on_connected(Connection &connection, std::span<const uint8_t> data);
  // The request was refused or failed; `data`: what the peer said. `hung_up`: there was somebody,
  // who ended the connection in place of an answer; it is tried again until connect_timeout_ns.
  void on_refused(Connection &connection, int err, std::span<const uint8_t> data,
                  bool hung_up = false);
  void on_closed(Connection &connection, int err);
  Connection *find(uint32_t slot) const { return slot < slots_.size() ? slots_[slot] : nullptr; }
  // How the receiver knows who is at the other end: its index, or a number of an unnamed sender.
  uint32_t source_of(const Connection &c) const;
  // Of an unnamed sender; null: gone, or it has a name.
  const sdk::SockAddr *address_of(uint32_t source) const {
    if (source < sdk::Matcher::kFirstUnnamed) return nullptr;
    const Connection *c = find(source - sdk::Matcher::kFirstUnnamed);
    return c != nullptr ? &c->address() : nullptr;
  }
  // True: the buffer is kept, and released later.
  bool on_packet(Connection &connection, std::span<const uint8_t> bytes, Buffer &buffer);
  // A tagged message without a header (wire sheet, section 7).
  bool on_short_message(Connection &connection, std::span<const uint8_t> bytes, bool has_data,
                        uint64_t data, uint64_t tag, Buffer &buffer);
  void on_sent(Token &token, int err);
  void on_reposted(Connection &connection, uint32_t count);  // without a shared receive context
  void on_deadline();
  void poll() {
    if (!blocked_.empty()) resume();
    if (!fetching_.empty()) resume_fetches();
    if (!writes_.empty()) resume_writes();
    if (!held_.empty()) release_held();
    if (!unused_.empty()) reap();
  }

  // Ends everything: operations fail with `err`, connections close. What the carrier still has
  // comes back through on_sent().
  void shut_down(int err);
  // The carrier is going to close everything by itself, and nothing comes back or is told.
  void abandon();
  // Operations that wait for a connection or for room.
  bool has_queued() const {
    for (const Connection *c : slots_)
      if (c != nullptr && (c->first_ != nullptr || c->control_ != nullptr)) return true;
    return false;
  }
  size_t in_flight() const { return ops_.in_use(); }
  size_t connections() const { return connected_; }
  size_t strangers() const { return strangers_; }
  size_t objects() const { return slots_.size() - free_slots_.size(); }
  uint64_t unexpected_bytes() const { return unexpected_; }
  const Settings &settings() const { return settings_; }

 private:
  Connection *make(const sdk::SockAddr &address, bool own);
  void name(Connection &c, uint32_t index);
  void rename(Connection &c, uint32_t index, bool own);
  static bool is_stranger(const Connection &c) { return c.index_ == kNoIndex && !c.own_; }
  void note_unused(Connection &c);
  bool has_others(const Connection &c) const;
  void reap();
  void touch(Connection &c) { c.last_use_ = ++uses_; }
  void connect(Connection &c);
  void accept_beside(Connection &attempt, Request &request, const ConnectData &data);
  void accept(Connection &c, Request &request, const ConnectData &data);
  bool make_room();
  void refuse(Request &request, RejectReason reason);
  static uint64_t pause_after(uint32_t attempts);
  void wait_for_other(Connection &c);
  void stop_waiting(Connection &c);
  void establish(Connection &c);
  void contest(Connection &c);
  void ask_owner(Connection &c);
  void doubt(Connection &attempt);
  void replace(Connection &rival);
  void inherit(Connection &rival, Connection &old);
  void hand_over(Connection &from, Connection &to);  // what is queued, where nothing is
  void adopt(Connection &c);
  void arm();
  void drop_link(Connection &c, int err);
  void close_link(Connection &c);
  void drop_controls(Connection &c);
  void fail_queue(Connection &c, int err);
  void close_idle(size_t most);
  bool ask_to_part(Connection &c);
  void stay(Connection &c);
  void part(Connection &c, int err);
  static bool busy(const Connection &c) {
    return c.first_ != nullptr || c.control_ != nullptr || c.flights_ != 0 ||
           c.messages_.first != nullptr || c.unfinished_.first != nullptr;
  }
  void fail_peer(Connection &c, const char *what);

  // output
  void enqueue(Connection &c, TxOp &op);
  void resume();
  void resume_fetches();
  void resume_writes();
  void block(Connection &c);
  bool flush(Connection &c);  // false: must wait
  ssize_t transmit(Connection &c, TxOp &op);
  ssize_t transmit_eager(Connection &c, TxOp &op);
  ssize_t transmit_segments(Connection &c, TxOp &op);
  ssize_t transmit_rendezvous(Connection &c, TxOp &op);
  ssize_t transmit_access(Connection &c, TxOp &op);
  ssize_t transmit_atomic(Connection &c, TxOp &op);
  static void suit_stock(TxOp &op);
  ssize_t describe(Connection &c, TxOp &op);
  void undescribe(TxOp &op);
  void conceal_all(TxOp &op);
  ssize_t packet(Connection &c, const iovec *iov, size_t count, uint64_t flags, Token *token);
  ssize_t send_control(Connection &c, Control &control);
  void answer(Connection &c, PacketType type, uint64_t id);
  void queue_control(Connection &c, Control &control);
  void await(Connection &c, TxOp &op);
  void depart(Connection &c, TxOp &op) {
    if (op.counted) return;
    op.counted = true;
    ++c.flights_;
  }
  static void reset(Control &control, PacketType type, uint64_t id);
  Control *new_control(Connection &c, PacketType type, uint64_t id);
  void free_control(Control &control);
  bool owes_credits(const Connection &c) const;
  bool send_credits(Connection &c);
  void free_segment(Segment &s);
  void end(TxOp &op, int err);
  void settle(TxOp &op);
  TxOp *awaited(Connection &c, uint64_t id);
  ssize_t continue_write(Connection &c, TxOp &op);
  uint64_t id_of(const TxOp &op) const { return uint64_t(op.generation) << 32 | op.slot; }

  // input
  bool take_whole(Connection &c, const sdk::Message &m, std::span<const uint8_t> payload,
                  Buffer &buffer);
  bool take_segment(Connection &c, const Packet &p, Buffer &buffer);
  bool take_rendezvous(Connection &c, const Packet &p, Buffer &buffer);
  void take_atomic(Connection &c, const Packet &p);
  void take_response(Connection &c, const Packet &p);
  void take_target(Connection &c, const Packet &p);
  void take_read_done(Connection &c, const Packet &p);
  void take_write_done(Connection &c, const Packet &p);
  void take_part(Connection &c, const Packet &p);
  RxMessage *new_message(Connection *c, RxMessage::Form form, const sdk::Message &m);
  void free_message(RxMessage &m);
  static void unlist(RxMessage &m);
  bool keep(RxMessage &m, std::span<const uint8_t> bytes, Buffer &buffer);
  void finish(RxMessage &m, int err);
  void charge(RxMessage &m, uint64_t bytes);
  bool may_charge(const Connection &c, uint64_t bytes) const;
  bool takes_too_much(const Connection &c) const;
  bool must_wait(const Connection &c) const;
  void hold(Connection &c);
  void hold_greedy(Connection &c);
  void release_held();
  void drop_parts(RxMessage &m);
  void fetched(RxMessage &m);
  void lose_peer(RxMessage &m, int err);
  void place(RxMessage &m, uint64_t at, std::span<const uint8_t> bytes);
  void fetch(RxMessage &m);
  void on_read(RxMessage &m, int err);
  void lose(RxMessage &m, int err);
  void lose_messages(Connection &c, int err);
  sdk::Message message_of(Connection &c, const Packet &p) const;

  Carrier &carrier_;
  Upper &upper_;
  const Settings settings_;
  const size_t reserve_;  // buffers that nobody keeps a message in
  sdk::SockAddr own_;
  sdk::Pool<TxOp> ops_;
  std::vector<TxOp *> op_slots_;
  sdk::Pool<Segment> segments_;
  sdk::Pool<Control> controls_;
  sdk::Pool<RxMessage> messages_;
  sdk::IndexTable<Connection> peers_;  // by index of the address vector
  std::unordered_map<sdk::SockAddr, Connection *, sdk::SockAddrHash> by_address_;
  std::vector<Connection *> slots_;
  std::vector<uint32_t> free_slots_;
  std::vector<Connection *> blocked_, resuming_, retrying_, unused_, held_, contested_;
  // Rendezvous whose reads, or writes, the carrier had no room for.
  std::vector<RxMessage *> fetching_;
  std::vector<TxOp *> writes_;
  size_t connected_ = 0;
  size_t leaving_ = 0;  // of them: whose end was asked for
  uint64_t uses_ = 0;
  uint64_t unexpected_ = 0;
  // Of those who are not in the address vector.
  size_t strangers_ = 0;  // that have a link
  size_t strangers_buffers_ = 0;
  uint64_t strangers_charged_ = 0;
  uint64_t deadline_ = 0;
  bool down_ = false;
};

}  // namespace weft::rxm

#endif
