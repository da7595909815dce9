// SPDX-License-Identifier: BSD-2-Clause
// Queue pairs: making, the states of ibv_modify_qp(3), queries, the end.
#include <algorithm>
#include <optional>

#include "plugins/verbs/double/objects.h"
#include "plugins/verbs/double/transport.h"

namespace weft::verbs_double {

namespace {

// What ibv_modify_qp() needs, and what else it takes, to go from one state to another.
struct Step {
  ibv_qp_state from, to;
  int needs, takes;
};

constexpr int kInitTakes = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS | IBV_QP_QKEY;
constexpr int kRtrOptions = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int kRtsOptions = IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
                            IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE;
constexpr int kPath = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kResponder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRequester = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kSqdTakes = IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                          IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_ALT_PATH |
                          IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MAX_DEST_RD_ATOMIC |
                          IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE | IBV_QP_QKEY;

std::optional<Step> step_of(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
  const bool is_ud = type == IBV_QPT_UD;
  const int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
  const int rtr = is_ud ? 0 : kPath | (type == IBV_QPT_XRC_SEND ? 0 : kResponder);
  const int rts =
      is_ud ? IBV_QP_SQ_PSN
            : IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | (type == IBV_QPT_XRC_RECV ? 0 : kRequester);
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return Step{from, to, 0, 0};
  const Step steps[] = {
      {IBV_QPS_RESET, IBV_QPS_INIT, init, 0},
      {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInitTakes},
      {IBV_QPS_INIT, IBV_QPS_RTR, rtr, kRtrOptions | (is_ud ? IBV_QP_QKEY : 0)},
      {IBV_QPS_RTR, IBV_QPS_RTS, rts, kRtsOptions | (is_ud ? IBV_QP_QKEY : 0)},
      {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRtsOptions | (is_ud ? IBV_QP_QKEY : 0)},
      {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
      {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRtsOptions},
      {IBV_QPS_SQD, IBV_QPS_SQD, 0, kSqdTakes},
      {IBV_QPS_SQE, IBV_QPS_RTS, 0, kRtsOptions | IBV_QP_QKEY},
  };
  for (const Step &step : steps) {
    if (step.from == from && step.to == to) return step;
  }
  return std::nullopt;
}

void copy_attributes(ibv_qp_attr &to, const ibv_qp_attr &from, int mask) {
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) to.qp_access_flags = from.qp_access_flags;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) to.pkey_index = from.pkey_index;
  if ((mask & IBV_QP_PORT) != 0) to.port_num = from.port_num;
  if ((mask & IBV_QP_QKEY) != 0) to.qkey = from.qkey;
  if ((mask & IBV_QP_AV) != 0) to.ah_attr = from.ah_attr;
  if ((mask & IBV_QP_PATH_MTU) != 0) to.path_mtu = from.path_mtu;
  if ((mask & IBV_QP_TIMEOUT) != 0) to.timeout = from.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) to.retry_cnt = from.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) to.rnr_retry = from.rnr_retry;
  if ((mask & IBV_QP_RQ_PSN) != 0) to.rq_psn = from.rq_psn;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) to.max_rd_atomic = from.max_rd_atomic;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) to.min_rnr_timer = from.min_rnr_timer;
  if ((mask & IBV_QP_SQ_PSN) != 0) to.sq_psn = from.sq_psn;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  if ((mask & IBV_QP_DEST_QPN) != 0) to.dest_qp_num = from.dest_qp_num;
  if ((mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0) to.en_sqd_async_notify = from.en_sqd_async_notify;
}

