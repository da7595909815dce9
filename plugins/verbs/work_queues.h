// SPDX-License-Identifier: BSD-2-Clause
// WorkQueues: the send queue and the receive queue of an endpoint's queue pair, and what they have
// in flight. A base of endpoints of every type.
//
// Example:
//    // What an endpoint does with the bytes of a request, with the lock held.
//    inline ssize_t send(WorkQueues &queues, uint64_t address, uint32_t bytes, uint32_t key) {
//      ibv_sge piece{address, bytes, key};
//      ibv_send_wr work;
//      work.opcode = IBV_WR_SEND;
//      work.send_flags = 0;
//      work.sg_list = &piece;
//      work.num_sge = 1;
//      const SendReport report{.flags = FI_SEND | FI_MSG, .length = bytes, .wanted = true};
//      return queues.submit(work, report, /*flags=*/0);  // -FI_EAGAIN: later
//    }
//
// A completion retires all operations before it that have none of their own; on iWARP a read may
// complete behind what follows it. Operations without a completion are signalled now and then, so
// that their places come back. Memory is that of the operations in flight, not of the size of the
// queue. Each operation holds a place of its completion queue; where that has no room for all,
// operations take their places one by one.
//
// The endpoint makes the queue pair and destroys it. Not for peers, nor for the state of a
// connection.
#ifndef WEFT_PLUGINS_VERBS_WORK_QUEUES_H
#define WEFT_PLUGINS_VERBS_WORK_QUEUES_H

#include <infiniband/verbs.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/memory/pool.h>
#include <weft/sdk/objects/contexts.h>
#include <weft/sdk/progress/lock.h>
#include <weft/sdk/transfers/recv_ops.h>
#include <weft/sdk/transfers/transfer.h>

#include <atomic>
#include <memory>
#include <optional>

#include "plugins/verbs/cq.h"
#include "plugins/verbs/device_events.h"
#include "plugins/verbs/operation.h"

namespace weft::verbs {

// A base, so that it is there before EndpointCore.
struct OwnLock {
  explicit OwnLock(bool locked) : own_lock(locked) {}
  sdk::Lock own_lock;
};

// What the completion of a transfer says.
struct SendReport {
  void *context = nullptr;
  uint64_t flags = 0;
  uint64_t length = 0;
  bool wanted = false;  // else only a failure is reported
};

class WorkQueues {
 public:
  // ---- for CompletionQueue; its lock is held ----
  uint32_t qp_num() const { return qp_num_; }
  // The operation has completed, and with it all before it that have no completion of their own.
  void retire(SendOp &op);
  void release(RecvOp &op) {
    sdk::Guard guard(queues_lock_);
    op.number = 0;
    receives_.give(&op);
    if (metered_) [[unlikely]]
      joined_rx_->give_back(1);
  }
  // A completion says that the queue pair is broken, or was when the operation failed.
  void broken();
  bool reports_receive(uint64_t flags) const { return rx_side_.reports(flags); }
  bool chooses_receives() const { return rx_side_.selective; }
  // Whether completions say who sent a message (FI_SOURCE), and who it was.
  bool names_sources() const { return names_sources_; }
  virtual fi_addr_t source_of(const ibv_wc &, const RecvOp &) { return FI_ADDR_NOTAVAIL; }
  // What a layer above calls the peer: the source of all that it sends. FI_ADDR_NOTAVAIL: nothing.
  fi_addr_t identity() const { return identity_; }
  // Posts what was kept back (FI_MORE), and reports what the device has refused of it.
  void flush(CompletionQueue &queue, sdk::CqWriter &out);

  // ---- data path; the lock is held ----
  // Where the bytes of a request are, in the terms of the device: vectors, or the bytes themselves.
  // Sets the send flags of `work`, too.
  ssize_t place(ibv_send_wr &work, ibv_sge *pieces, const iovec *iov, void *const *desc,
                size_t count, uint64_t length, bool may_inline) const;
  // Posts a request that was placed, and has what its opcode needs. `flags`: of the call.
  ssize_t submit(ibv_send_wr &work, const SendReport &report, uint64_t flags);
  // A read whose vectors are more than the device takes at once, as several requests.
  ssize_t read_in_parts(const sdk::RmaRequest &request);
  size_t read_pieces() const { return read_pieces_; }
  int post_kept();
  ssize_t receive(const sdk::RecvRequest &request);
  // A receive with this context that waits for the queue pair; null: there is none.
  RecvOp *take_early(const void *context);
  size_t sends_left() const { return sends_.limit() - sends_.in_use(); }
  size_t receives_left() const { return receives_.limit() - receives_.in_use(); }

