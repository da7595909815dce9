// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/deferred.h"

#include <rdma/fi_cxi_ext.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/objects/endpoint_number.h>
#include <weft/sdk/transfers/deferred_request.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "plugins/cxi/domain.h"
#include "plugins/cxi/endpoint.h"
#include "plugins/cxi/nic_counter.h"

namespace weft::cxi {

namespace {

uint64_t flags_of(const fi_deferred_work &work) {
  switch (sdk::raw(work.op_type)) {
    case FI_OP_SEND:
    case FI_OP_RECV:
      return work.op.msg->flags;
    case FI_OP_TSEND:
    case FI_OP_TRECV:
      return work.op.tagged->flags;
    case FI_OP_READ:
    case FI_OP_WRITE:
      return work.op.rma->flags;
    case FI_OP_ATOMIC:
      return work.op.atomic->flags;
    case FI_OP_FETCH_ATOMIC:
      return work.op.fetch_atomic->flags;
    case FI_OP_COMPARE_ATOMIC:
      return work.op.compare_atomic->flags;
    default:
      return 0;
  }
}

}  // namespace

thread_local const DeferredWork::Queueing *DeferredWork::queueing_ = nullptr;

Result<NicCounter *> DeferredWork::find(fid_cntr *cntr) const {
  if (cntr == nullptr || !sdk::Cntr::is_mine(&cntr->fid, FI_CLASS_CNTR, domain_.instance()))
    return fail(FI_EINVAL, "fi_control: the work names no counter of cxi");
  sdk::Cntr *const own = sdk::Cntr::from(cntr);
  if (&own->domain() != &domain_.shared())
    return fail(FI_EDOMAIN, "fi_control: the work names a counter of another domain");
  if (own->store() == nullptr)
    return fail(FI_EINVAL,
                "fi_control: the work names a counter of another provider (FI_PEER), or one "
                "for which the NIC had none left");
  return static_cast<NicCounter *>(own->store());
}

CxiEndpoint *DeferredWork::find(fid_ep *endpoint) const {
  uint64_t number = 0;
  if (endpoint == nullptr || sdk::endpoint_number(domain_.shared(), &endpoint->fid, number) != 0)
    return nullptr;
  const sdk::Guard guard(domain_.engine().lock());
  return domain_.find(number);
}

int DeferredWork::refuse(const Error &error) const {
  WEFT_WARN(domain_.instance(), FI_LOG_DOMAIN, "%s", error.text.c_str());
  return -error.code;
}

int DeferredWork::queue(const fi_deferred_work &work) {
  Queueing queueing{
      .work = &work, .counter = nullptr, .threshold = work.threshold, .completion = nullptr};
  auto counter = find(work.triggering_cntr);
  if (counter && work.completion_cntr != nullptr) {
    if (auto completion = find(work.completion_cntr); completion)
      queueing.completion = sdk::Cntr::from(work.completion_cntr);
    else
      counter = completion;
  }
  if (!counter) return refuse(counter.error());
  queueing.counter = *counter;
  return start(queueing);
}

// The call of the endpoint that the work stands for. It finds this thread in queue().
int DeferredWork::start(const Queueing &queueing) {
  const fi_deferred_work &work = *queueing.work;
  constexpr uint64_t kOwn = FI_CXI_CNTR_WB | FI_TRIGGER;
  const auto with = [&](fid_ep *fid, auto call) -> int {
    CxiEndpoint *const endpoint = find(fid);
    if (endpoint == nullptr) return -FI_EINVAL;
    const Turn turn(queueing);
    return int(call(*endpoint));
  };
  switch (sdk::raw(work.op_type)) {
    case FI_OP_SEND: {
      const fi_op_msg &op = *work.op.msg;
      return with(op.ep, [&](CxiEndpoint &e) { return e.sendmsg(&op.msg, op.flags & ~kOwn); });
    }
    case FI_OP_TSEND: {
      const fi_op_tagged &op = *work.op.tagged;
      return with(op.ep, [&](CxiEndpoint &e) { return e.tsendmsg(&op.msg, op.flags & ~kOwn); });
    }
    case FI_OP_READ:
    case FI_OP_WRITE: {
      const fi_op_rma &op = *work.op.rma;
      return with(op.ep, [&](CxiEndpoint &e) {
        return sdk::raw(work.op_type) == FI_OP_READ ? e.readmsg(&op.msg, op.flags & ~kOwn)
                                                    : e.writemsg(&op.msg, op.flags & ~kOwn);
      });
    }
    case FI_OP_ATOMIC: {
      const fi_op_atomic &op = *work.op.atomic;
      return with(op.ep, [&](CxiEndpoint &e) { return e.atomicmsg(&op.msg, op.flags & ~kOwn); });
    }
    case FI_OP_FETCH_ATOMIC: {
      const fi_op_fetch_atomic &op = *work.op.fetch_atomic;
      return with(op.ep, [&](CxiEndpoint &e) {
        return e.fetch_atomicmsg(&op.msg, op.fetch.msg_iov, op.fetch.desc, op.fetch.iov_count,
                                 op.flags & ~kOwn);
      });
    }
    case FI_OP_COMPARE_ATOMIC: {
      const fi_op_compare_atomic &op = *work.op.compare_atomic;
      return with(op.ep, [&](CxiEndpoint &e) {
        return e.compare_atomicmsg(&op.msg, op.compare.msg_iov, op.compare.desc,
                                   op.compare.iov_count, op.fetch.msg_iov, op.fetch.desc,
                                   op.fetch.iov_count, op.flags & ~kOwn);
      });
    }
    case FI_OP_RECV:
    case FI_OP_TRECV: {
      const bool tagged = sdk::raw(work.op_type) == FI_OP_TRECV;
      CxiEndpoint *const endpoint = find(tagged ? work.op.tagged->ep : work.op.msg->ep);
      if (endpoint == nullptr) return -FI_EINVAL;
      const uint64_t flags = flags_of(work) & ~kOwn;
      return post(*endpoint,
                  tagged ? sdk::recv_request(work.op.tagged->msg, flags)
                         : sdk::recv_request(work.op.msg->msg, flags),
                  queueing);
    }
    case FI_OP_CNTR_SET:
    case FI_OP_CNTR_ADD: {
      const auto target = find(work.op.cntr->cntr);
      if (!target) return -target.error().code;
      const sdk::Guard guard(domain_.engine().lock());
      Work item{.asked = &work, .counter = queueing.counter, .trigger = {}};
      item.trigger.kind =
          sdk::raw(work.op_type) == FI_OP_CNTR_SET ? Trigger::Kind::kSet : Trigger::Kind::kAdd;
      item.trigger.threshold = work.threshold;
      item.trigger.target = &(*target)->counter();
      item.trigger.value = work.op.cntr->value;
      item.target = sdk::Cntr::from(work.op.cntr->cntr);
      item.target->users.fetch_add(1);
      const int rc = post(item);
      if (rc != 0) item.target->users.fetch_sub(1);
      return rc;
    }
  }
  return -FI_EINVAL;
}

int DeferredWork::post(Transmit &transmit, Transmit::Op &op) {
  const Queueing &queueing = *queueing_;
  Work item{.asked = queueing.work,
            .counter = queueing.counter,
            .trigger = {},
            .transmit = &transmit,
            .op = &op};
  item.trigger.threshold = queueing.threshold;
  // What a message needs beside its command is the software's to say.
  op.is_deferred = true;
  op.is_work = queueing.work != nullptr;
  if (op.is_work) {
    op.completion = queueing.completion;
    op.writes_back = (flags_of(*queueing.work) & FI_CXI_CNTR_WB) != 0;
    op.transfer.writes_back = op.writes_back;
    if (op.completion != nullptr) op.completion->users.fetch_add(1);
  }
  transmit.count_in_nic(op, op.is_work ? op.completion : transmit.counter_of(op));
  item.trigger.transfer = op.transfer;
  const int rc = post(item);
  if (rc != 0 && op.completion != nullptr) op.completion->users.fetch_sub(1);
  return rc;
}

// Software posts it at once, and its own counter is told of it: no counter of the NIC starts a
// receive.
int DeferredWork::post(CxiEndpoint &endpoint, const sdk::RecvRequest &request,
                       const Queueing &queueing) {
  if (queueing.threshold != 0)
    return refuse({FI_EINVAL, "fi_control: a deferred receive of cxi has a threshold of 0"});
  // It would end more than once, or at once.
  if (request.flags & ~uint64_t(FI_COMPLETION | FI_MORE)) return -FI_ENOSYS;
  if (request.count > 1 || (request.count != 0 && request.iov == nullptr)) return -FI_EINVAL;
  const sdk::Guard guard(domain_.engine().lock());
  if (!endpoint.enabled()) return -FI_EOPBADSTATE;
  if (!endpoint.offers(request.tagged ? FI_TAGGED : FI_MSG, FI_RECV)) return -FI_EOPNOTSUPP;
  const sdk::Deferred::Origin origin{
      .trigger = {sdk::Cntr::from(queueing.work->triggering_cntr), queueing.threshold},
      .work = queueing.work,
      .completion = queueing.completion,
      .endpoint = &endpoint,
      .context = request.context,
      .report = (request.flags & FI_COMPLETION) != 0};
  return int(receives_.add(std::make_unique<sdk::DeferredTransfer<CxiEndpoint, sdk::RecvRequest>>(
      endpoint, request, origin)));
}

Result<void> DeferredWork::open(Lni &lni, Vni vni) {
  const DeviceFacts &facts = domain_.device().facts();
  WEFT_TRY(std::unique_ptr<EventQueue> events,
           lni.event_queue({.places = facts.max_triggered + 16, .waits = true}));
  WEFT_TRY(std::unique_ptr<TriggerQueue> queue, lni.trigger_queue({.vni = vni}));
  queues_.clear();
  queues_[vni] = std::move(queue);
  events_ = std::move(events);
  return {};
}

Result<TriggerQueue *> DeferredWork::queue_for(Vni vni) {
  std::unique_ptr<TriggerQueue> &queue = queues_[vni];
  if (queue == nullptr) {
    WEFT_TRY(queue, domain_.lni().trigger_queue({.vni = vni}));
  }
  return queue.get();
}

// An operation on a counter takes two commands, as command() says.
bool DeferredWork::is_at_limit(const Work &work) const {
  if (!domain_.settings().enable_trig_op_limit) return false;
  const auto use = domain_.device().usage(domain_.key().service);
  const size_t wanted = work.target != nullptr ? 2 : 1;
  return use && use->triggered + wanted > domain_.deferred_depth();
}

int DeferredWork::post(const Work &work) {
  if (is_at_limit(work)) return -FI_ENOSPC;
  works_.push_back(work);
  Work &own = works_.back();
  own.trigger.counter = &own.counter->counter();
  const int rc = command(own);
  if (rc != 0)
    works_.pop_back();
  else
    domain_.counters().deferred.add();
  return rc;
}

// Where the NIC changes a counter by itself, an event tells of it.
int DeferredWork::command(const Work &work) {
  const auto queue = queue_for(work.op != nullptr ? work.op->profile.vni : domain_.vni());
  if (!queue) return refuse(queue.error());
  if (work.target != nullptr) {
    Trigger tell;
    tell.counter = work.trigger.counter;
    tell.threshold = work.trigger.threshold;
    tell.kind = Trigger::Kind::kEvent;
    tell.eq = events_.get();
    if (const int rc = (*queue)->post(tell); rc != 0) return rc;
  }
  return (*queue)->post(work.trigger);
}

void DeferredWork::read_events() {
  while (const Event *const event = events_->peek(0)) {
    const Counter *const counter = event->counter;
    const uint64_t threshold = event->threshold;
    events_->ack(1);
    // Of several with this threshold each has an event.
    const auto work = std::ranges::find_if(works_, [&](const Work &one) {
      return one.target != nullptr && one.trigger.counter == counter &&
             one.trigger.threshold == threshold;
    });
    if (work == works_.end()) continue;
    work->target->look();
    work->target->users.fetch_sub(1);
    works_.erase(work);
  }
}

void DeferredWork::on_done(const Transmit::Op &op) {
  works_.remove_if([&](const Work &work) { return work.op == &op; });
}

bool DeferredWork::waits_for(const NicCounter &counter) const {
  return std::ranges::find(works_, &counter, &Work::counter) != works_.end();
}

void DeferredWork::note_fired(const NicCounter &counter, uint64_t reached) {
  for (Work &work : works_)
    if (work.counter == &counter && work.trigger.threshold <= reached) work.counter = nullptr;
}

// Those that have fired are on their way, and end as others do.
template <class F>
size_t DeferredWork::drop_if(F ends) {
  std::set<NicCounter *> counters;
  for (const Work &work : works_)
    if (work.counter != nullptr && ends(work)) counters.insert(work.counter);
  size_t dropped = 0;
  for (NicCounter *const counter : counters) {
    note_fired(*counter, counter->take_back_commands());
    works_.remove_if([&](Work &work) {
      if (work.counter != counter) return false;
      if (!ends(work)) {
        command(work);
        return false;
      }
      ++dropped;
      if (work.op != nullptr) {
        if (work.asked != nullptr)
          work.transmit->drop(*work.op);
        else
          work.transmit->cancel(*work.op);
      }
      if (work.target != nullptr) work.target->users.fetch_sub(1);
      return true;
    });
  }
  return dropped;
}

int DeferredWork::cancel(const fi_deferred_work &work) {
  const sdk::Guard guard(domain_.engine().lock());
  return drop_if([&](const Work &one) { return one.asked == &work; }) != 0 ? 0 : -FI_ENOENT;
}

int DeferredWork::flush(fid_cntr *triggering) {
  NicCounter *counter = nullptr;
  if (triggering != nullptr) {
    const auto found = find(triggering);
    if (!found) return -found.error().code;
    counter = *found;
  }
  const sdk::Guard guard(domain_.engine().lock());
  drop_if([&](const Work &one) {
    return one.asked != nullptr && (counter == nullptr || one.counter == counter);
  });
  return 0;
}

ssize_t DeferredWork::cancel(const Transmit &transmit, const void *context) {
  const auto found = std::ranges::find_if(works_, [&](const Work &one) {
    return one.asked == nullptr && one.transmit == &transmit && one.op->context == context;
  });
  if (found == works_.end()) return -FI_ENOENT;
  const Work *const wanted = &*found;
  return drop_if([&](const Work &one) { return &one == wanted; }) != 0 ? 0 : -FI_ENOENT;
}

void DeferredWork::forget(const Transmit &transmit) {
  if (works_.empty()) return;
  drop_if([&](const Work &one) { return one.transmit == &transmit; });
}

void DeferredWork::abandon(const Transmit &transmit) {
  works_.remove_if([&](const Work &one) {
    if (one.transmit != &transmit) return false;
    if (one.op->completion != nullptr) one.op->completion->users.fetch_sub(1);
    return true;
  });
}

// Receives that are posted are gone with their endpoint, and their counters count errors.
void DeferredWork::abandon(const sdk::EndpointCore &endpoint) {
  receives_.forget(endpoint);
  receives_.abandon(endpoint);
}

void DeferredWork::forget(const NicCounter &counter) {
  if (works_.empty()) return;
  drop_if([&](const Work &one) { return one.counter == &counter; });
  read_events();
}

}  // namespace weft::cxi
