// SPDX-License-Identifier: BSD-2-Clause
// What a queue pair does in its turn, and how it reports it.
#include "plugins/verbs/double/transport.h"

#include <algorithm>

#include "plugins/verbs/double/connected.h"

namespace weft::verbs_double {

namespace {

enum class Action {
  kReport,     // a receive
  kComplete,   // an executed operation of the send queue
  kExecute,    // an operation
  kFlushSend,  // with IBV_WC_WR_FLUSH_ERR
  kFlushRecv,
  kTellLastWqe,
  kTellDrained
};

ibv_wc_opcode completed(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    default:
      return IBV_WC_SEND;
  }
}

// With an error only wr_id, status, qp_num and vendor_err mean something. The rest is misleading on
// purpose.
void spoil(ibv_wc &wc, uint32_t vendor_err) {
  wc.vendor_err = vendor_err;
  wc.opcode = IBV_WC_BIND_MW;
  wc.byte_len = 0xdeadbeef;
  wc.imm_data = 0xdeadbeef;
  wc.wc_flags = 0;
  wc.src_qp = 0xdeadbeef;
}

// The next operation to execute, or null. Behind a failed one nothing executes.
SendWqe *next_of(Qp &qp) {
  const auto next = std::find_if(qp.sq.begin(), qp.sq.end(), [](const SendWqe &wqe) {
    return !wqe.executed || wqe.status != IBV_WC_SUCCESS;
  });
  if (next == qp.sq.end() || next->executed) return nullptr;
  const NetworkOptions &options = qp.world.options;
  const bool may_pass = options.overtakes && options.progress != Progress::kAtOnce;
  if (!may_pass || !is_fetching(next->opcode) || !qp.world.chance(500)) return &*next;
  const auto passing = std::find_if(next, qp.sq.end(), [](const SendWqe &wqe) {
    return !wqe.executed && !is_fetching(wqe.opcode);
  });
  if (passing == qp.sq.end() || (passing->flags & IBV_SEND_FENCE) != 0) return &*next;
  return &*passing;
}

// A completion of the send queue, if there is one to write for `wqe`.
void complete(Qp &qp, const SendWqe &wqe, ibv_wc_status status, uint32_t vendor_err) {
  const bool is_told =
      status != IBV_WC_SUCCESS || qp.init.sq_sig_all != 0 || (wqe.flags & IBV_SEND_SIGNALED) != 0;
  if (!is_told) {
    ++qp.sq_unsignaled;
    return;
  }
  Completion completion;
  completion.wc.wr_id = wqe.wr_id;
  completion.wc.status = status;
  completion.wc.opcode = completed(wqe.opcode);
  completion.wc.qp_num = qp.number();
  if (is_fetching(wqe.opcode)) completion.wc.byte_len = wqe.byte_len;
  if (status != IBV_WC_SUCCESS) spoil(completion.wc, vendor_err);
  completion.owner = &qp;
  completion.send_slots = qp.sq_unsignaled + 1;
  qp.sq_unsignaled = 0;
  push(*qp.send_cq, completion);
}

void complete_front(Qp &qp) {
  const SendWqe wqe = std::move(qp.sq.front());
  qp.sq.pop_front();
  ibv_wc_status status = wqe.status;
  uint32_t vendor_err = static_cast<uint32_t>(status) << 4 | 1;
  if (status == IBV_WC_SUCCESS) {
    if (const CompletionFault *fault = qp.world.faults.on_completion(qp.number(), false)) {
      status = fault->status;
      vendor_err = fault->vendor_err;
    }
  }
  complete(qp, wqe, status, vendor_err);
  if (status == IBV_WC_SUCCESS) return;
  for (SendWqe &later : qp.sq) later.executed = false;  // it flushes, though its data may be there
  if (qp.init.qp_type == IBV_QPT_UD) {
    set_state(qp, IBV_QPS_SQE);
  } else {
    fail_queue_pair(qp);
  }
}

void flush_send(Qp &qp) {
  const SendWqe wqe = std::move(qp.sq.front());
  qp.sq.pop_front();
  for (SendWqe &later : qp.sq) later.executed = false;
  complete(qp, wqe, IBV_WC_WR_FLUSH_ERR, 0xf9);
}

void report(Qp &qp) {
  Completion arrival = qp.arrivals.front();
  qp.arrivals.pop_front();
  Cq &cq = arrival.srq != nullptr && arrival.srq->cq != nullptr ? *arrival.srq->cq : *qp.recv_cq;
  if (arrival.wc.status == IBV_WC_SUCCESS) {
    if (const CompletionFault *fault = qp.world.faults.on_completion(qp.number(), true)) {
      arrival.wc.status = fault->status;
      spoil(arrival.wc, fault->vendor_err);
      fail_queue_pair(qp);
    }
  }
  push(cq, arrival);
}

void flush_receive(Qp &qp) {
  Completion completion;
  completion.wc.wr_id = qp.rq.posted.front().wr_id;
  completion.wc.status = IBV_WC_WR_FLUSH_ERR;
  completion.wc.qp_num = qp.number();
  spoil(completion.wc, 0xf9);
  completion.owner = &qp;
  completion.recv_slots = 1;
  qp.rq.posted.pop_front();
  push(*qp.recv_cq, completion);
}

bool is_drained(const Qp &qp) {
  return std::none_of(qp.sq.begin(), qp.sq.end(), [](const SendWqe &wqe) { return wqe.executed; });
}

// What the queue pair could do now.
std::vector<Action> actions_of(Qp &qp) {
  std::vector<Action> actions;
  const ibv_qp_state state = qp.state();
  const bool flushes = state == IBV_QPS_ERR || (state == IBV_QPS_SQE && !qp.sq.empty());
  if (!qp.arrivals.empty()) actions.push_back(Action::kReport);
  if (!qp.sq.empty() && qp.sq.front().executed) {
    actions.push_back(Action::kComplete);
  } else if (flushes && !qp.sq.empty()) {
    actions.push_back(Action::kFlushSend);
  }
  if (qp.sq.size() > 1) qp.is_unread = false;
  if (state == IBV_QPS_RTS && qp.waits_in == nullptr && !qp.is_unanswered && !qp.is_unread &&
      std::any_of(qp.sq.begin(), qp.sq.end(), [](const SendWqe &wqe) { return !wqe.executed; }) &&
      std::none_of(qp.sq.begin(), qp.sq.end(), [](const SendWqe &wqe) {
        return wqe.executed && wqe.status != IBV_WC_SUCCESS;
      })) {
    actions.push_back(Action::kExecute);
  }
  if (state == IBV_QPS_ERR && qp.arrivals.empty()) {
    if (!qp.rq.posted.empty()) actions.push_back(Action::kFlushRecv);
    const bool is_shared = qp.adapter.options.features.last_receives &&
                           (qp.srq != nullptr || qp.init.qp_type == IBV_QPT_XRC_RECV);
    if (is_shared && !qp.told_last_wqe) actions.push_back(Action::kTellLastWqe);
  }
  if (state == IBV_QPS_SQD && qp.attr.en_sqd_async_notify != 0 && !qp.told_drained &&
      is_drained(qp)) {
    actions.push_back(Action::kTellDrained);
  }
  return actions;
}

void execute(Qp &qp) {
  SendWqe *wqe = next_of(qp);
  if (wqe == nullptr) return;
  if (qp.init.qp_type == IBV_QPT_UD) {
    execute_datagram(qp, *wqe);
  } else {
    execute_connected(qp, *wqe);
  }
}

}  // namespace