int check_values(const Qp &qp, const ibv_qp_attr &attr, int mask) {
  const Limits &limits = qp.adapter.options.limits;
  if ((mask & IBV_QP_PORT) != 0 && attr.port_num != 1) return EINVAL;
  if ((mask & IBV_QP_PKEY_INDEX) != 0 && attr.pkey_index != 0) return EINVAL;
  if ((mask & IBV_QP_PATH_MTU) != 0 &&
      (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > qp.adapter.options.mtu)) {
    return EINVAL;
  }
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attr.max_rd_atomic > limits.max_rd_atom) {
    return EINVAL;
  }
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && attr.max_dest_rd_atomic > limits.max_rd_atom) {
    return EINVAL;
  }
  if ((mask & IBV_QP_RETRY_CNT) != 0 && attr.retry_cnt > 7) return EINVAL;
  if ((mask & IBV_QP_RNR_RETRY) != 0 && attr.rnr_retry > 7) return EINVAL;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0 && attr.min_rnr_timer > 31) return EINVAL;
  if ((mask & IBV_QP_AV) != 0) {
    if (!qp.adapter.options.infiniband && attr.ah_attr.is_global == 0) return EINVAL;
    if (attr.ah_attr.is_global != 0 && attr.ah_attr.grh.sgid_index >= qp.adapter.gids.size()) {
      return EINVAL;
    }
  }
  return 0;
}

// What a queue pair holds of entries in queues is given back, and its work is forgotten.
void drop_work(Qp &qp, bool removes_completions) {
  qp.sq.clear();
  qp.rq.posted.clear();
  for (Completion &arrival : qp.arrivals) {
    if (arrival.srq != nullptr) arrival.srq->rq.used -= arrival.recv_slots;
  }
  qp.arrivals.clear();
  if (qp.send_cq != nullptr) forget(*qp.send_cq, qp, removes_completions);
  if (qp.recv_cq != nullptr) forget(*qp.recv_cq, qp, removes_completions);
  qp.sq_used = qp.sq_unsignaled = qp.rq.used = 0;
  qp.told_last_wqe = qp.told_drained = qp.told_established = false;
  stop_waiting(qp);
}

uint32_t new_number(Adapter &adapter) {
  if (!adapter.options.features.reuses_numbers) return adapter.next_qp++;
  uint32_t number = adapter.next_qp;
  while (adapter.qps.contains(number)) ++number;
  return number;
}

int check_wanted(const Context &context, const ibv_qp_init_attr_ex &wanted) {
  const DeviceOptions &options = context.adapter.options;
  const Limits &limits = options.limits;
  const ibv_qp_cap &cap = wanted.cap;
  const bool is_xrc = wanted.qp_type == IBV_QPT_XRC_SEND || wanted.qp_type == IBV_QPT_XRC_RECV;
  if (wanted.qp_type != IBV_QPT_RC && wanted.qp_type != IBV_QPT_UD && !is_xrc) return EOPNOTSUPP;
  if (is_xrc && !options.features.xrc) return EOPNOTSUPP;
  if (wanted.qp_type == IBV_QPT_UD && options.iwarp) return EOPNOTSUPP;
  if (wanted.qp_type == IBV_QPT_XRC_RECV) return wanted.xrcd == nullptr ? EINVAL : 0;
  const bool has_rq = wanted.srq == nullptr && wanted.qp_type != IBV_QPT_XRC_SEND;
  if (wanted.pd == nullptr || wanted.send_cq == nullptr) return EINVAL;
  if (wanted.recv_cq == nullptr && wanted.qp_type != IBV_QPT_XRC_SEND) return EINVAL;
  const auto max_wr = static_cast<uint32_t>(limits.max_qp_wr);
  const auto max_sge = static_cast<uint32_t>(limits.max_sge);
  if (cap.max_send_wr > max_wr || cap.max_send_sge > max_sge) return EINVAL;
  if (has_rq && (cap.max_recv_wr > max_wr || cap.max_recv_sge > max_sge)) return EINVAL;
  if (cap.max_inline_data > limits.max_inline) return EINVAL;
  if (wanted.srq != nullptr && of(wanted.srq).xrcd != nullptr) return EINVAL;
  return 0;
}

}  // namespace

