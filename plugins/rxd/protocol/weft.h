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
// Each part of it has a file: weft_output.cc makes packets of operations, weft_datagrams.cc sends
// them, weft_input.cc checks and orders packets of the peer, weft_messages.cc and weft_access.cc
// take what is in them, weft_kept.cc keeps packets that must wait, weft_devices.cc is for memory of
// devices, weft.cc has timers and the end.
//
// Channel decides which packets are lost and when a packet may leave. A packet is built once, in
// memory of a pool, which it keeps until it is acknowledged. Long payload stays in the user's
// memory or in the region that a peer reads. Only the growth of the pools allocates memory.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_H

#include <weft/sdk/pool.h>
#include <weft/sdk/replies.h>

#include <array>
#include <cstdint>
#include <span>

#include "plugins/rxd/protocol/channel.h"
#include "plugins/rxd/protocol/core.h"

namespace weft::rxd {

// Bytes of a message that may be sent unasked, credit permitting.
inline constexpr uint64_t kPrefix = 65536;
inline constexpr size_t kStream = 8;  // with as many unacknowledged packets there is a stream
// The pull window, at least: bytes that are asked for beyond those that have arrived.
inline constexpr uint64_t kMinPullWindow = 256 << 10;

// An answer that we owe the peer, until it is in a packet; for data that the peer reads, until they
// have arrived.
struct Answer {
  enum class Kind : uint8_t { kDone, kResult, kRead };
  Answer *next = nullptr;
  Kind kind = Kind::kDone;
  bool failed = false;  // kRead: the memory region was closed
  bool counts = false;  // in owed_
  uint8_t count = 0;    // vectors
  uint16_t status = 0;
  uint32_t id = 0;
  uint32_t packets = 0;  // packets with data of it that are not acknowledged
  uint64_t length = 0;   // bytes
  uint64_t sent = 0;
  struct Bytes {
    uint8_t bytes[kMaxAtomicSize];
  };
  Bytes *result = nullptr;
  Ahead *ahead = nullptr;  // kRead: copies of what is sent next, of memory of devices
  RmaVector vectors[kMaxVectors];
};

// A write of the peer of which more data will come.
struct Remote {
  Remote *next = nullptr;
  uint32_t id = 0;
  uint8_t count = 0;
  bool has_data = false;
  uint64_t data = 0;
  uint64_t length = 0, arrived = 0;
  Landing *landing = nullptr;  // copies of what has come, to memory of devices
  RmaVector vectors[kMaxVectors];
};

// A datagram that cannot be processed yet.
struct Kept {
  Kept *next = nullptr;
  uint64_t number = 0;
  std::span<const uint8_t> bytes;
  Buffer *buffer = nullptr;
  bool answered = false;  // the answers in it were processed; the rest waits
};

// A packet that was sent and not acknowledged, or waits to be sent.
struct OutPacket {
  static constexpr size_t kHead = wire::kHeaderSize + wire::kAcknowledgementSize;
  static constexpr size_t kFrames = 1472 - kHead;  // bytes
  TxOp *began = nullptr;                           // operations that begin here, by TxOp::beside
  TxOp *source = nullptr;                          // the operation whose payload follows the frames
  Answer *answer = nullptr;                        // or the answer whose payload follows
  uint64_t offset = 0;                             // of the payload
  uint32_t length = 0;
  uint16_t used = 0;  // bytes of frames
  uint16_t last = 0;  // where the frame of the payload begins
  bool ordered = false;
  bool asks = false;  // an operation ends when the packet is acknowledged
  uint8_t mac[wire::kMacSize];
  // Header, acknowledgement, frames; without an acknowledgement the header takes its place.
  uint8_t bytes[kHead + kFrames];
  OutPacket() {}  // NOLINT(modernize-use-equals-default): leaves `bytes` alone
};

// Memory that all conversations of a core share.
struct Pools {
  // Packets that are not kept: acknowledgements, probes. They must stay until a flush.
  static constexpr size_t kScratch = 64;
  struct Scratch {
    uint8_t bytes[wire::kMaxHead + 8 + wire::kMacSize];
  };
  SentPool sent{SIZE_MAX, 1};
  sdk::Pool<OutPacket> packets{SIZE_MAX, 4};
  sdk::Pool<Answer> answers{SIZE_MAX, 8};
  sdk::Pool<Answer::Bytes> results{SIZE_MAX, 2};
  sdk::Pool<Remote> remotes{SIZE_MAX, 4};
  sdk::Pool<Kept> kept{SIZE_MAX, 16};
  std::array<Scratch, kScratch> scratch;
  size_t next_scratch = 0;
  std::vector<uint8_t> zeros;  // of probes
};

class WeftConversation final : public Conversation {
 public:
  WeftConversation(Core &core, Peer &peer, const wire::Part &ours, const wire::Part &theirs);
  ~WeftConversation() override;
  WeftConversation(const WeftConversation &) = delete;
  WeftConversation &operator=(const WeftConversation &) = delete;

