// SPDX-License-Identifier: BSD-2-Clause
// The objects that a Core hands to the carrier: the application's operations (TxOp), segments of
// messages, answers to peers (Control), and messages that arrive (RxMessage). Each is a Token: the
// carrier returns it through Core::on_sent() when its part is done.
//
// Example:
//    // From the token that the carrier returns to the object that it stands in.
//    inline Connection *connection_of(Token &token) {
//      switch (token.kind) {
//        case Token::Kind::kOp:
//          return static_cast<TxOp &>(token).connection;
//        case Token::Kind::kSegment:
//          return static_cast<Segment &>(token).op->connection;
//        case Token::Kind::kControl:
//          return static_cast<Control &>(token).connection;
//        case Token::Kind::kMessage:
//          return static_cast<RxMessage &>(token).connection;
//      }
//      return nullptr;
//    }
//
// Parts of the Core take them from their pools and put them back. Not for logic: they are plain
// data.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_OPERATIONS_H
#define WEFT_PLUGINS_RXM_PROTOCOL_OPERATIONS_H

#include <rdma/fi_atomic.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/transfers/receiver.h>

#include <memory>
#include <vector>

#include "plugins/rxm/protocol/carrier.h"
#include "plugins/rxm/wire/packet.h"

namespace weft::rxm {

class Peer;

inline constexpr uint32_t kNoIndex = UINT32_MAX;
inline constexpr uint64_t kInvalidKey = UINT64_MAX;  // of memory that a peer may not access

// Bytes of payload or operands that an operation stores inside itself, behind the header.
inline constexpr size_t kInlineSize = 160;

// One operation of the application.
struct TxOp : Token {
  enum class Form : uint8_t { kEager, kSegments, kRendezvous, kRead, kWrite, kAtomic };
  Form form = Form::kEager;
  bool report = true;
  bool is_canceled = false;  // by fi_cancel, when it had begun
  bool fence = false;
  bool queued = false;
  bool sent = false;            // the carrier has all of it
  bool answer = false;          // waits for the peer's answer; in Departed::awaited_
  bool counted = false;         // in Departed::count_
  bool writing = false;         // rendezvous: the receiver has named the memory to write to
  bool inject = false;          // the caller may reuse its memory when the call returns
  bool tagged = false;          // of a message
  bool has_data = false;        // of a message
  Tell until = Tell::kNothing;  // what the peer must tell before a message counts as complete
  uint8_t count = 0;            // used entries of iov
  uint8_t vector_count = 0;     // of vectors
  uint8_t exposed = 0;          // of registrations
  uint8_t enlisted = 0;         // bit i: desc[i] is of a registration of ours
  uint8_t result_count = 0;     // of results
  uint32_t slot = kNoIndex, generation = 0;  // together the id that answers carry
  uint32_t tokens = 0;                       // calls of the carrier that have not come back
  int err = 0;
  TxOp *next = nullptr;                            // in an OpQueue
  Connection *connection = nullptr;                // that has sent it, or tries to
  TxOp *previous = nullptr, *following = nullptr;  // in Departed::awaited_
  void *context = nullptr;
  uint64_t flags = 0;     // of the application's call; some are passed to the carrier
  uint64_t cq_flags = 0;  // of the completion
  uint64_t length = 0;
  uint64_t offset = 0;               // kSegments: bytes given to the carrier
  uint64_t written = 0, target = 0;  // kRendezvous, `writing`: bytes written, bytes to write
  uint8_t next_vector = 0;
  uint64_t data = 0;
  uint64_t tag = 0;
  iovec iov[sdk::kIovLimit];
  RmaVector vectors[kMaxVectors];
  Registration *registrations[kMaxVectors];
  union {
    fi_ioc results[sdk::kIovLimit];  // of an atomic
    void *desc[sdk::kIovLimit];      // of iov, with Settings::descriptors; each may be null
  };
  std::unique_ptr<uint8_t[]> bounce;  // contiguous copy of data that is too long for `bytes`
  WireHeader header;                  // must stand directly before:
  union {
    uint8_t bytes[kInlineSize];
    WireVectors wire;
  };
  // Forms::own_data: the caller's memory is not needed any more.
  bool owns_data() const { return bounce != nullptr || (count == 1 && iov[0].iov_base == bytes); }
  // The mark of the last packet or write of a message (Carrier::kMarks). A message whose packets
  // wait for the peer's word fails with its connection by itself.
  uint64_t mark() const {
    const bool waits = until != Tell::kNothing && form != Form::kRendezvous;
    return waits ? 0 : tagged ? FI_TAGGED : FI_MSG;
  }
  // Of iov; `given`: Settings::descriptors.
  void *const *descriptors(bool given) const { return given ? desc : nullptr; }
  // What the packets that begin the operation say of the application (Carrier::kUnasked).
  uint64_t asked() const { return report ? 0 : WEFT_CARRIER_UNASKED; }
  TxOp() {}  // NOLINT(modernize-use-equals-default): leaves the large members uninitialised
};

// Operations in the order of their calls. It does not own them.
class OpQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  TxOp *first() const { return first_; }
  void push(TxOp &op) {
    op.queued = true;
    op.next = nullptr;
    (first_ != nullptr ? last_->next : first_) = &op;
    last_ = &op;
  }
  TxOp &pop() {
    TxOp &op = *first_;
    first_ = op.next;
    op.queued = false;
    return op;
  }

