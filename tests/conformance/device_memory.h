// SPDX-License-Identifier: BSD-2-Clause
// What devices demand of the memory that an application gives them. The tests know nothing of it:
// they pass no descriptors, and buffers without room for a prefix. Where fi_getinfo says that the
// stack needs more, this stands between a test and the objects of its domain, as a hook does.
//
// Example:
//    void open_domain(fid_fabric *fabric, fi_info *info, fid_domain **domain) {
//      must(fi_domain(fabric, info, domain, nullptr));
//      serve_device_memory(*domain, *info);  // before anything is opened on it
//    }
//
// * FI_MR_LOCAL: each buffer that comes without a descriptor is registered for its use, until the
//   domain closes.
// * FI_MSG_PREFIX: the first vector of each message goes through a buffer with room for the prefix,
//   and completions tell what they would tell without it.
//
// Without these modes nothing is changed. Not for atomics, and not for tagged messages: no provider
// of devices has such.
#ifndef WEFT_TESTS_CONFORMANCE_DEVICE_MEMORY_H
#define WEFT_TESTS_CONFORMANCE_DEVICE_MEMORY_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

namespace weft::conformance {

// Of the domain and of all that is opened on it from now on.
void serve_device_memory(fid_domain *domain, const fi_info &info);

}  // namespace weft::conformance

#endif
