// SPDX-License-Identifier: BSD-2-Clause
// Remote memory access and atomic operations: those of the endpoint beneath that reaches the peer.
// Keys are the same in both.
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include <algorithm>

#include "plugins/link/endpoint.h"

namespace weft::link {
namespace {

// The providers beneath want no descriptors.
void *kNone[sdk::kIovLimit] = {};

}  // namespace

// `call` is that of the endpoint beneath.
template <class Request, class Call>
ssize_t Endpoint::access(const Request &request, Call call) {
  Way way;
  if (const ssize_t rc = find_way(request.dest, way); rc != 0) return rc;
  return counted(way, call(beneath_[way.branch()], way.name()));
}

ssize_t Endpoint::start(const sdk::RmaRequest &request) {
  return access(request, [&](fid_ep *ep, fi_addr_t name) {
    if (is_silent(request)) {
      const iovec &from = request.iov[0];
      const fi_rma_iov &to = request.rma[0];
      return request.flags & FI_REMOTE_CQ_DATA
                 ? fi_inject_writedata(ep, from.iov_base, from.iov_len, request.data, name, to.addr,
                                       to.key)
                 : fi_inject_write(ep, from.iov_base, from.iov_len, name, to.addr, to.key);
    }
    const fi_msg_rma msg{.msg_iov = request.iov,
                         .desc = kNone,
                         .iov_count = request.count,
                         .addr = name,
                         .rma_iov = request.rma,
                         .rma_iov_count = request.rma_count,
                         .context = request.context,
                         .data = request.data};
    const uint64_t flags = request.flags & kSendFlags;
    return request.write ? fi_writemsg(ep, &msg, flags) : fi_readmsg(ep, &msg, flags & kReadFlags);
  });
}

ssize_t Endpoint::start(const sdk::AtomicRequest &request) {
  return access(request, [&](fid_ep *ep, fi_addr_t name) {
    const auto datatype = fi_datatype(request.datatype);
    const auto op = fi_op(request.op);
    if (is_silent(request))
      return fi_inject_atomic(ep, request.operands[0].addr, request.operands[0].count, name,
                              request.rma[0].addr, request.rma[0].key, datatype, op);
    const fi_msg_atomic msg{.msg_iov = request.operands,
                            .desc = kNone,
                            .iov_count = request.operand_count,
                            .addr = name,
                            .rma_iov = request.rma,
                            .rma_iov_count = request.rma_count,
                            .datatype = datatype,
                            .op = op,
                            .context = request.context,
                            .data = request.data};
    const uint64_t flags = request.flags & kSendFlags;
    switch (request.kind) {
      case sdk::AtomicKind::kWrite:
        return fi_atomicmsg(ep, &msg, flags);
      case sdk::AtomicKind::kFetch:
        return fi_fetch_atomicmsg(ep, &msg, request.results, kNone, request.result_count, flags);
      default:
        return fi_compare_atomicmsg(ep, &msg, request.compares, kNone, request.compare_count,
                                    request.results, kNone, request.result_count, flags);
    }
  });
}

// What both have, and the fewest elements.
template <class Valid>
int Endpoint::valid_in_both(Valid valid, size_t *count) {
  size_t least = SIZE_MAX;
  for (size_t i = 0; i < domain_.branches(); ++i) {
    size_t its = 0;
    if (const int rc = valid(beneath_[i], &its); rc != 0) return rc;
    least = std::min(least, its);
  }
  if (count != nullptr) *count = least;
  return 0;
}

int Endpoint::atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return valid_in_both(
      [=](fid_ep *ep, size_t *its) { return fi_atomicvalid(ep, datatype, op, its); }, count);
}
int Endpoint::fetch_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return valid_in_both(
      [=](fid_ep *ep, size_t *its) { return fi_fetch_atomicvalid(ep, datatype, op, its); }, count);
}
int Endpoint::compare_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return valid_in_both(
      [=](fid_ep *ep, size_t *its) { return fi_compare_atomicvalid(ep, datatype, op, its); },
      count);
}

}  // namespace weft::link
