// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/error_text.h"

#include <rdma/fi_cxi_ext.h>

#include <cstdint>

#include "plugins/cxi/nic/return_codes.h"

namespace weft::cxi {
namespace {

const char *text_of_reduction(int code) {
  switch (code) {
    case FI_CXI_ERRNO_RED_FLT_OVERFLOW:
      return "reduction: a floating point result has overflowed";
    case FI_CXI_ERRNO_RED_FLT_INVALID:
      return "reduction: a floating point operand or result is invalid";
    case FI_CXI_ERRNO_RED_INT_OVERFLOW:
      return "reduction: a sum of integers has overflowed";
    case FI_CXI_ERRNO_RED_CONTR_OVERFLOW:
      return "reduction: more contributions than members";
    case FI_CXI_ERRNO_RED_OP_MISMATCH:
      return "reduction: the members disagree on the operation";
    case FI_CXI_ERRNO_RED_MC_FAILURE:
      return "reduction: a member is gone, or the multicast tree has failed";
    case FI_CXI_COLL_RC_RDMA_FAILURE:
      return "reduction: a control transfer has failed";
    case FI_CXI_COLL_RC_RDMA_DATA_FAILURE:
      return "reduction: a data transfer has failed";
    case FI_CXI_ERRNO_RED_OTHER:
      return "reduction: it has not ended well";
    default:
      return nullptr;
  }
}

const char *text_of_join(int code) {
  switch (code) {
    case FI_CXI_ERRNO_JOIN_MCAST_INUSE:
      return "join: the multicast address is in use";
    case FI_CXI_ERRNO_JOIN_HWROOT_INUSE:
      return "join: the node is the root of another tree";
    case FI_CXI_ERRNO_JOIN_MCAST_INVALID:
      return "join: the fabric manager has given no valid multicast address";
    case FI_CXI_ERRNO_JOIN_HWROOT_INVALID:
      return "join: the fabric manager has given no valid root";
    case FI_CXI_ERRNO_JOIN_CURL_FAILED:
      return "join: the fabric manager cannot be asked";
    case FI_CXI_ERRNO_JOIN_CURL_TIMEOUT:
      return "join: the fabric manager did not answer in time";
    case FI_CXI_ERRNO_JOIN_SERVER_ERR:
      return "join: the fabric manager has refused";
    case FI_CXI_ERRNO_JOIN_FAIL_PTE:
      return "join: no portal table entry is left";
    case FI_CXI_ERRNO_JOIN_OTHER:
      return "join: it has not ended well";
    case FI_CXI_ERRNO_JOIN_FAIL_RDMA:
      return "join: a member is gone, or a transfer between members has failed";
    default:
      return nullptr;
  }
}

}  // namespace

const char *text_of_error(int prov_errno) {
  if (prov_errno >= FI_CXI_ERRNO_JOIN_FIRST) return text_of_join(prov_errno);
  if (prov_errno >= FI_CXI_ERRNO_RED_FIRST) return text_of_reduction(prov_errno);
  return prov_errno > 0 && prov_errno <= UINT8_MAX ? text_of(Rc(prov_errno)) : nullptr;
}

}  // namespace weft::cxi
