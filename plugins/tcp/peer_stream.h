// SPDX-License-Identifier: BSD-2-Clause
// PeerStream: the stream between an FI_EP_RDM endpoint and one peer. RdmOperation: a transfer of
// the application on it. Saved: a message that arrived before its receive was posted.
//
// Example:
//    inline void send(PeerStream &stream, RdmOperation &op) {
//      stream.launch(op);  // sends it, or announces it if it is tagged and long
//    }
//    // At max_connections an idle stream makes room. It reads until the peer has closed its half.
//    inline bool close_if_idle(PeerStream &stream) {
//      if (!stream.is_idle()) return false;
//      stream.say_goodbye(/*hurry=*/false);
//      return true;
//    }
//
// All calls need the lock of the domain's engine. Not for connecting: peer.h, attempt.h.
#ifndef WEFT_PLUGINS_TCP_PEER_STREAM_H
#define WEFT_PLUGINS_TCP_PEER_STREAM_H

#include <weft/sdk/progress/engine.h>
#include <weft/sdk/transfers/receiver.h>

#include <string>
#include <vector>

#include "plugins/tcp/socket.h"
#include "plugins/tcp/stream.h"
#include "plugins/tcp/wire/rdm_message.h"

namespace weft::tcp {

class Peer;
class PeerStream;
class UnconnectedEndpoint;

// A transfer of the application. While the peer has room, a long tagged message is sent without an
// announcement (kLong), with a limit on the bytes queued. If it is too long for that, or the peer
// has no room, it is announced first and sent when the peer asks for it; `result` holds its payload
// vectors until then.
struct RdmOperation final : Operation {
  enum Stage : uint8_t { kWhole, kLong, kAnnounce, kAnnounced, kData };
  Stage stage = kWhole;
  uint8_t number = 0;  // of the rendezvous
  bool tagged = false;
  bool more = false;
  bool is_canceled = false;      // by fi_cancel, when it had begun
  bool is_injected : 1 = false;  // the application does not wait for it
  bool match : 1 = false;        // FI_MATCH_COMPLETE: announced, whatever its length
  uint16_t wire_flags = 0;
  uint64_t tag = 0, data = 0;
};

// A message without a receive: its bytes, or its announcement. If a peer has announced many, the
// endpoint fetches some within the limits before there is a receive, so that the peer does not run
// out of rendezvous numbers.
//
// Under FI_BUFFERED_RECV the application is told of a long message before it has a receive. If such
// a message is longer than what may be saved, only its first bytes are (`is_part`), and the rest
// stays in the socket until the application claims or discards it.
struct Saved final : sdk::Unexpected {
  enum Stage : uint8_t { kHere, kAnnounced, kFetching };
  Stage stage = kHere;
  uint8_t number = 0;     // of the rendezvous
  bool dropped = false;   // kFetching: the application discarded it
  bool is_part = false;   // kFetching: `bytes` has room for the first bytes only
  bool is_begun = false;  // is_part: they are there
  int error = 0;          // kHere: the bytes will never come; the error of its receive
  Peer *peer = nullptr;
  uint64_t claimed = 0;             // bytes when it is whole; counts for the peer's limit
  uint64_t cost = 0;                // bytes that arrived; counts for the endpoint's limits
  char *bytes = nullptr;            // kHere, kFetching
  PeerStream *stream = nullptr;     // not kHere
  sdk::Receive *receive = nullptr;  // kFetching: the receive that waits for it
  Saved *next = nullptr, *previous = nullptr;  // kAnnounced: others of the stream
};

class PeerStream final : public sdk::Handler, public Stream<PeerStream> {
 public:
  PeerStream(UnconnectedEndpoint &ep, Peer &peer, int fd, const Terms &terms);
  ~PeerStream() = default;

  Peer &peer() { return peer_; }
  const Peer &peer() const { return peer_; }
  void launch(RdmOperation &op);
  void flush() {
    if (open_) flush_output();
  }
  // The application posted a receive, or there is memory again.
  void resume();
  // Reads what has come so far.
  void read_out() {
    if (open_ && !stalled() && !starved_) receive();
    while (open_ && turns_ != 0) end_turn();
  }
  // Asks the peer for an announced message. `receive` null: it is dropped when it comes.
  void ask_for(Saved &announced, sdk::Receive *receive);
  // The first `n` bytes of an announced message are wanted: fetches it.
  void fetch_first(Saved &announced, size_t n);
  // Tells the peer when we have no more room for its long messages, or have room again.
  void say_whether_full();
  bool has_share() const { return has_share_; }
  // Messages with FI_MATCH_COMPLETE wait for their receives, and hardly a number is left for
  // others.
  bool has_many_matching() const { return matching_ >= kMostMatching; }
  // Nothing is in flight in either direction.
  bool is_idle() const;
  bool drains() const { return open_ && !output_empty(); }
  // Bytes of ours wait in the kernel for room at the peer.
  bool has_unsent() const { return open_ && tcp::has_unsent(socket_); }
  // Announced messages that the peer may still ask for, or has not acknowledged.
  bool has_announced() const {
    return open_ && !output_lost() && free_numbers_.size() != announced_.size();
  }
  // Injected ones among them, or among what has to wait before it is sent.
  bool has_injected() const;
  bool reads() const { return open_ && !stalled() && !starved_; }
  // Closes our half. The stream receives until the peer closes its half; with `hurry` at most for
  // handshake_timeout_ms.
  void say_goodbye(bool hurry);
  // Ends the stream and returns true if the peer has closed its side.
  bool is_over();
  // Another process claims to be the peer: has the kernel ask the peer's host whether the
  // connection still exists.
  void ask_whether_alive();
  void end(int error);
  void drop_region(const sdk::Mr &mr);
  uint64_t last_used() const { return last_used_; }
  // Stuck: neither a header nor many bytes came between two looks, nor a header since then, though
  // this side would read them.
  void look_at_input();
  bool is_stuck() const { return was_stuck_ && used_then_ == last_used_; }
  size_t place = 0;  // in the endpoint's list

