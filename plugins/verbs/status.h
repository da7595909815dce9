// SPDX-License-Identifier: BSD-2-Clause
// What a work completion's status is in OFI's errors.
//
// Example (statements):
//    const int err = error_of(IBV_WC_REM_ACCESS_ERR);  // FI_EACCES
//
// Not for errors of calls: those are errnos already.
#ifndef WEFT_PLUGINS_VERBS_STATUS_H
#define WEFT_PLUGINS_VERBS_STATUS_H

#include <infiniband/verbs.h>
#include <rdma/fi_errno.h>

namespace weft::verbs {

// FI_E...; 0 for IBV_WC_SUCCESS.
constexpr int error_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return 0;
    case IBV_WC_LOC_LEN_ERR:  // a message is longer than its receive, or than a queue pair allows
      return FI_ETRUNC;
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_MW_BIND_ERR:
      return FI_EINVAL;
    case IBV_WC_REM_ACCESS_ERR:
      return FI_EACCES;
    case IBV_WC_REM_INV_REQ_ERR:
      return FI_EREMOTEIO;
    case IBV_WC_REM_OP_ERR:
      return FI_EREMOTEIO;
    case IBV_WC_WR_FLUSH_ERR:
      return FI_ECANCELED;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
      return FI_ETIMEDOUT;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return FI_ENORX;
    case IBV_WC_REM_ABORT_ERR:
      return FI_ECONNABORTED;
    default:
      return FI_EIO;
  }
}

}  // namespace weft::verbs

#endif
