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
#include <weft/sdk/fid.h>
#include <weft/sdk/pool.h>
#include <weft/sdk/recv_ops.h>

#include <atomic>

#include "plugins/verbs/operation.h"

namespace weft::verbs {

class Domain;

class SharedReceive final : public sdk::Object<SharedReceive, fid_ep>,
                            public sdk::ReceiveOps<SharedReceive> {
 public:
  static Result<SharedReceive *> open(Domain &domain, const fi_rx_attr *attr, void *context);

  Domain &domain() { return domain_; }
  ibv_srq *c_srq() { return srq_; }
  size_t size() const { return ops_.limit(); }
  void release(RecvOp &op);
  std::atomic<size_t> users{0};  // endpoints bound

  // ---- for ReceiveOps ----
  sdk::Lock &lock() { return lock_; }
  bool enabled() const { return true; }
  bool offers(uint64_t kind, uint64_t) const { return kind == FI_MSG; }
  uint64_t rx_flags() const { return op_flags_; }
  ssize_t start(const sdk::RecvRequest &request);

  // fi_ops_ep
  ssize_t rx_size_left();

  // fi_ops
  int close();
  int control(int command, void *arg);

 private:
  SharedReceive(Domain &domain, ibv_srq *srq, size_t size, uint64_t op_flags, void *context);
  ~SharedReceive() = default;

  Domain &domain_;
  ibv_srq *const srq_;
  const uint64_t op_flags_;
  sdk::Lock lock_;
  sdk::Pool<RecvOp> ops_;
};

}  // namespace weft::verbs

#endif
