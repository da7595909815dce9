// SPDX-License-Identifier: BSD-2-Clause
// How an endpoint posts work requests, and what it knows of those in flight.
//
// The send queue finishes in order, so a completion retires all operations before it. Operations
// without a completion of their own are signalled now and then, so that their places come back.
#include <weft/sdk/log.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "plugins/verbs/endpoint.h"

namespace weft::verbs {

ssize_t Endpoint::not_ready() const {
  return state_ < State::kConnected ? -FI_ENOTCONN : -FI_ESHUTDOWN;
}

SendOp *Endpoint::begin(ssize_t &rc, void *context, uint64_t flags, uint64_t length, bool report) {
  if (state_ != State::kConnected) {
    rc = not_ready();
    return nullptr;
  }
  rc = -FI_EAGAIN;
  if (next_ - first_ >= ops_.size()) {
    post_kept();  // what is kept back does not complete by itself
    return nullptr;
  }
  if (metered_ && !joined_tx_->reserve(1)) return nullptr;
  SendOp &op = ops_[next_ % ops_.size()];
  op = {.endpoint = this,
        .context = context,
        .flags = flags,
        .length = length,
        .number = next_++,
        .report = report,
        .failed = 0};
  return &op;
}

// Only the newest operation can be undone.
void Endpoint::undo(SendOp &op) {
  next_ = op.number;
  if (metered_) joined_tx_->give_back(1);
}

ssize_t Endpoint::post(SendOp &op, ibv_send_wr &work, uint64_t flags) {
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
bool Endpoint::keep(ibv_send_wr &work) {
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
void Endpoint::refuse_kept(const ibv_send_wr *bad, int error) {
  bool failed = false;
  for (size_t i = 0; i < chain_->count; ++i) {
    failed = failed || bad == nullptr || &chain_->kept[i].work == bad;
    if (failed) send_op(chain_->kept[i].work.wr_id)->failed = error;
  }
  refused_ = refused_ || failed;
  if (failed && joined_tx_ != nullptr) joined_tx_->expect_flush();
}

int Endpoint::post_kept() {
  if (chain_ == nullptr || chain_->count == 0) return 0;
  ibv_send_wr *bad = nullptr;
  const int error = std::abs(ibv_post_send(qp_, &chain_->kept[0].work, &bad));
  if (error != 0) refuse_kept(bad, error);
  chain_->count = 0;
  return error;
}

ssize_t Endpoint::post_now(SendOp &op, ibv_send_wr &work) {
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

void Endpoint::retire(uint64_t number) {
  sdk::Guard guard(own_lock);
  if (number < first_) return;
  const size_t count = size_t(number + 1 - first_);
  first_ = number + 1;
  if (metered_) joined_tx_->give_back(count);
}

void Endpoint::flush(CompletionQueue &queue, sdk::CqWriter &out) {
  if (&queue != joined_tx_) return;
  sdk::Guard guard(own_lock);
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

ssize_t Endpoint::post_receive(RecvOp &op) {
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

void Endpoint::release(RecvOp &op) {
  sdk::Guard guard(own_lock);
  receives_.give(&op);
  if (metered_) joined_rx_->give_back(1);
}

ssize_t Endpoint::rx_size_left() {
  sdk::Guard guard(own_lock);
  return enabled() ? ssize_t(receives_.limit() - receives_.in_use()) : -FI_EOPBADSTATE;
}

ssize_t Endpoint::tx_size_left() {
  sdk::Guard guard(own_lock);
  return enabled() ? ssize_t(ops_.size() - (next_ - first_)) : -FI_EOPBADSTATE;
}

}  // namespace weft::verbs
