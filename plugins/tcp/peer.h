// SPDX-License-Identifier: BSD-2-Clause
// What an FI_EP_RDM endpoint keeps about one peer, from the first use on: how to get a stream to
// it (Peer, Attempt), and the stream while there is one (PeerStream).
//
//   Peer *peer = endpoint.peer_at(index);
//   peer->launch(*op);                  // now, or when there is a stream; connects if need be
//
// There is one stream per pair of endpoints, used in both directions; whoever sends first asks for
// it. A peer that was only inserted in the address vector has none of these. Everything with the
// lock of the domain's engine held. Which endpoint these belong to, and what limits them, is in
// unconnected_endpoint.h; who wins when both connect, in wire/peer_link.h.
#ifndef WEFT_PLUGINS_TCP_PEER_H
#define WEFT_PLUGINS_TCP_PEER_H

#include <weft/sdk/address.h>
#include <weft/sdk/engine.h>
#include <weft/sdk/receiver.h>

#include <memory>
#include <string>
#include <vector>

#include "plugins/tcp/stream.h"
#include "plugins/tcp/wire/connect_message.h"
#include "plugins/tcp/wire/peer_link.h"
#include "plugins/tcp/wire/rdm_message.h"

namespace weft::tcp {

class Peer;
class PeerStream;
class UnconnectedEndpoint;

// A transfer of the application's. A long tagged message (kLong) is sent as it is, with few at a
// time on their way; or, if it is too long for that, or the peer keeps much, it is announced first,
// and sent when the peer has a receive for it; its payload is in `result` until then.
struct RdmOperation final : Operation {
  enum Stage : uint8_t { kWhole, kLong, kAnnounce, kAnnounced, kData };
  Stage stage = kWhole;
  uint8_t number = 0;  // of the rendezvous
  bool tagged = false;
  bool more = false;
  uint16_t wire_flags = 0;
  uint64_t tag = 0, data = 0;
};

// A message that nobody had posted a receive for: its bytes, or its announcement. Where many are
// announced some are fetched unasked, while the limits allow it, so that the peer does not run out
// of numbers.
struct Saved final : sdk::Unexpected {
  enum Stage : uint8_t { kHere, kAnnounced, kFetching };
  Stage stage = kHere;
  uint8_t number = 0;    // of the rendezvous
  bool dropped = false;  // kFetching: nobody wants it any more
  int error = 0;         // kHere: why it cannot be had
  Peer *peer = nullptr;
  uint64_t claimed = 0;                        // bytes that it will have: of the peer's limit
  uint64_t cost = 0;                           // bytes that are here: of the endpoint's limits
  char *bytes = nullptr;                       // kHere, kFetching
  PeerStream *stream = nullptr;                // not kHere
  sdk::Receive *receive = nullptr;             // kFetching: who waits for it
  Saved *next = nullptr, *previous = nullptr;  // kAnnounced: by the same stream
};

class PeerStream final : public sdk::Handler, public Stream<PeerStream> {
 public:
  PeerStream(UnconnectedEndpoint &ep, Peer &peer, int fd, const Terms &terms);
  ~PeerStream() = default;

  Peer &peer() { return peer_; }
  void launch(RdmOperation &op);
  void flush() {
    if (open_) flush_output();
  }
  // The application posted a receive, or there is memory again.
  void resume();
  // Reads what has come so far.
  void read_out() {
    if (open_ && !stalled() && !starved_) receive();
  }
  // The receive that an announced message goes to; null: it is dropped when it comes.
  void ask_for(Saved &announced, sdk::Receive *receive);
  // Tells the peer if what we keep for its sake has become much, or is no longer.
  void say_whether_full();
  bool has_share() const { return has_share_; }
  // Nothing is on its way in either direction.
  bool is_idle() const;
  bool drains() const { return open_ && !output_empty(); }
  // The last word from here: what the peer still sends is taken, until it ends too. `hurry`: for as
  // long as a handshake may take.
  void say_goodbye(bool hurry);
  // Looks whether the peer's side is closed, and ends the stream if so.
  bool is_over();
  // Somebody says that the peer was restarted: the kernel asks its host, which knows.
  void ask_whether_alive();
  void end(int error);
  void drop_region(const sdk::Mr &mr);
  uint64_t last_used() const { return last_used_; }
  size_t place = 0;  // in the endpoint's list

  // The reader's sink.
  Verdict on_header(const FrameHeader &header, Target &target);
  void on_frame_end(const FrameHeader &header);

  // What the stream asks of its owner.
  const weft_instance *instance() const;
  std::string peer_name() const;
  sdk::Pool<Operation> &control_ops();
  bool open() const { return open_; }
  void watch();
  void complete(Operation &op, int error);
  void ended();
  void failed(int error, const char *doing);
  void rejected(Reject reject);
  bool no_room_to_report() const;
  void written(const FrameHeader &header, bool counts);
  void was_read(uint64_t bytes);
  static constexpr uint64_t holder() { return 0; }  // no layer has regions of its own here
  bool prepare(Operation &op);
  bool begun(Operation &op);
  bool go_on_reading();

  // Handler
  void on_event(uint32_t events) override;
  void on_flush() override;
  void on_deadline() override;

