// SPDX-License-Identifier: BSD-2-Clause
// Operation: what the application has started and that has not ended yet: it waits for room in its
// link's ring, or the peer has to answer. Fetch: a message or a write of a peer that this side
// copies part by part.
//
// Example:
//    inline uint64_t bytes_to_come(const Fetch &fetch) { return fetch.wanted - fetch.arrived; }
//
// A short message that finds room is none: it ends at once. Not for how they are sent: link.h.
#ifndef WEFT_PLUGINS_SHM_OPERATION_H
#define WEFT_PLUGINS_SHM_OPERATION_H

#include <weft/sdk/memory/iov.h>
#include <weft/sdk/transfers/atomic.h>
#include <weft/sdk/transfers/receiver.h>

#include <memory>

#include "plugins/shm/table.h"
#include "plugins/shm/wire/record.h"

namespace weft::shm {

class Link;

struct Operation : Numbered {
  enum class Kind : uint8_t { kSend, kWrite, kRead, kAtomic };

  Operation *next = nullptr,
            *previous = nullptr;  // of its link: those that wait, or those in flight
  Link *link = nullptr;
  Kind kind = Kind::kSend;
  bool report = false, fence = false, is_canceled = false, is_flying = false;
  uint8_t wire_flags = 0;  // kTagged, kHasData, kAck...
  uint64_t cq_flags = 0;   // of the completion
  uint64_t length = 0;     // bytes of all vectors
  uint64_t reported = 0;   // bytes that the completion tells
  uint64_t tag = 0, data = 0;
  void *context = nullptr;  // null: it cannot be canceled
  uint8_t count = 0, region_count = 0, result_count = 0;
  sdk::AtomicKind atomic = sdk::AtomicKind::kWrite;
  uint8_t operation = 0, datatype = 0;
  iovec iov[sdk::kIovLimit];
  iovec results[sdk::kIovLimit];  // of an atomic operation
  Region regions[kMostVectors];
  std::unique_ptr<uint8_t[]> copied;  // what was injected; iov is there
  // Of a read in parts, each of which has an answer.
  bool in_parts = false;
  uint64_t asked = 0, answered = 0;  // bytes
  uint16_t error = 0;                // of the first part that failed
};

struct Fetch : Numbered {
  Link *link = nullptr;
  sdk::Receive *receive = nullptr;  // null: it is a write, to regions
  sdk::Message message;
  Region regions[kMostVectors];
  uint8_t region_count = 0;
  uint64_t far_id = 0;  // of the sender's operation
  uint64_t wanted = 0;  // bytes; `asked` and `arrived` of these
  uint64_t asked = 0, arrived = 0;
};

// Operations in the order in which they were started.
class OperationList {
 public:
  Operation *front() const { return first_; }
  bool empty() const { return first_ == nullptr; }
  void push(Operation &op) {
    op.next = nullptr;
    op.previous = last_;
    (last_ != nullptr ? last_->next : first_) = &op;
    last_ = &op;
  }
  void push_front(Operation &op) {
    op.previous = nullptr;
    op.next = first_;
    (first_ != nullptr ? first_->previous : last_) = &op;
    first_ = &op;
  }
  void remove(Operation &op) {
    (op.previous != nullptr ? op.previous->next : first_) = op.next;
    (op.next != nullptr ? op.next->previous : last_) = op.previous;
  }

 private:
  Operation *first_ = nullptr, *last_ = nullptr;
};

}  // namespace weft::shm

#endif
