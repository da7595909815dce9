// SPDX-License-Identifier: BSD-2-Clause
// Receiver: a receive context (contexts.h) that matches messages in software: posted receives
// (fi_recv and fi_trecv in every form, FI_MULTI_RECV, FI_PEEK, FI_CLAIM, FI_DISCARD, directed
// receives), unexpected messages, and the completions. The protocol around it moves the bytes.
//
// Example:
//    struct Saved : Unexpected {
//      std::string bytes;
//    };
//    void on_message(Receiver &receiver, uint32_t peer, uint64_t tag, const std::string &bytes) {
//      const Message m{.tagged = true, .source = peer, .tag = tag, .length = bytes.size()};
//      if (Receive *r = receiver.match(m)) {  // posted already: bytes go to r->iov
//        const size_t n = std::min(bytes.size(), r->length);
//        scatter(r->iov, r->count, 0, bytes.data(), n);
//        receiver.complete(*r, m, n, 0);
//      } else {
//        auto *saved = new Saved;
//        saved->message = m;
//        saved->bytes = bytes;
//        receiver.save(*saved);  // ReceiverSink::deliver(*saved, receive) when a receive wants it
//      }
//    }
//
// Called with the engine's lock held, also post() and cancel(), which the endpoint calls. Sources
// are indices of the address vector, or numbers from Matcher::kFirstUnnamed on for senders that are
// not in it. Receives are taken as long as there is memory: rx_attr.size is how many an application
// expects. A call that completes at once reports that even where the completion queue is full,
// which grows (cq.h): an application may post all of its receives before it reads a completion.
// The endpoint has to care for room for messages that arrive later, its state, its capabilities
// (FI_TAGGED_MULTI_RECV), and progress before an FI_PEEK.
//
// Every endpoint has a receiver, and so has a shared receive context (shared_receive.h), which has
// no messages of its own. A receiver that share()s a context's matches its messages with the
// receives posted there, and keeps its unexpected ones there; the protocol sees no difference. The
// context may be imported (FI_PEER): then another provider has the receives, and a message that is
// larger than what an endpoint saves waits until there is room, even if a receive for it was posted
// meanwhile.
//
// With ReceiverSettings::buffered the memory of messages is the receiver's (FI_BUFFERED_RECV,
// "Buffered Receives" of fi_msg.3): a message up to FI_OPT_BUFFERED_LIMIT finds a receive like any
// other, in that memory. A longer one finds none and is saved; the application is told of it and of
// its first FI_OPT_BUFFERED_MIN bytes (ReceiverSink::read_first), and claims or discards it. The
// calls of the protocol are the same.
#ifndef WEFT_SDK_TRANSFERS_RECEIVER_H
#define WEFT_SDK_TRANSFERS_RECEIVER_H

#include <rdma/fi_endpoint.h>
#include <sys/uio.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/memory/pool.h>
#include <weft/sdk/objects/contexts.h>
#include <weft/sdk/transfers/match.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace weft::sdk {

// What a protocol knows about a message when the message begins.
struct Message {
  bool tagged = false;
  bool has_data = false;
  uint16_t prov_errno = 0;  // what a device says of an error; 0: what it is reported as
  uint32_t source = Matcher::kUnknownSource;
  uint64_t tag = 0;
  uint64_t data = 0;
  uint64_t length = 0;
};

class BufferedReceives;
class Hmem;
class ImportedReceives;
class LentReceives;
class Receiver;

// A receive that a message was matched with. `iov` is where the bytes go; a message longer than
// `length` is truncated: the protocol places `length` bytes and drops the rest.
struct Receive : Matcher::Posted {
  void *context = nullptr;
  uint64_t flags = 0;  // of the call
  size_t length = 0;   // bytes of iov
  uint32_t count = 0;
  bool tagged = false;
  bool open = false;  // of a multi-receive buffer: takes more messages
  iovec iov[kIovLimit];
  Receive *buffer = nullptr;  // the multi-receive buffer of which this is a part; it has the rest
  uint32_t users = 0;         // of a multi-receive buffer: parts not complete yet
  int err = 0;                // of a multi-receive buffer: how it ends, once it has no users
  size_t at = 0;              // of a multi-receive buffer: bytes given out
  uint64_t number = 0;        // in the order of the posts, where the protocol keeps receives

  // The descriptors of iov as the application passed them, if the receiver keeps them
  // (ReceiverSettings::descriptors); null: it does not. Each may be null.
  void *const *desc() const { return (buffer != nullptr ? buffer->desc_ : desc_).get(); }

