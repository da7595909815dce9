// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/cq.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "plugins/verbs/nonblocking.h"
#include "plugins/verbs/shared_receive.h"
#include "plugins/verbs/status.h"
#include "plugins/verbs/work_queues.h"

namespace weft::verbs {
namespace {

constexpr int kAtOnce = 16;

}  // namespace

CompletionQueue::CompletionQueue(const Device &device, sdk::Stats<Counters> &stats,
                                 ibv_comp_channel *channel, ibv_cq *cq)
    : stats_(stats),
      max_entries_(device.facts.max_cq_entries),
      channel_(channel),
      cq_(cq),
      capacity_(size_t(cq->cqe)) {
  cq_->cq_context = static_cast<DeviceUser *>(this);
}

Result<std::unique_ptr<CompletionQueue>> CompletionQueue::open(const Device &device,
                                                               sdk::Stats<Counters> &stats,
                                                               size_t entries, bool waits) {
  const char *const name = device.facts.name.c_str();
  ibv_comp_channel *channel = nullptr;
  if (waits) {
    channel = ibv_create_comp_channel(device.verbs);
    if (channel == nullptr)
      return fail(errno, "fi_cq_open: ibv_create_comp_channel on %s: %s: see `ulimit -n`", name,
                  strerror(errno));
  }
  const size_t wanted = std::clamp<size_t>(entries, 1, device.facts.max_cq_entries);
  ibv_cq *const cq = !waits || make_nonblocking(channel->fd)
                         ? ibv_create_cq(device.verbs, int(wanted), nullptr, channel, 0)
                         : nullptr;
  if (cq == nullptr) {
    const int error = errno;
    if (channel != nullptr) ibv_destroy_comp_channel(channel);
    return fail(error, "fi_cq_open: ibv_create_cq of %zu entries on %s: %s", wanted, name,
                strerror(error));
  }
  return std::unique_ptr<CompletionQueue>(new CompletionQueue(device, stats, channel, cq));
}

CompletionQueue::~CompletionQueue() {
  ibv_destroy_cq(cq_);
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
}

// ---- room ----

size_t CompletionQueue::capacity() {
  const std::lock_guard guard(room_mutex_);
  return capacity_;
}

bool CompletionQueue::reserve(size_t places) {
  const std::lock_guard guard(room_mutex_);
  return reserve_locked(places);
}

bool CompletionQueue::take_place() {
  if (reserve(1)) return true;
  stats_->queue_full.add();
  return false;
}

bool CompletionQueue::reserve_shared(const SharedReceive &shared) {
  const std::lock_guard guard(room_mutex_);
  if (const auto found = shared_.find(&shared); found != shared_.end()) {
    ++found->second;
    return true;
  }
  if (!reserve_locked(shared.size())) return false;
  shared_.emplace(&shared, 1);
  return true;
}

void CompletionQueue::give_back_shared(const SharedReceive &shared) {
  const std::lock_guard guard(room_mutex_);
  const auto found = shared_.find(&shared);
  if (--found->second != 0) return;
  shared_.erase(found);
  reserved_ -= shared.size();
}

bool CompletionQueue::reserve_locked(size_t places) {
  const size_t needed = reserved_ + places;
  if (needed > capacity_ && can_grow_ && needed <= max_entries_) {
    // Twice as many, so that endpoints that join one by one do not grow it each time.
    const size_t bigger = std::min(std::max(needed, 2 * capacity_), max_entries_);
    can_grow_ = ibv_resize_cq(cq_, int(bigger)) == 0 ||
                (bigger != needed && ibv_resize_cq(cq_, int(needed)) == 0);
    if (can_grow_) capacity_ = size_t(cq_->cqe);
  }
  if (needed > capacity_) return false;
  reserved_ = needed;
  return true;
}

void CompletionQueue::give_back(size_t places) {
  const std::lock_guard guard(room_mutex_);
  reserved_ -= places;
}

// ---- reading ----

void CompletionQueue::read(sdk::CqWriter &out) {
  if (flush_wanted_.load(std::memory_order_acquire)) flush_members(out);
  while (!taken_.empty() && out.room() != 0) {
    const ibv_wc wc = taken_.front();
    taken_.pop_front();
    deliver(wc, out);
  }
  ibv_wc some[kAtOnce];
  while (out.room() != 0) {
    const int asked = int(std::min<size_t>(out.room(), kAtOnce));
    const int n = ibv_poll_cq(cq_, asked, some);
    for (int i = 0; i < n; ++i) deliver(some[i], out);
    if (n < asked) return;
  }
}

void CompletionQueue::deliver(const ibv_wc &wc, sdk::CqWriter &out) {
  if (is_receive(wc.wr_id)) return deliver_receive(wc, out);
  deliver_send(wc, out);
}

void CompletionQueue::deliver_send(const ibv_wc &wc, sdk::CqWriter &out) {
  SendOp &op = *send_op(wc.wr_id);
  WorkQueues *const queues = op.queues;
  void *const context = op.context;
  const uint64_t flags = op.flags, length = op.length;
  const bool report = op.report;
  const ibv_wc_status status =
      wc.status != IBV_WC_SUCCESS && op.cause != IBV_WC_SUCCESS ? op.cause : wc.status;
  if (op.whole != nullptr && wc.status != IBV_WC_SUCCESS) {  // the whole reports it
    if (op.whole->cause == IBV_WC_SUCCESS) op.whole->cause = wc.status;
    on_failure(wc.status, queues);
    return queues->retire(op);
  }
  queues->retire(op);
  if (wc.status == IBV_WC_SUCCESS) {
    if (report) out.put({.context = context, .flags = flags, .len = length});
    return;
  }
  out.put_error({.context = context,
                 .flags = flags,
                 .err = on_failure(status, queues),
                 .prov_errno = int(status)});
}

void CompletionQueue::deliver_receive(const ibv_wc &wc, sdk::CqWriter &out) {
  RecvOp &op = *recv_op(wc.wr_id);
  void *const context = op.context;
  const bool failed = wc.status != IBV_WC_SUCCESS;
  WorkQueues *const queues =
      selective_ || identified_ || failed ? queues_of(op, wc.qp_num) : nullptr;
  const bool reports = !selective_ || queues == nullptr || queues->reports_receive(op.flags);
  fi_addr_t source = queues != nullptr ? queues->identity() : FI_ADDR_NOTAVAIL;
  if (op.queues != nullptr && op.queues->names_sources() && wc.status == IBV_WC_SUCCESS)
    source = op.queues->source_of(wc, op);
  if (op.shared != nullptr) {
    op.shared->release(op);
  } else {
    op.queues->release(op);
  }
  if (failed) {
    out.put_error({.context = context,
                   .flags = FI_RECV | FI_MSG,
                   .err = on_failure(wc.status, queues),
                   .prov_errno = int(wc.status)});
    return;
  }
  sdk::Completion done{
      .context = context, .flags = FI_RECV | FI_MSG, .len = wc.byte_len, .src_addr = source};
  if (wc.wc_flags & IBV_WC_WITH_IMM) {
    done.flags |= FI_REMOTE_CQ_DATA;
    done.data = ntohl(wc.imm_data);
  }
  // A write with data has taken a receive, and touched nothing of its buffer (FI_RX_CQ_DATA).
  const bool written = wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  if (written) done.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
  if (reports || written) out.put(done);
}

// A shared receive does not know whom it served. Null: an endpoint that is closed.
WorkQueues *CompletionQueue::queues_of(const RecvOp &op, uint32_t qp_num) {
  if (op.shared == nullptr) return op.queues;
  const auto known = numbers_.find(qp_num);
  if (known != numbers_.end() && known->second->qp_num() == qp_num) return known->second;
  for (WorkQueues *const queues : members_)
    if (queues->qp_num() == qp_num) return numbers_[qp_num] = queues;
  return nullptr;
}

int CompletionQueue::on_failure(ibv_wc_status status, WorkQueues *queues) {
  if (status == IBV_WC_RETRY_EXC_ERR) stats_->retries_exceeded.add();
  if (status == IBV_WC_RNR_RETRY_EXC_ERR) stats_->receiver_not_ready.add();
  // Also a flush: without another reason it is all that tells of a queue pair that failed.
  if (queues != nullptr) queues->broken();
  return error_of(status);
}

void CompletionQueue::join(WorkQueues &queues) {
  members_.push_back(&queues);
  selective_ = selective_ || queues.chooses_receives();
  identified_ = identified_ || queues.identity() != FI_ADDR_NOTAVAIL;
}

void CompletionQueue::flush_members(sdk::CqWriter &out) {
  flush_wanted_.store(false, std::memory_order_relaxed);
  for (WorkQueues *const queues : members_) queues->flush(*this, out);
  if (!failed_.exchange(false)) return;
  out.put_error({.err = FI_EOVERRUN, .prov_errno = IBV_WC_GENERAL_ERR});
  for (WorkQueues *const queues : members_) queues->broken();
}

// IBV_EVENT_CQ_ERR: completions are lost.
void CompletionQueue::on_device_event(ibv_event_type) {
  failed_.store(true);
  expect_flush();
}

void CompletionQueue::collect() {
  ibv_wc some[kAtOnce];
  for (int n = kAtOnce; n == kAtOnce;) {
    n = ibv_poll_cq(cq_, kAtOnce, some);
    for (int i = 0; i < n; ++i) {
      taken_.push_back(some[i]);
      if (!is_receive(some[i].wr_id)) send_op(some[i].wr_id)->told = true;
    }
  }
}

std::set<const RecvOp *> CompletionQueue::receives_of(const WorkQueues &queues) const {
  std::set<const RecvOp *> all;
  for (const ibv_wc &wc : taken_)
    if (is_receive(wc.wr_id) && recv_op(wc.wr_id)->queues == &queues) all.insert(recv_op(wc.wr_id));
  return all;
}

void CompletionQueue::add_flushed(uint64_t work_id, uint32_t qp_num) {
  ibv_wc wc{};
  wc.wr_id = work_id;
  wc.status = IBV_WC_WR_FLUSH_ERR;
  wc.qp_num = qp_num;
  taken_.push_back(wc);
}

void CompletionQueue::leave(const WorkQueues &queues) {
  collect();
  std::erase_if(taken_, [&](const ibv_wc &wc) {
    return is_receive(wc.wr_id) ? recv_op(wc.wr_id)->queues == &queues
                                : send_op(wc.wr_id)->queues == &queues;
  });
  std::erase(members_, &queues);
  std::erase_if(numbers_, [&](const auto &one) { return one.second == &queues; });
}

// ---- waiting ----

int CompletionQueue::wait_fd() {
  return channel_ != nullptr ? channel_->fd : -FI_ENOSYS;
}

bool CompletionQueue::arm() {
  if (channel_ == nullptr) return false;
  ibv_cq *which = nullptr;
  void *context = nullptr;
  unsigned events = 0;
  while (ibv_get_cq_event(channel_, &which, &context) == 0) ++events;
  if (events != 0) ibv_ack_cq_events(cq_, events);
  if (ibv_req_notify_cq(cq_, 0) != 0) return false;
  collect();  // what came before the request makes no event
  return taken_.empty() && !flush_wanted_.load(std::memory_order_acquire);
}

const char *CompletionQueue::text_of(int prov_errno) const {
  if (prov_errno <= 0) return nullptr;
  return ibv_wc_status_str(ibv_wc_status(prov_errno));
}

}  // namespace weft::verbs
