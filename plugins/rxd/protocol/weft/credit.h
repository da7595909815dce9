// SPDX-License-Identifier: BSD-2-Clause
// Credit and Grants: how many messages, and how many bytes of payload that nobody has asked for, a
// side of a connection may send (docs/rxd-protocol.md, section 7). Credit is what the peer has
// granted us; Grants are what we grant the peer. All counts are from the beginning of the
// connection.
//
// Example:
//    // A sender: whether a message may leave, with all of its bytes.
//    inline bool send(Credit &credit, uint64_t length) {
//      if (!credit.has_message() || length > credit.bytes()) return false;
//      credit.begin(length);
//      return true;
//    }
//    // Its receiver: a message that has a receive. False: the sender breaks the protocol.
//    inline bool receive(Grants &grants, uint64_t length, wire::Acknowledgement &ack) {
//      if (!grants.begin()) return false;
//      grants.consume(length);
//      grants.fill(ack, {.used = 0, .limit = 1 << 20});
//      return true;
//    }
//
// Numbers only. Not for remote accesses, which need no credit, nor for the packets that may be in
// flight (channel.h).
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_CREDIT_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_CREDIT_H

#include <algorithm>
#include <cstdint>

#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/wire/packet.h"

namespace weft::rxd {

// Bytes of a message that may be sent unasked, credit permitting. They count against the credit,
// asked for or not: so both sides count the same.
inline constexpr uint64_t kPrefix = 65536;

class Credit {
 public:
  // What the peer's part of the handshake grants: messages, and KiB.
  Credit(uint32_t messages, uint32_t kib) : may_begin_(messages), may_send_(uint64_t{kib} << 10) {}

  bool has_message() const { return begun_ < may_begin_; }
  uint64_t bytes() const { return may_send_ > sent_ ? may_send_ - sent_ : 0; }
  // A message begins, and `n` bytes of it count.
  void begin(uint64_t n) {
    ++begun_;
    sent_ += n;
  }
  // A message of `length` bytes begins whose first packet has `n` of them. Returns how many count
  // now: all that may ever count, if there is credit for them.
  uint64_t announce(uint64_t length, uint64_t n) {
    const uint64_t prefix = std::min(length, kPrefix);
    const uint64_t charged = prefix <= bytes() ? prefix : n;
    begin(charged);
    return charged;
  }
  // `sent` bytes of a message have left, of which `charged` were counted. Returns how many are now.
  uint64_t charge(uint64_t charged, uint64_t sent) {
    const uint64_t counted = std::max(charged, std::min(sent, kPrefix));
    sent_ += counted - charged;
    return counted;
  }
  // A message is over. If the peer ended it early, fewer bytes were sent than were counted.
  void end(uint64_t charged, uint64_t sent) {
    sent_ -= charged - std::min({charged, sent, kPrefix});
  }
  // From an acknowledgement, which may be an old one.
  void raise(uint32_t messages, uint32_t kib) {
    may_begin_ = std::max(may_begin_, wire::extend(messages, may_begin_));
    may_send_ = std::max(may_send_, wire::extend(kib, may_send_ >> 10) << 10);
  }

 private:
  uint64_t begun_ = 0, may_begin_;  // messages
  uint64_t sent_ = 0, may_send_;    // bytes of unasked payload
};

class Grants {
 public:
  // What the unexpected messages of all peers take, and may take. bytes
  struct Room {
    uint64_t used, limit;
  };

  // A message begins here. False: the peer had no credit for it.
  bool begin() { return ++came_ <= granted_; }
  // It has a receive, and `n` bytes of it count.
  void consume(uint64_t n) {
    ++consumed_;
    consumed_bytes_ += n;
  }
  // More bytes of such a message have come, or of one that is over.
  void consume_more(uint64_t n) { consumed_bytes_ += n; }
  // Bytes of a message without a receive have come.
  void hold(uint64_t n) { held_ += n; }
  // That message got a receive, or was discarded.
  void release(uint64_t n) {
    consume(n);
    held_ -= std::min(held_, n);
  }
  // Whether a peer that keeps to the protocol may have sent what is held, with any amount of credit
  // that was ever granted.
  bool may_hold(uint64_t limit) const { return held_ <= limit + (uint64_t{kMaxCredit} << 10); }

  // Grants what the rules allow now. True: the peer has run out of credit, or soon will, and is to
  // be told of new credit.
  bool raise(Room room) {
    grant(room);
    if (!is_short(told_, came_, granted_, kFirstMessages) &&
        !is_short(told_kib_, (held_ + consumed_bytes_) >> 10, granted_kib_, kFirstCredit))
      return false;
    tells_ = true;
    return true;
  }
  bool tells() const { return tells_; }
  // Fills in messages and credit, which the peer is told.
  void fill(wire::Acknowledgement &ack, Room room) {
    grant(room);
    told_ = granted_;
    told_kib_ = granted_kib_;
    ack.messages = uint32_t(granted_);
    ack.credit = uint32_t(granted_kib_);
  }
  void told() { tells_ = false; }  // the acknowledgement has left

 private:
  static constexpr uint32_t kMaxMessages = 1024;  // credit of a peer whose messages are consumed
  static constexpr uint32_t kMaxCredit = 4096;    // KiB, the same

  static bool is_short(uint64_t told, uint64_t used, uint64_t granted, uint64_t first) {
    const uint64_t left = told > used ? told - used : 0;
    return granted > told &&
           (left <= first / 16 || (left < first / 2 && granted - told >= first / 4));
  }
  // Grants as much as was consumed and a fixed amount more, so that a peer whose messages are
  // received goes on, however much room the messages of others take. While the endpoint has room
  // for unexpected messages, a peer always gets some credit: the message that the application waits
  // for may be behind many that it does not want.
  void grant(Room room) {
    const bool roomy = room.used < room.limit / 2;
    const uint32_t messages =
        roomy && consumed_ >= kFirstMessages / 2 ? kMaxMessages : kFirstMessages;
    const uint32_t kib =
        roomy && consumed_bytes_ >= uint64_t{kFirstCredit} << 9 ? kMaxCredit : kFirstCredit;
    granted_ = std::max(granted_, consumed_ + messages);
    granted_kib_ = std::max(granted_kib_, (consumed_bytes_ >> 10) + kib);
    if (!roomy) return;
    granted_ = std::max(granted_, came_ + kFirstMessages);
    granted_kib_ = std::max(granted_kib_, ((consumed_bytes_ + held_) >> 10) + kFirstCredit);
  }

  uint64_t came_ = 0, consumed_ = 0, granted_ = kFirstMessages;          // messages
  uint64_t held_ = 0, consumed_bytes_ = 0, granted_kib_ = kFirstCredit;  // bytes, and KiB
  uint64_t told_ = kFirstMessages, told_kib_ = kFirstCredit;             // the peer knows these
  bool tells_ = false;
};

}  // namespace weft::rxd

#endif
