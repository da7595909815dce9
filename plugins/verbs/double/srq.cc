// SPDX-License-Identifier: BSD-2-Clause
// Receive queues: taking a receive, waiting for one, and shared receive queues with their limit.
#include <algorithm>

#include "plugins/verbs/double/objects.h"
#include "plugins/verbs/double/transport.h"

namespace weft::verbs_double {

namespace {

int check_wanted(const Context &context, const ibv_srq_attr &attr) {
  const DeviceOptions &options = context.adapter.options;
  if (!options.features.srq) return EOPNOTSUPP;
  if (context.adapter.removed) return EIO;
  if (attr.max_wr == 0 || attr.max_wr > static_cast<uint32_t>(options.limits.max_srq_wr)) {
    return EINVAL;
  }
  if (attr.max_sge > static_cast<uint32_t>(options.limits.max_srq_sge)) return EINVAL;
  if (context.adapter.srqs.size() >= static_cast<size_t>(options.limits.max_srq)) return ENOMEM;
  return 0;
}

Srq *make_srq(Pd &pd, void *user_context, const ibv_srq_attr &attr) {
  auto *srq = new Srq(pd, attr);
  Adapter &adapter = pd.context_of.adapter;
  srq->context = pd.context;
  srq->srq_context = user_context;
  srq->pd = &pd;
  srq->attr.srq_limit = 0;
  srq->number = adapter.next_srq++;
  adapter.srqs[srq->number] = srq;
  ++pd.users;
  return srq;
}

}  // namespace

bool take_receive(RecvQueue &rq, Srq *srq, RecvWqe &receive) {
  if (rq.posted.empty()) return false;
  receive = std::move(rq.posted.front());
  rq.posted.pop_front();
  if (srq != nullptr && srq->attr.srq_limit > 0 && rq.posted.size() < srq->attr.srq_limit) {
    srq->attr.srq_limit = 0;  // the event comes once for each ibv_modify_srq()
    raise(srq->pd_of.context_of, IBV_EVENT_SRQ_LIMIT_REACHED, static_cast<ibv_srq *>(srq));
  }
  return true;
}

void wake(RecvQueue &rq) {
  for (Qp *qp : std::exchange(rq.waiting, {})) {
    qp->waits_in = nullptr;
    make_ready(*qp);
  }
}

ibv_srq *create_srq_ex(ibv_context *ibv, ibv_srq_init_attr_ex *wanted) {
  Context &context = of(ibv);
  const Entry entry(context.world, Call::k_ibv_create_srq_ex);
  if (entry.error() != 0) return no_object(entry.error());
  constexpr uint32_t kNeeded =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  if (wanted->comp_mask != kNeeded || wanted->srq_type != IBV_SRQT_XRC)
    return no_object(EOPNOTSUPP);
  if (!context.adapter.options.features.xrc) return no_object(EOPNOTSUPP);
  if (const int error = check_wanted(context, wanted->attr); error != 0) return no_object(error);
  if (wanted->pd->context != ibv || wanted->xrcd->context != ibv || wanted->cq->context != ibv) {
    return no_object(EINVAL);
  }
  Srq *srq = make_srq(of(wanted->pd), wanted->srq_context, wanted->attr);
  srq->xrcd = &of(wanted->xrcd);
  srq->cq = &of(wanted->cq);
  ++srq->xrcd->users;
  ++srq->cq->users;
  return srq;
}

int get_srq_num(ibv_srq *ibv, uint32_t *number) {
  Srq &srq = of(ibv);
  const Entry entry(srq.pd_of.context_of.world, Call::k_ibv_get_srq_num);
  if (entry.error() != 0) return entry.error();
  if (srq.xrcd == nullptr) return EINVAL;
  *number = srq.number;
  return 0;
}

int post_srq_recv(ibv_srq *ibv, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  Srq &srq = of(ibv);
  const Entry entry(srq.pd_of.context_of.world, Call::k_ibv_post_srq_recv);
  const int error = srq.pd_of.context_of.adapter.removed ? EIO : entry.error();
  if (error != 0) {
    *bad = wr;
    return error;
  }
  return post_receives(srq.rq, srq.attr.max_wr, srq.attr.max_sge, wr, bad);
}

}  // namespace weft::verbs_double

using namespace weft::verbs_double;

extern "C" {

ibv_srq *ibv_create_srq(ibv_pd *ibv, ibv_srq_init_attr *wanted) {
  Pd &pd = of(ibv);
  const Entry entry(pd.context_of.world, Call::k_ibv_create_srq);
  if (entry.error() != 0) return no_object(entry.error());
  const int error = check_wanted(pd.context_of, wanted->attr);
  return error != 0 ? no_object(error) : make_srq(pd, wanted->srq_context, wanted->attr);
}

int ibv_modify_srq(ibv_srq *ibv, ibv_srq_attr *attr, int mask) {
  Srq &srq = of(ibv);
  const Entry entry(srq.pd_of.context_of.world, Call::k_ibv_modify_srq);
  if (entry.error() != 0) return entry.error();
  if (srq.pd_of.context_of.adapter.removed) return EIO;
  if ((mask & ~IBV_SRQ_LIMIT) != 0) return EINVAL;  // the device cannot resize (SRQ_RESIZE)
  if ((mask & IBV_SRQ_LIMIT) == 0) return 0;
  if (attr->srq_limit > srq.attr.max_wr) return EINVAL;
  srq.attr.srq_limit = attr->srq_limit;
  return 0;
}

int ibv_query_srq(ibv_srq *ibv, ibv_srq_attr *attr) {
  Srq &srq = of(ibv);
  const Entry entry(srq.pd_of.context_of.world, Call::k_ibv_query_srq);
  if (entry.error() != 0) return entry.error();
  *attr = srq.attr;
  return 0;
}

int ibv_destroy_srq(ibv_srq *ibv) {
  Srq &srq = of(ibv);
  World &world = srq.pd_of.context_of.world;
  Entry entry(world, Call::k_ibv_destroy_srq);
  if (entry.error() != 0) return entry.error();
  if (srq.users > 0) return EBUSY;
  srq.pd_of.context_of.async.take([&](const ibv_async_event &event) {
    return (event.event_type == IBV_EVENT_SRQ_ERR ||
            event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED) &&
           event.element.srq == &srq;
  });
  srq.pd_of.context_of.adapter.srqs.erase(srq.number);
  world.wait(
      entry.lock(), [&] { return srq.events_completed >= srq.async_taken; },
      "ibv_destroy_srq: events of the queue were not acknowledged");
  drop_receives_of(srq);
  wake(srq.rq);
  --srq.pd_of.users;
  if (srq.xrcd != nullptr) --srq.xrcd->users;
  if (srq.cq != nullptr) --srq.cq->users;
  delete &srq;
  return 0;
}

}  // extern "C"