 private:
  static constexpr size_t kSlots = kMaxRendezvous;
  static constexpr size_t kFetchFrom = kSlots / 2;  // announcements that wait for a receive
  // A message that was announced.
  struct Expected {
    bool used = false;
    bool asked = false;
    sdk::Receive *receive = nullptr;  // where it goes, or
    Saved *saved = nullptr;           // there; neither: it is dropped
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
  // Something that this side waits for is behind what has no place.
  bool is_urgent() const { return asked_ != 0 || answers_outstanding(); }
  Verdict stall();
  void fill(Saved &saved, uint64_t payload);
  void filled();
  bool may_fill() const;
  void look_whether_it_can_end();
  bool may_send_unasked(uint64_t length) const;
  void ask(uint8_t number);
  bool clear(uint8_t context);
  void unlink(Saved &announced);
  void fetch(Saved &announced);

  UnconnectedEndpoint &ep_;
  Peer &peer_;
  const Terms terms_;
  bool open_ = true;
  bool leaving_ = false;     // our half is closed
  bool sends_long_ = false;  // without an announcement: the peer has room
  bool has_room_ = false;    // what it heard of us
  bool has_share_ = false;   // of what may be saved
  uint64_t unasked_ = 0;     // bytes of long messages that are not at the kernel yet
  uint64_t last_used_ = 0;
  // What the frame that is being received is for.
  sdk::Receive *current_ = nullptr;
  Saved *saving_ = nullptr;
  uint64_t fit_ = 0;
  Saved *filling_ = nullptr;  // where its payload goes, if it is saved; how long that is, and how
  uint64_t fill_size_ = 0, filled_ = 0;  // much of it is counted
  bool starved_ = false;                 // there is no room for the rest of it
  sdk::Message last_message_;

  std::vector<RdmOperation *> announced_;  // ours, by number - 1
  std::vector<uint8_t> free_numbers_;
  std::vector<Expected> expected_;  // the peer's, by number - 1
  uint32_t asked_ = 0;              // of those, how many are on their way
  Saved *unanswered_ = nullptr;     // announcements that nobody posted a receive for
  size_t unanswered_count_ = 0;
};

// Connecting to a peer, from the first try to the last; or once, to ask who is there (`probe`).
class Attempt final : public sdk::Handler {
 public:
  explicit Attempt(Peer &peer, bool probe = false) : peer_(peer), probe_(probe) {}
  ~Attempt();
  Result<void> connect();
  void wait_until(uint64_t at_ns);
  bool connecting() const { return socket_ >= 0; }
  int socket() const { return socket_; }
  short awaited() const;  // by poll(): POLLIN or POLLOUT
  // The answer, if it is here.
  void look() {
    if (requested_) on_answer();
  }
  void become_probe();
  void become_attempt();

  void on_event(uint32_t events) override;
  void on_deadline() override;

 private:
  void give_time();
  void on_connected();
  void prove();
  void request();
  void on_answer();
  void failed(PeerLink::Refusal refusal, int error);
  void warn(const char *what) const;

  Peer &peer_;
  bool probe_;
  int socket_ = -1;
  bool requested_ = false;
  uint64_t deadline_ = 0;                  // 0: none
  std::unique_ptr<KeyExchange> exchange_;  // until both have shown their key
  ConnectReader answer_{ConnectRole::kActive};
};

class Peer {
 public:
  Peer(UnconnectedEndpoint &ep, const sdk::SockAddr &address, uint32_t source)
      : endpoint(ep), address(address), source(source) {}

  void launch(RdmOperation &op) {
    if (stream != nullptr) {
      stream->launch(op);
    } else {
      wait(op);
    }
  }
  void wait(RdmOperation &op);
  // Takes over a socket on which the connection messages were exchanged.
  void open_stream(int fd, const Terms &terms, bool second);
  void try_again(PeerLink::Next next, int error);
  void fail_pending(int error);
  void attempt_failed(PeerLink::Refusal refusal, int error);
  void stream_ended(PeerStream &which);
  // There is no stream, or none any more: connects, if somebody needs one or has been asked.
  void reconnect();
  // A request that crossed ours is accepted. Ours goes on as a question: the requester may be
  // somebody else on the peer's host, and the peer itself rejects ours.
  void yield();
  // Another process than the one at the other end of the stream says that it is this peer.
  void challenge(bool may_connect);
  // The one who listens at the peer's address accepted a connection of ours: it is the peer, and
  // whoever had its place is not.
  void confirmed(int fd, const Terms &terms, uint32_t process);
  bool is_idle() const {
    return streams == 0 && saved == 0 && pending.empty() && attempt == nullptr && probe == nullptr;
  }

  UnconnectedEndpoint &endpoint;
  const sdk::SockAddr address;
  bool is_named() const { return source < sdk::Matcher::kFirstUnnamed; }

  uint32_t source;                // index in the address vector, or a number of its own
  std::vector<uint32_t> indices;  // that lead here
  PeerLink link;
  PeerStream *stream = nullptr;   // what is sent goes there
  PeerStream *leaving = nullptr;  // our half of it is closed
  uint32_t streams = 0;           // with second ends of a connection to ourselves, and old ones
  uint32_t saved = 0;             // messages
  uint64_t saved_bytes = 0;       // of these, when they are whole
  uint64_t arrived_bytes = 0;     // of these, so far
  std::unique_ptr<Attempt> attempt;
  std::unique_ptr<Attempt> probe;  // while there is a stream
  OperationList pending;           // until there is a stream
};

}  // namespace weft::tcp

#endif
