// SPDX-License-Identifier: BSD-2-Clause
// Arrivals: the messages of a weft peer: how they come to their receives, how much of a long one is
// pulled, and the credit that the peer gets for more (docs/rxd-protocol.md, section 7).
//
// Example:
//    // A frame of the peer. False: the conversation is over.
//    inline bool take(Arrivals &arrivals, wire::FrameReader &frames) {
//      if (frames.kind() == wire::FrameKind::kMessage)
//        return arrivals.take(frames.message(), frames.payload());
//      Incoming *m = arrivals.find(frames.id());
//      if (m != nullptr) return arrivals.take(*m, frames.data(), frames.payload());
//      arrivals.take_late(frames.data(), frames.payload().size());
//      return true;
//    }
//
// It keeps the messages of which more is to come, and those of which the peer wants to hear. Not
// for their bytes (Inbox), nor for the order of packets (order.h).
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_ARRIVALS_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_ARRIVALS_H

#include <cstdint>
#include <span>

#include "plugins/rxd/protocol/weft/answers.h"
#include "plugins/rxd/protocol/weft/credit.h"
#include "plugins/rxd/protocol/weft/link.h"
#include "plugins/rxd/protocol/weft/pull_window.h"

namespace weft::rxd {

class Arrivals {
 public:
  // `owner` is Incoming::conversation of what arrives. `datagram`: bytes, until a larger one comes.
  Arrivals(Link &link, Answers &answers, Conversation &owner, uint32_t datagram)
      : link_(link), answers_(answers), owner_(owner), window_(datagram) {}
  Arrivals(const Arrivals &) = delete;
  Arrivals &operator=(const Arrivals &) = delete;

  Grants &grants() { return grants_; }
  bool empty() const { return first_ == nullptr; }
  // Whether messages with a receive are arriving.
  bool waits() const { return arriving_ != 0; }

  // ---- packets ----
  // A datagram of that size came.
  void saw(size_t datagram) {
    if (window_.saw(datagram)) share();
  }
  // A packet came that is processed now.
  void on_packet(uint64_t now) { window_.on_packet(now, link_.channel.round_trip().smoothed()); }

  // ---- frames; false: the conversation is over ----
  bool take(const wire::MessageFrame &f, std::span<const uint8_t> payload);
  Incoming *find(uint32_t id);
  bool take(Incoming &m, const wire::DataFrame &f, std::span<const uint8_t> payload);
  // Data of a message that is over, or of another operation that is.
  void take_late(const wire::DataFrame &f, size_t n);

  // ---- as in Conversation ----
  void fetch(Incoming &m);
  void fetch_first(Incoming &m, size_t n);
  void discard(Incoming &m);
  // A message that is not kept here got a receive, or was discarded.
  void consumed(const Incoming &m) {
    grants_.release(m.unasked);
    raise_credit();
  }
  // All that will come of it has.
  void complete(Incoming &m);

  // ---- output ----
  bool wants_pulls() const { return pulls_ != 0; }
  void add_pulls(wire::Writer &w);  // as many as fit

  // The conversation is over: messages that are not whole fail with `err`.
  void end(int err);

 private:
  bool take_whole(const wire::MessageFrame &f, const sdk::Message &message,
                  std::span<const uint8_t> payload);
  bool take_first(const wire::MessageFrame &f, const sdk::Message &message,
                  std::span<const uint8_t> payload);
  // Unexpected bytes have come.
  bool hold(Incoming &m, uint64_t n) {
    m.unasked += n;
    grants_.hold(n);
    return grants_.may_hold(link_.core.inbox().limit());
  }
  void want(Incoming &m);
  void pull(Incoming &m);
  void want_pull(Incoming &m) {
    pulls_ += uint32_t(!m.wants_pull);
    m.wants_pull = true;
  }
  void share();
  void raise_credit();
  void append(Incoming &m);
  void remove(Incoming &m);

  Link &link_;
  Answers &answers_;
  Conversation &owner_;
  Incoming *first_ = nullptr, *last_ = nullptr;
  Incoming *hint_ = nullptr;  // was found last
  uint32_t pulls_ = 0;        // messages with wants_pull
  uint32_t arriving_ = 0;     // messages with a receive
  Grants grants_;
  PullWindow window_;
};

}  // namespace weft::rxd

#endif