  // The first `limit` of our part: packets that we accept at the beginning.
  static uint32_t first_limit(Core &core);
  const wire::Part &theirs() const { return theirs_; }
  // The cookie field of both sides' packets. It names both ends: a packet of a connection that
  // shares only one end with this one does not match.
  uint32_t cookie() const { return cookie_; }
  // The peer has answered the handshake once more.
  void heard();
  // Sends close at once, to a peer with which nothing is outstanding.
  void dismiss();
  // A message that was charged to the peer's credit got a receive, or was discarded.
  void consumed(const Incoming &message);

  void start(TxOp &op) override;
  bool on_packet(std::span<const uint8_t> bytes, Buffer &buffer) override;
  void on_idle() override;
  void on_room() override;
  void on_deadline(uint64_t now) override;
  void fetch(Incoming &message) override;
  void fetch_first(Incoming &message, size_t n) override;
  void discard(Incoming &message) override;
  void end(int err, Queue *unsent) override;
  void part() override;
  bool parted() const override { return parted_; }
  bool busy() const override;

 private:
  enum class Built : uint8_t { kNothing, kPacket, kNoMemory };

  // ---- output ----
  void pump();
  bool has_output() const;
  bool gathers(const TxOp &op);
  bool leaves_with_reply();
  Built build(OutPacket *&packet);
  void add_answers(wire::Writer &w);
  void add_pulls(wire::Writer &w);
  bool add_starts(OutPacket &p, wire::Writer &w, size_t room);
  bool begin_message(OutPacket &p, wire::Writer &w, size_t room, TxOp &op);
  bool begin_access(OutPacket &p, wire::Writer &w, size_t room, TxOp &op);
  bool add_data(OutPacket &p, wire::Writer &w, size_t room);
  void add_payload(OutPacket &p, TxOp &op, uint64_t offset, uint64_t n);
  void begun(OutPacket &p, TxOp &op);
  void release_copied(OutPacket &p);
  void make_ready(TxOp &op);
  void not_ready(TxOp &op);
  int transmit(OutPacket &p, uint64_t number, uint64_t now, bool ask);
  void refuse(OutPacket &p, uint16_t status);
  bool fill(wire::Acknowledgement &ack, uint64_t now);
  bool send_acknowledgement(uint64_t now);
  bool send_alone(wire::PacketKind kind, uint64_t now);
  bool send_scratch(uint8_t *bytes, size_t size);
  uint8_t *scratch();
  void send_probe(uint64_t now);
  void start_probes(uint64_t now);
  void arm(uint64_t now);
  uint64_t wait_deadline() const;
  uint64_t close_pause() const;
  wire::Header header(wire::PacketKind kind, uint16_t flags, uint64_t now) const;
  // Bytes of an atomic's result that fit into a packet of any size that both ends may use.
  size_t result_room() const {
    const auto least = uint32_t(core_.settings().first_datagram);
    return std::min(kMaxAtomicSize,
                    std::min(datagram_, least) - overhead() - wire::kResultFrameSize);
  }
  size_t overhead() const { return OutPacket::kHead + (authentic_ ? wire::kMacSize : 0); }

  // ---- memory of devices ----
  void begin_copies(TxOp &op);
  ssize_t fetch(OutPacket &p, iovec *iov, size_t count);
  static uint64_t wanted(const TxOp &op);
  void fetched(const OutPacket &p);
  void land(TxOp &op, uint64_t offset, std::span<const uint8_t> payload);
  bool waits_for_copies(Landing &landing);
  uint16_t end_landing(Landing *&landing);
  void end_landings();
  void end_copies();

