// SPDX-License-Identifier: BSD-2-Clause
// What both dialects work on: operations that the application started, and messages that arrive.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_OPERATION_H
#define WEFT_PLUGINS_RXD_PROTOCOL_OPERATION_H

#include <rdma/fi_atomic.h>
#include <sys/uio.h>
#include <weft/sdk/atomic.h>
#include <weft/sdk/iov.h>
#include <weft/sdk/receiver.h>

#include <cstdint>
#include <memory>

#include "plugins/rxd/protocol/carrier.h"

namespace weft::rxd {

inline constexpr size_t kMaxVectors = 4;
inline constexpr size_t kInlineSize = 128;      // bytes of payload or operands inside an operation
inline constexpr size_t kMaxAtomicSize = 1024;  // bytes of operands and compares

class Conversation;
struct Peer;

// One operation of the application, from start() until Core::Upper::on_done().
struct TxOp {
  enum class Kind : uint8_t { kMessage, kRead, kWrite, kAtomic };
  // ---- filled in by the endpoint ----
  Kind kind = Kind::kMessage;
  bool tagged = false;
  bool has_data = false;
  // When a message ends: when it is in the peer's memory (FI_DELIVERY_COMPLETE); when all of it was
  // acknowledged (FI_TRANSMIT_COMPLETE); else as soon as the caller's memory is not needed any
  // more, which of a short one is a copy's and of a long one the acknowledgement's time.
  bool delivery = false, transmit = false;
  bool fence = false;  // begins when all before it, to this peer, have ended
  bool more = false;   // FI_MORE: need not leave before the next one, or progress
  bool report = true;
  sdk::AtomicKind atomic = sdk::AtomicKind::kWrite;
  uint8_t datatype = 0, op = 0;
  uint8_t count = 0;         // of iov: what is sent, or where a read goes
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
  TxOp *ready = nullptr;   // the next one that may send more
  TxOp *beside = nullptr;  // another one that begins in the same packet
  bool is_ready = false;
  bool announced = false;
  bool counted = false;  // among those that the peer is to answer
  bool copied = false;   // its bytes are in the packet
  uint32_t id = 0;
  bool started = false;   // its first packet has left
  bool acked = false;     // all that it sends was acknowledged
  bool answered = false;  // done, result, or all data of a read
  uint16_t status = 0;    // FI_E..., as the peer said
  uint32_t packets = 0;   // with bytes of it that are not acknowledged
  uint64_t sent = 0;      // bytes handed to the carrier once
  uint64_t allowed = 0;   // bytes that may be sent (pulled, or unasked)
  uint64_t received = 0;  // bytes of an answer
  uint64_t charged = 0;   // bytes that count against the peer's credit
  // What must outlive the call: FI_INJECT, small messages, operands.
  std::unique_ptr<uint8_t[]> copy;
  uint8_t bytes[kInlineSize];
  TxOp() {}  // NOLINT(modernize-use-equals-default): leaves the large members alone
};

// A message that is arriving, or waits to be wanted (message.length is its whole length).
struct Incoming : sdk::Unexpected {
  Conversation *conversation = nullptr;  // null: it needs its peer no more; all of it is here
  Peer *peer = nullptr;                  // whose it is, also when the conversation is over
  Incoming *previous = nullptr, *following = nullptr;  // of the conversation: not all arrived
  sdk::Receive *receive = nullptr;                     // null: not wanted yet
  uint32_t id = 0;
  bool saved = false;       // the receiver has it
  bool announced = false;   // what comes after the first packets is asked for
  bool discarded = false;   // nobody wants it, but more of it is coming
  bool wants_pull = false;  // the sender is to be told `limit`
  bool wants_done = false;  // the sender wants to be told
  uint64_t arrived = 0;     // bytes, each counted once
  uint64_t limit = 0;       // data below this offset was asked for
  uint64_t target = 0;      // bytes that will come: length, or less of one that is cut
  uint64_t first = 0;       // bytes of the first packet (stock: where the segments begin)
  int err = 0;              // it ends with
  uint64_t unasked = 0;     // bytes that count against the peer's credit until it is wanted
  uint8_t *kept = nullptr;  // what came before it was wanted, from offset 0: `bytes` or `copy`
  uint64_t room = 0;        // bytes at `kept`
  uint64_t charged = 0;     // bytes, counted against Settings::unexpected_limit
  std::unique_ptr<uint8_t[]> copy;
  uint8_t bytes[kInlineSize];
  Incoming() {}  // NOLINT(modernize-use-equals-default): leaves `bytes` alone
};

}  // namespace weft::rxd

#endif
