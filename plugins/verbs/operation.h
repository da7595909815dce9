// SPDX-License-Identifier: BSD-2-Clause
// What the device has been asked to do and has not finished: the wr_id of a work request leads to
// one of these.
//
// Example (statements):
//    SendOp op;
//    const uint64_t id = work_id(op);
//    const bool receive = is_receive(id);  // false
//    SendOp &same = *send_op(id);
//
// A failed work completion has little more than its wr_id, so everything that an error entry needs
// is here. Not for the work requests themselves.
#ifndef WEFT_PLUGINS_VERBS_OPERATION_H
#define WEFT_PLUGINS_VERBS_OPERATION_H

#include <infiniband/verbs.h>
#include <weft/sdk/memory/iov.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "plugins/verbs/region.h"

namespace weft::verbs {

class SharedReceive;
class WorkQueues;

struct SendOp {
  WorkQueues *queues = nullptr;
  void *context = nullptr;
  uint64_t flags = 0;  // of the completion
  uint64_t length = 0;
  uint64_t number = 0;     // its place in the order of the queue
  SendOp *next = nullptr;  // behind it in flight, or among the refused
  bool report = false;
  bool signalled = false;  // it has a completion of its own
  bool told = false;       // which was taken from the device (the queue's lock),
  bool done = false;       // and has gone to the application (the endpoint's)
  int failed = 0;          // the device refused it after the call had returned: an errno
  // Part of a read: the last part, which reports for all. The operation itself: nobody reports it.
  SendOp *whole = nullptr;
  ibv_wc_status cause = IBV_WC_SUCCESS;  // of that: why the first part failed
};

struct RecvOp {
  WorkQueues *queues = nullptr;     // null: of a shared receive context
  SharedReceive *shared = nullptr;  // null: of an endpoint
  void *context = nullptr;
  uint64_t flags = 0;      // as posted
  uint64_t number = 0;     // its place in the order of the queue; 0: not in flight
  RecvOp *next = nullptr;  // while there is no queue pair
  uint32_t count = 0;
  ibv_sge pieces[sdk::kIovLimit];
};

inline uint64_t work_id(const SendOp &op) {
  return reinterpret_cast<uintptr_t>(&op);
}
inline uint64_t work_id(const RecvOp &op) {
  return reinterpret_cast<uintptr_t>(&op) | 1;
}
// `needs_piece`: siw refuses a receive without a vector.
inline ibv_recv_wr receive_work(RecvOp &op, bool needs_piece) {
  if (op.count == 0 && needs_piece) op.pieces[op.count++] = {};
  ibv_recv_wr work;
  work.wr_id = work_id(op);
  work.next = nullptr;
  work.sg_list = op.pieces;
  work.num_sge = int(op.count);
  return work;
}
// What a call returns where the device has refused its request; siw's errors are negative.
inline ssize_t post_error(int error) {
  const int positive = std::abs(error);
  return positive == ENOMEM ? -FI_EAGAIN : -positive;
}
inline bool is_receive(uint64_t id) {
  return id & 1;
}
inline SendOp *send_op(uint64_t id) {
  return reinterpret_cast<SendOp *>(uintptr_t(id));
}
inline RecvOp *recv_op(uint64_t id) {
  return reinterpret_cast<RecvOp *>(uintptr_t(id & ~uint64_t(1)));
}

// Turns vectors and their descriptors into pieces for the device. 0, or -FI_EINVAL where a buffer
// has no descriptor.
inline ssize_t fill_pieces(const iovec *iov, void *const *desc, size_t count, ibv_sge *pieces,
                           uint32_t &used) {
  uint32_t n = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t length = iov[i].iov_len;
    if (length == 0 || iov[i].iov_base == nullptr) continue;
    if (desc == nullptr || desc[i] == nullptr || length > UINT32_MAX) return -FI_EINVAL;
    pieces[n].addr = reinterpret_cast<uintptr_t>(iov[i].iov_base);
    pieces[n].length = uint32_t(length);
    pieces[n].lkey = Region::of(desc[i]).local_key();
    ++n;
  }
  used = n;
  return 0;
}

}  // namespace weft::verbs

#endif
