// SPDX-License-Identifier: BSD-2-Clause
// The stream to one peer of an FI_EP_RDM endpoint (PeerStream), the transfers of the application
// that it carries (RdmOperation), and the messages that it received before there was a receive for
// them (Saved).
//
//   stream->launch(*op);                              // sends, or announces a long tagged message
//   Verdict PeerStream::on_header(header, target)     // by the Reader: where the payload goes
//
// Everything with the lock of the domain's engine held. How a stream comes into being is in peer.h.
#ifndef WEFT_PLUGINS_TCP_PEER_STREAM_H
#define WEFT_PLUGINS_TCP_PEER_STREAM_H

#include <weft/sdk/engine.h>
#include <weft/sdk/receiver.h>

#include <string>
#include <vector>

#include "plugins/tcp/stream.h"
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

  // What Stream asks of its Upper.
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

}  // namespace weft::tcp

#endif