 private:
  friend class Receiver;
  friend class BufferedReceives;
  friend class ImportedReceives;
  friend class LentReceives;
  std::unique_ptr<void *[]> desc_;  // made when the object is first used, and kept in the pool
  Receiver *taker_ = nullptr;       // of a shared receive context: the receiver of the message
};

// A message without a posted receive. The protocol derives a class from it with what it needs
// later: the bytes, or how to fetch them.
struct Unexpected : Matcher::Arrived {
  Message message;
  // Its first bytes were not here: Receiver::on_more() is due when they come, or never will.
  bool waits_for_bytes() const { return waits_; }

 private:
  friend class Receiver;
  friend class BufferedReceives;
  friend class ImportedReceives;
  Receiver *receiver_ = nullptr;  // of the endpoint that it came to
  Unexpected *next_ = nullptr;    // claimed, or about to be delivered
  // The context of the claim, the receive, the owner's entry, or the notice of BufferedReceives.
  void *holder_ = nullptr;
  bool claimed_ = false;
  bool waits_ = false;
  enum : uint8_t { kElsewhere, kPaired, kNoticed } buffered_ = kElsewhere;  // in BufferedReceives
};

class ReceiverSink {
 public:
  // `receive` wants `message` now: complete it, at once or later. It is off all lists. May call
  // anything of the receiver but post().
  virtual void deliver(Unexpected &message, Receive &receive) = 0;
  // No receive will want it: FI_DISCARD, or the endpoint closes. Free it, tell the peer if needed.
  // Its read_first() is not under way, but where the endpoint closes.
  virtual void discard(Unexpected &message) = 0;
  // No saved message is for this receive, which was just posted. True: the protocol keeps it, for a
  // device that matches by itself. Then it is on no list, and match() does not find it. It comes
  // back by Receiver::complete(), give_up(), or put_back(). Not for shared receive contexts.
  virtual bool keep(Receive &receive) {
    (void)receive;
    return false;
  }
  // There is a receive of a shared receive context: a message that waits for a receive may go on.
  virtual void on_shared_receive() {}
  // Whether it is to be called; asked once. `imported`: of an imported context, which does not know
  // when there is one, so that it would be called in each progress.
  virtual bool waits_for_receives([[maybe_unused]] bool imported) const { return true; }
  // Of a buffered receiver: copies the first `n` bytes of a saved message, which has as many. 0;
  // -FI_EAGAIN: they are not here, and Receiver::on_more() follows, but not at once; another
  // -FI_E...: they never come. `to` stays valid until then.
  virtual int read_first(Unexpected &message, void *to, size_t n) {
    (void)message, (void)to, (void)n;
    return -FI_ENOSYS;
  }
  // How many of them it may be asked for.
  virtual size_t most_first() const { return SIZE_MAX; }
  // Under FI_SOURCE_ERR: the raw address of a sender that has none in the vector (its sockaddr).
  virtual std::string source_address(const Message &message) {
    (void)message;
    return {};
  }
  // Then, in a domain with keys (FI_AV_AUTH_KEY): what Av::reported_key() says of the sender's.
  virtual fi_addr_t source_key(const Message &message) {
    (void)message;
    return FI_ADDR_NOTAVAIL;
  }

 protected:
  ~ReceiverSink() = default;
};

struct RecvRequest {
  bool tagged = false;
  const iovec *iov = nullptr;
  void *const *desc = nullptr;  // fi_mr_desc of each vector; null: none were passed
  size_t count = 0;
  fi_addr_t src = FI_ADDR_UNSPEC;  // used under FI_DIRECTED_RECV only
  uint64_t tag = 0, ignore = 0;
  // FI_COMPLETION, FI_MULTI_RECV, FI_PEEK, FI_CLAIM, FI_DISCARD, FI_MORE; kDeferred
  uint64_t flags = 0;
  void *context = nullptr;
};

struct ReceiverSettings {
  size_t size = 1024;        // rx_attr.size: receives that the application expects to post at once
  bool directed = false;     // FI_DIRECTED_RECV
  bool source = false;       // FI_SOURCE: completions tell the source
  bool source_err = false;   // FI_SOURCE_ERR: an unknown source is an error entry with its address
  bool descriptors = false;  // a Receive keeps those of the call, in 32 bytes more
  bool keeps = false;        // ReceiverSink::keep() is asked
  bool buffered = false;     // FI_BUFFERED_RECV
  const Hmem *devices = nullptr;  // of a buffered receiver: claims may be to memory of these
};

