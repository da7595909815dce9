// SPDX-License-Identifier: BSD-2-Clause
// Core: the protocol of one rxd endpoint, without a socket, a clock or a thread. It keeps the
// peers, finds out at the first packet which protocol a peer speaks, and gives each peer a
// conversation.
//
// Example:
//    #include <rdma/fi_errno.h>
//    // Sends a tagged message. After a 0, Core::Upper::on_done() reports its end.
//    inline int send(Core &core, uint32_t index, const sdk::Address &address, uint64_t tag,
//                    std::span<uint8_t> bytes, void *context) {
//      TxOp *op = core.take();
//      if (op == nullptr) return -FI_EAGAIN;  // tx_size are in flight
//      op->kind = TxOp::Kind::kMessage;
//      op->tagged = true;
//      op->tag = tag;
//      op->iov[0] = {bytes.data(), bytes.size()};
//      op->count = 1;
//      op->length = bytes.size();
//      op->context = context;
//      const int rc = core.start(*op, index, &address);
//      if (rc != 0) core.give(*op);
//      return rc;
//    }
//    // For each datagram that was read. Messages go to Core::Upper::receiver(). When nothing more
//    // is to be read: core.on_idle().
//    inline void take(Core &core, std::span<const uint8_t> bytes, Buffer &buffer,
//                     const Path *from) {
//      const bool kept = core.on_datagram(bytes, buffer, from);
//      if (!kept) core.carrier().release(buffer);
//    }
//
// A peer becomes an object at its first use; an address that was only inserted costs nothing here.
// All calls are made with one lock held. Not for completion queues, address vectors, or the
// transport of datagrams.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_CORE_H
#define WEFT_PLUGINS_RXD_PROTOCOL_CORE_H

#include <weft/sdk/addresses/av.h>
#include <weft/sdk/memory/pool.h>
#include <weft/sdk/peer/place.h>
#include <weft/sdk/transfers/cancel.h>

#include <memory>
#include <vector>

#include "plugins/rxd/protocol/handshakes.h"
#include "plugins/rxd/protocol/inbox.h"
#include "plugins/rxd/protocol/peer_table.h"
#include "plugins/rxd/protocol/timers.h"

namespace weft::rxd {

inline constexpr uint64_t kMillisecond = 1'000'000;  // ns

inline constexpr size_t kMaxPieces = 16;            // pieces of memory of one remote access
inline constexpr uint64_t kPartingNs = 60'000'000;  // longest wait for the answers to close
inline constexpr uint32_t kSmallestDatagram = 512;  // bytes that every peer must accept

class DeviceCopies;
struct Pools;
namespace stock {
struct Packet;
}

class Core final : private sdk::PlaceOwners::Peers {
 public:
  // What the core tells the endpoint above it.
  class Upper {
   public:
    // The operation has ended; it goes back to the core when this returns.
    virtual void on_done(TxOp &op, int err) = 0;
    virtual sdk::Receiver &receiver() = 0;
    // The lowest index of an address in the address vector; kNoIndex: none.
    virtual uint32_t index_of(const sdk::Address &address) = 0;
    // The same of a peer that says that it is a context of a scalable endpoint.
    virtual uint32_t index_of_context(const sdk::Address &address, unsigned place) {
      (void)address, (void)place;
      return UINT32_MAX;
    }
    // A peer wrote to this endpoint's memory, or read it (for counters; `has_data`: for a
    // completion too). `source` as in sdk::Message, `where` as the peer named it.
    virtual void on_remote_write(uint32_t source, uint64_t length, bool has_data, uint64_t data,
                                 std::span<const RmaVector> where) = 0;
    // FI_RMA_PMEM: before the peer is told that its write, or atomic, has been executed. 0, or
    // FI_E...: it is not persistent.
    virtual uint16_t persist(std::span<const RmaVector>) { return 0; }
    virtual void on_remote_read(uint64_t length, std::span<const RmaVector> where) = 0;
    virtual void on_remote_atomic(uint64_t access, uint64_t length,
                                  std::span<const RmaVector> where) = 0;
    // Something that an operator should know, once per event.
    virtual void warn(const char *text) = 0;
    // The same of what a peer has caused. It may do so as often as it likes: not each is shown.
    virtual void warn_of_peer(const char *text) { warn(text); }

   protected:
    ~Upper() = default;
  };

  Core(Carrier &carrier, Upper &upper, const Settings &settings);
  ~Core();
  Core(const Core &) = delete;
  Core &operator=(const Core &) = delete;

