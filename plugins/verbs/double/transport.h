// SPDX-License-Identifier: BSD-2-Clause
// The hardware: queue pairs take what was posted, move the data, and report it. A queue pair does
// one thing at a time, such as to execute an operation at its peer, to complete one, or to report a
// receive; World::step() chooses whose turn it is.
//
// Example:
//    // Puts a queue pair into the error state, and lets it flush.
//    void give_up(World &world, Qp &qp) {
//      const Entry entry(world);
//      fail_queue_pair(qp);  // at the end of the entry its work flushes (Progress::kAtOnce)
//    }
//
// What a program may see follows from the order of these things:
// - Operations of a queue pair execute in order. With Progress::kByStep a read or an atomic may be
//   passed by later sends and writes without a fence, as the specification allows.
// - Completions of a queue come in order. Those of a message at its two ends come in any order.
//
// Not for the connection manager (cm.h), which changes states only.
#ifndef WEFT_PLUGINS_VERBS_DOUBLE_TRANSPORT_H
#define WEFT_PLUGINS_VERBS_DOUBLE_TRANSPORT_H

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

#include "plugins/verbs/double/objects.h"

namespace weft::verbs_double {

// The queue pair may have something to do.
void make_ready(Qp &qp);
// The state changes, and whoever waits for that tries again.
void set_state(Qp &qp, ibv_qp_state state);
// Into the error state, from any state in which it works.
void fail_queue_pair(Qp &qp);
// Messages to this queue pair that wait for a receive look at its state again.
void wake_peers(Qp &qp);
// It waits for no receive of a peer any more.
void stop_waiting(Qp &qp);
// Completions that count for this shared queue count for none.
void drop_receives_of(Srq &srq);
// Does one thing for this queue pair. False if there is nothing to do now.
bool act(Qp &qp);
// The reach of this device has changed: who waits for it, or in it, tries again.
void look_again(Adapter &adapter);
// Peers that did not answer are asked again.
void retry_unanswered(World &world);

inline bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
inline bool is_fetching(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}
inline bool has_immediate(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

// The operation is over, with this status.
void finish(SendWqe &wqe, ibv_wc_status status);
// The bytes that an operation sends. False if a local key does not allow it.
bool gather(const Qp &qp, const SendWqe &wqe, std::vector<uint8_t> &bytes);
// A receive was filled, or failed; the queue pair reports it in its turn.
void arrive(Qp &qp, Srq *srq, const RecvWqe &receive, ibv_wc wc, bool solicited);

// ud.cc: executes an operation of a UD queue pair.
void execute_datagram(Qp &qp, SendWqe &wqe);
void deliver_forged(Qp &receiver, const ForgedDatagram &forged);

}  // namespace weft::verbs_double

#endif