class Receiver : public RxContext {
 public:
  Receiver(ReceiverSink &sink, const ReceiverSettings &settings);  // an endpoint's
  explicit Receiver(const ReceiverSettings &settings);             // a shared receive context's
  ~Receiver();  // discards what was saved; receives still posted are forgotten
  Receiver(const Receiver &) = delete;
  Receiver &operator=(const Receiver &) = delete;

  // Where completions go (RxContext) is set before the first post. A shared receive context has no
  // such place: one of its endpoints reports what belongs to no message (an FI_PEEK that finds
  // nothing, a cancelled receive).
  size_t &min_multi_recv() { return queues_->min_multi_recv; }  // bytes (FI_OPT_MIN_MULTI_RECV)

  // From now on receives are those of `context`, until leave(): before the first message.
  void share(Receiver &context);
  // The endpoint closes, and its messages are gone already. The context's receives that it still
  // has are given up without a report. Receives of its own are forgotten.
  void leave();
  // Of a context: its receives are those of another provider (FI_PEER). Null: not any more.
  void import(ImportedReceives *receives) { own_.import = receives; }
  // Of a context: whether an endpoint with this address vector may share it (they all have one).
  bool takes(const Av *vector) const {
    for (const Receiver *user : queues_->users)
      if (user->av != nullptr && user->av != vector) return false;
    return true;
  }
  // Of a context: whether an endpoint has a queue for what belongs to no message.
  bool can_tell() { return speaker().cq != nullptr; }
  // Of a context, after a post: endpoints that waited for a receive go on.
  void tell_users();

  // fi_recv* and fi_trecv*. 0 or -FI_E...; -FI_ENOMEM: there is no memory for one more;
  // -FI_EOPNOTSUPP: receives are posted to the shared context. An FI_PEEK or FI_DISCARD completes,
  // but does not count in the counter: nothing was received.
  ssize_t post(const RecvRequest &request);
  // The application's, of a receive that may be deferred work.
  static const void *context_of(const Receive &receive);
  // fi_cancel: 0, or -FI_ENOENT if no receive with this context is posted (a completion with
  // FI_ECANCELED follows a 0; of a multi-receive buffer when its last message has completed).
  ssize_t cancel(const void *context);
  // The endpoint goes down or closes: every receive that is posted fails with `err` (FI_ECANCELED).
  void fail_posted(int err);

  // The receive that the message belongs to, off the queue; null: none is posted. `full` is for
  // callers that go on reading while the completion queue is full (cq.h). It is set, and nothing is
  // taken, if a multi-receive buffer would take the message and there is no room to report it.
  Receive *match(const Message &message, bool *full = nullptr);
  // Whether match() would find one. Of an imported context: false.
  bool is_wanted(const Message &message) {
    return matcher(message.tagged).find_posted(message.source, message.tagged ? message.tag : 0) !=
           nullptr;
  }
  // The bytes are in place: reports and forgets the receive. `err` 0 or FI_E...; truncation is
  // found here, from message.length and receive.length. `received` bytes were placed.
  void complete(Receive &receive, const Message &message, size_t received, int err);
  // ---- receives that the protocol keeps (ReceiverSink::keep) ----
  // Bytes of a multi-receive buffer that the device has chosen for a message; null: no memory.
  Receive *part_at(Receive &buffer, size_t at, size_t length);
  // It takes no more messages. It ends with the last of those that it has.
  void close_buffer(Receive &buffer);
  // The device has no place for it: it gets a saved message, or is posted here, behind the others.
  // A multi-receive buffer that is still open is offered to keep() again.
  void put_back(Receive &receive);
  // It ends without a message, with `err`.
  void give_up(Receive &receive, int err) { fail(receive, err); }
  // The oldest that is posted here, to be kept after all. Null: there is none.
  Receive *take_oldest();

  // ---- FI_BUFFERED_RECV ----
  // Null: not buffered.
  BufferedReceives *buffered() { return buffered_.get(); }
  // Whether the application is to be told of the message before it is here. Then it may be saved
  // without its bytes, and is delivered or discarded later.
  bool is_told_early(const Message &message);
  // As many of its first bytes have to be there then.
  size_t first_bytes() const;
  // The first bytes of a saved message have come, or never will (Unexpected::waits_for_bytes). The
  // message may be gone when this returns.
  void on_more(Unexpected &message);

