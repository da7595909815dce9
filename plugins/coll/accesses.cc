// SPDX-License-Identifier: BSD-2-Clause
// Remote memory access and atomic operations of the application, and the counters of what peers do
// here: those of the endpoint beneath.
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include <algorithm>

#include "plugins/coll/endpoint.h"

namespace weft::coll {
namespace {

// The provider beneath wants no descriptors.
void *kNone[sdk::kIovLimit] = {};

template <class T>
void copy(const T *from, size_t count, T *to) {
  std::copy_n(from, std::min(count, sdk::kIovLimit), to);
}

}  // namespace

// `call` is that of the endpoint beneath: call(access, name of the peer there, flags).
template <class Request, class Call>
ssize_t Endpoint::start_access(const Request &request, uint64_t length, Call call) {
  if (tx_.has_no_place(engine(), request.flags)) return -FI_EAGAIN;
  const fi_addr_t dest = names_->of(av()->index_of(request.dest));
  if (dest == FI_ADDR_NOTAVAIL || request.rma_count > remote_vectors_) return -FI_EINVAL;
  Access *const access = accesses_.take();
  if (access == nullptr) {
    poll_beneath();  // an application that only injects never makes progress
    return -FI_EAGAIN;
  }
  access->kind = Posted::kAccess;
  access->context = request.context;
  access->flags = sdk::completion_flags(request);
  access->length = length;
  access->report = request.report;
  const ssize_t rc = call(*access, dest, (request.flags & kSendFlags) | FI_COMPLETION);
  if (rc != 0) accesses_.give(access);
  return rc;
}

ssize_t Endpoint::start(const sdk::RmaRequest &request) {
  if (request.count > send_vectors_) return -FI_EINVAL;
  return start_access(request, request.length, [&](Access &access, fi_addr_t dest, uint64_t flags) {
    copy(request.iov, request.count, access.iov);
    copy(request.rma, request.rma_count, access.rma);
    const fi_msg_rma msg{.msg_iov = access.iov,
                         .desc = kNone,
                         .iov_count = request.count,
                         .addr = dest,
                         .rma_iov = access.rma,
                         .rma_iov_count = request.rma_count,
                         .context = static_cast<Posted *>(&access),
                         .data = request.data};
    return request.write ? fi_writemsg(inner_, &msg, flags) : fi_readmsg(inner_, &msg, flags);
  });
}

ssize_t Endpoint::start(const sdk::AtomicRequest &request) {
  const uint64_t length = request.elements * sdk::datatype_size(request.datatype);
  return start_access(request, length, [&](Access &access, fi_addr_t dest, uint64_t flags) {
    copy(request.operands, request.operand_count, access.operands);
    copy(request.rma, request.rma_count, access.rma_atomic);
    copy(request.compares, request.compare_count, access.compares);
    copy(request.results, request.result_count, access.results);
    const fi_msg_atomic msg{.msg_iov = access.operands,
                            .desc = kNone,
                            .iov_count = request.operand_count,
                            .addr = dest,
                            .rma_iov = access.rma_atomic,
                            .rma_iov_count = request.rma_count,
                            .datatype = fi_datatype(request.datatype),
                            .op = fi_op(request.op),
                            .context = static_cast<Posted *>(&access),
                            .data = request.data};
    switch (request.kind) {
      case sdk::AtomicKind::kWrite:
        return fi_atomicmsg(inner_, &msg, flags);
      case sdk::AtomicKind::kFetch:
        return fi_fetch_atomicmsg(inner_, &msg, access.results, kNone, request.result_count, flags);
      default:
        return fi_compare_atomicmsg(inner_, &msg, access.compares, kNone, request.compare_count,
                                    access.results, kNone, request.result_count, flags);
    }
  });
}

void Endpoint::end_access(Access &access, int err) {
  if (err == 0)
    tx_.succeed(access.context, access.flags, access.length, access.report);
  else
    tx_.finish({.context = access.context,
                .flags = access.flags,
                .length = access.length,
                .report = access.report,
                .err = err});
  accesses_.give(&access);
}

// ---- what peers do here ----

int Endpoint::bind(struct fid *fid, uint64_t flags) {
  if (fid != nullptr && fid->fclass == FI_CLASS_SRX_CTX) return bind_shared(fid, flags);
  if (const int rc = bind_object(fid, flags); rc != 0) return rc;
  const sdk::Guard guard(lock());
  if (!enabled()) return 0;
  const auto counted = count_remote();
  return counted ? 0 : -counted.error().code;
}

Result<void> Endpoint::count_remote() {
  const struct {
    sdk::Cntr *outer;
    fid_cntr *&inner;
    uint64_t access;
  } all[] = {{rx_.remote_write, remote_write_, FI_REMOTE_WRITE},
             {rx_.remote_read, remote_read_, FI_REMOTE_READ}};
  for (const auto &[outer, inner, access] : all) {
    if (outer == nullptr || inner != nullptr) continue;
    WEFT_TRY(inner, sdk::Mirrors::open(domain_.inner()));
    domain_.mirrors().add(domain_.engine(), inner, *outer);
    if (const int rc = fi_ep_bind(inner_, &inner->fid, access); rc != 0)
      return fail(-rc, "coll: the endpoint beneath takes no counter of its peers' accesses");
  }
  return {};
}

// After the endpoint beneath is closed.
void Endpoint::forget_remote() {
  for (fid_cntr **cntr : {&remote_write_, &remote_read_})
    if (*cntr != nullptr) domain_.mirrors().remove(domain_.engine(), std::exchange(*cntr, nullptr));
}

}  // namespace weft::coll