  // The address by which peers know this endpoint. Set before the first operation.
  void set_own_address(const sdk::Address &address) { handshakes_.set_own_address(address); }
  const sdk::Address &own_address() const { return handshakes_.own_address(); }
  // What names in handshakes are read as: peers have addresses of the same inner provider.
  uint32_t name_format() const {
    const sdk::Address &own = own_address();
    return own.format() == FI_SOCKADDR_IN || own.format() == FI_SOCKADDR_IN6 || own.size() == 0
               ? uint32_t(FI_SOCKADDR_IP)
               : own.format();
  }

  // ---- operations ----
  TxOp *take();
  void give(TxOp &op);  // takes back an operation that was not started
  // fi_cancel of what has begun; false: there is none.
  bool cancel(const void *context) { return sdk::mark_canceled(ops_, context, &TxOp::cq_flags); }
  // Copies the bytes of op.iov into the operation: the caller may reuse its memory, and they are
  // not of a device any more. False: a device has failed.
  bool own_data(TxOp &op);
  // Starts the operation toward `index`, whose address is `address`. 0; or -FI_E...: nothing
  // happened, and the operation still belongs to the caller.
  int start(TxOp &op, uint32_t index, const sdk::Address *address);
  // Whether start() can do without the address.
  bool knows(uint32_t index) const { return peers_.at(index) != nullptr; }
  void forget(uint32_t index);                                  // removed from the address vector
  void introduce(uint32_t index, const sdk::Address &address);  // inserted
  bool has_contexts() const { return has_contexts_; }
  void introduce_context(uint32_t index, const sdk::Address &address, unsigned place);
  // A context that is not open yet: it accepts no peer, but says how many contexts there are.
  void only_tell(bool only) { only_tells_ = only; }

  // ---- from the receiver's sink ----
  void deliver(Incoming &message, sdk::Receive &receive);
  void discard(Incoming &message);
  int read_first(Incoming &message, void *to, size_t n);
  // The raw address of a source that is not in the address vector (FI_SOURCE_ERR).
  const sdk::Address *address_of(uint32_t source) const;

  // ---- from the carrier ----
  // True: the buffer is kept. `from`: the open path to the sender; null: there is none, or the
  // source was not read.
  bool on_datagram(std::span<const uint8_t> bytes, Buffer &buffer, const Path *from);
  // The network reports that no process receives at `to`, and shows the first bytes of the
  // datagram. A forged report cannot contain the question of our RTS.
  void on_unreachable(const sdk::Address &to, std::span<const uint8_t> datagram);
  void on_idle();  // there is nothing more to read for now
  // A progress begins. What the application sends before the next one may be a reply.
  void begin_pass() { ++passes_; }
  // Set before each round: `full` means that the application does not read its completions. Then
  // packets that would add completions wait, and everything else goes on: acknowledgements,
  // answers, the application's own operations.
  void set_full(bool full) { full_ = full; }
  // Called by each progress: sends what waited for room in the carrier or for its pace.
  void poll() {
    if (!blocked_.empty()) resume();
  }
  void on_deadline();  // the time of Carrier::set_deadline() has come

  // ---- the end ----
  // Sends close to all peers once they have acknowledged everything. `waits`: for their answers,
  // kPartingNs at most; otherwise close is sent once.
  void part(bool waits = true);
  bool parted() const;                               // part() has finished with all peers
  size_t unanswered() const { return unanswered_; }  // close packets without an answer
  // The end: operations fail with `err`, from now on too, and nothing more is sent.
  void shut_down(int err);

  size_t in_flight() const { return ops_.in_use(); }
  size_t peers() const { return peers_.size(); }  // peers that are objects
  size_t unnamed_peers() const { return peers_.unnamed(); }
  // The identity of a connection at both ends: their numbers, and the sum of their cookies.
  struct Pair {
    uint32_t ours = 0, theirs = 0, cookie = 0;
    bool operator==(const Pair &) const = default;
  };
  Pair pair_with(uint32_t index) const;  // zeros: there is no connection
  size_t notes() const;  // objects in use for packets, answers and writes, of all conversations
  const Counters &counters() const { return counters_; }
  const Settings &settings() const { return settings_; }

