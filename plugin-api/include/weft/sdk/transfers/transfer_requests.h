// SPDX-License-Identifier: BSD-2-Clause
// The requests that calls of an application become: a send, a remote access, an atomic operation.
// A receive is one, too (receiver.h). What the structs of the API say is filled in here, for calls
// (transfer.h) and for deferred work (deferred.h) alike.
//
// Example:
//    ssize_t start(const SendRequest &request);
//    ssize_t send(const fi_msg_tagged &message, uint64_t flags) {
//      SendRequest request;
//      if (const ssize_t rc = fill(request, message, flags); rc != 0) return rc;
//      return start(request);
//    }
//
// They are values that point to what the caller has: vectors, descriptors. Not for the state or the
// limits of an endpoint: transfer.h checks those.
#ifndef WEFT_SDK_TRANSFERS_TRANSFER_REQUESTS_H
#define WEFT_SDK_TRANSFERS_TRANSFER_REQUESTS_H

#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/objects/contexts.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/transfers/atomic.h>
#include <weft/sdk/transfers/receiver.h>

#include <cstddef>
#include <cstdint>

namespace weft::sdk {

// `report`: a completion is wanted. `length`: bytes of all vectors. Flags are those of fi_sendmsg
// and its like (FI_INJECT, FI_REMOTE_CQ_DATA, FI_MORE, FI_FENCE, completion levels); those of calls
// without flags are the endpoint's (fi_tx_attr.op_flags).
struct SendRequest {
  bool tagged = false;
  bool report = true;
  const iovec *iov = nullptr;
  void *const *desc = nullptr;
  size_t count = 0;
  uint64_t length = 0;
  fi_addr_t dest = FI_ADDR_UNSPEC;
  uint64_t tag = 0;
  uint64_t data = 0;
  uint64_t flags = 0;
  void *context = nullptr;
};

struct RmaRequest {
  bool write = false;
  bool report = true;
  const iovec *iov = nullptr;
  void *const *desc = nullptr;
  size_t count = 0;
  uint64_t length = 0;
  const fi_rma_iov *rma = nullptr;  // their lengths add up to `length`
  size_t rma_count = 0;
  fi_addr_t dest = FI_ADDR_UNSPEC;
  uint64_t data = 0;
  uint64_t flags = 0;
  void *context = nullptr;
};

struct AtomicRequest {
  AtomicKind kind = AtomicKind::kWrite;
  bool report = true;
  int datatype = 0, op = 0;          // valid together, for this kind
  const fi_ioc *operands = nullptr;  // none for FI_ATOMIC_READ
  void *const *operand_desc = nullptr;
  size_t operand_count = 0;
  const fi_ioc *compares = nullptr;  // kCompare
  void *const *compare_desc = nullptr;
  size_t compare_count = 0;
  fi_ioc *results = nullptr;  // kFetch, kCompare
  void *const *result_desc = nullptr;
  size_t result_count = 0;
  const fi_rma_ioc *rma = nullptr;
  size_t rma_count = 0;
  uint64_t elements = 0;  // of each of those
  fi_addr_t dest = FI_ADDR_UNSPEC;
  uint64_t data = 0;
  uint64_t flags = 0;
  void *context = nullptr;
};

// The flags of TxContext::Done, from the start of the request to its end.
inline uint64_t completion_flags(const SendRequest &request) {
  return FI_SEND | (request.tagged ? FI_TAGGED : FI_MSG) | (request.flags & kDeferred);
}
inline uint64_t completion_flags(const RmaRequest &request) {
  return FI_RMA | (request.write ? FI_WRITE : FI_READ) | (request.flags & kDeferred);
}
inline uint64_t completion_flags(const AtomicRequest &request) {
  return FI_ATOMIC | (request.kind == AtomicKind::kWrite ? FI_WRITE : FI_READ) |
         (request.flags & kDeferred);
}
inline uint64_t completion_flags(const RecvRequest &request) {
  return FI_RECV | (request.tagged ? FI_TAGGED : FI_MSG) | (request.flags & kDeferred);
}

// False: the sum overflows.
inline bool add_up(const iovec *iov, size_t count, uint64_t &length) {
  length = 0;
  for (size_t i = 0; i < count; ++i)
    if (__builtin_add_overflow(length, uint64_t(iov[i].iov_len), &length)) return false;
  return true;
}

// 0, or -FI_E...: the vectors are wrong by themselves. The flags are taken as they are.
inline ssize_t fill(SendRequest &request, const fi_msg &msg, uint64_t flags) {
  if (msg.iov_count > kIovLimit || (msg.iov_count != 0 && msg.msg_iov == nullptr))
    return -FI_EINVAL;
  request.iov = msg.msg_iov;
  request.desc = msg.desc;
  request.count = msg.iov_count;
  request.dest = msg.addr;
  request.data = msg.data;
  request.flags = flags;
  request.context = msg.context;
  return add_up(msg.msg_iov, msg.iov_count, request.length) ? 0 : -FI_EMSGSIZE;
}
inline ssize_t fill(SendRequest &request, const fi_msg_tagged &msg, uint64_t flags) {
  request.tagged = true;
  request.tag = msg.tag;
  return fill(request,
              fi_msg{.msg_iov = msg.msg_iov,
                     .desc = msg.desc,
                     .iov_count = msg.iov_count,
                     .addr = msg.addr,
                     .context = msg.context,
                     .data = msg.data},
              flags);
}
// `request` says whether it writes.
inline ssize_t fill(RmaRequest &request, const fi_msg_rma &msg, uint64_t flags) {
  if (msg.iov_count > kIovLimit || (msg.iov_count != 0 && msg.msg_iov == nullptr) ||
      msg.rma_iov == nullptr || msg.rma_iov_count == 0 || msg.rma_iov_count > kIovLimit)
    return -FI_EINVAL;
  request.iov = msg.msg_iov;
  request.desc = msg.desc;
  request.count = msg.iov_count;
  request.rma = msg.rma_iov;
  request.rma_count = msg.rma_iov_count;
  request.dest = msg.addr;
  request.data = msg.data;
  request.flags = flags;
  request.context = msg.context;
  uint64_t remote = 0;
  for (size_t i = 0; i < msg.rma_iov_count; ++i)
    if (__builtin_add_overflow(remote, uint64_t(msg.rma_iov[i].len), &remote)) return -FI_EMSGSIZE;
  if (!add_up(msg.msg_iov, msg.iov_count, request.length)) return -FI_EMSGSIZE;
  return remote == request.length ? 0 : -FI_EINVAL;
}
// `request` says its kind, and has the results and compare values.
inline void fill(AtomicRequest &request, const fi_msg_atomic &msg, uint64_t flags) {
  request.datatype = raw(msg.datatype);
  request.op = raw(msg.op);
  request.operands = msg.msg_iov;
  request.operand_desc = msg.desc;
  request.operand_count = msg.iov_count;
  request.rma = msg.rma_iov;
  request.rma_count = msg.rma_iov_count;
  request.dest = msg.addr;
  request.data = msg.data;
  request.flags = flags;
  request.context = msg.context;
}
// The receiver checks the vectors.
inline RecvRequest recv_request(const fi_msg &msg, uint64_t flags) {
  return {.iov = msg.msg_iov,
          .desc = msg.desc,
          .count = msg.iov_count,
          .src = msg.addr,
          .flags = flags,
          .context = msg.context};
}
inline RecvRequest recv_request(const fi_msg_tagged &msg, uint64_t flags) {
  return {.tagged = true,
          .iov = msg.msg_iov,
          .desc = msg.desc,
          .count = msg.iov_count,
          .src = msg.addr,
          .tag = msg.tag,
          .ignore = msg.ignore,
          .flags = flags,
          .context = msg.context};
}

}  // namespace weft::sdk

#endif
