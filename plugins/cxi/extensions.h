// SPDX-License-Identifier: BSD-2-Clause
// What the provider has beyond the portable API (fi_cxi.7, CXI EXTENSIONS; rdma/fi_cxi_ext.h): the
// tables of fi_open_ops, and the settings of one domain.
//
// Example:
//    // fi_open_ops of a domain.
//    inline int ops_open(const char *name, void **ops) { return open_domain_ops(name, ops); }
//
// Not for flags of operations: endpoint.cc.
#ifndef WEFT_PLUGINS_CXI_EXTENSIONS_H
#define WEFT_PLUGINS_CXI_EXTENSIONS_H

namespace weft::cxi {

class Domain;

// FI_CXI_DOM_OPS_1 to _6: one table. -FI_EINVAL: another name.
int open_domain_ops(const char *name, void **ops);
// FI_CXI_COUNTER_OPS.
int open_counter_ops(const char *name, void **ops);
// fi_control of a domain with FI_OPT_CXI_...; -FI_ENOSYS: none of those.
int control_domain(Domain &domain, int command, void *arg);

}  // namespace weft::cxi

#endif
