// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/work_queues.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <new>
#include <set>
#include <utility>

#include "plugins/verbs/region.h"

namespace weft::verbs {

bool WorkQueues::in_device_memory(void *const *desc, size_t count) const {
  if (!device_memory_ || desc == nullptr) return false;
  return std::any_of(desc, desc + count,
                     [](const void *one) { return one != nullptr && Region::of(one).of_device(); });
}

[[gnu::noinline]] SendOp *WorkQueues::begin_in_vain() {
  if (metered_) joined_tx_->give_back(1);
  post_kept();  // what is kept back does not complete by itself
  return nullptr;
}

void WorkQueues::undo(SendOp &op) {
  SendOp *before = nullptr;
  if (oldest_ != &op)
    for (before = oldest_; before->next != &op;) before = before->next;
  cut_behind(before);
  sends_.give(&op);
  if (metered_) joined_tx_->give_back(1);
}

// Takes what is behind `last` (null: all) out of what is in flight.
void WorkQueues::cut_behind(SendOp *last) {
  (last != nullptr ? last->next : oldest_) = nullptr;
  newest_ = last;
}

// Keeps the request for the next one (FI_MORE). False: post it now.
bool WorkQueues::keep(ibv_send_wr &work) {
  if (chain_ == nullptr) chain_.reset(new (std::nothrow) Chain);
  if (chain_ == nullptr || kept_count_ == kMaxKept) return false;
  Kept &kept = chain_->kept[kept_count_++];
  kept.work = work;
  for (int i = 0; i < work.num_sge; ++i) kept.pieces[i] = work.sg_list[i];
  kept.work.sg_list = kept.pieces;
  kept.work.next = nullptr;
  if (kept_count_ > 1) chain_->kept[kept_count_ - 2].work.next = &kept.work;
  // An application that reads its completions before it goes on must not wait for them for ever.
  if (joined_tx_ != nullptr) joined_tx_->expect_flush();
  return true;
}

// The kept requests from `bad` on have failed.
void WorkQueues::refuse_kept(const ibv_send_wr *bad, int error) {
  size_t good = 0;
  while (good < kept_count_ && bad != nullptr && &chain_->kept[good].work != bad) ++good;
  if (good != kept_count_) refuse(send_op(chain_->kept[good].work.wr_id), error);
}

// The operations from `first` on, the newest in flight, have failed: flush() tells of them.
void WorkQueues::refuse(SendOp *first, int error) {
  SendOp *before = nullptr;
  if (oldest_ != first)
    for (before = oldest_; before->next != first;) before = before->next;
  cut_behind(before);
  for (SendOp *op = first; op != nullptr; op = op->next) op->failed = error;
  SendOp **end = &refused_;
  while (*end != nullptr) end = &(*end)->next;
  *end = first;
  unsignalled_ = sends_.limit();  // a signalled one may be among them
  joined_tx_->expect_flush();
}

int WorkQueues::ring(ibv_send_wr &first, ibv_send_wr **bad) {
  counters_.doorbells.add_alone();
  return std::abs(ibv_post_send(qp_, &first, bad));  // siw's are negative
}

int WorkQueues::post_kept() {
  if (kept_count_ == 0) return 0;
  ibv_send_wr *bad = nullptr;
  const int error = ring(chain_->kept[0].work, &bad);
  if (error != 0) refuse_kept(bad, error);
  kept_count_ = 0;
  return error;
}

[[gnu::noinline]] ssize_t WorkQueues::post_chained(SendOp &op, ibv_send_wr &work) {
  chain_->kept[kept_count_ - 1].work.next = &work;
  ibv_send_wr *bad = nullptr;
  const int error = ring(chain_->kept[0].work, &bad);
  const ssize_t rc = error == 0 ? 0 : refused_at_once(op, error);
  if (error != 0 && bad != &work) refuse_kept(bad, error);
  kept_count_ = 0;
  return rc;
}

// The call that started the operation returns the error.
[[gnu::noinline]] ssize_t WorkQueues::refused_at_once(SendOp &op, int error) {
  if (op.signalled) unsignalled_ = sends_.limit();  // the next one is signalled in its place
  undo(op);
  return post_error(error);
}

ssize_t WorkQueues::read_in_parts(const sdk::RmaRequest &r) {
  if (r.flags & refused_flags_) return -FI_EBADFLAGS;
  ibv_sge pieces[sdk::kIovLimit];
  uint32_t used = 0;
  const ssize_t rc = fill_pieces(r.iov, r.desc, r.count, pieces, used);
  if (rc != 0) return rc;
  const size_t parts = std::max<size_t>((used + read_pieces_ - 1) / read_pieces_, 1);
  post_kept();
  SendOp *ops[sdk::kIovLimit];
  for (size_t i = 0; i < parts; ++i) {
    const bool last = i + 1 == parts;
    ops[i] = begin({.context = r.context,
                    .flags = FI_RMA | FI_READ,
                    .length = r.length,
                    .wanted = last && r.report});
    if (ops[i] != nullptr) continue;
    while (i-- != 0) undo(*ops[i]);
    return -FI_EAGAIN;
  }
  ibv_send_wr works[sdk::kIovLimit]{};
  uint64_t from = r.rma[0].addr;
  for (size_t i = 0; i < parts; ++i) {
    ibv_send_wr &work = works[i];
    ops[i]->signalled = true;
    if (i + 1 != parts) ops[i]->whole = ops[parts - 1];
    work.wr_id = work_id(*ops[i]);
    work.next = i + 1 != parts ? &works[i + 1] : nullptr;
    work.sg_list = pieces + i * read_pieces_;
    work.num_sge = int(std::min<size_t>(used - i * read_pieces_, read_pieces_));
    work.opcode = IBV_WR_RDMA_READ;
    work.send_flags = IBV_SEND_SIGNALED | (i == 0 && r.flags & FI_FENCE ? IBV_SEND_FENCE : 0);
    work.wr.rdma = {.remote_addr = from, .rkey = uint32_t(r.rma[0].key)};
    work.qp_type.xrc.remote_srqn = remote_srq_;
    for (int k = 0; k < work.num_sge; ++k) from += work.sg_list[k].length;
  }
  ibv_send_wr *bad = nullptr;
  const int error = ring(works[0], &bad);
  if (error == 0) {
    unsignalled_ = 0;
    return 0;
  }
  const size_t good = bad != nullptr ? size_t(bad - works) : 0;
  if (good != 0 && good < parts) {
    refuse(ops[good], error);
    for (size_t i = 0; i < good; ++i) ops[i]->whole = ops[i];  // that one will be gone
    return 0;
  }
  for (size_t i = parts; i-- != 0;) undo(*ops[i]);
  return post_error(error);
}

void WorkQueues::retire(SendOp &op) {
  sdk::Guard guard(queues_lock_);
  size_t count = 0;
  op.done = true;
  last_done_ = std::max(last_done_, op.number);
  while (oldest_ != nullptr && is_done(*oldest_)) {
    sends_.give(std::exchange(oldest_, oldest_->next));
    ++count;
  }
  if (oldest_ == nullptr) newest_ = nullptr;
  if (metered_) joined_tx_->give_back(count);
}

void WorkQueues::flush(CompletionQueue &queue, sdk::CqWriter &out) {
  if (&queue != joined_tx_) return;
  sdk::Guard guard(queues_lock_);
  if (qp_ != nullptr) post_kept();
  while (refused_ != nullptr) {
    SendOp &op = *std::exchange(refused_, refused_->next);
    if (op.whole == nullptr)
      out.put_error({.context = op.context,
                     .flags = op.flags,
                     .err = op.failed,
                     .prov_errno = IBV_WC_GENERAL_ERR});
    sends_.give(&op);
    if (metered_) joined_tx_->give_back(1);
  }
}

void WorkQueues::broken() {
  broken_.store(true, std::memory_order_release);
  if (user_ != nullptr) events_->notify(*user_);
}

// ---- receives ----

ssize_t WorkQueues::receive(const sdk::RecvRequest &r) {
  if (r.flags & ~uint64_t(FI_COMPLETION | FI_MORE)) return -FI_EBADFLAGS;
  if (r.count > sdk::kIovLimit || (r.count != 0 && r.iov == nullptr)) return -FI_EINVAL;
  if (metered_ && !joined_rx_->take_place()) return -FI_EAGAIN;
  RecvOp *const op = receives_.take();
  ssize_t rc = op != nullptr ? 0 : -FI_EAGAIN;
  if (op != nullptr) {
    op->queues = this;
    op->context = r.context;
    op->flags = r.flags;
    op->number = ++receive_number_;
    op->next = nullptr;
    rc = fill_pieces(r.iov, r.desc, r.count, op->pieces, op->count);
    if (rc == 0) rc = post_receive(*op);
    if (rc == 0) return 0;
    op->number = 0;
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
  ibv_recv_wr work = receive_work(op, needs_piece_);
  ibv_recv_wr *bad;
  const int error = ibv_post_recv(qp_, &work, &bad);
  return error == 0 ? 0 : post_error(error);
}

// ---- life ----

void WorkQueues::join_queues(bool receives) {
  joined_tx_ = &CompletionQueue::of(*tx_cq());
  joined_rx_ = &CompletionQueue::of(*rx_cq());
  // Without room for all that may be in flight, each operation takes its place by itself.
  part_.emplace(joined_tx_->stats(), counters_);
  tx_places_ = sends_.limit();
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

// The newest operation of which the device has told. The locks of the queue and of the endpoint are
// held.
uint64_t WorkQueues::newest_told() const {
  uint64_t newest = last_done_;
  for (const SendOp *op = oldest_; op != nullptr; op = op->next)
    if (op->told) newest = std::max(newest, op->number);
  return newest;
}

bool WorkQueues::has_told_sends(uint64_t through) {
  sdk::Guard guard(tx_cq()->engine().lock());
  sdk::Guard own(queues_lock_);
  const uint64_t newest = newest_told();
  const SendOp *op = oldest_;
  while (op != nullptr && op->number <= through && is_told(*op, newest)) op = op->next;
  return op == nullptr || op->number > through;
}

bool WorkQueues::has_told_all() {
  collect_completions();
  if (!has_told_sends(UINT64_MAX)) return false;
  size_t receives;
  {
    sdk::Guard guard(rx_cq()->engine().lock());
    receives = joined_rx_->receives_of(*this).size();
  }
  sdk::Guard guard(queues_lock_);
  return receives == receives_.in_use();
}

bool WorkQueues::has_told_injected() {
  collect_completions();
  return has_told_sends(injected_);
}

bool WorkQueues::mark_end() {
  post_kept();
  return newest_ == nullptr || unsignalled_ == 0 || post_nothing();
}

// A write of nothing: it needs no receive and no key.
bool WorkQueues::post_nothing() {
  SendOp *const op = begin({.flags = FI_RMA | FI_WRITE});
  if (op == nullptr) return true;  // full: half of them are signalled
  ibv_send_wr work{};
  work.wr_id = work_id(*op);
  work.opcode = IBV_WR_RDMA_WRITE;
  work.send_flags = IBV_SEND_SIGNALED;
  op->signalled = true;
  op->whole = op;  // the application is not told, also if it fails
  if (post_now(*op, work) != 0) return false;
  unsignalled_ = 0;
  return true;
}

void WorkQueues::fail_rest() {
  {
    sdk::Guard guard(tx_cq()->engine().lock());
    sdk::Guard own(queues_lock_);
    drop_kept();
    const uint64_t newest = newest_told();
    for (SendOp *op = oldest_; op != nullptr; op = op->next)
      if (!is_told(*op, newest)) joined_tx_->add_flushed(work_id(*op), qp_num_);
  }
  {
    sdk::Guard guard(rx_cq()->engine().lock());
    sdk::Guard own(queues_lock_);
    const std::set<const RecvOp *> told = joined_rx_->receives_of(*this);
    std::map<uint64_t, RecvOp *> rest;
    receives_.visit([&](RecvOp &op) {
      if (op.number != 0 && !told.contains(&op)) rest.emplace(op.number, &op);
    });
    for (const auto &[number, op] : rest) joined_rx_->add_flushed(work_id(*op), qp_num_);
  }
  // Wakes who waits for them.
  for (sdk::Cq *const cq : {tx_cq(), rx_cq()}) {
    sdk::Guard guard(cq->engine().lock());
    cq->engine().progress();
  }
}

// With the lock that all take who make queue pairs, since its number is free before that.
void WorkQueues::give_number_back() {
  sdk::Guard guard(rx_cq()->engine().lock());
  qp_num_ = joined_rx_->rename(*this);
}

void WorkQueues::leave_queues() {
  for (sdk::Cq *const cq : {tx_cq(), rx_cq()}) {
    sdk::Guard guard(cq->engine().lock());
    CompletionQueue::of(*cq).leave(*this);
  }
  part_.reset();
  joined_tx_->give_back(metered_ ? sends_.in_use() : tx_places_);
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
  while (op != nullptr) report_cancelled(*std::exchange(op, op->next));
}

void WorkQueues::report_cancelled(RecvOp &op) {
  sdk::Guard guard(rx_cq()->engine().lock());
  rx_cq()->push_error({.context = op.context,
                       .flags = FI_RECV | FI_MSG,
                       .err = FI_ECANCELED,
                       .prov_errno = IBV_WC_WR_FLUSH_ERR});
  release(op);
}

RecvOp *WorkQueues::take_early(const void *context) {
  if (context == nullptr) return nullptr;  // what has no context cannot be cancelled
  RecvOp *before = nullptr;
  for (RecvOp *op = early_; op != nullptr; before = op, op = op->next) {
    if (op->context != context) continue;
    (before != nullptr ? before->next : early_) = op->next;
    if (op == last_early_) last_early_ = before;
    return op;
  }
  return nullptr;
}

}  // namespace weft::verbs