 private:
  TxOp *first_ = nullptr, *last_ = nullptr;
};

// One packet of a segmented message, while the carrier has it.
struct Segment : Token {
  TxOp *op = nullptr;
  std::unique_ptr<uint8_t[]> copy;
  WireHeader header;
};

// A packet that answers a peer, or asks it to part.
struct Control : Token {
  Control *next = nullptr;
  Connection *connection = nullptr;
  size_t length = 0;          // bytes of the header and of what follows it here
  std::vector<uint8_t> more;  // result of an atomic
  uint64_t owed = 0;          // its bytes, counted in AnswerQueue::owed_
  bool told = false;          // only to a peer that may ask: RxMessage::tell
  WireHeader header;
  union {
    WireVectors wire;
    uint8_t status[kAtomicStatusSize];
  };
  Control() {}  // NOLINT(modernize-use-equals-default)
};

// A message that is arriving, or that is saved until a receive matches it.
struct RxMessage : sdk::Unexpected, Token {
  enum class Form : uint8_t { kWhole, kSegments, kRendezvous };
  struct Part {
    Buffer *buffer;  // kept receive buffer; null: `copy` owns the bytes
    std::unique_ptr<uint8_t[]> copy;
    const uint8_t *bytes;
    size_t length;
  };
  Form form = Form::kWhole;
  bool discarded = false;      // dropped by the application, but more segments are coming
  bool over = false;           // its connection ended; it waits for its tokens
  bool waits = false;          // in Fetches::waiting_
  Tell tell = Tell::kNothing;  // what the sender still waits for
  bool failed = false;         // `err` is ours alone: the connection and the sender go on
  bool peeks =
      false;  // `receive` is one of Fetches::firsts_: the first bytes of a rendezvous are read
  bool peeked = false;  // they have come, or `err` says why not
  uint8_t count = 0, next_vector = 0;
  uint8_t exposed = 0;
  int err = 0;
  uint32_t tokens = 0;  // reads that have not come back
  uint32_t next_segment = 0;
  Peer *from = nullptr;              // who sent it, which outlives it
  Connection *connection = nullptr;  // while more is to come, or its peer waits; then null
  RxMessage *previous = nullptr, *following = nullptr;  // in a list of the connection
  sdk::Receive *receive = nullptr;                      // that matched; null: none yet
  uint64_t id = 0;
  uint64_t received = 0;  // bytes that arrived; of a rendezvous: bytes requested
  uint64_t charged = 0;   // bytes counted against Settings::unexpected_limit
  std::vector<Part> parts;
  RmaVector vectors[kMaxVectors];
  Registration *registrations[kMaxVectors];
};

}  // namespace weft::rxm

#endif
