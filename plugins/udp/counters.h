// SPDX-License-Identifier: BSD-2-Clause
// The counters of the udp provider. Each endpoint has a set, raised with the engine's lock held;
// the fabric tells their sum.
//
// Example:
//    inline void count(Counters &counters, size_t placed, size_t length) {
//      if (placed < length) counters.truncated.add_alone();
//    }
//
// Not for values per operation: the hook profile counts those.
#ifndef WEFT_PLUGINS_UDP_COUNTERS_H
#define WEFT_PLUGINS_UDP_COUNTERS_H

#include <weft/sdk/unit/stats.h>

namespace weft::udp {

struct Counters : sdk::CounterSet {
  using Counter = sdk::Counter;

  Counter truncated{*this, "datagrams_truncated",
                    "datagrams that were longer than the receive posted for them"};
  Counter dropped{*this, "datagrams_dropped",
                  "datagrams that arrived when there was no memory to hold them"};
  Counter socket_errors{*this, "socket_errors", "errors of the socket that belong to no operation"};
  Counter segmented_sends{*this, "sends_segmented",
                          "messages to the kernel that it cut into several datagrams"};
  Counter coalesced{*this, "receives_coalesced",
                    "messages from the kernel that held several datagrams"};
  Counter sends_put_off{*this, "sends_put_off",
                        "sends that returned FI_EAGAIN because the socket had no room"};
};

}  // namespace weft::udp

#endif
