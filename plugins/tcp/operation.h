// SPDX-License-Identifier: BSD-2-Clause
// Operation: a frame to send on a stream, with the data for its completion. It is an operation of
// the application or an answer to the peer.
//
// Example:
//    // A message, ready for Stream::start(). False: no memory.
//    inline bool prepare_message(Operation &op, const iovec &payload, ByteOrder order) {
//      FrameHeader header;
//      header.payload_size = payload.iov_len;
//      op.kind = Operation::kSend;
//      op.flags = FI_SEND | FI_MSG;
//      op.length = payload.iov_len;
//      op.set_header(header, order);
//      return op.place(&payload, 1, payload.iov_len, /*inject=*/false, nullptr) == 0;
//    }
//
// How operations are queued and completed is in stream.h.
#ifndef WEFT_PLUGINS_TCP_OPERATION_H
#define WEFT_PLUGINS_TCP_OPERATION_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/memory/mr.h>
#include <weft/sdk/transfers/levels.h>
#include <weft/sdk/transfers/order.h>
#include <weft/sdk/transfers/transfer.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "plugins/tcp/wire/writer.h"

namespace weft::tcp {

// Orders that only who asks for them pays: messages and writes that wait for earlier reads.
inline constexpr uint64_t kOrderBehindReads = FI_ORDER_SAR | FI_ORDER_WAR | FI_ORDER_RMA_WAR;

// All else the stream keeps by itself: for sends, reads and writes, the earlier operations that
// each stays behind. Where messages may be announced, nobody has asked for accesses behind them.
inline constexpr sdk::OrderRules kNativeOrder = {
    sdk::kinds(sdk::OrderKind::kSend, sdk::OrderKind::kWrite),
    sdk::kinds(sdk::OrderKind::kSend, sdk::OrderKind::kRead, sdk::OrderKind::kWrite,
               sdk::OrderKind::kAtomic),
    sdk::kinds(sdk::OrderKind::kSend, sdk::OrderKind::kWrite, sdk::OrderKind::kAtomic)};

// An operation in flight: queued, or sent and waiting for the peer's answer.
struct Operation : SendItem {
  enum Kind : uint8_t { kSend, kWrite, kRead, kAck, kResponse, kClear, kTrace };
  Kind kind = kSend;
  bool report = false;  // a completion is wanted
  bool wait_ack = false;
  bool fence = false;
  bool rendezvous = false;  // FI_EP_RDM: announced first; the peer asks for the data
  uint8_t result_count = 0, pin_count = 0;
  // FI_MSG, FI_TAGGED or FI_RMA: what the application is told to be lost if this has completed, and
  // the connection ends before the peer has taken it. 0: nothing.
  uint8_t mark = 0;
  uint64_t flags = 0;  // of the completion
  uint64_t length = 0;
  void *context = nullptr;
  char *copied = nullptr;              // an injected payload that did not fit behind its header
  iovec result[sdk::kIovLimit];        // kRead: where the response goes
  sdk::Mr *pins[kMaxRmaVectors];       // kResponse: regions that it sends from
  Operation *next_response = nullptr;  // kResponse
  // kWrite: tells, after this write has completed, whether the peer took it (Stream::trace()).
  Operation *trace = nullptr;
  // Of accesses: messages that have completed since (Stream::note_access()), untagged and tagged.
  uint32_t behind[2] = {};

  bool is_control() const { return kind >= kAck; }
  bool waits() const { return wait_ack || rendezvous || kind == kRead; }

