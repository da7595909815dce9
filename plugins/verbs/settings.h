// SPDX-License-Identifier: BSD-2-Clause
// The values of the provider's parameters. Their names and help are in provider.h.
//
// Example (statements):
//    const Settings settings;  // the defaults
//    Devices devices(settings.sizes);
//
// Not for what a device has: facts.h.
#ifndef WEFT_PLUGINS_VERBS_SETTINGS_H
#define WEFT_PLUGINS_VERBS_SETTINGS_H

#include <weft/sdk/devices/region_cache.h>

#include <cstdint>
#include <optional>
#include <string>

#include "plugins/verbs/device.h"

namespace weft::verbs {

struct Settings {
  Sizes sizes;
  std::string device_name;              // the only device to use; empty: all
  std::string iface;                    // the only interfaces to use begin so; empty: all
  uint64_t connect_timeout_ms = 30000;  // 0: none
  int resolve_timeout_ms = 2000;        // of an address, and of a route
  uint8_t min_rnr_timer = 12;           // code of ibv_modify_qp.3: 0.64 ms
  int backlog = 1024;
  int close_linger_ms = 1000;  // how long fi_close waits for the device
  // Of the name of a datagram endpoint, in the port's table. None: routable_gid_index() finds it.
  std::optional<uint8_t> gid_index = 0;
  bool caches_regions = false;
  sdk::RegionCacheLimits cache_limits;
  bool prefer_xrc = false;  // offer XRC endpoints, before the others
};

}  // namespace weft::verbs

#endif
