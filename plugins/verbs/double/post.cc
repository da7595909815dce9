// SPDX-License-Identifier: BSD-2-Clause
// Work requests: what ibv_post_send(3) and ibv_post_recv(3) check before the device sees them.
#include "plugins/verbs/double/objects.h"
#include "plugins/verbs/double/transport.h"

namespace weft::verbs_double {

namespace {

bool can_send(ibv_qp_type type, ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      return type != IBV_QPT_XRC_RECV;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
    default:
      return false;
  }
}

int check_send(const Qp &qp, const ibv_send_wr &wr) {
  if (qp.adapter.removed) return EIO;
  switch (qp.state()) {
    case IBV_QPS_RTS:
    case IBV_QPS_SQD:
    case IBV_QPS_SQE:
    case IBV_QPS_ERR:
      break;
    default:
      return EINVAL;
  }
  if (!can_send(qp.init.qp_type, wr.opcode)) return EINVAL;
  if (is_atomic(wr.opcode) && !qp.adapter.options.features.atomics) return EINVAL;
  if (has_immediate(wr.opcode) && qp.adapter.options.iwarp) return EINVAL;
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > qp.init.cap.max_send_sge) return EINVAL;
  if (wr.opcode == IBV_WR_RDMA_READ && wr.num_sge > qp.adapter.options.limits.max_sge_rd)
    return EINVAL;
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    if (wr.opcode == IBV_WR_RDMA_READ || is_atomic(wr.opcode)) return EINVAL;
    uint64_t size = 0;
    for (int i = 0; i < wr.num_sge; ++i) size += wr.sg_list[i].length;
    if (size > qp.init.cap.max_inline_data) return EINVAL;
  }
  if (qp.init.qp_type == IBV_QPT_UD) {
    if (wr.wr.ud.ah == nullptr || wr.wr.ud.remote_qpn > 0xffffff) return EINVAL;
  }
  if (qp.sq_used >= qp.init.cap.max_send_wr) return ENOMEM;
  return 0;
}

SendWqe wqe_of(const Qp &qp, const ibv_send_wr &wr) {
  SendWqe wqe;
  wqe.wr_id = wr.wr_id;
  wqe.opcode = wr.opcode;
  wqe.flags = wr.send_flags;
  wqe.imm = wr.imm_data;
  if (qp.init.qp_type == IBV_QPT_UD) {
    const Ah &ah = of(wr.wr.ud.ah);
    wqe.ah_pd = &ah.pd_of;
    wqe.ah = ah.attr;
    wqe.remote_qpn = wr.wr.ud.remote_qpn;
    wqe.remote_qkey = wr.wr.ud.remote_qkey;
  } else if (is_atomic(wr.opcode)) {
    wqe.remote_addr = wr.wr.atomic.remote_addr;
    wqe.rkey = wr.wr.atomic.rkey;
    wqe.compare_add = wr.wr.atomic.compare_add;
    wqe.swap = wr.wr.atomic.swap;
  } else if (wr.opcode != IBV_WR_SEND && wr.opcode != IBV_WR_SEND_WITH_IMM) {
    wqe.remote_addr = wr.wr.rdma.remote_addr;
    wqe.rkey = wr.wr.rdma.rkey;
  }
  if (qp.init.qp_type == IBV_QPT_XRC_SEND) wqe.remote_srqn = wr.qp_type.xrc.remote_srqn;
  wqe.is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge &sge = wr.sg_list[i];
    if (wqe.is_inline) {
      const auto *bytes = reinterpret_cast<const uint8_t *>(sge.addr);
      wqe.inline_data.insert(wqe.inline_data.end(), bytes, bytes + sge.length);
    } else {
      wqe.sges.push_back(sge);
    }
  }
  return wqe;
}

}  // namespace

int post_send(ibv_qp *ibv, ibv_send_wr *wr, ibv_send_wr **bad) {
  Qp &qp = of(ibv);
  const Entry entry(qp.world, Call::k_ibv_post_send);
  int error = entry.error();
  for (; wr != nullptr; wr = wr->next) {
    if (error == 0) error = check_send(qp, *wr);
    if (error != 0) {
      *bad = wr;
      break;
    }
    qp.sq.push_back(wqe_of(qp, *wr));
    ++qp.sq_used;
  }
  make_ready(qp);
  return error;
}

int post_receives(RecvQueue &rq, uint32_t max_wr, uint32_t max_sge, ibv_recv_wr *wr,
                  ibv_recv_wr **bad) {
  for (; wr != nullptr; wr = wr->next) {
    int error = 0;
    if (wr->num_sge < 0 || static_cast<uint32_t>(wr->num_sge) > max_sge) error = EINVAL;
    if (error == 0 && rq.used >= max_wr) error = ENOMEM;
    if (error != 0) {
      *bad = wr;
      wake(rq);
      return error;
    }
    rq.posted.push_back({wr->wr_id, {wr->sg_list, wr->sg_list + wr->num_sge}});
    ++rq.used;
  }
  wake(rq);
  return 0;
}

int post_recv(ibv_qp *ibv, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  Qp &qp = of(ibv);
  const Entry entry(qp.world, Call::k_ibv_post_recv);
  int error = entry.error();
  if (error == 0 && qp.adapter.removed) error = EIO;
  if (error == 0 && (qp.state() == IBV_QPS_RESET || qp.srq != nullptr)) error = EINVAL;
  if (error == 0 && (qp.init.qp_type != IBV_QPT_RC && qp.init.qp_type != IBV_QPT_UD))
    error = EINVAL;
  if (error != 0) {
    *bad = wr;
    return error;
  }
  for (const ibv_recv_wr *one = wr; qp.adapter.options.iwarp && one != nullptr; one = one->next) {
    if (one->num_sge != 0) continue;
    *bad = wr;
    return EINVAL;  // as siw
  }
  error = post_receives(qp.rq, qp.init.cap.max_recv_wr, qp.init.cap.max_recv_sge, wr, bad);
  make_ready(qp);  // in the error state it flushes
  return error;
}

}  // namespace weft::verbs_double
