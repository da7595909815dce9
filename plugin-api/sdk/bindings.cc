// SPDX-License-Identifier: BSD-2-Clause
#include <rdma/fi_errno.h>
#include <weft/sdk/bindings.h>

namespace weft::sdk {

bool wants_shared_receive(const fi_info &info) {
  return info.ep_attr != nullptr && info.ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT;
}

Result<void> check_shared_receive(bool wanted, bool bound) {
  if (!wanted || bound) return {};
  return fail(FI_EINVAL,
              "fi_enable: the endpoint was opened with rx_ctx_cnt = FI_SHARED_CONTEXT: fi_ep_bind "
              "a shared receive context (fi_srx_context) first");
}

int Bindings::bind_cq(struct fid *fid, uint64_t flags, CqPlace tx, CqPlace rx) {
  if (!Cq::is_mine(fid, FI_CLASS_CQ, domain_.instance)) return -FI_EINVAL;
  if (flags & ~uint64_t(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION) ||
      !(flags & (FI_TRANSMIT | FI_RECV)))
    return -FI_EBADFLAGS;
  Cq *cq = Cq::from(fid);
  if (&cq->engine() != domain_.engine) return -FI_EINVAL;  // another domain's: another lock
  if ((flags & FI_TRANSMIT && tx.cq != nullptr) || (flags & FI_RECV && rx.cq != nullptr))
    return -FI_EBUSY;
  hold(cq->users);
  if (flags & FI_TRANSMIT) {
    tx.cq = cq;
    tx.selective = flags & FI_SELECTIVE_COMPLETION;
  }
  if (flags & FI_RECV) {
    rx.cq = cq;
    rx.selective = flags & FI_SELECTIVE_COMPLETION;
  }
  return 0;
}

int Bindings::bind_cntr(struct fid *fid, uint64_t flags, std::initializer_list<CntrPlace> places) {
  if (!Cntr::is_mine(fid, FI_CLASS_CNTR, domain_.instance)) return -FI_EINVAL;
  Cntr *cntr = Cntr::from(fid);
  if (&cntr->engine() != domain_.engine) return -FI_EINVAL;
  uint64_t known = 0;
  for (const CntrPlace &place : places) {
    known |= place.event;
    if (flags & place.event && place.cntr != nullptr) return -FI_EBUSY;
  }
  if (flags == 0 || flags & ~known) return -FI_EBADFLAGS;
  hold(cntr->users);
  for (const CntrPlace &place : places)
    if (flags & place.event) place.cntr = cntr;
  return 0;
}

}  // namespace weft::sdk