  // ---- for conversations ----
  Carrier &carrier() { return carrier_; }
  Upper &upper() { return upper_; }
  Inbox &inbox() { return inbox_; }
  bool full() const { return full_; }
  uint64_t passes() const { return passes_; }
  bool waits_for_answers() const { return waits_; }
  void count_unanswered() { ++unanswered_; }
  Counters &counters() { return counters_; }
  // How sdk::Receiver knows the peer: its index, or a number beyond all indexes if it has none.
  uint32_t source_of(const Peer &peer) const {
    return peer.index != kNoIndex ? sdk::Av::entry_of(peer.index)
                                  : sdk::Matcher::kFirstUnnamed + peer.number;
  }
  // Carrier::send(). All datagrams of one call into the core form a batch: their memory must stay
  // unchanged until the call is over, or until flush(). -FI_EAGAIN as there.
  int send(Peer &peer, const iovec *iov, size_t count);
  // The same where some of it may be memory of a device. -FI_EIO: the device has failed.
  int send_of_devices(Peer &peer, iovec *iov, size_t count);
  const sdk::Hmem *hmem() const { return settings_.hmem; }
  DeviceCopies *copies() const { return copies_.get(); }  // null: without FI_HMEM
  // The results of an atomic to their places. False: a device has failed.
  bool give_results(const TxOp &op, std::span<const uint8_t> bytes);
  void flush() {
    if (!unflushed_) return;
    unflushed_ = false;
    carrier_.flush();
  }
  bool has_unflushed() const { return unflushed_; }
  // Reports the end of the operation, which must be off all lists, and takes it back.
  void end(TxOp &op, int err);
  // Asks for Conversation::on_deadline() at that time or a little later; 0: never.
  void set_deadline(Peer &peer, uint64_t at_ns);
  // Asks for Conversation::on_idle() when there is nothing more to read, or before a blocking call.
  void want_idle(Peer &peer);
  // Asks for Conversation::on_room() at the next poll().
  void want_room(Peer &peer);
  // The conversation is over. When its call has returned, Core ends it with `err` and destroys it.
  // With `requeue`, operations that were not started wait for a new handshake; otherwise they fail.
  void lose(Peer &peer, int err, bool requeue);
  // Re-verify the peer by a handshake: whether it is the same process and knows the connection.
  // Lasts until trust() (which costs nothing), a reset, or an answer in the other protocol.
  void doubt(Peer &peer) {
    if (peer.link.is_up()) ask(peer);
  }
  void trust(Peer &peer) {
    if (peer.is_doubted()) end_doubt(peer);
  }

  // Executes an atomic of a peer: 0 or FI_E... The previous values go to `result`, `result_size`
  // bytes; an atomic that needs more room is refused.
  uint16_t execute(sdk::AtomicKind kind, uint8_t operation, uint8_t datatype,
                   std::span<const RmaVector> vectors, std::span<const uint8_t> operands,
                   std::span<const uint8_t> compares, std::span<uint8_t> result,
                   size_t &result_size);
  // Writes bytes to the vectors of a remote access, at `offset`: 0 or FI_E...
  uint16_t write_to(std::span<const RmaVector> vectors, uint64_t offset,
                    std::span<const uint8_t> bytes);
  // Finds the memory of [offset, offset + n) of the vectors: the number of pieces, or -FI_E...
  ssize_t resolve(std::span<const RmaVector> vectors, uint64_t access, uint64_t offset, uint64_t n,
                  iovec *iov, size_t room);

 private:
  friend class WeftConversation;
  // Calls into the core may nest (posting a receive delivers messages). When the outermost call
  // ends, leave() ends lost conversations, flushes, and sets the deadline.
  struct Leave {
    explicit Leave(Core &c) : core(c) { ++core.depth_; }
    ~Leave() {
      if (core.depth_ == 1) core.leave();
      --core.depth_;
    }
    Leave(const Leave &) = delete;
    Leave &operator=(const Leave &) = delete;
    Core &core;
  };

  // The peer to which a packet with this number and our cookie belongs; null: there is none.
  Peer *peer_of(uint32_t number, uint32_t cookie) const {
    Peer *peer = peers_.of_number(number);
    return peer != nullptr && peer->cookie == cookie && cookie != 0 ? peer : nullptr;
  }
  Peer *make(const sdk::Address &address, int &err);
  void name(Peer &peer, uint32_t index);
  bool admits(const sdk::Address &newcomer);
  bool may_go(const Peer &peer) const;
  void free(Peer &peer);
  void free_if_unused(Peer &peer) {
    if (peer.link.state() == sdk::PeerLink::State::kIdle && peer.conversation == nullptr &&
        peer.first == nullptr && peer.saved == 0 && !peer.losing)
      free(peer);
  }
  void leave();