void make_ready(Qp &qp) {
  if (qp.is_ready) return;
  qp.is_ready = true;
  qp.world.ready.push_back(&qp);
}

void set_state(Qp &qp, ibv_qp_state state) {
  if (state != IBV_QPS_SQD) qp.told_drained = false;
  qp.attr.qp_state = qp.qp_base.state = state;
  stop_waiting(qp);
  qp.is_unanswered = false;
  make_ready(qp);
  wake_peers(qp);
}

void wake_peers(Qp &qp) {
  wake(qp.rq);
  if (qp.srq != nullptr) wake(qp.srq->rq);
  if (qp.xrcd == nullptr) return;
  for (const auto &[number, srq] : qp.adapter.srqs) {
    if (srq->xrcd == qp.xrcd) wake(srq->rq);
  }
}

void fail_queue_pair(Qp &qp) {
  if (qp.state() != IBV_QPS_RESET && qp.state() != IBV_QPS_ERR) set_state(qp, IBV_QPS_ERR);
}

void stop_waiting(Qp &qp) {
  if (qp.waits_in != nullptr) std::erase(qp.waits_in->waiting, &qp);
  qp.waits_in = nullptr;
}

void drop_receives_of(Srq &srq) {
  const auto drop = [&srq](Completion &completion) {
    if (completion.srq != &srq) return;
    completion.srq = nullptr;
    completion.recv_slots = 0;
    completion.owner = nullptr;
  };
  if (srq.cq != nullptr) std::for_each(srq.cq->entries.begin(), srq.cq->entries.end(), drop);
  for (const auto &[number, qp] : srq.pd_of.context_of.adapter.qps) {
    std::erase_if(qp->arrivals, [&](const Completion &arrival) { return arrival.srq == &srq; });
  }
}

