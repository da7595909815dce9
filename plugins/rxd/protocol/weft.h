// SPDX-License-Identifier: BSD-2-Clause
// WeftConversation: the protocol between two connected weft peers (docs/rxd-protocol.md, sections 4
// to 9). Operations become frames in packets, lost packets are retransmitted, arriving packets are
// put in order, large messages are pulled by their receiver.
//
// Example:
//    // What Core does when the handshake is over and an operation waits. A part is what one side
//    // said of itself in the handshake.
//    inline void begin(Core &core, Peer &peer, const wire::Part &ours, const wire::Part &theirs,
//                      TxOp &waiting) {
//      peer.conversation = std::make_unique<WeftConversation>(core, peer, ours, theirs);
//      peer.conversation->start(waiting);
//    }
//
// It connects parts, each of which has a class in weft/: Operations are ours from start to end,
// with the Credit for them; the Outbox makes packets of them; the Sender gives these header and
// Seal. Order decides when packets of the peer are processed; Arrivals are its messages, Accesses
// what it does with our memory, Answers what we owe it. DatagramSize, Pings and Closing have
// timers. Link is what they share.
//
// weft.cc has timers and the end, weft_output.cc when packets leave, weft_input.cc who takes what
// comes.
//
// Channel decides which packets are lost and when a packet may leave. A packet is built once, in
// memory of a pool, which it keeps until it is acknowledged. Long payload stays in the user's
// memory or in the region that a peer reads. Only the growth of the pools allocates memory.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_H

#include <weft/sdk/progress/replies.h>

#include <cstdint>
#include <span>

#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/protocol/weft/accesses.h"
#include "plugins/rxd/protocol/weft/answers.h"
#include "plugins/rxd/protocol/weft/arrivals.h"
#include "plugins/rxd/protocol/weft/closing.h"
#include "plugins/rxd/protocol/weft/link.h"
#include "plugins/rxd/protocol/weft/operations.h"
#include "plugins/rxd/protocol/weft/order.h"
#include "plugins/rxd/protocol/weft/outbox.h"
#include "plugins/rxd/protocol/weft/sender.h"

namespace weft::rxd {

class WeftConversation final : public Conversation {
 public:
  WeftConversation(Core &core, Peer &peer, const wire::Part &ours, const wire::Part &theirs);
  ~WeftConversation() override;
  WeftConversation(const WeftConversation &) = delete;
  WeftConversation &operator=(const WeftConversation &) = delete;

  // The first `limit` of our part: packets that we accept at the beginning.
  static uint32_t first_limit(Core &core);
  const wire::Part &theirs() const { return theirs_; }
  // The cookie field of both sides' packets.
  uint32_t cookie() const { return sender_.seal().cookie(); }
  // The peer has answered the handshake once more.
  void heard() { note_heard(link_.now()); }
  // Sends close at once, to a peer with which nothing is outstanding. If the packet is lost, the
  // peer finds out by its next packet, which belongs to no connection here.
  void dismiss() { sender_.close(wire::PacketKind::kClose, link_.now()); }
  // A message that was charged to the peer's credit got a receive, or was discarded.
  void consumed(const Incoming &message) { arrivals_.consumed(message); }

  void start(TxOp &op) override;
  bool on_packet(std::span<const uint8_t> bytes, Buffer &buffer) override;
  void on_idle() override;
  void on_room() override;
  void on_deadline(uint64_t now) override;
  void fetch(Incoming &message) override;
  void fetch_first(Incoming &message, size_t n) override { arrivals_.fetch_first(message, n); }
  void discard(Incoming &message) override;
  void end(int err, Queue *unsent) override;
  void part() override;
  bool parted() const override { return closing_.is_over(); }
  bool busy() const override;

 private:
  // ---- weft.cc ----
  void note_heard(uint64_t now) {
    outbox_.pings().heard(now);
    link_.channel.heard(now);
  }
  uint64_t silent_until() const;
  bool waits() const;
  void arm(uint64_t now);
  void on_timeout();
  uint64_t close_pause() const { return Closing::pause(link_.channel.round_trip().smoothed()); }
  void end_copies();

  // ---- weft_output.cc ----
  void pump();
  bool send_lost(uint64_t now);
  void send_new(uint64_t now);
  bool leaves_with_reply();
  void begin_copies(TxOp &op);

  // ---- weft_input.cc ----
  void take_acknowledgement(const wire::Acknowledgement &ack, Moment now);
  bool take_data(const wire::Packet &packet, std::span<const uint8_t> bytes, Buffer &buffer,
                 Moment moment);
  bool keep(const wire::Packet &packet, uint64_t number, std::span<const uint8_t> bytes,
            Buffer &buffer, Moment moment, bool waits);
  bool process(const wire::Packet &packet, Order::Frames which);  // false: the conversation is over
  bool take_frame(const wire::FrameReader &frames);
  bool take_payload(const wire::DataFrame &f, std::span<const uint8_t> payload);
  void take_kept();
  void take_close();
  void resume();
  void end_landings();

  const wire::Part theirs_;
  Link link_;
  Operations operations_;
  Answers answers_;
  Accesses accesses_;
  Arrivals arrivals_;
  Order order_;
  Sender sender_;
  Outbox outbox_;
  Closing closing_;
  sdk::Replies replies_;  // to what the peer is told of its messages
  bool ended_ = false;
};

}  // namespace weft::rxd

#endif
