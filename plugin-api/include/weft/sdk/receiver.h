// SPDX-License-Identifier: BSD-2-Clause
// Receiver: the receive side of an endpoint that matches messages: what the application posted
// (fi_recv, fi_trecv in every form, FI_MULTI_RECV, FI_PEEK, FI_CLAIM, FI_DISCARD, directed
// receives), what arrived before it was wanted, and the completions. The protocol around it moves
// the bytes.
//
//   Message m{.tagged = true, .source = peer.index, .tag = 7, .length = n};
//   if (Receive *r = receiver.match(m)) {            // posted already: bytes go to r->iov
//     ... copy up to r->length bytes ...
//     receiver.complete(*r, m, received, 0);
//   } else {
//     Saved *s = ...;                                // the protocol's, derived from Unexpected
//     s->message = m;
//     receiver.save(*s);                             // sink.deliver(*s, receive) when it is wanted
//   }
//
// Called with the engine's lock held; post() and cancel(), which the endpoint calls, too. One
// receiver serves one endpoint or one shared receive context. Sources are indices of the address
// vector, or from Matcher::kFirstUnnamed on: the sender is not in it. Room in the completion queue
// is the endpoint's business, as are its state, its capabilities (FI_TAGGED_MULTI_RECV), and to
// make progress before an FI_PEEK.
#ifndef WEFT_SDK_RECEIVER_H
#define WEFT_SDK_RECEIVER_H

#include <rdma/fi_endpoint.h>
#include <sys/uio.h>
#include <weft/sdk/cntr.h>
#include <weft/sdk/cq.h>
#include <weft/sdk/match.h>
#include <weft/sdk/pool.h>

#include <cstdint>
#include <string>

namespace weft::sdk {

class Av;

// What a protocol knows about a message when it begins.
struct Message {
  bool tagged = false;
  bool has_data = false;
  uint32_t source = Matcher::kUnknownSource;
  uint64_t tag = 0;
  uint64_t data = 0;
  uint64_t length = 0;
};

// A receive that a message was matched with. `iov` is where the bytes go; a message longer than
// `length` is truncated: the protocol places `length` bytes and drops the rest.
struct Receive : Matcher::Posted {
  static constexpr size_t kIovLimit = 4;
  void *context = nullptr;
  uint64_t flags = 0;  // of the call
  size_t length = 0;   // bytes of iov
  uint32_t count = 0;
  bool tagged = false;
  iovec iov[kIovLimit];
  Receive *buffer = nullptr;  // the multi-receive buffer of which this is a part; it has the rest
  uint32_t users = 0;         // of a multi-receive buffer: parts not complete yet
  int err = 0;                // of a multi-receive buffer: how it ends, once it has no users
  size_t at = 0;              // of a multi-receive buffer: bytes given out
  bool open = false;          // of a multi-receive buffer: takes more messages
};

// A message that nobody had posted a receive for. The protocol derives from it what it needs to go
// on: the bytes, or how to fetch them.
struct Unexpected : Matcher::Arrived {
  Message message;

 private:
  friend class Receiver;
  Unexpected *next_ = nullptr;  // claimed, or about to be delivered
  void *holder_ = nullptr;      // the context of the claim, or the receive
  bool claimed_ = false;
};

class ReceiverSink {
 public:
  // `message` is wanted now: by `receive` (complete it, at once or later). It is off all lists. May
  // call whatever the receiver has but post().
  virtual void deliver(Unexpected &message, Receive &receive) = 0;
  // Nobody will ever want it: FI_DISCARD, or the endpoint closes. Free it, tell the peer if needed.
  virtual void discard(Unexpected &message) = 0;
  // Under FI_SOURCE_ERR: the raw address of a sender that has none in the vector (its sockaddr).
  virtual std::string source_address(const Message &message) {
    (void)message;
    return {};
  }

 protected:
  ~ReceiverSink() = default;
};

struct RecvRequest {
  bool tagged = false;
  const iovec *iov = nullptr;
  size_t count = 0;
  fi_addr_t src = FI_ADDR_UNSPEC;  // used under FI_DIRECTED_RECV only
  uint64_t tag = 0, ignore = 0;
  uint64_t flags = 0;  // FI_COMPLETION, FI_MULTI_RECV, FI_PEEK, FI_CLAIM, FI_DISCARD, FI_MORE
  void *context = nullptr;
};

struct ReceiverSettings {
  size_t size = 1024;       // rx_attr.size: receives posted at once
  bool directed = false;    // FI_DIRECTED_RECV
  bool source = false;      // FI_SOURCE: completions say where from
  bool source_err = false;  // FI_SOURCE_ERR: an unknown source is an error entry with its address
};

class Receiver {
 public:
  Receiver(ReceiverSink &sink, const ReceiverSettings &settings);
  ~Receiver();  // discards what was saved; receives still posted are forgotten
  Receiver(const Receiver &) = delete;
  Receiver &operator=(const Receiver &) = delete;