Qp::Qp(Context &opened, const ibv_qp_init_attr_ex &wanted)
    : ibv_qp_ex{},
      context_of(opened),
      adapter(opened.adapter),
      world(opened.world),
      counted(opened.world, "ibv_qp"),
      init(wanted) {
  if (wanted.qp_type == IBV_QPT_XRC_RECV) {
    init.pd = nullptr;
    init.send_cq = init.recv_cq = nullptr;
    init.srq = nullptr;
    xrcd = &of(wanted.xrcd);
    ++xrcd->users;
  } else {
    pd_of = &of(init.pd);
    ++pd_of->users;
    send_cq = &of(init.send_cq);
    ++send_cq->users;
    if (init.recv_cq != nullptr) {
      recv_cq = &of(init.recv_cq);
      ++recv_cq->users;
    }
    if (init.srq != nullptr) {
      srq = &of(init.srq);
      ++srq->users;
    }
  }
  qp_base.context = opened.ibv();
  qp_base.qp_context = wanted.qp_context;
  qp_base.pd = init.pd;
  qp_base.send_cq = init.send_cq;
  qp_base.recv_cq = init.recv_cq;
  qp_base.srq = init.srq;
  qp_base.qp_num = new_number(adapter);
  qp_base.state = IBV_QPS_RESET;
  qp_base.qp_type = wanted.qp_type;
  if (srq != nullptr || wanted.qp_type == IBV_QPT_XRC_SEND) {
    init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
  }
  attr.cap = init.cap;
  attr.qp_state = IBV_QPS_RESET;
  adapter.qps[number()] = this;
}

Qp *make_qp(Context &context, ibv_qp_init_attr_ex &wanted, int &error) {
  error = context.adapter.removed ? EIO : check_wanted(context, wanted);
  if (error != 0) return nullptr;
  if (context.adapter.qps.size() >= static_cast<size_t>(context.adapter.options.limits.max_qp)) {
    error = ENOMEM;
    return nullptr;
  }
  for (const ibv_context *other : {wanted.pd != nullptr ? wanted.pd->context : nullptr,
                                   wanted.send_cq != nullptr ? wanted.send_cq->context : nullptr,
                                   wanted.recv_cq != nullptr ? wanted.recv_cq->context : nullptr,
                                   wanted.srq != nullptr ? wanted.srq->context : nullptr}) {
    if (other != nullptr && other != context.ibv() && wanted.qp_type != IBV_QPT_XRC_RECV) {
      error = EINVAL;
      return nullptr;
    }
  }
  return new Qp(context, wanted);
}

int change_qp(Qp &qp, const ibv_qp_attr &attr, int mask) {
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : qp.state();
  if ((mask & IBV_QP_CUR_STATE) != 0 && attr.cur_qp_state != qp.state()) return EINVAL;
  const std::optional<Step> step = step_of(qp.init.qp_type, qp.state(), to);
  if (!step) return EINVAL;
  const int given = mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
  if ((given & step->needs) != step->needs) return EINVAL;
  if ((given & ~(step->needs | step->takes)) != 0) return EINVAL;
  if (const int error = check_values(qp, attr, given); error != 0) return error;
  copy_attributes(qp.attr, attr, given);
  set_state(qp, to);
  if (to == IBV_QPS_RESET) {
    drop_work(qp, /*removes_completions=*/true);
    const ibv_qp_cap cap = qp.attr.cap;
    qp.attr = {};
    qp.attr.cap = cap;
  }
  return 0;
}

int end_qp(Entry &entry, Qp &qp) {
  if (std::any_of(qp.adapter.groups.begin(), qp.adapter.groups.end(), [&](const auto &group) {
        return std::find(group.second.begin(), group.second.end(), &qp) != group.second.end();
      })) {
    return EBUSY;
  }
  if (qp.opened_times > 0) {
    --qp.opened_times;
    return 0;
  }
  qp.context_of.async.take([&](const ibv_async_event &event) {
    switch (event.event_type) {
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_COMM_EST:
      case IBV_EVENT_SQ_DRAINED:
      case IBV_EVENT_QP_LAST_WQE_REACHED:
        return event.element.qp == qp.ibv();
      default:
        return false;
    }
  });
  qp.adapter.qps.erase(qp.number());  // from here on it does not answer
  qp.world.wait(
      entry.lock(), [&] { return qp.qp_base.events_completed >= qp.async_taken; },
      "ibv_destroy_qp: events of the queue pair were not acknowledged");
  drop_work(qp, !qp.adapter.options.features.keeps_completions);
  wake_peers(qp);
  std::erase(qp.world.ready, &qp);
  if (qp.pd_of != nullptr) --qp.pd_of->users;
  if (qp.send_cq != nullptr) --qp.send_cq->users;
  if (qp.recv_cq != nullptr) --qp.recv_cq->users;
  if (qp.srq != nullptr) --qp.srq->users;
  if (qp.xrcd != nullptr) --qp.xrcd->users;
  delete &qp;
  return 0;
}