  // ---- handshake ----
  // Begins one: for a connection, or while there is one, to verify it.
  void ask(Peer &peer);
  void repeat(Peer &peer, uint64_t now);
  void give_up(Peer &peer, int err);  // nobody answers: what waits for the handshake fails
  void send_connect(Peer &peer);
  void send_accept(Peer &peer, uint64_t index);
  wire::Part part_of(const Peer &peer);
  void fail_waiting(Peer &peer, int err);
  void converse(Peer &peer, std::unique_ptr<Conversation> conversation, WeftConversation *weft);
  void start_waiting(Peer &peer);
  std::unique_ptr<WeftConversation> make_weft(Peer &peer, const wire::Part &theirs);
  void become_weft(Peer &peer, std::unique_ptr<WeftConversation> made);
  bool become_stock(Peer &peer, std::span<const uint8_t> bytes, Buffer &buffer, bool proven);
  bool on_weft(std::span<const uint8_t> bytes, Buffer &buffer);
  bool on_stock(std::span<const uint8_t> bytes, Buffer &buffer, const Path *from);
  bool on_cts(const stock::Packet &packet, std::span<const uint8_t> bytes, Buffer &buffer,
              const Path *from);
  bool on_rts(const stock::Packet &packet, std::span<const uint8_t> bytes, Buffer &buffer,
              const Path *from);
  Peer *make_unproven(const sdk::Address &name);
  // Whether a packet in stock's format may come from the peer. Such packets have no secret, so
  // their source address must be the peer's.
  bool is_of(const Peer &peer, const Path *from) const {
    return peer.roams || from == peer.path || by_source_ == 0 || !carrier_.names_sources();
  }
  void update_sources(Peer &peer);
  void on_other_source(Peer &peer, const Path *from);
  void answer_with_challenge(const sdk::Address &from, std::span<const uint8_t> name,
                             uint64_t index);
  void on_challenge(const wire::Challenge &challenge, uint32_t last_place);
  void on_connect(const wire::Connect &connect, std::span<const uint8_t> bytes);
  void on_accept(Peer &peer, const wire::Accept &accept);
  // Calls it with a path to an address that may be no peer's.
  template <class F>
  void with_path(const sdk::Address &to, F use);
  void end_doubt(Peer &peer);

  // ---- places.cc ----
  uint32_t index_of_context(const sdk::Address &address, unsigned place) override;
  bool is_connected(uint32_t entry) override;
  void ask_for_places(uint32_t entry, const sdk::Address &first) override;
  void name_context(const sdk::Address &address, unsigned place, uint32_t index) override;
  bool asks_for_places(const Peer &peer) const;  // without an answer yet
  void learn_places(const Peer &peer, uint32_t last);

  void end_lost();
  void end_link(Peer &peer);
  void end_conversation(Peer &peer);
  void note_deadline(Peer &peer);
  void arm();
  void resume();
  bool has_key() const { return handshakes_.has_key(); }

  Carrier &carrier_;
  Upper &upper_;
  const Settings settings_;
  Counters counters_;
  sdk::Pool<TxOp> ops_;
  Inbox inbox_;
  std::unique_ptr<Pools> pools_;  // of weft conversations
  const std::unique_ptr<DeviceCopies> copies_;
  Handshakes handshakes_;
  PeerTable peers_;
  // Peers that may answer in stock's format: sources are read while there are any.
  size_t by_source_ = 0;
  std::vector<uint8_t> staging_;  // of send_of_devices()
  bool has_contexts_ = false;     // some peers are contexts
  bool only_tells_ = false;
  sdk::PlaceOwners owners_{*this};
  std::vector<Peer *> idle_, blocked_, losing_, turn_;
  Timers timers_;          // by the peers' numbers
  uint64_t deadline_ = 0;  // last given to the carrier
  uint32_t depth_ = 0;     // nested calls into the core
  uint32_t batch_ = 0;     // datagrams since on_idle()
  uint64_t passes_ = 0;    // calls of begin_pass()
  bool unflushed_ = false;
  size_t unanswered_ = 0;
  bool parting_ = false, down_ = false, full_ = false;
  int down_err_ = 0;   // with which operations fail
  bool waits_ = true;  // for the answers to close
};

}  // namespace weft::rxd

#endif
