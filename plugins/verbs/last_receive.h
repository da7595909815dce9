// SPDX-License-Identifier: BSD-2-Clause
// LastReceives: whether the driver of a device says that a failed queue pair takes no more receives
// of its shared queue (IBV_EVENT_QP_LAST_WQE_REACHED). Those of soft-RoCE and siw in older kernels
// never do, and an application would wait at the end of each connection.
//
// Example:
//    inline void await(LastReceives &last, DeviceEvents &events, const std::atomic<bool> &seen) {
//      last.await(events, /*most_ms=*/1000, seen);  // false: the driver does not say
//    }
#ifndef WEFT_PLUGINS_VERBS_LAST_RECEIVE_H
#define WEFT_PLUGINS_VERBS_LAST_RECEIVE_H

#include <algorithm>
#include <atomic>

#include "plugins/verbs/linger.h"

namespace weft::verbs {

class LastReceives {
 public:
  // The lock of the fabric's engine is held.
  bool await(DeviceEvents &events, int most_ms, const std::atomic<bool> &seen) {
    if (tells_ == Tells::kNever) return false;
    const bool known = tells_ == Tells::kAlways;
    const bool came = linger(events, known ? most_ms : std::min(most_ms, kFirstMs),
                             [&] { return seen.load(std::memory_order_acquire); });
    if (!known) tells_ = came ? Tells::kAlways : Tells::kNever;
    return came;
  }

 private:
  static constexpr int kFirstMs = 50;  // hardware takes microseconds
  enum class Tells { kUnknown, kAlways, kNever } tells_ = Tells::kUnknown;
};

}  // namespace weft::verbs

#endif