  // Where completions go; the address vector gives sources their names. Set before the first post.
  // Of a shared receive context: of one of its endpoints, for what belongs to no message (FI_PEEK,
  // what was cancelled, a multi-receive buffer that was given up).
  Cq *cq = nullptr;
  bool selective = false;  // the queue was bound with FI_SELECTIVE_COMPLETION
  Cntr *cntr = nullptr;
  Av *av = nullptr;
  size_t min_multi_recv = 64;  // bytes (FI_OPT_MIN_MULTI_RECV)

  // fi_recv* and fi_trecv*. 0 or -FI_E...; -FI_EAGAIN: `size` are posted. What was peeked at or
  // discarded counts as a completion, but not in the counter: nothing was received.
  ssize_t post(const RecvRequest &request);
  // fi_cancel: 0, or -FI_ENOENT if no receive with this context is posted (a completion with
  // FI_ECANCELED follows a 0; of a multi-receive buffer when its last message has completed).
  ssize_t cancel(const void *context);
  // The endpoint goes down or closes: every receive that is posted fails with `err` (FI_ECANCELED).
  void fail_posted(int err);

  // The receive that the message belongs to, off the queue; null: none is posted.
  Receive *match(const Message &message);
  // The bytes are in place: reports and forgets the receive. `err` 0 or FI_E...; truncation is
  // found here, from message.length and receive.length. `received` bytes were placed.
  void complete(Receive &receive, const Message &message, size_t received, int err) {
    complete(receive, message, received, err, cq, cntr);
  }
  // The same, of a shared receive context: the endpoint has its own queue and counter.
  void complete(Receive &receive, const Message &message, size_t received, int err, Cq *to_cq,
                Cntr *to_cntr);
  // Keeps it (message.message says what it is) until it is wanted.
  void save(Unexpected &message);
  // Unexpected messages of a peer that is gone, for those which cannot be fetched any more: the
  // protocol looks through them, and may forget() the one it is given. Claimed ones come last.
  template <class F>
  void visit_unexpected(uint32_t source, F visit) {
    const auto pass = [&](Matcher::Arrived &m) { visit(static_cast<Unexpected &>(m)); };
    tagged_.visit_arrived(source, pass);
    untagged_.visit_arrived(source, pass);
    for (Unexpected *m = claimed_; m != nullptr;) {
      Unexpected *next = m->next_;
      if (source == Matcher::kAnySource || m->source == source) visit(*m);
      m = next;
    }
  }
  void forget(Unexpected &message);  // takes it off the lists; the caller frees it
  // A sender without an address got one, or lost it: its messages are now `to`'s. Delivers those
  // that a directed receive waits for.
  void rename_source(uint32_t from, uint32_t to);

  size_t posted() const { return tagged_.posted() + untagged_.posted(); }
  // Saved messages, those that are claimed too.
  size_t unexpected() const { return tagged_.arrived() + untagged_.arrived() + claimed_count_; }
  size_t left() const { return receives_.limit() - receives_.in_use(); }  // fi_rx_size_left

 private:
  Matcher &matcher(bool tagged) { return tagged ? tagged_ : untagged_; }
  Receive *take(const RecvRequest &request, uint32_t source);
  Receive *take_part(Receive &buffer, uint64_t length, Cq *to_cq, Cntr *to_cntr);
  Receive *take_posted(Matcher &matcher, const Message &message);
  void fill(Receive &buffer, Matcher &matcher);
  void end(Receive &buffer, Cq *to_cq, Cntr *to_cntr);
  void fail(Receive &receive, int err);
  ssize_t look(const RecvRequest &request, uint32_t source);
  Unexpected *find_claimed(bool tagged, const void *context) const;
  void unclaim(Unexpected &message);
  bool reports(uint64_t flags) const { return !selective || flags & FI_COMPLETION; }
  fi_addr_t name(uint32_t source) const;
  void report_none(const RecvRequest &request);

  ReceiverSink &sink_;
  const ReceiverSettings settings_;
  Matcher tagged_, untagged_;
  Pool<Receive> receives_;
  Pool<Receive> parts_;  // of multi-receive buffers: as many as there are messages being received
  Unexpected *claimed_ = nullptr;
  size_t claimed_count_ = 0;
};

}  // namespace weft::sdk

#endif
