// SPDX-License-Identifier: BSD-2-Clause
// A shared receive context of connected endpoints (fi_srx_context). Each message takes the first
// receive.
//
// Example:
//    // What an endpoint does for a message: it takes a receive, or waits until one is posted.
//    inline sdk::PostedRecv *receive_for(SharedReceiveContext &context,
//                                        sdk::RecvWaiter &endpoint) {
//      if (context.queue().front() != nullptr) return context.queue().pop();
//      context.queue().wait(endpoint);  // endpoint.on_recv_posted() follows
//      return nullptr;
//    }
//
// Not for unconnected endpoints: their shared receives match tags and sources
// (sdk::open_shared_receive).
#ifndef WEFT_PLUGINS_TCP_SHARED_RECEIVE_H
#define WEFT_PLUGINS_TCP_SHARED_RECEIVE_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/transfers/recv_queue.h>

#include <atomic>

#include "plugins/tcp/domain.h"

namespace weft::tcp {

class SharedReceiveContext final : public sdk::Object<SharedReceiveContext, fid_ep> {
 public:
  static Result<SharedReceiveContext *> open(Domain &domain, const fi_rx_attr *attr, void *context);

  sdk::RecvQueue &queue() { return queue_; }
  size_t min_multi_recv() const { return min_multi_recv_; }
  std::atomic<size_t> users{0};  // endpoints bound

  // fi_ops_msg
  ssize_t recv(void *buf, size_t len, void *desc, fi_addr_t src, void *context);
  ssize_t recvv(const struct iovec *iov, void **desc, size_t count, fi_addr_t src, void *context);
  ssize_t recvmsg(const struct fi_msg *msg, uint64_t flags);

  // fi_ops_ep
  ssize_t cancel(void *context);
  int getopt(int level, int name, void *value, size_t *length);
  int setopt(int level, int name, const void *value, size_t length);
  ssize_t rx_size_left();

  // fi_ops
  int close();
  int control(int command, void *arg);

 private:
  SharedReceiveContext(Domain &domain, uint64_t op_flags, size_t size, void *context);
  ~SharedReceiveContext() = default;

  Domain &domain_;
  sdk::RecvQueue queue_;
  const uint64_t op_flags_;
  size_t min_multi_recv_;
};

}  // namespace weft::tcp

#endif