bool act(Qp &qp) {
  const std::vector<Action> actions = actions_of(qp);
  if (actions.empty()) return false;
  const bool picks = qp.world.options.progress != Progress::kAtOnce;
  switch (actions[picks ? qp.world.random() % actions.size() : 0]) {
    case Action::kReport:
      report(qp);
      break;
    case Action::kComplete:
      complete_front(qp);
      break;
    case Action::kExecute:
      execute(qp);
      break;
    case Action::kFlushSend:
      flush_send(qp);
      break;
    case Action::kFlushRecv:
      flush_receive(qp);
      break;
    case Action::kTellLastWqe:
      qp.told_last_wqe = true;
      raise(qp.context_of, IBV_EVENT_QP_LAST_WQE_REACHED, qp.ibv());
      break;
    case Action::kTellDrained:
      qp.told_drained = true;
      raise(qp.context_of, IBV_EVENT_SQ_DRAINED, qp.ibv());
      break;
  }
  return true;
}

void look_again(Adapter &adapter) {
  for (const auto &[number, qp] : adapter.qps) {
    stop_waiting(*qp);
    make_ready(*qp);
    wake_peers(*qp);
  }
}

void retry_unanswered(World &world) {
  for (const std::unique_ptr<Adapter> &adapter : world.adapters) {
    for (const auto &[number, qp] : adapter->qps) {
      qp->is_unanswered = false;
      make_ready(*qp);
    }
  }
}

void finish(SendWqe &wqe, ibv_wc_status status) {
  wqe.executed = true;
  wqe.status = status;
}

bool gather(const Qp &qp, const SendWqe &wqe, std::vector<uint8_t> &bytes) {
  if (wqe.is_inline) {
    bytes = wqe.inline_data;
    return true;
  }
  std::vector<Piece> pieces;
  if (!resolve(qp.adapter, qp.pd_of, wqe.sges, 0, pieces)) return false;
  bytes.reserve(size_of(pieces));
  for (const Piece &piece : pieces) {
    bytes.insert(bytes.end(), piece.memory, piece.memory + piece.size);
  }
  return true;
}

void arrive(Qp &qp, Srq *srq, const RecvWqe &receive, ibv_wc wc, bool solicited) {
  Completion completion;
  wc.wr_id = receive.wr_id;
  wc.qp_num = qp.number();
  if (wc.status != IBV_WC_SUCCESS) spoil(wc, static_cast<uint32_t>(wc.status) << 4 | 2);
  completion.wc = wc;
  completion.solicited = solicited;
  completion.srq = srq;
  completion.recv_slots = 1;
  if (srq == nullptr || srq->cq == nullptr) completion.owner = &qp;  // an XRC target has no slots
  qp.arrivals.push_back(completion);
  make_ready(qp);
}

}  // namespace weft::verbs_double
