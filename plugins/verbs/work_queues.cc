// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/work_queues.h"

#include <cerrno>
#include <cstdlib>
#include <new>
#include <utility>

#include "plugins/verbs/region.h"

namespace weft::verbs {

ssize_t fill_pieces(const iovec *iov, void *const *desc, size_t count, ibv_sge *pieces,
                    uint32_t &used) {
  used = 0;
  for (size_t i = 0; i < count; ++i) {
    if (iov[i].iov_len == 0 || iov[i].iov_base == nullptr) continue;
    if (desc == nullptr || desc[i] == nullptr || iov[i].iov_len > UINT32_MAX) return -FI_EINVAL;
    pieces[used++] = {.addr = reinterpret_cast<uintptr_t>(iov[i].iov_base),
                      .length = uint32_t(iov[i].iov_len),
                      .lkey = Region::of(desc[i]).local_key()};
  }
  return 0;
}

SendOp *WorkQueues::begin(ssize_t &rc, void *context, uint64_t flags, uint64_t length,
                          bool report) {
  rc = -FI_EAGAIN;
  if (next_ - first_ >= ops_.size()) {
    post_kept();  // what is kept back does not complete by itself
    return nullptr;
  }
  if (metered_ && !joined_tx_->reserve(1)) return nullptr;
  SendOp &op = ops_[next_ % ops_.size()];
  op = {.queues = this,
        .context = context,
        .flags = flags,
        .length = length,
        .number = next_++,
        .report = report,
        .failed = 0};
  return &op;
}

void WorkQueues::undo(SendOp &op) {
  next_ = op.number;
  if (metered_) joined_tx_->give_back(1);
}

ssize_t WorkQueues::submit(SendOp &op, ibv_send_wr &work, uint64_t flags) {
  work.wr_id = work_id(op);
  if (flags & FI_FENCE) work.send_flags |= IBV_SEND_FENCE;
  const size_t unsignalled = unsignalled_;
  const size_t most = ops_.size() / 2;
  if (op.report || ++unsignalled_ >= most) {
    work.send_flags |= IBV_SEND_SIGNALED;
    unsignalled_ = 0;
  }
  // The buffer of an inline operation is the application's again, so it cannot wait.
  if (flags & FI_MORE && !(work.send_flags & IBV_SEND_INLINE) && keep(work)) return 0;
  const ssize_t rc = post_now(op, work);
  if (rc != 0) unsignalled_ = unsignalled;
  return rc;
}

// Keeps the request for the next one (FI_MORE). False: post it now.
bool WorkQueues::keep(ibv_send_wr &work) {
  if (chain_ == nullptr) chain_.reset(new (std::nothrow) Chain);
  if (chain_ == nullptr || chain_->count == kMaxKept) return false;
  Kept &kept = chain_->kept[chain_->count++];
  kept.work = work;
  for (int i = 0; i < work.num_sge; ++i) kept.pieces[i] = work.sg_list[i];
  kept.work.sg_list = kept.pieces;
  kept.work.next = nullptr;
  if (chain_->count > 1) chain_->kept[chain_->count - 2].work.next = &kept.work;
  // An application that reads its completions before it goes on must not wait for them for ever.
  if (joined_tx_ != nullptr) joined_tx_->expect_flush();
  return true;
}

// Marks the kept requests from `bad` on as failed: flush() tells of them.
void WorkQueues::refuse_kept(const ibv_send_wr *bad, int error) {
  bool failed = false;
  for (size_t i = 0; i < chain_->count; ++i) {
    failed = failed || bad == nullptr || &chain_->kept[i].work == bad;
    if (failed) send_op(chain_->kept[i].work.wr_id)->failed = error;
  }
  refused_ = refused_ || failed;
  if (failed && joined_tx_ != nullptr) joined_tx_->expect_flush();
}

int WorkQueues::post_kept() {
  if (chain_ == nullptr || chain_->count == 0) return 0;
  ibv_send_wr *bad = nullptr;
  const int error = std::abs(ibv_post_send(qp_, &chain_->kept[0].work, &bad));
  if (error != 0) refuse_kept(bad, error);
  chain_->count = 0;
  return error;
}

ssize_t WorkQueues::post_now(SendOp &op, ibv_send_wr &work) {
  ibv_send_wr *first = &work;
  const bool chained = chain_ != nullptr && chain_->count != 0;
  if (chained) {
    chain_->kept[chain_->count - 1].work.next = &work;
    first = &chain_->kept[0].work;
  }
  ibv_send_wr *bad = nullptr;
  const int error = std::abs(ibv_post_send(qp_, first, &bad));  // siw's are negative
  if (chained) {
    if (error != 0 && bad != &work) refuse_kept(bad, error);
    chain_->count = 0;
  }
  if (error == 0) return 0;
  undo(op);
  return error == ENOMEM ? -FI_EAGAIN : -error;
}

void WorkQueues::retire(uint64_t number) {
  sdk::Guard guard(queues_lock_);
  if (number < first_) return;
  const size_t count = size_t(number + 1 - first_);
  first_ = number + 1;
  if (metered_) joined_tx_->give_back(count);
}

void WorkQueues::flush(CompletionQueue &queue, sdk::CqWriter &out) {
  if (&queue != joined_tx_) return;
  sdk::Guard guard(queues_lock_);
  if (qp_ != nullptr) post_kept();
  if (!refused_) return;
  refused_ = false;
  for (uint64_t i = first_; i != next_; ++i) {
    SendOp &op = ops_[i % ops_.size()];
    if (op.failed == 0) continue;
    out.put_error({.context = op.context,
                   .flags = op.flags,
                   .err = std::exchange(op.failed, 0),
                   .prov_errno = IBV_WC_GENERAL_ERR});
  }
}

// ---- receives ----

ssize_t WorkQueues::receive(const sdk::RecvRequest &r) {
  if (r.flags & ~uint64_t(FI_COMPLETION | FI_MORE)) return -FI_EBADFLAGS;
  if (r.count > sdk::kIovLimit || (r.count != 0 && r.iov == nullptr)) return -FI_EINVAL;
  if (metered_ && !joined_rx_->reserve(1)) return -FI_EAGAIN;
  RecvOp *const op = receives_.take();
  ssize_t rc = op != nullptr ? 0 : -FI_EAGAIN;
  if (op != nullptr) {
    op->queues = this;
    op->context = r.context;
    op->flags = r.flags;
    op->next = nullptr;
    rc = fill_pieces(r.iov, r.desc, r.count, op->pieces, op->count);
    if (rc == 0) rc = post_receive(*op);
    if (rc == 0) return 0;
    receives_.give(op);
  }
  if (metered_) joined_rx_->give_back(1);
  return rc;
}

ssize_t WorkQueues::post_receive(RecvOp &op) {
  if (qp_ == nullptr) {
    (last_early_ != nullptr ? last_early_->next : early_) = &op;
    last_early_ = &op;
    return 0;
  }
  ibv_recv_wr work{.wr_id = work_id(op), .sg_list = op.pieces, .num_sge = int(op.count)};
  ibv_recv_wr *bad = nullptr;
  const int error = std::abs(ibv_post_recv(qp_, &work, &bad));
  return error == ENOMEM ? -FI_EAGAIN : -error;
}

void WorkQueues::release(RecvOp &op) {
  sdk::Guard guard(queues_lock_);
  receives_.give(&op);
  if (metered_) joined_rx_->give_back(1);
}

// ---- life ----

void WorkQueues::join_queues(bool receives) {
  joined_tx_ = &CompletionQueue::of(*tx_cq());
  joined_rx_ = &CompletionQueue::of(*rx_cq());
  // Without room for all that may be in flight, each operation takes its place by itself.
  tx_places_ = ops_.size();
  rx_places_ = receives ? receives_.limit() : 0;
  metered_ = !joined_tx_->reserve(tx_places_);
  if (!metered_ && !joined_rx_->reserve(rx_places_)) {
    joined_tx_->give_back(tx_places_);
    metered_ = true;
  }
  {
    sdk::Guard guard(tx_cq()->engine().lock());
    joined_tx_->join(*this);
  }
  if (tx_cq() == rx_cq()) return;
  sdk::Guard guard(rx_cq()->engine().lock());
  joined_rx_->join(*this);
}

void WorkQueues::collect_completions() {
  for (sdk::Cq *const cq : {tx_cq(), rx_cq()}) {
    sdk::Guard guard(cq->engine().lock());
    CompletionQueue::of(*cq).collect();
  }
}

void WorkQueues::leave_queues() {
  for (sdk::Cq *const cq : {tx_cq(), rx_cq()}) {
    sdk::Guard guard(cq->engine().lock());
    CompletionQueue::of(*cq).leave(*this, qp_num_);
  }
  joined_tx_->give_back(metered_ ? size_t(next_ - first_) : tx_places_);
  joined_rx_->give_back(metered_ ? receives_.in_use() : rx_places_);
  joined_tx_ = joined_rx_ = nullptr;
}

int WorkQueues::start_queues(ibv_qp *qp, size_t inline_size) {
  qp_ = qp;
  qp_num_ = qp->qp_num;
  inline_size_ = inline_size;
  while (early_ != nullptr) {
    RecvOp *const op = early_;
    if (const ssize_t rc = post_receive(*op); rc != 0) return int(-rc);
    early_ = op->next;
  }
  last_early_ = nullptr;
  return 0;
}

void WorkQueues::cancel_early() {
  RecvOp *op;
  {
    sdk::Guard guard(queues_lock_);
    op = std::exchange(early_, nullptr);
    last_early_ = nullptr;
  }
  if (op == nullptr) return;
  sdk::Guard guard(rx_cq()->engine().lock());
  while (op != nullptr) {
    RecvOp *const next = op->next;
    rx_cq()->push_error({.context = op->context,
                         .flags = FI_RECV | FI_MSG,
                         .err = FI_ECANCELED,
                         .prov_errno = IBV_WC_WR_FLUSH_ERR});
    release(*op);
    op = next;
  }
}

}  // namespace weft::verbs
