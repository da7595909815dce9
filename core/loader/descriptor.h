// SPDX-License-Identifier: BSD-2-Clause
// Reads and judges what weft_plugin_query() returned: the only place that walks a plugin's tables
// before it is trusted.
//
// Example:
//    std::string why_not(const weft_plugin_desc *desc, const weft_error &why) {
//      const weft::Checked<weft::PluginRecord> record = weft::check_descriptor(desc, why);
//      return record ? "" : record.error().cause;  // "unit_count is 100000, at most 64 ..."
//    }
//
// Touches a member only if it ends within its struct_size, a string only up to its bound. A pointer
// that is not NULL is followed: a plugin that lies about pointers crashes the process, which is why
// an unknown one is probed in a child first. Looks at no file and at no other
// plugin: find_units() sees to names that are taken.
#ifndef WEFT_CORE_LOADER_DESCRIPTOR_H
#define WEFT_CORE_LOADER_DESCRIPTOR_H

#include <weft/plugin.h>

#include "core/loader/plugin_record.h"

namespace weft {

// What this core offers.
struct CoreAbi {
  uint16_t major = WEFT_ABI_MAJOR, minor = WEFT_ABI_MINOR, major_min = WEFT_ABI_MAJOR_MIN;
  uint64_t caps = WEFT_CORE_CAP_HOOKS;
};

inline constexpr size_t kMaxName = 64;  // bytes with the NUL
inline constexpr size_t kMaxText = 1024;
inline constexpr size_t kMaxParams = 256;
inline constexpr size_t kMaxDevices = 64;

// The offer for query(). `services` must outlive every plugin that sees it.
weft_offer make_offer(const weft_core_services *services, const CoreAbi &abi = {});

// `desc` may be NULL (query() declined): `why` then has the plugin's reason.
Checked<PluginRecord> check_descriptor(const weft_plugin_desc *desc, const weft_error &why,
                                       const CoreAbi &abi = {});

// The unit of that name in a descriptor that check_descriptor() accepted; null if there is none.
const weft_unit *find_unit(const weft_plugin_desc &desc, const std::string &name);

// "a-z 0-9 - _", not empty: names of units. Parameters have no '-'.
bool valid_name(std::string_view name, bool dash);

}  // namespace weft

#endif
