// SPDX-License-Identifier: BSD-2-Clause
// What fi_cq_strerror and fi_eq_strerror say of a prov_errno of cxi: a return code of the NIC, or
// one of collective operations (rdma/fi_cxi_ext.h).
//
// Example:
//    inline bool is_of_cxi(int prov_errno) { return text_of_error(prov_errno) != nullptr; }
//
// Not for errors that software has found: their prov_errno is an errno, and what is said of it is
// the operating system's.
#ifndef WEFT_PLUGINS_CXI_ERROR_TEXT_H
#define WEFT_PLUGINS_CXI_ERROR_TEXT_H

namespace weft::cxi {

const char *text_of_error(int prov_errno);  // null: none of these

}  // namespace weft::cxi

#endif
