// SPDX-License-Identifier: BSD-2-Clause
// What is on its way, and comes back from the carrier when that is done with it: operations of the
// application, segments, answers to peers, and messages that arrive.
//
//   TxOp *op = core.take();
//   op->iov[0] = {buffer, length}; op->count = 1; op->length = length;
//   core.prepare_message(*op, ...);
//
// They are taken from pools of the Core and given back to them; they have no behaviour of their own.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_OPERATIONS_H
#define WEFT_PLUGINS_RXM_PROTOCOL_OPERATIONS_H

#include <rdma/fi_atomic.h>
#include <weft/sdk/iov.h>
#include <weft/sdk/receiver.h>

#include <memory>
#include <vector>

#include "plugins/rxm/protocol/carrier.h"
#include "plugins/rxm/wire/packet.h"

namespace weft::rxm {

inline constexpr uint32_t kNoIndex = UINT32_MAX;

// Bytes of payload or operands that fit beside the header in an operation.
inline constexpr size_t kInlineSize = 160;

// One operation of the application.
struct TxOp : Token {
  enum class Form : uint8_t { kEager, kSegments, kRendezvous, kRead, kWrite, kAtomic };
  Form form = Form::kEager;
  bool report = true;
  bool fence = false;
  bool queued = false;
  bool sent = false;         // all of it was handed to the carrier
  bool answer = false;       // ends by a packet of the peer
  bool counted = false;      // in Connection::flights_
  bool writing = false;      // rendezvous: the peer said where to
  bool inject = false;       // the caller has its memory back when the call returns
  uint8_t count = 0;         // iov
  uint8_t vector_count = 0;  // vectors
  uint8_t exposed = 0;       // registrations
  uint8_t result_count = 0;
  uint32_t slot = kNoIndex, generation = 0;
  uint32_t tokens = 0;  // at the carrier
  int err = 0;
  TxOp *next = nullptr;
  Connection *connection = nullptr;
  TxOp *previous = nullptr, *following = nullptr;  // in Connection::waiting
  void *context = nullptr;
  uint64_t flags = 0;     // of the carrier's call
  uint64_t cq_flags = 0;  // of the completion
  uint64_t length = 0;
  uint64_t offset = 0;               // kSegments: bytes handed out
  uint64_t written = 0, target = 0;  // kRendezvous, `writing`: bytes
  uint8_t next_vector = 0;
  uint64_t data = 0;
  uint64_t tag = 0;
  iovec iov[sdk::kIovLimit];
  RmaVector vectors[kMaxVectors];
  Registration *registrations[kMaxVectors];
  fi_ioc results[sdk::kIovLimit];
  std::unique_ptr<uint8_t[]> bounce;  // what is too long for `bytes` and must be in one piece
  WireHeader header;                  // and right behind it:
  union {
    uint8_t bytes[kInlineSize];
    WireVectors wire;
  };
  TxOp() {}  // NOLINT(modernize-use-equals-default): leaves the large members alone
};

// A packet of a segmented message on its way.
struct Segment : Token {
  TxOp *op = nullptr;
  std::unique_ptr<uint8_t[]> copy;
  WireHeader header;
};

// A packet that answers a peer.
struct Control : Token {
  Control *next = nullptr;
  Connection *connection = nullptr;
  size_t length = 0;
  std::vector<uint8_t> more;  // of an atomic's result
  uint64_t owed = 0;          // of it, counted in Connection::owed_
  WireHeader header;
  union {
    WireVectors wire;
    uint8_t status[kAtomicStatusSize];
  };
  Control() {}  // NOLINT(modernize-use-equals-default)
};

// A message that is arriving, or waits to be wanted.
struct RxMessage : sdk::Unexpected, Token {
  enum class Form : uint8_t { kWhole, kSegments, kRendezvous };
  struct Part {
    Buffer *buffer;  // kept, or null: `copy` has the bytes
    std::unique_ptr<uint8_t[]> copy;
    const uint8_t *bytes;
    size_t length;
  };
  Form form = Form::kWhole;
  bool discarded = false;  // nobody wants it, but more of it is coming
  bool over = false;       // lost, and waits for its tokens
  bool waits = false;      // in Core::fetching_
  uint8_t count = 0, next_vector = 0;
  uint8_t exposed = 0;
  int err = 0;
  uint32_t tokens = 0;
  uint32_t next_segment = 0;
  Connection *from = nullptr;        // where it came from, which lives as long as it does
  Connection *connection = nullptr;  // the same, while more of it is to come
  RxMessage *previous = nullptr, *following = nullptr;  // of the connection
  sdk::Receive *receive = nullptr;
  uint64_t id = 0;
  uint64_t received = 0;  // bytes that came; of a rendezvous: that were asked for
  uint64_t charged = 0;   // bytes of copies, counted against Settings::unexpected_limit
  std::vector<Part> parts;
  RmaVector vectors[kMaxVectors];
  Registration *registrations[kMaxVectors];
};

}  // namespace weft::rxm

#endif
