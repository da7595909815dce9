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

// A shared receive does not know whom it served. Null: an endpoint that is closed.
inline WorkQueues *CompletionQueue::queues_of(const RecvOp &op, uint32_t qp_num) {
  if (op.shared == nullptr) return op.queues;
  if (recent_ != nullptr && recent_->qp_num() == qp_num) return recent_;
  return recent_ = member_of(qp_num);
}

[[gnu::noinline]] WorkQueues *CompletionQueue::member_of(uint32_t qp_num) {
  const auto known = numbers_.find(qp_num);
  if (known != numbers_.end() && known->second->qp_num() == qp_num) return known->second;
  for (WorkQueues *const queues : members_)
    if (queues->qp_num() == qp_num) return numbers_[qp_num] = queues;
  return nullptr;
}

[[gnu::always_inline]] inline void CompletionQueue::deliver_send(const ibv_wc &wc,
                                                                 sdk::CqWriter &out) {
  if (wc.status != IBV_WC_SUCCESS) [[unlikely]]
    return deliver_failed_send(wc, out);
  SendOp &op = *send_op(wc.wr_id);
  const bool report = op.report;
  const sdk::Completion done{.context = op.context, .flags = op.flags, .len = op.length};
  op.queues->retire(op);
  if (report) out.put(done);
}

[[gnu::always_inline]] inline void CompletionQueue::deliver_receive(const ibv_wc &wc,
                                                                    sdk::CqWriter &out) {
  if (wc.status != IBV_WC_SUCCESS) [[unlikely]]
    return deliver_failed_receive(wc, out);
  RecvOp &op = *recv_op(wc.wr_id);
  void *const context = op.context;
  bool reports = true;
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  if (asks_members_)
    if (WorkQueues *const queues = queues_of(op, wc.qp_num); queues != nullptr) {
      reports = queues->reports_receive(op.flags);
      source = queues->names_sources() ? queues->source_of(wc, op) : queues->identity();
    }
  if (op.shared != nullptr) {
    op.shared->release(op);
  } else {
    op.queues->release(op);
  }
  uint64_t flags = FI_RECV | FI_MSG, data = 0;
  if (wc.wc_flags & IBV_WC_WITH_IMM) {
    flags |= FI_REMOTE_CQ_DATA;
    data = ntohl(wc.imm_data);
    // A write with data has taken a receive, and touched nothing of its buffer (FI_RX_CQ_DATA).
    if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
      flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
      reports = true;
    }
  }
  if (reports)
    out.put(
        {.context = context, .flags = flags, .len = wc.byte_len, .data = data, .src_addr = source});
}

[[gnu::always_inline]] inline void CompletionQueue::deliver(const ibv_wc &wc, sdk::CqWriter &out) {
  if (is_receive(wc.wr_id)) return deliver_receive(wc, out);
  deliver_send(wc, out);
}

void CompletionQueue::read(sdk::CqWriter &out) {
  if (has_more_.load(std::memory_order_acquire)) [[unlikely]]
    read_more(out);
  ibv_wc some[kAtOnce];
  while (out.room() != 0) {
    const int asked = int(std::min<size_t>(out.room(), kAtOnce));
    const int n = ibv_poll_cq(cq_, asked, some);
    for (int i = 0; i < n; ++i) deliver(some[i], out);
    if (n < asked) return;
  }
}

[[gnu::noinline]] void CompletionQueue::read_more(sdk::CqWriter &out) {
  has_more_.exchange(false, std::memory_order_acquire);
  if (flush_wanted_.load(std::memory_order_acquire)) flush_members(out);
  while (!taken_.empty() && out.room() != 0) {
    const ibv_wc wc = taken_.front();
    taken_.pop_front();
    deliver(wc, out);
  }
  if (!taken_.empty()) has_more_.store(true, std::memory_order_relaxed);
}

[[gnu::noinline]] void CompletionQueue::deliver_failed_send(const ibv_wc &wc, sdk::CqWriter &out) {
  SendOp &op = *send_op(wc.wr_id);
  WorkQueues *const queues = op.queues;
  if (op.whole != nullptr) {  // the whole reports it
    if (op.whole->cause == IBV_WC_SUCCESS) op.whole->cause = wc.status;
    on_failure(wc.status, queues);
    return queues->retire(op);
  }
  const ibv_wc_status status = op.cause != IBV_WC_SUCCESS ? op.cause : wc.status;
  void *const context = op.context;
  const uint64_t flags = op.flags;
  queues->retire(op);
  out.put_error({.context = context,
                 .flags = flags,
                 .err = on_failure(status, queues),
                 .prov_errno = int(status)});
}

[[gnu::noinline]] void CompletionQueue::deliver_failed_receive(const ibv_wc &wc,
                                                               sdk::CqWriter &out) {
  RecvOp &op = *recv_op(wc.wr_id);
  void *const context = op.context;
  WorkQueues *const queues = queues_of(op, wc.qp_num);
  if (op.shared != nullptr) {
    op.shared->release(op);
  } else {
    op.queues->release(op);
  }
  out.put_error({.context = context,
                 .flags = FI_RECV | FI_MSG,
                 .err = on_failure(wc.status, queues),
                 .prov_errno = int(wc.status)});
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
  asks_members_ = asks_members_ || queues.chooses_receives() || queues.names_sources() ||
                  queues.identity() != FI_ADDR_NOTAVAIL;
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
      take(some[i]);
      if (!is_receive(some[i].wr_id)) send_op(some[i].wr_id)->told = true;
    }
  }
}

void CompletionQueue::take(const ibv_wc &wc) {
  taken_.push_back(wc);
  has_more_.store(true, std::memory_order_relaxed);
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
  take(wc);
}

uint32_t CompletionQueue::rename(const WorkQueues &queues) {
  collect();
  const uint32_t old = queues.qp_num(), now = ++renamed_;
  for (ibv_wc &wc : taken_)
    if (wc.qp_num == old) wc.qp_num = now;
  numbers_.erase(old);
  recent_ = nullptr;
  return now;
}

void CompletionQueue::leave(const WorkQueues &queues) {
  collect();
  std::erase_if(taken_, [&](const ibv_wc &wc) {
    return is_receive(wc.wr_id) ? recv_op(wc.wr_id)->queues == &queues
                                : send_op(wc.wr_id)->queues == &queues;
  });
  std::erase(members_, &queues);
  std::erase_if(numbers_, [&](const auto &one) { return one.second == &queues; });
  recent_ = nullptr;
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