  // ---- input ----
  void take_acknowledgement(const wire::Acknowledgement &ack, Moment now);
  void arrived(OutPacket &p);
  bool take_data(const wire::Packet &packet, std::span<const uint8_t> bytes, Buffer &buffer,
                 Moment moment);
  bool keep(uint64_t number, std::span<const uint8_t> bytes, Buffer &buffer, bool answered);
  void take_kept();
  void resume();
  static bool reports(const wire::Packet &packet);
  static bool answers(const wire::FrameReader &frames);
  bool begun_here(const wire::Packet &packet) const;
  enum class Frames : uint8_t { kAll, kAnswers, kOthers };
  bool process(const wire::Packet &packet, Frames which);  // false: the conversation is over
  bool take_message(const wire::MessageFrame &f, std::span<const uint8_t> payload);
  bool take_payload(const wire::DataFrame &f, std::span<const uint8_t> payload);
  bool take_pull(const wire::PullFrame &f);
  bool take_done(const wire::DoneFrame &f);
  bool take_read(uint32_t id, const wire::VectorView &view);
  bool take_write(const wire::WriteFrame &f, const wire::VectorView &view,
                  std::span<const uint8_t> payload);
  bool take_atomic(const wire::AtomicFrame &f, const wire::VectorView &view,
                   std::span<const uint8_t> payload);
  bool take_result(const wire::ResultFrame &f, std::span<const uint8_t> payload);
  bool take_close();
  bool fail(const char *what);
  bool is_new(uint32_t id);
  TxOp *find(uint32_t id) const {
    for (TxOp *op = first_; op != nullptr && op != unsent_; op = op->next)
      if (op->id == id) return op;
    return nullptr;
  }
  Incoming *find_incoming(uint32_t id);
  void link(Incoming &m);
  void unlink(Incoming &m);
  void complete(Incoming &m);
  void share();
  void want(Incoming &m);
  void pull(Incoming &m);
  bool owe(uint32_t id, uint16_t status, bool counts = true) {
    Answer *a = new_answer(Answer::Kind::kDone, id, counts);
    if (a == nullptr) return false;
    a->status = status;
    return true;
  }
  uint64_t most_held() const;
  Answer *new_answer(Answer::Kind kind, uint32_t id, bool counts = true);
  void free_answer(Answer &a);
  bool finish(Remote &r, uint16_t status);
  void finish(TxOp &read);
  void grant();
  void raise_credit();
  void settle(TxOp &op);
  void unlink(TxOp &op);
  void end_settled();

  Core &core_;
  Peer &peer_;
  Pools &pools_;
  Channel channel_;
  const wire::Part theirs_;
  const uint32_t cookie_;
  std::unique_ptr<wire::Key> key_;
  const bool checksum_, authentic_;
  bool parting_ = false, parted_ = false, ended_ = false;
  bool data_turn_ = false;  // in this packet data go before new operations
  bool wants_ping_ = false;
  bool starved_ = false;      // an operation waits for credit
  bool tell_credit_ = false;  // the peer may wait for new credit
  bool stalled_ = false;      // packets are kept until the application reads its completions
  bool resumes_ = false;      // they are, or there are landed_
  uint8_t probe_ = 0, probe_tries_ = 0, close_tries_ = 0, asked_ = 0;
  uint32_t datagram_, largest_;   // bytes: in use now, the largest that a probe may find
  uint32_t seen_;                 // bytes of the largest datagram that arrived
  uint32_t probing_ = 0;          // bytes
  OutPacket *pending_ = nullptr;  // built, but the carrier did not take it
  // Operations, in order: those that have begun, then from unsent_ on those that have not.
  TxOp *first_ = nullptr, *last_ = nullptr, *unsent_ = nullptr;
  TxOp *ready_ = nullptr, *ready_last_ = nullptr;
  TxOp *settled_ = nullptr, *settled_last_ = nullptr;  // to be reported
  Answer *answers_ = nullptr, *answers_last_ = nullptr;
  Answer *reads_ = nullptr, *reads_last_ = nullptr;  // with data to send
  Incoming *messages_ = nullptr, *messages_last_ = nullptr, *hint_ = nullptr;
  Remote *remotes_ = nullptr;
  Landing *landed_ =
      nullptr;  // all of them has come; the last one is the first; copies are under way
  Kept *kept_ = nullptr;
  uint32_t kept_count_ = 0;
  uint32_t owed_ = 0;        // remote accesses of the peer that we have not answered
  uint32_t unanswered_ = 0;  // our remote accesses that the peer has not answered
  uint32_t pulls_ = 0;       // messages with wants_pull
  uint32_t pulled_ = 0;      // messages with a receive that are arriving
  uint32_t next_id_ = 0, their_next_id_ = 0;
  // Credit, ours and then the peer's: messages, and bytes of unasked payload.
  uint64_t started_ = 0, may_start_ = kFirstMessages;
  uint64_t unasked_ = 0, may_send_ = uint64_t{kFirstCredit} << 10;
  uint64_t came_ = 0, wanted_ = 0, granted_ = kFirstMessages;
  uint64_t held_ = 0, wanted_bytes_ = 0, granted_kib_ = kFirstCredit;
  uint64_t told_ = kFirstMessages, told_kib_ = kFirstCredit;  // as last sent to the peer
  sdk::Replies replies_;   // to what the peer is told of its messages
  uint32_t gathered_ = 0;  // bytes of short messages that wait to share a packet
  // Times in ns.
  uint64_t gather_until_ = 0;
  uint64_t heard_at_ = 0, ask_at_ = 0, probe_at_ = 0, close_at_ = 0;
  uint64_t epoch_at_ = 0, epoch_bytes_ = 0, pull_window_;
};

}  // namespace weft::rxd

#endif
