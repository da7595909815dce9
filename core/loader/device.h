// SPDX-License-Identifier: BSD-2-Clause
// The stage device: is there hardware that a unit says it needs?
//
// Example:
//    bool is_here(const weft::UnitInfo &unit) { return weft::check_devices(unit).has_value(); }
//
// Looks at names only, opens no device: a driver that hangs cannot hold it up.
#ifndef WEFT_CORE_LOADER_DEVICE_H
#define WEFT_CORE_LOADER_DEVICE_H

#include <string>

#include "core/base/unit.h"
#include "core/loader/plugin_record.h"

namespace weft {

// One present device of the unit is enough; an empty list needs none. The remedy is the unit's own,
// if it has one. Only tests give another `sysfs`.
Checked<void> check_devices(const UnitInfo &unit, const std::string &sysfs = "/sys");

}  // namespace weft

#endif
