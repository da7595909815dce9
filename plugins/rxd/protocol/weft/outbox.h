// SPDX-License-Identifier: BSD-2-Clause
// Outbox: packets with frames for a weft peer. It decides what goes into the next one: answers,
// pulls, operations that begin, data of those that have begun; and which short messages wait a
// moment to share one (docs/rxd-protocol.md, sections 4 and 6).
//
// Example:
//    // The next packet. Null: there is nothing to send, or no memory.
//    inline OutPacket *next(Outbox &outbox, Answers &answers, Arrivals &arrivals) {
//      if (outbox.pending() == nullptr && outbox.has_output(answers, arrivals))
//        (void)outbox.build(answers, arrivals);
//      return outbox.pending();
//    }
//
// It owns the packet that waits to be sent; Channel keeps those that were sent. Not for when one
// may leave, nor for headers (sender.h).
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_OUTBOX_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_OUTBOX_H

#include <algorithm>
#include <cstdint>
#include <utility>

#include "plugins/rxd/protocol/weft/answers.h"
#include "plugins/rxd/protocol/weft/arrivals.h"
#include "plugins/rxd/protocol/weft/datagram_size.h"
#include "plugins/rxd/protocol/weft/link.h"
#include "plugins/rxd/protocol/weft/operations.h"
#include "plugins/rxd/protocol/weft/pings.h"
#include "plugins/rxd/protocol/weft/sender.h"

namespace weft::rxd {

inline constexpr size_t kStream = 8;  // with as many unacknowledged packets there is a stream

class Outbox {
 public:
  Outbox(Link &link, Operations &operations, Sender &sender, const DatagramSize &size)
      : link_(link), operations_(operations), sender_(sender), size_(size), pings_(link.now()) {}
  Outbox(const Outbox &) = delete;
  Outbox &operator=(const Outbox &) = delete;

  DatagramSize &size() { return size_; }
  Pings &pings() { return pings_; }
  const Pings &pings() const { return pings_; }

  // ---- operations that wait to share a packet ----
  // Whether this one, which was just added, waits.
  bool gathers(const TxOp &op);
  // The same of one in memory of devices whose first bytes are being copied.
  bool gathers_copies(const TxOp &op);
  // Whether some wait still.
  bool gathers(uint64_t now) const { return now < gather_until_; }
  void gather_no_more() {
    gathered_ = 0;
    gather_until_ = 0;
  }

  // ---- packets ----
  bool has_output(const Answers &answers, const Arrivals &arrivals) const {
    return !answers.empty() || arrivals.wants_pulls() || operations_.ready() != nullptr ||
           operations_.unsent() != nullptr || pings_.wanted();
  }
  OutPacket *pending() const { return pending_; }  // was built, and has not left
  // Bytes of pending(), or about as many as build() will make.
  size_t estimate(const Answers &answers) const;
  enum class Built : uint8_t { kNothing, kPacket, kNoMemory };
  Built build(Answers &answers, Arrivals &arrivals);
  void left() { pending_ = nullptr; }
  void free(OutPacket &p) { link_.pools.packets.give(&p); }

 private:
  bool add_starts(OutPacket &p, wire::Writer &w, size_t room);
  bool begin_message(OutPacket &p, wire::Writer &w, size_t room, TxOp &op);
  bool announce(OutPacket &p, wire::Writer &w, size_t room, TxOp &op, wire::MessageFrame &f);
  bool begin_access(OutPacket &p, wire::Writer &w, size_t room, TxOp &op);
  bool begin_write(OutPacket &p, wire::Writer &w, size_t room, TxOp &op);
  void begin_atomic(wire::Writer &w, const TxOp &op);
  bool add_data(OutPacket &p, wire::Writer &w, size_t room, Answers &answers);
  static void add_payload(OutPacket &p, TxOp &op, uint64_t offset, uint64_t n);
  void probe_larger();

  Link &link_;
  Operations &operations_;
  Sender &sender_;
  DatagramSize size_;
  Pings pings_;
  OutPacket *pending_ = nullptr;
  uint64_t gather_until_ = 0;
  uint32_t gathered_ = 0;   // bytes of short messages that wait to share a packet
  bool data_turn_ = false;  // in this packet data go before new operations
};

}  // namespace weft::rxd

#endif
