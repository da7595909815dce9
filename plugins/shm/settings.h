// SPDX-License-Identifier: BSD-2-Clause
// The parameters of shm, as values (provider.h declares them).
//
// Example:
//    inline uint64_t linger_ns(const weft_instance *instance) {
//      return Settings::from(instance).close_linger_ns;
//    }
#ifndef WEFT_PLUGINS_SHM_SETTINGS_H
#define WEFT_PLUGINS_SHM_SETTINGS_H

#include <weft/plugin.h>

#include <cstddef>
#include <cstdint>

#include "plugins/shm/wire/layout.h"

namespace weft::shm {

inline constexpr size_t kInjectSize = 4096;      // stock's, so that programs see the same limit
inline constexpr size_t kMaxInjectSize = 16384;  // if the hints ask for it
inline constexpr size_t kMaxQueue = 65536;

struct Settings {
  size_t tx_size = 1024, rx_size = 1024;
  Geometry geometry{.lines = 512, .bytes = 128 << 10};            // with a few peers
  uint64_t max_saved_per_peer = 32 << 20, max_saved = 512 << 20;  // bytes
  size_t max_unnamed_peers = 1024;
  uint64_t close_linger_ns = 1'000'000'000;
  uint64_t cma_size = 16 << 20;  // bytes from which on a message is copied by process_vm_readv
  bool disable_cma = false, other_users = false;

  static Settings from(const weft_instance *instance);
};

}  // namespace weft::shm

#endif
