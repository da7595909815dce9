// SPDX-License-Identifier: BSD-2-Clause
// What /proc/self says of the mappings of this process. Reads without allocating, so code under the
// lock of a MemoryMonitor may call it.
//
// Example:
//    // Whether a buffer is memory that only this process has.
//    inline bool is_own(const void *buffer, size_t length) {
//      const auto start = reinterpret_cast<uintptr_t>(buffer);
//      return weft::sdk::is_private_anonymous(start, start + length);
//    }
//
// Not for the data path: a look costs microseconds, and more where there are many mappings.
#ifndef WEFT_PLUGIN_API_SDK_DEVICES_MAPPINGS_H
#define WEFT_PLUGIN_API_SDK_DEVICES_MAPPINGS_H

#include <weft/sdk/devices/memory_monitor.h>

#include <cstdint>
#include <optional>

namespace weft::sdk {

// Whether all from start up to end is mapped, belongs to no file, and is shared with nobody.
bool is_private_anonymous(uintptr_t start, uintptr_t end);

// The first mapping that a userfaultfd watches for write protection only, as the monitor's does.
std::optional<MemoryRange> next_watched();

}  // namespace weft::sdk

#endif