ibv_qp *create_qp_ex(ibv_context *ibv, ibv_qp_init_attr_ex *wanted) {
  Context &context = of(ibv);
  const Entry entry(context.world, Call::k_ibv_create_qp_ex);
  if (entry.error() != 0) return no_object(entry.error());
  constexpr uint32_t kKnown = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD;
  if ((wanted->comp_mask & ~kKnown) != 0) return no_object(EOPNOTSUPP);
  ibv_qp_init_attr_ex checked = *wanted;
  if ((wanted->comp_mask & IBV_QP_INIT_ATTR_PD) == 0) checked.pd = nullptr;
  if ((wanted->comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0) checked.xrcd = nullptr;
  int error = 0;
  Qp *qp = make_qp(context, checked, error);
  if (qp == nullptr) return no_object(error);
  wanted->cap = qp->init.cap;
  return qp->ibv();
}

}  // namespace weft::verbs_double

using namespace weft::verbs_double;

extern "C" {

ibv_qp *ibv_create_qp(ibv_pd *pd, ibv_qp_init_attr *wanted) {
  Context &context = of(pd).context_of;
  const Entry entry(context.world, Call::k_ibv_create_qp);
  if (entry.error() != 0) return no_object(entry.error());
  ibv_qp_init_attr_ex whole = {};
  std::memcpy(&whole, wanted, sizeof *wanted);  // it begins with the same fields
  whole.comp_mask = IBV_QP_INIT_ATTR_PD;
  whole.pd = pd;
  int error = 0;
  Qp *qp = make_qp(context, whole, error);
  if (qp == nullptr) return no_object(error);
  wanted->cap = qp->init.cap;
  return qp->ibv();
}

int ibv_modify_qp(ibv_qp *ibv, ibv_qp_attr *attr, int mask) {
  Qp &qp = of(ibv);
  const Entry entry(qp.world, Call::k_ibv_modify_qp);
  if (entry.error() != 0) return entry.error();
  if (qp.adapter.removed) {
    return (mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_ERR ? 0 : EIO;
  }
  return change_qp(qp, *attr, mask);
}

int ibv_query_qp(ibv_qp *ibv, ibv_qp_attr *attr, int, ibv_qp_init_attr *init) {
  Qp &qp = of(ibv);
  const Entry entry(qp.world, Call::k_ibv_query_qp);
  if (entry.error() != 0) return entry.error();
  *attr = qp.attr;
  attr->cur_qp_state = qp.state();
  std::memcpy(static_cast<void *>(init), &qp.init, sizeof *init);
  return 0;
}

int ibv_destroy_qp(ibv_qp *ibv) {
  Qp &qp = of(ibv);
  Entry entry(qp.world, Call::k_ibv_destroy_qp);
  if (entry.error() != 0) return entry.error();
  return end_qp(entry, qp);
}

ibv_qp_ex *ibv_qp_to_qp_ex(ibv_qp *) {
  return nullptr;
}  // no queue pair has these operations

int ibv_query_qp_data_in_order(ibv_qp *, ibv_wr_opcode, uint32_t) {
  return 0;
}

int ibv_set_ece(ibv_qp *, ibv_ece *) {
  return EOPNOTSUPP;
}

int ibv_query_ece(ibv_qp *, ibv_ece *) {
  return EOPNOTSUPP;
}

}  // extern "C"
