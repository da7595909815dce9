// SPDX-License-Identifier: BSD-2-Clause
// A unit (provider, layer or hook) as the core knows it: what its plugin declares, and the unit
// itself when its library is open. The loader fills these; select chooses by them, and stack
// composes them.
//
// Example (statements):
//    weft::UnitInfo tcp{.name = "tcp"};
//    weft::LoadedUnit loaded{.info = &tcp};  // .unit is the table of the plugin
//
// Plain data. Not for the file that holds a unit: core/loader/plugin_record.h.
#ifndef WEFT_CORE_BASE_UNIT_H
#define WEFT_CORE_BASE_UNIT_H

#include <weft/plugin.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

// A parameter that a unit declares.
struct ParamInfo {
  uint32_t type = 0;  // WEFT_TYPE_...
  std::string name, default_value, help;
  bool has_default = false;
  int64_t minimum = 0, maximum = 0;
};

// A unit as far as it is known without its library being open: from index, manifest or (for a file
// with neither) a probe.
struct UnitInfo {
  std::string name, ofi_name, summary;
  uint32_t kind = 0, version = 0, needs_ep = 0, offers_ep = 0, maturity = 0, security = 0;
  uint32_t inner_min = 0, inner_max = 0;  // layers: how many providers it takes; 0: one
  int32_t rank = 0;
  std::vector<std::string> devices;
  std::string device_remedy;  // the way out where none of them is present; empty: nothing special
  std::vector<ParamInfo> params;

  std::string plugin, vendor, plugin_version, license, support;
  std::string library;   // absolute path of the .so
  std::string manifest;  // absolute path; empty: found by FI_PROVIDER_PATH without one
};

// A unit of a library that is open and whose init succeeded.
struct LoadedUnit {
  const weft_unit *unit = nullptr;
  void *plugin_state = nullptr;
  uint32_t hook_slot = 0;  // hooks only
  const UnitInfo *info = nullptr;
};

}  // namespace weft

#endif
