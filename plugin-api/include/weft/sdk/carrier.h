// SPDX-License-Identifier: BSD-2-Clause
// What a layer that puts its own packets into connected endpoints (rxm) may ask of them beyond the
// C API, where the provider has it.
//
//   weft_carrier_ops *ops;
//   if (fi_open_ops(&ep->fid, WEFT_CARRIER_OPS, 0, (void **)&ops, nullptr) == 0)
//     ops->identify(ep, number);      // before fi_connect or fi_accept
//
// Not for applications, and nothing that a layer could not do without: it then trusts what its
// peers' packets say of themselves.
#ifndef WEFT_SDK_CARRIER_H
#define WEFT_SDK_CARRIER_H

#include <rdma/fi_endpoint.h>
#include <stddef.h>

#define WEFT_CARRIER_OPS "weft_carrier_1"

typedef struct weft_carrier_ops {
  size_t size;
  // fi_cq_readfrom reports `source` for everything that arrives at this endpoint, also where
  // receives are shared. A message whose frame has a tag in the provider's own header (libfabric
  // 1.17 to 1.19 send such to rxm over tcp) is taken, and completes with FI_TAGGED and the tag.
  int (*identify)(struct fid_ep *ep, fi_addr_t source);
} weft_carrier_ops;

#endif