 protected:
  // The contexts may not be constructed yet.
  WorkQueues(sdk::Lock &lock, size_t tx_size, size_t rx_size, const sdk::TxContext &tx,
             const sdk::RxContext &rx)
      : queues_lock_(lock),
        tx_side_(tx),
        rx_side_(rx),
        sends_(tx_size, kFirstOps),
        receives_(rx_size, kFirstOps) {}
  ~WorkQueues() = default;
  // Who is told when a completion says that the queue pair is broken.
  void report_failures(DeviceEvents &events, DeviceUser &user) {
    events_ = &events;
    user_ = &user;
  }
  void name_sources() { names_sources_ = true; }
  void identify(fi_addr_t source) { identity_ = source; }  // before join_queues()
  // Of XRC: where its messages are received. The lock is held. Others post to the same queue pair,
  // so none may fill it with operations that say nothing when they are done.
  void name_remote_queue(uint32_t number) {
    remote_srq_ = number;
    signals_all_ = true;
  }
  void limit_reads(size_t pieces) { read_pieces_ = pieces; }  // of one request
  // On iWARP what follows a read may complete before it, so each read has a completion of its own.
  // And no completion says that the peer's device has placed what came.
  void expect_iwarp() {
    needs_piece_ = true;
    signals_reads_ = true;
    refused_flags_ = FI_DELIVERY_COMPLETE;
  }
  // Buffers may be of devices (FI_HMEM): the processor does not read those.
  void expect_device_memory() { device_memory_ = true; }
  bool in_device_memory(void *const *desc, size_t count) const;

  // Set by broken().
  std::atomic<bool> broken_{false};

  // The number of the newest operation, and whether it and all before it are done.
  uint64_t newest_number() const { return number_; }
  bool has_finished(uint64_t number) const {
    return oldest_ == nullptr || oldest_->number > number;
  }

  // ---- life; the lock is not held ----
  // Where each side reports; null: nowhere.
  sdk::Cq *tx_cq() const { return tx_side_.cq != nullptr ? tx_side_.cq : rx_side_.cq; }
  sdk::Cq *rx_cq() const { return rx_side_.cq != nullptr ? rx_side_.cq : tx_side_.cq; }
  // Both queues are there. `receives`: the endpoint has receives of its own.
  void join_queues(bool receives);
  // Takes the completions that the device has. It may take them along when its queue pair goes.
  void collect_completions();
  // Whether the device has told of all that is in flight, and of all that was injected, so far.
  bool has_told_all();
  bool has_told_injected();
  // An operation without effect, so that the device tells when those before it are done. False: it
  // will not tell, as the peer has ended the connection (siw).
  bool mark_end();
  bool post_nothing();  // false: the device refuses it
  void give_number_back();
  // The queue pair is gone: what the device has not told of has failed (FI_ECANCELED).
  void fail_rest();
  // Completions that were not read are dropped.
  void leave_queues();
  // With the lock held: there is a queue pair. Posts the receives that waited for it.
  int start_queues(ibv_qp *qp, size_t inline_size);
  // Receives that the device has never seen, as errors.
  void cancel_early();
  void report_cancelled(RecvOp &op);

  ibv_qp *qp_ = nullptr;
  uint32_t qp_num_ = 0;
  size_t inline_size_ = 0;
  CompletionQueue *joined_tx_ = nullptr, *joined_rx_ = nullptr;

 private:
  // A work request that is kept back, with the vectors that it points to.
  struct Kept {
    ibv_send_wr work;
    ibv_sge pieces[sdk::kIovLimit];
  };
  static constexpr size_t kMaxKept = 16, kFirstOps = 8;
  struct Chain {
    Kept kept[kMaxKept];
  };

  bool is_done(const SendOp &op) const {
    return op.done || (!op.signalled && op.number <= last_done_);
  }
  // Whether the device has told of an operation, `newest` being the newest that it has told of.
  bool is_told(const SendOp &op, uint64_t newest) const {
    return op.told || is_done(op) || (!op.signalled && op.number <= newest);
  }
  uint64_t newest_told() const;
  bool has_told_sends(uint64_t through);
  // The operation for a transfer, the newest in flight. Null: there is no place.
  SendOp *begin(const SendReport &report);
  SendOp *begin_in_vain();
  void undo(SendOp &op);  // not posted
  ssize_t post_now(SendOp &op, ibv_send_wr &work);
  ssize_t post_chained(SendOp &op, ibv_send_wr &work);
  ssize_t refused_at_once(SendOp &op, int error);
  bool keep(ibv_send_wr &work);
  void refuse_kept(const ibv_send_wr *bad, int error);
  void refuse(SendOp *first, int error);
  int ring(ibv_send_wr &first, ibv_send_wr **bad);
  void cut_behind(SendOp *last);
  void drop_kept() { kept_count_ = 0; }
  ssize_t post_receive(RecvOp &op);

