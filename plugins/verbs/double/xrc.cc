// SPDX-License-Identifier: BSD-2-Clause
// XRC domains, and queue pairs of another process that are opened by their number.
#include "plugins/verbs/double/objects.h"

namespace weft::verbs_double {

// A domain for `fd` is shared between processes by the file; one process has no use for that, so
// each call makes a domain of its own.
ibv_xrcd *open_xrcd(ibv_context *ibv, ibv_xrcd_init_attr *wanted) {
  Context &context = of(ibv);
  const Entry entry(context.world, Call::k_ibv_open_xrcd);
  if (entry.error() != 0) return no_object(entry.error());
  if (context.adapter.removed) return no_object(EIO);
  constexpr uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if ((wanted->comp_mask & kNeeded) != kNeeded) return no_object(EINVAL);
  return new Xrcd(context);
}

int close_xrcd(ibv_xrcd *ibv) {
  Xrcd &xrcd = of(ibv);
  const Entry entry(xrcd.adapter.world, Call::k_ibv_close_xrcd);
  if (entry.error() != 0) return entry.error();
  if (xrcd.users > 0) return EBUSY;
  delete &xrcd;
  return 0;
}

ibv_qp *open_qp(ibv_context *ibv, ibv_qp_open_attr *wanted) {
  Context &context = of(ibv);
  const Entry entry(context.world, Call::k_ibv_open_qp);
  if (entry.error() != 0) return no_object(entry.error());
  constexpr uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  if ((wanted->comp_mask & kNeeded) != kNeeded) return no_object(EINVAL);
  const auto found = context.adapter.qps.find(wanted->qp_num);
  if (found == context.adapter.qps.end()) return no_object(EINVAL);
  Qp &qp = *found->second;
  if (qp.init.qp_type != IBV_QPT_XRC_RECV || wanted->qp_type != IBV_QPT_XRC_RECV ||
      qp.xrcd != wanted->xrcd) {
    return no_object(EINVAL);
  }
  ++qp.opened_times;
  return qp.ibv();
}

}  // namespace weft::verbs_double
