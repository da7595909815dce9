// SPDX-License-Identifier: BSD-2-Clause
// What weft/cxi_services.h promises of a fabric.
//
// Example:
//    // fi_open_ops of something that has no other operations.
//    inline int open_ops(const char *name, void **ops) {
//      return is_services_ops(name) ? open_services_ops(ops) : -FI_ENOSYS;
//    }
#ifndef WEFT_PLUGINS_CXI_SERVICES_OPS_H
#define WEFT_PLUGINS_CXI_SERVICES_OPS_H

#include <rdma/fi_errno.h>
#include <weft/cxi_services.h>

#include <string_view>

namespace weft::cxi {

inline bool is_services_ops(const char *name) {
  return name != nullptr && std::string_view(name) == WEFT_CXI_SERVICES_OPS;
}
int open_services_ops(void **ops);

}  // namespace weft::cxi

#endif
