// SPDX-License-Identifier: BSD-2-Clause
// The counters of the verbs provider, one set per fabric, for `weft stats`.
//
// Example:
//    inline void refuse(sdk::Stats<Counters> &stats) { stats->connections_refused.add(); }
//
// What happens often is counted by each endpoint alone (sdk::Stats::Part). Not for values per
// operation: the hook profile counts those.
#ifndef WEFT_PLUGINS_VERBS_COUNTERS_H
#define WEFT_PLUGINS_VERBS_COUNTERS_H

#include <weft/sdk/devices/region_cache.h>
#include <weft/sdk/unit/stats.h>

namespace weft::verbs {

struct Counters : sdk::CounterSet {
  using Counter = sdk::Counter;

  Counter connections_made{*this, "connections_made", "connections made, by either side"};
  Counter connections_refused{*this, "connections_refused", "connections that a peer refused"};
  Counter connections_failed{
      *this, "connections_failed",
      "connections that were not made: no route, no answer, an error of the device"};
  Counter connections_lost{*this, "connections_lost",
                           "connections that ended without fi_close or fi_shutdown of this side"};
  Counter retries_exceeded{*this, "retries_exceeded",
                           "operations that the peer's device did not acknowledge"};
  Counter receiver_not_ready{*this, "receiver_not_ready",
                             "operations that found no receive at the peer until its device gave "
                             "up"};
  Counter queue_full{*this, "queue_full",
                     "operations put off because the completion queue had no place left"};
  Counter registrations{*this, "registrations", "memory regions registered with the device"};
  sdk::RegionCacheCounters cache{*this};
  Counter doorbells{*this, "doorbells", "calls that gave the device requests to send"};
  Counter device_failures{*this, "device_failures",
                          "events by which a device said that it or one of its queues failed"};
};

}  // namespace weft::verbs

#endif
