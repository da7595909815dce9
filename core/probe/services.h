// SPDX-License-Identifier: BSD-2-Clause
// The core's services for a plugin that is probed.
//
// Example:
//    #include "core/loader/descriptor.h"
//    weft_offer offer() { return weft::make_offer(&weft::probe_services()); }
//
// They work as in a program, but for log lines, which vanish.
#ifndef WEFT_CORE_PROBE_SERVICES_H
#define WEFT_CORE_PROBE_SERVICES_H

#include <weft/plugin.h>

#include "core/stack/object_table.h"

namespace weft {

const weft_core_services &probe_services();
ObjectTable &probe_objects();

}  // namespace weft

#endif
