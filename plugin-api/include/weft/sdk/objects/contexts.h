// SPDX-License-Identifier: BSD-2-Clause
// TxContext and RxContext: what the transmit side and the receive side of every endpoint have:
// default flags, the queue and counters that they report to, and how they report.
//
// Example:
//    struct Sender {
//      void on_acknowledged(void *context, uint64_t length) {  // the lock is held
//        tx.succeed(context, FI_SEND | FI_MSG, length, /*report=*/true);
//      }
//      void on_lost(void *context) {
//        tx.finish({.context = context, .flags = FI_SEND | FI_MSG, .err = FI_ECONNRESET});
//      }
//      TxContext tx;
//    };
//
// EndpointCore (endpoint.h) binds queues and counters to them. The receives themselves are
// somewhere else: in a Receiver (receiver.h), which is an RxContext that matches messages, in a
// RecvQueue (recv_queue.h), or in a queue of a device. All calls are with the lock of the context
// held. Not for what an operation or a receive is, nor for peers.
#ifndef WEFT_SDK_OBJECTS_CONTEXTS_H
#define WEFT_SDK_OBJECTS_CONTEXTS_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/objects/cntr.h>
#include <weft/sdk/objects/cq.h>
#include <weft/sdk/progress/engine.h>

#include <string>

namespace weft::sdk {

class Av;
class SharedTransmit;

// An internal flag of requests and of what completes: it is deferred work, and its context is a
// Deferred (deferred.h). No flag of OFI or of a provider that a call or a completion may have.
inline constexpr uint64_t kDeferred = UINT64_C(1) << 55;

struct TxContext {
  // An internal flag: this call reports nothing (fi_inject and its like).
  // No flag of OFI or of a provider that a call may have.
  static constexpr uint64_t kSilent = UINT64_C(1) << 62;

  TxContext() = default;
  explicit TxContext(const fi_info &info)
      : flags(info.tx_attr != nullptr ? info.tx_attr->op_flags : 0) {}

  uint64_t flags = 0;  // of calls without flags (fi_tx_attr.op_flags)
  Cq *cq = nullptr;
  bool selective = false;  // the queue was bound with FI_SELECTIVE_COMPLETION
  Cntr *send = nullptr, *read = nullptr, *write = nullptr;
  SharedTransmit *shared = nullptr;  // whose places all its endpoints share

  // Whether a call with these flags wants a completion.
  bool reports(uint64_t call_flags) const {
    return (call_flags & kSilent) == 0 && (!selective || (call_flags & FI_COMPLETION) != 0);
  }
  bool has_target() const {
    return cq != nullptr || send != nullptr || read != nullptr || write != nullptr;
  }
  // FI_RM_ENABLED: an application that does not read its completions cannot cause more of them.
  bool is_full() const {
    return (cq != nullptr && cq->holds_back()) || (shared != nullptr && is_shared_full());
  }
  // The same, for a call with these flags that would take a place now. Where the places of a shared
  // context are taken it makes progress first: an application that only injects makes none, and the
  // places may be those of any endpoint of the domain. What a counter starts is in the midst of it.
  bool has_no_place(Engine &engine, uint64_t call_flags) const {
    if (!is_full()) [[likely]]
      return false;
    if (shared != nullptr && !(call_flags & kDeferred)) engine.progress();
    return is_full();
  }

  // A transfer that this context started has ended. `flags` are those of the completion (FI_SEND |
  // FI_MSG, FI_SEND | FI_TAGGED, FI_WRITE | FI_RMA, FI_READ | FI_RMA, FI_WRITE | FI_ATOMIC, FI_READ
  // | FI_ATOMIC), and kDeferred of the request; errors are reported even where no completion was
  // wanted.
  struct Done {
    void *context = nullptr;
    uint64_t flags = 0;
    uint64_t length = 0;
    uint64_t tag = 0;
    bool report = true;
    int err = 0;         // FI_E..., 0: success
    int prov_errno = 0;  // 0: same as err
    std::string err_data{};
  };
  void finish(Done done);
  // The common case, without a detour.
  void succeed(void *context, uint64_t completion_flags, uint64_t length, bool report) {
    if (completion_flags & kDeferred) [[unlikely]]
      return finish({.context = context, .flags = completion_flags, .length = length});
    if (Cntr *const cntr = counter_of(completion_flags)) cntr->add_events(1, length);
    if (report && cq != nullptr)
      cq->push({.context = context, .flags = completion_flags, .len = length});
  }
  // What ends from now on is not reported: the endpoint closes.
  void detach();

 private:
  bool is_shared_full() const;
  Cntr *counter_of(uint64_t completion_flags) const {
    return completion_flags & FI_SEND ? send : completion_flags & FI_WRITE ? write : read;
  }
};

// Which counter of an endpoint counts an access of a peer with these rights: that of FI_REMOTE_READ
// an atomic that fetches or compares, though it also writes; that of FI_REMOTE_WRITE every other
// write (fi_endpoint.3, fi_ep_bind). A region's counts what changes its memory (fi_mr.3).
inline uint64_t counted_as(uint64_t access) {
  return access & FI_REMOTE_READ ? FI_REMOTE_READ : FI_REMOTE_WRITE;
}

struct RxContext {
  RxContext() = default;
  explicit RxContext(const fi_info &info) { take_flags(info); }

  uint64_t flags = 0;  // of calls without flags (fi_rx_attr.op_flags)
  Cq *cq = nullptr;
  bool selective = false;  // the queue was bound with FI_SELECTIVE_COMPLETION
  Cntr *cntr = nullptr;
  Cntr *remote_read = nullptr, *remote_write = nullptr;  // of what peers do here
  Av *av = nullptr;                                      // gives sources their names

  void take_flags(const fi_info &info) {
    flags = info.rx_attr != nullptr ? info.rx_attr->op_flags : 0;
  }
  // Whether a receive posted with these flags wants a completion.
  bool reports(uint64_t call_flags) const { return !selective || call_flags & FI_COMPLETION; }
  bool has_target() const { return cq != nullptr || cntr != nullptr; }
  // As in TxContext, for what a peer causes.
  bool is_full() const { return cq != nullptr && cq->holds_back(); }

  // A receive ends without a message (FI_ECANCELED). `completion_flags` as of its completion, and
  // kDeferred.
  void fail(void *context, uint64_t completion_flags, int err);

  Cntr *remote_counter(uint64_t access) const {
    return access & FI_REMOTE_WRITE ? remote_write : remote_read;
  }
  void count_remote(uint64_t access, uint64_t bytes) {
    if (Cntr *const counter = remote_counter(access)) counter->add_events(1, bytes);
  }
  // A peer wrote here with remote CQ data.
  void report_remote_write(uint64_t length, uint64_t data, fi_addr_t source, bool atomic = false) {
    if (cq != nullptr)
      cq->push({.flags = FI_REMOTE_CQ_DATA | FI_REMOTE_WRITE | (atomic ? FI_ATOMIC : FI_RMA),
                .len = length,
                .data = data,
                .src_addr = source});
  }
  void detach();
};

}  // namespace weft::sdk

#endif