  // Keeps it (message.message says what it is) until it is wanted.
  void save(Unexpected &message);
  // Visits the unexpected messages of a source. A protocol does so when a peer is gone, because
  // some cannot be fetched any more. `visit` may forget() the message that it gets. Claimed ones
  // come last.
  template <class F>
  void visit_unexpected(uint32_t source, F visit) {
    const auto pass = [&](Matcher::Arrived &a) {
      auto &m = static_cast<Unexpected &>(a);
      if (m.receiver_ == this) visit(m);
    };
    queues_->tagged.visit_arrived(source, pass);
    queues_->untagged.visit_arrived(source, pass);
    for (Unexpected *m = queues_->claimed; m != nullptr;) {
      Unexpected *next = m->next_;
      if (source == Matcher::kAnySource || m->source == source) pass(*m);
      m = next;
    }
    if (buffered_ == nullptr) return;
    for (Unexpected *m = next_buffered(nullptr); m != nullptr;) {
      Unexpected *next = next_buffered(m);
      if (source == Matcher::kAnySource || m->source == source) pass(*m);
      m = next;
    }
  }
  void forget(Unexpected &message);  // takes it off the lists; the caller frees it
  // A sender without an address got one, or lost it: the source of its messages is now `to`.
  // Delivers those that a directed receive waits for.
  void rename_source(uint32_t from, uint32_t to);

  // Of all endpoints of the context, if this receiver is or shares one.
  size_t posted() const { return queues_->tagged.posted() + queues_->untagged.posted(); }
  // Saved messages, those that are claimed too, but not those that a buffered receiver has told of.
  size_t unexpected() const {
    return queues_->tagged.arrived() + queues_->untagged.arrived() + queues_->claimed_count;
  }
  size_t size() const { return queues_->size; }  // rx_attr.size
  // fi_rx_size_left: of these.
  size_t left() const {
    return queues_->size - std::min(queues_->size, queues_->receives.in_use());
  }

 private:
  friend class BufferedReceives;
  friend class ImportedReceives;
  friend class LentReceives;
  struct Queues {
    explicit Queues(size_t size) : size(size) {}
    const size_t size;  // receives that are expected
    Matcher tagged, untagged;
    Pool<Receive> receives{SIZE_MAX};
    // Of multi-receive buffers: as many as there are messages being received.
    Pool<Receive> parts{SIZE_MAX};
    Unexpected *claimed = nullptr;
    size_t claimed_count = 0;
    size_t min_multi_recv = 64;
    std::vector<Receiver *> users;  // of a shared receive context: its endpoints'
    std::vector<Receiver *> told;   // of these, those that wait for receives
    size_t turn = 0;                // the one that is told of a receive first
    ImportedReceives *import = nullptr;
  };

  // Its receives are those of a context, or buffered: not the usual case.
  bool shares() const { return queues_ != &own_; }
  // The receiver that reports what belongs to no message.
  Receiver &speaker();
  Matcher &matcher(bool tagged) { return tagged ? queues_->tagged : queues_->untagged; }
  bool find_source(const RecvRequest &request, uint32_t &source);
  Receive *take(const RecvRequest &request, uint32_t source);
  static bool keep_descriptors(Receive &receive, const RecvRequest &request);
  Receive *take_part(Receive &buffer, uint64_t length);
  Receive *take_posted(Matcher &matcher, const Message &message, bool *full = nullptr);
  Receive *match_elsewhere(const Message &message, bool *full);
  void fill(Receive &buffer);
  void deliver(Unexpected &message, Receive &receive);
  void end(Receive &buffer);
  void complete_deferred(Receive &receive, const Message &message, size_t received, int err);
  void complete_imported(Receive &receive, const Message &message, size_t received, int err);
  void report_error(const Receive &receive, const Message &message, size_t received, int err,
                    void *place);
  // What an owner calls a source; FI_ADDR_UNSPEC: it has no name, or none is asked for.
  fi_addr_t address_for(uint32_t source) const;
  void fail(Receive &receive, int err);
  void enlist(Receive &receive);
  ssize_t look(const RecvRequest &request, uint32_t source);
  Unexpected *find_claimed(bool tagged, const void *context) const;
  void unclaim(Unexpected &message);
  fi_addr_t name(uint32_t source) const;
  void report_none(const RecvRequest &request);
  Unexpected *next_buffered(Unexpected *message);  // of null: the first

  ReceiverSink *const sink_;  // null: a context
  const ReceiverSettings settings_;
  Queues own_;
  std::unique_ptr<BufferedReceives> buffered_;
  Queues *queues_ = &own_;  // its own, the context's, or those of buffered_
  uint64_t posts_ = 0;
};

}  // namespace weft::sdk

#endif
