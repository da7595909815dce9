// SPDX-License-Identifier: BSD-2-Clause
// Inbox: messages that arrive: those of one packet, those in segments, and those that are saved
// because no receive is posted for them, in their receive buffers or as copies.
//
// Example:
//    // A message of one packet. True: its receive buffer is kept.
//    inline bool on_message(Inbox &inbox, Connection &from, const sdk::Message &message,
//                           std::span<const uint8_t> payload, Buffer &buffer) {
//      if (inbox.take(message, payload)) return false;  // into a receive that was posted
//      RxMessage *const m = inbox.add(from, RxMessage::Form::kWhole, message);
//      if (m == nullptr) return false;  // there is no memory
//      m->received = payload.size();
//      const bool kept = inbox.keep(from, *m, payload, buffer);
//      inbox.save(*m);
//      return kept;
//    }
//
// It owns the messages, what a connection has in Connection::arriving, and what is charged to
// Shares. Whom to tell of a message it returns (Word). Not for how large ones are fetched
// (fetches.h), nor for which message a receive gets: the SDK's Receiver decides that.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_INBOX_H
#define WEFT_PLUGINS_RXM_PROTOCOL_INBOX_H

#include <rdma/fi_errno.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/memory/pool.h>
#include <weft/sdk/transfers/receiver.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "plugins/rxm/protocol/carrier.h"
#include "plugins/rxm/protocol/connection.h"
#include "plugins/rxm/protocol/counters.h"
#include "plugins/rxm/protocol/fetches.h"
#include "plugins/rxm/protocol/peers.h"
#include "plugins/rxm/protocol/settings.h"
#include "plugins/rxm/protocol/shares.h"
#include "plugins/rxm/protocol/upper.h"

namespace weft::rxm {

class Inbox {
 public:
  static constexpr const char *kNoMemory = "more messages than there is memory for";

  // A sender that is due word of its message.
  struct Word {
    Connection *to = nullptr;  // null: none is
    uint64_t id = 0;
    bool always = false;  // a stock peer is told, too: it is a rendezvous
  };
  struct Taken {
    bool kept = false;                // its receive buffer
    const char *violation = nullptr;  // the peer has sent that
    Word word;
  };

  Inbox(Carrier &carrier, Upper &upper, const Settings &settings, Counters &counters, Peers &peers,
        Shares &shares, Fetches &fetches);
  ~Inbox();
  Inbox(const Inbox &) = delete;
  Inbox &operator=(const Inbox &) = delete;

  // ---- messages of one packet ----
  // Into the receive that is posted for it. False: there is none. Inline: a message that is
  // expected passes only this.
  [[gnu::always_inline]] bool take(const sdk::Message &message, std::span<const uint8_t> payload) {
    sdk::Receiver &receiver = upper_.receiver();
    sdk::Receive *const r = receiver.match(message);
    if (r == nullptr) return false;
    const size_t n = std::min<size_t>(payload.size(), r->length);
    receiver.complete(*r, message, n, place_whole(*r, payload, n));
    return true;
  }

  // ---- messages that have no receive yet, or of which more is to come ----
  RxMessage *add(Connection &c, RxMessage::Form form,
                 const sdk::Message &message);  // null: kNoMemory
  // Keeps bytes of it. True: in the receive buffer; false: in a copy, or there is nothing to keep.
  bool keep(const Connection &c, RxMessage &m, std::span<const uint8_t> bytes, Buffer &buffer);
  void save(RxMessage &m);
  // All of it is here, and it is saved. `c`: which it came by.
  Word saved_all(Connection &c, RxMessage &m);
  // A segment. `asked`: what the sender waits for.
  Taken take_segment(Connection &c, const Packet &p, const sdk::Message &message, Tell asked,
                     Buffer &buffer);
  // The rendezvous whose sender has written it; null: we named no memory for one with this id.
  static RxMessage *written(const Connection &c, uint64_t id);

  // ---- from the receiver's sink ----
  // The bytes that are here go to its receive. A rendezvous has none: it is fetched then.
  Word deliver(RxMessage &m);
  // `tells`: its sender is told.
  Word discard(RxMessage &m, bool tells);
  // The first `n` bytes of a message that is not a rendezvous.
  static int read_first(const RxMessage &m, void *to, size_t n);

  // ---- the end ----
  // Its receive is complete.
  Word finish(RxMessage &m, int err);
  // Its connection has ended.
  void lose(RxMessage &m, int err);
  void lose_all(Connection &c, int err);
  // The link is about to close: those that are complete stay, but nobody is told of them.
  void untie(Connection &c);
  // Messages of this peer that have their receives have the source `now`, no more `before`.
  void rename(const Peer &p, uint32_t before, uint32_t now);

 private:
  using Part = RxMessage::Part;

  // 0 or FI_EIO: a device has failed.
  [[gnu::always_inline]] int place_whole(const sdk::Receive &r, std::span<const uint8_t> payload,
                                         size_t n) const {
    if (settings_.hmem != nullptr)
      return sdk::hmem_scatter(settings_.hmem, r.iov, r.count, 0, payload.data(), n) ? 0 : FI_EIO;
    if (r.count == 1 && n > 0) {  // memcpy must not get a null pointer, even for 0 bytes
      std::memcpy(r.iov[0].iov_base, payload.data(), n);
    } else {
      sdk::scatter(r.iov, r.count, 0, payload.data(), n);
    }
    return 0;
  }
  void place(RxMessage &m, uint64_t at, std::span<const uint8_t> bytes) const;
  const char *find_segment(Connection &c, const Packet &p, const sdk::Message &message, Tell asked,
                           RxMessage *&m);
  void end_segments(Connection &c, RxMessage &m, Taken &taken);
  void free(RxMessage &m);
  static void unlist(RxMessage &m);
  void drop_parts(RxMessage &m);
  void charge(RxMessage &m, uint64_t bytes);

  Carrier &carrier_;
  Upper &upper_;
  const Settings &settings_;
  Counters &counters_;
  Peers &peers_;
  Shares &shares_;
  Fetches &fetches_;
  sdk::Pool<RxMessage> pool_{SIZE_MAX};
};

}  // namespace weft::rxm

#endif
