// SPDX-License-Identifier: BSD-2-Clause
// Text of the values and structs of the C API, in the shape that readers of `fi_info -v` know.
//
// Example:
//    void print_caps(const fi_info &info) {
//      char text[256];
//      weft::to_text(&info.caps, FI_TYPE_CAPS, text, sizeof text);  // "FI_MSG, FI_RMA"
//    }
//
// Writes at most `size` bytes, always with a terminating NUL; a longer text is cut off. Reads
// nothing but the value itself and what it owns: pointers to open objects are printed, not
// followed. Needs no allocation and no lock. Not a serialisation: nobody reads it back.
#ifndef WEFT_CORE_BASE_TOSTR_H
#define WEFT_CORE_BASE_TOSTR_H

#include <rdma/fabric.h>

#include <cstddef>

namespace weft {

// `data` as fi_tostr(3) wants it for `type`. The text also says if the type is unknown or `data`
// null.
void to_text(const void *data, fi_type type, char *text, size_t size) noexcept;

// The device part of an fi_info ("nic:\n    fi_device_attr: ...").
void nic_to_text(const struct fid_nic &nic, char *text, size_t size) noexcept;

// Text of an error number, positive or negative: one of the system or FI_E....
const char *error_text(int error) noexcept;

}  // namespace weft

#endif
