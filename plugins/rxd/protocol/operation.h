// SPDX-License-Identifier: BSD-2-Clause
// The objects that both dialects work on: operations that the application started (TxOp), and
// messages that arrive (Incoming).
//
// Example:
//    // What an endpoint fills in for fi_write, before Core::start().
//    inline void fill_write(TxOp &op, iovec bytes, uint64_t address, uint64_t key, void *context) {
//      op.kind = TxOp::Kind::kWrite;
//      op.iov[0] = bytes;
//      op.count = 1;
//      op.length = bytes.iov_len;
//      op.vectors[0] = {address, bytes.iov_len, key};  // at the peer
//      op.vector_count = 1;
//      op.context = context;
//    }
//
// Both come from pools: operations from Core::take(), messages from Inbox. Not for the packets that
// carry them (wire/).
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_OPERATION_H
#define WEFT_PLUGINS_RXD_PROTOCOL_OPERATION_H

#include <rdma/fi_atomic.h>
#include <sys/uio.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/transfers/atomic.h>
#include <weft/sdk/transfers/receiver.h>

#include <cstdint>
#include <memory>

#include "plugins/rxd/protocol/carrier.h"

namespace weft::rxd {

inline constexpr size_t kMaxVectors = 4;
inline constexpr size_t kInlineSize = 128;      // bytes of payload or operands inside an operation
inline constexpr size_t kMaxAtomicSize = 1024;  // bytes of operands and compares

class Conversation;
struct Ahead;
struct Landing;
struct Peer;
struct TxOp;
// Whether a stock peer does what the operation asks for.
bool stock_does(const TxOp &op);

// One operation of the application, from start() until Core::Upper::on_done().
struct TxOp {
  enum class Kind : uint8_t { kMessage, kRead, kWrite, kAtomic };
  // ---- filled in by the endpoint ----
  Kind kind = Kind::kMessage;
  bool tagged = false;
  bool has_data = false;
  // When a message ends. `delivery`: when it is in the peer's memory (FI_DELIVERY_COMPLETE).
  // `transmit`: when all of it was acknowledged (FI_TRANSMIT_COMPLETE). Otherwise as soon as the
  // caller's memory is free: a short message when it was copied into a packet that has left, a long
  // one when it was acknowledged.
  bool delivery = false, transmit = false;
  // FI_MATCH_COMPLETE or FI_COMMIT_COMPLETE: stock peers know neither.
  bool weft_only = false;
  bool fence = false;  // begins when all earlier operations to this peer have ended
  bool more = false;   // FI_MORE: may wait for the next operation or for progress
  bool report = true;
  bool is_canceled = false;  // by fi_cancel, when it had begun
  bool on_device = false;    // iov may be memory of devices, and more than DeviceCopies::kShort
  sdk::AtomicKind atomic = sdk::AtomicKind::kWrite;
  uint8_t datatype = 0, op = 0;
  uint8_t count = 0;         // of iov: the bytes to send, or the destination of a read
  uint8_t vector_count = 0;  // of vectors
  uint8_t result_count = 0;  // of results
  void *context = nullptr;
  uint64_t cq_flags = 0;  // of the completion
  uint64_t length = 0;    // bytes of iov; of an atomic: operands, then compares
  uint64_t data = 0;
  uint64_t tag = 0;
  iovec iov[sdk::kIovLimit];
  RmaVector vectors[kMaxVectors];  // lengths in bytes, also of an atomic
  fi_ioc results[sdk::kIovLimit];
  // ---- of the conversation ----
  TxOp *next = nullptr;
  TxOp *previous = nullptr;
  TxOp *ready = nullptr;   // the next operation that may send more
  TxOp *beside = nullptr;  // another operation that begins in the same packet
  bool is_ready = false;
  bool announced = false;
  bool counted = false;  // in the conversation's count of operations that the peer must answer
  bool copied = false;   // its bytes are in the packet
  uint32_t id = 0;
  bool started = false;        // its first packet has left
  bool acked = false;          // all its packets were acknowledged
  bool answered = false;       // done, result, or all data of a read have arrived
  uint16_t status = 0;         // FI_E..., from the peer
  uint32_t packets = 0;        // packets with bytes of it that are not acknowledged
  uint64_t sent = 0;           // bytes handed to the carrier once
  uint64_t allowed = 0;        // bytes that may be sent (pulled, or unasked)
  uint64_t received = 0;       // bytes of an answer
  uint64_t charged = 0;        // bytes that count against the peer's credit
  Ahead *ahead = nullptr;      // copies of what is sent next (on_device)
  Landing *landing = nullptr;  // of a read: copies of what has come
  // Bytes that must outlive the call: FI_INJECT, small messages, operands.
  std::unique_ptr<uint8_t[]> copy;
  uint8_t bytes[kInlineSize];
  TxOp() {}  // NOLINT(modernize-use-equals-default): leaves the large members alone
};

// A message that is arriving, or that waits for a receive (message.length is its whole length).
struct Incoming : sdk::Unexpected {
  Conversation *conversation = nullptr;  // null: the message does not need its peer any more
  Peer *peer = nullptr;                  // the sender, also after the conversation has ended
  Incoming *previous = nullptr, *following = nullptr;  // the conversation's incomplete messages
  sdk::Receive *receive = nullptr;                     // null: no receive was found yet
  uint32_t id = 0;
  bool saved = false;          // sdk::Receiver keeps it as unexpected
  bool announced = false;      // the receiver pulls the data after the first packets
  bool discarded = false;      // the application discarded it, but more of it is arriving
  bool wants_pull = false;     // `limit` must be sent to the sender
  bool wants_done = false;     // the sender asked for `done`
  uint64_t arrived = 0;        // bytes, each counted once
  uint64_t end = 0;            // of the last of them
  uint64_t limit = 0;          // data below this offset was asked for
  uint64_t target = 0;         // bytes that will arrive: the length, or less if it is truncated
  uint64_t first = 0;          // bytes of the first packet (stock: where the segments begin)
  int err = 0;                 // status at its end
  Landing *landing = nullptr;  // copies of what has come, to memory of devices
  uint64_t unasked = 0;        // bytes that count against the peer's credit until it has a receive
  uint8_t *kept = nullptr;  // bytes that came before the receive, from offset 0: `bytes` or `copy`
  uint64_t room = 0;        // bytes at `kept`
  uint64_t charged = 0;     // bytes that count against Settings::unexpected_limit
  std::unique_ptr<uint8_t[]> copy;
  uint8_t bytes[kInlineSize];
  Incoming() {}  // NOLINT(modernize-use-equals-default): leaves `bytes` alone
};

}  // namespace weft::rxd

#endif