  sdk::Lock &queues_lock_;
  const sdk::TxContext &tx_side_;
  const sdk::RxContext &rx_side_;
  sdk::Pool<SendOp> sends_;
  SendOp *oldest_ = nullptr, *newest_ = nullptr;  // in flight
  uint64_t number_ = 0, injected_ = 0;  // of the newest operation, and the newest injected
  uint64_t last_done_ = 0;              // of the newest that has completed
  size_t unsignalled_ = 0;
  bool signals_all_ = false, signals_reads_ = false;
  bool needs_piece_ = false;
  uint64_t refused_flags_ = 0;
  uint32_t remote_srq_ = 0;
  size_t read_pieces_ = sdk::kIovLimit;
  bool names_sources_ = false;
  fi_addr_t identity_ = FI_ADDR_NOTAVAIL;
  bool device_memory_ = false;
  bool metered_ = false;  // each operation takes a place of the completion queue by itself
  size_t tx_places_ = 0, rx_places_ = 0;
  size_t kept_count_ = 0;
  std::unique_ptr<Chain> chain_;  // null: nothing was ever kept
  SendOp *refused_ = nullptr;     // operations to tell of, the oldest first

  sdk::Pool<RecvOp> receives_;
  uint64_t receive_number_ = 0;
  RecvOp *early_ = nullptr, *last_early_ = nullptr;  // posted before there is a queue pair

  DeviceEvents *events_ = nullptr;
  DeviceUser *user_ = nullptr;
  Counters counters_;
  std::optional<sdk::Stats<Counters>::Part> part_;  // while it reports to completion queues
};

// ---- what each message passes: inline, so that it is one function ----

[[gnu::always_inline]] inline ssize_t WorkQueues::place(ibv_send_wr &work, ibv_sge *pieces,
                                                        const iovec *iov, void *const *desc,
                                                        size_t count, uint64_t length,
                                                        bool may_inline) const {
  work.sg_list = pieces;
  if (!may_inline || length > inline_size_ ||
      (device_memory_ && length != 0 && in_device_memory(desc, count))) {
    work.send_flags = 0;
    uint32_t used = 0;
    const ssize_t rc = fill_pieces(iov, desc, count, pieces, used);
    work.num_sge = int(used);
    return rc;
  }
  // The device gets the bytes with the request: no descriptor is needed, and the buffer is free.
  work.send_flags = IBV_SEND_INLINE;
  int used = 0;
  for (size_t i = 0; i < count; ++i) {
    if (iov[i].iov_len == 0) continue;
    pieces[used].addr = reinterpret_cast<uintptr_t>(iov[i].iov_base);
    pieces[used].length = uint32_t(iov[i].iov_len);
    pieces[used].lkey = 0;
    ++used;
  }
  work.num_sge = used;
  return 0;
}

[[gnu::always_inline]] inline SendOp *WorkQueues::begin(const SendReport &report) {
  if (metered_ && !joined_tx_->take_place()) [[unlikely]]
    return nullptr;
  SendOp *const op = sends_.take();
  if (op == nullptr) [[unlikely]]
    return begin_in_vain();
  op->queues = this;
  op->context = report.context;
  op->flags = report.flags;
  op->length = report.length;
  op->number = ++number_;
  op->next = nullptr;
  op->report = report.wanted;
  op->signalled = false;
  op->told = false;
  op->done = false;
  op->failed = 0;
  op->whole = nullptr;
  op->cause = IBV_WC_SUCCESS;
  (newest_ != nullptr ? newest_->next : oldest_) = op;
  newest_ = op;
  return op;
}

[[gnu::always_inline]] inline ssize_t WorkQueues::post_now(SendOp &op, ibv_send_wr &work) {
  if (kept_count_ != 0) [[unlikely]]
    return post_chained(op, work);
  counters_.doorbells.add_alone();
  ibv_send_wr *bad;
  const int error = ibv_post_send(qp_, &work, &bad);
  return error == 0 ? 0 : refused_at_once(op, error);
}

[[gnu::always_inline]] inline ssize_t WorkQueues::submit(ibv_send_wr &work,
                                                         const SendReport &report, uint64_t flags) {
  constexpr uint64_t kSpecial = FI_INJECT | FI_FENCE | FI_MORE | FI_DELIVERY_COMPLETE;
  if (flags & kSpecial) {
    if (flags & FI_INJECT && !(work.send_flags & IBV_SEND_INLINE)) return -FI_EOPNOTSUPP;
    if (flags & refused_flags_) return -FI_EBADFLAGS;
    if (flags & FI_FENCE) work.send_flags |= IBV_SEND_FENCE;
  }
  SendOp *const op = begin(report);
  if (op == nullptr) [[unlikely]]
    return -FI_EAGAIN;
  work.wr_id = work_id(*op);
  work.next = nullptr;
  work.qp_type.xrc.remote_srqn = remote_srq_;
  if (report.wanted || signals_all_ || ++unsignalled_ >= sends_.limit() / 2 ||
      (signals_reads_ && work.opcode == IBV_WR_RDMA_READ)) {
    work.send_flags |= IBV_SEND_SIGNALED;
    op->signalled = true;
    unsignalled_ = 0;
  }
  if (flags & FI_INJECT) {
    injected_ = op->number;
  } else if (flags & FI_MORE && keep(work)) {  // an injected buffer is the application's again
    return 0;
  }
  return post_now(*op, work);
}

}  // namespace weft::verbs

#endif
