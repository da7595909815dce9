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

ssize_t Endpoint::start(const sdk::RmaRequest &request) {
  return launch(request, [this](fid_ep *ep, fi_addr_t name, const sdk::RmaRequest &r) {
    if (is_silent(r)) {
      const iovec &from = r.iov[0];
      const fi_rma_iov &to = r.rma[0];
      return r.flags & FI_REMOTE_CQ_DATA
                 ? fi_inject_writedata(ep, from.iov_base, from.iov_len, r.data, name, to.addr,
                                       to.key)
                 : fi_inject_write(ep, from.iov_base, from.iov_len, name, to.addr, to.key);
    }
    const fi_msg_rma msg{.msg_iov = r.iov,
                         .desc = kNone,
                         .iov_count = r.count,
                         .addr = name,
                         .rma_iov = r.rma,
                         .rma_iov_count = r.rma_count,
                         .context = r.context,
                         .data = r.data};
    const uint64_t flags = r.flags & kSendFlags;
    return r.write ? fi_writemsg(ep, &msg, flags) : fi_readmsg(ep, &msg, flags & kReadFlags);
  });
}

ssize_t Endpoint::start(const sdk::AtomicRequest &request) {
  return launch(request, [this](fid_ep *ep, fi_addr_t name, const sdk::AtomicRequest &r) {
    const auto datatype = fi_datatype(r.datatype);
    const auto op = fi_op(r.op);
    if (is_silent(r))
      return fi_inject_atomic(ep, r.operands[0].addr, r.operands[0].count, name, r.rma[0].addr,
                              r.rma[0].key, datatype, op);
    const fi_msg_atomic msg{.msg_iov = r.operands,
                            .desc = kNone,
                            .iov_count = r.operand_count,
                            .addr = name,
                            .rma_iov = r.rma,
                            .rma_iov_count = r.rma_count,
                            .datatype = datatype,
                            .op = op,
                            .context = r.context,
                            .data = r.data};
    const uint64_t flags = r.flags & kSendFlags;
    switch (r.kind) {
      case sdk::AtomicKind::kWrite:
        return fi_atomicmsg(ep, &msg, flags);
      case sdk::AtomicKind::kFetch:
        return fi_fetch_atomicmsg(ep, &msg, r.results, kNone, r.result_count, flags);
      default:
        return fi_compare_atomicmsg(ep, &msg, r.compares, kNone, r.compare_count, r.results, kNone,
                                    r.result_count, flags);
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
