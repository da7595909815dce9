// SPDX-License-Identifier: BSD-2-Clause
// The objects of the library itself that fi_open() knows: "logging" (fi_import_log) and "weft"
// (weft/diagnosis.h).
//
// Example:
//    int open_weft(weft::Process &process, struct fid **object) {
//      return weft::open_named(process, FI_VERSION(2, 6), "weft", nullptr, 0, 0, object, nullptr);
//    }
//
// Not for fabrics and the objects opened from them.
#ifndef WEFT_CORE_API_NAMED_OBJECTS_H
#define WEFT_CORE_API_NAMED_OBJECTS_H

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>

namespace weft {

struct Process;

// As fi_open(3). `process` must outlive the object.
int open_named(Process &process, uint32_t version, const char *name, const void *attr,
               size_t attr_len, uint64_t flags, struct fid **fid, void *context) noexcept;

}  // namespace weft

#endif
