// SPDX-License-Identifier: BSD-2-Clause
// Waits for a device, for a short time.
//
// Example:
//    #include <atomic>
//    inline bool wait_for(DeviceEvents &events, std::atomic<bool> &seen) {
//      return linger(events, /*most_ms=*/1000, [&] { return seen.load(); });
//    }
//
// For calls that end something: fi_close, fi_shutdown. Not for the data path.
#ifndef WEFT_PLUGINS_VERBS_LINGER_H
#define WEFT_PLUGINS_VERBS_LINGER_H

#include <time.h>
#include <weft/sdk/progress/engine.h>

#include <algorithm>
#include <cstdint>

#include "plugins/verbs/device_events.h"

namespace weft::verbs {

// Until `is_done`, for at most `most_ms`. The lock of the fabric's engine is held.
template <class IsDone>
bool linger(DeviceEvents &events, int most_ms, IsDone is_done) {
  const uint64_t end = sdk::now_ns() + uint64_t(most_ms) * UINT64_C(1'000'000);
  for (long pause_ns = 10'000;; pause_ns = std::min(2 * pause_ns, 1'000'000L)) {
    events.read();
    if (is_done()) return true;
    if (sdk::now_ns() >= end) return false;
    const timespec pause{0, pause_ns};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace weft::verbs

#endif
