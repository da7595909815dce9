// SPDX-License-Identifier: BSD-2-Clause
// A shared receive context (fi_srx_context): a shared receive queue of the device.
//
// Example:
//    inline int post(SharedReceive &context, void *buffer, size_t size, void *desc) {
//      return int(context.recv(buffer, size, desc, FI_ADDR_UNSPEC, /*context=*/buffer));
//    }
//
// A receive completes in the queue of the endpoint that it served. Not for unconnected endpoints.
#ifndef WEFT_PLUGINS_VERBS_SHARED_RECEIVE_H
#define WEFT_PLUGINS_VERBS_SHARED_RECEIVE_H

#include <infiniband/verbs.h>
#include <weft/sdk/memory/pool.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/transfers/recv_ops.h>

#include <atomic>

#include "plugins/verbs/operation.h"

namespace weft::verbs {

class CompletionQueue;
class Domain;

class SharedReceive final : public sdk::Object<SharedReceive, fid_ep>,
                            public sdk::ReceiveOps<SharedReceive> {
 public:
  static Result<SharedReceive *> open(Domain &domain, const fi_rx_attr *attr, void *context);

  // Null: it is none of this domain.
  static SharedReceive *find(struct fid *fid, Domain &domain);

  ibv_srq *c_srq() { return srq_; }
  // In a domain with XRC the device's queue names a completion queue, so the first endpoint that is
  // enabled makes it. All have the same completion queue.
  bool is_xrc() const { return is_xrc_; }
  Result<void> start_xrc(CompletionQueue &queue);
  uint32_t number() const { return number_; }  // by which peers name it
  size_t size() const { return ops_.limit(); }
  void release(RecvOp &op) {
    sdk::Guard guard(lock_);
    ops_.give(&op);
  }
  std::atomic<size_t> users{0};  // endpoints bound

  // ---- for ReceiveOps ----
  sdk::Lock &lock() { return lock_; }
  bool enabled() const { return true; }
  bool offers(uint64_t kind, uint64_t) const { return kind == FI_MSG; }
  uint64_t rx_flags() const { return op_flags_; }
  ssize_t start(const sdk::RecvRequest &request);

  // fi_ops_ep
  ssize_t rx_size_left();
  // The device has every receive, and gives none back.
  ssize_t cancel(void *) { return -FI_ENOENT; }

  // fi_ops
  int close();
  int control(int command, void *arg);

 private:
  ssize_t post(RecvOp &op);
  ssize_t post_early(RecvOp &op);
  SharedReceive(Domain &domain, ibv_srq *srq, size_t size, uint64_t op_flags, void *context);
  ~SharedReceive() = default;

  Domain &domain_;
  const bool is_xrc_;
  const bool needs_piece_;
  ibv_srq *srq_;  // null: not made yet
  CompletionQueue *queue_ = nullptr;
  uint32_t number_ = 0;
  RecvOp *early_ = nullptr, *last_early_ = nullptr;  // posted before it was made
  const uint64_t op_flags_;
  sdk::Lock lock_;
  sdk::Pool<RecvOp> ops_;
};

}  // namespace weft::verbs

#endif
