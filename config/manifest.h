// SPDX-License-Identifier: BSD-2-Clause
// One plugin manifest, plugins.d/NAME.yaml, as C++ data: a copy of the plugin's descriptor, so that
// discovery needs no dlopen.
//
// Example:
//     inline std::vector<std::string> units_of(std::string_view text) {
//       Diagnostics diag;
//       std::vector<std::string> names;
//       if (const std::optional<Manifest> manifest = parse_manifest(text, diag))
//         for (const ManifestUnit &unit : manifest->units) names.push_back(unit.name);
//       return names;
//     }
//
// The loader checks that the library agrees with the manifest.
#ifndef WEFT_CONFIG_MANIFEST_H
#define WEFT_CONFIG_MANIFEST_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"

namespace weft::config {

struct ManifestParam {
  uint32_t type = 0;  // WEFT_TYPE_...
  std::string name, help;
  std::optional<std::string> default_value;
  int64_t minimum = 0, maximum = 0;
};

struct ManifestUnit {
  uint32_t kind = 0, needs_ep = 0, offers_ep = 0, maturity = 0, security = 0, version = 0;
  uint32_t inner_min = 0, inner_max = 0;  // of a layer: at least 1
  int32_t rank = 0;
  std::string name, summary, device_remedy;
  std::optional<std::string> ofi_name;
  std::vector<std::string> devices;
  std::vector<ManifestParam> params;
};

struct Manifest {
  uint16_t abi_major = 0, abi_minor = 0, min_core_minor = 0;
  std::string name, vendor, version, license, library, arch;
  std::optional<std::string> support;
  std::vector<ManifestUnit> units;
};

// Nothing if `diag` has an error.
std::optional<Manifest> parse_manifest(std::string_view text, Diagnostics &diag);

}  // namespace weft::config

#endif
