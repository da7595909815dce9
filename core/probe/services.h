// SPDX-License-Identifier: BSD-2-Clause
// The core's services for a plugin that is probed. They work, but there is no core behind them.
//
// Example:
//    #include "core/loader/descriptor.h"
//    weft_offer offer() { return weft::make_offer(&weft::probe_services()); }
//
// Enough for query() and init(): fi_info can be allocated and freed, log lines vanish, objects are
// accepted.
#ifndef WEFT_CORE_PROBE_SERVICES_H
#define WEFT_CORE_PROBE_SERVICES_H

#include <weft/plugin.h>

namespace weft {

const weft_core_services &probe_services();

}  // namespace weft

#endif
