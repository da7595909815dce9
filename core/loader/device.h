// SPDX-License-Identifier: BSD-2-Clause
// The stage device: is there hardware that a unit says it needs?
//
// Example:
//    bool is_here() {
//      return weft::check_devices({"pci:15b3:*", "path:/dev/infiniband/uverbs*"}).has_value();
//    }
//
// Looks at names only, opens no device: a driver that hangs cannot hold it up.
#ifndef WEFT_CORE_LOADER_DEVICE_H
#define WEFT_CORE_LOADER_DEVICE_H

#include <string>
#include <vector>

#include "core/loader/plugin_record.h"

namespace weft {

// One present device is enough; an empty list needs none. Only tests give another `sysfs`.
Checked<void> check_devices(const std::vector<std::string> &devices,
                            const std::string &sysfs = "/sys");

}  // namespace weft

#endif
