// SPDX-License-Identifier: BSD-2-Clause
// Completion queues and their channels.
#include <algorithm>

#include "plugins/verbs/double/objects.h"
#include "plugins/verbs/double/transport.h"
#include "plugins/verbs/double/waiting.h"

namespace weft::verbs_double {

namespace {

// A completion found no room: the queue is lost, and with it the queue pairs that use it.
void overrun(Cq &cq) {
  if (cq.broken) return;
  cq.broken = true;
  raise(cq.context_of, IBV_EVENT_CQ_ERR, static_cast<ibv_cq *>(&cq));
  for (const auto &[number, qp] : cq.context_of.adapter.qps) {
    if (qp->send_cq != &cq && qp->recv_cq != &cq) continue;
    fail_queue_pair(*qp);
    raise(qp->context_of, IBV_EVENT_QP_FATAL, qp->ibv());
  }
}

void free_slots(const Completion &completion) {
  if (completion.owner != nullptr) {
    completion.owner->sq_used -= completion.send_slots;
    if (completion.srq == nullptr) completion.owner->rq.used -= completion.recv_slots;
  }
  if (completion.srq != nullptr) completion.srq->rq.used -= completion.recv_slots;
}

}  // namespace

void push(Cq &cq, const Completion &completion) {
  if (cq.broken) return free_slots(completion);
  if (cq.entries.size() >= static_cast<size_t>(cq.cqe)) {
    free_slots(completion);
    return overrun(cq);
  }
  const bool counts = cq.armed == Armed::kNext ||
                      (cq.armed == Armed::kSolicited &&
                       (completion.solicited || completion.wc.status != IBV_WC_SUCCESS));
  cq.entries.push_back(completion);
  if (!counts) return;
  cq.armed = Armed::kNo;
  if (cq.channel != nullptr) of(cq.channel).events.push(&cq);
}

void forget(Cq &cq, Qp &qp, bool removes) {
  for (Completion &entry : cq.entries) {
    if (entry.owner != &qp) continue;
    if (entry.srq != nullptr) entry.srq->rq.used -= entry.recv_slots;
    entry.srq = nullptr;
    entry.send_slots = entry.recv_slots = 0;
    if (!removes) entry.owner = nullptr;
  }
  if (removes)
    std::erase_if(cq.entries, [&](const Completion &entry) { return entry.owner == &qp; });
}

int poll_cq(ibv_cq *ibv, int count, ibv_wc *wc) {
  Cq &cq = of(ibv);
  const Entry entry(cq.context_of.world, Call::k_ibv_poll_cq);
  if (entry.error() != 0) return -entry.error();
  int taken = 0;
  for (; taken < count && !cq.entries.empty(); ++taken) {
    free_slots(cq.entries.front());
    wc[taken] = cq.entries.front().wc;
    cq.entries.pop_front();
  }
  return taken == 0 && cq.broken ? -EIO : taken;
}

int req_notify_cq(ibv_cq *ibv, int solicited_only) {
  Cq &cq = of(ibv);
  const Entry entry(cq.context_of.world, Call::k_ibv_req_notify_cq);
  if (entry.error() != 0) return entry.error();
  if (solicited_only == 0) {
    cq.armed = Armed::kNext;
  } else if (cq.armed == Armed::kNo) {  // a request for any completion stays one
    cq.armed = Armed::kSolicited;
  }
  return 0;
}

}  // namespace weft::verbs_double

using namespace weft::verbs_double;