  // The reader's sink.
  Verdict on_header(const FrameHeader &header, Target &target);
  void on_frame_end(const FrameHeader &header);
  Verdict on_rest(const FrameHeader &header, Target &rest);

  // ---- for Stream ----
  const weft_instance *instance() const;
  std::string peer_name() const;
  sdk::Pool<Operation> &control_ops();
  bool open() const { return open_; }
  void watch();
  void complete(Operation &op, int error);
  void ended();
  void failed(int error, const char *doing);
  void rejected(Reject reject);
  void lost(uint64_t flags, int error);
  void on_mute();
  void on_full();
  bool is_hidden() const { return true; }
  bool no_room_to_report() const;
  void written(const FrameHeader &header, bool counts);
  void was_read(uint64_t bytes);
  sdk::MrPeer mr_peer() const;
  bool prepare(Operation &op);
  bool begun(Operation &op);
  bool go_on_reading();

  // Handler
  void on_event(uint32_t events) override;
  void on_flush() override;
  void on_deadline() override;

 private:
  static constexpr size_t kSlots = kMaxRendezvous;
  static constexpr size_t kFetchFrom = kSlots / 2;  // announcements without a receive
  static constexpr size_t kMostMatching = 192;      // of kSlots
  // A message that the peer announced.
  struct Expected {
    bool used = false;
    bool asked = false;
    // Where the message goes; both null: it is dropped.
    sdk::Receive *receive = nullptr;
    Saved *saved = nullptr;
    sdk::Message message;
  };

  sdk::Message message_of(const FrameHeader &header) const;
  Verdict take_message(const FrameHeader &header, Target &target);
  Verdict take_announcement(const FrameHeader &header);
  Verdict take_clear(const FrameHeader &header);
  Verdict take_rendezvous(const FrameHeader &header, Target &target);
  void end_message(const FrameHeader &header);
  void end_announcement(const FrameHeader &header);
  void end_clear(const FrameHeader &header);
  void end_rendezvous(const FrameHeader &header);
  // This side waits for data or an answer that may be behind a message without room.
  bool is_urgent() const { return asked_ != 0 || answers_outstanding(); }
  // For such a message, or for what the peer sent before it heard that there is no room any more.
  bool has_extra() const { return is_urgent() || was_promised_; }
  Verdict stall();
  bool may_wait_a_turn(uint64_t payload) const;
  Verdict wait_a_turn();
  void end_turn();
  Verdict take_part(Saved &saved, const FrameHeader &header, Target &target);
  bool end_part();
  void fill(Saved &saved, uint64_t payload);
  void filled();
  bool may_fill() const;
  void look_whether_it_can_end();
  bool may_send_unasked(uint64_t length) const;
  bool may_match(const RdmOperation &op) const {
    return terms_.kind == EndpointKind::kRdm1 && (op.tagged || terms_.announces_any);
  }
  bool announce(RdmOperation &op);
  void ask(uint8_t number);
  bool clear(uint8_t context);
  void unlink(Saved &announced);
  void fetch(Saved &announced);

  UnconnectedEndpoint &ep_;
  Peer &peer_;
  const Terms terms_;
  bool open_ = true;
  bool leaving_ = false;       // our half is closed
  bool sends_long_ = false;    // the peer has room: long messages go without an announcement
  bool has_room_ = false;      // the same the other way: what we told the peer last
  bool has_share_ = false;     // of max_saved
  bool was_promised_ = false;  // the peer has been told to announce all, and has not done so yet
  uint64_t unasked_ = 0;       // bytes of kLong operations that are still queued
  uint64_t last_used_ = 0;
  // What look_at_input() saw: last_used_, and how much of the payload had not come.
  uint64_t used_then_ = UINT64_MAX, left_then_ = 0;
  bool was_stuck_ = false;
  // Where the current frame goes: a receive, or a saved message.
  sdk::Receive *current_ = nullptr;
  Saved *saving_ = nullptr;
  Saved *part_ = nullptr;  // Saved::is_part
  uint64_t fit_ = 0;
  Saved *filling_ = nullptr;  // the saved message that the payload goes to
  // Of the payload: its length, and how many bytes count_arrived() was told of.
  uint64_t fill_size_ = 0, filled_ = 0;
  bool starved_ = false;  // there is no room for the rest of the payload
  // A long message without a receive waits for the next progress: how many flushes are left until
  // then (0: none waits). And whether it has waited.
  uint8_t turns_ = 0;
  bool has_waited_ = false;
  sdk::Message last_message_;

  size_t matching_ = 0;                    // of announced_: RdmOperation::match
  std::vector<RdmOperation *> announced_;  // ours, by number - 1
  std::vector<uint8_t> free_numbers_;
  std::vector<Expected> expected_;  // the peer's, by number - 1
  uint32_t asked_ = 0;              // how many of them we asked for
  Saved *unanswered_ = nullptr;     // announcements without a receive
  size_t unanswered_count_ = 0;
};

}  // namespace weft::tcp

#endif
