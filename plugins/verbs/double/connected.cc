// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/double/connected.h"

#include <algorithm>

#include "plugins/verbs/double/transport.h"

namespace weft::verbs_double {

namespace {

// The peer, or null: it does not answer. `starts` says that it will, once it is ready to receive.
Qp *responder_of(const Qp &qp, bool &starts) {
  starts = false;
  const Adapter *adapter = qp.world.adapter_of(qp.attr.ah_attr);
  if (adapter == nullptr || !adapter->is_reachable() || !qp.adapter.is_reachable()) return nullptr;
  const auto found = adapter->qps.find(qp.attr.dest_qp_num);
  if (found == adapter->qps.end() || found->second->is_silent || qp.is_silent) return nullptr;
  Qp &responder = *found->second;
  switch (responder.state()) {
    case IBV_QPS_INIT:
      starts = true;
      return &responder;
    case IBV_QPS_RTR:
    case IBV_QPS_RTS:
    case IBV_QPS_SQD:
    case IBV_QPS_SQE:
      return responder.attr.dest_qp_num == qp.number() ? &responder : nullptr;
    default:
      return nullptr;
  }
}

void wait_in(Qp &qp, RecvQueue &rq) {
  qp.waits_in = &rq;
  rq.waiting.push_back(&qp);
}

// The peer refuses: the operation fails, and the peer's queue pair with it.
void refuse(Qp &responder, SendWqe &wqe, ibv_wc_status status, ibv_event_type event) {
  finish(wqe, status);
  fail_queue_pair(responder);
  raise(responder.context_of, event, responder.ibv());
}

// Where the peer takes receives from; false if there is no such queue.
bool queue_of(Qp &responder, const SendWqe &wqe, RecvQueue *&rq, Srq *&srq) {
  srq = responder.srq;
  if (responder.init.qp_type == IBV_QPT_XRC_RECV) {
    const auto found = responder.adapter.srqs.find(wqe.remote_srqn);
    if (found == responder.adapter.srqs.end() || found->second->xrcd != responder.xrcd)
      return false;
    srq = found->second;
  }
  rq = srq != nullptr ? &srq->rq : &responder.rq;
  return true;
}

enum class Taken { kYes, kWaits, kFailed };

// Takes a receive for a message. Without one the operation waits, or fails when its retries are
// over.
Taken take(Qp &qp, Qp &responder, SendWqe &wqe, Srq *&srq, RecvWqe &receive) {
  RecvQueue *rq = nullptr;
  if (!queue_of(responder, wqe, rq, srq)) {
    refuse(responder, wqe, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    return Taken::kFailed;
  }
  if (take_receive(*rq, srq, receive)) return Taken::kYes;
  if (qp.adapter.options.iwarp) {
    // TCP has taken the message. The peer's TERMINATE comes later.
    finish(wqe, IBV_WC_SUCCESS);
    fail_queue_pair(qp);
    fail_queue_pair(responder);
    raise(qp.context_of, IBV_EVENT_QP_FATAL, qp.ibv());
    return Taken::kFailed;
  }
  constexpr uint8_t kForEver = 7;
  if (qp.attr.rnr_retry == kForEver || !qp.world.is_over_time()) {
    wait_in(qp, *rq);
    return Taken::kWaits;
  }
  finish(wqe, IBV_WC_RNR_RETRY_EXC_ERR);
  return Taken::kFailed;
}

ibv_wc arrival(const Qp &sender, const SendWqe &wqe, ibv_wc_status status, size_t size) {
  ibv_wc wc = {};
  wc.status = status;
  wc.opcode = wqe.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  wc.byte_len = static_cast<uint32_t>(size);
  if (has_immediate(wqe.opcode)) {
    wc.imm_data = wqe.imm;
    wc.wc_flags = IBV_WC_WITH_IMM;
  }
  wc.src_qp = sender.number();
  return wc;
}

void execute_send(Qp &qp, Qp &responder, SendWqe &wqe, std::span<const uint8_t> bytes) {
  Srq *srq = nullptr;
  RecvWqe receive;
  if (take(qp, responder, wqe, srq, receive) != Taken::kYes) return;
  const bool solicited = (wqe.flags & IBV_SEND_SOLICITED) != 0;
  const Pd *pd = srq != nullptr ? &srq->pd_of : responder.pd_of;
  std::vector<Piece> pieces;
  ibv_wc_status status = IBV_WC_SUCCESS;
  ibv_wc_status answer = IBV_WC_SUCCESS;
  if (!resolve(responder.adapter, pd, receive.sges, IBV_ACCESS_LOCAL_WRITE, pieces)) {
    status = IBV_WC_LOC_PROT_ERR;
    answer = IBV_WC_REM_OP_ERR;
  } else if (size_of(pieces) < bytes.size()) {
    status = IBV_WC_LOC_LEN_ERR;
    answer = IBV_WC_REM_INV_REQ_ERR;
  } else {
    scatter(pieces, 0, bytes);
  }
  arrive(responder, srq, receive, arrival(qp, wqe, status, bytes.size()), solicited);
  if (status != IBV_WC_SUCCESS) fail_queue_pair(responder);
  finish(wqe, answer);
}

void execute_write(Qp &qp, Qp &responder, SendWqe &wqe, std::span<const uint8_t> bytes) {
  if ((responder.attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0) {
    return refuse(responder, wqe, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  }
  Srq *srq = nullptr;
  RecvWqe receive;
  const bool tells = wqe.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  if (tells && take(qp, responder, wqe, srq, receive) != Taken::kYes) return;
  const bool solicited = (wqe.flags & IBV_SEND_SOLICITED) != 0;
  const Pd *pd = tells && srq != nullptr ? &srq->pd_of : responder.pd_of;
  if (!bytes.empty()) {
    uint8_t *target = remote_memory(responder.adapter, pd, wqe.remote_addr, bytes.size(), wqe.rkey,
                                    IBV_ACCESS_REMOTE_WRITE);
    if (target == nullptr) {
      if (tells) {
        arrive(responder, srq, receive, arrival(qp, wqe, IBV_WC_LOC_ACCESS_ERR, 0), solicited);
      }
      return refuse(responder, wqe, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    }
    std::copy(bytes.begin(), bytes.end(), target);
  }
  if (tells) {
    arrive(responder, srq, receive, arrival(qp, wqe, IBV_WC_SUCCESS, bytes.size()), solicited);
  }
  finish(wqe, IBV_WC_SUCCESS);
}

void execute_read(Qp &responder, SendWqe &wqe, std::span<const Piece> pieces) {
  if ((responder.attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) == 0 ||
      responder.attr.max_dest_rd_atomic == 0) {
    return refuse(responder, wqe, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  }
  const size_t size = size_of(pieces);
  if (size > 0) {
    const uint8_t *source = remote_memory(responder.adapter, responder.pd_of, wqe.remote_addr, size,
                                          wqe.rkey, IBV_ACCESS_REMOTE_READ);
    if (source == nullptr) {
      return refuse(responder, wqe, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    }
    const std::vector<uint8_t> bytes(source, source + size);  // both may be the same memory
    scatter(pieces, 0, bytes);
  }
  wqe.byte_len = static_cast<uint32_t>(size);
  finish(wqe, IBV_WC_SUCCESS);
}

void execute_atomic(Qp &responder, SendWqe &wqe, std::span<const Piece> pieces) {
  if ((responder.attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) == 0 ||
      responder.attr.max_dest_rd_atomic == 0 || wqe.remote_addr % sizeof(uint64_t) != 0) {
    return refuse(responder, wqe, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  }
  uint8_t *target = remote_memory(responder.adapter, responder.pd_of, wqe.remote_addr,
                                  sizeof(uint64_t), wqe.rkey, IBV_ACCESS_REMOTE_ATOMIC);
  if (target == nullptr) {
    return refuse(responder, wqe, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  }
  auto *word = reinterpret_cast<uint64_t *>(target);
  uint64_t before = wqe.compare_add;
  if (wqe.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    __atomic_compare_exchange_n(word, &before, wqe.swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  } else {
    before = __atomic_fetch_add(word, wqe.compare_add, __ATOMIC_SEQ_CST);
  }
  const auto *bytes = reinterpret_cast<const uint8_t *>(&before);
  scatter(pieces, 0, {bytes, sizeof before});
  wqe.byte_len = sizeof before;
  finish(wqe, IBV_WC_SUCCESS);
}

}  // namespace

void execute_connected(Qp &qp, SendWqe &wqe) {
  std::vector<Piece> pieces;
  std::vector<uint8_t> bytes;
  const bool fetches = is_fetching(wqe.opcode);
  const unsigned access = qp.adapter.options.iwarp
                              ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
                              : IBV_ACCESS_LOCAL_WRITE;
  if (fetches ? !resolve(qp.adapter, qp.pd_of, wqe.sges, access, pieces)
              : !gather(qp, wqe, bytes)) {
    return finish(wqe, IBV_WC_LOC_PROT_ERR);
  }
  const size_t size = fetches ? size_of(pieces) : bytes.size();
  if (size > qp.adapter.options.limits.max_msg_size) return finish(wqe, IBV_WC_LOC_LEN_ERR);
  if (is_atomic(wqe.opcode) && size != sizeof(uint64_t)) return finish(wqe, IBV_WC_LOC_LEN_ERR);
  if (fetches && qp.attr.max_rd_atomic == 0) return finish(wqe, IBV_WC_LOC_QP_OP_ERR);

  bool starts = false;
  Qp *responder = responder_of(qp, starts);
  if (starts) return wait_in(qp, responder->rq);
  if (responder == nullptr) {
    if (qp.world.is_over_time()) return finish(wqe, IBV_WC_RETRY_EXC_ERR);
    qp.is_unanswered = true;
    return;
  }
  if (responder->state() == IBV_QPS_RTR && !responder->told_established) {
    responder->told_established = true;
    raise(responder->context_of, IBV_EVENT_COMM_EST, responder->ibv());
  }
  switch (wqe.opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      return execute_send(qp, *responder, wqe, bytes);
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return execute_write(qp, *responder, wqe, bytes);
    case IBV_WR_RDMA_READ:
      return execute_read(*responder, wqe, pieces);
    default:
      return execute_atomic(*responder, wqe, pieces);
  }
}

}  // namespace weft::verbs_double