  // Puts the payload behind the header. A small one is copied, because one vector costs the kernel
  // less than two. `hmem`: it may be memory of a device. 0, or -FI_E...
  int place(const iovec *iov, size_t vectors, uint64_t bytes, bool inject, const sdk::Hmem *hmem) {
    if (hmem != nullptr) return place_anywhere(iov, vectors, bytes, inject, *hmem);
    if (bytes <= room()) {
      for (size_t i = 0; i < vectors; ++i) copy(iov[i].iov_base, iov[i].iov_len);
      return 0;
    }
    if (!inject) {
      for (size_t i = 0; i < vectors; ++i) add(iov[i].iov_base, iov[i].iov_len);
      return 0;
    }
    copied = static_cast<char *>(std::malloc(bytes));
    if (copied == nullptr) return -FI_ENOMEM;
    char *at = copied;
    for (size_t i = 0; i < vectors; ++i) {
      if (iov[i].iov_len != 0) std::memcpy(at, iov[i].iov_base, iov[i].iov_len);
      at += iov[i].iov_len;
    }
    add(copied, bytes);
    return 0;
  }
  // The same in a domain with FI_HMEM. What is not copied here is copied when it leaves.
  int place_anywhere(const iovec *iov, size_t vectors, uint64_t bytes, bool inject,
                     const sdk::Hmem &hmem) {
    const bool is_short = bytes <= room();
    char *at = nullptr;
    if (is_short) {
      at = static_cast<char *>(reserve(size_t(bytes)));
    } else if (inject) {
      at = copied = static_cast<char *>(std::malloc(bytes));
      if (copied == nullptr) return -FI_ENOMEM;
    }
    for (size_t i = 0; i < vectors; ++i) {
      const sdk::HmemPlace from = hmem.find(iov[i].iov_base, iov[i].iov_len);
      if (from && iov[i].iov_len > from.bytes) return -FI_EFAULT;  // its allocation ends before
      if (at == nullptr) {
        add(iov[i].iov_base, iov[i].iov_len);
        continue;
      }
      if (!sdk::hmem_copy(at, nullptr, iov[i].iov_base, from.or_null(), iov[i].iov_len))
        return -FI_EFAULT;
      at += iov[i].iov_len;
    }
    if (!is_short && inject) add(copied, bytes);
    return 0;
  }
  // The same for a message that stays here until its header is another one: nothing is copied
  // behind the header.
  int place_apart(const iovec *iov, size_t vectors, uint64_t bytes, bool inject,
                  const sdk::Hmem *hmem) {
    if (hmem != nullptr && !hmem->holds(iov, vectors)) return -FI_EFAULT;
    if (!inject) {
      for (size_t i = 0; i < vectors; ++i) add(iov[i].iov_base, iov[i].iov_len);
      return 0;
    }
    copied = static_cast<char *>(std::malloc(bytes + 1));
    if (copied == nullptr) return -FI_ENOMEM;
    if (!sdk::hmem_gather(hmem, copied, iov, vectors, 0, bytes)) return -FI_EFAULT;
    add(copied, bytes);
    return 0;
  }
  // Fills in a remote access and encodes its frame. 0, or -FI_E...
  int prepare(const sdk::RmaRequest &r, ByteOrder order, const sdk::Hmem *hmem) {
    FrameHeader header;
    header.op = r.write ? Op::kWrite : Op::kReadRequest;
    header.rma_count = uint8_t(r.rma_count);
    for (size_t i = 0; i < r.rma_count; ++i)
      header.rma[i] = {r.rma[i].addr, r.rma[i].len, r.rma[i].key};
    wait_ack = r.write && (r.flags & sdk::kRmaRemoteLevels) != 0;
    if (wait_ack) header.flags |= r.flags & FI_COMMIT_COMPLETE ? kFlagCommit : kFlagDelivery;
    if (r.write) header.payload_size = r.length;
    if (r.write && (r.flags & FI_REMOTE_CQ_DATA) != 0) {
      header.flags |= kFlagRemoteData;
      header.data = r.data;
    }
    kind = r.write ? kWrite : kRead;
    flags = sdk::completion_flags(r);
    report = r.report;
    fence = r.flags & FI_FENCE;
    context = r.context;
    length = r.length;
    pin_count = 0;
    result_count = 0;
    set_header(header, order);
    if (r.write) return place(r.iov, r.count, r.length, r.flags & FI_INJECT, hmem);
    result_count = uint8_t(r.count);
    std::copy_n(r.iov, r.count, result);
    return 0;
  }
  void drop_copy() {
    if (copied != nullptr) std::free(std::exchange(copied, nullptr));
  }
};

struct OperationList {  // by SendItem::next
  Operation *first = nullptr, *last = nullptr;
  bool empty() const { return first == nullptr; }
  void push(Operation &op) {
    op.next = nullptr;
    if (first == nullptr) {
      first = &op;
    } else {
      last->next = &op;
    }
    last = &op;
  }
  Operation *pop() {
    Operation *op = first;
    first = static_cast<Operation *>(op->next);
    return op;
  }
};

}  // namespace weft::tcp

#endif