extern "C" {

ibv_comp_channel *ibv_create_comp_channel(ibv_context *ibv) {
  Context &context = of(ibv);
  const Entry entry(context.world, Call::k_ibv_create_comp_channel);
  if (entry.error() != 0) return no_object(entry.error());
  if (context.adapter.removed) return no_object(EIO);
  auto channel = std::make_unique<CompChannel>(context);
  if (channel->events.fd() < 0) return no_object(EMFILE);
  channel->fd = channel->events.fd();
  return channel.release();
}

int ibv_destroy_comp_channel(ibv_comp_channel *ibv) {
  CompChannel &channel = of(ibv);
  const Entry entry(of(channel.context).world, Call::k_ibv_destroy_comp_channel);
  if (entry.error() != 0) return entry.error();
  if (channel.refcnt > 0) return EBUSY;
  delete &channel;
  return 0;
}

ibv_cq *ibv_create_cq(ibv_context *ibv, int cqe, void *cq_context, ibv_comp_channel *channel,
                      int vector) {
  Context &context = of(ibv);
  const Entry entry(context.world, Call::k_ibv_create_cq);
  if (entry.error() != 0) return no_object(entry.error());
  const Limits &limits = context.adapter.options.limits;
  if (context.adapter.removed) return no_object(EIO);
  if (cqe < 1 || cqe > limits.max_cqe) return no_object(EINVAL);
  if (vector < 0 || vector >= context.context.num_comp_vectors) return no_object(EINVAL);
  if (channel != nullptr && channel->context != ibv) return no_object(EINVAL);
  if (context.adapter.cqs >= limits.max_cq) return no_object(ENOMEM);
  auto *cq = new Cq(context);
  cq->context = ibv;
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->cqe = cqe;
  if (channel != nullptr) ++channel->refcnt;
  ++context.adapter.cqs;
  return cq;
}

int ibv_resize_cq(ibv_cq *ibv, int cqe) {
  Cq &cq = of(ibv);
  const Entry entry(cq.context_of.world, Call::k_ibv_resize_cq);
  if (entry.error() != 0) return entry.error();
  const DeviceOptions &options = cq.context_of.adapter.options;
  if (!options.features.resize_cq) return EOPNOTSUPP;
  if (cq.context_of.adapter.removed) return EIO;
  if (cqe < 1 || cqe > options.limits.max_cqe) return EINVAL;
  if (static_cast<size_t>(cqe) < cq.entries.size()) return EINVAL;
  cq.cqe = cqe;
  return 0;
}

int ibv_destroy_cq(ibv_cq *ibv) {
  Cq &cq = of(ibv);
  World &world = cq.context_of.world;
  Entry entry(world, Call::k_ibv_destroy_cq);
  if (entry.error() != 0) return entry.error();
  if (cq.users > 0) return EBUSY;
  if (cq.channel != nullptr) {
    of(cq.channel).events.take([&](const Cq *event) { return event == &cq; });
    --cq.channel->refcnt;
  }
  cq.context_of.async.take([&](const ibv_async_event &event) {
    return event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == &cq;
  });
  world.wait(
      entry.lock(),
      [&] {
        return cq.comp_events_completed >= cq.events_taken &&
               cq.async_events_completed >= cq.async_taken;
      },
      "ibv_destroy_cq: events of the queue were not acknowledged");
  --cq.context_of.adapter.cqs;
  delete &cq;
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel *ibv, ibv_cq **cq, void **cq_context) {
  CompChannel &channel = of(ibv);
  World &world = of(channel.context).world;
  if (const Entry entry(world, Call::k_ibv_get_cq_event); entry.error() != 0) {
    return failed(entry.error());
  }
  return wait_for_event(world, channel.events, [&](Cq *event) {
    ++event->events_taken;
    *cq = event;
    *cq_context = event->cq_context;
  });
}

void ibv_ack_cq_events(ibv_cq *ibv, unsigned count) {
  if (count == 0) return;
  Cq &cq = of(ibv);
  const Entry entry(cq.context_of.world);
  cq.comp_events_completed += count;
  if (cq.comp_events_completed > cq.events_taken) {
    cq.context_of.world.complain("ibv_ack_cq_events: more events than ibv_get_cq_event returned");
  }
  cq.context_of.world.acknowledged.notify_all();
}

}  // extern "C"
